//! Tests of keys, the account itself, and the operator's view.

use tokio::net::UnixStream;

use super::*;

#[tokio::test]
async fn me_shows_the_account_its_quota_and_the_requesting_key() {
    let mut world = World::new().await;
    world.sent_to("a@example.net").await;
    let reply = world.get("/v1/me").await;
    let (whose, what) = (["id", "name", "time_zone", "content_retention_days"], ["key", "quota", "rate_limit"]);
    let expected = [&whose[..], &what, &["storage", "reputation", "limits", "smtp", "suspended", "version"]].concat();
    assert_eq!(members(&reply.body), expected);
    let body = reply.json();
    assert_eq!((&body["id"], &body["name"]), (&world.account.to_string().into(), &"Acme".into()));
    let hour = serde_json::json!({ "limit": 10000, "used": 1, "remaining": 9999, "reset": 1_700_002_800_u64 });
    assert_eq!(body["quota"]["hour"], hour);
    assert_eq!(body["quota"]["day"]["limit"], 100_000);
    let rate = serde_json::json!({ "limit": 600, "remaining": 598, "reset": 1_700_000_060_u64 });
    assert_eq!(body["rate_limit"], rate);
    assert_eq!(body["key"]["prefix"], world.key[..16]);
    // No scope is required.
    let sender = world.new_key(world.account, None, Scopes::parse("scopes", &["send"]).unwrap()).await;
    assert_eq!(world.client.get("/v1/me", &sender).await.status, 200);
    world.client.get("/v1/keys", &sender).await.fails_with(403, "scope_forbidden");
}

#[tokio::test]
async fn a_new_key_shows_its_secret_once_and_authenticates() {
    let mut world = World::new().await;
    let made =
        world.post("/v1/keys", serde_json::json!({ "name": "ci", "stream": "marketing", "scopes": ["read"] })).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let fields = ["id", "name", "prefix", "stream", "scopes", "created_at", "last_used_at", "expires_at", "revoked_at"];
    assert_eq!(members(&made.body), [&fields[..], &["key"]].concat());
    let secret = made.json()["key"].as_str().unwrap().to_owned();
    assert_eq!(world.client.get("/v1/messages", &secret).await.status, 200);
    // The time of the use is stored after the answer, but before this message.
    world.sent_to("a@example.net").await;
    let path = made.header("location").to_owned();
    let shown = world.get(&path).await;
    assert_eq!(members(&shown.body), fields);
    assert_eq!(members(&first_of_page(&world.get("/v1/keys").await.body)), fields);
    assert_eq!(shown.json()["scopes"], serde_json::json!(["read"]));
    assert_eq!(shown.json()["last_used_at"], "2023-11-14T22:13:20.000+00:00");

    let refused = serde_json::json!({ "scopes": ["all", 1], "stream": "x", "expires_at": "2023-11-14T22:13:20Z" });
    let refused = world.post("/v1/keys", refused).await;
    assert_eq!(refused.faults(), ["expires_at", "name", "scopes.0", "scopes.1", "stream"]);
}

#[tokio::test]
async fn a_key_cannot_create_a_key_with_more_rights() {
    let mut world = World::new().await;
    let manager = world.new_key(world.account, None, Scopes::parse("scopes", &["manage"]).unwrap()).await;
    let marketer = world.new_key(world.account, Some(Stream::Marketing), Scopes::ALL).await;
    let line = "POST /v1/keys";
    let plain = serde_json::json!({ "name": "x" });
    world.ask_as(&manager, line, "", &plain).await.fails_with(403, "scope_forbidden");
    let less = serde_json::json!({ "name": "x", "scopes": ["manage"] });
    assert_eq!(world.ask_as(&manager, line, "", &less).await.status, 201);
    world.ask_as(&marketer, line, "", &plain).await.fails_with(403, "stream_forbidden");
    let same = serde_json::json!({ "name": "x", "stream": "marketing" });
    assert_eq!(world.ask_as(&marketer, line, "", &same).await.status, 201);
}

#[tokio::test]
async fn an_expired_key_is_rejected() {
    let mut world = World::new().await;
    let made = world.post("/v1/keys", serde_json::json!({ "name": "x", "expires_at": "2023-11-15T00:00:00Z" })).await;
    let secret = made.json()["key"].as_str().unwrap().to_owned();
    assert_eq!(world.client.get("/v1/me", &secret).await.status, 200);
    world.advance(DAY);
    world.client.get("/v1/me", &secret).await.fails_with(401, "unauthenticated");
}

#[tokio::test]
async fn only_the_operator_manages_accounts_and_a_command_may_name_one() {
    let mut world = World::new().await;
    world.get("/v1/accounts").await.fails_with(404, "not_found");
    let socket = UnixStream::connect(world.directory.path().join("admin.sock")).await.unwrap();
    let mut operator = Client::over(socket);
    assert_eq!(operator.get("/v1/me", "").await.json()["key"], Value::Null);
    let made = operator.ask("POST /v1/accounts", "", "", r#"{"name":"Second"}"#).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let fields = ["id", "name", "time_zone", "content_retention_days", "hosted_unsubscribe", "quota", "created_at"];
    assert_eq!(members(&made.body), fields);
    let address = made.header("location").to_owned();
    assert_eq!(operator.get(&address, "").await.body, made.body);
    let suspended = operator.ask(&format!("POST {address}/suspend"), "", "", r#"{"reason":"unpaid"}"#).await;
    assert_eq!((suspended.status, &suspended.json()["suspended"]["reason"]), (200, &"unpaid".into()));
    assert_eq!(operator.ask(&format!("POST {address}/resume"), "", "", "").await.body, made.body);
    assert_eq!(operator.get("/v1/accounts", "").await.json()["data"].as_array().unwrap().len(), 2);
    // Now there are two accounts, so a command must name one.
    operator.get("/v1/me", "").await.fails_with(422, "validation_failed");
    let named = format!("X-Postrider-Account: {}\r\n", made.json()["id"].as_str().unwrap());
    assert_eq!(operator.ask("GET /v1/me", "", &named, "").await.json()["name"], "Second");
    let key = operator.ask("POST /v1/keys", "", &named, r#"{"name":"first"}"#).await;
    assert_eq!(key.status, 201, "{}", key.body);
    operator.ask("GET /v1/me", "", "X-Postrider-Account: acc_x\r\n", "").await.fails_with(404, "not_found");
}

#[tokio::test]
async fn the_operator_changes_an_account_and_its_quota_applies_at_once() {
    let mut world = World::new().await;
    world.sent_to("a@example.net").await;
    let socket = UnixStream::connect(world.directory.path().join("admin.sock")).await.unwrap();
    let mut operator = Client::over(socket);
    let path = format!("/v1/accounts/{}", world.account);
    let line = format!("PATCH {path}");
    let change = r#"{"quota_per_hour":1,"time_zone":"europe/vienna"}"#;
    let changed = operator.ask(&line, "", "", change).await;
    assert_eq!((changed.status, &changed.body), (200, &operator.get(&path, "").await.body));
    let account = changed.json();
    assert_eq!(account["quota"], serde_json::json!({ "per_hour": 1, "per_day": 100_000 }));
    assert_eq!((&account["name"], &account["time_zone"]), (&"Acme".into(), &"Europe/Vienna".into()));
    world.send(letter("b@example.net")).await.fails_with(429, "quota_exceeded");
    // With a limit below the current use, the remaining quota is 0 and never negative.
    assert_eq!(operator.ask(&line, "", "", r#"{"quota_per_hour":0,"quota_per_day":0,"name":"B"}"#).await.status, 200);
    let quota = world.get("/v1/me").await.json()["quota"].clone();
    assert_eq!((&quota["hour"]["used"], &quota["hour"]["remaining"]), (&1.into(), &0.into()));
    let faults = r#"{"quota_per_hour":-1,"quota_per_day":"x","time_zone":"Mars","name":"","quota_per_our":1}"#;
    let refused = operator.ask(&line, "", "", faults).await;
    refused.fails_with(422, "validation_failed");
    assert_eq!(refused.faults(), ["name", "quota_per_day", "quota_per_hour", "quota_per_our", "time_zone"]);
    assert!(refused.json()["message"].as_str().unwrap().contains("did you mean quota_per_hour?"));
    assert_eq!(operator.get(&path, "").await.json()["name"], "B");
}

#[tokio::test]
async fn only_the_operator_manages_the_queue() {
    let mut world = World::new().await;
    world.get("/v1/queue").await.fails_with(404, "not_found");
    let socket = UnixStream::connect(world.directory.path().join("admin.sock")).await.unwrap();
    let mut operator = Client::over(socket);
    let page = operator.get("/v1/queue", "").await;
    assert_eq!((page.status, page.body.as_str()), (200, "{\"data\":[],\"next_cursor\":null}"));
    operator.get("/v1/queue?limit=1", "").await.fails_with(422, "validation_failed");
}

#[tokio::test]
async fn health_is_open_and_readiness_ends_with_the_shutdown() {
    let mut world = World::new().await;
    for path in ["/healthz", "/readyz"] {
        let reply = world.client.get(path, "").await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "{\"status\":\"ok\"}"));
    }
    let api = Api::new(Arc::clone(&world.engine), Arc::default(), 1, ServiceLimits::default().budgets, None);
    assert_eq!(api.check_ready(), Ok(()));
    api.shut_down();
    assert_eq!(api.check_ready(), Err(ApiError::ShuttingDown));
}

#[tokio::test]
async fn the_key_cache_never_outlives_a_change_of_the_key() {
    let mut world = World::new().await;
    let made = world.post("/v1/keys", serde_json::json!({ "name": "old", "expires_at": "2023-11-15T22:13:20Z" })).await;
    let (secret, path) = (made.json()["key"].as_str().unwrap().to_owned(), made.header("location").to_owned());
    let name = |reply: Reply| reply.json()["key"]["name"].as_str().unwrap().to_owned();
    assert_eq!(name(world.client.get("/v1/me", &secret).await), "old");
    assert_eq!(world.patch(&path, serde_json::json!({ "name": "new" })).await.status, 200);
    assert_eq!(name(world.client.get("/v1/me", &secret).await), "new");
    world.advance(DAY);
    world.client.get("/v1/me", &secret).await.fails_with(401, "unauthenticated");

    let other = world.new_key(world.account, None, Scopes::ALL).await;
    assert_eq!(world.client.get("/v1/me", &other).await.status, 200);
    let id = world.engine.authenticate(&other).unwrap().unwrap().key.unwrap().id;
    assert_eq!(world.delete(&format!("/v1/keys/{id}")).await.status, 204);
    world.client.get("/v1/me", &other).await.fails_with(401, "unauthenticated");
}

#[tokio::test]
async fn too_many_active_keys_are_a_conflict_that_names_the_limit() {
    let mut world = World::new().await;
    let key = || serde_json::json!({ "name": "ci", "scopes": ["read"] });
    let mut made = Vec::new();
    let refused = loop {
        let reply = world.post("/v1/keys", key()).await;
        if reply.status != 201 {
            break reply;
        }
        made.push(reply.json()["id"].as_str().unwrap().to_owned());
    };
    refused.fails_with(409, "conflict");
    assert!(refused.body.contains("at most 100 active API keys"), "{}", refused.body);
    assert_eq!(world.delete(&format!("/v1/keys/{}", made[0])).await.status, 204);
    assert_eq!(world.post("/v1/keys", key()).await.status, 201);
    world.post("/v1/keys", key()).await.fails_with(409, "conflict");
}

#[tokio::test]
async fn all_keys_of_an_account_share_one_rate() {
    let settings = Settings { requests_per_minute: 3, account_requests_per_minute: 4, ..Settings::for_tests() };
    let mut world = World::set(settings, HttpLimits::default(), Streams::default()).await;
    let mut keys = vec![world.key.clone()];
    keys.push(world.new_key(world.account, None, Scopes::ALL).await);
    for key in [0, 0, 1, 1] {
        assert_eq!(world.ask_as(&keys[key], "GET /v1/me", "", &Value::Null).await.status, 200);
    }
    let refused = world.ask_as(&keys[1], "GET /v1/me", "", &Value::Null).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "60"), "{}", refused.body);
    assert!(refused.header("ratelimit").starts_with("\"key\";r=1;"), "the header is about the key");
    let (_, stranger) = world.stranger().await;
    assert_eq!(world.ask_as(&stranger, "GET /v1/me", "", &Value::Null).await.status, 200);
    world.advance(Duration::from_secs(60));
    assert_eq!(world.ask_as(&keys[1], "GET /v1/me", "", &Value::Null).await.status, 200);
}

#[tokio::test]
async fn an_accounts_stored_content_is_limited() {
    let settings = Settings { stored_bytes_per_account: 3000, ..Settings::for_tests() };
    let mut world = World::set(settings, HttpLimits::default(), Streams::default()).await;
    assert_eq!(
        world.get("/v1/me").await.json()["storage"],
        serde_json::json!({ "used_bytes": 0, "limit_bytes": 3000 })
    );
    let mut sent = 0;
    let refused = loop {
        let reply = world.send(letter("a@example.net")).await;
        if reply.status != 202 {
            break reply;
        }
        sent += 1;
    };
    refused.fails_with(429, "storage_quota_exceeded");
    assert_eq!(refused.header("retry-after"), "3600");
    let me = world.get("/v1/me").await.json();
    let used = me["storage"]["used_bytes"].as_u64().unwrap();
    assert!(sent > 0 && used <= 3000 && used + used / sent > 3000, "{used} bytes of {sent} messages");
    assert_eq!(me["quota"]["hour"]["used"], sent, "a refused message costs no quota");
    let on_disk = world.engine.store.content().size_bytes();
    world.send(letter("a@example.net")).await.fails_with(429, "storage_quota_exceeded");
    assert_eq!(world.engine.store.content().size_bytes(), on_disk, "and no room on the disk");
}
