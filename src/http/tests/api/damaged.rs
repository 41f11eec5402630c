//! Tests of damaged rows: only the object itself answers 500 `internal`, lists omit it, and no damaged data is served.

use serde_json::json;

use super::*;
use crate::http::body_budget::{BudgetHolder, Charge, ExcessPolicy};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::schema::{self, Table};

impl World {
    /// Damages the row of a table whose key has this prefix and end.
    fn damage(&self, table: Table, prefix: &[u8], end: &[u8]) {
        let store = &self.engine.store;
        let keys = store.snapshot().unwrap().keys(table, prefix, &after_prefix(prefix), Order::Ascending, 99).unwrap();
        let key = keys.iter().find(|key| key.ends_with(end)).expect("such a row");
        store.damage_row(table, key);
    }
}

#[tokio::test]
async fn a_damaged_key_is_not_reported_as_unknown() {
    let mut world = World::new().await;
    let (stranger, key) = world.stranger().await;
    world.damage(Table::Keys, stranger.as_bytes(), &[]);
    world.ask_as(&key, "GET /v1/me", "", &Value::Null).await.fails_with(500, "internal");
    assert_eq!(world.get("/v1/me").await.status, 200);
    assert!(world.engine.store.meters().damage.met.read() > 0);
    assert!(world.engine.store.health().failure().is_none());
}

#[tokio::test]
async fn a_damaged_row_is_omitted_from_lists_and_is_an_internal_error() {
    let mut world = World::new().await;
    let mut messages = Vec::new();
    for to in ["a@example.net", "b@example.net", "c@example.net"] {
        messages.push(world.sent_to(to).await);
    }
    let account = world.account;
    world.damage(Table::Timeline, &schema::message(account, messages[0]), &[]);
    world.damage(Table::Messages, &schema::message(account, messages[1]), &[]);
    let events = world.get("/v1/events").await;
    assert_eq!((events.status, events.json()["data"].as_array().unwrap().len()), (200, 2), "{}", events.body);
    let listed = world.get("/v1/messages").await;
    assert_eq!((listed.status, listed.json()["data"].as_array().unwrap().len()), (200, 2), "{}", listed.body);
    world.get(&format!("/v1/messages/{}", messages[1])).await.fails_with(500, "internal");
    assert_eq!(world.get(&format!("/v1/messages/{}", messages[2])).await.status, 200);
    assert_eq!(world.send(letter("d@example.net")).await.status, 202);
}

#[tokio::test]
async fn a_damaged_webhook_or_suppression_is_never_served() {
    let mut world = World::new().await;
    let mut hooks = Vec::new();
    for path in ["one", "two"] {
        let hook = world.post("/v1/webhooks", json!({"url": format!("https://hooks.example.com/{path}")})).await;
        hooks.push(hook.json()["id"].as_str().unwrap().to_owned());
        world.post("/v1/suppressions", json!({"email": format!("{path}@example.net")})).await;
    }
    let account = world.account;
    world.damage(Table::Endpoints, account.as_bytes(), &[]);
    world.damage(Table::Suppressions, account.as_bytes(), b"one@example.net");
    let listed = world.get("/v1/webhooks").await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    world.get(&format!("/v1/webhooks/{}", hooks[0])).await.fails_with(500, "internal");
    let listed = world.get("/v1/suppressions").await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    world.send(letter("one@example.net")).await.fails_with(500, "internal");
    assert_eq!(world.send(letter("three@example.net")).await.status, 202);
}

#[tokio::test]
async fn a_message_with_damaged_content_is_an_internal_error() {
    let mut world = World::new().await;
    let path = world.send(letter("a@example.net")).await.header("location").to_owned();
    let whole = world.send(letter("b@example.net")).await.header("location").to_owned();
    let id: MessageId = path.rsplit('/').next().unwrap().parse().unwrap();
    let mut row = world.engine.message(world.account, id).unwrap().unwrap();
    row.row.place.offset += 1;
    let read = world.api.signed_message(world.account, &row).await;
    assert_eq!(read, Err(ApiError::Internal));
    let held =
        Charge::of_answer(&world.api.budgets, BudgetHolder::Account(world.account), usize::MAX, ExcessPolicy::Refuse)
            .unwrap();
    let refused = world.api.signed_message(world.account, &row).await;
    assert_eq!(refused, Err(ApiError::Overloaded), "nothing is read");
    world.get(&format!("{whole}/raw")).await.fails_with(503, "overloaded");
    assert_eq!(world.get(&whole).await.status, 200, "a record does not hold its message");
    drop(held);
    assert_eq!(world.get(&format!("{whole}/raw")).await.status, 200);
}
