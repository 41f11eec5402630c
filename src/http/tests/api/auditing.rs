//! Tests of the audit log: changes by programs and the operator, and the service's own events.

use tokio::net::UnixStream;

use super::*;
use crate::domain::audit::{Action, Actor};
use crate::engine::listing::PageRequest;
use crate::store::row::audit::AuditRow;

impl World {
    /// Returns the account's lines, oldest first.
    fn audited(&self) -> Vec<AuditRow> {
        let page = PageRequest { before: None, limit: 99 };
        let lines = self.engine.audit_log(self.account, page).unwrap().rows;
        lines.into_iter().rev().map(|(_, row)| row).collect()
    }

    fn actions(&self, after: usize) -> Vec<(Actor, Action)> {
        self.audited().split_off(after).into_iter().map(|line| (line.actor, line.change.action)).collect()
    }
}

#[tokio::test]
async fn every_change_by_a_key_has_a_line_that_names_the_key() {
    let mut world = World::new().await;
    let message = world.sent_to("a@example.net").await;
    let own = world.engine.authenticate(&world.key).unwrap().unwrap().key.unwrap().id;
    let before = world.audited().len();
    let key = world.post("/v1/keys", serde_json::json!({ "name": "shop" })).await.header("location").to_owned();
    world.patch(&key, serde_json::json!({ "name": "shop 2" })).await;
    world.delete(&key).await;
    world.patch("/v1/settings", serde_json::json!({ "content_retention_days": 7 })).await;
    let body = serde_json::json!({ "name": "new.example", "stream": "marketing" });
    let domain = world.post("/v1/domains", body).await;
    let key_record = domain.json()["records"][0].clone();
    world.names.publish(key_record["name"].as_str().unwrap(), key_record["value"].as_str().unwrap());
    let domain = domain.header("location").to_owned();
    world.post(&format!("{domain}/verify"), Value::Null).await;
    world.post(&format!("{domain}/rotate-dkim"), Value::Null).await;
    world.patch(&domain, serde_json::json!({ "stream": "transactional" })).await;
    world.delete(&domain).await;
    let hook = serde_json::json!({ "url": "https://hooks.example.com/in?token=hush" });
    let hook = world.post("/v1/webhooks", hook).await.header("location").to_owned();
    world.patch(&hook, serde_json::json!({ "description": "x" })).await;
    world.post(&format!("{hook}/rotate-secret"), Value::Null).await;
    let delivery = world.post(&format!("{hook}/test"), Value::Null).await.header("location").to_owned();
    world.post(&format!("{delivery}/redeliver"), Value::Null).await;
    world.post(&format!("{hook}/replay"), serde_json::json!({ "since": "2023-11-01T00:00:00Z" })).await;
    world.delete(&hook).await;
    world.post("/v1/suppressions", serde_json::json!({ "email": "no@example.com" })).await;
    world.delete("/v1/suppressions/no@example.com").await;
    world.post(&format!("/v1/messages/{message}/cancel"), Value::Null).await;

    let (by_key, service) = (Actor::Key(own), Actor::Service);
    let expected = [
        (&by_key, Action::KeyCreated),
        (&by_key, Action::KeyRenamed),
        (&by_key, Action::KeyRevoked),
        (&by_key, Action::SettingsChanged),
        (&by_key, Action::DomainAdded),
        (&service, Action::DomainVerified),
        (&by_key, Action::DomainKeysRotated),
        (&by_key, Action::DomainChanged),
        (&by_key, Action::DomainDeleted),
        (&by_key, Action::WebhookCreated),
        (&by_key, Action::WebhookChanged),
        (&by_key, Action::WebhookSecretRotated),
        (&by_key, Action::WebhookTested),
        (&by_key, Action::DeliverySentAgain),
        (&by_key, Action::EventsReplayed),
        (&by_key, Action::WebhookDeleted),
        (&by_key, Action::AddressSuppressed),
        (&by_key, Action::SuppressionLifted),
        (&by_key, Action::MessageCanceled),
    ];
    let lines = world.actions(before);
    assert_eq!(lines.iter().map(|(actor, action)| (actor, *action)).collect::<Vec<_>>(), expected);
    let all = format!("{:?}", world.audited());
    assert!(!all.contains("hush") && !all.contains(&world.key) && !all.contains("pr_live_"));
}

#[tokio::test]
async fn every_change_by_the_operator_has_a_line() {
    let world = World::new().await;
    let socket = UnixStream::connect(world.directory.path().join("admin.sock")).await.unwrap();
    let mut operator = Client::over(socket);
    let before = world.audited().len();
    let user = operator.ask("POST /v1/users", "", "", r#"{"email":"ann@example.com","role":"viewer"}"#).await;
    let user = user.header("location").to_owned();
    operator.ask(&format!("PATCH {user}"), "", "", r#"{"role":"owner"}"#).await;
    operator.ask(&format!("PATCH {user}"), "", "", r#"{"setup_link":true}"#).await;
    operator.ask(&format!("DELETE {user}"), "", "", "").await;
    operator.ask(&format!("PATCH /v1/accounts/{}", world.account), "", "", r#"{"quota_per_hour":5}"#).await;
    operator.ask("POST /v1/queue/pause", "", "", r#"{"site":"google"}"#).await;
    operator.ask("POST /v1/queue/resume", "", "", r#"{"site":"google"}"#).await;
    operator.ask("POST /v1/keys", "", "", r#"{"name":"first"}"#).await;
    let lines = world.actions(before);
    assert!(lines.iter().all(|(actor, _)| *actor == Actor::Operator), "{lines:?}");
    let actions: Vec<_> = lines.into_iter().map(|(_, action)| action).collect();
    let expected = [
        Action::UserAdded,
        Action::RoleChanged,
        Action::SetupLinkMade,
        Action::UserRemoved,
        Action::SettingsChanged,
        Action::SitePaused,
        Action::SiteResumed,
        Action::KeyCreated,
    ];
    assert_eq!(actions, expected);
}
