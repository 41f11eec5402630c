//! Tests of isolation: one account's mail and silent servers delay no other mail.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::world::fill_places;
use super::*;
use crate::smtp::outcome::{Ending, Phase};

#[tokio::test]
async fn hanging_connections_of_one_account_do_not_delay_another() {
    let mut world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    // These sites accepted mail before, so all connections are available to them.
    for n in 0..80 {
        world.send(&format!("first@hangs{n}.test")).await;
    }
    world.pass(0).await;
    // Kept connections are closed, and the next ones hang.
    for n in 0..80 {
        world.net.behave(&format!("mx.hangs{n}.test"), Behaviour::Holds(Arc::clone(&gate)));
    }
    tokio::time::sleep(Duration::from_millis(5100)).await;
    for n in 0..80 {
        world.send(&format!("second@hangs{n}.test")).await;
    }
    world.net.has_seen(80 + 64).await;
    world.become_another_account().await;
    let id = world.send_from("us@other.test", "u@new.test").await;
    world.is_delivered(id).await;
    let again = world.send_from("us@other.test", "u@new.test").await;
    world.is_delivered(again).await;
    gate.add_permits(1000);
    world.pass(0).await;
}

#[tokio::test]
async fn accounts_take_turns_at_a_site() {
    let mut world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.a.test", Behaviour::Holds(Arc::clone(&gate)));
    for n in 0..40 {
        world.send(&format!("first{n}@a.test")).await;
    }
    world.net.has_seen(2).await;
    world.become_another_account().await;
    world.send_from("us@other.test", "second@a.test").await;
    // This one is due later, so that the other is in its queue before it arrives.
    world.send_from("us@other.test", "u@b.test").await;
    world.net.has_seen(3).await;
    gate.add_permits(1000);
    world.pass(0).await;
    let to: Vec<_> = world.net.seen().into_iter().map(|seen| seen.to).collect();
    let turn = to.iter().position(|to| to == "second@a.test").unwrap();
    assert!(turn <= 5, "{turn} of {}", to.len());
}

#[tokio::test]
async fn a_first_attempt_is_brief_and_later_ones_get_full_time_with_few_permits() {
    let world = World::new().await;
    let silent = Behaviour::Fails(Phase::Greeting, Ending::TimedOut);
    for n in 0..10 {
        world.net.behave(&format!("mx.silent{n}.test"), silent.clone());
        world.send(&format!("u@silent{n}.test")).await;
    }
    world.pass(0).await;
    assert_eq!(*world.net.max_wait.lock().unwrap(), [Duration::from_secs(15); 10]);
    let gate = Arc::new(Semaphore::new(0));
    for n in 0..10 {
        world.net.behave(&format!("mx.silent{n}.test"), Behaviour::Greets(Arc::clone(&gate)));
    }
    world.clock.jump(Duration::from_secs(120));
    let good = world.send("u@good.test").await;
    world.is_delivered(good).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let max_wait = world.net.max_wait.lock().unwrap().clone();
    let long = max_wait.iter().filter(|wait| **wait == Duration::from_secs(600)).count();
    assert_eq!((long, max_wait.len()), (4, 15), "a sixteenth of the connections");
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.net.seen().len(), 11);
}

#[tokio::test]
async fn a_message_overtakes_those_of_an_account_without_a_free_connection() {
    let mut world = World::new().await;
    let gate = fill_places(&world).await;
    for n in 0..10 {
        world.send(&format!("first{n}@good.test")).await;
    }
    world.is_in_hand("mx.good.test").await;
    world.become_another_account().await;
    let id = world.send_from("us@other.test", "second@good.test").await;
    let delivered = tokio::time::timeout(Duration::from_secs(20), world.is_delivered(id)).await;
    assert!(delivered.is_ok(), "the site's few connections wait for places of the first account");
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.net.seen().iter().filter(|seen| seen.host == "mx.good.test").count(), 11, "and all are sent once");
}

#[tokio::test]
async fn a_message_overtakes_those_of_an_account_without_free_memory() {
    let mut world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let size = world.message(world.send("u@first.test").await).row.size_bytes;
    let held = 64 / (size as usize / 1024 + 1);
    assert!(held < 40, "there are connections for them: {held}");
    for n in 0..held {
        world.net.behave(&format!("mx.holds{n}.test"), Behaviour::HoldsDots(Arc::clone(&gate)));
        world.send(&format!("u@holds{n}.test")).await;
    }
    world.net.bodies.subscribe().wait_for(|bodies| *bodies == held).await.unwrap();
    for n in 0..10 {
        world.send(&format!("first{n}@good.test")).await;
    }
    world.net.has_seen(1 + held + 2).await;
    world.become_another_account().await;
    let id = world.send_from("us@other.test", "second@good.test").await;
    let delivered = tokio::time::timeout(Duration::from_secs(20), world.is_delivered(id)).await;
    assert!(delivered.is_ok(), "the site's connections wait for memory of the first account");
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.net.seen().iter().filter(|seen| seen.host == "mx.good.test").count(), 11, "and all are sent once");
}
