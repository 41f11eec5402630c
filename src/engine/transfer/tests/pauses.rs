//! Tests of mail that users pause, resume or retry at once.

use std::time::Duration;

use super::*;
use crate::base::id::MessageId;
use crate::domain::hostname::DomainName;
use crate::domain::site_name::SiteName;
use crate::engine::pauses::{RetryResult, TryRefusal};
use crate::store::error::OpError;

const HOUR: u64 = 3600;

fn site(name: &str) -> SiteName {
    name.parse().unwrap()
}

impl World {
    async fn pause(&self, name: &str) {
        assert!(self.engine.pause_site(self.account, site(name)).await.is_ok());
    }

    async fn resume(&self, name: &str) {
        assert!(self.engine.resume_site(self.account, site(name)).await.is_ok());
    }

    async fn try_site(&self, name: &str) -> RetryResult {
        self.engine.try_site(self.account, site(name)).await.unwrap()
    }

    fn due_in(&self, id: MessageId) -> u64 {
        self.message(id).transfer.due.unwrap().since(self.engine.clock.now()).as_secs()
    }
}

#[tokio::test]
async fn mail_for_a_paused_site_waits_without_an_attempt_or_write_until_resumed() {
    let world = World::new().await;
    world.net.behave("mx.a.test", Behaviour::Takes);
    world.pause("mx.a.test").await;
    let (paused, other) = (world.send("u@a.test").await, world.send("u@b.test").await);
    let due = world.message(paused).transfer.due;
    world.pass(10 * HOUR).await;
    assert_eq!((world.progress(paused), world.progress(other)), (("queued", 0), ("delivered", 1)));
    assert_eq!(world.message(paused).transfer.due, due, "nothing was written");
    assert_eq!(world.engine.pause_of(world.account, paused).unwrap().as_deref(), Some("mx.a.test"));
    let queue = world.engine.queue_of(world.account, 100).await.unwrap();
    let line = &queue.sites[0];
    assert_eq!((line.site.as_str(), line.waiting, line.next_at), ("mx.a.test", 1, None));
    let domains: Vec<_> = line.domains.iter().map(DomainName::as_str).collect();
    assert_eq!((domains, line.oldest_at), (vec!["a.test"], Some(world.message(paused).row.created_at)));
    assert!(line.paused_since.is_some() && queue.pauses.is_empty());
    world.resume("mx.a.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(paused), ("delivered", 1));
}

#[tokio::test]
async fn a_pause_survives_a_restart_and_can_name_a_recipient_domain() {
    let world = World::new().await;
    world.pause("a.test").await;
    let id = world.send("u@a.test").await;
    world.pass(0).await;
    let world = world.restarted(vec![mx("direct", &[])]).await;
    world.pass(HOUR).await;
    assert_eq!(world.progress(id), ("queued", 0));
    let queue = world.engine.queue_of(world.account, 100).await.unwrap();
    let [line] = queue.sites.as_slice() else { panic!("one site: {queue:?}") };
    let [domain] = line.paused_domains.as_slice() else { panic!("one domain: {line:?}") };
    assert_eq!((line.site.as_str(), &domain.name, domain.waiting), ("mx.a.test", &site("a.test"), 1));
    assert!(line.is_paused() && line.next_at.is_none() && line.paused_since.is_none() && queue.pauses.is_empty());
    world.resume("a.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(id), ("delivered", 1));
}

#[tokio::test]
async fn a_paused_message_expires_and_a_canceled_one_is_never_sent() {
    let world = World::new().await;
    world.pause("a.test").await;
    let (late, withdrawn) = (world.send("u@a.test").await, world.send("v@a.test").await);
    world.pass(48 * HOUR - 1).await;
    world.cancel(withdrawn).await;
    assert_eq!(world.progress(late), ("queued", 0));
    world.pass(1).await;
    assert_eq!(world.progress(late), ("failed", 0));
    world.resume("a.test").await;
    world.pass(HOUR).await;
    assert_eq!((world.progress(withdrawn), world.net.seen().len()), (("canceled", 0), 0));
}

#[tokio::test]
async fn a_pause_applies_to_one_account() {
    let world = World::new().await;
    let other = world.engine.create_account("Other".parse().unwrap(), None, world.engine.settings.quota).await.unwrap();
    assert!(world.engine.pause_site(other.id, site("a.test")).await.is_ok());
    let id = world.send("u@a.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(id), ("delivered", 1));
}

#[tokio::test]
async fn deferred_messages_are_tried_at_once_on_request() {
    let world = World::new().await;
    world.net.behave("mx.a.test", Behaviour::Says("451 4.7.1 Greylisted, try again later"));
    let ids = [world.send("u@a.test").await, world.send("v@a.test").await];
    world.pass(0).await;
    assert!(ids.iter().all(|id| world.progress(*id) == ("deferred", 1) && world.due_in(*id) > 30));
    assert!(world.engine.try_message(world.account, ids[0]).await.is_ok());
    world.pass(0).await;
    assert_eq!(ids.map(|id| world.progress(id)), [("deferred", 2), ("deferred", 1)], "no time has passed");
    for (name, tried) in [("mx.a.test", 2), ("a.test", 2), ("mx.b.test", 0)] {
        assert_eq!(world.try_site(name).await, RetryResult { messages: tried, is_cut: false }, "{name}");
        world.pass(0).await;
    }
    assert_eq!(ids.map(|id| world.progress(id)), [("deferred", 4), ("deferred", 3)]);
    world.cancel(ids[0]).await;
    let over = world.engine.try_message(world.account, ids[0]).await;
    assert!(matches!(over, Err(OpError::Refused(TryRefusal::TooLate))));
    let unknown = world.engine.try_message(world.account, MessageId::default()).await;
    assert!(matches!(unknown, Err(OpError::Refused(TryRefusal::NotFound))));
}

/// Returns a world in which `mx.dead.test` is throttled, with the messages that wait for it.
async fn throttled() -> (World, Vec<MessageId>) {
    let world = World::new().await;
    world.net.behave("mx.dead.test", Behaviour::Refuses);
    let mut ids = Vec::new();
    for n in 0..8 {
        ids.push(world.send(&format!("u{n}@dead.test")).await);
    }
    world.pass(0).await;
    (world, ids)
}

#[tokio::test]
async fn a_throttled_site_is_probed_at_once_on_request() {
    let (world, ids) = throttled().await;
    assert!(world.queue("mx.dead.test").await.unwrap().held_until.is_some());
    world.net.behave("mx.dead.test", Behaviour::Takes);
    world.try_site("mx.dead.test").await;
    world.pass(0).await;
    assert!(ids.iter().all(|id| world.progress(*id).0 == "delivered"), "no time has passed");
}

#[tokio::test]
async fn an_account_without_mail_for_a_site_cannot_probe_it() {
    let (world, ids) = throttled().await;
    let before = world.queue("mx.dead.test").await.unwrap().held_until;
    assert!(before.is_some());
    world.net.behave("mx.dead.test", Behaviour::Takes);
    let other = world.engine.create_account("Other".parse().unwrap(), None, world.engine.settings.quota).await.unwrap();
    let result = world.engine.try_site(other.id, site("mx.dead.test")).await.unwrap();
    world.pass(0).await;
    assert_eq!((result.messages, world.queue("mx.dead.test").await.unwrap().held_until), (0, before));
    assert!(ids.iter().all(|id| world.progress(*id).0 != "delivered"));
    world.try_site("mx.dead.test").await;
    world.pass(0).await;
    assert!(ids.iter().all(|id| world.progress(*id).0 == "delivered"), "its own account may have it probed");
}

#[tokio::test]
async fn spilled_paused_messages_stay_in_the_store_and_are_sent_when_resumed() {
    let mut world = World::new().await;
    world.pause("a.test").await;
    let mut ids = Vec::new();
    for n in 0..200 {
        ids.push(world.send(&format!("u{n}@a.test")).await);
    }
    world.pass(0).await;
    let due = world.message(ids[0]).transfer.due;
    assert!(ids.iter().all(|id| world.message(*id).transfer.due <= due.map(|due| due + Duration::from_millis(1))));
    let first = world.account;
    world.become_another_account().await;
    world.pause("a.test").await;
    let other = world.send_from("us@other.test", "u@a.test").await;
    world.pass(HOUR).await;
    assert_eq!(world.progress(other), ("queued", 0));
    world.resume("a.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(other), ("delivered", 1), "however many of another account are paused");
    world.account = first;
    assert!(ids.iter().all(|id| world.progress(*id) == ("queued", 0)));
    world.resume("a.test").await;
    world.pass(0).await;
    assert!(ids.iter().all(|id| world.progress(*id) == ("delivered", 1)));
    assert_eq!(world.net.seen().len(), 201);
}

#[tokio::test]
async fn spilled_paused_messages_expire_on_time() {
    let world = World::new().await;
    world.pause("a.test").await;
    let mut ids = Vec::new();
    for n in 0..200 {
        ids.push(world.send(&format!("u{n}@a.test")).await);
    }
    world.pass(48 * HOUR + 60).await;
    assert!(ids.iter().all(|id| world.progress(*id) == ("failed", 0)));
}
