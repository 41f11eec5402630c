//! Tests of both compatible APIs: their prefix, errors and keys, and that they grant no additional access.

use serde_json::json;

use super::*;
use crate::domain::api_key::Scope;

pub(super) const JSON: &str = "Content-Type: application/json\r\n";

impl World {
    /// Sends a request with the key as Resend's clients do.
    pub(super) async fn resend(&mut self, line: &str, headers: &str, body: &str) -> Reply {
        let key = self.key.clone();
        self.client.ask(&line.replacen(" /", " /v1/compat/resend/", 1), &key, headers, body).await
    }

    /// Sends a request with the header of Postmark's clients.
    pub(super) async fn postmark(&mut self, line: &str, headers: &str, body: &str) -> Reply {
        let headers = format!("X-Postmark-Server-Token: {}\r\n{headers}", self.key);
        self.client.ask(&line.replacen(" /", " /v1/compat/postmark/", 1), "", &headers, body).await
    }

    pub(super) async fn email(&mut self, changes: Value) -> Reply {
        let body = laid_over(json!({"from": "a@example.test", "to": "b@example.org", "text": "x"}), changes);
        self.resend("POST /emails", JSON, &body.to_string()).await
    }

    pub(super) async fn postmark_email(&mut self, changes: Value) -> Reply {
        let body = laid_over(json!({"From": "a@example.test", "To": "b@example.org", "TextBody": "x"}), changes);
        self.postmark("POST /email", JSON, &body.to_string()).await
    }

    pub(super) async fn count(&mut self) -> usize {
        self.get("/v1/messages?limit=100").await.json()["data"].as_array().unwrap().len()
    }
}

/// Returns `base` with the members of `changes` replaced.
pub(super) fn laid_over(mut base: Value, changes: Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        base[name] = value.clone();
    }
    base
}

impl Reply {
    /// Asserts an error in Resend's form and returns it.
    #[track_caller]
    pub(super) fn is_resend(&self, status: u16, name: &str, code: &str) -> Value {
        let answer = self.json();
        let found = (self.status, &answer["statusCode"], answer["name"].as_str(), answer["code"].as_str());
        assert_eq!(found, (status, &json!(status), Some(name), Some(code)), "{}", self.body);
        assert_eq!(answer.get("errors").is_some(), status == 422, "{}", self.body);
        answer
    }

    /// Asserts an error in Postmark's form and returns it.
    #[track_caller]
    pub(super) fn is_postmark(&self, status: u16, number: u16, code: &str) -> Value {
        let answer = self.json();
        let found = (self.status, &answer["ErrorCode"], answer["code"].as_str());
        assert_eq!(found, (status, &json!(number), Some(code)), "{}", self.body);
        assert!(answer["Message"].is_string());
        answer
    }
}

#[tokio::test]
async fn every_answer_under_a_compatible_prefix_has_the_clients_form() {
    let mut world = World::new().await;
    let big = format!("Content-Length: 30000000\r\n{JSON}");
    for (line, headers, body, status, name, number, code) in [
        ("GET /nowhere", "", "", 404, "not_found", 701, "not_found"),
        ("POST /", "", "", 404, "not_found", 701, "not_found"),
        ("PUT /email", JSON, "{}", 405, "method_not_allowed", 300, "method_not_allowed"),
        ("POST /email", "Content-Type: text/plain\r\n", "{}", 415, "validation_error", 409, "unsupported_media_type"),
        ("POST /email", JSON, "[]", 422, "validation_error", 402, "invalid_json"),
        ("POST /email", JSON, "{\"a\":1,\"a\":2}", 422, "validation_error", 402, "invalid_json"),
        ("POST /email?x=1", JSON, "{}", 422, "validation_error", 300, "validation_failed"),
    ] {
        world.postmark(line, headers, body).await.is_postmark(status, number, code);
        let line = line.replace("/email", "/emails");
        world.resend(&line, headers, body).await.is_resend(status, name, code);
    }
    let mut client = Client::open(world.address).await;
    let reply = client.ask("POST /v1/compat/resend/emails", &world.key, &big, "").await;
    reply.is_resend(413, "validation_error", "payload_too_large");
    assert_eq!(world.resend("DELETE /emails", "", "").await.header("allow"), "POST");
}

#[tokio::test]
async fn each_compatible_api_accepts_only_its_own_key_header() {
    let mut world = World::new().await;
    let (key, body) = (world.key.clone(), "{}");
    let ask = async |world: &mut World, path: &str, key: &str, headers: &str| {
        world.client.ask(&format!("POST /v1/compat/{path}"), key, &format!("{JSON}{headers}"), body).await
    };
    let none = ask(&mut world, "resend/emails", "", "").await;
    none.is_resend(401, "missing_api_key", "unauthenticated");
    assert_eq!(none.header("www-authenticate"), "Bearer");
    ask(&mut world, "resend/emails", "re_123", "").await.is_resend(401, "invalid_api_key", "unauthenticated");
    ask(&mut world, "resend/nowhere", "", "").await.is_resend(401, "missing_api_key", "unauthenticated");
    let token = format!("X-Postmark-Server-Token: {key}\r\n");
    ask(&mut world, "resend/emails", "", &token).await.is_resend(401, "missing_api_key", "unauthenticated");
    let none = ask(&mut world, "postmark/email", &key, "").await;
    assert!(
        none.is_postmark(401, 10, "unauthenticated")["Message"].as_str().unwrap().contains("X-Postmark-Server-Token")
    );
    ask(&mut world, "postmark/email", "", "X-Postmark-Server-Token: x\r\n").await.is_postmark(
        401,
        10,
        "unauthenticated",
    );
    ask(&mut world, "postmark/email", "", &token).await.is_postmark(422, 300, "validation_failed");
}

#[tokio::test]
async fn compatible_apis_enforce_scopes_and_streams() {
    let mut world = World::new().await;
    let all = world.key.clone();
    let id = world.email(json!({})).await.json()["id"].as_str().unwrap().to_owned();
    world.key = world.new_key(world.account, None, Scopes::of(&[Scope::Read])).await;
    world.email(json!({})).await.is_resend(403, "restricted_api_key", "scope_forbidden");
    world.postmark_email(json!({})).await.is_postmark(403, 10, "scope_forbidden");
    world.resend(&format!("POST /emails/{id}/cancel"), "", "").await.is_resend(
        403,
        "restricted_api_key",
        "scope_forbidden",
    );
    assert_eq!(world.resend(&format!("GET /emails/{id}"), "", "").await.status, 200);
    world.key = world.new_key(world.account, Some(Stream::Marketing), Scopes::of(&[Scope::Send])).await;
    world.email(json!({})).await.is_resend(403, "restricted_api_key", "stream_forbidden");
    world.resend(&format!("GET /emails/{id}"), "", "").await.is_resend(403, "restricted_api_key", "scope_forbidden");
    let (_, stranger) = world.stranger().await;
    world.key = stranger;
    world.resend(&format!("GET /emails/{id}"), "", "").await.is_resend(404, "not_found", "not_found");
    world.postmark(&format!("GET /messages/outbound/{id}/details"), "", "").await.is_postmark(404, 701, "not_found");
    world.key = all;
}

#[tokio::test]
async fn compatible_paths_answer_at_the_root_if_configured() {
    let mut world = World::new().await;
    let body = json!({"from": "a@example.test", "to": "b@example.org", "text": "x"}).to_string();
    let key = world.key.clone();
    let sent = world.client.ask("POST /emails", &key, JSON, &body).await;
    assert_eq!(sent.status, 200, "{}", sent.body);
    world.client.ask("PUT /emails", &key, JSON, &body).await.is_resend(405, "method_not_allowed", "method_not_allowed");
    let id = sent.json()["id"].as_str().unwrap().to_owned();
    let token = format!("X-Postmark-Server-Token: {key}\r\n");
    let details = format!("GET /messages/outbound/{id}/details");
    assert_eq!(world.client.ask(&details, "", &token, "").await.json()["MessageID"], id.as_str());
    let without = Router::new(routes().into_iter().chain(compat::routes(false))).unwrap();
    assert!(!without.knows(&hyper::Method::POST, "/emails") && !without.knows(&hyper::Method::POST, "/email"));
    assert!(without.knows(&hyper::Method::POST, "/v1/compat/resend/emails"));
}

#[tokio::test]
async fn a_key_used_at_one_path_is_refused_at_every_other() {
    let mut world = World::new().await;
    let with_key = |name: &str| format!("{JSON}Idempotency-Key: {name}\r\n");
    let ours = json!({"from": "a@example.test", "to": "b@example.org", "text": "x"}).to_string();
    let theirs = json!({"From": "a@example.test", "To": "b@example.org", "TextBody": "x"}).to_string();
    let first = world.resend("POST /emails", &with_key("1"), &ours).await;
    let again = world.resend("POST /emails", &with_key("1"), &ours).await;
    assert_eq!((again.status, &again.body, again.header("idempotent-replay")), (200, &first.body, "true"));
    assert_eq!(again.header("x-service-quota-remaining"), first.header("x-service-quota-remaining"));
    assert_eq!(world.count().await, 1);
    world
        .send_with(&with_key("1")[JSON.len()..], &serde_json::from_str(&ours).unwrap())
        .await
        .fails_with(409, "idempotency_mismatch");
    world.postmark("POST /email", &with_key("1"), &theirs).await.is_postmark(409, 300, "idempotency_mismatch");
    let list = format!("[{ours}]");
    let reply = world.resend("POST /emails/batch", &with_key("1"), &list).await;
    reply.is_resend(409, "invalid_idempotent_request", "idempotency_mismatch");
    let first = world.postmark("POST /email", &with_key("2"), &theirs).await;
    let again = world.postmark("POST /email", &with_key("2"), &theirs).await;
    assert_eq!((again.status, &again.body, again.header("idempotent-replay")), (200, &first.body, "true"));
    let other = laid_over(serde_json::from_str(&theirs).unwrap(), json!({"Subject": "y"})).to_string();
    world.postmark("POST /email", &with_key("2"), &other).await.is_postmark(409, 300, "idempotency_mismatch");
    let bad = world.resend("POST /emails", &with_key(""), &ours).await.is_resend(
        422,
        "validation_error",
        "validation_failed",
    );
    assert!(bad["errors"]["Idempotency-Key"].is_array());
    assert_eq!(world.count().await, 2);
}

#[tokio::test]
async fn compatible_apis_enforce_domains_suppression_quota_and_rate() {
    let mut world = World::with(QuotaLimits { per_hour: 2, per_day: 10 }, 600).await;
    let unknown =
        world.email(json!({"from": "a@unknown.test"})).await.is_resend(422, "validation_error", "domain_unknown");
    assert_eq!(unknown["errors"], json!({"from": ["must be at a domain of this account"]}));
    world.postmark_email(json!({"From": "a@unknown.test"})).await.is_postmark(422, 400, "domain_unknown");
    world.post("/v1/domains", json!({"name": "new.test", "stream": "transactional"})).await;
    world.email(json!({"from": "a@new.test"})).await.is_resend(422, "validation_error", "domain_unverified");
    world.postmark_email(json!({"From": "a@new.test"})).await.is_postmark(422, 401, "domain_unverified");
    world.post("/v1/suppressions", json!({"email": "gone@example.org"})).await;
    world.email(json!({"to": "gone@example.org"})).await.is_resend(422, "validation_error", "recipient_suppressed");
    let inactive = world.postmark_email(json!({"To": "Gone <Gone@example.org>"})).await.is_postmark(
        422,
        406,
        "recipient_suppressed",
    );
    let message = inactive["Message"].as_str().unwrap();
    assert!(message.contains("Found inactive addresses: Gone@example.org. Inactive recipients are"), "{message}");
    assert_eq!(inactive["errors"], json!({"To": ["is suppressed"]}));
    let sent = world.email(json!({})).await;
    assert_eq!((sent.status, sent.header("x-service-quota-remaining")), (200, "1"));
    assert_eq!(world.postmark_email(json!({})).await.header("x-service-quota-remaining"), "0");
    let over = world.email(json!({})).await;
    over.is_resend(429, "daily_quota_exceeded", "quota_exceeded");
    assert_eq!((over.header("x-service-quota-remaining"), over.header("retry-after").is_empty()), ("0", false));
    world.postmark_email(json!({})).await.is_postmark(429, 405, "quota_exceeded");
    let mut slow = World::with(QuotaLimits::default(), 1).await;
    assert_eq!(slow.email(json!({})).await.status, 200);
    slow.email(json!({})).await.is_resend(429, "rate_limit_exceeded", "rate_limited");
    slow.postmark_email(json!({})).await.is_postmark(429, 429, "rate_limited");
}
