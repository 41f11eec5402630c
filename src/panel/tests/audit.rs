//! Tests of the audit log: every change has a line with its actor, and no line contains a secret.

use super::*;
use crate::base::id::KeyId;
use crate::domain::audit::{Action, Actor};
use crate::engine::audit::Behalf;
use crate::engine::listing::PageRequest;
use crate::store::op::suppression::Suppression;
use crate::store::row::audit::AuditRow;
use crate::store::row::suppression::SuppressionReason;

const PAGE: PageRequest = PageRequest { before: None, limit: 99 };

impl World {
    pub(super) fn audited(&self) -> Vec<AuditRow> {
        let lines = self.engine.audit_log(self.account, PAGE).unwrap().rows;
        lines.into_iter().rev().map(|(_, row)| row).collect()
    }
}

#[tokio::test]
async fn every_change_through_the_panel_is_logged() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let message = world.send(serde_json::json!({ "to": "wait@example.com" })).await;
    let before = world.audited().len();
    let mut secrets = vec![world.password.clone()];
    let mut add_secret = |reply: &Reply| {
        let secret = reply.between("id=\"copy-", "</code>").split('>').nth(1).unwrap_or_default().to_owned();
        assert!(!secret.is_empty(), "{}", reply.body);
        secrets.push(secret);
    };
    browser.post("/settings", &[("content_retention_days", "7")]).await;
    browser.post(&format!("/messages/{message}/cancel"), &[]).await;
    add_secret(&browser.post("/users", &[("email", "cleo@example.test"), ("role", "viewer")]).await);
    let cleo = world.engine.users(world.account, PAGE).unwrap().rows[0].id;
    browser.post(&format!("/users/{cleo}"), &[("action", "role"), ("role", "owner")]).await;
    browser.post(&format!("/users/{cleo}"), &[("action", "disable")]).await;
    browser.post(&format!("/users/{cleo}"), &[("action", "enable")]).await;
    add_secret(&browser.post(&format!("/users/{cleo}"), &[("action", "password")]).await);
    browser.post(&format!("/users/{cleo}/remove"), &[("name", "cleo@example.test")]).await;
    browser.post("/settings/sessions", &[]).await;
    add_secret(&browser.post("/keys", &[("name", "shop"), ("scopes", "send")]).await);
    let key = world.engine.keys(world.account, PAGE).unwrap().rows[0].id;
    browser.post(&format!("/keys/{key}"), &[("name", "shop 2")]).await;
    browser.post(&format!("/keys/{key}/revoke"), &[("name", "shop 2")]).await;
    browser.post("/domains", &[("name", "a.example.com"), ("stream", "marketing")]).await;
    let domain = world.engine.domains(world.account, PAGE).unwrap().rows[0].0;
    browser.post(&format!("/domains/{domain}"), &[("stream", "transactional")]).await;
    browser.post(&format!("/domains/{domain}/rotate-dkim"), &[]).await;
    browser.post(&format!("/domains/{domain}/delete"), &[("name", "a.example.com")]).await;
    add_secret(&browser.post("/webhooks", &[("url", "https://hooks.example.com/in?token=hush")]).await);
    let webhook = world.engine.endpoints(world.account, PAGE).unwrap().rows[0].0;
    let path = format!("/webhooks/{webhook}");
    browser.post(&path, &[("description", "x")]).await;
    browser.post(&format!("{path}/pause"), &[]).await;
    browser.post(&format!("{path}/reactivate"), &[]).await;
    add_secret(&browser.post(&format!("{path}/rotate-secret"), &[]).await);
    browser.post(&format!("{path}/test"), &[]).await;
    let delivery = world.deliveries(webhook)[0].id;
    browser.post(&format!("{path}/deliveries/{delivery}/redeliver"), &[]).await;
    browser.post(&format!("{path}/replay"), &[("since", "2023-11-01T00:00:00Z")]).await;
    browser.post(&format!("{path}/delete"), &[("name", "hooks.example.com")]).await;
    browser.post("/suppressions", &[("email", "no@example.com")]).await;
    let suppression = browser.get("/suppressions").await.between("href=\"/suppressions/sup_", "\"").to_owned();
    browser.post(&format!("/suppressions/sup_{suppression}/remove"), &[]).await;
    browser.upload("/suppressions/import", &[("list", "email\nx@example.com\n"), ("act", "import")]).await;

    let lines = world.audited().split_off(before);
    let actions: Vec<_> = lines.iter().map(|line| line.change.action).collect();
    assert_eq!(
        actions,
        [
            Action::SettingsChanged,
            Action::MessageCanceled,
            Action::UserAdded,
            Action::SetupLinkMade,
            Action::RoleChanged,
            Action::UserDisabled,
            Action::UserEnabled,
            Action::PasswordChanged,
            Action::UserRemoved,
            Action::SessionsEnded,
            Action::KeyCreated,
            Action::KeyRenamed,
            Action::KeyRevoked,
            Action::DomainAdded,
            Action::DomainChanged,
            Action::DomainKeysRotated,
            Action::DomainDeleted,
            Action::WebhookCreated,
            Action::WebhookChanged,
            Action::WebhookPaused,
            Action::WebhookReactivated,
            Action::WebhookSecretRotated,
            Action::WebhookTested,
            Action::DeliverySentAgain,
            Action::EventsReplayed,
            Action::WebhookDeleted,
            Action::AddressSuppressed,
            Action::SuppressionLifted,
            Action::SuppressionsImported,
        ]
    );
    assert!(lines.iter().all(|line| line.actor.to_string() == EMAIL && line.at == world.clock.now()));
    let page = browser.get("/audit").await;
    for action in actions {
        assert!(page.shows(action.as_str()), "{action:?}");
    }
    assert!(page.shows("a.example.com") && page.shows("hooks.example.com") && page.shows(&format!("/keys/{key}")));
    let all = format!("{lines:?}");
    secrets.push("hush".to_owned());
    for secret in secrets {
        assert!(!all.contains(&secret) && !page.shows(&secret), "{secret}");
    }
}

#[tokio::test]
async fn a_delivery_that_was_sent_again_is_a_link() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let webhook = world.endpoint().await;
    world.send(serde_json::json!({ "to": "wait@example.com" })).await;
    let first = world.deliveries(webhook)[0].id;
    browser.post(&format!("/webhooks/{webhook}/deliveries/{first}/redeliver"), &[]).await;
    let again = world.deliveries(webhook)[0].id;
    let page = browser.get("/audit").await;
    let link = format!("resent a webhook delivery: <a href=\"/webhooks/{webhook}/deliveries/{again}\">");
    assert!(again != first && page.shows(&link) && page.shows("<strong>Queued event</strong>"), "{}", page.body);
    assert!(!page.shows(">dlv_"), "{}", page.body);
    browser.post(&format!("/webhooks/{webhook}/delete"), &[("name", "hooks.example.com")]).await;
    assert!(browser.get("/audit").await.shows("resent a webhook delivery:"));
}

#[tokio::test]
async fn refused_changes_are_not_logged() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let webhook = world.endpoint().await;
    world.engine.delete_endpoint(world.account, webhook).await.unwrap();
    let before = world.audited();
    browser.post("/keys", &[("name", "")]).await;
    browser.post("/keys/key_00000000000000000000000000/revoke", &[]).await;
    browser.post(&format!("/webhooks/{webhook}/rotate-secret"), &[]).await;
    assert_eq!(world.audited(), before);
}

#[tokio::test]
async fn lines_name_programs_the_operator_and_the_service() {
    let world = World::new().await;
    let (account, key) = (world.account, KeyId::default());
    for actor in [Actor::Key(key), Actor::Operator, Actor::Service] {
        let name = "no@example.com".parse().unwrap();
        let on = Behalf::new(account, actor);
        world.engine.suppress(on, Suppression::of(name, SuppressionReason::Manual)).await.unwrap();
    }
    let mut browser = world.owner().await;
    browser.post("/keys", &[("name", "web shop"), ("scopes", "send")]).await;
    let known = world.engine.keys(account, PAGE).unwrap().rows[0].id;
    let on = Behalf::new(account, Actor::Key(known));
    let name = "yes@example.com".parse().unwrap();
    world.engine.suppress(on, Suppression::of(name, SuppressionReason::Manual)).await.unwrap();
    let page = browser.get("/audit").await;
    assert!(page.shows(&format!("<a href=\"/keys/{known}\">API key web shop</a>")), "{}", page.body);
    assert!(page.shows(&format!("<a href=\"/keys/{key}\">API key {key}</a>")), "a key that no longer exists");
    assert!(page.shows(">operator</td>") && page.shows(">service</td>"));
}

#[tokio::test]
async fn the_log_is_paged_and_limited_to_the_account() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for days in 1..=60 {
        browser.post("/settings", &[("content_retention_days", &days.to_string())]).await;
    }
    let count = |page: &Reply| page.body.matches("changed the settings").count();
    let first = browser.get("/audit").await;
    let older = first.between("rel=\"next\" class=\"button\" href=\"", "\"").to_owned();
    let second = browser.get(&older).await;
    assert_eq!((count(&first), count(&second)), (50, 10));
    assert!(first.shows("content_retention_days 59 to 60") && second.shows("content_retention_days 30 to 1<"));
    let other = world.engine.create_account("Other".parse().unwrap(), None, QuotaLimits::default()).await.unwrap().id;
    assert!(world.engine.audit_log(other, PAGE).unwrap().rows.is_empty());
}

#[tokio::test]
async fn a_line_has_the_old_and_the_new_value() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    browser.post("/settings", &[("time_zone", "Asia/Tokyo")]).await;
    browser.post("/users", &[("email", "cleo@example.test"), ("role", "viewer")]).await;
    let cleo = world.engine.users(world.account, PAGE).unwrap().rows[0].id;
    browser.post(&format!("/users/{cleo}"), &[("action", "role"), ("role", "owner")]).await;
    let webhook = world.endpoint().await;
    let url = ("url", "https://hooks.example.com/in?token=hush");
    for form in [
        [("description", "Order status"), url, ("events", "bounced")],
        [("description", "Order status"), ("url", "https://hooks.example.com/in?token=new"), ("events", "bounced")],
    ] {
        browser.post(&format!("/webhooks/{webhook}"), &form).await;
    }
    let page = browser.get("/audit").await;
    for expected in [
        "Acme: time_zone UTC to Asia/Tokyo</strong>",
        "cleo@example.test: role viewer to owner</strong>",
        "Order status: URL changed</strong>",
    ] {
        assert!(page.shows(expected), "{expected} in {}", page.body);
    }
    assert!(page.shows("events all to bounced") && page.shows("description none to Order status"), "{}", page.body);
    assert!(!page.shows("hush"));
    // The page of an object leads to its lines.
    assert!(browser.get(&format!("/webhooks/{webhook}")).await.shows(&format!("/audit?object={webhook}")));
    let history = browser.get(&format!("/audit?object={webhook}")).await;
    assert!(history.shows("Order status: URL changed") && !history.shows("time_zone"), "{}", history.body);
}

#[tokio::test]
async fn resuming_an_account_that_is_not_suspended_is_not_logged() {
    let world = World::new().await;
    let on = || Behalf::operator(world.account);
    assert!(world.engine.suspend_account(on(), "unpaid".parse().unwrap()).await.is_ok());
    for _ in 0..2 {
        assert!(world.engine.resume_account(on()).await.is_ok());
    }
    let resumed = world.audited().iter().filter(|line| line.change.action == Action::AccountResumed).count();
    assert_eq!(resumed, 1);
}
