//! Tests of `GET /v1/alerts`.

use super::*;
use crate::domain::alert::{Condition, Severity, Sighting, Subject, SubjectKind};
use crate::store::op::alert::{ClearAlert, RaiseAlert};

impl World {
    /// Raises an alert about a webhook, and returns its path. The account 0 is the service.
    async fn raised(&self, account: AccountId, condition: Condition, severity: Severity) -> String {
        let sighting = Sighting::new(condition, severity, "summary", "seen");
        let sighting = sighting.of(Subject::new(SubjectKind::Webhook, "whk_1", "hook"));
        let op = RaiseAlert { account, sighting, is_over: false };
        let changed = self.engine.store.commit(op).await.unwrap();
        let [id] = changed.opened[..] else { panic!("one alert opens: {changed:?}") };
        format!("/v1/alerts/{id}")
    }

    async fn listed_conditions(&mut self, query: &str) -> Vec<String> {
        let found = self.get(&format!("/v1/alerts{query}")).await.json();
        found["data"].as_array().unwrap().iter().map(|one| one["condition"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn alerts_are_listed_newest_first_by_state_and_condition() {
    let mut world = World::new().await;
    let account = world.account;
    let path = world.raised(account, Condition::WebhookDisabled, Severity::Critical).await;
    let opened_at = world.clock.now().to_string();
    world.advance(Duration::from_secs(1));
    world.raised(account, Condition::DomainRecord, Severity::Warning).await;
    let (condition, subject) = (Condition::WebhookDisabled, "whk_1".to_owned());
    world.engine.store.commit(ClearAlert { account, condition, subject }).await.unwrap();
    for (query, expected) in [
        ("", &["domain_record", "webhook_disabled"][..]),
        ("?state=open", &["domain_record"]),
        ("?state=resolved", &["webhook_disabled"]),
        ("?condition=webhook_disabled", &["webhook_disabled"]),
        ("?state=open&condition=webhook_disabled", &[]),
        ("?limit=1", &["domain_record"]),
    ] {
        assert_eq!(world.listed_conditions(query).await, expected, "{query}");
    }
    for (query, fault) in [("state=closed", "state"), ("condition=x", "condition"), ("severity=info", "severity")] {
        assert_eq!(world.get(&format!("/v1/alerts?{query}")).await.faults(), [fault]);
    }
    let mut shown = world.get(&path).await.json();
    let remedy = shown["remedy"].take();
    assert!(remedy.as_str().unwrap().ends_with("/docs/alerts#webhook_disabled"), "{remedy}");
    let expected = serde_json::json!({
        "id": path.rsplit('/').next().unwrap(),
        "condition": "webhook_disabled",
        "severity": "critical",
        "scope": "account",
        "subject": { "kind": "webhook", "id": "whk_1", "name": "hook" },
        "summary": "summary",
        "seen": "seen",
        "remedy": null,
        "opened_at": opened_at,
        "resolved_at": world.clock.now().to_string(),
        "notices": [],
    });
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn an_account_sees_its_own_alerts_and_the_only_account_those_of_the_service() {
    let mut world = World::new().await;
    let own = world.raised(world.account, Condition::WebhookDisabled, Severity::Critical).await;
    let of_service = world.raised(AccountId::default(), Condition::DiskLow, Severity::Warning).await;
    assert_eq!(world.listed_conditions("").await, ["disk_low", "webhook_disabled"]);
    assert_eq!(world.get(&of_service).await.json()["scope"], "system");
    let (_, stranger) = world.stranger().await;
    assert_eq!(world.listed_conditions("").await, ["webhook_disabled"], "there is another account now");
    world.get(&of_service).await.fails_with(404, "not_found");
    world.client.get(&own, &stranger).await.fails_with(404, "not_found");
    let theirs = world.client.get("/v1/alerts", &stranger).await.json();
    assert_eq!(theirs["data"], serde_json::json!([]));
}
