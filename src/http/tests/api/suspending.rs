//! Tests of a suspended account: its keys can read, but can't change or send anything.

use super::*;
use crate::engine::audit::Behalf;

impl World {
    async fn suspend(&self) {
        let done = self.engine.suspend_account(Behalf::operator(self.account), "unpaid".parse().unwrap()).await;
        assert!(done.is_ok());
    }
}

#[tokio::test]
async fn a_suspended_account_reads_and_changes_nothing_until_resumed() {
    let mut world = World::new().await;
    assert_eq!(world.get("/v1/me").await.json()["suspended"], Value::Null);
    let hook = world.post("/v1/webhooks", serde_json::json!({ "url": "https://hooks.example.com/in" })).await;
    let hook = hook.header("location").to_owned();
    let message = world.sent_to("a@example.net").await;
    world.suspend().await;
    let suspended = world.get("/v1/me").await.json()["suspended"].clone();
    assert_eq!(suspended["reason"], "unpaid");
    assert!(suspended["since"].as_str().unwrap().ends_with("+00:00"));
    let shown = world.get(&format!("/v1/messages/{message}")).await;
    assert_eq!((shown.status, &shown.json()["waiting"]["reason"]), (200, &"held".into()));
    let refused = world.post("/v1/messages", letter("b@example.net")).await;
    refused.fails_with(403, "account_suspended");
    assert!(refused.json()["message"].as_str().unwrap().contains("(unpaid)"), "{}", refused.body);
    world.post(&format!("/v1/messages/{message}/cancel"), Value::Null).await.fails_with(403, "account_suspended");
    world.patch(&hook, serde_json::json!({ "enabled": false })).await.fails_with(403, "account_suspended");
    world.delete(&hook).await.fails_with(403, "account_suspended");
    let deliveries = world.get(&format!("{hook}/deliveries")).await.json();
    assert_eq!(deliveries["data"][0]["status"], "held");

    let reader = world.new_key(world.account, None, Scopes::parse("scopes", &["read"]).unwrap()).await;
    let unscoped = world.ask_as(&reader, "POST /v1/messages", "", &letter("b@example.net")).await;
    unscoped.fails_with(403, "scope_forbidden");

    assert!(world.engine.resume_account(Behalf::operator(world.account)).await.is_ok());
    assert_eq!(world.post("/v1/messages", letter("b@example.net")).await.status, 202);
    assert_eq!(world.get("/v1/me").await.json()["suspended"], Value::Null);
    let deliveries = world.get(&format!("{hook}/deliveries")).await.json();
    assert_eq!(deliveries["data"][0]["status"], "pending");
}

#[tokio::test]
async fn smtp_refuses_recipients_and_messages_of_a_suspended_account() {
    let mut world = World::new().await;
    let mut session = super::smtp_submission::session_of(&world, &world.key);
    world.suspend().await;
    let letter = super::smtp_submission::LETTER;
    let refused = "550 5.7.1 The account is suspended (unpaid): ask the operator of this service";
    assert_eq!(super::smtp_submission::submit(&mut session, &["a@example.net"], letter).await, refused);
    assert!(world.engine.resume_account(Behalf::operator(world.account)).await.is_ok());
    assert_eq!(session.sender(super::smtp_submission::sender()).as_line(), "250 2.1.0 OK");
    assert!(session.recipient("a@example.net").is_positive());
    world.suspend().await;
    let answer = session.message(letter.as_bytes().to_vec()).await;
    assert_eq!(super::smtp_submission::text(&answer), refused);
    assert_eq!(world.get("/v1/messages").await.json()["data"], serde_json::json!([]));
}
