//! Tests of a message's record: its members, its content, and the rest after the content has expired.

use super::*;

const RECORD: [&str; 33] = [
    "id",
    "message_id_header",
    "status",
    "stream",
    "from",
    "to",
    "subject",
    "created_at",
    "from_name",
    "headers",
    "metadata",
    "unsubscribe_url",
    "size_bytes",
    "status_at",
    "attempts",
    "next_attempt_at",
    "waiting",
    "delivered_at",
    "relay",
    "mx_host",
    "smtp_code",
    "smtp_enhanced_code",
    "smtp_response",
    "tls",
    "submission",
    "expires_at",
    "text",
    "html",
    "raw",
    "attachments",
    "content_expires_at",
    "content_deleted_at",
    "events",
];
const CONTENT: [&str; 5] = ["headers", "text", "html", "raw", "attachments"];

fn rich() -> Value {
    serde_json::json!({
        "from": "shop@example.test", "from_name": "Shop", "to": "ann@example.net", "subject": "Grüße",
        "text": "one\ntwo", "html": "<p>one</p>", "headers": { "X-Tag": "blue" }, "metadata": { "order": "7" },
        "unsubscribe_url": "https://example.test/u",
        "attachments": [{ "filename": "a.txt", "content": "aGVsbG8=", "content_type": "text/plain" }],
    })
}

#[tokio::test]
async fn a_record_has_exactly_the_contracts_members() {
    let mut world = World::new().await;
    let sent = world.send(rich()).await;
    let path = sent.header("location").to_owned();
    let reply = world.get(&path).await;
    assert_eq!(reply.status, 200);
    assert_eq!(members(&reply.body), RECORD);
    let body = reply.json();
    for (name, value) in sent.json().as_object().unwrap() {
        assert_eq!(&body[name], value);
    }
    assert_eq!(body["text"], "one\ntwo");
    assert_eq!(body["html"], "<p>one</p>");
    assert_eq!(body["raw"], Value::Null);
    assert_eq!(body["headers"], serde_json::json!({ "X-Tag": "blue" }));
    assert_eq!(body["metadata"], serde_json::json!({ "order": "7" }));
    let file = serde_json::json!([{ "filename": "a.txt", "content_type": "text/plain", "size": 5 }]);
    assert_eq!(body["attachments"], file);
    assert_eq!(body["content_expires_at"], "2023-12-14T22:13:20.000+00:00");
    assert_eq!(body["next_attempt_at"], "2023-11-14T22:13:20.000+00:00");
    assert_eq!((&body["events"][0]["type"], body["events"].as_array().unwrap().len()), (&"queued".into(), 1));

    let raw = world.get(&format!("{path}/raw")).await;
    assert_eq!((raw.status, raw.header("content-type")), (200, "message/rfc822"));
    assert!(raw.body.starts_with("DKIM-Signature:"), "{}", raw.body);
    assert_eq!(body["size_bytes"], raw.body.len());
    let head = world.ask_as(&world.key.clone(), &format!("HEAD {path}"), "", &Value::Null).await;
    assert_eq!((head.status, head.header("content-length")), (200, reply.header("content-length")));
}

#[tokio::test]
async fn content_is_null_after_its_deadline_and_the_rest_stays() {
    let mut world = World::new().await;
    let path = world.send(rich()).await.header("location").to_owned();
    world.advance(30 * DAY);
    let reply = world.get(&path).await;
    assert_eq!(members(&reply.body), RECORD);
    let body = reply.json();
    assert!(CONTENT.iter().all(|name| body[*name].is_null()), "{body}");
    assert_eq!((&body["subject"], &body["from_name"]), (&"Grüße".into(), &"Shop".into()));
    assert_eq!(body["events"].as_array().unwrap().len(), 1);
    assert_eq!(body["content_deleted_at"], Value::Null);
    world.get(&format!("{path}/raw")).await.fails_with(410, "content_gone");
    world.advance(Duration::from_secs(3600));
    assert_eq!(world.get(&path).await.json()["content_deleted_at"], "2023-12-14T23:00:00.000+00:00");
}

#[tokio::test]
async fn a_raw_message_is_shown_as_signed() {
    let mut world = World::new().await;
    let raw = "From: a@example.test\nTo: b@example.net\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\nX-Mine: yes\n\nHello\n";
    let message = serde_json::json!({ "from": "a@example.test", "to": "b@example.net", "raw": raw });
    let path = world.send(message).await.header("location").to_owned();
    let body = world.get(&path).await.json();
    assert_eq!((&body["subject"], &body["text"], &body["html"]), (&"Grüße".into(), &"Hello".into(), &Value::Null));
    assert_eq!(body["headers"], serde_json::json!({ "X-Mine": "yes" }));
    assert_eq!(body["raw"], world.get(&format!("{path}/raw")).await.body);
}

#[tokio::test]
async fn an_outcome_is_recorded_and_the_final_wait_is_not_an_attempt() {
    let mut world = World::new().await;
    let id = world.sent_to("ann@example.net").await;
    let facts = AttemptFacts {
        smtp_code: Some(550),
        smtp_response: Some("550 5.1.1 no such user".to_owned()),
        smtp_enhanced_code: Some("5.1.1".to_owned()),
        mx_host: Some("mx.example.net".to_owned()),
        relay: Some("direct".to_owned()),
        ..AttemptFacts::default()
    };
    let far = Timestamp::MAX;
    let deferred = TransferEnd::Postponed { until: far };
    world.settle(id, deferred, AttemptFacts::default()).await;
    assert_eq!(world.get(&format!("/v1/messages/{id}")).await.json()["next_attempt_at"], Value::Null);
    world.settle(id, hard_bounce(), facts).await;
    let body = world.get(&format!("/v1/messages/{id}")).await.json();
    assert_eq!((&body["status"], &body["attempts"], &body["smtp_code"]), (&"bounced".into(), &1.into(), &550.into()));
    assert_eq!((&body["relay"], &body["mx_host"]), (&"direct".into(), &"mx.example.net".into()));
    let kinds: Vec<_> = body["events"].as_array().unwrap().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(kinds, ["queued", "bounced"]);
}

#[tokio::test]
async fn malformed_unknown_and_foreign_identifiers_give_the_same_404() {
    let mut world = World::new().await;
    let id = world.sent_to("ann@example.net").await;
    let (_, stranger) = world.stranger().await;
    let mut bodies = Vec::new();
    for (key, id) in [
        (stranger, id.to_string()),
        (world.key.clone(), MessageId::default().to_string()),
        (world.key.clone(), "nonsense".to_owned()),
        (world.key.clone(), id.to_string().to_lowercase()),
    ] {
        let reply = world.client.get(&format!("/v1/messages/{id}"), &key).await;
        reply.fails_with(404, "not_found");
        bodies.push(reply.body);
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1);
    for path in ["keys", "domains", "webhooks", "webhook-deliveries", "messages"] {
        world.get(&format!("/v1/{path}/x")).await.fails_with(404, "not_found");
    }
}

#[tokio::test]
async fn a_list_has_records_without_content_and_events() {
    let mut world = World::new().await;
    world.send(rich()).await;
    let reply = world.get("/v1/messages").await;
    let expected: Vec<_> = RECORD.into_iter().filter(|name| !CONTENT.contains(name) && *name != "events").collect();
    assert_eq!(members(&first_of_page(&reply.body)), expected);
}

#[tokio::test]
async fn a_waiting_message_is_canceled_once_and_one_in_transit_is_not() {
    let mut world = World::new().await;
    let id = world.sent_to("ann@example.net").await;
    let (path, cancel) = (format!("/v1/messages/{id}"), format!("/v1/messages/{id}/cancel"));
    let lease = world.engine.leases.take(id).unwrap();
    world.post(&cancel, Value::Null).await.fails_with(409, "conflict");
    assert_eq!(world.get(&path).await.json()["status"], "queued");
    drop(lease);
    let reply = world.post(&cancel, Value::Null).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(members(&reply.body), RECORD);
    let body = reply.json();
    assert_eq!((&body["status"], &body["next_attempt_at"]), (&"canceled".into(), &Value::Null));
    assert_eq!((&body["events"][1]["type"], &body["text"]), (&"canceled".into(), &"Thank you.".into()));
    assert_eq!(world.get(&path).await.json(), body);
    world.post(&cancel, Value::Null).await.fails_with(409, "conflict");
    let (_, stranger) = world.stranger().await;
    world.ask_as(&stranger, &format!("POST {cancel}"), "", &Value::Null).await.fails_with(404, "not_found");
}
