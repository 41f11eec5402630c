//! Tests of Resend's emails: accepted members, rejected members, and the view of a message (contract 12.3).

use serde_json::json;

use super::compat_routes::JSON;
use super::*;

impl World {
    /// Returns the record of the email just sent.
    async fn record(&mut self, sent: &Reply) -> Value {
        assert_eq!(sent.status, 200, "{}", sent.body);
        assert_eq!(members(&sent.body), ["id"]);
        let id = sent.json()["id"].as_str().unwrap().to_owned();
        self.get(&format!("/v1/messages/{id}")).await.json()
    }

    async fn raw(&mut self, sent: &Reply) -> String {
        let id = sent.json()["id"].as_str().unwrap().to_owned();
        self.get(&format!("/v1/messages/{id}/raw")).await.body
    }
}

#[tokio::test]
async fn every_field_of_an_email_is_accepted() {
    let mut world = World::new().await;
    let sent = world
        .email(json!({
            "from": "Acme, Inc. <shop@example.test>", "to": ["=?utf-8?q?J=C3=B6rg?= <joerg@example.org>"],
            "subject": "Hi",
            "html": "<p>x</p>", "reply_to": ["help@example.test", "Ann <ann@example.test>"],
            "headers": {"X-Order": "7"},
            "tags": [{"name": "category", "value": "order"}, {"name": "empty", "value": ""}],
            "attachments": [
                {"filename": "a.txt", "content": "aGVs\nbG8=", "content_type": "text/plain"},
                {"filename": "b.bin", "content": [0, 255, 7], "inline_content_id": "logo"},
                {"filename": "empty.txt", "content": ""},
            ],
        }))
        .await;
    let record = world.record(&sent).await;
    assert_eq!((&record["from"], &record["from_name"]), (&json!("shop@example.test"), &json!("Acme, Inc.")));
    assert_eq!(
        (&record["to"], &record["metadata"]),
        (&json!("joerg@example.org"), &json!({"category": "order", "empty": ""}))
    );
    let headers = json!({"X-Order": "7", "Reply-To": "help@example.test, \"Ann\" <ann@example.test>"});
    assert_eq!(record["headers"], headers);
    let sizes: Vec<_> = record["attachments"].as_array().unwrap().iter().map(|file| file["size"].clone()).collect();
    assert_eq!(sizes, [5, 3, 0]);
    let raw = world.raw(&sent).await;
    assert!(raw.contains("\r\nTo: =?UTF-8?B?SsO2cmc=?= <joerg@example.org>\r\n"), "{raw}");
    assert!(raw.contains("\r\nFrom: \"Acme, Inc.\" <shop@example.test>\r\n") && raw.contains("Content-ID: <logo>"));
}

#[tokio::test]
async fn empty_values_count_as_absent() {
    let mut world = World::new().await;
    let sent = world
        .email(json!({"subject": "", "html": "", "headers": {}, "cc": [], "bcc": null, "reply_to": "", "tags": [],
            "attachments": [], "scheduled_at": null, "template": {}, "whatever": null}))
        .await;
    let record = world.record(&sent).await;
    assert_eq!((&record["subject"], &record["html"]), (&json!(null), &json!(null)));
}

#[tokio::test]
async fn each_unsupported_field_is_named() {
    let mut world = World::new().await;
    for (changes, field, expected) in [
        (json!({"to": ["a@example.org", "b@example.org"]}), "to", "one request per recipient"),
        (json!({"to": "a@example.org, b@example.org"}), "to", "one request per recipient"),
        (json!({"cc": "a@example.org"}), "cc", "one request per recipient"),
        (json!({"bcc": ["a@example.org"]}), "bcc", "one request per recipient"),
        (json!({"scheduled_at": "in 1 hour"}), "scheduled_at", "scheduling"),
        (json!({"template": {"id": "x"}}), "template", "templates"),
        (json!({"topic_id": "x"}), "topic_id", "topics"),
        (json!({"attachments": [{"path": "https://x.test/a.pdf"}]}), "attachments.0.path", "by URL"),
        (json!({"attachments": [{"filename": "a", "content": [256]}]}), "attachments.0.content", "list of bytes"),
        (json!({"attachments": [{"content": "eA=="}]}), "attachments.0.filename", "is required"),
        (
            json!({"attachments": [{"filename": "a", "content": "eA==", "inline_content_id": "a b"}]}),
            "attachments.0.inline_content_id",
            "printable",
        ),
        (json!({"tags": [{"name": "a", "value": "b"}, {"name": "a", "value": "c"}]}), "tags.1", "twice"),
        (json!({"tags": [{"name": "a", "value": 1}]}), "tags.0.value", "string"),
        (json!({"tags": [{"name": "x".repeat(41), "value": "b"}]}), "tags.0", "40 characters"),
        (json!({"headers": {"Message-ID": "<x@y>"}}), "headers.Message-ID", "written by the service"),
        (json!({"headers": {"Reply-To": "a@b.cc"}, "reply_to": "d@e.ff"}), "reply_to", "header too"),
        (json!({"reply_to": "nobody"}), "reply_to", "email address"),
        (json!({"to": "nobody"}), "to", "email address"),
        (json!({"to": 7}), "to", "string"),
        (json!({"from": "Acme <nobody>"}), "from", "email address"),
        (json!({"html": 7, "text": null}), "html", "string"),
        (json!({"unsubscribeUrl": "https://x.test/"}), "unsubscribeUrl", "unknown field"),
    ] {
        let answer = world.email(changes.clone()).await.is_resend(
            422,
            if expected == "is required" { "missing_required_field" } else { "validation_error" },
            "validation_failed",
        );
        let fields: Vec<_> = answer["errors"].as_object().unwrap().keys().collect();
        assert_eq!(fields, [field], "{changes}: {answer}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{field}: ")) && message.contains(expected), "{changes}: {message}");
    }
    let nothing =
        world.resend("POST /emails", JSON, "{}").await.is_resend(422, "missing_required_field", "validation_failed");
    let fields: Vec<_> = nothing["errors"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["from", "text", "to"]);
    let hint = world.email(json!({"subjet": "x"})).await.json()["message"].as_str().unwrap().to_owned();
    assert!(hint.contains("did you mean subject?"), "{hint}");
    assert_eq!(world.count().await, 0);
}

#[tokio::test]
async fn a_list_unsubscribe_url_becomes_the_unsubscribe_url() {
    let mut world = World::new().await;
    let marketing = json!({"from": "a@news.example.test"});
    let answer = world.email(marketing.clone()).await.is_resend(422, "missing_required_field", "validation_failed");
    assert!(answer["errors"]["headers.List-Unsubscribe"].is_array(), "{answer}");
    let given = "<mailto:u@example.test>, <https://example.test/u?a=1>";
    let with = |headers: Value| super::compat_routes::laid_over(marketing.clone(), json!({"headers": headers}));
    let sent = world
        .email(with(json!({"list-unsubscribe": given, "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"})))
        .await;
    assert_eq!(world.record(&sent).await["unsubscribe_url"], "https://example.test/u?a=1");
    let raw = world.raw(&sent).await;
    assert!(raw.contains(&format!("\r\nList-Unsubscribe: {given}\r\n")), "{raw}");
    assert_eq!(raw.matches("List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n").count(), 1);
    let plain = world.email(with(json!({"List-Unsubscribe": "<http://example.test/u>"}))).await;
    assert!(!world.raw(&plain).await.contains("List-Unsubscribe-Post"));
    let only_mail = world.email(json!({"headers": {"List-Unsubscribe": "<mailto:u@example.test>"}})).await;
    let record = world.record(&only_mail).await;
    assert_eq!(
        (&record["unsubscribe_url"], &record["headers"]["List-Unsubscribe"]),
        (&json!(null), &json!("<mailto:u@example.test>"))
    );
    for (headers, field) in [
        (json!({"List-Unsubscribe": "<https://exa mple/>"}), "headers.List-Unsubscribe"),
        (json!({"List-Unsubscribe": given, "List-Unsubscribe-Post": "yes"}), "headers.List-Unsubscribe-Post"),
    ] {
        let answer = world.email(with(headers)).await.is_resend(422, "validation_error", "validation_failed");
        assert!(answer["errors"][field].is_array(), "{answer}");
    }
}

#[tokio::test]
async fn an_email_is_shown_and_canceled_in_resends_form() {
    let mut world = World::new().await;
    let sent = world
        .email(json!({"from": "Shop <shop@example.test>", "to": "Ann <ann@example.org>", "subject": "Hi",
            "reply_to": "Help <help@example.test>", "tags": [{"name": "a", "value": "b"}]}))
        .await;
    let id = sent.json()["id"].as_str().unwrap().to_owned();
    let shown = world.resend(&format!("GET /emails/{id}"), JSON, "{}").await;
    assert_eq!(
        members(&shown.body),
        [
            "object",
            "id",
            "message_id",
            "to",
            "from",
            "created_at",
            "subject",
            "html",
            "text",
            "cc",
            "bcc",
            "reply_to",
            "tags",
            "scheduled_at",
            "last_event"
        ]
    );
    let email = shown.json();
    let record = world.get(&format!("/v1/messages/{id}")).await.json();
    for (field, value) in [
        ("object", json!("email")),
        ("message_id", record["message_id_header"].clone()),
        ("to", json!(["ann@example.org"])),
        ("from", json!("Shop <shop@example.test>")),
        ("created_at", record["created_at"].clone()),
        ("text", json!("x")),
        ("html", json!(null)),
        ("reply_to", json!(["Help <help@example.test>"])),
        ("tags", json!([{"name": "a", "value": "b"}])),
        ("last_event", json!("queued")),
    ] {
        assert_eq!(email[field], value, "{field}");
    }
    let canceled = world.resend(&format!("POST /emails/{id}/cancel"), JSON, "").await;
    assert_eq!((canceled.status, canceled.json()), (200, json!({"object": "email", "id": id})));
    assert_eq!(world.resend(&format!("GET /emails/{id}"), "", "").await.json()["last_event"], "canceled");
    world.resend(&format!("POST /emails/{id}/cancel"), "", "{}").await.is_resend(409, "validation_error", "conflict");
    world.resend("GET /emails/x", "", "").await.is_resend(404, "not_found", "not_found");
    world.resend("POST /emails/x/cancel", "", "").await.is_resend(404, "not_found", "not_found");
    let other = world.sent_to("c@example.org").await;
    world.settle(other, TransferEnd::Deferred { bounce: None, not_before: None }, AttemptFacts::default()).await;
    let shown = world.resend(&format!("GET /emails/{other}"), "", "").await.json();
    assert_eq!((&shown["last_event"], &shown["reply_to"]), (&json!("delivery_delayed"), &json!(null)));
}
