//! Tests of sending domains: registration, and checks of their records.

use super::*;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

fn record<'a>(domain: &'a Value, purpose: &str, place: usize) -> &'a Value {
    domain["records"].as_array().unwrap().iter().filter(|record| record["purpose"] == purpose).nth(place).unwrap()
}

fn text<'a>(record: &'a Value, member: &str) -> &'a str {
    record[member].as_str().unwrap()
}

async fn registered(world: &mut World) -> (String, Value) {
    let made =
        world.post("/v1/domains", serde_json::json!({ "name": "Shop.example", "stream": "transactional" })).await;
    assert_eq!(made.status, 201, "{}", made.body);
    (made.header("location").to_owned(), made.json())
}

#[tokio::test]
async fn a_new_domain_is_pending_and_lists_its_records() {
    let mut world = World::new().await;
    let (path, domain) = registered(&mut world).await;
    let reply = world.get(&path).await;
    let expected = [
        "id",
        "name",
        "stream",
        "status",
        "verified_at",
        "last_checked_at",
        "next_check_at",
        "dkim_rotation_days",
        "next_rotation_at",
        "dkim",
        "records",
        "created_at",
    ];
    assert_eq!(members(&reply.body), expected);
    assert_eq!((&domain["name"], &domain["status"]), (&"shop.example".into(), &"pending".into()));
    assert_eq!(domain["next_check_at"], "2023-11-14T22:15:20.000+00:00");
    let shown: Vec<_> = domain["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (text(r, "purpose"), text(r, "type"), r["required"] == true, text(r, "status")))
        .collect();
    assert_eq!(
        shown,
        [
            ("dkim", "TXT", true, "unchecked"),
            ("dkim", "TXT", false, "unchecked"),
            ("return_path", "CNAME", false, "unchecked"),
            ("spf", "TXT", false, "unchecked"),
            ("dmarc", "TXT", false, "unchecked"),
        ]
    );
    let key = record(&domain, "dkim", 0);
    assert!(
        text(key, "value").starts_with("v=DKIM1; k=rsa; p=") && text(key, "name").ends_with("._domainkey.shop.example")
    );
    let again = world.post("/v1/domains", serde_json::json!({ "name": "shop.example", "stream": "marketing" })).await;
    again.fails_with(422, "validation_failed");
    assert_eq!(again.faults(), ["name"]);
    let faults = world.post("/v1/domains", serde_json::json!({ "name": "localhost", "stream": "x" })).await;
    assert_eq!(faults.faults(), ["name", "stream"]);
}

#[tokio::test]
async fn a_published_key_verifies_and_mismatches_are_reported() {
    let mut world = World::new().await;
    let (path, domain) = registered(&mut world).await;
    let verify = format!("{path}/verify");
    let status = |domain: &Value, purpose, place| text(record(domain, purpose, place), "status").to_owned();
    let (rsa, ed) = (record(&domain, "dkim", 0).clone(), record(&domain, "dkim", 1).clone());

    world.names.publish(text(&rsa, "name"), "v=DKIM1; k=rsa; p=AAAA");
    world.names.fail(text(&ed, "name"));
    let first = world.post(&verify, Value::Null).await.json();
    assert_eq!((status(&first, "dkim", 0), status(&first, "dkim", 1)), ("mismatch".into(), "unchecked".into()));
    assert_eq!(status(&first, "return_path", 0), "missing");
    assert_eq!(record(&first, "dkim", 0)["found"], serde_json::json!(["v=DKIM1; k=rsa; p=AAAA"]));
    assert_eq!(first["status"], "pending");

    world.names.publish(text(&rsa, "name"), &text(&rsa, "value").replace("p=", "p= "));
    world.names.publish("rp.shop.example", "Bounces.example.com.");
    world.names.publish("shop.example", "v=spf1 a:mail.example.com -all");
    world.names.publish("_dmarc.shop.example", "v=DMARC1; p=reject");
    let second = world.post(&verify, Value::Null).await.json();
    for purpose in ["dkim", "return_path", "spf", "dmarc"] {
        assert_eq!(status(&second, purpose, 0), "ok", "{purpose}");
    }
    assert_eq!(
        (&second["status"], &second["verified_at"]),
        (&"verified".into(), &"2023-11-14T22:13:20.000+00:00".into())
    );
    assert_eq!((&second["dkim"][0]["state"], &second["dkim"][1]["state"]), (&"active".into(), &"pending".into()));
    let message = serde_json::json!({ "from": "a@shop.example", "to": "b@example.net", "text": "x" });
    assert_eq!(world.send(message).await.status, 202);
}

#[tokio::test]
async fn a_check_finds_an_inherited_dmarc_record() {
    use crate::domain::dmarc_walk::Discovery;
    use crate::engine::domains::dmarc_record_of;

    let mut world = World::new().await;
    let body = serde_json::json!({ "name": "a.b.shop.example", "stream": "transactional" });
    let path = world.post("/v1/domains", body).await.header("location").to_owned();
    let id = path.rsplit('/').next().unwrap().parse().unwrap();
    let found = async |world: &mut World| {
        assert_eq!(world.post(&format!("{path}/verify"), Value::Null).await.status, 200);
        match dmarc_record_of(&world.engine.domain(world.account, id).unwrap().unwrap()) {
            Discovery::Published(found) => Some(found.at),
            _ => None,
        }
    };
    assert_eq!(found(&mut world).await, None);
    world.names.publish("_dmarc.shop.example", "v=DMARC1; p=reject");
    assert_eq!(found(&mut world).await.as_deref(), Some("_dmarc.shop.example"));
    let shown = world.get(&path).await.json();
    let ours = "v=DMARC1; p=none; rua=mailto:dmarc@rp.a.b.shop.example";
    assert_eq!(text(record(&shown, "dmarc", 0), "value"), ours, "the value never depends on what is inherited");
    world.names.fail("_dmarc.b.shop.example");
    assert_eq!(found(&mut world).await, None, "the walk stops at a failed lookup");
    world.names.publish("_dmarc.a.b.shop.example", "v=DMARC1; p=none");
    assert_eq!(found(&mut world).await.as_deref(), Some("_dmarc.a.b.shop.example"));
    let shown = world.get(&path).await.json();
    assert_eq!(shown["records"].as_array().unwrap().len(), 5, "{shown}");
}

#[tokio::test]
async fn only_one_account_at_a_time_can_verify_a_domain() {
    let mut world = World::new().await;
    let (path, domain) = registered(&mut world).await;
    let rsa = record(&domain, "dkim", 0);
    world.names.publish(text(rsa, "name"), text(rsa, "value"));
    assert_eq!(world.post(&format!("{path}/verify"), Value::Null).await.json()["status"], "verified");

    let (_, stranger) = world.stranger().await;
    world.client.get(&path, &stranger).await.fails_with(404, "not_found");
    let body = serde_json::json!({ "name": "shop.example", "stream": "transactional" });
    let theirs = world.ask_as(&stranger, "POST /v1/domains", "", &body).await;
    let domain = theirs.json();
    let line = format!("POST {}/verify", theirs.header("location"));
    world.ask_as(&stranger, &line, "", &Value::Null).await.fails_with(409, "conflict");
    let rsa = record(&domain, "dkim", 0);
    world.names.publish(text(rsa, "name"), text(rsa, "value"));
    world.ask_as(&stranger, &line, "", &Value::Null).await.fails_with(409, "conflict");
}

#[tokio::test]
async fn a_domain_without_checks_stays_verified() {
    let mut world = World::new().await;
    let page = world.get("/v1/domains").await.json();
    let id = text(&page["data"][0], "id").to_owned();
    let looked = world.post(&format!("/v1/domains/{id}/verify"), Value::Null).await.json();
    assert_eq!((&looked["status"], &looked["next_check_at"]), (&"verified".into(), &Value::Null));
    assert!(looked["dkim"].as_array().unwrap().iter().all(|key| key["state"] == "active"));
}

#[tokio::test]
async fn only_the_stream_of_a_domain_can_change() {
    let mut world = World::new().await;
    let (path, _) = registered(&mut world).await;
    let changed = world.patch(&path, serde_json::json!({ "stream": "marketing" })).await;
    assert_eq!((changed.status, &changed.json()["stream"]), (200, &"marketing".into()));
    assert_eq!(world.get(&path).await.json(), changed.json());
    let faults = world.patch(&path, serde_json::json!({ "stream": "x", "name": "y.example" })).await;
    assert_eq!(faults.faults(), ["name", "stream"]);
    world.patch("/v1/domains/dom_x", serde_json::json!({ "nothing": 1 })).await.fails_with(404, "not_found");
}

#[tokio::test]
async fn a_key_of_one_stream_cannot_change_a_domain_of_the_other() {
    let mut world = World::new().await;
    let (path, before) = registered(&mut world).await;
    let limited = world.new_key(world.account, Some(Stream::Marketing), Scopes::ALL).await;
    let body = |stream: &str| serde_json::json!({ "name": "own.example", "stream": stream });
    for (line, body) in [
        ("POST /v1/domains".to_owned(), body("transactional")),
        (format!("PATCH {path}"), serde_json::json!({ "stream": "marketing" })),
        (format!("PATCH {path}"), serde_json::json!({})),
        (format!("POST {path}/verify"), Value::Null),
        (format!("POST {path}/rotate-dkim"), Value::Null),
        (format!("DELETE {path}"), Value::Null),
    ] {
        world.ask_as(&limited, &line, "", &body).await.fails_with(403, "stream_forbidden");
    }
    assert_eq!(world.get(&path).await.json(), before, "nothing has changed");

    let own = world.ask_as(&limited, "POST /v1/domains", "", &body("marketing")).await.header("location").to_owned();
    let away = serde_json::json!({ "stream": "transactional" });
    world.ask_as(&limited, &format!("PATCH {own}"), "", &away).await.fails_with(403, "stream_forbidden");
    for line in [format!("POST {own}/verify"), format!("POST {own}/rotate-dkim")] {
        assert_eq!(world.ask_as(&limited, &line, "", &Value::Null).await.status, 200, "{line}");
    }
    let stays =
        world.ask_as(&limited, &format!("PATCH {own}"), "", &serde_json::json!({ "stream": "marketing" })).await;
    assert_eq!(stays.status, 200);
    assert_eq!(world.ask_as(&limited, &format!("DELETE {own}"), "", &Value::Null).await.status, 204);
}

#[tokio::test]
async fn a_deleted_domain_frees_its_name() {
    let mut world = World::new().await;
    let (path, domain) = registered(&mut world).await;
    let rsa = record(&domain, "dkim", 0);
    world.names.publish(text(rsa, "name"), text(rsa, "value"));
    world.post(&format!("{path}/verify"), Value::Null).await;
    let (_, stranger) = world.stranger().await;
    world.ask_as(&stranger, &format!("DELETE {path}"), "", &Value::Null).await.fails_with(404, "not_found");
    assert_eq!(world.delete(&path).await.status, 204);
    world.get(&path).await.fails_with(404, "not_found");
    world.delete(&path).await.fails_with(404, "not_found");
    let message = serde_json::json!({ "from": "a@shop.example", "to": "b@example.net", "text": "x" });
    assert_eq!(world.send(message).await.status, 422);

    let body = serde_json::json!({ "name": "shop.example", "stream": "transactional" });
    let theirs = world.ask_as(&stranger, "POST /v1/domains", "", &body).await;
    let domain = theirs.json();
    let rsa = record(&domain, "dkim", 0);
    world.names.publish(text(rsa, "name"), text(rsa, "value"));
    let line = format!("POST {}/verify", theirs.header("location"));
    assert_eq!(world.ask_as(&stranger, &line, "", &Value::Null).await.json()["status"], "verified");
    registered(&mut world).await;
}

#[tokio::test]
async fn new_keys_wait_for_their_records_and_old_ones_retire_for_seven_days() {
    let mut world = World::new().await;
    let (path, domain) = registered(&mut world).await;
    let (verify, rotate) = (format!("{path}/verify"), format!("{path}/rotate-dkim"));
    let publish = |world: &World, record: &Value| world.names.publish(text(record, "name"), text(record, "value"));
    publish(&world, record(&domain, "dkim", 0));
    world.post(&verify, Value::Null).await;
    let states = |domain: &Value| -> Vec<String> {
        domain["dkim"].as_array().unwrap().iter().map(|key| text(key, "state").to_owned()).collect()
    };

    let rotated = world.post(&rotate, Value::Null).await;
    assert_eq!(rotated.status, 200, "{}", rotated.body);
    let rotated = rotated.json();
    assert_eq!(states(&rotated), ["active", "pending", "pending"]);
    assert_eq!(rotated["next_check_at"], "2023-11-14T22:15:20.000+00:00");
    assert_eq!(
        (record(&rotated, "dkim", 0)["required"] == true, record(&rotated, "dkim", 1)["required"] == true),
        (true, false)
    );
    assert_ne!(rotated["dkim"][1]["selector"], domain["dkim"][0]["selector"]);
    let looked = world.post(&verify, Value::Null).await.json();
    assert_eq!((&looked["status"], states(&looked)), (&"verified".into(), states(&rotated)));
    assert_eq!(looked["next_check_at"], "2023-11-14T23:13:20.000+00:00");

    publish(&world, record(&rotated, "dkim", 1));
    publish(&world, record(&rotated, "dkim", 2));
    let looked = world.post(&verify, Value::Null).await.json();
    assert_eq!(
        (&looked["status"], states(&looked)),
        (&"verified".into(), ["retiring", "active", "active"].map(str::to_owned).to_vec())
    );
    let message = serde_json::json!({ "from": "a@shop.example", "to": "b@example.net", "text": "x" });
    let sent = world.send(message).await.header("location").to_owned();
    let raw = world.get(&format!("{sent}/raw")).await.body;
    assert!(raw.contains(text(&rotated["dkim"][1], "selector")) && raw.contains(text(&rotated["dkim"][2], "selector")));
    assert!(!raw.contains(text(&rotated["dkim"][0], "selector")));

    world.advance(7 * DAY - Duration::from_secs(1));
    assert_eq!(states(&world.post(&verify, Value::Null).await.json()).len(), 3);
    world.advance(Duration::from_secs(1));
    assert_eq!(states(&world.post(&verify, Value::Null).await.json()), ["active", "active"]);
    let again = world.post(&rotate, Value::Null).await.json();
    let selectors: Vec<_> = again["dkim"].as_array().unwrap().iter().map(|key| text(key, "selector")).collect();
    assert!(selectors.iter().all(|one| selectors.iter().filter(|other| *other == one).count() == 1), "{selectors:?}");
}

#[tokio::test]
async fn a_third_verification_in_flight_is_refused() {
    let mut world = World::new().await;
    let (path, domain) = registered(&mut world).await;
    let verify = format!("{path}/verify");
    let (engine, account, id) = (Arc::clone(&world.engine), world.account, domain["id"].as_str().unwrap());
    world.names.1.store(true, Relaxed);
    {
        let mut first = pin!(engine.verify_domain(account, id.parse().unwrap()));
        let mut second = pin!(engine.verify_domain(account, id.parse().unwrap()));
        let is_pending = poll_fn(|context| {
            let polled = [first.as_mut().poll(context), second.as_mut().poll(context)];
            Poll::Ready(polled.iter().all(Poll::is_pending))
        });
        assert!(is_pending.await);
        let refused = world.post(&verify, Value::Null).await;
        assert_eq!(refused.header("retry-after"), "5");
        refused.fails_with(429, "rate_limited");
    }
    world.names.1.store(false, Relaxed);
    assert_eq!(world.post(&verify, Value::Null).await.status, 200);
}
