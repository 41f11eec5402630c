//! Tests of relays: the choice of a message's relay, failures of a relay, and the daily caps while it warms up.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::*;
use crate::base::secret::Secret;
use crate::domain::stream::Stream;
use crate::engine::ports::{Security, Submission};
use crate::engine::relay::{Relay, RelayWay, Smarthost, WarmUp};
use crate::engine::wait_reason::WaitReason;
use crate::smtp::client::Login;
use crate::smtp::outcome::{Ending, Phase};
use crate::smtp::reply::ReplyParser;

pub(super) fn smarthost(streams: &[Stream]) -> Relay {
    let login = Login { username: "u".to_owned(), password: Secret::new(*b"p") };
    smarthost_with(Some(login), streams)
}

fn smarthost_with(login: Option<Login>, streams: &[Stream]) -> Relay {
    let submission = Arc::new(Submission { security: Security::StartTls, login });
    relay("smart", RelayWay::Smarthost(Smarthost { host: "smart.test".into(), port: 587, submission }), streams)
}

fn unbindable() -> Behaviour {
    Behaviour::Fails(Phase::Connect, Ending::Unusable("cannot send from 192.0.2.66".to_owned()))
}

pub(super) fn auth_refused() -> Behaviour {
    let (_, reply) = ReplyParser::new().feed(b"535 5.7.8 bad credentials\n").unwrap();
    Behaviour::Fails(Phase::Auth, Ending::Answered(reply.unwrap()))
}

#[tokio::test]
async fn each_stream_uses_its_own_relay_if_it_has_one() {
    let world = World::with(vec![mx("direct", &[]), smarthost(&[Stream::Marketing])]).await;
    world.net.address("smart.test", &["198.51.100.1"]);
    let (receipt, news) =
        (world.send("a@r.test").await, world.send_from("n@news.example.test", "b@nowhere.test").await);
    world.pass(0).await;
    assert_eq!((world.relay_of(receipt).as_str(), world.relay_of(news).as_str()), ("direct", "smart"));
    let seen = world.net.seen();
    let at_smarthost = seen.iter().find(|seen| seen.host == "smart.test").unwrap();
    assert_eq!((at_smarthost.to.as_str(), at_smarthost.ehlo.as_str()), ("b@nowhere.test", "smart.sender.example"));
    let asked: BTreeSet<_> = world.net.asked.lock().unwrap().iter().cloned().collect();
    assert_eq!(asked, ["r.test".to_owned()].into(), "at a smarthost the recipient's domain is not looked up");
}

#[tokio::test]
async fn a_message_keeps_its_relay_and_source_address_and_all_are_used() {
    // With this many messages, the draw certainly uses each of the three sources.
    const MESSAGES: usize = 64;
    let relays = vec![mx("one", &["192.0.2.11", "192.0.2.12"]), mx("two", &["192.0.2.21"])];
    let world = World::with(relays).await;
    world.net.behave("mx.grey.test", Behaviour::Says("450 4.7.1 greylisted, try again later"));
    for n in 0..MESSAGES {
        world.send(&format!("u{n}@grey.test")).await;
    }
    world.pass(600).await;
    let seen = world.net.seen();
    for n in 0..MESSAGES {
        let to = format!("u{n}@grey.test");
        let ways: BTreeSet<_> = seen.iter().filter(|s| s.to == to).map(|s| (s.ehlo.clone(), s.source)).collect();
        let times = seen.iter().filter(|seen| seen.to == to).count();
        assert!(ways.len() == 1 && times >= 3, "{ways:?} in {times} attempts");
    }
    let sources: BTreeSet<_> = seen.iter().filter_map(|seen| seen.source).collect();
    assert_eq!(sources.len(), 3, "each source is used");
}

#[tokio::test]
async fn servers_of_an_address_family_without_a_source_address_are_skipped() {
    let world = World::with(vec![mx("direct", &["192.0.2.11"])]).await;
    world.net.address("mx.a.test", &["2001:db8::1", "198.51.100.7"]);
    world.net.address("mx.six.test", &["2001:db8::1"]);
    let (both, six) = (world.send("u@a.test").await, world.send("u@six.test").await);
    world.pass(0).await;
    assert_eq!((world.progress(both), world.progress(six)), (("delivered", 1), ("deferred", 1)));
    let source: IpAddr = "192.0.2.11".parse().unwrap();
    assert_eq!(*world.net.opened.lock().unwrap(), [("mx.a.test".to_owned(), Some(source))]);
}

#[tokio::test]
async fn a_relay_failure_is_charged_to_no_message_and_the_next_relay_is_used() {
    let world = World::with(vec![mx("one", &["192.0.2.66"]), mx("two", &["192.0.2.21"])]).await;
    world.net.behave("192.0.2.66", unbindable());
    let mut ids = Vec::new();
    for n in 0..12 {
        ids.push(world.send(&format!("u{n}@a.test")).await);
    }
    world.pass(0).await;
    assert!(ids.iter().all(|id| world.progress(*id) == ("delivered", 1)));
    assert!(ids.iter().all(|id| world.relay_of(*id) == "two"));
    let tried = world.net.opened.lock().unwrap().iter().filter(|(_, source)| *source != good_source()).count();
    assert!((1..=2).contains(&tried), "the relay was left alone after its fault: {tried}");
}

#[tokio::test]
async fn a_source_address_that_the_machine_lacks_is_replaced_by_another() {
    let world = World::with(vec![mx("direct", &["192.0.2.66", "192.0.2.21"])]).await;
    world.net.behave("192.0.2.66", unbindable());
    let mut ids = Vec::new();
    for n in 0..8 {
        ids.push(world.send(&format!("u{n}@a.test")).await);
    }
    world.pass(0).await;
    assert!(ids.iter().all(|id| world.progress(*id) == ("delivered", 1)));
    assert!(world.net.seen().iter().all(|seen| seen.source == good_source()));
}

fn good_source() -> Option<IpAddr> {
    Some("192.0.2.21".parse().unwrap())
}

#[tokio::test]
async fn a_message_without_another_relay_waits_uncharged_for_its_own() {
    for fault in
        [unbindable(), auth_refused(), Behaviour::Fails(Phase::StartTls, Ending::TlsFailed("unknown issuer".into()))]
    {
        let world = World::with(vec![smarthost(&Stream::ALL)]).await;
        world.net.address("smart.test", &["198.51.100.1"]);
        world.net.behave("smart.test", fault.clone());
        let ids = [world.send("a@r.test").await, world.send("b@r.test").await, world.send("c@s.test").await];
        world.pass(0).await;
        assert!(ids.iter().all(|id| world.progress(*id) == ("queued", 0)), "{fault:?}");
        let queue = world.queue("smart.test:587").await.unwrap();
        assert_eq!((queue.waiting, queue.relay.as_str()), (3, "smart"));
        assert!(queue.held_until.is_some() && queue.last_answer.is_some());
        world.pass(59).await;
        let before = world.net.opened.lock().unwrap().len();
        world.pass(1).await;
        assert_eq!(world.net.opened.lock().unwrap().len(), before + 1, "one message tries the relay again");
        world.net.behave("smart.test", Behaviour::Takes);
        world.pass(120).await;
        assert!(ids.iter().all(|id| world.progress(*id) == ("delivered", 1)), "{fault:?}");
    }
}

#[tokio::test]
async fn an_unknown_smarthost_or_a_required_login_is_a_relay_failure() {
    let world = World::with(vec![smarthost_with(None, &Stream::ALL)]).await;
    let id = world.send("a@r.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(id), ("queued", 0));
    world.net.address("smart.test", &["198.51.100.1"]);
    world.net.behave("smart.test", Behaviour::Says("530 5.7.0 authentication required"));
    world.pass(60).await;
    assert_eq!(world.progress(id), ("queued", 0));
    world.net.behave("smart.test", Behaviour::Says("550 5.1.1 no such user"));
    world.pass(120).await;
    assert_eq!(world.progress(id), ("bounced", 1), "what it says of the message counts");
}

#[tokio::test]
async fn a_message_refused_after_the_login_is_deferred_and_the_relay_is_not_at_fault() {
    let world = World::with(vec![smarthost(&Stream::ALL)]).await;
    world.net.address("smart.test", &["198.51.100.1"]);
    world.net.behave("smart.test", Behaviour::Says("535 5.7.8 sender not authorized"));
    for to in ["a@r.test", "b@r.test"] {
        let refused = world.send(to).await;
        world.pass(0).await;
        assert_eq!(world.progress(refused), ("deferred", 1));
    }
}

#[tokio::test]
async fn after_a_restart_one_account_s_refused_message_holds_no_other_mail_of_a_relay_without_a_login() {
    let relays = || vec![smarthost_with(None, &Stream::ALL)];
    let mut world = World::with(relays()).await;
    world.net.address("smart.test", &["198.51.100.1"]);
    world.send("a@r.test").await;
    world.pass(0).await;
    world = world.restarted(relays()).await;
    let first = world.account;
    world.net.behave("smart.test", Behaviour::Says("530 5.7.0 sender not authorized"));
    world.become_another_account().await;
    let refused = world.send_from("us@other.test", "b@r.test").await;
    world.pass(0).await;
    assert_eq!(
        (world.progress(refused), world.message(refused).waiting.unwrap().reason),
        (("queued", 0), WaitReason::Relay)
    );
    world.net.behave("smart.test", Behaviour::Takes);
    let second = std::mem::replace(&mut world.account, first);
    let id = world.send("c@r.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(id), ("delivered", 1), "it shows that the relay works");
    world.account = second;
    assert_eq!(world.progress(refused), ("delivered", 1));
}

#[tokio::test]
async fn if_a_relay_without_a_login_refuses_two_accounts_it_is_held_back_for_all() {
    let mut world = World::with(vec![smarthost_with(None, &Stream::ALL)]).await;
    world.net.address("smart.test", &["198.51.100.1"]);
    world.net.behave("smart.test", Behaviour::Says("530 5.7.0 authentication required"));
    let first = world.account;
    let mut ids = vec![world.send("a@r.test").await];
    world.pass(0).await;
    world.become_another_account().await;
    let other = world.send_from("us@other.test", "b@r.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(other), ("queued", 0));
    let second = std::mem::replace(&mut world.account, first);
    ids.push(world.send("c@r.test").await);
    world.pass(0).await;
    assert!(ids.iter().all(|id| world.progress(*id) == ("queued", 0)));
    assert_eq!(world.net.opened.lock().unwrap().len(), 2, "the third is not tried");
    world.net.behave("smart.test", Behaviour::Takes);
    world.pass(120).await;
    assert!(ids.iter().all(|id| world.progress(*id) == ("delivered", 1)));
    world.account = second;
    assert_eq!(world.progress(other), ("delivered", 1));
}

pub(super) fn warming(name: &str, per_day: u32) -> Relay {
    Relay { warm_up: Some(WarmUp { per_day, growth_percent: 0, since: 0 }), ..mx(name, &[]) }
}

/// Returns the number of messages that each relay's servers have seen, by the names in EHLO.
fn handed_over(world: &World, relay: &str) -> usize {
    let ehlo = format!("{relay}.sender.example");
    world.net.seen().iter().filter(|seen| seen.ehlo == ehlo).count()
}

#[tokio::test]
async fn over_its_daily_cap_mail_uses_the_next_relay_and_counts_survive_a_restart() {
    let relays = || vec![relay_of_transactional(warming("new", 3)), mx("old", &[])];
    let world = World::with(relays()).await;
    for n in 0..5 {
        world.send(&format!("u{n}@a.test")).await;
        world.pass(0).await;
    }
    world.send("u@b.test").await;
    world.pass(0).await;
    assert_eq!((handed_over(&world, "new"), handed_over(&world, "old")), (4, 2), "each site has its own count");
    let world = world.restarted(relays()).await;
    world.send("u5@a.test").await;
    world.pass(0).await;
    assert_eq!((handed_over(&world, "new"), handed_over(&world, "old")), (4, 3));
    world.pass(3600).await;
    world.send("u6@a.test").await;
    world.pass(0).await;
    assert_eq!((handed_over(&world, "new"), handed_over(&world, "old")), (5, 3), "the next day it may again");
}

fn relay_of_transactional(relay: Relay) -> Relay {
    Relay { streams: vec![Stream::Transactional], ..relay }
}

#[tokio::test]
async fn if_all_relays_reached_their_cap_mail_waits_for_the_next_day() {
    let world = World::with(vec![warming("new", 3)]).await;
    let mut ids = Vec::new();
    for n in 0..8 {
        ids.push(world.send(&format!("u{n}@a.test")).await);
    }
    world.pass(0).await;
    assert_eq!((handed_over(&world, "new"), world.attempts(&ids)), (3, 3));
    assert_eq!(ids.iter().filter(|id| world.progress(**id) == ("queued", 0)).count(), 5);
    world.pass(3599).await;
    assert_eq!(handed_over(&world, "new"), 3);
    world.pass(1).await;
    assert_eq!(handed_over(&world, "new"), 6);
    world.pass(24 * 3600).await;
    assert_eq!((handed_over(&world, "new"), world.attempts(&ids)), (8, 8));
}
