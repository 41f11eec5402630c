//! Tests of the last check: a message that waits for a permit can be canceled, suppressed or paused, and can expire.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::world::fill_places;
use super::*;
use crate::store::op::suppression::Suppression;
use crate::store::row::suppression::SuppressionReason;

const HOUR: u64 = 3600;

#[tokio::test]
async fn a_message_that_waits_for_a_permit_can_be_canceled() {
    let world = World::new().await;
    let gate = fill_places(&world).await;
    let id = world.send("late@late.test").await;
    world.is_in_hand("mx.late.test").await;
    world.cancel(id).await;
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.progress(id), ("canceled", 0));
    assert!(world.net.seen().iter().all(|seen| seen.to != "late@late.test"));
}

#[tokio::test]
async fn a_message_that_waits_for_a_greeting_can_be_canceled() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.slow.test", Behaviour::Greets(Arc::clone(&gate)));
    let id = world.send("late@slow.test").await;
    world.is_in_hand("mx.slow.test").await;
    world.cancel(id).await;
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!((world.progress(id), world.net.seen().len()), (("canceled", 0), 0));
}

#[tokio::test]
async fn a_message_can_be_canceled_while_its_kept_connection_is_reset() {
    let world = World::new().await;
    let (id, gate) = world.waits_for_reset().await;
    world.cancel(id).await;
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!((world.progress(id), world.net.seen().len()), (("canceled", 0), 1));
}

#[tokio::test]
async fn a_canceled_or_suppressed_message_releases_its_permit_at_once() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.slow.test", Behaviour::Greets(Arc::clone(&gate)));
    let ids =
        [world.send("one@slow.test").await, world.send("two@slow.test").await, world.send("three@slow.test").await];
    while world.net.opened.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    world.cancel(ids[0]).await;
    let suppression = Suppression::of("two@slow.test".parse().unwrap(), SuppressionReason::Manual);
    world.engine.suppress(world.account, suppression).await.unwrap();
    let third = async {
        while world.net.opened.lock().unwrap().len() < 3 {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), third).await.is_ok(), "no greeting has come");
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(ids.map(|id| world.progress(id)), [("canceled", 0), ("suppressed", 0), ("delivered", 1)]);
}

#[tokio::test]
async fn a_message_cannot_be_canceled_after_its_mail_command() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.a.test", Behaviour::Holds(Arc::clone(&gate)));
    let id = world.send("u@a.test").await;
    world.net.has_seen(1).await;
    assert!(world.engine.cancel(world.account, id).await.is_err());
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.progress(id), ("delivered", 1));
}

#[tokio::test]
async fn a_message_can_be_canceled_while_it_waits_for_its_second_server() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.serve("two.test", &["mx1.two.test", "mx2.two.test"]);
    let timed_out = Behaviour::TimesOut;
    world.net.behave("mx1.two.test", timed_out);
    world.net.behave("mx2.two.test", Behaviour::Greets(Arc::clone(&gate)));
    let id = world.send("u@two.test").await;
    world.net.has_seen(1).await;
    while world.net.opened.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    world.cancel(id).await;
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!((world.progress(id), world.net.seen().len()), (("canceled", 0), 1));
}

#[tokio::test]
async fn a_suppression_stops_mail_that_waits_for_a_permit() {
    let world = World::new().await;
    let gate = fill_places(&world).await;
    let id = world.send("late@late.test").await;
    world.is_in_hand("mx.late.test").await;
    let suppression = Suppression::of("late@late.test".parse().unwrap(), SuppressionReason::Manual);
    world.engine.suppress(world.account, suppression).await.unwrap();
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.progress(id), ("suppressed", 0));
    assert!(world.net.seen().iter().all(|seen| seen.to != "late@late.test"));
}

#[tokio::test]
async fn a_pause_stops_mail_that_waits_for_a_permit() {
    let world = World::new().await;
    let gate = fill_places(&world).await;
    let id = world.send("late@late.test").await;
    world.is_in_hand("mx.late.test").await;
    assert!(world.engine.pause_site(world.account, "mx.late.test".parse().unwrap()).await.is_ok());
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.progress(id), ("queued", 0));
    assert!(world.net.seen().iter().all(|seen| seen.to != "late@late.test"));
}

#[tokio::test]
async fn a_message_that_expires_while_it_waits_for_a_permit_is_not_sent() {
    let world = World::new().await;
    let gate = fill_places(&world).await;
    let id = world.send("late@late.test").await;
    world.is_in_hand("mx.late.test").await;
    world.clock.jump(Duration::from_secs(48 * HOUR));
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.progress(id), ("failed", 0));
    assert!(world.net.seen().iter().all(|seen| seen.to != "late@late.test"));
}
