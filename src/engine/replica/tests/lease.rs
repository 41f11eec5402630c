//! Tests of the lease with controlled clocks. There is no bucket: the tests confirm the lease.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::engine::replica::lease::Lease;

fn clock() -> Arc<TestClock> {
    Arc::default()
}

fn lease(clock: &Arc<TestClock>, stops: bool, predecessor: Predecessor) -> Lease {
    let rules = LeaseRules { lease: LEASE, stops, is_automatic: false };
    Lease::new(rules, Arc::clone(clock) as Arc<dyn Clock>, clock.monotonic(), predecessor)
}

/// Advances time by `by` in steps of a second, with a check at each step.
fn pass(clock: &TestClock, lease: &Lease, by: Duration) {
    for _ in 0..by.as_secs() {
        clock.advance(Duration::from_secs(1));
        lease.is_ready();
    }
}

#[tokio::test]
async fn a_lease_that_expired_while_idle_is_confirmed_first_and_a_silent_bucket_ends_it() {
    let clock = clock();
    let lease = lease(&clock, true, Predecessor::Released);
    assert!(lease.may_send().await);
    lease.confirmed(lease.ask());
    pass(&clock, &lease, Duration::from_secs(60));
    assert!(lease.is_ready(), "an idle machine is not unconfirmed");
    let (permitted, ()) = tokio::join!(lease.may_send(), async {
        lease.confirmation_due().await;
        lease.confirmed(lease.ask());
    });
    assert!(permitted);
    pass(&clock, &lease, Duration::from_secs(60));
    let (permitted, ()) = tokio::join!(lease.may_send(), async {
        lease.confirmation_due().await;
        tokio::task::yield_now().await;
        pass(&clock, &lease, LEASE);
    });
    assert!(!permitted && !lease.is_ready());
    assert!(!lease.may_accept().await, "an unconfirmed machine accepts nothing");
    lease.confirmed(lease.ask());
    assert!(lease.may_accept().await && lease.is_ready());
}

#[tokio::test]
async fn a_frozen_process_must_confirm_its_lease_again() {
    let clock = clock();
    let lease = lease(&clock, true, Predecessor::Released);
    assert!(lease.may_send().await);
    // More than half a lease without a check, but less than a lease.
    clock.advance(LEASE / 2 + Duration::from_millis(1));
    let (permitted, ()) = tokio::join!(lease.may_send(), async {
        lease.confirmation_due().await;
        lease.confirmed(lease.ask());
    });
    assert!(permitted, "the lease was confirmed again");
}

#[tokio::test]
async fn a_successor_accepts_at_once_but_sends_only_after_its_predecessors_lease() {
    let clock = clock();
    let lease = Arc::new(lease(&clock, true, Predecessor::Other { lease: LEASE }));
    assert!(lease.is_waiting() && lease.may_accept().await && !lease.may_send().await);
    let waits = tokio::spawn({
        let lease = Arc::clone(&lease);
        async move { lease.wait_to_send().await }
    });
    pass(&clock, &lease, Duration::from_secs(5));
    assert!(!lease.may_send().await, "5 of 5.75 seconds");
    lease.confirmed(lease.ask());
    pass(&clock, &lease, Duration::from_secs(1));
    assert!(lease.may_send().await);
    assert!(waits.await.unwrap());
}

/// Starts a shipper without batches: it asks for a confirmation only when one is due.
fn idle_shipper(lease: &Arc<Lease>, is_cut_off: &Arc<AtomicBool>) -> tokio::task::JoinHandle<()> {
    let (lease, is_cut_off) = (Arc::clone(lease), Arc::clone(is_cut_off));
    tokio::spawn(async move {
        loop {
            lease.confirmation_due().await;
            let asked_at = lease.ask();
            if !is_cut_off.load(Ordering::SeqCst) {
                lease.confirmed(asked_at);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
}

/// Lets time pass for the lease and for all tasks.
async fn pass_for_all(clock: &TestClock, lease: &Lease, by: Duration) {
    for _ in 0..by.as_secs() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        pass(clock, lease, Duration::from_secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_successor_sends_once_the_wait_is_over_and_the_bucket_answers() {
    for seconds_cut_off in [0, 60] {
        let clock = clock();
        let lease = Arc::new(lease(&clock, true, Predecessor::Other { lease: LEASE }));
        let is_cut_off = Arc::new(AtomicBool::new(seconds_cut_off > 0));
        let shipper = idle_shipper(&lease, &is_cut_off);
        tokio::task::yield_now().await;
        assert!(!lease.may_send().await, "the predecessor's lease is not over");
        pass_for_all(&clock, &lease, Duration::from_secs(seconds_cut_off)).await;
        assert_eq!(lease.is_ready(), seconds_cut_off == 0);
        is_cut_off.store(false, Ordering::SeqCst);
        pass_for_all(&clock, &lease, Duration::from_secs(12)).await;
        assert!(lease.is_ready() && lease.may_send().await && lease.may_accept().await);
        shipper.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_permitted_request_that_changes_nothing_does_not_end_the_lease() {
    let clock = clock();
    let lease = Arc::new(lease(&clock, true, Predecessor::Released));
    let shipper = idle_shipper(&lease, &Arc::default());
    tokio::task::yield_now().await;
    assert!(lease.may_accept().await);
    pass_for_all(&clock, &lease, Duration::from_secs(60)).await;
    assert!(lease.is_ready() && lease.may_accept().await);
    shipper.abort();
}

#[tokio::test]
async fn deposed_and_stopping_machines_end_all_waits() {
    let clock = clock();
    let waiting = lease(&clock, true, Predecessor::Other { lease: LEASE });
    let (may, ()) = tokio::join!(waiting.wait_to_send(), async { waiting.end_waits() });
    assert!(!may);
    let deposed = lease(&clock, false, Predecessor::Released);
    deposed.usurped();
    assert!(!deposed.wait_to_send().await && !deposed.may_send().await && !deposed.may_accept().await);
}

#[tokio::test]
async fn with_serve_confirmations_are_not_requested() {
    let clock = clock();
    let lease = lease(&clock, false, Predecessor::Released);
    pass(&clock, &lease, Duration::from_secs(600));
    assert!(lease.may_send().await && lease.may_accept().await && lease.left().is_none());
    assert_eq!(lease.next_ask(), None);
}
