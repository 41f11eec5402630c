//! Tests of scheduled and requested rotation of a domain's DKIM keys.

use serde_json::json;

use super::*;
use crate::base::id::DomainId;
use crate::domain::audit::Actor;
use crate::engine::audit::Behalf;
use crate::store::row::domain::DomainRow;
use crate::store::timer::{Timer, TimerKind};

fn records<'a>(domain: &'a Value, state: &'a str) -> impl Iterator<Item = &'a Value> {
    let keys = domain["dkim"].as_array().unwrap().iter().filter(move |key| key["state"] == state);
    keys.map(|key| {
        let name = format!("{}._domainkey.", key["selector"].as_str().unwrap());
        let mut records = domain["records"].as_array().unwrap().iter();
        records.find(|record| record["name"].as_str().unwrap().starts_with(&name)).unwrap()
    })
}

fn states(domain: &Value) -> Vec<&str> {
    domain["dkim"].as_array().unwrap().iter().map(|key| key["state"].as_str().unwrap()).collect()
}

fn selectors(domain: &Value, state: &str) -> Vec<String> {
    let keys = domain["dkim"].as_array().unwrap().iter().filter(|key| key["state"] == state);
    keys.map(|key| key["selector"].as_str().unwrap().to_owned()).collect()
}

impl World {
    fn publish(&self, domain: &Value, state: &str) {
        for record in records(domain, state) {
            self.names.publish(record["name"].as_str().unwrap(), record["value"].as_str().unwrap());
        }
    }

    fn withdraw(&self, domain: &Value, state: &str) {
        for record in records(domain, state) {
            self.names.0.lock().unwrap().remove(record["name"].as_str().unwrap());
        }
    }

    /// Creates a verified domain whose keys rotate every 30 days, with a standby pair whose records are published.
    async fn rotating(&mut self) -> (String, Value) {
        let made = self.post("/v1/domains", json!({ "name": "shop.example", "stream": "transactional" })).await;
        let path = made.header("location").to_owned();
        self.publish(&made.json(), "pending");
        let verified = self.verified(&path).await;
        assert_eq!((&verified["status"], states(&verified)), (&"verified".into(), vec!["active", "active"]));
        let scheduled = self.patch(&path, json!({ "dkim_rotation_days": 30 })).await.json();
        assert_eq!(states(&scheduled), ["active", "active", "pending", "pending"]);
        self.publish(&scheduled, "pending");
        let stands = self.verified(&path).await;
        assert_eq!(states(&stands), ["active", "active", "standby", "standby"]);
        (path, stands)
    }

    async fn verified(&mut self, path: &str) -> Value {
        self.post(&format!("{path}/verify"), Value::Null).await.json()
    }

    fn domain_row(&self, path: &str) -> DomainRow {
        let id: DomainId = path.rsplit_once('/').unwrap().1.parse().unwrap();
        self.engine.domain(self.account, id).unwrap().unwrap()
    }

    /// Returns the rotation timers of the domain in the store.
    fn rotation_timers(&self) -> Vec<Timestamp> {
        use crate::store::read::{Order, Read};
        use crate::store::schema::Table;
        let keys =
            self.engine.store.snapshot().unwrap().keys(Table::Timers, &[], &[255; 64], Order::Ascending, usize::MAX);
        let timers = keys.unwrap().into_iter().filter_map(|key| Timer::decode(&key));
        timers.filter(|timer| timer.kind == TimerKind::DkimRotation).map(|timer| timer.due).collect()
    }

    /// Returns the selectors that sign a message now.
    async fn signing(&mut self) -> String {
        let message = json!({ "from": "a@shop.example", "to": "b@example.net", "text": "x" });
        let sent = self.send(message).await.header("location").to_owned();
        self.get(&format!("{sent}/raw")).await.body
    }
}

#[tokio::test]
async fn a_schedule_is_0_or_30_to_730_days_and_creates_a_pending_pair() {
    let mut world = World::new().await;
    let made = world.post("/v1/domains", json!({ "name": "shop.example", "stream": "transactional" })).await;
    let path = made.header("location").to_owned();
    assert_eq!((&made.json()["dkim_rotation_days"], &made.json()["next_rotation_at"]), (&json!(0), &Value::Null));
    for days in [json!(1), json!(29), json!(731), json!(-30), json!(30.5), json!("30"), json!(null)] {
        let refused = world.patch(&path, json!({ "dkim_rotation_days": days })).await;
        refused.fails_with(422, "validation_failed");
        assert_eq!(refused.faults(), ["dkim_rotation_days"]);
    }
    let scheduled = world.patch(&path, json!({ "dkim_rotation_days": 730, "stream": "marketing" })).await.json();
    assert_eq!((&scheduled["dkim_rotation_days"], &scheduled["stream"]), (&json!(730), &json!("marketing")));
    assert_eq!(scheduled["next_rotation_at"], "2025-11-13T22:13:20.000+00:00");
    assert_eq!(states(&scheduled), ["pending"; 4]);
    let required = scheduled["records"].as_array().unwrap().iter().filter(|record| record["required"] == true);
    assert_eq!(required.count(), 1, "the first key to sign");
    // A repeated request changes nothing.
    world.advance(DAY);
    let again = world.patch(&path, json!({ "dkim_rotation_days": 730 })).await.json();
    assert_eq!((&again["next_rotation_at"], &again["dkim"]), (&scheduled["next_rotation_at"], &scheduled["dkim"]));
    let shorter = world.patch(&path, json!({ "dkim_rotation_days": 30 })).await.json();
    assert_eq!(
        (&shorter["next_rotation_at"], &shorter["dkim"]),
        (&json!("2023-12-15T22:13:20.000+00:00"), &scheduled["dkim"])
    );
    let ended = world.patch(&path, json!({ "dkim_rotation_days": 0 })).await.json();
    assert_eq!((states(&ended), &ended["next_rotation_at"]), (vec!["pending"; 2], &Value::Null));
    assert!(world.rotation_timers().is_empty());
    // No selector is reused, since its record may still be published.
    let renewed = world.patch(&path, json!({ "dkim_rotation_days": 30 })).await.json();
    assert!(renewed["dkim"][2]["selector"].as_str().unwrap().ends_with("-r3"), "{renewed}");
    assert_eq!(world.delete(&path).await.status, 204);
    assert!(world.rotation_timers().is_empty());
}

#[tokio::test]
async fn a_published_pair_is_standby_and_rotates_when_due() {
    let mut world = World::new().await;
    let (path, stands) = world.rotating().await;
    let (old, next) = (selectors(&stands, "active"), selectors(&stands, "standby"));
    let signed = world.signing().await;
    assert!(old.iter().all(|selector| signed.contains(selector)) && !next.iter().any(|one| signed.contains(one)));
    assert_eq!(world.rotation_timers(), [world.clock.now() + 30 * DAY]);
    world.advance(30 * DAY - Duration::from_secs(1));
    assert_eq!(states(&world.verified(&path).await), ["active", "active", "standby", "standby"]);
    world.advance(Duration::from_secs(1));
    let rotated = world.verified(&path).await;
    assert_eq!(states(&rotated), ["retiring", "retiring", "active", "active", "pending", "pending"]);
    assert_eq!((selectors(&rotated, "active"), &rotated["status"]), (next.clone(), &"verified".into()));
    assert_eq!(rotated["next_rotation_at"], (world.clock.now() + 30 * DAY).to_string());
    let signed = world.signing().await;
    assert!(next.iter().all(|selector| signed.contains(selector)) && !old.iter().any(|one| signed.contains(one)));
    world.advance(7 * DAY);
    assert_eq!(states(&world.verified(&path).await), ["active", "active", "pending", "pending"]);
}

#[tokio::test]
async fn a_rotation_waits_until_the_next_record_is_published() {
    let mut world = World::new().await;
    let (path, stands) = world.rotating().await;
    world.withdraw(&stands, "standby");
    world.advance(31 * DAY);
    let waits = world.verified(&path).await;
    assert_eq!(states(&waits), ["active", "active", "standby", "standby"]);
    assert_eq!(waits["next_rotation_at"], stands["next_rotation_at"]);
    assert_eq!(world.rotation_timers(), [world.clock.now() + DAY], "it is retried daily");
    records(&stands, "standby").for_each(|record| world.names.fail(record["name"].as_str().unwrap()));
    assert_eq!(states(&world.verified(&path).await), ["active", "active", "standby", "standby"]);
    world.publish(&stands, "standby");
    assert_eq!(states(&world.verified(&path).await)[..4], ["retiring", "retiring", "active", "active"]);
}

#[tokio::test]
async fn a_standby_replaces_a_key_whose_record_is_missing() {
    let mut world = World::new().await;
    let (path, stands) = world.rotating().await;
    let rsa = records(&stands, "active").next().unwrap()["name"].as_str().unwrap().to_owned();
    world.names.fail(&rsa);
    let failed = world.verified(&path).await;
    assert_eq!(states(&failed), ["active", "active", "standby", "standby"], "a failed lookup changes nothing");
    world.names.0.lock().unwrap().remove(&rsa);
    world.advance(DAY);
    let taken = world.verified(&path).await;
    assert_eq!(states(&taken), ["retiring", "retiring", "active", "active", "pending", "pending"]);
    assert_eq!((&taken["status"], &taken["verified_at"]), (&"verified".into(), &stands["verified_at"]));
    assert_eq!(taken["next_rotation_at"], (world.clock.now() + 30 * DAY).to_string());
    // The next pair's records are not found yet, so it does not take over.
    world.withdraw(&taken, "active");
    let failing = world.verified(&path).await;
    assert_eq!((&failing["status"], states(&failing)), (&"failing".into(), states(&taken)));
}

#[tokio::test]
async fn a_requested_rotation_uses_the_standby_once() {
    let mut world = World::new().await;
    let (path, stands) = world.rotating().await;
    let rotate = format!("{path}/rotate-dkim");
    world.advance(DAY);
    let rotated = world.post(&rotate, Value::Null).await;
    assert_eq!(rotated.status, 200, "{}", rotated.body);
    let rotated = rotated.json();
    assert_eq!(states(&rotated), ["retiring", "retiring", "active", "active", "pending", "pending"]);
    assert_eq!(selectors(&rotated, "active"), selectors(&stands, "standby"));
    assert_eq!(rotated["next_rotation_at"], (world.clock.now() + 30 * DAY).to_string());
    // The next pair was not found yet: a second request changes nothing, and the pair that is found later becomes
    // standby.
    assert_eq!(world.post(&rotate, Value::Null).await.json()["dkim"], rotated["dkim"]);
    world.publish(&rotated, "pending");
    assert_eq!(states(&world.verified(&path).await)[2..], ["active", "active", "standby", "standby"]);
}

#[tokio::test]
async fn a_requested_rotation_without_the_record_becomes_due() {
    let mut world = World::new().await;
    let (path, stands) = world.rotating().await;
    world.withdraw(&stands, "standby");
    let waits = world.post(&format!("{path}/rotate-dkim"), Value::Null).await.json();
    assert_eq!(states(&waits), ["active", "active", "standby", "standby"]);
    assert_eq!(waits["next_rotation_at"], world.clock.now().to_string());
    world.publish(&stands, "standby");
    assert_eq!(states(&world.verified(&path).await)[..4], ["retiring", "retiring", "active", "active"]);
}

#[tokio::test]
async fn only_the_rsa_record_of_the_next_pair_must_be_published() {
    let mut world = World::new().await;
    let (path, stands) = world.rotating().await;
    let ed25519 = records(&stands, "standby").nth(1).unwrap()["name"].as_str().unwrap().to_owned();
    world.names.0.lock().unwrap().remove(&ed25519);
    world.advance(30 * DAY);
    let rotated = world.verified(&path).await;
    assert_eq!(states(&rotated), ["retiring", "retiring", "active", "pending", "pending", "pending"]);
    world.publish(&stands, "standby");
    let whole = world.verified(&path).await;
    assert_eq!(states(&whole), ["retiring", "retiring", "active", "active", "pending", "pending"]);
}

#[tokio::test]
async fn a_domain_without_checks_keeps_its_rotation_and_signs_with_published_keys() {
    let mut world = World::new().await;
    let page = world.get("/v1/domains").await.json();
    let path = format!("/v1/domains/{}", page["data"][0]["id"].as_str().unwrap());
    let scheduled = world.patch(&path, json!({ "dkim_rotation_days": 30 })).await.json();
    assert_eq!(states(&scheduled), ["active", "active", "pending", "pending"]);
    assert_eq!(world.rotation_timers(), [world.clock.now() + 30 * DAY]);
    assert_eq!(states(&world.post(&format!("{path}/rotate-dkim"), Value::Null).await.json()), states(&scheduled));
    world.advance(30 * DAY);
    let due = world.verified(&path).await;
    assert_eq!((states(&due), &due["next_check_at"]), (states(&scheduled), &Value::Null));
    assert_eq!(world.rotation_timers(), [world.clock.now() + DAY]);
    world.publish(&scheduled, "pending");
    world.advance(DAY);
    // Simulates the domain's timer.
    let id = path.rsplit_once('/').unwrap().1.parse().unwrap();
    world.engine.check_domain(Behalf::new(world.account, Actor::Service), id).await.unwrap();
    let rotated = world.get(&path).await.json();
    assert_eq!(states(&rotated), ["retiring", "retiring", "active", "active", "pending", "pending"]);
    assert_eq!((&rotated["status"], &rotated["next_check_at"]), (&"verified".into(), &Value::Null));
}

#[tokio::test]
async fn lost_records_are_tracked_until_they_are_back() {
    use crate::domain::sending_domain::RecordPurpose::{Dmarc, Spf};
    let mut world = World::new().await;
    let (path, _) = world.rotating().await;
    assert!(world.domain_row(&path).lost.is_empty(), "a record that was never published is not lost");
    world.names.publish("shop.example", "v=spf1 a:mail.example.com -all");
    world.names.publish("_dmarc.shop.example", "v=DMARC1; p=reject");
    world.verified(&path).await;
    world.names.0.lock().unwrap().retain(|name, _| name != "shop.example");
    world.names.fail("_dmarc.shop.example");
    world.verified(&path).await;
    assert_eq!(world.domain_row(&path).lost, [Spf]);
    world.names.0.lock().unwrap().remove("_dmarc.shop.example");
    world.verified(&path).await;
    assert_eq!(world.domain_row(&path).lost, [Spf, Dmarc]);
    world.names.publish("shop.example", "v=spf1 a:mail.example.com -all");
    world.verified(&path).await;
    assert_eq!(world.domain_row(&path).lost, [Dmarc]);
    // Receivers ignore an invalid record.
    world.names.publish("_dmarc.shop.example", "v=DMARC1; p=refuse");
    world.verified(&path).await;
    assert_eq!(world.domain_row(&path).lost, [Dmarc]);
    world.names.publish("_dmarc.shop.example", "v=DMARC1; p=reject");
    world.verified(&path).await;
    assert!(world.domain_row(&path).lost.is_empty());
}
