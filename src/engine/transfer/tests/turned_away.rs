//! Tests of sites that answer 421, and of probes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::net::answer;
use super::*;
use crate::engine::Tables;
use crate::engine::audit::Behalf;
use crate::smtp::outcome::{Ending, Phase};
use crate::smtp::rules::Rules;
use crate::smtp::shaping::Shaping;

/// Returns a world in which each message has a connection of its own.
async fn single() -> World {
    let shaping = Arc::new(Shaping::with_overlay("[default]\nmessages_per_connection = 1").unwrap());
    World::shaped(vec![mx("direct", &[])], Tables { rules: Arc::new(Rules::built_in().clone()), shaping }).await
}

#[tokio::test]
async fn a_greeting_of_421_leads_to_the_next_server() {
    let world = World::new().await;
    world.net.serve("two.test", &["mx1.two.test", "mx2.two.test"]);
    world.net.behave("mx1.two.test", Behaviour::Fails(Phase::Greeting, answer("421 too busy")));
    let id = world.send("u@two.test").await;
    world.pass(0).await;
    assert_eq!((world.progress(id), world.net.seen()[0].host.as_str()), (("delivered", 1), "mx2.two.test"));
}

#[tokio::test]
async fn a_421_from_every_server_at_the_first_attempt_backs_the_site_off() {
    let world = World::new().await;
    world.net.behave("mx.busy.test", Behaviour::Fails(Phase::Greeting, answer("421 too busy")));
    world.send("u@busy.test").await;
    world.pass(0).await;
    assert!(world.queue("mx.busy.test").await.unwrap().held_until.is_some());
}

#[tokio::test]
async fn one_421_among_successes_defers_only_its_own_message() {
    let world = single().await;
    for n in 0..20 {
        world.send(&format!("u{n}@a.test")).await;
    }
    world.pass(0).await;
    world.net.behave("mx.a.test", Behaviour::Says("421 4.3.2 closing"));
    let turned_away = world.send("v@a.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(turned_away), ("deferred", 1));
    world.net.behave("mx.a.test", Behaviour::Takes);
    let next = world.send("w@a.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(next), ("delivered", 1), "no time has passed");
}

#[tokio::test]
async fn one_closed_or_refused_connection_among_successes_defers_only_its_own_message() {
    for ending in [Ending::Closed("reset".to_owned()), answer("554 no service")] {
        let world = single().await;
        for n in 0..20 {
            world.send(&format!("u{n}@a.test")).await;
        }
        world.pass(0).await;
        world.net.behave("mx.a.test", Behaviour::Fails(Phase::Greeting, ending.clone()));
        let refused = world.send("v@a.test").await;
        world.pass(0).await;
        assert_eq!(world.progress(refused), ("deferred", 1));
        world.net.behave("mx.a.test", Behaviour::Takes);
        let next = world.send("w@a.test").await;
        world.pass(0).await;
        assert_eq!(world.progress(next), ("delivered", 1), "no time has passed: {ending:?}");
    }
}

#[tokio::test]
async fn if_the_probe_is_canceled_the_next_message_probes_the_site() {
    let world = single().await;
    for n in 0..20 {
        world.send(&format!("u{n}@a.test")).await;
    }
    world.pass(0).await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.a.test", Behaviour::Holds(Arc::clone(&gate)));
    for n in 0..3 {
        world.send(&format!("hangs{n}@a.test")).await;
    }
    world.net.has_seen(23).await;
    world.net.behave("mx.a.test", Behaviour::Refuses);
    world.send("refused@a.test").await;
    while world.queue("mx.a.test").await.unwrap().held_until.is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let probe = world.send("probe@a.test").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    world.cancel(probe).await;
    world.net.behave("mx.a.test", Behaviour::Takes);
    world.clock.jump(Duration::from_secs(51));
    tokio::time::sleep(Duration::from_millis(20)).await;
    let next = world.send("next@a.test").await;
    world.is_delivered(next).await;
    gate.add_permits(1000);
    world.pass(0).await;
}

#[tokio::test]
async fn messages_due_at_a_probed_site_are_suspended_when_it_is_throttled_again() {
    let world = World::new().await;
    world.net.behave("mx.dead.test", Behaviour::Refuses);
    let first = world.send("u@dead.test").await;
    world.pass(0).await;
    world.cancel(first).await;
    let operator = || Behalf::operator(world.account);
    assert!(world.engine.suspend_account(operator(), "unpaid".parse().unwrap()).await.is_ok());
    world.send_from("n@news.example.test", "n@dead.test").await;
    world.send("v@dead.test").await;
    world.pass(60).await;
    assert!(world.engine.resume_account(operator()).await.is_ok());
    let settles = tokio::time::timeout(Duration::from_secs(20), world.pass(0)).await;
    assert!(settles.is_ok(), "a message neither waits for the site nor is worked on");
}
