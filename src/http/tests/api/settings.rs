//! Tests of changes to an account's settings and keys.

use super::*;

#[tokio::test]
async fn settings_change_separately_and_do_not_affect_existing_messages() {
    let mut world = World::new().await;
    let defaults = world.get("/v1/settings").await;
    assert_eq!(
        members(&defaults.body),
        ["name", "time_zone", "content_retention_days", "hosted_unsubscribe", "keep_message_id"]
    );
    let expected = serde_json::json!({
        "name": "Acme", "time_zone": "UTC", "content_retention_days": 30, "hosted_unsubscribe": false,
        "keep_message_id": false
    });
    assert_eq!(defaults.json(), expected);
    let old = world.sent_to("a@example.net").await;
    let change = serde_json::json!({ "time_zone": "europe/vienna", "content_retention_days": 1 });
    let changed = world.patch("/v1/settings", change).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    let change = serde_json::json!({ "name": "Acme Ltd", "hosted_unsubscribe": true, "keep_message_id": true });
    let changed = world.patch("/v1/settings", change).await.json();
    let expected = serde_json::json!({
        "name": "Acme Ltd", "time_zone": "Europe/Vienna", "content_retention_days": 1, "hosted_unsubscribe": true,
        "keep_message_id": true
    });
    assert_eq!(changed, expected);
    assert_eq!(world.get("/v1/settings").await.json(), expected);
    let new = world.sent_to("a@example.net").await;
    let days = |id| world.engine.message(world.account, id).unwrap().unwrap().row;
    assert_eq!(days(old).content_expires_at.since(days(old).created_at), 30 * DAY);
    assert_eq!(days(new).content_expires_at.since(days(new).created_at), DAY);
}

#[tokio::test]
async fn all_errors_of_a_settings_change_are_named_and_nothing_changes() {
    let mut world = World::new().await;
    let refused = serde_json::json!({
        "name": " ", "time_zone": "Mars/Base", "content_retention_days": 3651, "hosted_unsubscribe": "yes", "quota": 1
    });
    let refused = world.patch("/v1/settings", refused).await;
    refused.fails_with(422, "validation_failed");
    let fields = ["content_retention_days", "hosted_unsubscribe", "name", "quota", "time_zone"];
    assert_eq!(refused.faults(), fields);
    for days in ["0", "1.5", "30.0", "\"30\"", "-1", "99999999999999999999"] {
        let key = world.key.clone();
        let body = format!("{{\"content_retention_days\":{days}}}");
        let refused = world.client.ask("PATCH /v1/settings", &key, "", &body).await;
        assert_eq!(refused.faults(), ["content_retention_days"], "{days}");
    }
    assert_eq!(world.get("/v1/settings").await.json()["content_retention_days"], 30);
    let reader = world.new_key(world.account, None, Scopes::parse("scopes", &["read"]).unwrap()).await;
    assert_eq!(world.client.get("/v1/settings", &reader).await.status, 200);
    world.ask_as(&reader, "PATCH /v1/settings", "", &serde_json::json!({})).await.fails_with(403, "scope_forbidden");
}

#[tokio::test]
async fn only_the_name_of_a_key_can_change() {
    let mut world = World::new().await;
    let made = world.post("/v1/keys", serde_json::json!({ "name": "ci", "scopes": ["read"] })).await;
    let path = made.header("location").to_owned();
    let before = world.get(&path).await.json();
    let renamed = world.patch(&path, serde_json::json!({ "name": "build" })).await;
    assert_eq!((renamed.status, &renamed.json()["name"]), (200, &"build".into()), "{}", renamed.body);
    let mut expected = before;
    expected["name"] = "build".into();
    assert_eq!(world.get(&path).await.json(), expected);
    let refused = world.patch(&path, serde_json::json!({ "name": "", "scopes": ["send"] })).await;
    refused.fails_with(422, "validation_failed");
    assert_eq!(refused.faults(), ["name", "scopes"]);
    let (_, stranger) = world.stranger().await;
    let line = format!("PATCH {path}");
    world.ask_as(&stranger, &line, "", &serde_json::json!({ "name": "x" })).await.fails_with(404, "not_found");
}

#[tokio::test]
async fn a_revoked_key_is_refused_at_once_and_stays_listed() {
    let mut world = World::new().await;
    let made = world.post("/v1/keys", serde_json::json!({ "name": "ci" })).await;
    let (path, secret) = (made.header("location").to_owned(), made.json()["key"].as_str().unwrap().to_owned());
    assert_eq!(world.client.get("/v1/me", &secret).await.status, 200);
    let (_, stranger) = world.stranger().await;
    let line = format!("DELETE {path}");
    world.ask_as(&stranger, &line, "", &Value::Null).await.fails_with(404, "not_found");
    let gone = world.delete(&path).await;
    assert_eq!((gone.status, gone.body.as_str()), (204, ""));
    world.client.get("/v1/me", &secret).await.fails_with(401, "unauthenticated");
    world.advance(DAY);
    assert_eq!(world.delete(&path).await.status, 204, "again");
    assert_eq!(world.get(&path).await.json()["revoked_at"], "2023-11-14T22:13:20.000+00:00");
    assert!(world.get("/v1/keys").await.body.contains("\"ci\""));
    world.delete("/v1/keys/key_x").await.fails_with(404, "not_found");
    // A key may revoke itself.
    let own = world.get("/v1/me").await.json()["key"]["id"].as_str().unwrap().to_owned();
    assert_eq!(world.delete(&format!("/v1/keys/{own}")).await.status, 204);
    world.get("/v1/me").await.fails_with(401, "unauthenticated");
}
