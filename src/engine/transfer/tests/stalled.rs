//! Tests of the alert about a stalled queue.

use std::time::Duration;

use super::alerts::{are_open, settings};
use super::relays::{auth_refused, smarthost};
use super::*;
use crate::base::id::MessageId;
use crate::domain::account::QuotaLimits;
use crate::domain::alert::Condition;
use crate::domain::stream::Stream;
use crate::engine::Caller;
use crate::engine::audit::Behalf;
use crate::engine::wait_reason::{Holds, WaitReason};
use crate::store::read::Read as _;
use crate::store::row::message::TransferRow;
use crate::store::schema::{self, Table};
use crate::store::timer::{Timer, TimerKind};

/// A service whose relay is unusable, with 40 overdue messages of a paused site before 22 others.
async fn behind_paused_ones() -> World {
    let world = World::alerting(vec![smarthost(&Stream::ALL)], settings()).await;
    world.net.address("smart.test", &["198.51.100.1"]);
    world.net.behave("smart.test", auth_refused());
    assert!(world.engine.pause_site(world.account, "paused.test".parse().unwrap()).await.is_ok());
    // More messages than one part of a search reads.
    for _ in 0..40 {
        world.send("a@paused.test").await;
    }
    for number in 0..22 {
        world.send(&format!("a@r{number}.test")).await;
    }
    world.pass(20 * 60).await;
    world
}

/// Sends messages to as many sites, which defer them.
async fn deferred(world: &World, count: usize) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for number in 0..count {
        world.net.behave(&format!("mx.r{number}.test"), Behaviour::Says("451 4.3.0 later"));
        ids.push(world.send(&format!("a@r{number}.test")).await);
    }
    ids
}

/// Runs the checks. Returns whether each alert of the condition is open.
async fn checked(world: &World) -> Vec<bool> {
    world.engine.check_alerts().await.unwrap();
    are_open(world, Condition::QueueStalled)
}

#[tokio::test]
async fn a_stalled_queue_is_an_alert_until_something_is_delivered_even_over_a_restart() {
    let world = World::alerting(vec![mx("direct", &[])], settings()).await;
    let ids = deferred(&world, 25).await;
    world.pass(1).await;
    assert_eq!((world.attempts(&ids), checked(&world).await), (25, vec![true]));
    // Retries become rare: fewer than 20 in 30 minutes.
    for _ in 0..24 {
        world.pass(15 * 60).await;
        assert_eq!(checked(&world).await, [true]);
    }
    let world = world.restarted(vec![mx("direct", &[])]).await;
    assert_eq!(checked(&world).await, [true]);
    world.net.behave("mx.r0.test", Behaviour::Takes);
    world.pass(12 * 3600).await;
    assert_eq!((world.progress(ids[0]).0, checked(&world).await), ("delivered", vec![false]));
}

#[tokio::test]
async fn a_stall_ends_if_nothing_is_left_to_be_sent() {
    let world = World::alerting(vec![mx("direct", &[])], settings()).await;
    let ids = deferred(&world, 20).await;
    world.pass(1).await;
    assert_eq!(checked(&world).await, [true]);
    let world = world.restarted(vec![mx("direct", &[])]).await;
    for id in ids {
        assert!(world.engine.cancel(Behalf::operator(world.account), id).await.is_ok());
    }
    assert_eq!(checked(&world).await, [false]);
}

#[tokio::test]
async fn a_stall_lasts_while_messages_behind_many_paused_ones_are_to_be_sent() {
    let world = World::alerting(vec![mx("direct", &[])], settings()).await;
    assert!(world.engine.pause_site(world.account, "paused.test".parse().unwrap()).await.is_ok());
    // More messages than one check reads.
    for _ in 0..80 {
        world.send("a@paused.test").await;
    }
    let ids = deferred(&world, 20).await;
    world.pass(1).await;
    assert_eq!(checked(&world).await, [true]);
    let world = world.restarted(vec![mx("direct", &[])]).await;
    for _ in 0..6 {
        assert_eq!(checked(&world).await, [true]);
    }
    for id in ids {
        assert!(world.engine.cancel(Behalf::operator(world.account), id).await.is_ok());
    }
    let mut checks = 0;
    while checked(&world).await == [true] {
        checks += 1;
        assert!(checks < 5, "only paused messages are left");
    }
}

#[tokio::test]
async fn overdue_messages_behind_many_paused_ones_are_a_stall() {
    let world = behind_paused_ones().await;
    assert_eq!(checked(&world).await, [true]);
}

#[tokio::test]
async fn a_success_ends_a_stall_at_the_next_check_despite_many_overdue_paused_messages() {
    let world = World::alerting(vec![mx("direct", &[])], settings()).await;
    assert!(world.engine.pause_site(world.account, "paused.test".parse().unwrap()).await.is_ok());
    for _ in 0..40 {
        world.send("a@paused.test").await;
    }
    world.pass(20 * 60).await;
    deferred(&world, 20).await;
    world.pass(1).await;
    assert_eq!(checked(&world).await, [true]);
    let id = world.send("a@r.test").await;
    world.is_delivered(id).await;
    assert_eq!(checked(&world).await, [false]);
}

#[tokio::test]
async fn an_account_with_a_damaged_suspension_stops_no_check() {
    let world = behind_paused_ones().await;
    let quota = QuotaLimits { per_hour: 9, per_day: 9 };
    let other = world.engine.create_account("Other".parse().unwrap(), None, quota).await.unwrap().id;
    let name = "other.test".parse().unwrap();
    world.engine.create_verified_domain(other, name, Stream::Transactional).await.unwrap();
    let caller = Caller { account: other, key: None };
    let message = world.submission("shop@other.test", "a@r.test");
    assert!(world.engine.submit(&caller, message, None).await.is_ok());
    let suspended = world.engine.suspend_account(Behalf::operator(other), "unpaid".parse().unwrap()).await;
    assert!(suspended.is_ok());
    world.engine.store.damage_row(Table::Suspensions, other.as_bytes());
    world.pass(20 * 60).await;
    assert_eq!(checked(&world).await, [true]);
}

#[tokio::test]
async fn a_message_counts_only_with_its_current_timer() {
    let world = behind_paused_ones().await;
    let id = world.send("a@r.test").await;
    world.pass(1).await;
    let snapshot = world.engine.store.snapshot().unwrap();
    let holds = Holds::read(&snapshot, world.account).unwrap();
    let due = snapshot.row::<TransferRow>(&schema::message(world.account, id)).unwrap().unwrap().due.unwrap();
    let reason = |due| {
        let timer = Timer::new(due, TimerKind::Transfer, world.account, id.0);
        world.engine.reason_at(&snapshot, &timer, &holds).unwrap()
    };
    assert_eq!(reason(due), Some(WaitReason::Relay));
    assert_eq!(reason(due - Duration::from_secs(1)), None);
}
