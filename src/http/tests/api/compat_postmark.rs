//! Tests of Postmark's emails: accepted members, rejected members, and message details (contract 12.3).

use serde_json::json;

use super::compat_routes::JSON;
use super::*;

#[tokio::test]
async fn every_field_of_an_email_is_accepted() {
    let mut world = World::new().await;
    let sent = world
        .postmark_email(json!({
            "From": "\"Shop, Inc.\" <shop@example.test>", "To": "Ann Lee <Ann@example.org>", "Subject": "Hi",
            "HtmlBody": "<p>x</p>", "ReplyTo": "help@example.test, b@example.test",
            "Headers": [{"Name": "X-Order", "Value": "7"}], "Tag": "welcome", "Metadata": {"order": "7"},
            "MessageStream": "outbound", "TrackOpens": false, "TrackLinks": "None",
            "Attachments": [
                {"Name": "a.txt", "Content": "aGVs\nbG8=", "ContentType": "text/plain"},
                {"Name": "b.png", "Content": "AP8H", "ContentType": "image/png", "ContentID": "cid:logo"},
            ],
        }))
        .await;
    assert_eq!(sent.status, 200, "{}", sent.body);
    let answer = sent.json();
    assert_eq!(
        (&answer["To"], &answer["ErrorCode"], &answer["Message"]),
        (&json!("Ann Lee <Ann@example.org>"), &json!(0), &json!("OK"))
    );
    let id = answer["MessageID"].as_str().unwrap().to_owned();
    let record = world.get(&format!("/v1/messages/{id}")).await.json();
    assert_eq!(answer["SubmittedAt"], record["created_at"]);
    assert_eq!((&record["from_name"], &record["to"]), (&json!("Shop, Inc."), &json!("Ann@example.org")));
    assert_eq!(record["metadata"], json!({"order": "7", "tag": "welcome"}));
    assert_eq!(record["headers"], json!({"X-Order": "7", "Reply-To": "help@example.test, b@example.test"}));
    let raw = world.get(&format!("/v1/messages/{id}/raw")).await.body;
    assert!(raw.contains("\r\nTo: \"Ann Lee\" <Ann@example.org>\r\n") && raw.contains("Content-ID: <logo>"), "{raw}");
}

#[tokio::test]
async fn each_unsupported_field_is_named() {
    let mut world = World::new().await;
    for (changes, field, number, expected) in [
        (json!({"To": "a@example.org,b@example.org"}), "To", 300, "one request per recipient"),
        (json!({"Cc": "a@example.org"}), "Cc", 300, "one request per recipient"),
        (json!({"Bcc": "a@example.org"}), "Bcc", 300, "one request per recipient"),
        (json!({"TemplateId": 7}), "TemplateId", 300, "templates"),
        (json!({"TemplateAlias": "x", "TemplateModel": {}}), "TemplateAlias", 300, "templates"),
        (json!({"TrackOpens": true}), "TrackOpens", 300, "tracking"),
        (json!({"TrackLinks": "HtmlOnly"}), "TrackLinks", 300, "tracking"),
        (json!({"MessageStream": "other"}), "MessageStream", 1235, "outbound"),
        (json!({"MessageStream": "broadcast"}), "MessageStream", 300, "transactional"),
        (json!({"Attachments": [{"Name": "a/b", "Content": ""}]}), "Attachments.0.Name", 300, "without a path"),
        (json!({"Attachments": [{"Name": "a", "Content": [1]}]}), "Attachments.0.Content", 300, "base64"),
        (json!({"Attachments": [{"Name": "a", "Content": "", "Url": "x"}]}), "Attachments.0.Url", 300, "unknown field"),
        (json!({"Headers": [{"Name": "Date", "Value": "x"}]}), "Headers.Date", 300, "written by the service"),
        (json!({"Headers": [{"Name": "A", "Value": "x"}, {"Name": "A", "Value": "y"}]}), "Headers.A", 300, "twice"),
        (json!({"Metadata": {"a": 1}}), "Metadata.a", 300, "string"),
        (json!({"Metadata": {"tag": "a"}, "Tag": "b"}), "Tag", 300, "twice"),
        (json!({"to": "b@example.org"}), "to", 300, "unknown field"),
        (json!({"TextBody": ""}), "TextBody", 300, "TextBody, HtmlBody, or both"),
    ] {
        let answer = world.postmark_email(changes.clone()).await.is_postmark(422, number, "validation_failed");
        let fields: Vec<_> = answer["errors"].as_object().unwrap().keys().collect();
        assert_eq!(fields, [field], "{changes}: {answer}");
        let message = answer["Message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{field}: ")) && message.contains(expected), "{changes}: {message}");
    }
    for path in ["withTemplate", "withTemplate/", "batchWithTemplates", "batchWithTemplates/", "bulk"] {
        for (headers, body) in [(JSON, "{\"TemplateId\":1}"), ("", ""), (JSON, "[")] {
            let answer = world.postmark(&format!("POST /email/{path}"), headers, body).await;
            answer.is_postmark(422, 300, "validation_failed");
        }
    }
    assert_eq!(world.count().await, 0);
}

#[tokio::test]
async fn an_invalid_address_is_reported_as_postmarks_clients_parse_it() {
    let mut world = World::new().await;
    let answer =
        world.postmark_email(json!({"To": "Nobody <no body>"})).await.is_postmark(422, 300, "validation_failed");
    let message = answer["Message"].as_str().unwrap();
    assert!(message.starts_with("Invalid 'To' address: 'Nobody <no body>'.\nTo: must be "), "{message}");
    let answer = world.postmark_email(json!({"From": "x", "To": "y", "Cc": "z"})).await.is_postmark(
        422,
        300,
        "validation_failed",
    );
    let message = answer["Message"].as_str().unwrap();
    assert!(message.starts_with("Invalid 'From' address: 'x'.\nInvalid 'To' address: 'y'.\nCc: "), "{message}");
}

#[tokio::test]
async fn a_stream_has_several_accepted_names() {
    let mut world = World::new().await;
    for stream in ["outbound", "transactional", "", "broadcast", "broadcasts", "marketing"] {
        let from = if stream.contains('b') && stream != "outbound" || stream == "marketing" {
            "a@news.example.test"
        } else {
            "a@example.test"
        };
        let headers = json!([{"Name": "List-Unsubscribe", "Value": "<https://example.test/u>"}]);
        let sent = world.postmark_email(json!({"From": from, "MessageStream": stream, "Headers": headers})).await;
        assert_eq!(sent.status, 200, "{stream}: {}", sent.body);
    }
}

#[tokio::test]
async fn the_details_show_the_events_of_a_message() {
    let mut world = World::new().await;
    let sent = world
        .postmark_email(json!({"From": "Shop <shop@example.test>", "To": "Ann <ann@example.org>", "Subject": "Hi",
            "HtmlBody": "<p>x</p>", "Tag": "t", "Metadata": {"a": "b"},
            "Attachments": [{"Name": "a.txt", "Content": "eA==", "ContentType": "text/plain"}]}))
        .await;
    let id: MessageId = sent.json()["MessageID"].as_str().unwrap().parse().unwrap();
    let path = format!("GET /messages/outbound/{id}/details");
    let details = world.postmark(&path, JSON, "").await;
    assert_eq!(
        members(&details.body),
        [
            "MessageID",
            "MessageStream",
            "To",
            "Cc",
            "Bcc",
            "Recipients",
            "ReceivedAt",
            "From",
            "Subject",
            "Attachments",
            "Status",
            "Tag",
            "Metadata",
            "TrackOpens",
            "TrackLinks",
            "Sandboxed",
            "TextBody",
            "HtmlBody",
            "Body",
            "MessageEvents"
        ]
    );
    let answer = details.json();
    for (field, value) in [
        ("MessageID", json!(id.to_string())),
        ("MessageStream", json!("outbound")),
        ("To", json!([{"Email": "ann@example.org", "Name": "Ann"}])),
        ("Cc", json!([])),
        ("Bcc", json!([])),
        ("Recipients", json!(["ann@example.org"])),
        ("ReceivedAt", sent.json()["SubmittedAt"].clone()),
        ("From", json!("Shop <shop@example.test>")),
        ("Attachments", json!(["a.txt"])),
        ("Status", json!("Queued")),
        ("Tag", json!("t")),
        ("Metadata", json!({"a": "b"})),
        ("TrackOpens", json!(false)),
        ("TrackLinks", json!("None")),
        ("Sandboxed", json!(false)),
        ("TextBody", json!("x")),
        ("HtmlBody", json!("<p>x</p>")),
        ("MessageEvents", json!([])),
    ] {
        assert_eq!(answer[field], value, "{field}");
    }
    assert!(answer["Body"].as_str().unwrap().contains("\r\nSubject: Hi\r\n"));
    let text = |text: &str| Some(text.to_owned());
    let facts = AttemptFacts {
        attempt: Some(1),
        smtp_response: text("451 later"),
        mx_host: text("mx.example.org"),
        mx_ip: text("192.0.2.1"),
        ..AttemptFacts::default()
    };
    world.settle(id, TransferEnd::Deferred { bounce: None, not_before: None }, facts.clone()).await;
    assert_eq!(world.postmark(&path, "", "{}").await.json()["Status"], "Queued");
    let facts = AttemptFacts { attempt: Some(2), smtp_response: text("550 5.1.1 unknown"), ..facts };
    world.settle(id, hard_bounce(), facts).await;
    let answer = world.postmark(&path, "", "").await.json();
    assert_eq!(answer["Status"], "Sent");
    let events = answer["MessageEvents"].as_array().unwrap();
    assert_eq!(events.iter().map(|event| &event["Type"]).collect::<Vec<_>>(), ["Transient", "Bounced"]);
    assert_eq!(
        events[0]["Details"],
        json!({"DeliveryMessage": "451 later", "DestinationServer": "mx.example.org", "DestinationIP": "192.0.2.1"})
    );
    assert_eq!(
        (&events[1]["Details"], &events[1]["Recipient"]),
        (&json!({"Summary": "550 5.1.1 unknown", "BounceID": 0}), &json!("ann@example.org"))
    );
    assert!(events[1]["ReceivedAt"].is_string());
}
