//! Tests of suppressions: by request, by outcome, and import and export of whole lists.

use super::*;
use crate::domain::limits::SUPPRESSIONS_COUNT;
use crate::store::op::suppression_count::SetSuppressionCount;

const FIELDS: [&str; 8] = ["id", "email", "reason", "message_id", "smtp_code", "smtp_response", "note", "created_at"];

fn emails(page: &Value) -> Vec<String> {
    page["data"].as_array().unwrap().iter().map(|row| row["email"].as_str().unwrap().to_owned()).collect()
}

impl World {
    async fn suppress(&mut self, email: &str) -> Reply {
        self.post("/v1/suppressions", serde_json::json!({ "email": email })).await
    }

    async fn import(&mut self, kind: &str, query: &str, list: &str) -> Reply {
        let key = self.key.clone();
        let kind = format!("Content-Type: {kind}\r\n");
        let line = format!("POST /v1/suppressions/import{query}");
        let reply = self.client.ask(&line, &key, &kind, list).await;
        described::check(&line, &reply);
        reply
    }

    async fn export(&mut self) -> String {
        let reply = self.get("/v1/suppressions/export").await;
        assert_eq!((reply.status, reply.header("content-type")), (200, "text/csv; charset=utf-8"));
        reply.body
    }
}

#[tokio::test]
async fn wildcards_are_rejected_in_requests_and_lists() {
    let mut world = World::new().await;
    for pattern in ["*@evil.example", "info*@evil.example", "a@*.evil.example", "*.evil.example"] {
        let refused = world.suppress(pattern).await;
        let faults = serde_json::json!({ "email": ["Wildcards are not supported; suppress each address"] });
        assert_eq!((refused.status, &refused.json()["errors"]), (422, &faults), "{pattern}");
        let refused = world.import("text/csv", "", &format!("email\n{pattern}\n")).await;
        assert!(refused.status == 422 && refused.body.contains("Wildcards are not supported"), "{}", refused.body);
    }
    assert_eq!(world.suppress("a*b@evil.example").await.status, 201, "a star may be part of a name");
}

#[tokio::test]
async fn an_account_at_its_limit_gets_a_conflict_for_new_addresses_only() {
    let mut world = World::new().await;
    assert_eq!(world.suppress("a@example.net").await.status, 201);
    let full = SetSuppressionCount { account: world.account, suppressions: SUPPRESSIONS_COUNT };
    world.engine.store.commit(full).await.unwrap();
    let list = "email\na@example.net\nb@example.net\n";
    for refused in [
        world.suppress("b@example.net").await,
        world.import("text/csv", "", list).await,
        world.import("text/csv", "?dry_run=true", list).await,
    ] {
        assert!(refused.body.contains("at most 1000000 suppressions"), "{}", refused.body);
        refused.fails_with(409, "conflict");
    }
    assert_eq!(world.suppress("A@example.net").await.status, 200);
    assert_eq!(world.import("text/csv", "", "email\na@example.net\n").await.status, 200);
}

#[tokio::test]
async fn an_address_is_suppressed_and_removed_by_id_or_address() {
    let mut world = World::new().await;
    let body = serde_json::json!({ "email": "Ann+x@Example.net", "note": "asked by phone" });
    let made = world.post("/v1/suppressions", body).await;
    assert_eq!((made.status, members(&made.body)), (201, FIELDS.map(str::to_owned).to_vec()), "{}", made.body);
    let row = made.json();
    assert_eq!((&row["email"], &row["reason"]), (&"Ann+x@Example.net".into(), &"manual".into()));
    assert_eq!((&row["note"], &row["created_at"]), (&"asked by phone".into(), &"2023-11-14T22:13:20.000+00:00".into()));
    assert_eq!(made.header("location"), format!("/v1/suppressions/{}", row["id"].as_str().unwrap()));
    let again = world.suppress("ann+X@EXAMPLE.net").await;
    assert_eq!((again.status, again.body.as_str()), (200, made.body.as_str()));
    world.send(letter("ann+x@example.net")).await.fails_with(422, "recipient_suppressed");
    for path in
        [made.header("location"), "/v1/suppressions/ANN+x@example.net", "/v1/suppressions/ann%2Bx%40example.net"]
    {
        assert_eq!(world.get(path).await.body, made.body, "{path}");
    }
    let (_, stranger) = world.stranger().await;
    world.client.get(made.header("location"), &stranger).await.fails_with(404, "not_found");
    assert_eq!(world.delete("/v1/suppressions/ann+x@example.net").await.status, 204);
    world.delete("/v1/suppressions/ann+x@example.net").await.fails_with(404, "not_found");
    world.get(made.header("location")).await.fails_with(404, "not_found");
    world.sent_to("ann+x@example.net").await;
    let made = world.suppress("ann@example.net").await;
    assert_eq!(world.delete(made.header("location")).await.status, 204);
    for path in ["/v1/suppressions/sup_x", "/v1/suppressions/x"] {
        world.get(path).await.fails_with(404, "not_found");
    }
    let refused = world.post("/v1/suppressions", serde_json::json!({ "emial": "x", "note": "a\nb" })).await;
    refused.fails_with(422, "validation_failed");
    assert_eq!(refused.faults(), ["email", "emial", "note"]);
}

#[tokio::test]
async fn queued_messages_end_when_their_address_is_suppressed() {
    let mut world = World::new().await;
    let by_hand = [world.sent_to("ann@example.net").await, world.sent_to("Ann@example.net").await];
    let (by_import, other) = (world.sent_to("ben@example.net").await, world.sent_to("cid@example.net").await);
    let on_the_wire = world.sent_to("ann@example.net").await;
    let lease = world.engine.leases.take(on_the_wire).unwrap();
    assert_eq!(world.suppress("ann@example.net").await.status, 201);
    assert_eq!(world.import("text/csv", "", "email\nben@example.net\n").await.status, 200);
    for (message, status) in
        [(by_hand[0], "suppressed"), (by_hand[1], "suppressed"), (by_import, "suppressed"), (other, "queued")]
    {
        assert_eq!(world.get(&format!("/v1/messages/{message}")).await.json()["status"], status);
    }
    assert_eq!(world.get(&format!("/v1/messages/{on_the_wire}")).await.json()["status"], "queued");
    drop(lease);
    world.settle(on_the_wire, TransferEnd::Delivered, AttemptFacts::default()).await;
    assert_eq!(world.get(&format!("/v1/messages/{on_the_wire}")).await.json()["status"], "delivered");
}

#[tokio::test]
async fn suppressions_are_listed_newest_first_and_filtered() {
    let mut world = World::new().await;
    let bounced = world.sent_to("gone@example.net").await;
    let facts = AttemptFacts {
        smtp_code: Some(550),
        smtp_response: Some("550 5.1.1 no such user".to_owned()),
        ..AttemptFacts::default()
    };
    world.settle(bounced, hard_bounce(), facts).await;
    for name in ["a", "b", "c"] {
        world.suppress(&format!("{name}@example.net")).await;
    }
    let (_, stranger) = world.stranger().await;
    assert_eq!(emails(&world.client.get("/v1/suppressions", &stranger).await.json()).len(), 0);
    let first = world.get("/v1/suppressions?limit=3").await.json();
    assert_eq!(emails(&first), ["c@example.net", "b@example.net", "a@example.net"]);
    world.suppress("later@example.net").await;
    world.delete("/v1/suppressions/a@example.net").await;
    let path = format!("/v1/suppressions?cursor={}", first["next_cursor"].as_str().unwrap());
    let rest = world.get(&path).await.json();
    assert_eq!((emails(&rest), &rest["next_cursor"]), (vec!["gone@example.net".to_owned()], &Value::Null));
    let row = &rest["data"][0];
    assert_eq!((&row["reason"], &row["message_id"]), (&"bounce".into(), &bounced.to_string().into()));
    assert_eq!((&row["smtp_code"], &row["smtp_response"]), (&550.into(), &"550 5.1.1 no such user".into()));
    for (query, expected) in [
        ("email=GONE@example.net", &["gone@example.net"][..]),
        ("email=gone@example.net&reason=manual", &[]),
        ("email=a@example.net", &[]),
        ("reason=bounce", &["gone@example.net"]),
        ("reason=manual", &["later@example.net", "c@example.net", "b@example.net"]),
        ("reason=complaint", &[]),
    ] {
        assert_eq!(emails(&world.get(&format!("/v1/suppressions?{query}")).await.json()), expected, "{query}");
    }
    let refused = world.get("/v1/suppressions?email=x&reason=whim&q=1").await;
    assert_eq!(refused.faults(), ["email", "q", "reason"]);
}

#[tokio::test]
async fn a_long_export_is_streamed_completely() {
    let mut world = World::new().await;
    let addresses: Vec<_> = (0..750).map(|number| format!("u{number:04}@example.net")).collect();
    world.import("text/csv", "", &format!("email\n{}\n", addresses.join("\n"))).await;
    let reply = world.get("/v1/suppressions/export").await;
    assert_eq!((reply.header("transfer-encoding"), reply.header("content-length")), ("chunked", ""));
    let exported: Vec<_> = reply.body.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(exported, addresses);
}

#[tokio::test]
async fn an_export_can_be_imported_unchanged() {
    let mut world = World::new().await;
    let body = serde_json::json!({ "email": "\"a,b\"@example.net", "note": "said \"never, ever\"" });
    assert_eq!(world.post("/v1/suppressions", body).await.status, 201);
    let list = "note,email,reason,created_at\r\n,Old@Example.net,complaint,2020-01-01T00:00:00+02:00\r\n";
    assert_eq!(
        world.import("text/csv; charset=utf-8", "", list).await.body,
        r#"{"imported":1,"skipped":0,"errors":[]}"#
    );
    let exported = world.export().await;
    let expected = "email,reason,created_at,note\r\n\
        \"\"\"a,b\"\"@example.net\",manual,2023-11-14T22:13:20.000+00:00,\"said \"\"never, ever\"\"\"\r\n\
        Old@Example.net,complaint,2019-12-31T22:00:00.000+00:00,\r\n";
    assert_eq!(exported, expected);
    assert_eq!(world.import("text/csv", "", &exported).await.body, r#"{"imported":0,"skipped":2,"errors":[]}"#);
    (world.account, world.key) = world.stranger().await;
    assert_eq!(world.export().await, "email,reason,created_at,note\r\n");
    let dry = world.import("text/csv", "?dry_run=true", &exported).await;
    assert_eq!(dry.body, r#"{"imported":2,"skipped":0,"errors":[]}"#);
    assert_eq!(world.export().await, "email,reason,created_at,note\r\n", "nothing was written");
    assert_eq!(world.import("text/csv", "?dry_run=false", &exported).await.body, dry.body);
    assert_eq!(world.export().await, exported);
}

#[tokio::test]
async fn json_lines_are_imported_and_duplicates_skipped() {
    let mut world = World::new().await;
    world.suppress("a@example.net").await;
    let list = "{\"email\":\"a@example.net\"}\n\n{\"email\":\"b@example.net\",\"note\":\"x\"}\r\n{\"email\":\"B@example.net\"}";
    for query in ["?dry_run=true", ""] {
        let done = world.import("application/x-ndjson", query, list).await;
        assert_eq!((done.status, done.body.as_str()), (200, r#"{"imported":1,"skipped":2,"errors":[]}"#));
    }
    let row = world.get("/v1/suppressions/b@example.net").await.json();
    assert_eq!((&row["reason"], &row["note"]), (&"import".into(), &"x".into()));
    world.import("application/json", "", "{}").await.fails_with(415, "unsupported_media_type");
    world.import("text/csv", "?dry_run=1", "email\n").await.fails_with(422, "validation_failed");
}

#[tokio::test]
async fn every_invalid_line_is_reported_and_nothing_is_imported() {
    let mut world = World::new().await;
    let list = "email,reason,created_at,note\n\
        good@example.net,,,\n\
        bad,whim,2099-01-01T00:00:00Z,\n\
        a@example.net,manual\n\
        \"b@example.net,,,\n";
    let refused = world.import("text/csv", "", list).await;
    refused.fails_with(422, "validation_failed");
    assert_eq!(members(&refused.body), ["message", "code", "errors", "lines"]);
    assert_eq!(refused.faults(), ["lines.3.created_at", "lines.3.email", "lines.3.reason", "lines.4", "lines.5"]);
    let lines = refused.json()["lines"].clone();
    let message = "created_at: must not be in the future; email: must be an email address, such as name@example.com; \
        reason: must be one of bounce, complaint, unsubscribe, manual, import";
    assert_eq!(lines[0], serde_json::json!({ "line": 3, "message": message }));
    assert_eq!(lines[1]["message"], "must have 4 fields, as the first line has, not 2");
    assert_eq!((&lines[2]["line"], lines.as_array().unwrap().len()), (&5.into(), 3));

    let lines = "{\"email\":\"good@example.net\"}\n{\"emial\":\"x\"}\n[]\n";
    let refused = world.import("application/x-ndjson", "?dry_run=true", lines).await;
    assert_eq!(refused.faults(), ["lines.2.email", "lines.2.emial", "lines.3"]);
    for head in ["", "address\n", "reason,note\n", "email,email\n", "email,\n"] {
        let refused = world.import("text/csv", "", head).await;
        refused.fails_with(422, "validation_failed");
        assert_eq!(refused.json()["lines"][0]["line"], 1, "{head}");
    }
    assert_eq!(emails(&world.get("/v1/suppressions").await.json()).len(), 0);
}

#[tokio::test]
async fn a_nearly_full_disk_refuses_growing_changes_and_allows_removals() {
    use serde_json::json;

    let settings = Settings { min_free_bytes: u64::MAX, ..Settings::for_tests() };
    let mut world = World::set(settings, HttpLimits::default(), Streams::default()).await;
    let name = "more.example.test".parse().unwrap();
    let (domain, _) = world.engine.create_domain(world.account, name, Stream::Transactional).await.unwrap();
    for (path, body) in [
        ("/v1/messages", letter("a@example.net")),
        ("/v1/suppressions", json!({"email": "a@example.net"})),
        ("/v1/domains", json!({"name": "other.example.test", "stream": "transactional"})),
        ("/v1/keys", json!({"name": "more", "scopes": ["send"]})),
    ] {
        world.post(path, body).await.fails_with(503, "storage_full");
    }
    let list = "email\na@example.net\n";
    let refused = world.import("text/csv", "", list).await;
    refused.fails_with(503, "storage_full");
    assert_eq!(world.get("/v1/suppressions").await.json()["data"], json!([]));
    assert_eq!(world.delete(&format!("/v1/domains/{domain}")).await.status, 204);
}
