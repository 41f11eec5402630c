//! Tests of endpoint deletion, test events, redelivery and replay.

use super::*;
use crate::domain::audit::Action;
use crate::engine::listing::PageRequest;
use crate::store::op::redeliver::ReplayOf;
use crate::store::row::audit::AuditRow;

async fn endpoint(world: &mut World) -> (String, Value) {
    let made = world.post("/v1/webhooks", serde_json::json!({ "url": "https://hooks.example.com/in" })).await;
    (made.header("location").to_owned(), made.json())
}

async fn deliveries(world: &mut World, path: &str) -> Vec<Value> {
    world.get(&format!("{path}/deliveries")).await.json()["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_deleted_endpoint_and_its_deliveries_are_gone() {
    let mut world = World::new().await;
    let (path, _) = endpoint(&mut world).await;
    world.sent_to("a@example.net").await;
    let delivery = deliveries(&mut world, &path).await[0]["id"].as_str().unwrap().to_owned();
    let (_, stranger) = world.stranger().await;
    world.ask_as(&stranger, &format!("DELETE {path}"), "", &Value::Null).await.fails_with(404, "not_found");
    let gone = world.delete(&path).await;
    assert_eq!((gone.status, gone.body.as_str()), (204, ""));
    world.get(&path).await.fails_with(404, "not_found");
    world.delete(&path).await.fails_with(404, "not_found");
    let again = format!("/v1/webhook-deliveries/{delivery}/redeliver");
    world.post(&again, Value::Null).await.fails_with(409, "conflict");
}

#[tokio::test]
async fn a_rotation_shows_the_new_secret_once() {
    let mut world = World::new().await;
    let (path, made) = endpoint(&mut world).await;
    world.advance(Duration::from_secs(1));
    let rotated = world.post(&format!("{path}/rotate-secret"), Value::Null).await;
    assert_eq!(rotated.status, 200, "{}", rotated.body);
    let rotated = rotated.json();
    assert_ne!(rotated["secret"], made["secret"]);
    assert_eq!((&rotated["id"], &rotated["url"]), (&made["id"], &made["url"]));
    assert_ne!(rotated["updated_at"], made["updated_at"]);
    assert!(world.get(&path).await.json().get("secret").is_none());
    world.post("/v1/webhooks/whk_x/rotate-secret", Value::Null).await.fails_with(404, "not_found");
}

#[tokio::test]
async fn a_test_delivers_an_event_that_is_not_logged() {
    let mut world = World::new().await;
    let (path, made) = endpoint(&mut world).await;
    let reply = world.post(&format!("{path}/test"), Value::Null).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    let test = reply.json();
    assert_eq!((&test["event_type"], &test["message_id"]), (&"test".into(), &Value::Null));
    assert_eq!((&test["webhook_id"], &test["status"]), (&made["id"], &"pending".into()));
    assert_eq!(world.get(reply.header("location")).await.json(), test);
    assert_eq!(world.get("/v1/events").await.json()["data"], serde_json::json!([]));
    world.get("/v1/events?type=test").await.fails_with(422, "validation_failed");
}

#[tokio::test]
async fn an_event_or_all_since_a_time_are_delivered_again() {
    let mut world = World::new().await;
    let (path, _) = endpoint(&mut world).await;
    world.sent_to("a@example.net").await;
    let first = deliveries(&mut world, &path).await[0].clone();
    let again = format!("/v1/webhook-deliveries/{}/redeliver", first["id"].as_str().unwrap());
    let again = world.post(&again, Value::Null).await;
    assert_eq!(again.status, 201, "{}", again.body);
    assert_ne!(again.json()["id"], first["id"]);
    assert_eq!((&again.json()["event_id"], &again.json()["attempt"]), (&first["event_id"], &0.into()));

    world.advance(Duration::from_secs(60));
    world.sent_to("b@example.net").await;
    let body = |since: &str, only_failed: bool| serde_json::json!({ "since": since, "only_failed": only_failed });
    let replay = format!("{path}/replay");
    let reply = world.post(&replay, body("2023-11-14T22:13:20Z", false)).await;
    assert_eq!(reply.json()["created"], 0, "all of them are pending");
    let (late, _) = endpoint(&mut world).await;
    let late = format!("{late}/replay");
    for (since, only_failed, created) in [
        ("2023-11-14T22:13:20Z", true, 0),
        ("2023-11-14T22:14:00Z", false, 1),
        ("2023-11-14T22:13:20Z", false, 1),
        ("2023-11-14T22:13:20Z", false, 0),
    ] {
        let reply = world.post(&late, body(since, only_failed)).await;
        assert_eq!((reply.status, reply.json()), (200, serde_json::json!({ "created": created })), "{since}");
    }
    assert_eq!(deliveries(&mut world, &path).await.len(), 3);
    let faults = world.post(&replay, serde_json::json!({ "only_failed": 1, "until": "x" })).await;
    assert_eq!(faults.faults(), ["only_failed", "since", "until"]);
}

#[tokio::test]
async fn an_endpoint_has_one_replay_at_a_time() {
    let mut world = World::new().await;
    let (path, made) = endpoint(&mut world).await;
    let (engine, account) = (Arc::clone(&world.engine), world.account);
    // The searches of the replay wait while the account does other work.
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    for _ in 0..4 {
        let (engine, held) = (Arc::clone(&engine), Arc::clone(&held));
        tokio::spawn(async move { engine.blocking(account, move || held.lock().unwrap().recv().is_err()).await });
    }
    let since = "2023-11-14T22:13:20Z";
    let id = made["id"].as_str().unwrap().parse().unwrap();
    let first = tokio::spawn(async move { engine.replay(account, id, ReplayOf::All, since.parse().unwrap()).await });
    let replay = format!("{path}/replay");
    let body = serde_json::json!({ "since": since });
    let page = PageRequest { before: None, limit: 9 };
    let is_noted = |(_, row): &(_, AuditRow)| row.change.action == Action::EventsReplayed;
    while !world.engine.audit_log(account, page).unwrap().rows.iter().any(is_noted) {
        tokio::task::yield_now().await;
    }
    world.post(&replay, body.clone()).await.fails_with(409, "conflict");
    let (other, _) = endpoint(&mut world).await;
    drop(release);
    assert_eq!(first.await.unwrap().unwrap(), 0);
    assert_eq!(world.post(&format!("{other}/replay"), body.clone()).await.status, 200);
    assert_eq!(world.post(&replay, body).await.status, 200);
}
