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
    // The other account gets its connections although it has slow sites of its own.
    for n in 0..10 {
        world.net.behave(&format!("mx.own{n}.test"), Behaviour::Holds(Arc::clone(&gate)));
        world.send_from("us@other.test", &format!("u@own{n}.test")).await;
    }
    world.net.has_seen(80 + 64 + 10).await;
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
    // The last message is due later, so the one before it is queued when the last one arrives.
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
    let long = max_wait.iter().filter(|wait| wait.as_secs_f64().round() == 600.0).count();
    assert_eq!((long, max_wait.len()), (4, 15), "a sixteenth of the connections");
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.net.seen().len(), 11);
}

#[tokio::test]
async fn a_prompt_server_behind_silent_ones_is_tried_in_every_attempt() {
    let world = World::new().await;
    let silent = Behaviour::Fails(Phase::Greeting, Ending::TimedOut);
    let hosts = ["mx0.a.test", "mx1.a.test", "mx2.a.test", "mx3.a.test"];
    world.net.serve("a.test", &hosts);
    hosts.into_iter().for_each(|host| world.net.behave(host, silent.clone()));
    let id = world.send("u@a.test").await;
    world.pass(0).await;
    let waits = || world.net.max_wait.lock().unwrap().iter().map(|wait| wait.as_secs_f64().round()).collect::<Vec<_>>();
    assert_eq!(
        (waits(), world.progress(id)),
        (vec![15.0; 4], ("deferred", 1)),
        "the first attempt is brief throughout"
    );
    world.net.behave("mx3.a.test", Behaviour::Takes);
    while world.progress(id).0 != "delivered" {
        world.pass(60).await;
    }
    // No virtual time passes at these servers, so the parts of the later ones grow.
    assert_eq!(waits()[4..], [150.0, 200.0, 300.0, 600.0]);
}

#[tokio::test]
async fn a_limit_that_one_account_s_message_meets_holds_no_other_account_s_mail() {
    let mut world = World::new().await;
    world.net.serve("yahoo.test", &["mta5.am0.yahoodns.net"]);
    let first = world.send("first@yahoo.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(first), ("delivered", 1));
    // The kept connection is closed.
    tokio::time::sleep(Duration::from_millis(5100)).await;
    let account = world.account;
    world.become_another_account().await;
    let slow = "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume";
    world.net.behave("mta5.am0.yahoodns.net", Behaviour::Says(slow));
    let refused = world.send_from("us@other.test", "one@yahoo.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(refused), ("deferred", 1));
    let held_until = || async { world.queue("yahoo").await.and_then(|queue| queue.held_until) };
    assert_eq!(held_until().await, None, "the provider served the first account");
    world.net.behave("mta5.am0.yahoodns.net", Behaviour::Takes);
    world.account = account;
    let id = world.send("second@yahoo.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(id), ("delivered", 1));
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

/// Lets many domains name the server of shared.test: half of them beside a server of their own, half by an alias of its
/// address. The server holds every message until the semaphore has permits.
fn name_shared_server(world: &World, domains: usize) -> Arc<Semaphore> {
    let gate = Arc::new(Semaphore::new(0));
    world.net.serve("shared.test", &["mx.shared.test"]);
    world.net.behave("mx.shared.test", Behaviour::Holds(Arc::clone(&gate)));
    world.net.address("mx.shared.test", &["198.51.100.7"]);
    for n in 0..domains {
        let own = format!("mx.names{n}.test");
        if n % 2 == 0 {
            world.net.serve(&format!("names{n}.test"), &["mx.shared.test", &own]);
        } else {
            world.net.behave(&own, Behaviour::Holds(Arc::clone(&gate)));
            world.net.address(&own, &["198.51.100.7"]);
        }
    }
    gate
}

#[tokio::test]
async fn an_account_whose_domains_name_another_site_s_server_gets_no_more_of_its_connections_than_a_site() {
    let mut world = World::new().await;
    let gate = name_shared_server(&world, 20);
    let mut ids = Vec::new();
    for n in 0..40 {
        ids.push(world.send(&format!("u{n}@names{}.test", n % 20)).await);
    }
    world.net.has_seen(10).await;
    let waits = |world: &World| {
        let details = ids.iter().filter_map(|id| world.message(*id).waiting).map(|wait| wait.detail);
        details.filter(|detail| detail.starts_with("All connections to a server of mx.")).count()
    };
    while waits(&world) == 0 {
        tokio::task::yield_now().await;
    }
    let account = world.account;
    world.become_another_account().await;
    world.net.behave("mx.shared.test", Behaviour::Takes);
    for n in 0..3 {
        let id = world.send_from("us@other.test", &format!("u{n}@shared.test")).await;
        world.is_delivered(id).await;
    }
    assert_eq!(world.net.seen().len(), 10 + 3, "the first account has no further connection");
    gate.add_permits(1000);
    world.account = account;
    world.pass(0).await;
    assert!(ids.iter().all(|id| world.progress(*id).0 == "delivered"));
}

#[tokio::test]
async fn messages_that_wait_for_one_server_leave_the_attempts_to_others() {
    let world = World::new().await;
    let gate = name_shared_server(&world, 110);
    for n in 0..110 {
        world.send(&format!("u@names{n}.test")).await;
    }
    world.net.has_seen(10).await;
    let id = world.send("u@new.test").await;
    world.is_delivered(id).await;
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.net.seen().len(), 111);
}

#[tokio::test]
async fn a_bounded_number_of_attempts_waits_for_connections() {
    let mut world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    for n in 0..110 {
        world.net.behave(&format!("mx.holds{n}.test"), Behaviour::Holds(Arc::clone(&gate)));
        world.send(&format!("u@holds{n}.test")).await;
    }
    let connections = world.engine.settings.max_connections;
    world.net.has_seen(connections * 3 / 4).await;
    world.become_another_account().await;
    let id = world.send_from("us@other.test", "u@new.test").await;
    world.is_delivered(id).await;
    let leased = world.engine.leases.leased().len();
    assert!((connections..=connections * 2).contains(&leased), "{leased}");
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.net.seen().len(), 111);
}

#[tokio::test]
async fn each_relay_has_its_own_connections_to_a_server() {
    let world = World::with(vec![mx("one", &[]), mx("two", &[])]).await;
    let gate = name_shared_server(&world, 80);
    for n in 0..80 {
        world.send(&format!("u@names{n}.test")).await;
    }
    world.net.has_seen(20).await;
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.net.seen().len(), 80);
}

#[tokio::test]
async fn messages_that_wait_for_a_connection_expire_on_time() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    for n in 0..150 {
        world.net.behave(&format!("mx.holds{n}.test"), Behaviour::Holds(Arc::clone(&gate)));
        world.send(&format!("u@holds{n}.test")).await;
    }
    world.net.has_seen(48).await;
    let waiting = world.send("u@holds150.test").await;
    tokio::task::yield_now().await;
    world.clock.jump(Duration::from_secs(48 * 3600));
    tokio::time::pause();
    while world.progress(waiting).0 == "queued" {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(world.progress(waiting), ("failed", 0));
    tokio::time::resume();
    gate.add_permits(1000);
    world.pass(0).await;
}

#[tokio::test]
async fn an_account_s_attempts_at_unproven_sites_do_not_hold_back_its_mail_for_a_proven_one() {
    let mut world = World::new().await;
    let id = world.send("first@good.test").await;
    world.is_delivered(id).await;
    let gate = fill_places(&world).await;
    for n in 0..80 {
        world.net.behave(&format!("mx.more{n}.test"), Behaviour::Holds(Arc::clone(&gate)));
        world.send(&format!("u@more{n}.test")).await;
    }
    let account = world.account;
    world.become_another_account().await;
    let seen = world.net.seen().len();
    world.net.behave("mx.other.test", Behaviour::Holds(Arc::clone(&gate)));
    world.send_from("us@other.test", "u@other.test").await;
    world.net.has_seen(seen + 1).await;
    world.account = account;
    let id = world.send("second@good.test").await;
    world.is_delivered(id).await;
    gate.add_permits(1000);
    world.pass(0).await;
}
