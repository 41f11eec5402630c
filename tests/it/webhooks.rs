//! Tests of events and their webhooks.

use std::path::Path;
use std::sync::{Arc, Mutex};

use hmac::{Hmac, KeyInit, Mac};
use reqwest::Method;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::support::Dev;

/// One received request.
#[derive(Clone, Debug)]
struct Received {
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Received {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_else(|| panic!("no header {name}"))
    }
}

/// A receiver with a certificate from its own authority, which answers every request with the current status.
struct Receiver {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
    status: Arc<Mutex<u16>>,
}

impl Receiver {
    async fn start(directory: &Path) -> Self {
        let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(directory.join("roots.pem"), certified.cert.pem()).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://127.0.0.1:{}/hook", listener.local_addr().unwrap().port());
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let status = Arc::new(Mutex::new(200));
        tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), Arc::clone(&received), Arc::clone(&status)));
        Self { url, received, status }
    }

    fn answer(&self, status: u16) {
        *self.status.lock().unwrap() = status;
    }

    fn taken(&self) -> Vec<Received> {
        std::mem::take(&mut *self.received.lock().unwrap())
    }
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, received: Arc<Mutex<Vec<Received>>>, status: Arc<Mutex<u16>>) {
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let (tls, received, status) = (tls.clone(), Arc::clone(&received), Arc::clone(&status));
        tokio::spawn(async move {
            let Ok(mut stream) = tls.accept(socket).await else { return };
            let mut bytes = Vec::new();
            while let Some(request) = read(&mut stream, &mut bytes).await {
                received.lock().unwrap().push(request);
                let status = *status.lock().unwrap();
                let answer = format!(
                    "HTTP/1.1 {status} Whatever\r\nlocation: https://127.0.0.1/\r\ncontent-length: 2\r\n\r\nok"
                );
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn read(stream: &mut (impl AsyncReadExt + Unpin), bytes: &mut Vec<u8>) -> Option<Received> {
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let headers: Vec<_> = head
                .lines()
                .skip(1)
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            let length: usize = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().unwrap();
            if bytes.len() >= end + 4 + length {
                let body = bytes[end + 4..end + 4 + length].to_vec();
                bytes.drain(..end + 4 + length);
                return Some(Received { headers, body });
            }
        }
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
    }
}

async fn dev_with_receiver() -> (Dev, Receiver, Value, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(directory.path()).await;
    let config = directory.path().join("postrider.toml");
    let roots = directory.path().join("roots.pem");
    let text = format!(
        "[http]\nlisten = [\"127.0.0.1:0\"]\n[network]\nallow = [\"127.0.0.0/8\"]\n[webhooks]\nextra_roots = {:?}\n",
        roots.display().to_string()
    );
    std::fs::write(&config, text).unwrap();
    let data = directory.path().join("data");
    let dev = Dev::on(&data, &["--virtual-clock", "--config", config.to_str().unwrap()]);
    let endpoint = dev.post("/v1/webhooks", json!({"url": receiver.url, "events": ["delivered", "bounced"]})).await;
    let endpoint = endpoint.expect(201).json();
    (dev, receiver, endpoint, directory)
}

fn verify(secret: &str, request: &Received) {
    let signature = request.header("x-service-signature");
    let (t, v1) = signature.split_once(",v1=").unwrap();
    let t = t.strip_prefix("t=").unwrap();
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(t.as_bytes());
    mac.update(b".");
    mac.update(&request.body);
    assert_eq!(hex::encode(mac.finalize().into_bytes()), v1);
}

#[tokio::test]
async fn a_webhook_is_signed_and_has_the_exact_bytes_of_the_event_log() {
    let (dev, receiver, endpoint, _directory) = dev_with_receiver().await;
    let id = dev.send("you@example.org").await;
    dev.advance(0).await;
    let taken = receiver.taken();
    assert_eq!(taken.len(), 1, "queued events were not requested");
    verify(endpoint["secret"].as_str().unwrap(), &taken[0]);
    assert_eq!(taken[0].header("x-service-event"), "delivered");
    assert_eq!(taken[0].header("x-service-attempt"), "1");
    let page = dev.get("/v1/events?type=delivered").await.expect(200);
    let text = String::from_utf8(page.bytes.clone()).unwrap();
    assert!(text.contains(std::str::from_utf8(&taken[0].body).unwrap()), "the log has the same bytes");
    let event = &page.json()["data"][0];
    assert_eq!(event["message_id"], id);
    assert_eq!(event["id"], taken[0].header("webhook-id"));
}

#[tokio::test]
async fn a_failing_endpoint_gets_seven_attempts_on_schedule_each_newly_signed() {
    let (dev, receiver, endpoint, _directory) = dev_with_receiver().await;
    receiver.answer(301);
    dev.send("you@example.org").await;
    dev.advance(0).await;
    let first = receiver.taken();
    assert_eq!(first.len(), 1);
    for (number, wait) in [60, 300, 1800, 7200, 21_600, 86_400].into_iter().enumerate() {
        dev.advance(wait - 1).await;
        assert_eq!(receiver.taken().len(), 0, "attempt {} came early", number + 2);
        dev.advance(1).await;
        let taken = receiver.taken();
        assert_eq!(taken.len(), 1, "attempt {} is due", number + 2);
        assert_eq!(taken[0].header("x-service-attempt"), (number + 2).to_string());
        assert_eq!(taken[0].body, first[0].body);
        assert_ne!(taken[0].header("x-service-signature"), first[0].header("x-service-signature"));
        assert_eq!(taken[0].header("x-service-delivery"), first[0].header("x-service-delivery"));
        verify(endpoint["secret"].as_str().unwrap(), &taken[0]);
    }
    dev.advance(10 * 86_400).await;
    assert_eq!(receiver.taken().len(), 0, "the seventh was the last");
    let record = dev.get(&format!("/v1/webhooks/{}", endpoint["id"].as_str().unwrap())).await.expect(200).json();
    assert_eq!((&record["enabled"], &record["consecutive_failures"]), (&json!(true), &json!(7)));
}

#[tokio::test]
async fn a_dead_endpoint_gets_ten_requests_and_all_missed_events_once_enabled_again() {
    let (dev, receiver, endpoint, _directory) = dev_with_receiver().await;
    let path = format!("/v1/webhooks/{}", endpoint["id"].as_str().unwrap());
    receiver.answer(500);
    for number in 0..25 {
        dev.send(&format!("you{number}@example.org")).await;
    }
    dev.advance(0).await;
    assert_eq!(receiver.taken().len(), 10);
    let record = dev.get(&path).await.expect(200).json();
    assert_eq!(record["enabled"], false);
    assert_eq!(record["disabled_reason"], "Disabled after repeated failures");
    assert_ne!(record["disabled_at"], json!(null));
    dev.advance(7 * 86_400).await;
    assert_eq!(receiver.taken().len(), 0, "nothing is attempted while it is disabled");

    receiver.answer(204);
    let record = dev.call(Method::PATCH, &path, Some(json!({"enabled": true}))).await.expect(200).json();
    assert_eq!((&record["consecutive_failures"], &record["disabled_at"]), (&json!(0), &json!(null)));
    dev.advance(0).await;
    let mut recipients: Vec<_> = receiver
        .taken()
        .iter()
        .map(|request| serde_json::from_slice::<Value>(&request.body).unwrap()["to"].as_str().unwrap().to_owned())
        .collect();
    recipients.sort();
    recipients.dedup();
    assert_eq!(recipients.len(), 25);
}

#[tokio::test]
async fn event_pages_do_not_repeat_or_skip_while_more_events_arrive() {
    let dev = Dev::start();
    for number in 0..7 {
        dev.send(&format!("you{number}@example.org")).await;
    }
    dev.advance(0).await;
    let mut seen = Vec::new();
    let mut path = "/v1/events?limit=4".to_owned();
    loop {
        let page = dev.get(&path).await.expect(200).json();
        seen.extend(page["data"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap().to_owned()));
        dev.send("later@example.org").await;
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/events?limit=4&cursor={cursor}");
    }
    assert_eq!(seen.len(), 14);
    assert!(seen.is_sorted_by(|newer, older| newer > older));
    dev.get("/v1/events?type=exploded").await.expect(422);
    dev.get("/v1/events?cursor=nonsense").await.expect(422);
}

#[tokio::test]
async fn a_test_is_signed_with_the_current_secret_and_does_not_count() {
    let (dev, receiver, endpoint, _directory) = dev_with_receiver().await;
    let path = format!("/v1/webhooks/{}", endpoint["id"].as_str().unwrap());
    let test = dev.post(&format!("{path}/test"), json!({})).await.expect(201).json();
    dev.advance(0).await;
    let taken = receiver.taken();
    assert_eq!(taken.len(), 1);
    verify(endpoint["secret"].as_str().unwrap(), &taken[0]);
    assert_eq!(taken[0].header("x-service-event"), "test");
    let body: Value = serde_json::from_slice(&taken[0].body).unwrap();
    assert_eq!((&body["id"], &body["type"]), (&test["event_id"], &json!("test")));
    assert_eq!(body["id"], taken[0].header("webhook-id"));
    let shown = dev.get(&format!("/v1/webhook-deliveries/{}", test["id"].as_str().unwrap())).await.expect(200).json();
    assert_eq!((&shown["status"], &shown["attempts"][0]["status"]), (&json!("delivered"), &json!(200)));

    receiver.answer(500);
    for _ in 0..11 {
        dev.post(&format!("{path}/test"), json!({})).await.expect(201);
    }
    dev.advance(0).await;
    assert_eq!(receiver.taken().len(), 11);
    let record = dev.get(&path).await.expect(200).json();
    assert_eq!((&record["enabled"], &record["consecutive_failures"]), (&json!(true), &json!(0)));
    assert_eq!(record["last_success_at"], json!(null));

    receiver.answer(200);
    let rotated = dev.post(&format!("{path}/rotate-secret"), json!({})).await.expect(200).json();
    dev.advance(60).await;
    let taken = receiver.taken();
    assert_eq!(taken.len(), 11);
    taken.iter().for_each(|request| verify(rotated["secret"].as_str().unwrap(), request));
}

#[tokio::test]
async fn failed_deliveries_are_replayed_once_and_a_deleted_endpoint_gets_no_more() {
    let (dev, receiver, endpoint, _directory) = dev_with_receiver().await;
    let path = format!("/v1/webhooks/{}", endpoint["id"].as_str().unwrap());
    receiver.answer(500);
    dev.send("you@example.org").await;
    dev.advance(2 * 86_400).await;
    let failed = receiver.taken();
    assert_eq!(failed.len(), 7);
    receiver.answer(200);
    dev.send("other@example.org").await;
    dev.advance(0).await;
    assert_eq!(receiver.taken().len(), 1);

    let body = json!({ "since": "2020-01-01T00:00:00Z", "only_failed": true });
    let replayed = dev.post(&format!("{path}/replay"), body.clone()).await.expect(200).json();
    assert_eq!(replayed, json!({ "created": 1 }));
    dev.advance(0).await;
    let again = receiver.taken();
    assert_eq!((again.len(), &again[0].body), (1, &failed[0].body));
    assert_eq!(again[0].header("x-service-attempt"), "1");
    assert_ne!(again[0].header("x-service-delivery"), failed[0].header("x-service-delivery"));
    let replayed = dev.post(&format!("{path}/replay"), body).await.expect(200).json();
    assert_eq!(replayed, json!({ "created": 0 }));

    receiver.answer(500);
    dev.send("last@example.org").await;
    dev.advance(0).await;
    let delivery = format!("/v1/webhook-deliveries/{}", receiver.taken()[0].header("x-service-delivery"));
    dev.call(Method::DELETE, &path, None).await.expect(204);
    dev.advance(10 * 86_400).await;
    assert_eq!(receiver.taken().len(), 0);
    let shown = dev.get(&delivery).await.expect(200).json();
    assert_eq!((&shown["status"], &shown["attempt"]), (&json!("failed"), &json!(1)));
}

/// More deliveries of one endpoint than are kept in memory.
const MESSAGES: usize = 1200;

#[tokio::test]
async fn a_backlog_larger_than_the_memory_limit_is_delivered_completely_and_once() {
    let (dev, receiver, endpoint, _directory) = dev_with_receiver().await;
    let path = format!("/v1/webhooks/{}", endpoint["id"].as_str().unwrap());
    dev.call(Method::PATCH, &path, Some(json!({ "enabled": false }))).await.expect(200);
    for batch in 0..3 {
        for number in 0..MESSAGES / 3 {
            dev.send(&format!("you{batch}.{number}@example.org")).await;
        }
        // The rate limit allows only so many requests a minute.
        dev.advance(60).await;
    }
    let all = json!({ "since": "2020-01-01T00:00:00Z", "only_failed": false });
    let replayed = dev.post(&format!("{path}/replay"), all).await.expect(200).json();
    assert_eq!(replayed, json!({ "created": 0 }), "each delivery exists already");
    dev.call(Method::PATCH, &path, Some(json!({ "enabled": true }))).await.expect(200);
    dev.advance(0).await;
    let mut deliveries: Vec<_> =
        receiver.taken().iter().map(|request| request.header("x-service-delivery").to_owned()).collect();
    assert_eq!(deliveries.len(), MESSAGES);
    deliveries.sort();
    deliveries.dedup();
    assert_eq!(deliveries.len(), MESSAGES);
}
