//! Sending domains: registering one, and what a look at its records finds.

use super::*;

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
async fn a_new_domain_is_pending_and_tells_its_records() {
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
async fn a_published_key_verifies_and_what_is_wrong_is_told() {
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
async fn a_domain_is_verified_by_one_account_at_a_time() {
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
    let rsa = record(&domain, "dkim", 0);
    world.names.publish(text(rsa, "name"), text(rsa, "value"));
    let line = format!("POST {}/verify", theirs.header("location"));
    world.ask_as(&stranger, &line, "", &Value::Null).await.fails_with(409, "conflict");
}

#[tokio::test]
async fn a_domain_that_is_never_looked_at_stays_verified() {
    let mut world = World::new().await;
    let page = world.get("/v1/domains").await.json();
    let id = text(&page["data"][0], "id").to_owned();
    let looked = world.post(&format!("/v1/domains/{id}/verify"), Value::Null).await.json();
    assert_eq!((&looked["status"], &looked["next_check_at"]), (&"verified".into(), &Value::Null));
    assert!(looked["dkim"].as_array().unwrap().iter().all(|key| key["state"] == "active"));
}
