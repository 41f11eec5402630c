//! Tests of `GET /v1/domains/{id}/checklist`: every item, from DNS and recent mail.

use serde_json::json;

use super::*;
use crate::engine::reverse_dns::DirectRelay;

const IDS: [&str; 13] = [
    "spf",
    "dkim",
    "dmarc",
    "alignment",
    "dmarc_reports",
    "dmarc_observed",
    "one_click",
    "reverse_dns",
    "tls",
    "complaints",
    "bounces",
    "replies",
    "bimi",
];

fn status<'a>(list: &'a Value, id: &str) -> &'a str {
    let item = list["items"].as_array().unwrap().iter().find(|item| item["id"] == id).unwrap();
    assert_eq!(item["remedy"].is_null(), !["warn", "fail"].contains(&item["status"].as_str().unwrap()), "{item}");
    item["status"].as_str().unwrap()
}

impl World {
    async fn with_direct_relay() -> Self {
        let direct_relays =
            vec![DirectRelay::new("mail.example.com".to_owned(), vec![[192, 0, 2, 1].into()], |_| true)];
        let settings = Settings { direct_relays, ..Settings::for_tests() };
        Self::set(settings, HttpLimits::default(), Streams::default()).await
    }

    /// Registers a domain and returns its path and its record.
    async fn checked(&mut self, stream: &str) -> (String, Value) {
        let made = self.post("/v1/domains", json!({ "name": "shop.example", "stream": stream })).await;
        (made.header("location").to_owned(), made.json())
    }

    async fn checklist(&mut self, path: &str) -> Value {
        self.get(&format!("{path}/checklist")).await.json()
    }

    fn publish_all(&self, domain: &Value) {
        for record in domain["records"].as_array().unwrap() {
            self.names.publish(record["name"].as_str().unwrap(), record["value"].as_str().unwrap());
        }
        self.names.publish("MX shop.example", "mx.example.net");
        self.names.publish("PTR 192.0.2.1", "mail.example.com");
        self.names.publish("A mail.example.com", "192.0.2.1");
    }
}

#[tokio::test]
async fn dns_items_are_unknown_before_the_first_check() {
    let mut world = World::with_direct_relay().await;
    let (path, domain) = world.checked("transactional").await;
    world.names.publish("PTR 192.0.2.1", "mail.example.com");
    world.names.publish("A mail.example.com", "192.0.2.1");
    let list = world.checklist(&path).await;
    assert_eq!((&list["domain"], &list["checked_at"]), (&json!("shop.example"), &Value::Null));
    let ids: Vec<_> = list["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect();
    assert_eq!(ids, IDS);
    for id in IDS {
        let expected = match id {
            "one_click" => "na",
            "reverse_dns" => "pass",
            _ => "unknown",
        };
        assert_eq!(status(&list, id), expected, "{id}");
    }
    assert_eq!(list["items"][0]["required_by"], json!(["google", "yahoo", "microsoft"]));
    assert_eq!(list["items"][12]["required_by"], json!([]));

    world.publish_all(&domain);
    world.post(&format!("{path}/verify"), Value::Null).await;
    let list = world.checklist(&path).await;
    assert_eq!(list["checked_at"], "2023-11-14T22:13:20.000+00:00");
    for id in ["spf", "dkim", "dmarc", "alignment", "replies"] {
        assert_eq!(status(&list, id), "pass", "{id}: {list}");
    }
    assert_eq!((status(&list, "bimi"), status(&list, "dmarc_reports")), ("na", "pass"));
    assert_eq!(world.get(&format!("{path}/checklist?x=1")).await.status, 422);
}

#[tokio::test]
async fn every_dns_problem_is_an_item_with_a_remedy() {
    let mut world = World::with_direct_relay().await;
    let (path, domain) = world.checked("transactional").await;
    let verify = format!("{path}/verify");
    world.post(&verify, Value::Null).await;
    let list = world.checklist(&path).await;
    for id in ["spf", "dkim", "dmarc", "alignment", "replies", "reverse_dns"] {
        assert_eq!(status(&list, id), "fail", "{id}: {list}");
    }
    world.publish_all(&domain);
    world.names.publish("shop.example", "v=spf1 ip4:198.51.100.9 -all");
    world.post(&verify, Value::Null).await;
    let list = world.checklist(&path).await;
    let spf = &list["items"][0];
    let remedy = "Add a:mail.example.com as its first term, or ip4:192.0.2.1.";
    assert_eq!((&spf["status"], &spf["remedy"]), (&json!("warn"), &json!(remedy)));
    assert!(spf["seen"].as_str().unwrap().contains("pass from 192.0.2.1:"), "{spf}");
    // Eleven lookups, through an include that is named twice.
    let include = "v=spf1 a a:b.example a:c.example mx -all";
    world.names.publish("_spf.example", include);
    world.names.publish("shop.example", "v=spf1 a:mail.example.com include:_spf.example include:_spf.example -all");
    world.names.publish("_dmarc.shop.example", "v=DMARC1; p=reject; rua=mailto:dmarc@rp.shop.example");
    world.names.publish("default._bimi.shop.example", "v=BIMI1; l=https://shop.example/l.svg");
    world.names.0.lock().unwrap().remove("rp.shop.example");
    world.names.publish("MX shop.example", "");
    world.post(&verify, Value::Null).await;
    let list = world.checklist(&path).await;
    assert!(list["items"][0]["seen"].as_str().unwrap().contains("11 DNS lookups"), "{list}");
    for (id, expected) in [
        ("spf", "fail"),
        ("dmarc", "pass"),
        ("dmarc_reports", "pass"),
        ("alignment", "warn"),
        ("replies", "fail"),
        ("bimi", "warn"),
        // A requested check ignores the remembered names.
        ("reverse_dns", "pass"),
    ] {
        assert_eq!(status(&list, id), expected, "{id}: {list}");
    }
}

#[tokio::test]
async fn a_record_of_a_parent_domain_is_inherited() {
    let mut world = World::new().await;
    let made = world.post("/v1/domains", json!({ "name": "news.shop.example", "stream": "marketing" })).await;
    let path = made.header("location").to_owned();
    world.names.publish("_dmarc.shop.example", "v=DMARC1; p=none");
    world.post(&format!("{path}/verify"), Value::Null).await;
    let list = world.checklist(&path).await;
    assert_eq!(status(&list, "dmarc"), "pass");
    assert!(list["items"][2]["seen"].as_str().unwrap().contains("_dmarc.shop.example"), "{list}");
    // The text to publish keeps the policy that applies to the name.
    world.names.publish("_dmarc.shop.example", "v=DMARC1; p=reject; sp=quarantine");
    world.post(&format!("{path}/verify"), Value::Null).await;
    let list = world.checklist(&path).await;
    let wanted = "Publish: v=DMARC1; p=quarantine; rua=mailto:dmarc@rp.news.shop.example";
    assert_eq!((status(&list, "dmarc_reports"), &list["items"][4]["remedy"]), ("warn", &json!(wanted)));
}

#[tokio::test]
async fn the_mail_of_seven_days_decides_the_mail_items() {
    use crate::domain::event::{Authenticated, TlsFacts, TlsPolicy};
    let mut world = World::new().await;
    let page = world.get("/v1/domains").await.json();
    let news = page["data"].as_array().unwrap().iter().find(|domain| domain["stream"] == "marketing").unwrap();
    let path = format!("/v1/domains/{}", news["id"].as_str().unwrap());
    assert_eq!(status(&world.checklist(&path).await, "one_click"), "unknown");
    let tls = TlsFacts {
        version: "TLSv1.3".to_owned(),
        cipher: "TLS_AES_256_GCM_SHA384".to_owned(),
        authenticated: Authenticated::None,
        policy: TlsPolicy::Opportunistic,
    };
    let send = async |world: &mut World, n: usize, url: &str, end: TransferEnd| {
        let mut message = letter(&format!("n{n}@example.net"));
        message["from"] = "a@news.example.test".into();
        message["unsubscribe_url"] = url.into();
        let id = world.send(message).await.json()["id"].as_str().unwrap().parse().unwrap();
        let facts = AttemptFacts { tls: Some(tls.clone()), ..AttemptFacts::default() };
        world.settle(id, end, facts).await;
    };
    for n in 0..100 {
        let end = if n < 98 { TransferEnd::Delivered } else { hard_bounce() };
        send(&mut world, n, "https://news.example.test/u", end).await;
    }
    let list = world.checklist(&path).await;
    for (id, expected) in [("one_click", "pass"), ("tls", "pass"), ("bounces", "warn"), ("complaints", "unknown")] {
        assert_eq!(status(&list, id), expected, "{id}: {list}");
    }
    send(&mut world, 100, "http://news.example.test/u", TransferEnd::Delivered).await;
    assert_eq!(status(&world.checklist(&path).await, "one_click"), "fail");
    world.advance(8 * DAY);
    let list = world.checklist(&path).await;
    for id in ["one_click", "tls", "bounces"] {
        assert_eq!(status(&list, id), "unknown", "{id}: {list}");
    }
}
