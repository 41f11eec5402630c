//! Tests of the lease with controlled clocks and without a bucket: the tests confirm it.

use super::*;
use crate::engine::replica::lease::Lease;

fn clock() -> Arc<TestClock> {
    Arc::new(TestClock(AtomicU64::new(START.as_millis())))
}

fn lease(clock: &Arc<TestClock>, stops: bool, predecessor: Predecessor) -> Lease {
    let rules = LeaseRules { lease: LEASE, stops, is_automatic: false };
    Lease::new(rules, Arc::clone(clock) as Arc<dyn Clock>, clock.monotonic(), predecessor)
}

/// Advances time by `by` in steps of a second, with a check at each.
fn pass(clock: &TestClock, lease: &Lease, by: Duration) {
    for _ in 0..by.as_secs() {
        clock.advance(Duration::from_secs(1));
        lease.is_ready();
    }
}

#[tokio::test]
async fn a_lease_that_ran_out_while_idle_asks_first_and_a_silent_bucket_ends_it() {
    let clock = clock();
    let lease = lease(&clock, true, Predecessor::Released);
    assert!(lease.may_send().await);
    lease.confirmed(lease.ask());
    pass(&clock, &lease, Duration::from_secs(60));
    assert!(lease.is_ready(), "idle is not unconfirmed");
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
async fn a_frozen_process_has_its_lease_confirmed_again() {
    let clock = clock();
    let lease = lease(&clock, true, Predecessor::Released);
    assert!(lease.may_send().await);
    // More than half a lease without a check, though the lease is not over.
    clock.advance(LEASE / 2 + Duration::from_millis(1));
    let (permitted, ()) = tokio::join!(lease.may_send(), async {
        lease.confirmation_due().await;
        lease.confirmed(lease.ask());
    });
    assert!(permitted, "it was confirmed again");
}

#[tokio::test]
async fn a_successor_accepts_and_does_not_send_before_the_lease_of_the_holder_before_is_over() {
    let clock = clock();
    let lease = Arc::new(lease(&clock, true, Predecessor::Other));
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

#[tokio::test]
async fn a_deposed_machine_and_one_that_stops_end_all_waits() {
    let clock = clock();
    let waiting = lease(&clock, true, Predecessor::Other);
    let (may, ()) = tokio::join!(waiting.wait_to_send(), async { waiting.end_waits() });
    assert!(!may);
    let deposed = lease(&clock, false, Predecessor::Released);
    deposed.usurped();
    assert!(!deposed.wait_to_send().await && !deposed.may_send().await && !deposed.may_accept().await);
}

#[tokio::test]
async fn with_serve_no_confirmation_is_asked_for() {
    let clock = clock();
    let lease = lease(&clock, false, Predecessor::Released);
    pass(&clock, &lease, Duration::from_secs(600));
    assert!(lease.may_send().await && lease.may_accept().await && lease.left().is_none());
    assert_eq!(lease.next_ask(), None);
}
