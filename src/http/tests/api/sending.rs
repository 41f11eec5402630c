//! Tests of POST /v1/messages: accepted, replayed and refused requests.

use super::*;

#[tokio::test]
async fn a_message_is_accepted_with_the_specified_fields_and_headers() {
    let mut world = World::new().await;
    let reply = world.send(letter("Ann@example.net")).await;
    assert_eq!(reply.status, 202, "{}", reply.body);
    let fields = ["id", "message_id_header", "status", "stream", "from", "to", "subject", "created_at"];
    assert_eq!(members(&reply.body), fields);
    let body = reply.json();
    let id = body["id"].as_str().unwrap();
    assert_eq!(body["message_id_header"], format!("<{id}@example.test>"));
    assert_eq!(
        (&body["status"], &body["stream"], &body["to"]),
        (&"queued".into(), &"transactional".into(), &"Ann@example.net".into())
    );
    assert_eq!(body["created_at"], "2023-11-14T22:13:20.000+00:00");
    assert_eq!(reply.header("location"), format!("/v1/messages/{id}"));
    let quota = ["window", "limit", "remaining", "reset"].map(|name| reply.header(&format!("x-service-quota-{name}")));
    assert_eq!(quota, ["hour", "10000", "9999", "1700002800"]);
    assert_eq!(reply.header("ratelimit"), "\"key\";r=599;t=60");
    assert_eq!(reply.header("idempotent-replay"), "");
    let bare = world.send(serde_json::json!({ "from": "a@example.test", "to": "b@example.net", "html": "<p>" })).await;
    assert_eq!((bare.status, &bare.json()["subject"]), (202, &Value::Null));
}

#[tokio::test]
async fn a_repeated_key_replays_the_answer_and_rejects_another_body() {
    let mut world = World::new().await;
    let key = "Idempotency-Key: order 1\r\n";
    let first = world.send_with(key, &letter("a@example.net")).await;
    let again = world.send_with(key, &letter("a@example.net")).await;
    assert_eq!((again.status, &again.body), (202, &first.body));
    assert_eq!(again.header("idempotent-replay"), "true");
    assert_eq!(again.header("location"), first.header("location"));
    assert_eq!(again.header("x-service-quota-remaining"), "9999");
    world.send_with(key, &letter("b@example.net")).await.fails_with(409, "idempotency_mismatch");
    assert_eq!(world.get("/v1/messages").await.json()["data"].as_array().unwrap().len(), 1);

    // A refused first request does not bind the key.
    let other = "Idempotency-Key: order 2\r\n";
    assert_eq!(world.send_with(other, &serde_json::json!({ "to": "a@example.net" })).await.status, 422);
    assert_eq!(world.send_with(other, &letter("c@example.net")).await.status, 202);
    world.advance(DAY);
    let later = world.send_with(key, &letter("b@example.net")).await;
    assert_eq!((later.status, later.header("idempotent-replay")), (202, ""));
}

#[tokio::test]
async fn errors_of_the_key_and_of_every_field_are_reported_together() {
    let mut world = World::new().await;
    let long = format!("Idempotency-Key: {}\r\n", "x".repeat(256));
    for header in [long.as_str(), "Idempotency-Key: a\r\nIdempotency-Key: b\r\n", "Idempotency-Key:\r\n"] {
        let message = serde_json::json!({ "from": "x", "headers": { "Bcc": "x" }, "unsubscribeurl": "y" });
        let reply = world.send_with(header, &message).await;
        reply.fails_with(422, "validation_failed");
        assert_eq!(reply.faults(), ["Idempotency-Key", "from", "headers.Bcc", "text", "to", "unsubscribeurl"]);
        assert!(reply.json()["message"].as_str().unwrap().contains("unsubscribe_url"));
    }
    world.send_with("Idempotency-Key: a\r\n", &serde_json::json!([1])).await.fails_with(422, "invalid_json");
}

#[tokio::test]
async fn the_accounts_checks_run_in_the_contracts_order() {
    let mut world = World::with(QuotaLimits { per_hour: 1, per_day: 100 }, 600).await;
    let taken = world.sent_to("gone@example.net").await;
    world.settle(taken, hard_bounce(), AttemptFacts::default()).await;
    let limited = world.new_key(world.account, Some(Stream::Transactional), Scopes::ALL).await;
    let name: DomainName = "pending.test".parse().unwrap();
    world.engine.create_domain(world.account, name, Stream::Marketing).await.unwrap();

    // Each request fails every later check too: the recipient is suppressed and the hour's quota used up.
    let message = |from: &str, url: Option<&str>| {
        let mut message = letter("gone@example.net");
        message["from"] = from.into();
        message["unsubscribe_url"] = url.into();
        message
    };
    let url = Some("https://example.test/u");
    let unknown = world.ask_as(&limited, "POST /v1/messages", "", &message("a@sub.example.test", None)).await;
    unknown.fails_with(422, "domain_unknown");
    assert_eq!(unknown.faults(), ["from"]);
    let stream = world.ask_as(&limited, "POST /v1/messages", "", &message("a@pending.test", None)).await;
    stream.fails_with(403, "stream_forbidden");
    let missing = world.send(message("a@pending.test", None)).await;
    missing.fails_with(422, "validation_failed");
    assert_eq!(missing.faults(), ["unsubscribe_url"]);
    let unverified = world.send(message("a@pending.test", url)).await;
    unverified.fails_with(422, "domain_unverified");
    let suppressed = world.send(message("a@example.test", None)).await;
    suppressed.fails_with(422, "recipient_suppressed");
    assert_eq!(suppressed.faults(), ["to"]);
    assert!(suppressed.json()["message"].as_str().unwrap().contains("(bounce since 20"));
    let spent = world.send(letter("a@example.net")).await;
    spent.fails_with(429, "quota_exceeded");
    assert_eq!(spent.header("retry-after"), "2800");
    assert_eq!((spent.header("x-service-quota-window"), spent.header("x-service-quota-remaining")), ("hour", "0"));
    world.advance(Duration::from_secs(2800));
    assert_eq!(world.send(letter("a@example.net")).await.status, 202);
}

#[tokio::test]
async fn scope_rate_and_type_are_checked_before_the_body() {
    let mut world = World::with(QuotaLimits::default(), 2).await;
    let reader = world.new_key(world.account, None, Scopes::parse("scopes", &["read"]).unwrap()).await;
    let nothing = serde_json::json!({});
    world.ask_as(&reader, "POST /v1/messages", "", &nothing).await.fails_with(403, "scope_forbidden");
    world.send_with("Content-Type: text/plain\r\n", &nothing).await.fails_with(415, "unsupported_media_type");
    world.send(nothing.clone()).await.fails_with(422, "validation_failed");
    let limited = world.send(nothing).await;
    limited.fails_with(429, "rate_limited");
    assert_eq!(limited.header("retry-after"), "60");
    let unknown = format!("pr_live_{}", "a".repeat(43));
    world.ask_as(&unknown, "POST /v1/messages", "", &Value::Null).await.fails_with(401, "unauthenticated");
}

#[tokio::test]
async fn an_invalid_message_is_reported_before_its_domain_is_checked() {
    let mut world = World::new().await;
    let raw = serde_json::json!({ "from": "a@nowhere.test", "to": "b@example.net", "raw": "no header\n\nx" });
    let reply = world.send(raw).await;
    reply.fails_with(422, "validation_failed");
    assert_eq!(reply.faults(), ["raw"]);
}

#[tokio::test]
async fn errors_of_raw_are_reported_with_all_others() {
    let mut world = World::new().await;
    let raw = "From: a@news.example.test\r\nno colon\r\n\r\nx";
    let refused = world.send(serde_json::json!({ "from": "a@example.com", "to": "b", "raw": raw })).await;
    refused.fails_with(422, "validation_failed");
    assert_eq!(refused.faults(), ["from", "raw", "to"]);
    let beside = serde_json::json!({ "from": "a@", "to": "b@example.net", "subject": "s", "raw": raw });
    let refused = world.send(beside).await;
    assert_eq!(refused.faults(), ["from", "raw"]);
    assert_eq!(refused.json()["errors"]["raw"].as_array().unwrap().len(), 2);
}
