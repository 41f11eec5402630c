//! Tests of message and event exports: rows, columns, span and end.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http_body_util::BodyExt as _;
use serde_json::json;

use super::*;
use crate::engine::events::EventFilter;
use crate::engine::exports::{ExportFilter, OF_ACCOUNT_AT_ONCE};
use crate::http::csv::Records;
use crate::http::row_export::{ExportFormat, RowExport};

/// Returns the records of a CSV text; the first one has the column names.
fn records(text: &str) -> Vec<Vec<String>> {
    Records::of(text).map(|(_, record)| record.unwrap().iter().map(str::to_owned).collect()).collect()
}

/// Returns the cells of one column, from the first row on.
fn column(text: &str, name: &str) -> Vec<String> {
    let records = records(text);
    let place = records[0].iter().position(|column| column == name).unwrap();
    records[1..].iter().map(|record| record[place].clone()).collect()
}

fn json_lines(reply: &Reply) -> Vec<Value> {
    reply.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_csv_export_has_every_message_oldest_first_with_nested_members() {
    let mut world = World::with(QuotaLimits::default(), 10_000).await;
    let mut sent = Vec::new();
    for number in 0..260 {
        let mut message = letter(&format!("a{number}@example.net"));
        message["metadata"] = json!({ "order": number.to_string() });
        message["subject"] = "=1+1, \"quoted\"".into();
        sent.push(world.send(message).await.json()["id"].as_str().unwrap().to_owned());
    }
    let bounced = sent[0].parse().unwrap();
    let facts = AttemptFacts { smtp_response: Some("550 5.1.1\r\nno".to_owned()), ..AttemptFacts::default() };
    world.settle(bounced, hard_bounce(), facts).await;
    let reply = world.get("/v1/messages/export").await;
    assert_eq!((reply.status, reply.header("content-type")), (200, "text/csv; charset=utf-8"));
    assert_eq!(reply.header("content-disposition"), "attachment; filename=\"messages-2023-10-15-2023-11-14.csv\"");
    assert_eq!((reply.header("transfer-encoding"), reply.header("content-length")), ("chunked", ""));
    assert_eq!(column(&reply.body, "id"), sent);
    assert_eq!(column(&reply.body, "metadata")[7], "{\"order\":\"7\"}");
    assert_eq!(column(&reply.body, "subject")[259], "=1+1, \"quoted\"");
    assert_eq!(column(&reply.body, "smtp_response")[..2], ["550 5.1.1\r\nno", ""]);
    assert_eq!(column(&reply.body, "waiting.reason")[0], "", "the message is finished");
    assert_ne!(column(&reply.body, "waiting.reason")[1], "");
    assert_eq!(column(&reply.body, "created_at")[0], "2023-11-14T22:13:20.000+00:00");
    let events = world.get("/v1/events/export?format=csv&type=bounced").await;
    assert_eq!(column(&events.body, "message_id"), [sent[0].as_str()]);
    assert_eq!(column(&events.body, "bounce.suppressed"), ["true"]);
    let head = world.ask_as(&world.key.clone(), "HEAD /v1/events/export", "", &Value::Null).await;
    assert_eq!((head.status, head.header("content-type")), (200, "text/csv; charset=utf-8"));
}

#[tokio::test]
async fn json_lines_equal_the_records_of_the_list() {
    let mut world = World::new().await;
    for to in ["a@example.net", "b@example.net"] {
        world.sent_to(to).await;
    }
    for list in ["messages", "events"] {
        let reply = world.get(&format!("/v1/{list}/export?format=ndjson")).await;
        assert_eq!(reply.header("content-type"), "application/x-ndjson");
        assert_eq!(
            reply.header("content-disposition"),
            format!("attachment; filename=\"{list}-2023-10-15-2023-11-14.ndjson\"")
        );
        let mut listed = world.get(&format!("/v1/{list}")).await.json()["data"].as_array().unwrap().clone();
        listed.reverse();
        assert_eq!(json_lines(&reply), listed, "{list}");
    }
    let empty = world.get("/v1/messages/export?to=c@example.net").await;
    assert_eq!(records(&empty.body).len(), 1, "only the columns");
    let (_, stranger) = world.stranger().await;
    assert_eq!(world.client.get("/v1/events/export?format=ndjson", &stranger).await.body, "");
}

#[tokio::test]
async fn an_export_has_the_filters_and_times_of_the_list() {
    let mut world = World::new().await;
    let old = world.sent_to("a@example.net").await.to_string();
    world.advance(DAY);
    let mut message = letter("b@example.net");
    message["metadata"] = json!({ "order": "7" });
    let new = world.send(message).await.json()["id"].as_str().unwrap().to_owned();
    for (query, expected) in [
        ("", vec![&old, &new]),
        ("to=a@example.net", vec![&old]),
        ("metadata[order]=7", vec![&new]),
        ("status=delivered", vec![]),
        ("after=2023-11-15T00:00:00Z", vec![&new]),
        ("before=2023-11-15T00:00:00Z", vec![&old]),
        ("after=2023-10-17T00:00:00Z&before=2023-11-15T00:00:00Z", vec![&old]),
        ("message_id_header=%3Cx@y%3E", vec![]),
        (&format!("message_id_header=%3C{new}@example.test%3E"), vec![&new]),
    ] {
        let reply = world.get(&format!("/v1/messages/export?format=ndjson&{query}")).await;
        let found: Vec<_> = json_lines(&reply).iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
        assert_eq!(found, expected.into_iter().cloned().collect::<Vec<_>>(), "{query}");
    }
    for (query, expected) in [
        ("", 2),
        (&format!("message_id={old}"), 1),
        ("message_id=nonsense", 0),
        ("type=bounced", 0),
        ("after=2023-11-15T00:00:00Z", 1),
        ("before=2023-11-15T00:00:00Z", 1),
        ("after=2023-11-15T00:00:00Z&before=2023-11-15T00:00:00Z", 0),
    ] {
        let exported = world.get(&format!("/v1/events/export?format=ndjson&{query}")).await;
        assert_eq!(json_lines(&exported).len(), expected, "{query}");
        let listed = world.get(&format!("/v1/events?{query}")).await.json();
        assert_eq!(listed["data"].as_array().unwrap().len(), expected, "{query}");
    }
    let page = world.get("/v1/events?limit=1&before=2023-11-16T00:00:00Z").await.json();
    let cursor = page["next_cursor"].as_str().unwrap();
    assert_eq!(world.get(&format!("/v1/events?cursor={cursor}")).await.json()["data"][0]["message_id"], old);
}

#[tokio::test]
async fn a_span_over_30_days_is_refused_and_30_days_are_the_default() {
    let mut world = World::new().await;
    let old = world.sent_to("a@example.net").await.to_string();
    world.advance(31 * DAY);
    for list in ["messages", "events"] {
        let path = format!("/v1/{list}/export?format=ndjson");
        assert_eq!(world.get(&path).await.body, "", "30 days before now");
        for query in ["after=2023-11-14T00:00:00Z", "after=2023-10-01T00:00:00Z&before=2023-11-15T00:00:00Z"] {
            let refused = world.get(&format!("{path}&{query}")).await;
            refused.fails_with(422, "validation_failed");
            assert_eq!(refused.faults(), ["after"], "{query}");
        }
        let refused = world.get(&format!("/v1/{list}/export?format=xlsx&limit=5&after=now")).await;
        assert_eq!(refused.faults(), ["after", "format", "limit"]);
    }
    let found = world.get("/v1/messages/export?format=ndjson&before=2023-11-15T00:00:00Z").await;
    assert_eq!(json_lines(&found)[0]["id"], old);
}

#[tokio::test]
async fn concurrent_exports_are_limited_per_account() {
    let mut world = World::new().await;
    let all = || ExportFilter::Events(EventFilter::default());
    let mut running: Vec<_> = (0..OF_ACCOUNT_AT_ONCE).map(|_| world.engine.export(world.account, all())).collect();
    assert!(running.iter().all(Option::is_some));
    let refused = world.get("/v1/events/export").await;
    refused.fails_with(503, "overloaded");
    assert_ne!(refused.header("retry-after"), "");
    let (_, stranger) = world.stranger().await;
    assert_eq!(world.client.get("/v1/events/export", &stranger).await.status, 200);
    running.pop();
    assert_eq!(world.get("/v1/events/export").await.status, 200);
}

#[tokio::test]
async fn an_export_aborts_with_an_error_when_its_key_is_revoked() {
    let mut world = World::with(QuotaLimits::default(), 10_000).await;
    for _ in 0..260 {
        world.sent_to("a@example.net").await;
    }
    let may = Arc::new(AtomicBool::new(true));
    let export = world.engine.export(world.account, ExportFilter::Events(EventFilter::default())).unwrap();
    let still_may = Arc::clone(&may);
    let rows = RowExport::begin(export, ExportFormat::JsonLines, move || still_may.load(Relaxed), Timestamp::ZERO);
    let mut rows = rows.await.unwrap();
    let first = rows.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.ends_with(b"\n"));
    may.store(false, Relaxed);
    assert!(rows.frame().await.unwrap().is_err());
    assert!(rows.frame().await.is_none());
}
