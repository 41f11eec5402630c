//! Tests of idempotency keys (contract 3): their binding, its content, and their release.

use std::sync::mpsc;

use serde::{Deserialize, Serialize};

use super::*;
use crate::store::error::OpError;
use crate::store::op::{Infallible, Op};
use crate::store::tables::Tables;

const KEY: &str = "Idempotency-Key: order-1\r\n";

/// Blocks the writer until it is released, so that requests accepted meanwhile are in progress.
#[derive(Serialize, Deserialize)]
struct Hold {
    #[serde(skip)]
    until: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Op for Hold {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, _: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        if let Some(held) = self.until.lock().unwrap().take() {
            // The operation ends when the test releases it or is over.
            let _let_go = held.recv();
        }
        Ok(())
    }
}

pub(super) fn hold(world: &World) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel();
    world.engine.store.post(Hold { until: Mutex::new(Some(held)) }, drop);
    release
}

impl Reply {
    #[track_caller]
    fn replays(&self, first: &Self) {
        assert_eq!((self.status, &self.body), (202, &first.body));
        assert_eq!(self.header("idempotent-replay"), "true");
        for name in ["location", "content-type", "content-length"] {
            assert_eq!(self.header(name), first.header(name), "{name}");
        }
    }

    #[track_caller]
    fn is_new(&self) {
        assert_eq!((self.status, self.header("idempotent-replay")), (202, ""), "{}", self.body);
    }
}

async fn count(world: &mut World) -> usize {
    world.get("/v1/messages?limit=100").await.json()["data"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_key_is_bound_for_exactly_24_hours() {
    let mut world = World::new().await;
    let first = world.send_with(KEY, &letter("a@example.net")).await;
    first.is_new();
    world.advance(DAY - Duration::from_secs(1));
    world.send_with(KEY, &letter("a@example.net")).await.replays(&first);
    world.send_with(KEY, &letter("b@example.net")).await.fails_with(409, "idempotency_mismatch");
    world.advance(Duration::from_millis(999));
    world.send_with(KEY, &letter("a@example.net")).await.replays(&first);
    world.advance(Duration::from_millis(1));
    let second = world.send_with(KEY, &letter("a@example.net")).await;
    second.is_new();
    assert_ne!(second.json()["id"], first.json()["id"]);
    // The key is bound again, for another 24 hours.
    world.advance(DAY - Duration::from_millis(1));
    world.send_with(KEY, &letter("a@example.net")).await.replays(&second);
    assert_eq!(count(&mut world).await, 2);
}

#[tokio::test]
async fn a_replay_has_the_current_quota_and_rate() {
    let mut world = World::new().await;
    let first = world.send_with(KEY, &letter("a@example.net")).await;
    world.sent_to("b@example.net").await;
    let quota = |reply: &Reply| {
        ["window", "limit", "remaining", "reset"]
            .map(|name| reply.header(&format!("x-service-quota-{name}")).to_owned())
    };
    assert_eq!(quota(&first), ["hour", "10000", "9999", "1700002800"]);
    let again = world.send_with(KEY, &letter("a@example.net")).await;
    again.replays(&first);
    assert_eq!(quota(&again), ["hour", "10000", "9998", "1700002800"], "not counted itself");
    assert_eq!(again.header("ratelimit"), "\"key\";r=597;t=60");
    world.advance(Duration::from_secs(3600));
    assert_eq!(quota(&world.send_with(KEY, &letter("a@example.net")).await), ["hour", "10000", "10000", "1700006400"]);
}

#[tokio::test]
async fn a_key_belongs_to_the_account_not_the_api_key() {
    let mut world = World::new().await;
    let second = world.new_key(world.account, None, Scopes::ALL).await;
    let first = world.send_with(KEY, &letter("a@example.net")).await;
    let line = "POST /v1/messages";
    world.ask_as(&second, line, KEY, &letter("a@example.net")).await.replays(&first);
    world.ask_as(&second, line, KEY, &letter("b@example.net")).await.fails_with(409, "idempotency_mismatch");
    // A key that may not send there gets that error only if the message would be sent.
    let marketer = world.new_key(world.account, Some(Stream::Marketing), Scopes::ALL).await;
    world.ask_as(&marketer, line, KEY, &letter("a@example.net")).await.replays(&first);
    let (other, stranger) = world.stranger().await;
    world.engine.create_verified_domain(other, "other.test".parse().unwrap(), Stream::Transactional).await.unwrap();
    let mut own = letter("a@example.net");
    own["from"] = "a@other.test".into();
    world.ask_as(&stranger, line, KEY, &own).await.is_new();
}

#[tokio::test]
async fn bodies_are_compared_after_parsing() {
    let mut world = World::new().await;
    let body = r#"{"from":"a@example.test","to":"b@example.net","text":"Grüße","metadata":{"a":"1","b":"2"}}"#;
    let key = world.key.clone();
    let first = world.client.ask("POST /v1/messages", &key, KEY, body).await;
    first.is_new();
    for same in [
        r#"{"metadata":{"b":"2","a":"1"},"text":"Grüße","to":"b@example.net","from":"a@example.test"}"#,
        "\n{ \"from\" : \"a@example.test\",\t\"to\":\"b@example.net\", \"text\":\"Gr\\u00fc\\u00dfe\",\n\
         \"metadata\":{\"a\":\"\\u0031\",\"b\":\"2\"} }\n",
    ] {
        world.client.ask("POST /v1/messages", &key, KEY, same).await.replays(&first);
    }
    for other in [
        r#"{"from":"a@example.test","to":"b@example.net","text":"grüße","metadata":{"a":"1","b":"2"}}"#,
        r#"{"from":"a@example.test","to":"b@example.net","text":"Grüße","metadata":{"a":"2","b":"1"}}"#,
        r#"{"from":"a@example.test","to":"B@example.net","text":"Grüße","metadata":{"a":"1","b":"2"}}"#,
        r#"{"from":"a@example.test","to":"b@example.net","text":"Grüße","metadata":{"a":"1","b":"2"},"html":null}"#,
    ] {
        let refused = world.client.ask("POST /v1/messages", &key, KEY, other).await;
        refused.fails_with(409, "idempotency_mismatch");
        assert_eq!(refused.header("retry-after"), "", "a retry would not help");
    }
    assert_eq!(count(&mut world).await, 1);
}

#[tokio::test]
async fn a_key_is_in_progress_while_the_first_request_runs() {
    let mut world = World::new().await;
    world.send(letter("first@example.net")).await.is_new();
    let release = hold(&world);
    let (mut one, mut two) = (Client::open(world.address).await, Client::open(world.address).await);
    let body = letter("a@example.net").to_string();
    let key = world.key.clone();
    let mut ones = Box::pin(one.ask("POST /v1/messages", &key, KEY, &body));
    let mut twos = Box::pin(two.ask("POST /v1/messages", &key, KEY, &body));
    // One of the two is blocked at the writer. Whichever it is, the other is answered at once.
    let (refused, running) = tokio::select! {
        reply = &mut ones => (reply, twos),
        reply = &mut twos => (reply, ones),
    };
    refused.fails_with(409, "idempotency_in_progress");
    assert_eq!(refused.header("retry-after"), "1");
    assert!(refused.json().get("errors").is_none());
    let other = world.client.ask("POST /v1/messages", &key, KEY, &letter("b@example.net").to_string()).await;
    other.fails_with(409, "idempotency_in_progress");
    release.send(()).unwrap();
    let first = running.await;
    first.is_new();
    world.send_with(KEY, &letter("a@example.net")).await.replays(&first);
    assert_eq!(count(&mut world).await, 2);
}

#[tokio::test]
async fn only_one_of_many_concurrent_requests_with_one_key_sends() {
    let mut world = World::new().await;
    let asked = (0..32).map(|_| {
        let (address, key) = (world.address, world.key.clone());
        let body = letter("a@example.net").to_string();
        tokio::spawn(async move { Client::open(address).await.ask("POST /v1/messages", &key, KEY, &body).await })
    });
    let mut answers = Vec::new();
    for asked in asked.collect::<Vec<_>>() {
        answers.push(asked.await.unwrap());
    }
    let new: Vec<_> =
        answers.iter().filter(|reply| reply.status == 202 && reply.header("idempotent-replay").is_empty()).collect();
    assert_eq!(new.len(), 1);
    for reply in &answers {
        match reply.status {
            202 => assert_eq!(reply.body, new[0].body),
            _ => reply.fails_with(409, "idempotency_in_progress"),
        }
    }
    assert_eq!(count(&mut world).await, 1);
}

#[tokio::test]
async fn a_retry_after_a_disconnect_does_not_send_twice() {
    let mut world = World::new().await;
    let impatient = world.new_key(world.account, None, Scopes::ALL).await;
    let id = world.engine.authenticate(&impatient).unwrap().unwrap().key.unwrap().id;
    let release = hold(&world);
    let mut lost = Client::open(world.address).await;
    let body = letter("a@example.net").to_string();
    let head = format!("POST /v1/messages HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {impatient}\r\n{KEY}");
    lost.write(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await;
    while world.engine.rates.view(id, 600, world.clock.monotonic()).remaining == 600 {
        tokio::task::yield_now().await;
    }
    world.send_with(KEY, &letter("b@example.net")).await.fails_with(409, "idempotency_in_progress");
    drop(lost);
    release.send(()).unwrap();
    // The first request may still be running, or be done. It must not run a second time concurrently.
    let again = loop {
        let reply = world.send_with(KEY, &letter("a@example.net")).await;
        if reply.status != 409 {
            break reply;
        }
    };
    assert_eq!(again.status, 202, "{}", again.body);
    assert_eq!(count(&mut world).await, 1);
}

#[tokio::test]
async fn every_refusal_leaves_the_key_free() {
    let mut world = World::with(QuotaLimits { per_hour: 100, per_day: 100 }, 40).await;
    let gone = world.sent_to("gone@example.net").await;
    world.settle(gone, hard_bounce(), AttemptFacts::default()).await;
    let pending: DomainName = "pending.test".parse().unwrap();
    world.engine.create_domain(world.account, pending, Stream::Transactional).await.unwrap();
    let transactional = world.new_key(world.account, Some(Stream::Transactional), Scopes::ALL).await;
    let reader = world.new_key(world.account, None, Scopes::parse("scopes", &["read"]).unwrap()).await;
    let all = world.key.clone();
    let message = |from: &str, to: &str| {
        let mut message = letter(to);
        message["from"] = from.into();
        message.to_string()
    };
    let good = || message("a@example.test", "a@example.net");
    let raw = serde_json::json!({ "from": "a@example.test", "to": "b@example.net", "raw": "no header\n\nx" });
    for (number, (key, headers, body, status, code)) in [
        (&all, "", "[".to_owned(), 422, "invalid_json"),
        (&all, "", "{}".to_owned(), 422, "validation_failed"),
        (&all, "", raw.to_string(), 422, "validation_failed"),
        (&all, "", message("a@news.example.test", "a@example.net"), 422, "validation_failed"),
        (&all, "", message("a@nowhere.test", "a@example.net"), 422, "domain_unknown"),
        (&all, "", message("a@pending.test", "a@example.net"), 422, "domain_unverified"),
        (&all, "", message("a@example.test", "gone@example.net"), 422, "recipient_suppressed"),
        (&all, "Content-Type: text/plain\r\n", good(), 415, "unsupported_media_type"),
        (&all, "Content-Encoding: gzip\r\n", good(), 415, "unsupported_media_type"),
        (&transactional, "", message("a@news.example.test", "a@example.net"), 403, "stream_forbidden"),
        (&reader, "", good(), 403, "scope_forbidden"),
    ]
    .into_iter()
    .enumerate()
    {
        let key_header = format!("Idempotency-Key: refused-{number}\r\n");
        let refused = world.client.ask("POST /v1/messages", key, &format!("{key_header}{headers}"), &body).await;
        refused.fails_with(status, code);
        world.send_with(&key_header, &letter("other@example.net")).await.is_new();
    }
}

#[tokio::test]
async fn a_reached_limit_leaves_the_key_free() {
    let mut world = World::with(QuotaLimits { per_hour: 1, per_day: 10 }, 3).await;
    world.sent_to("a@example.net").await;
    world.send_with(KEY, &letter("b@example.net")).await.fails_with(429, "quota_exceeded");
    assert_eq!(world.get("/v1/me").await.status, 200);
    let second = "Idempotency-Key: order-2\r\n";
    world.send_with(second, &letter("b@example.net")).await.fails_with(429, "rate_limited");
    world.advance(Duration::from_secs(2800));
    world.send_with(KEY, &letter("c@example.net")).await.is_new();
    world.advance(Duration::from_secs(3600));
    world.send_with(second, &letter("c@example.net")).await.is_new();
}

#[tokio::test]
async fn an_internal_failure_leaves_the_key_free() {
    let mut world = World::new().await;
    let place = world.directory.path().to_owned();
    let away = place.with_extension("away");
    // The free space of the device can't be read. This stands for any failure before the commit.
    std::fs::rename(&place, &away).unwrap();
    let failed = world.send_with(KEY, &letter("a@example.net")).await;
    std::fs::rename(&away, &place).unwrap();
    assert_eq!(failed.status, 503, "{}", failed.body);
    assert_ne!(failed.header("retry-after"), "");
    world.send_with(KEY, &letter("b@example.net")).await.is_new();
}
