//! Tests of a store that fails or has damaged bodies. A process that can't record outcomes sends nothing, and a message
//! without readable content fails.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::{Behaviour, World};
use crate::base::time::Timestamp;
use crate::domain::webhook_url::WebhookUrl;
use crate::engine::endpoints::NewEndpoint;
use crate::store::timer::TimerKind;

impl World {
    /// Waits until every attempt has ended, recorded or not. Housekeeping waits longer after the store failed.
    async fn every_attempt_ended(&self) {
        let timers = self.engine.store.timers();
        let ended = async {
            while !timers.is_idle(TimerKind::Transfer) || !timers.is_idle(TimerKind::Delivery) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), ended).await.expect("every attempt ends");
    }
}

#[tokio::test]
async fn a_message_whose_connection_opens_after_the_store_failed_is_not_sent() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.slow.test", Behaviour::Greets(Arc::clone(&gate)));
    world.send("b@slow.test").await;
    while world.net.opened.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    world.engine.store.fail_in_writer();
    gate.add_permits(1);
    world.every_attempt_ended().await;
    assert_eq!(world.net.seen(), [], "MAIL was said");
}

#[tokio::test]
async fn a_body_requested_after_the_store_failed_is_not_sent() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.slow.test", Behaviour::Holds(Arc::clone(&gate)));
    world.send("b@slow.test").await;
    world.net.has_seen(1).await;
    world.engine.store.fail_in_writer();
    gate.add_permits(1);
    world.every_attempt_ended().await;
    assert_eq!(world.net.seen(), [], "the server got the body");
}

#[tokio::test]
async fn a_message_whose_key_is_missing_before_its_time_is_deferred_and_fails_after_an_hour() {
    let world = World::new().await;
    world.net.behave("mx.dead.test", Behaviour::Refuses);
    let id = world.send("b@dead.test").await;
    world.pass(0).await;
    let content = world.engine.store.content();
    for bucket in content.buckets_until(Timestamp::MAX).unwrap() {
        content.destroy(bucket).unwrap();
    }
    world.net.behave("mx.dead.test", Behaviour::Takes);
    world.pass(300).await;
    assert_eq!(world.progress(id), ("deferred", 1), "that is no attempt");
    world.pass(3600).await;
    assert_eq!(world.progress(id), ("failed", 1));
    assert_eq!(world.net.seen(), []);
}

#[tokio::test]
async fn waiting_webhooks_are_not_sent_after_the_store_failed() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    *world.net.post_gate.lock().unwrap() = Some(Arc::clone(&gate));
    let url = WebhookUrl::parse("https://hooks.example/", |_| true).unwrap();
    let endpoint = NewEndpoint { url, events: None, description: None };
    world.engine.create_endpoint(world.account, endpoint).await.unwrap();
    for number in 0..10 {
        world.send(&format!("u{number}@a.test")).await;
    }
    world.net.posted.subscribe().wait_for(|posted| *posted > 0).await.unwrap();
    world.net.has_seen(10).await;
    world.engine.store.fail_in_writer();
    let begun = *world.net.posted.borrow();
    assert!(begun < 10, "some wait");
    gate.add_permits(1000);
    world.every_attempt_ended().await;
    assert_eq!(*world.net.posted.borrow(), begun);
}

#[tokio::test]
async fn a_message_whose_content_is_damaged_is_deferred_and_fails_after_an_hour() {
    let world = World::new().await;
    world.net.behave("mx.dead.test", Behaviour::Refuses);
    let id = world.send("b@dead.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(id), ("deferred", 1));
    world.damage_bodies();
    // The next attempt reads the disk.
    drop(world.engine.store.content().fresh(id));
    world.net.behave("mx.dead.test", Behaviour::Takes);
    world.pass(300).await;
    assert_eq!(world.progress(id), ("deferred", 1), "that is no attempt");
    world.pass(3600).await;
    assert_eq!(world.progress(id), ("failed", 1));
    assert_eq!(world.net.seen(), []);
}
