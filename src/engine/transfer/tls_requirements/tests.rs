//! Tests of kept connections: which ones may serve the next message, of the same domain or another.

use std::sync::Arc;

use super::*;
use crate::base::id::DomainId;
use crate::domain::event::{Authenticated, TlsPolicy};
use crate::domain::hostname::DomainName;
use crate::engine::ports::{BoxFuture, Transmit};
use crate::engine::tls_policy::tests::{MX, World, domain, host};
use crate::engine::transfer::egress_routes::EgressRoutes;
use crate::engine::transfer::{Tables, Transfers};
use crate::smtp::deadlines::Deadlines;
use crate::smtp::outcome::{Ending, LoopCheck, Phase};
use crate::smtp::rules::Rules;
use crate::smtp::shaping::Shaping;
use crate::smtp::transcript::Transcript;
use crate::store::row::tls_policy::PolicyType;
use crate::store::testing::{START, message_row};

/// A transport that sends nothing.
struct NoWay;

impl Transmit for NoWay {
    fn connect<'a>(&'a self, _: &'a Target) -> BoxFuture<'a, Result<Box<dyn Session>, Outcome>> {
        unreachable!("a connection is kept")
    }
}

fn shared(world: &World) -> Arc<Shared> {
    let routes = EgressRoutes { relays: Vec::new(), port: 25, capture: None };
    let tables = Tables { rules: Arc::new(Rules::built_in().clone()), shaping: Arc::new(Shaping::built_in().clone()) };
    Transfers::new(world.engine(), Arc::new(NoWay), world.outside.clone(), routes, tables, Default::default()).shared
}

/// Returns a connection to `host` that was opened without a policy.
fn target(host: &str) -> Target {
    Target {
        host: host.into(),
        address: ([127, 0, 0, 1], 25).into(),
        ehlo: "us.example".into(),
        source: None,
        deadlines: Deadlines::default(),
        loop_check: LoopCheck::OwnNameIsLoop,
        tls: TlsRequirement::Opportunistic,
        submission: None,
    }
}

fn secured(authenticated: Authenticated) -> Option<TlsFacts> {
    let (version, cipher) = ("TLSv1.3".to_owned(), "TLS_AES_128_GCM_SHA256".to_owned());
    Some(TlsFacts { version, cipher, authenticated, policy: TlsPolicy::Opportunistic })
}

/// Returns the requirements for a message to a recipient at `domain`.
async fn held(shared: &Shared, domain: DomainName) -> RecipientPolicy<'_> {
    RecipientPolicy::new(shared, &Site::Servers(MX.into()), &message(&domain), Requester::SERVICE).await
}

fn message(domain: &DomainName) -> MessageRow {
    message_row(DomainId::default(), &format!("a@{domain}"), START)
}

#[tokio::test]
async fn a_message_that_waives_tls_looks_up_no_policy_and_is_not_counted() {
    let world = World::new();
    world.announces("1");
    world.publishes("enforce", "other.example.test");
    let shared = shared(&world);
    let row = MessageRow { waives_tls: true, ..message(&domain()) };
    let waiving = RecipientPolicy::new(&shared, &Site::Servers(MX.into()), &row, Requester::SERVICE).await;
    let host = host(&[]);
    assert!(matches!(waiving.requirement(Some(&host)).await, Ok(TlsRequirement::Opportunistic)));
    let (phase, ending) = (Phase::StartTls, Ending::TlsFailed("no".to_owned()));
    waiving
        .count(&target(MX), &Err(Outcome { phase, ending, peer: None, tls: None, transcript: Transcript::default() }));
    assert_eq!(world.counted(PolicyType::Sts).await.failures, 0);
    // The requirements of another message to the same domain apply and are counted.
    assert!(matches!(held(&shared, domain()).await.requirement(Some(&host)).await, Err(WithheldReason::LeftOut(_))));
    assert_eq!(world.counted(PolicyType::Sts).await.failures, 1);
}

/// Returns the policy that a connection to `host`, kept from mail for another domain and encrypted as `tls` says, meets
/// now.
async fn kept_from_elsewhere(world: &World, host: &str, tls: Option<TlsFacts>) -> Option<TlsPolicy> {
    let shared = shared(world);
    let elsewhere = Agreement { policy: None, required: TlsRequirement::Opportunistic, at: Duration::ZERO };
    let held = held(&shared, domain()).await;
    held.renewed(&target(host), tls, elsewhere).await.map(|agreed| agreed.required.policy())
}

#[tokio::test]
async fn a_connection_kept_for_another_domain_is_used_if_it_meets_the_policy() {
    let world = World::new();
    assert_eq!(kept_from_elsewhere(&world, MX, None).await, Some(TlsPolicy::Opportunistic));
    assert_eq!(kept_from_elsewhere(&world, "mx.other.test", None).await, None, "it is no server of this domain");
    world.announces("1");
    world.publishes("enforce", MX);
    assert_eq!(kept_from_elsewhere(&world, MX, None).await, None);
    assert_eq!(kept_from_elsewhere(&world, MX, secured(Authenticated::None)).await, None);
    assert_eq!(kept_from_elsewhere(&world, MX, secured(Authenticated::Pkix)).await, Some(TlsPolicy::MtaSts));
    world.announces("2");
    world.publishes("enforce", "mx2.example.test");
    assert_eq!(kept_from_elsewhere(&world, MX, secured(Authenticated::Pkix)).await, None, "it is not named any more");
}

#[tokio::test]
async fn a_connection_serves_its_own_domain_for_a_minute_without_another_lookup() {
    let world = World::new();
    let shared = shared(&world);
    let held = held(&shared, domain()).await;
    let agreed = held.agreement(TlsRequirement::Opportunistic);
    let gone = target("mx.gone.test");
    assert!(held.renewed(&gone, None, agreed.clone()).await.is_some(), "not looked up");
    world.passes(AGREED);
    assert!(held.renewed(&gone, None, agreed).await.is_none());
}

#[tokio::test]
async fn a_new_policy_applies_to_a_kept_connection_at_once() {
    let world = World::new();
    let shared = shared(&world);
    let agreed = held(&shared, domain()).await.agreement(TlsRequirement::Opportunistic);
    world.announces("1");
    world.publishes("enforce", MX);
    assert!(held(&shared, domain()).await.renewed(&target(MX), None, agreed).await.is_none());
}
