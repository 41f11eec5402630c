//! Tests of sites: all domains of a site share one window. A site that defers mail slows no other site, and charges
//! only messages that reached it.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::net::answer;
use super::*;
use crate::base::id::MessageId;
use crate::domain::stream::Stream;
use crate::engine::Tables;
use crate::engine::transfer::tests::world::START;
use crate::smtp::outcome::Phase;
use crate::smtp::rules::Rules;
use crate::smtp::shaping::Shaping;

async fn send_all(world: &World, count: usize, domain: &str) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for n in 0..count {
        ids.push(world.send(&format!("u{n}@{domain}")).await);
    }
    ids
}

#[tokio::test]
async fn domains_of_one_host_or_provider_share_a_window() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    for (domain, hosts) in [
        ("a.test", ["mx2.host.test", "mx1.host.test"]),
        ("b.test", ["mx1.host.test", "mx2.host.test"]),
        ("c.test", ["alt1.gmail-smtp-in.l.google.com", "gmail-smtp-in.l.google.com"]),
        ("d.test", ["aspmx.l.google.com", "aspmx2.googlemail.com"]),
    ] {
        world.net.serve(domain, &hosts);
        hosts.into_iter().for_each(|host| world.net.behave(host, Behaviour::Holds(Arc::clone(&gate))));
        send_all(&world, 4, domain).await;
    }
    world.net.has_seen(4).await;
    for site in ["mx1.host.test,mx2.host.test", "google"] {
        let queue = world.queue(site).await.unwrap();
        assert_eq!((queue.in_flight, queue.waiting, queue.relay.as_str()), (2, 6, "direct"), "{site}");
    }
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.net.seen().len(), 16);
    assert_eq!(world.engine.queue(None).await.unwrap().sites, [], "nothing waits any more");
}

#[tokio::test]
async fn a_refusing_site_charges_only_attempted_messages_and_one_message_probes_it() {
    let world = World::new().await;
    world.net.behave("mx.dead.test", Behaviour::Refuses);
    let ids = send_all(&world, 30, "dead.test").await;
    world.pass(0).await;
    let met = world.attempts(&ids);
    assert!((1..=2).contains(&met), "{met}");
    let untouched: Vec<_> = ids.iter().filter(|id| world.progress(**id) == ("queued", 0)).collect();
    assert_eq!(untouched.len() as u32, 30 - met);
    let queue = world.queue("mx.dead.test").await.unwrap();
    assert_eq!(queue.held_until.unwrap().since(START).as_secs(), 50);
    assert_eq!((queue.waiting, queue.in_flight, queue.next_at), (30, 0, queue.held_until));
    assert!(queue.last_answer.unwrap().contains("refused"));
    // Waiting messages show the end of the backoff; the refused one shows its own next attempt.
    let next = |id: &MessageId| world.message(*id).next_attempt_at.unwrap();
    assert!(untouched.iter().all(|id| Some(next(id)) == queue.held_until));
    assert!(ids.iter().filter(|id| !untouched.contains(id)).all(|id| next(id).since(START).as_secs() >= 54));
    world.pass(49).await;
    assert_eq!(world.attempts(&ids), met);
    world.pass(1).await;
    assert_eq!(world.attempts(&ids), met + 1, "one probe");
    world.net.behave("mx.dead.test", Behaviour::Takes);
    world.pass(100).await;
    assert!(ids.iter().all(|id| world.progress(*id).0 == "delivered"), "the next probe opens the site for all");
    let kept = untouched.iter().filter(|id| world.progress(***id).1 == 1).count() as u32;
    assert_eq!(kept, 30 - met - 1, "of those that waited, one was the first probe");
}

#[tokio::test]
async fn servers_that_a_domain_got_after_routing_say_nothing_about_its_former_site() {
    let (mut world, mut moved) = (World::new().await, Vec::new());
    for (domain, server, own) in
        [("a.test", "mx.host.test", "mx.a.test"), ("b.test", "aspmx.l.google.com", "mx.b.test")]
    {
        world.net.serve(domain, &[server]);
        world.send(&format!("first@{domain}")).await;
        world.pass(0).await;
        world.net.serve(domain, &[own]);
        world.net.behave(own, Behaviour::Fails(Phase::Greeting, answer("554 no service")));
        moved.extend(send_all(&world, 18, domain).await);
    }
    world.pass(0).await;
    assert_eq!(world.net.seen().len(), 2, "their own servers take nothing");
    let account = world.account;
    world.become_another_account().await;
    for (domain, server) in [("other.test", "mx.host.test"), ("gmail.test", "gmail-smtp-in.l.google.com")] {
        world.net.serve(domain, &[server]);
        let id = world.send_from("us@other.test", &format!("u@{domain}")).await;
        world.pass(0).await;
        assert_eq!(world.progress(id), ("delivered", 1), "no time has passed");
    }
    for own in ["mx.a.test", "mx.b.test"] {
        world.net.behave(own, Behaviour::Takes);
    }
    world.pass(3600).await;
    world.account = account;
    assert!(moved.iter().all(|id| world.progress(*id).0 == "delivered"), "all were routed again");
    assert!(world.net.seen()[2..].iter().all(|seen| !seen.to.ends_with("@a.test") || seen.host == "mx.a.test"));
}

#[tokio::test]
async fn messages_that_wait_for_a_throttled_site_are_not_written_again() {
    let world = World::new().await;
    world.net.behave("mx.dead.test", Behaviour::Refuses);
    let ids = send_all(&world, 700, "dead.test").await;
    world.pass(0).await;
    let due = |id: &MessageId| world.message(*id).transfer.due;
    let waiting: Vec<_> = ids.iter().filter(|id| world.progress(**id).0 == "queued").copied().collect();
    let before: Vec<_> = waiting.iter().map(due).collect();
    let other = world.send("u@alive.test").await;
    world.pass(40).await;
    assert_eq!(world.progress(other), ("delivered", 1));
    assert_eq!(waiting.iter().map(due).collect::<Vec<_>>(), before);
    assert!(waiting.len() >= 698);
}

#[tokio::test]
async fn a_message_expires_on_time_while_its_site_is_throttled() {
    let world = World::new().await;
    world.net.behave("mx.dead.test", Behaviour::Refuses);
    let ids = send_all(&world, 5, "dead.test").await;
    world.pass(48 * 3600 - 1).await;
    assert!(ids.iter().all(|id| world.message(*id).transfer.state.status().is_waiting()));
    world.pass(1).await;
    assert!(ids.iter().all(|id| world.progress(*id).0 == "failed"));
}

#[tokio::test]
async fn a_message_canceled_while_suspended_is_never_sent() {
    let world = World::new().await;
    world.net.behave("mx.dead.test", Behaviour::Refuses);
    let ids = send_all(&world, 6, "dead.test").await;
    world.pass(0).await;
    let canceled = *ids.iter().find(|id| world.progress(**id).0 == "queued").unwrap();
    world.cancel(canceled).await;
    world.net.behave("mx.dead.test", Behaviour::Takes);
    world.pass(200).await;
    assert_eq!(world.progress(canceled), ("canceled", 0));
    assert_eq!(world.net.seen().len(), 5);
}

#[tokio::test]
async fn transactional_mail_never_waits_behind_marketing_in_a_shared_queue() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.both.test", Behaviour::Holds(Arc::clone(&gate)));
    for n in 0..8 {
        world.send_from("n@news.example.test", &format!("m{n}@both.test")).await;
    }
    world.net.has_seen(1).await;
    world.send("first@both.test").await;
    world.net.has_seen(2).await;
    assert_eq!(world.net.seen()[1].to, "first@both.test", "a place was kept for it");
    world.send("second@both.test").await;
    // The last message is due later, so the one before it is queued when the last one arrives.
    world.send("last@other.test").await;
    world.net.has_seen(3).await;
    gate.add_permits(1);
    world.net.has_seen(4).await;
    assert_eq!(world.net.seen()[3].to, "second@both.test", "and the next free one is its own");
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.net.seen().len(), 11);
}

#[tokio::test]
async fn a_rule_for_an_answer_throttles_its_provider_for_the_given_time() {
    let world = World::new().await;
    for domain in ["yahoo.test", "aol.test"] {
        world.net.serve(domain, &["mta5.am0.yahoodns.net"]);
    }
    let slow = "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume";
    world.net.behave("mta5.am0.yahoodns.net", Behaviour::Says(slow));
    let first = world.send("a@yahoo.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(first), ("deferred", 1));
    let other = world.send("a@aol.test").await;
    world.pass(7199).await;
    let queue = world.queue("yahoo").await.unwrap();
    assert_eq!(queue.held_until.unwrap().since(START).as_secs(), 7200);
    assert_eq!((queue.last_answer.as_deref(), world.progress(other)), (Some(slow), ("queued", 0)));
    world.net.behave("mta5.am0.yahoodns.net", Behaviour::Takes);
    world.pass(1).await;
    assert_eq!((world.progress(first), world.progress(other)), (("delivered", 2), ("delivered", 1)));
}

#[tokio::test]
async fn connections_are_reused_up_to_their_message_limit() {
    let text = "[default]\nconnections = 1\nmessages_per_connection = 3";
    let shaping = Arc::new(Shaping::with_overlay(text).unwrap());
    let tables = Tables { rules: Arc::new(Rules::built_in().clone()), shaping };
    let world = World::shaped(vec![mx("direct", &[])], tables).await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.a.test", Behaviour::Holds(Arc::clone(&gate)));
    send_all(&world, 7, "a.test").await;
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!((world.net.seen().len(), world.net.opened.lock().unwrap().len()), (7, 3));
}

#[tokio::test]
async fn a_known_provider_is_served_at_its_rate() {
    let text = "[[provider]]\nname = \"slow\"\nmx = [\"mx.slow.test\"]\nmessages_per_minute = 600";
    let shaping = Arc::new(Shaping::with_overlay(text).unwrap());
    let tables = Tables { rules: Arc::new(Rules::built_in().clone()), shaping };
    let world = World::shaped(vec![mx("direct", &[])], tables).await;
    send_all(&world, 14, "slow.test").await;
    world.pass(0).await;
    let seen = world.net.seen();
    assert_eq!(seen.len(), 14);
    // The messages of one second may be sent at once, and then one every tenth of a second.
    let took = seen[13].at - seen[0].at;
    assert!(took >= std::time::Duration::from_millis(380), "{took:?}");
}

#[tokio::test]
async fn a_known_provider_gets_a_limited_number_of_new_connections_a_minute() {
    let text = "[[provider]]\nname = \"slow\"\nmx = [\"mx.slow.test\"]\nmessages_per_connection = 1\n\
                connections_per_minute = 240";
    let shaping = Arc::new(Shaping::with_overlay(text).unwrap());
    let tables = Tables { rules: Arc::new(Rules::built_in().clone()), shaping };
    let world = World::shaped(vec![mx("direct", &[])], tables).await;
    send_all(&world, 7, "slow.test").await;
    world.pass(0).await;
    let seen = world.net.seen();
    assert_eq!((seen.len(), world.net.opened.lock().unwrap().len()), (7, 7));
    // Four connections may be opened at once, and then one every quarter of a second.
    let took = seen[6].at - seen[0].at;
    assert!(took >= std::time::Duration::from_millis(700), "{took:?}");
}

#[tokio::test]
async fn silent_servers_leave_permits_for_a_proven_site() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.serve("prompt.test", &["mx.prompt.test"]);
    world.send("first@prompt.test").await;
    world.pass(0).await;
    // More messages than connections.
    for n in 0..80 {
        let (domain, host) = (format!("silent{n}.test"), format!("mx.silent{n}.test"));
        world.net.serve(&domain, &[&host]);
        world.net.behave(&host, Behaviour::Holds(Arc::clone(&gate)));
        world.send(&format!("u@{domain}")).await;
    }
    world.net.has_seen(1 + 48).await;
    for n in 0..20 {
        world.send(&format!("u{n}@prompt.test")).await;
        world.net.has_seen(1 + 48 + n + 1).await;
    }
    let to_prompt = world.net.seen().iter().filter(|seen| seen.host == "mx.prompt.test").count();
    assert_eq!(to_prompt, 21, "sites that are new to us have three quarters");
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.net.seen().len(), 21 + 80);
}

#[tokio::test]
async fn messages_to_servers_without_a_354_use_no_memory_for_bodies() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    // Each message uses 2 KiB of the 64 KiB.
    for n in 0..40 {
        world.net.behave(&format!("mx.silent{n}.test"), Behaviour::Holds(Arc::clone(&gate)));
        world.send(&format!("u@silent{n}.test")).await;
    }
    world.net.has_seen(40).await;
    let id = world.send("u@prompt.test").await;
    while world.progress(id) != ("delivered", 1) {
        tokio::task::yield_now().await;
    }
    gate.add_permits(1000);
    world.pass(0).await;
    assert_eq!(world.net.seen().len(), 41);
}

#[tokio::test]
async fn silent_name_servers_delay_no_other_mail() {
    let world = World::new().await;
    for n in 0..140 {
        world.net.stuck.lock().unwrap().insert(format!("stuck{n}.test"));
        world.send(&format!("u@stuck{n}.test")).await;
    }
    let other = world.send("u@prompt.test").await;
    world.net.has_seen(1).await;
    assert_eq!(world.net.seen()[0].to, "u@prompt.test");
    assert_eq!(world.message(other).row.stream, Stream::Transactional);
}

#[tokio::test]
async fn a_name_is_looked_up_once_for_all_waiting_messages_and_a_denial_ends_all() {
    let world = World::new().await;
    let ids = send_all(&world, 20, "gone.test").await;
    world.pass(0).await;
    assert!(ids.iter().all(|id| world.progress(*id) == ("bounced", 1)));
    assert!(ids.iter().all(|id| world.relay_of(*id) == "direct"));
    assert_eq!(*world.net.asked.lock().unwrap(), ["gone.test"]);
    assert!(world.net.opened.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_account_sees_only_its_own_part_of_the_queue() {
    let mut world = World::new().await;
    world.net.behave("mx.dead.test", Behaviour::Refuses);
    let first = world.account;
    let theirs = world.send("ann@dead.test").await;
    let quota = world.engine.settings.quota;
    world.account = world.engine.create_account("Other".parse().unwrap(), None, quota).await.unwrap().id;
    let name = "other.test".parse().unwrap();
    world.engine.create_verified_domain(world.account, name, Stream::Transactional).await.unwrap();
    let mut ours = Vec::new();
    for n in 0..3 {
        ours.push(world.send_from("us@other.test", &format!("u{n}@dead.test")).await);
    }
    world.pass(0).await;
    let operators = world.queue("mx.dead.test").await.unwrap();
    let [site] = <[_; 1]>::try_from(world.engine.queue_of(world.account, 100).await.unwrap().sites).unwrap();
    assert_eq!((site.site.as_str(), site.relay.as_str()), ("mx.dead.test", "direct"));
    assert_eq!((site.waiting, site.in_flight, site.held_until), (3, 0, operators.held_until));
    assert_eq!(site.next_at, operators.held_until, "not before the site is tried again");
    assert!(ours.contains(&site.last_tried));
    let cut = world.engine.queue_of(world.account, 2).await.unwrap();
    assert_eq!((cut.sites[0].waiting, cut.is_cut), (2, true));
    let [site] = <[_; 1]>::try_from(world.engine.queue_of(first, 100).await.unwrap().sites).unwrap();
    assert_eq!((site.waiting, site.last_tried), (1, theirs));
}
