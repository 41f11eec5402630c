//! Tests of message lists through the compatible APIs: accepted as a whole or separately, counted as one request per
//! message, and repeated as a whole.

use serde_json::json;

use super::compat_routes::JSON;
use super::idempotency::hold;
use super::*;
use crate::store::error::OpError;
use crate::store::op::{Infallible, Op};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use sha2::{Digest as _, Sha256};

fn email(to: &str) -> Value {
    json!({"from": "a@example.test", "to": to, "text": "x"})
}

fn message(to: &str) -> Value {
    json!({"From": "a@example.test", "To": to, "TextBody": "x"})
}

impl World {
    async fn emails(&mut self, headers: &str, emails: &[Value]) -> Reply {
        self.resend("POST /emails/batch", &format!("{JSON}{headers}"), &Value::from(emails).to_string()).await
    }

    async fn messages(&mut self, headers: &str, messages: &[Value]) -> Reply {
        self.postmark("POST /email/batch", &format!("{JSON}{headers}"), &Value::from(messages).to_string()).await
    }
}

const PERMISSIVE: &str = "x-batch-validation: permissive\r\n";

#[tokio::test]
async fn a_strict_list_is_sent_completely_or_not_at_all() {
    let mut world = World::with(QuotaLimits { per_hour: 4, per_day: 100 }, 600).await;
    let sent = world.emails("", &[email("a@example.org"), email("B <b@example.org>")]).await;
    assert_eq!((sent.status, sent.header("x-service-quota-remaining")), (200, "2"), "{}", sent.body);
    assert_eq!(members(&sent.body), ["data"]);
    let ids: Vec<_> =
        sent.json()["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
    for (id, to) in ids.iter().zip(["a@example.org", "b@example.org"]) {
        assert_eq!(world.get(&format!("/v1/messages/{id}")).await.json()["to"], to);
    }
    let bad = json!({"from": "a@example.test", "to": "nobody", "headers": {"Date": "x"}, "text": "x"});
    let answer = world.emails("", &[email("c@example.org"), bad.clone(), json!({})]).await;
    let answer = answer.is_resend(422, "validation_error", "validation_failed");
    let fields: Vec<_> = answer["errors"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["emails[1].headers.Date", "emails[1].to"]);
    assert!(answer["message"].as_str().unwrap().starts_with("emails[1].headers.Date: "), "{answer}");
    world.post("/v1/suppressions", json!({"email": "gone@example.org"})).await;
    let answer = world.emails("", &[email("c@example.org"), email("gone@example.org")]).await;
    let answer = answer.is_resend(422, "validation_error", "recipient_suppressed");
    assert_eq!(answer["errors"], json!({"emails[1].to": ["is suppressed"]}));
    let over = world.emails("", &[email("c@example.org"), email("d@example.org"), email("e@example.org")]).await;
    over.is_resend(429, "daily_quota_exceeded", "quota_exceeded");
    assert_eq!(over.header("x-service-quota-remaining"), "2");
    world.emails("x-batch-validation: maybe\r\n", &[email("c@example.org")]).await.is_resend(
        422,
        "validation_error",
        "validation_failed",
    );
    assert_eq!(world.count().await, 2);
}

#[tokio::test]
async fn a_permissive_list_sends_its_valid_messages() {
    let mut world = World::new().await;
    let sent = world.emails(PERMISSIVE, &[email("nobody"), email("a@example.org"), json!(7)]).await;
    assert_eq!(sent.status, 200, "{}", sent.body);
    let answer = sent.json();
    assert_eq!(answer["data"].as_array().unwrap().len(), 1);
    let errors = answer["errors"].as_array().unwrap();
    assert_eq!(errors.iter().map(|error| error["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 2]);
    assert!(errors[0]["message"].as_str().unwrap().starts_with("to: must be an email address"), "{answer}");
    let good = world.emails(PERMISSIVE, &[email("a@example.org")]).await.json();
    assert_eq!((good["data"].as_array().unwrap().len(), &good["errors"]), (1, &json!([])));
    assert_eq!(world.count().await, 2);
}

#[tokio::test]
async fn postmark_answers_each_message_at_its_position() {
    let mut world = World::with(QuotaLimits { per_hour: 2, per_day: 100 }, 600).await;
    world.post("/v1/suppressions", json!({"email": "gone@example.org"})).await;
    let list = [
        message("Ann <a@example.org>"),
        message("nobody"),
        message("gone@example.org"),
        json!({"From": "a@other.test", "To": "b@example.org", "TextBody": "x"}),
        json!([]),
        message("b@example.org"),
        message("c@example.org"),
    ];
    let sent = world.messages("", &list).await;
    assert_eq!((sent.status, sent.header("x-service-quota-remaining")), (200, "0"), "{}", sent.body);
    let answer = sent.json();
    let numbers: Vec<_> = answer.as_array().unwrap().iter().map(|one| one["ErrorCode"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [0, 300, 406, 400, 300, 0, 405]);
    assert_eq!((&answer[0]["To"], &answer[0]["Message"]), (&json!("Ann <a@example.org>"), &json!("OK")));
    assert_eq!(answer[1].as_object().unwrap().keys().collect::<Vec<_>>(), ["ErrorCode", "Message"]);
    assert!(answer[1]["Message"].as_str().unwrap().starts_with("Invalid 'To' address: 'nobody'."));
    assert!(answer[2]["Message"].as_str().unwrap().contains("Found inactive addresses: gone@example.org. Inactive"));
    assert_eq!(world.count().await, 2);
}

#[tokio::test]
async fn the_messages_of_a_list_are_accepted_together() {
    let mut world = World::new().await;
    let mut list: Vec<_> = (0..20).map(|n| message(&format!("a{n}@example.org"))).collect();
    list.insert(3, message("nobody"));
    let operations = |world: &World| world.engine.store.meters().commit_operations.read().sum;
    let before = operations(&world);
    let sent = world.messages("", &list).await.json();
    assert!(operations(&world) - before < 5, "each message was an operation of its own");
    let to: Vec<_> = sent.as_array().unwrap().iter().map(|one| one["To"].as_str()).collect();
    assert_eq!((to.len(), to[2], to[3], to[4]), (21, Some("a2@example.org"), None, Some("a3@example.org")));
    let ids: Vec<_> = sent.as_array().unwrap().iter().filter_map(|one| one["MessageID"].as_str()).collect();
    assert!(ids.is_sorted(), "identifiers do not rise: {ids:?}");
    assert_eq!((ids.len(), world.count().await), (20, 20));
}

#[tokio::test]
async fn a_long_list_is_answered_in_order() {
    let mut world = World::with(QuotaLimits { per_hour: 240, per_day: 1_000 }, 2_000).await;
    let list: Vec<_> = (0..250).map(|n| message(&format!("a{n}@example.org"))).collect();
    let sent = world.messages("Idempotency-Key: long\r\n", &list).await.json();
    for (place, one) in sent.as_array().unwrap().iter().enumerate() {
        let number = if place < 240 { 0 } else { 405 };
        assert_eq!(one["ErrorCode"], number, "{place}: {one}");
        if number == 0 {
            assert_eq!(one["To"], format!("a{place}@example.org"));
        }
    }
    assert_eq!(sent.as_array().unwrap().len(), 250);
}

#[tokio::test]
async fn a_list_has_limits() {
    let mut world = World::with(QuotaLimits::default(), 2_000).await;
    world.emails("", &[]).await.is_resend(422, "validation_error", "validation_failed");
    world.messages("", &[]).await.is_postmark(422, 300, "validation_failed");
    let emails: Vec<_> = (0..101).map(|n| email(&format!("a{n}@example.org"))).collect();
    world.emails("", &emails).await.is_resend(422, "validation_error", "validation_failed");
    assert_eq!(world.emails("", &emails[..100]).await.json()["data"].as_array().unwrap().len(), 100);
    let messages: Vec<_> = (0..501).map(|n| message(&format!("a{n}@example.org"))).collect();
    world.messages("", &messages).await.is_postmark(422, 410, "validation_failed");
    for bad in ["{}", "7", "", "[{]"] {
        world.resend("POST /emails/batch", JSON, bad).await.is_resend(422, "validation_error", "invalid_json");
        world.postmark("POST /email/batch", JSON, bad).await.is_postmark(422, 402, "invalid_json");
    }
}

#[tokio::test]
async fn a_list_counts_as_one_request_per_message() {
    let mut world = World::with(QuotaLimits::default(), 5).await;
    let list = [email("a@example.org"), email("b@example.org"), email("c@example.org")];
    let sent = world.emails("", &list).await;
    assert_eq!(
        (sent.status, sent.header("ratelimit").starts_with("\"key\";r=2;")),
        (200, true),
        "{}",
        sent.header("ratelimit")
    );
    let over = world.emails("", &list).await;
    over.is_resend(429, "rate_limit_exceeded", "rate_limited");
    assert_eq!((over.header("retry-after"), over.header("ratelimit").starts_with("\"key\";r=2;")), ("60", true));
    world
        .messages("", &[message("a@example.org"), message("b@example.org"), message("c@example.org")])
        .await
        .is_postmark(429, 429, "rate_limited");
    let fits = world.emails("", &[email("d@example.org"), json!({})]).await;
    fits.is_resend(422, "missing_required_field", "validation_failed");
    assert!(fits.header("ratelimit").starts_with("\"key\";r=0;"), "{}", fits.header("ratelimit"));
    world.advance(Duration::from_secs(60));
    assert_eq!(world.count().await, 3);
}

#[tokio::test]
async fn a_repeated_list_returns_the_first_answer() {
    let mut world = World::new().await;
    let key = "Idempotency-Key: list\r\n";
    let list = [email("a@example.org"), email("b@example.org")];
    let first = world.emails(key, &list).await;
    let again = world.emails(key, &list).await;
    assert_eq!((again.status, &again.body, again.header("idempotent-replay")), (200, &first.body, "true"));
    world.emails(&format!("{key}{PERMISSIVE}"), &list).await.is_resend(
        409,
        "invalid_idempotent_request",
        "idempotency_mismatch",
    );
    world.emails(key, &list[..1]).await.is_resend(409, "invalid_idempotent_request", "idempotency_mismatch");
    assert_eq!(world.count().await, 2);
    let key = "Idempotency-Key: messages\r\n";
    let list = [message("a@example.org"), message("nobody")];
    let first = world.messages(key, &list).await;
    let again = world.messages(key, &list).await;
    assert_eq!((again.status, &again.body, again.header("idempotent-replay")), (200, &first.body, "true"));
    assert_eq!(first.header("idempotent-replay"), "");
    world.messages(key, &list[..1]).await.is_postmark(409, 300, "idempotency_mismatch");
    let key = "Idempotency-Key: refused\r\n";
    assert_eq!(world.messages(key, &[message("nobody")]).await.json()[0]["ErrorCode"], 300);
    assert_eq!(
        world.messages(key, &[message("c@example.org")]).await.json()[0]["ErrorCode"],
        0,
        "a refused list leaves its key free"
    );
    assert_eq!(world.count().await, 4);
}

#[tokio::test]
async fn the_key_of_a_running_list_is_in_progress_everywhere() {
    let mut world = World::new().await;
    let first = world.email(json!({})).await;
    assert_eq!(first.status, 200);
    let release = hold(&world);
    let (mut one, mut two) = (Client::open(world.address).await, Client::open(world.address).await);
    let (key, headers) = (world.key.clone(), format!("{JSON}Idempotency-Key: list\r\n"));
    let list = Value::from(vec![email("a@example.org"), email("b@example.org")]).to_string();
    let line = "POST /v1/compat/resend/emails/batch";
    let mut ones = Box::pin(one.ask(line, &key, &headers, &list));
    let mut twos = Box::pin(two.ask(line, &key, &headers, &list));
    // One of the two is blocked at the writer. Whichever it is, the other is answered at once.
    let (refused, running) = tokio::select! {
        reply = &mut ones => (reply, twos),
        reply = &mut twos => (reply, ones),
    };
    refused.is_resend(409, "concurrent_idempotent_requests", "idempotency_in_progress");
    assert_eq!(refused.header("retry-after"), "1");
    world.send_with(&headers[JSON.len()..], &letter("c@example.org")).await.fails_with(409, "idempotency_in_progress");
    release.send(()).unwrap();
    let sent = running.await;
    assert_eq!(sent.status, 200, "{}", sent.body);
    let again = world.resend("POST /emails/batch", &headers, &list).await;
    assert_eq!((&again.body, again.header("idempotent-replay")), (&sent.body, "true"));
    assert_eq!(world.count().await, 3);
}

#[tokio::test]
async fn an_interrupted_list_continues_with_its_remaining_messages() {
    let mut world = World::new().await;
    let headers = "Idempotency-Key: list\r\n";
    let list = [message("a@example.org"), message("b@example.org"), message("c@example.org")];
    // The process ended after two messages of a list: they are sent, and its key is not bound.
    let cut_off = world.messages(headers, &list).await;
    world.unbind("list").await;
    assert_eq!(world.count().await, 3);
    let again = world.messages(headers, &list).await;
    let ids =
        |reply: &Reply| reply.json().as_array().unwrap().iter().map(|one| one["MessageID"].clone()).collect::<Vec<_>>();
    assert_eq!((again.header("idempotent-replay"), ids(&again)), ("", ids(&cut_off)));
    assert_eq!(world.count().await, 3);
}

/// Frees an idempotency key, like a crash before the key was bound.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Unbind {
    key: Vec<u8>,
}

impl Op for Unbind {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.remove(Table::Idempotency, &self.key);
        Ok(())
    }
}

impl World {
    async fn unbind(&self, key: &str) {
        let hash: [u8; 32] = Sha256::digest(key).into();
        let op = Unbind { key: schema::named(self.account, &hash) };
        self.engine.store.commit(op).await.unwrap();
    }
}
