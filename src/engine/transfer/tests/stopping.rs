//! Tests of a stop: messages that wait for a permit, a greeting or a name stay in the store.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::world::fill_places;
use super::*;
use crate::domain::webhook_url::WebhookUrl;
use crate::engine::endpoints::NewEndpoint;

#[tokio::test]
async fn messages_that_wait_for_a_permit_at_a_stop_are_sent_only_after_the_restart() {
    let world = World::new().await;
    let gate = fill_places(&world).await;
    let (begun, opened) = (world.net.seen().len(), world.net.opened.lock().unwrap().len());
    let id = world.send("late@late.test").await;
    world.is_in_hand("mx.late.test").await;
    world.begin_to_stop().await;
    gate.add_permits(1000);
    let world = world.stopped().await;
    assert_eq!((world.net.seen().len(), world.net.opened.lock().unwrap().len()), (begun, opened));
    let world = world.restarted(vec![mx("direct", &[])]).await;
    world.pass(0).await;
    assert_eq!(world.progress(id), ("delivered", 1));
    let all = world.net.seen();
    let mut once: Vec<_> = all.iter().map(|seen| &seen.to).collect();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), all.len(), "no message is sent twice");
}

#[tokio::test]
async fn no_mail_is_written_after_a_greeting_that_arrives_during_a_stop() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.slow.test", Behaviour::Greets(Arc::clone(&gate)));
    let id = world.send("u@slow.test").await;
    world.is_in_hand("mx.slow.test").await;
    world.begin_to_stop().await;
    gate.add_permits(1000);
    let world = world.stopped().await;
    assert_eq!((world.net.seen().len(), world.progress(id)), (0, ("queued", 0)));
}

#[tokio::test]
async fn no_mail_is_written_after_a_reset_that_is_answered_during_a_stop() {
    let world = World::new().await;
    let (id, gate) = world.waits_for_reset().await;
    world.begin_to_stop().await;
    gate.add_permits(1000);
    let world = world.stopped().await;
    assert_eq!((world.net.seen().len(), world.progress(id)), (1, ("queued", 0)));
}

#[tokio::test]
async fn no_webhook_request_begins_after_a_lookup_that_ends_during_a_stop() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    *world.net.post_lookups.lock().unwrap() = Some(Arc::clone(&gate));
    let url = WebhookUrl::parse("https://hooks.example/", |_| true).unwrap();
    let endpoint = NewEndpoint { url, events: None, description: None };
    world.engine.create_endpoint(world.account, endpoint).await.unwrap();
    world.send("u@a.test").await;
    while Arc::strong_count(&gate) < 3 {
        tokio::task::yield_now().await;
    }
    world.begin_to_stop().await;
    gate.add_permits(1000);
    let world = world.stopped().await;
    assert_eq!(*world.net.posted.borrow(), 0);
}

#[tokio::test]
async fn a_message_at_its_final_dot_at_a_stop_has_time_to_end() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.a.test", Behaviour::Holds(Arc::clone(&gate)));
    let ids = [world.send("u@a.test").await, world.send("v@a.test").await, world.send("w@a.test").await];
    world.net.has_seen(2).await;
    world.begin_to_stop().await;
    gate.add_permits(1000);
    let world = world.stopped().await;
    let delivered = ids.iter().filter(|id| world.progress(**id) == ("delivered", 1)).count();
    assert_eq!((delivered, world.net.seen().len()), (2, 2));
}
