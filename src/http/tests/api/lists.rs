//! Tests of lists: paging while rows are inserted, filters, cursors, and the event log's 30 days.

use super::*;

fn ids(page: &Value) -> Vec<String> {
    page["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn pages_neither_repeat_nor_skip_during_inserts() {
    let mut world = World::new().await;
    let mut sent = Vec::new();
    for number in 0..7 {
        sent.push(world.sent_to(&format!("a{number}@example.net")).await.to_string());
    }
    sent.reverse();
    for list in ["messages", "events"] {
        let mut seen = Vec::new();
        let mut path = format!("/v1/{list}?limit=3");
        loop {
            let reply = world.get(&path).await;
            let page = reply.json();
            let field = if list == "events" { "message_id" } else { "id" };
            seen.extend(page["data"].as_array().unwrap().iter().map(|row| row[field].as_str().unwrap().to_owned()));
            world.sent_to("new@example.net").await;
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            path = format!("/v1/{list}?limit=3&cursor={cursor}");
            assert_eq!(reply.header("link"), format!("<{path}>; rel=\"next\""));
        }
        assert_eq!(seen[seen.len() - 7..], sent, "{list}");
    }
}

#[tokio::test]
async fn events_are_identical_everywhere_and_filtered_by_message_and_type() {
    let mut world = World::new().await;
    let (one, two) = (world.sent_to("a@example.net").await, world.sent_to("b@example.net").await);
    world.settle(one, hard_bounce(), AttemptFacts::default()).await;
    let all = world.get("/v1/events").await;
    assert_eq!(
        members(&first_of_page(&all.body)),
        [
            "id",
            "type",
            "message_id",
            "message_id_header",
            "stream",
            "from",
            "to",
            "subject",
            "metadata",
            "created_at",
            "attempt",
            "smtp_code",
            "smtp_enhanced_code",
            "smtp_response",
            "mx_host",
            "mx_ip",
            "relay",
            "tls",
            "duration_ms",
            "next_attempt_at",
            "bounce",
            "complaint"
        ]
    );
    let record = world.get(&format!("/v1/messages/{one}")).await;
    assert!(record.body.contains(&first_of_page(&all.body)));
    let count =
        async |world: &mut World, query: &str| ids(&world.get(&format!("/v1/events?{query}")).await.json()).len();
    assert_eq!(ids(&all.json()).len(), 3);
    assert_eq!(count(&mut world, &format!("message_id={one}")).await, 2);
    assert_eq!(count(&mut world, "type=queued").await, 2);
    assert_eq!(count(&mut world, &format!("message_id={one}&type=bounced")).await, 1);
    assert_eq!(count(&mut world, &format!("message_id={two}&type=bounced")).await, 0);
    assert_eq!(count(&mut world, "message_id=nonsense").await, 0);
    let (_, stranger) = world.stranger().await;
    assert_eq!(ids(&world.client.get(&format!("/v1/events?message_id={one}"), &stranger).await.json()).len(), 0);
    let refused = world.get("/v1/events?type=opened&cursor=x&limit=0&page=2").await;
    refused.fails_with(422, "validation_failed");
    assert_eq!(refused.faults(), ["cursor", "limit", "page", "type"]);
}

#[tokio::test]
async fn a_cursor_works_alone_and_is_rejected_with_other_filters() {
    let mut world = World::new().await;
    for _ in 0..3 {
        let id = world.sent_to("a@example.net").await;
        world.settle(id, TransferEnd::Delivered, AttemptFacts::default()).await;
    }
    let first = world.get("/v1/events?type=delivered&limit=2").await.json();
    let cursor = first["next_cursor"].as_str().unwrap().to_owned();
    let rest = world.get(&format!("/v1/events?cursor={cursor}")).await.json();
    assert_eq!((ids(&rest).len(), &rest["data"][0]["type"]), (1, &"delivered".into()));
    for path in [format!("/v1/events?type=queued&cursor={cursor}"), format!("/v1/messages?cursor={cursor}")] {
        let refused = world.get(&path).await;
        refused.fails_with(422, "validation_failed");
        assert_eq!(refused.faults(), ["cursor"]);
    }
    let (_, stranger) = world.stranger().await;
    world.client.get(&format!("/v1/events?cursor={cursor}"), &stranger).await.fails_with(422, "validation_failed");
}

#[tokio::test]
async fn events_leave_the_log_after_30_days_and_stay_in_the_timeline() {
    let mut world = World::new().await;
    let id = world.sent_to("a@example.net").await;
    world.advance(30 * DAY + Duration::from_secs(1));
    for query in ["".to_owned(), "?type=queued".to_owned(), format!("?message_id={id}")] {
        assert_eq!(ids(&world.get(&format!("/v1/events{query}")).await.json()).len(), 0, "{query}");
    }
    let record = world.get(&format!("/v1/messages/{id}")).await.json();
    assert_eq!(record["events"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_metadata_search_continues_by_cursor_and_reports_its_index() {
    let mut world = World::new().await;
    for _ in 0..3 {
        let mut message = letter("a@example.net");
        message["metadata"] = serde_json::json!({ "order": "7" });
        world.send(message).await;
    }
    let page = world.get("/v1/messages?metadata[order]=7&limit=2").await.json();
    assert_eq!((ids(&page).len(), page.get("indexed_since")), (2, Some(&Value::Null)));
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = world.get(&format!("/v1/messages?cursor={cursor}")).await.json();
    assert_eq!((ids(&rest).len(), rest.get("indexed_since")), (1, Some(&Value::Null)));
    let refused = world.get(&format!("/v1/messages?metadata[order]=8&cursor={cursor}")).await;
    assert_eq!(refused.faults(), ["cursor"]);
    assert_eq!(world.get("/v1/messages").await.json().get("indexed_since"), None);
}

#[tokio::test]
async fn messages_are_found_by_every_filter_and_by_combinations() {
    let mut world = World::new().await;
    let old = world.sent_to("Ann@example.net").await;
    world.settle(old, TransferEnd::Delivered, AttemptFacts::default()).await;
    world.advance(DAY);
    let mut news = letter("bob@example.net");
    news["from"] = "hi@news.example.test".into();
    news["subject"] = "Großer News Letter".into();
    news["unsubscribe_url"] = "https://example.test/u".into();
    news["metadata"] = serde_json::json!({ "order": "10482", "test": "" });
    let new: MessageId = world.send(news).await.json()["id"].as_str().unwrap().parse().unwrap();
    for (query, expected) in [
        ("to=ann%40EXAMPLE.net".to_owned(), vec![old]),
        ("from=hi@news.example.test".to_owned(), vec![new]),
        ("subject=letter+gro%C3%9Fer".to_owned(), vec![new]),
        ("subject=letter+order".to_owned(), vec![]),
        ("status=delivered".to_owned(), vec![old]),
        ("stream=marketing".to_owned(), vec![new]),
        ("stream=marketing&status=delivered".to_owned(), vec![]),
        ("after=2023-11-15T00:00:00Z".to_owned(), vec![new]),
        ("before=2023-11-15T00:00:00Z".to_owned(), vec![old]),
        ("after=2023-11-15T00:00:00Z&before=2023-11-15T00:00:00Z".to_owned(), vec![]),
        ("metadata[order]=10482".to_owned(), vec![new]),
        ("metadata[order]=10482&metadata%5Btest%5D=&status=queued".to_owned(), vec![new]),
        ("metadata[order]=1048".to_owned(), vec![]),
        ("metadata[test]=10482".to_owned(), vec![]),
        (format!("message_id_header=%3C{old}@example.test%3E"), vec![old]),
        (format!("message_id_header=%3C{old}@other.test%3E"), vec![]),
        ("message_id_header=%3Cx@y%3E".to_owned(), vec![]),
    ] {
        let page = world.get(&format!("/v1/messages?{query}")).await.json();
        let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(ids(&page), expected, "{query}");
        assert_eq!(page["next_cursor"], Value::Null, "{query}");
    }
    let refused = world.get("/v1/messages?to=x&status=open&after=now&stream=both").await;
    assert_eq!(refused.faults(), ["after", "status", "stream", "to"]);
    let long = "x".repeat(256);
    let faulty = format!("metadata[]=1&metadata[a]={long}&metadata[{long}]=1&metadata[b]=1");
    let refused = world.get(&format!("/v1/messages?{faulty}")).await;
    assert_eq!(refused.faults(), ["metadata", "metadata[]", "metadata[a]", &format!("metadata[{long}]")]);
    world.get("/v1/messages?metadata=1").await.fails_with(422, "validation_failed");
    assert_eq!(world.get(&format!("/v1/messages?metadata[a]={}", &long[1..])).await.status, 200);
}
