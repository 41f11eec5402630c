//! Tests of alerts: their receivers and relays, and notices that can't be delivered.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::relays::{auth_refused, smarthost};
use super::*;
use crate::base::id::{AccountId, Ulid, UserId};
use crate::base::secret::Secret;
use crate::domain::account::QuotaLimits;
use crate::domain::alert::{Condition, Severity, Sighting, Subject, SubjectKind};
use crate::domain::audit::Actor;
use crate::domain::stream::Stream;
use crate::domain::user::{Role, User};
use crate::engine::Caller;
use crate::engine::alerts::listing::{AlertFilter, AlertsOf};
use crate::engine::alerts::record::Alert;
use crate::engine::alerts::{AlertSettings, AlertWebhook};
use crate::engine::audit::Behalf;
use crate::engine::listing::PageRequest;
use crate::engine::relay::RelayWay;
use crate::store::op::alert::RaiseAlert;
use crate::store::op::invitation::{InviteUser, LinkChannel};
use crate::store::read::Read as _;
use crate::store::row::alert::NoticeStatus;
use crate::store::row::notice::{NoticeContent, NoticeRow};

pub(super) fn settings() -> AlertSettings {
    let from = "alerts@bounces.sender.example".parse().unwrap();
    let email = vec!["ops@operator.test".parse().unwrap()];
    AlertSettings { email, tells_owners: true, ..AlertSettings::silent(from) }
}

fn alerts(world: &World) -> Vec<Alert> {
    let page = PageRequest { before: None, limit: 50 };
    world.engine.alerts_of(AlertsOf::All, AlertFilter::default(), page).unwrap().rows
}

/// The servers' view of mail to an address: host and EHLO name.
fn mailed(world: &World, to: &str) -> Vec<(String, String)> {
    let seen = world.net.seen().into_iter().filter(|seen| seen.to == to);
    seen.map(|seen| (seen.host, seen.ehlo)).collect()
}

async fn raise(world: &World, account: AccountId, sighting: Sighting) {
    world.engine.store.commit(RaiseAlert { account, sighting, is_over: false }).await.unwrap_or_else(|_| panic!());
}

fn blocking(provider: &str, severity: Severity) -> Sighting {
    let sighting = Sighting::new(Condition::ProviderBlocking, severity, "blocked", "10 of 50");
    sighting.of(Subject::named(SubjectKind::Provider, provider))
}

/// A service whose smarthost has refused the login for a message, and whose alert was sent through the other relay.
async fn refused_login() -> World {
    let relays = vec![smarthost(&[Stream::Transactional]), mx("direct", &[])];
    let world = World::alerting(relays, settings()).await;
    world.net.address("smart.test", &["198.51.100.1"]);
    world.net.behave("smart.test", auth_refused());
    world.send("a@r.test").await;
    world.pass(11).await;
    world
}

#[tokio::test]
async fn an_advance_applies_the_operations_that_nobody_waits_for() {
    let world = World::alerting(vec![mx("direct", &[])], settings()).await;
    let (account, sighting) = (world.account, blocking("google", Severity::Critical));
    world.engine.store.post(RaiseAlert { account, sighting, is_over: false }, |_raised| {});
    world.pass(0).await;
    assert_eq!(alerts(&world).len(), 1);
}

#[tokio::test]
async fn a_login_failure_of_a_relay_is_reported_through_another_relay_and_resolves() {
    let world = refused_login().await;
    let [alert] = &alerts(&world)[..] else { panic!("one alert") };
    assert_eq!((alert.row.condition, alert.row.resolved_at), (Condition::RelayFailing, None));
    assert!(!alert.row.seen.contains("535"), "the smarthost's words stay in the log: {}", alert.row.seen);
    let operator = ("mx.operator.test".to_owned(), "direct.sender.example".to_owned());
    assert_eq!(mailed(&world, "ops@operator.test"), [operator]);
    let notice = &alert.row.notices[0];
    assert_eq!((notice.status, notice.relay.as_deref()), (NoticeStatus::Sent, Some("direct")));
    world.net.behave("smart.test", Behaviour::Takes);
    world.pass(600).await;
    world.send("b@r.test").await;
    world.pass(0).await;
    world.pass(11).await;
    assert!(alerts(&world)[0].row.resolved_at.is_some());
    assert_eq!(mailed(&world, "ops@operator.test").len(), 2, "its end is reported, by the relay that works again");
}

#[tokio::test]
async fn the_alert_relay_is_tried_first_and_sends_only_alerts() {
    let spare = relay("spare", RelayWay::Mx, &[]);
    let alerting = AlertSettings { relay: Some("spare".to_owned()), ..settings() };
    let world = World::alerting(vec![mx("direct", &[]), spare], alerting).await;
    world.send("a@r.test").await;
    raise(&world, AccountId::default(), Sighting::new(Condition::DiskLow, Severity::Warning, "low", "1 MiB")).await;
    world.pass(11).await;
    let ehlo = |to: &str| mailed(&world, to).into_iter().map(|(_, ehlo)| ehlo).collect::<Vec<_>>();
    assert_eq!(ehlo("ops@operator.test"), ["spare.sender.example"]);
    assert_eq!(ehlo("a@r.test"), ["direct.sender.example"]);
}

#[tokio::test]
async fn an_undeliverable_notice_fails_after_a_day_and_raises_no_alert() {
    let world = World::alerting(vec![mx("direct", &[])], settings()).await;
    world.net.behave("mx.operator.test", Behaviour::Says("550 5.7.1 go away"));
    raise(&world, AccountId::default(), Sighting::new(Condition::DiskLow, Severity::Warning, "low", "1 MiB")).await;
    world.pass(27 * 3600).await;
    let [alert] = &alerts(&world)[..] else { panic!("one alert") };
    assert_eq!(alert.row.notices[0].status, NoticeStatus::Failed);
    assert_eq!(mailed(&world, "ops@operator.test").len(), 29);
}

#[tokio::test]
async fn owners_get_alerts_of_their_account_only_at_a_verified_address() {
    let world = World::alerting(vec![mx("direct", &[])], settings()).await;
    let by_operator = Behalf::operator(world.account);
    let by_owner = Behalf::new(world.account, Actor::Service);
    let add = async |on: &Behalf, email: &str, role| {
        world.engine.create_user(on.clone(), email.parse().unwrap(), role).await.unwrap_or_else(|_| panic!())
    };
    add(&by_operator, "ann@owners.test", Role::Owner).await;
    add(&by_operator, "val@owners.test", Role::Viewer).await;
    add(&by_owner, "stranger@victim.test", Role::Owner).await;
    add(&by_operator, "loop@bounces.sender.example", Role::Owner).await;
    add(&by_operator, "dmarc@rp.example.test", Role::Owner).await;
    raise(&world, world.account, blocking("google", Severity::Warning)).await;
    world.pass(11).await;
    assert_eq!(mailed(&world, "ann@owners.test").len(), 1);
    for to in [
        "val@owners.test",
        "stranger@victim.test",
        "loop@bounces.sender.example",
        "dmarc@rp.example.test",
        "ops@operator.test",
    ] {
        assert_eq!(mailed(&world, to), [], "{to}");
    }
    raise(&world, world.account, blocking("yahoo", Severity::Critical)).await;
    world.pass(11).await;
    assert_eq!(mailed(&world, "ops@operator.test").len(), 1, "critical ones go to the operator too");
}

#[tokio::test]
async fn a_removed_owner_gets_no_notice_that_still_waits() {
    let world = World::alerting(vec![mx("direct", &[])], settings()).await;
    let by_operator = Behalf::operator(world.account);
    let add = async |email: &str| {
        let made = world.engine.create_user(by_operator.clone(), email.parse().unwrap(), Role::Owner).await;
        made.unwrap_or_else(|_| panic!()).0
    };
    let ann = add("ann@owners.test").await;
    add("ben@others.test").await;
    world.net.behave("mx.owners.test", Behaviour::Says("451 4.3.0 later"));
    raise(&world, world.account, blocking("google", Severity::Warning)).await;
    world.pass(11).await;
    assert_eq!((mailed(&world, "ann@owners.test").len(), mailed(&world, "ben@others.test").len()), (1, 1));
    assert!(world.engine.delete_user(by_operator.clone(), ann.id).await.is_ok());
    world.pass(3600).await;
    assert_eq!(mailed(&world, "ann@owners.test").len(), 1);
    assert_eq!(alerts(&world)[0].row.notices.len(), 2);
}

#[tokio::test]
async fn a_silent_server_delays_no_notice_to_another_domain_and_no_webhook_request() {
    let webhook = AlertWebhook { url: "https://hooks.test/".parse().unwrap(), secret: Secret::new("s") };
    let email = (0..9).map(|n| format!("op{n}@silent.test")).chain(["ops@operator.test".to_owned()]);
    let email = email.map(|email| email.parse().unwrap()).collect();
    let world = World::alerting(vec![mx("direct", &[])], AlertSettings { email, webhook: Some(webhook), ..settings() });
    let world = world.await;
    let gate = Arc::new(Semaphore::new(0));
    for host in ["mx.silent.test", "mx.quiet.test"] {
        world.net.behave(host, Behaviour::Greets(Arc::clone(&gate)));
    }
    let owners = (0..20).map(|n| format!("o{n}@quiet.test")).chain(["ann@owners.test".to_owned()]);
    for owner in owners {
        let added = world.engine.create_user(Behalf::operator(world.account), owner.parse().unwrap(), Role::Owner);
        assert!(added.await.is_ok());
    }
    let mut posted = world.net.posted.subscribe();
    for round in 1..=2 {
        let before = *posted.borrow_and_update();
        raise(&world, world.account, blocking(&format!("provider{round}"), Severity::Critical)).await;
        world.clock.jump(Duration::from_secs(11));
        let all_sent = async {
            posted.wait_for(|posted| *posted > before).await.unwrap();
            world.net.has_seen(2 * round).await;
        };
        assert!(tokio::time::timeout(Duration::from_secs(20), all_sent).await.is_ok(), "round {round}");
        for to in ["ops@operator.test", "ann@owners.test"] {
            assert_eq!(mailed(&world, to).len(), round, "{to}");
        }
    }
    gate.add_permits(1000);
}

#[tokio::test]
async fn a_refusal_for_lack_of_quota_is_a_critical_alert_of_the_account() {
    let world = World::alerting(vec![mx("direct", &[])], settings()).await;
    let quota = QuotaLimits { per_hour: 0, per_day: 0 };
    let poor = world.engine.create_account("Poor".parse().unwrap(), None, quota).await.unwrap().id;
    let name = "poor.test".parse().unwrap();
    world.engine.create_verified_domain(poor, name, Stream::Transactional).await.unwrap();
    let caller = Caller { account: poor, key: None };
    for _ in 0..3 {
        assert!(world.engine.submit(&caller, world.submission("shop@poor.test", "a@r.test"), None).await.is_err());
    }
    // The refusal does not wait for the alert.
    while alerts(&world).is_empty() {
        tokio::task::yield_now().await;
    }
    let found: Vec<_> = alerts(&world).into_iter().map(|alert| (alert.account, alert.row.severity)).collect();
    assert_eq!(found, [(poor, Severity::Critical)]);
}

#[tokio::test]
async fn an_invitation_is_mailed_once_to_the_invited_address() {
    let world = World::alerting(vec![mx("direct", &[])], settings()).await;
    let user = User {
        id: UserId(Ulid([7; 16])),
        email: "new@guests.test".parse().unwrap(),
        role: Role::Viewer,
        password_hash: "$argon2id$x".to_owned(),
        totp: None,
        created_at: world.engine.clock.now(),
        last_sign_in_at: None,
        disabled: false,
        devices: Default::default(),
        is_operator: false,
        sign_ins: crate::domain::sign_in_log::SignInLog::default(),
    };
    let op = InviteUser { account: world.account, actor: Actor::Service, user, channel: LinkChannel::Mail };
    world.engine.store.commit(op).await.unwrap_or_else(|_| panic!());
    let (_, notice) = world.engine.store.snapshot().unwrap().rows::<NoticeRow>(&[], 1).unwrap().remove(0);
    let NoticeContent::Invitation(invitation) = notice.content else { panic!("no invitation") };
    let (_, link) = world.engine.invitation_link(&invitation).unwrap().unwrap();
    let is_sent = |user| world.engine.is_sent_link(link.split_once("token=").unwrap().1, user).unwrap();
    assert!(
        is_sent(UserId(Ulid([7; 16]))) && !is_sent(UserId(Ulid([8; 16]))),
        "it proves the address of its user alone"
    );
    world.pass(3600).await;
    assert_eq!(mailed(&world, "new@guests.test").len(), 1);
    assert!(alerts(&world).is_empty());
}

/// The alerts of a condition: whether each is open.
pub(super) fn are_open(world: &World, condition: Condition) -> Vec<bool> {
    let found = alerts(world).into_iter().filter(|alert| alert.row.condition == condition);
    found.map(|alert| alert.row.resolved_at.is_none()).collect()
}

#[tokio::test]
async fn an_alert_of_a_removed_relay_ends_with_the_next_check() {
    let world = refused_login().await;
    world.engine.check_alerts().await.unwrap();
    assert_eq!(are_open(&world, Condition::RelayFailing), [true], "the relay is still configured");
    let world = world.restarted(vec![mx("direct", &[])]).await;
    world.engine.check_alerts().await.unwrap();
    assert_eq!(are_open(&world, Condition::RelayFailing), [false]);
}
