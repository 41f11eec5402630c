//! Tests of spilled messages: they wait in the store and delay no others. Memory has space for 512 messages here.

use std::collections::BTreeSet;
use std::time::Duration;

use super::world::START;
use super::*;
use crate::base::id::MessageId;
use crate::base::time::Timestamp;

const MANY: usize = 1_500;

async fn send_many(world: &World, domain: &str) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for n in 0..MANY {
        ids.push(world.send(&format!("u{n}@{domain}")).await);
    }
    ids
}

impl World {
    /// Returns the number of the messages with this status.
    fn count(&self, ids: &[MessageId], status: &str) -> usize {
        ids.iter().filter(|id| self.progress(**id).0 == status).count()
    }

    fn dues(&self, ids: &[MessageId]) -> BTreeSet<Option<Timestamp>> {
        ids.iter().map(|id| self.message(*id).transfer.due).collect()
    }
}

#[tokio::test]
async fn spilled_messages_of_a_dead_site_delay_no_others_and_are_sent_when_it_recovers() {
    let world = World::new().await;
    world.net.behave("mx.dead.test", Behaviour::Refuses);
    let dead = send_many(&world, "dead.test").await;
    world.pass(0).await;
    let mut good = Vec::new();
    for n in 0..300 {
        good.push(world.send(&format!("u{n}@good{}.test", n % 30)).await);
    }
    world.pass(0).await;
    assert_eq!(world.count(&good, "delivered"), 300, "at once, on a clock that stands still");
    assert!(good.iter().all(|id| world.progress(*id).1 == 1));
    let untried: Vec<_> = dead.iter().filter(|id| world.progress(**id) == ("queued", 0)).copied().collect();
    assert!(untried.len() >= MANY - 2);
    assert_eq!(world.dues(&untried), [Some(START)].into(), "none was put off by a write");
    world.net.behave("mx.dead.test", Behaviour::Takes);
    world.pass(120).await;
    assert_eq!(world.count(&dead, "delivered"), MANY);
    assert!(untried.iter().all(|id| world.progress(*id).1 == 1));
    assert_eq!(world.net.seen().len(), 300 + MANY, "each once");
}

#[tokio::test]
async fn a_slow_site_gets_all_its_mail_and_dead_sites_spill_separately() {
    let world = World::new().await;
    for site in ["mx.one.test", "mx.two.test"] {
        world.net.behave(site, Behaviour::Refuses);
    }
    let (one, two) = (send_many(&world, "one.test").await, send_many(&world, "two.test").await);
    world.pass(0).await;
    world.net.behave("mx.one.test", Behaviour::Takes);
    world.pass(55).await;
    assert_eq!(world.count(&one, "delivered") + world.count(&one, "deferred"), MANY);
    assert!(world.count(&one, "deferred") <= 2 && world.count(&two, "queued") >= MANY - 4);
    let world = world.restarted(vec![mx("direct", &[])]).await;
    world.net.behave("mx.two.test", Behaviour::Takes);
    world.pass(3600).await;
    assert_eq!((world.count(&one, "delivered"), world.count(&two, "delivered")), (MANY, MANY));
    assert_eq!(world.net.seen().len(), 2 * MANY);
}

#[tokio::test]
async fn spilled_messages_expire_on_time_and_a_canceled_one_is_never_sent() {
    let world = World::new().await;
    world.net.behave("mx.dead.test", Behaviour::Refuses);
    let dead = send_many(&world, "dead.test").await;
    world.pass(0).await;
    let last = *dead.last().unwrap();
    world.cancel(last).await;
    world.clock.advance(Duration::from_secs(48 * 3600 - 1), &world.engine.store).await.unwrap();
    assert_eq!(world.count(&dead, "failed"), 0);
    world.pass(61).await;
    assert_eq!((world.count(&dead, "failed"), world.progress(last).0), (MANY - 1, "canceled"));
    assert_eq!(world.net.seen().len(), 0);
}
