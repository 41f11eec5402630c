//! Tests of webhook endpoints: registration, changes, and deliveries.

use super::*;

const FIELDS: [&str; 12] = [
    "id",
    "url",
    "events",
    "description",
    "enabled",
    "disabled_at",
    "disabled_reason",
    "consecutive_failures",
    "last_success_at",
    "last_failure_at",
    "created_at",
    "updated_at",
];

fn hook() -> Value {
    serde_json::json!({ "url": "https://hooks.example.com/in" })
}

#[tokio::test]
async fn an_endpoint_shows_its_secret_once_and_is_changed_by_given_members() {
    let mut world = World::new().await;
    let made = world.post("/v1/webhooks", hook()).await;
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(members(&made.body), [&FIELDS[..], &["secret"]].concat());
    let secret = made.json()["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("whsec_") && secret.len() == 50);
    let path = made.header("location").to_owned();
    let shown = world.get(&path).await;
    assert_eq!(members(&shown.body), FIELDS);
    assert_eq!((&shown.json()["events"], &shown.json()["enabled"]), (&Value::Null, &true.into()));

    let change =
        serde_json::json!({ "enabled": false, "events": ["bounced", "delivered", "bounced"], "description": "x" });
    let changed = world.patch(&path, change).await.json();
    assert_eq!(
        changed["events"],
        serde_json::json!(["bounced", "delivered"]),
        "in the given order, without duplicates"
    );
    assert_eq!((&changed["enabled"], &changed["disabled_at"]), (&false.into(), &Value::Null));
    let changed = world.patch(&path, serde_json::json!({ "enabled": true, "events": null })).await;
    assert_eq!(members(&changed.body), FIELDS);
    let changed = changed.json();
    assert_eq!(
        (&changed["enabled"], &changed["events"], &changed["description"]),
        (&true.into(), &Value::Null, &"x".into())
    );
    world.patch("/v1/webhooks/whk_x", serde_json::json!({ "nothing": 1 })).await.fails_with(404, "not_found");
}

#[tokio::test]
async fn an_invalid_endpoint_is_rejected_with_all_errors() {
    let mut world = World::new().await;
    for url in ["http://example.com/", "https://127.0.0.1/", "https://localhost/", "https://a:b@example.com/", "x"] {
        let body = serde_json::json!({ "url": url, "events": ["delivered", "opened"], "enable": true });
        let refused = world.post("/v1/webhooks", body).await;
        refused.fails_with(422, "validation_failed");
        assert_eq!(refused.faults(), ["enable", "events.1", "url"], "{url}");
    }
    assert_eq!(world.post("/v1/webhooks", serde_json::json!({ "events": [] })).await.faults(), ["events", "url"]);
}

#[tokio::test]
async fn a_local_url_is_rejected_with_advice_for_development() {
    let mut world = World::new().await;
    for url in ["http://localhost:3000/hook", "https://localhost/", "https://192.168.1.7/"] {
        let refused = world.post("/v1/webhooks", serde_json::json!({ "url": url })).await.json();
        let way = "While developing: postrider webhook listen --forward-to URL";
        assert!(refused["message"].as_str().unwrap().ends_with(way), "{refused}");
        assert!(refused["errors"]["url"][0].as_str().unwrap().ends_with(way), "{refused}");
    }
    let refused = world.post("/v1/webhooks", serde_json::json!({ "url": "https://a:b@example.com/" })).await;
    assert!(!refused.body.contains("While developing"), "{}", refused.body);
}

#[tokio::test]
async fn an_eleventh_endpoint_is_a_conflict() {
    let mut world = World::new().await;
    for _ in 0..10 {
        assert_eq!(world.post("/v1/webhooks", hook()).await.status, 201);
    }
    world.post("/v1/webhooks", hook()).await.fails_with(409, "conflict");
    let page = world.get("/v1/webhooks?limit=4").await.json();
    assert_eq!(page["data"].as_array().unwrap().len(), 4);
    assert!(page["next_cursor"].is_string());
}

#[tokio::test]
async fn deliveries_are_listed_and_held_while_the_endpoint_is_disabled() {
    let mut world = World::new().await;
    let path = world.post("/v1/webhooks", hook()).await.header("location").to_owned();
    let message = world.sent_to("a@example.net").await;
    let page = world.get(&format!("{path}/deliveries")).await;
    let fields = [
        "id",
        "webhook_id",
        "event_id",
        "event_type",
        "message_id",
        "status",
        "attempt",
        "next_attempt_at",
        "created_at",
    ];
    assert_eq!(members(&first_of_page(&page.body)), fields);
    let delivery = page.json()["data"][0].clone();
    assert_eq!((&delivery["event_type"], &delivery["status"]), (&"queued".into(), &"pending".into()));
    assert_eq!(delivery["message_id"], message.to_string());
    let one = format!("/v1/webhook-deliveries/{}", delivery["id"].as_str().unwrap());
    let shown = world.get(&one).await;
    assert_eq!(members(&shown.body), [&fields[..], &["attempts"]].concat());
    assert_eq!(shown.json()["attempts"], serde_json::json!([]));
    world.patch(&path, serde_json::json!({ "enabled": false })).await;
    let held = world.get(&one).await.json();
    assert_eq!((&held["status"], &held["next_attempt_at"]), (&"held".into(), &Value::Null));
    let (_, stranger) = world.stranger().await;
    world.client.get(&one, &stranger).await.fails_with(404, "not_found");
    world.client.get(&format!("{path}/deliveries"), &stranger).await.fails_with(404, "not_found");
}
