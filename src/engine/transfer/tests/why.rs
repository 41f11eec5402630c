//! Tests of the reasons for which messages wait, in their records and in lists.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::relays::{auth_refused, smarthost, warming};
use super::world::{START, fill_places};
use super::*;
use crate::base::id::{MessageId, Ulid};
use crate::domain::stream::Stream;
use crate::engine::Tables as Rules;
use crate::engine::listing::PageRequest;
use crate::engine::messages::MessageFilter;
use crate::engine::wait_reason::{Wait, WaitReason};
use crate::smtp::rules;
use crate::smtp::shaping::Shaping;
use crate::store::error::OpError;
use crate::store::op::{Infallible, Op};
use crate::store::row::restored::{HoldCause, RestoreOrigin};
use crate::store::schema::meta;
use crate::store::tables::Tables;

/// Marks the store as restored.
#[derive(Serialize, Deserialize)]
struct Restore(RestoreOrigin);

impl Op for Restore {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.put(meta::RESTORED, &self.0);
        Ok(())
    }
}

impl World {
    /// Returns the reason why the message waits. Lists have the same reason as its record.
    async fn wait(&self, id: MessageId) -> Wait {
        let all = PageRequest { before: None, limit: 100 };
        let page = self.engine.messages(self.account, MessageFilter::default(), all).await.unwrap();
        let listed = page.rows.into_iter().find(|record| record.id == id).unwrap().waiting;
        let wait = self.message(id).waiting;
        assert_eq!(listed.as_ref().map(|wait| wait.reason), wait.as_ref().map(|wait| wait.reason));
        wait.unwrap()
    }

    /// Returns the reason, once it is this one.
    async fn waits_for(&self, id: MessageId, reason: WaitReason) -> Wait {
        loop {
            if let Some(wait) = self.message(id).waiting.filter(|wait| wait.reason == reason) {
                return wait;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns the reason, once it has this explanation.
    async fn waits_because(&self, id: MessageId, detail: &str) -> WaitReason {
        loop {
            if let Some(wait) = self.message(id).waiting.filter(|wait| wait.detail == detail) {
                return wait.reason;
            }
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_deferred_message_waits_for_its_next_attempt_and_an_ended_one_has_no_reason() {
    let world = World::new().await;
    world.net.behave("mx.grey.test", Behaviour::Says("450 4.7.1 greylisted, try again later"));
    let id = world.send("u@grey.test").await;
    world.pass(0).await;
    let wait = world.wait(id).await;
    assert_eq!((wait.reason, wait.since), (WaitReason::Backoff, START));
    assert_eq!(wait.until, world.message(id).transfer.due);
    assert_eq!(wait.until, world.message(id).next_attempt_at);
    assert_eq!(wait.detail, "The last attempt failed: mx.grey.test answered 450 4.7.1.");
    assert_eq!(world.queue("mx.grey.test").await.unwrap().reason, Some(WaitReason::Backoff));
    world.cancel(id).await;
    assert_eq!((world.progress(id).0, world.message(id).waiting), ("canceled", None));
}

#[tokio::test]
async fn messages_that_never_reached_a_throttled_site_wait_for_it() {
    let world = World::new().await;
    world.net.behave("mx.a.test", Behaviour::Says("421 4.7.28 ann@a.test gets too much mail"));
    let mut ids = Vec::new();
    for n in 0..10 {
        ids.push(world.send(&format!("u{n}@a.test")).await);
    }
    world.pass(0).await;
    let untried = *ids.iter().find(|id| world.progress(**id) == ("queued", 0)).unwrap();
    let wait = world.wait(untried).await;
    assert_eq!((wait.reason, wait.since), (WaitReason::Throttled, START));
    let queue = world.queue("mx.a.test").await.unwrap();
    assert_eq!((wait.until, queue.reason), (queue.held_until, Some(WaitReason::Throttled)));
    assert_eq!(world.message(untried).next_attempt_at, queue.held_until);
    assert_eq!(wait.detail, "mx.a.test is throttled since it answered 421 4.7.28.", "nobody's address is shown");

    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.a.test", Behaviour::Greets(Arc::clone(&gate)));
    world.clock.jump(std::time::Duration::from_secs(50));
    world.is_in_hand("mx.a.test").await;
    let wait = world.wait(*ids.iter().rfind(|id| world.progress(**id) == ("queued", 0)).unwrap()).await;
    assert_eq!((wait.reason, wait.since, wait.until), (WaitReason::Throttled, START, None), "{}", wait.detail);
    gate.add_permits(1000);
    world.net.behave("mx.a.test", Behaviour::Takes);
    world.pass(3600).await;
}

#[tokio::test]
async fn messages_over_a_provider_s_rate_wait_for_their_turn() {
    let text = "[[provider]]\nname = \"google\"\nmx = [\"mx.slow.test\"]\nmessages_per_minute = 1";
    let shaping = Arc::new(Shaping::with_overlay(text).unwrap());
    let tables = Rules { rules: Arc::new(rules::Rules::built_in().clone()), shaping };
    let world = World::shaped(vec![mx("direct", &[])], tables).await;
    world.send("first@slow.test").await;
    world.net.has_seen(1).await;
    let id = world.send("second@slow.test").await;
    let wait = world.waits_for(id, WaitReason::Throttled).await;
    assert!(wait.until.unwrap() > START + std::time::Duration::from_secs(30));
    assert_eq!(wait.detail, "Gmail takes no more messages in this minute.");
}

#[tokio::test]
async fn messages_for_a_paused_site_have_that_reason_due_or_not() {
    let world = World::new().await;
    world.net.behave("mx.grey.test", Behaviour::Says("450 4.7.1 greylisted, try again later"));
    let later = world.send("u@grey.test").await;
    world.pass(0).await;
    for site in ["grey.test", "mx.a.test"] {
        assert!(world.engine.pause_site(world.account, site.parse().unwrap()).await.is_ok());
    }
    let due = world.send("u@a.test").await;
    world.pass(0).await;
    for (id, site) in [(later, "grey.test"), (due, "mx.a.test")] {
        let wait = world.wait(id).await;
        assert_eq!((wait.reason, wait.since, wait.until), (WaitReason::Paused, START, None));
        assert_eq!(wait.detail, format!("Mail for {site} is paused."));
    }
}

#[tokio::test]
async fn a_message_waits_for_a_slow_or_postponed_lookup() {
    let world = World::new().await;
    world.net.stuck.lock().unwrap().insert("stuck.test".to_owned());
    let stuck = world.send("u@stuck.test").await;
    let wait = world.waits_for(stuck, WaitReason::Dns).await;
    assert_eq!((wait.since, wait.until), (START, None));
    assert_eq!(wait.detail, "The mail servers of stuck.test are being looked up.");

    world.net.busy.lock().unwrap().insert("busy.test".to_owned());
    let busy = world.send("u@busy.test").await;
    let wait = world.waits_for(busy, WaitReason::Dns).await;
    assert!(wait.until.is_none_or(|until| until > START));

    let unknown = world.send("u@servfail.test").await;
    while world.progress(unknown) != ("deferred", 1) {
        tokio::task::yield_now().await;
    }
    let wait = world.wait(unknown).await;
    assert_eq!((wait.reason, wait.until), (WaitReason::Dns, world.message(unknown).transfer.due));
    assert_eq!(wait.detail, "The mail servers of servfail.test could not be looked up, or have just changed.");
}

#[tokio::test]
async fn a_started_message_waits_for_its_policy_then_for_its_connection() {
    let world = World::new().await;
    world.net.stuck.lock().unwrap().insert("_mta-sts.a.test".to_owned());
    let id = world.send("u@a.test").await;
    let reason = world.waits_because(id, "The servers of mx.a.test are being looked up.").await;
    assert_eq!(reason, WaitReason::Dns);

    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.b.test", Behaviour::Greets(Arc::clone(&gate)));
    let id = world.send("u@b.test").await;
    let reason = world.waits_because(id, "A connection to mx.b.test is being opened.").await;
    assert_eq!(reason, WaitReason::Busy);
    gate.add_permits(1);
}

#[tokio::test]
async fn a_message_waits_for_memory_that_others_use() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    for site in ["mx.a.test", "mx.b.test"] {
        world.net.behave(site, Behaviour::HoldsDots(Arc::clone(&gate)));
    }
    world.send_large("u@a.test").await;
    world.net.bodies.subscribe().wait_for(|bodies| *bodies == 1).await.unwrap();
    let id = world.send_large("u@b.test").await;
    let reason = world.waits_because(id, "The content of other messages uses all memory.").await;
    assert_eq!(reason, WaitReason::Busy);
    gate.add_permits(10);
    world.pass(0).await;
}

#[tokio::test]
async fn a_message_waits_for_a_relay_that_refused_the_login() {
    let world = World::with(vec![smarthost(&Stream::ALL)]).await;
    world.net.address("smart.test", &["198.51.100.1"]);
    world.net.behave("smart.test", auth_refused());
    let id = world.send("u@a.test").await;
    world.pass(0).await;
    let wait = world.wait(id).await;
    assert_eq!((wait.reason, wait.since), (WaitReason::Relay, START));
    assert_eq!(wait.until, Some(START + std::time::Duration::from_secs(60)));
    assert_eq!(wait.detail, "Relay smart can't be used: the smarthost refused the login.");
    assert_eq!(world.queue("smart.test:587").await.unwrap().reason, Some(WaitReason::Relay));
}

#[tokio::test]
async fn a_message_waits_for_the_next_day_if_its_relays_reached_their_caps() {
    let world = World::with(vec![warming("new", 1)]).await;
    let (first, second) = (world.send("u1@a.test").await, world.send("u2@a.test").await);
    world.pass(0).await;
    let id = if world.progress(first).0 == "queued" { first } else { second };
    let wait = world.wait(id).await;
    assert_eq!((wait.reason, wait.until), (WaitReason::Relay, world.message(id).transfer.due));
}

#[tokio::test]
async fn a_message_is_busy_if_it_is_being_sent_or_all_connections_are_used() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.a.test", Behaviour::Holds(Arc::clone(&gate)));
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(world.send(&format!("u{n}@a.test")).await);
    }
    world.net.has_seen(2).await;
    let mut details = Vec::new();
    for id in ids {
        let wait = world.waits_for(id, WaitReason::Busy).await;
        assert_eq!(wait.until, None);
        details.push(wait.detail);
    }
    details.sort();
    let sent = "The message is being sent.";
    assert_eq!(details, ["All connections to mx.a.test are in use.", sent, sent]);
    assert_eq!(world.queue("mx.a.test").await.unwrap().reason, Some(WaitReason::Busy));
    gate.add_permits(10);
    world.pass(0).await;
}

#[tokio::test]
async fn a_message_without_a_permit_waits_for_the_service_not_for_its_site() {
    let world = World::new().await;
    let gate = fill_places(&world).await;
    // Two messages have the site's places, and the others wait behind them.
    for n in 0..4 {
        let id = world.send(&format!("u{n}@new.test")).await;
        assert_eq!(world.waits_because(id, "All connections are in use.").await, WaitReason::Busy);
    }
    gate.add_permits(1000);
    world.pass(0).await;
}

#[tokio::test]
async fn a_message_over_a_provider_s_rate_of_connections_waits_for_the_site() {
    let text = "[[provider]]\nname = \"google\"\nmx = [\"mx.slow.test\"]\nconnections_per_minute = 1";
    let shaping = Arc::new(Shaping::with_overlay(text).unwrap());
    let tables = Rules { rules: Arc::new(rules::Rules::built_in().clone()), shaping };
    let world = World::shaped(vec![mx("direct", &[])], tables).await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.slow.test", Behaviour::Holds(Arc::clone(&gate)));
    world.send("first@slow.test").await;
    world.net.has_seen(1).await;
    let id = world.send("second@slow.test").await;
    let reason = world.waits_because(id, "Gmail takes no more connections in this minute.").await;
    assert_eq!(reason, WaitReason::Throttled);
    world.cancel(id).await;
    gate.add_permits(10);
    world.pass(0).await;
}

#[tokio::test]
async fn messages_of_a_restored_store_are_held_until_they_are_released() {
    let world = World::new().await;
    world.net.behave("mx.grey.test", Behaviour::Says("450 4.7.1 greylisted, try again later"));
    let id = world.send("u@grey.test").await;
    world.pass(0).await;
    let (last_message, last_id) = (id.0, Ulid::default());
    let cause = HoldCause::Restored;
    let restored =
        RestoreOrigin { backup_at: START, has_content: true, last_message, last_id, is_on_hold: true, cause };
    world.engine.store.commit(Restore(restored)).await.unwrap();
    let wait = world.wait(id).await;
    assert_eq!((wait.reason, wait.since, wait.until), (WaitReason::Held, START, None));
    assert_eq!(world.queue("mx.grey.test").await.unwrap().reason, Some(WaitReason::Held));
    world.engine.store.release_queue().await.unwrap();
    assert_eq!(world.wait(id).await.reason, WaitReason::Backoff);
}
