//! Tests of the answers to POST /v1/messages.

use reqwest::Method;
use serde_json::json;

use crate::support::Dev;

#[tokio::test]
async fn the_202_has_exactly_the_documented_fields_and_the_quota() {
    let dev = Dev::start();
    let body = json!({"from": "hello@example.test", "to": "You@Example.ORG", "subject": "Hello", "text": "x"});
    let answer = dev.post("/v1/messages", body).await.expect(202);
    let accepted = answer.json();
    let mut fields: Vec<_> = accepted.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["created_at", "from", "id", "message_id_header", "status", "stream", "subject", "to"]);
    assert_eq!(accepted["to"], "You@Example.ORG");
    assert_eq!(accepted["message_id_header"], format!("<{}@example.test>", accepted["id"].as_str().unwrap()));
    // Both windows have the same number left, so the header names the one that resets later.
    assert_eq!(answer.header("x-service-quota-window"), "day");
    assert_eq!(answer.header("x-service-quota-remaining"), "9999999");
    assert_eq!(answer.header("location"), format!("/v1/messages/{}", accepted["id"].as_str().unwrap()));
}

#[tokio::test]
async fn an_idempotency_key_replays_the_same_bytes_for_24_hours_even_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let dev = Dev::on(directory.path(), &["--virtual-clock"]);
    let body = json!({"from": "hello@example.test", "to": "you@example.org", "text": "once"});
    let key = [("idempotency-key", "order-1")];
    let first = dev.call_with(Method::POST, "/v1/messages", Some(body.clone()), &key).await.expect(202);
    dev.kill();

    let dev = Dev::on(directory.path(), &["--virtual-clock"]);
    let replay = dev.call_with(Method::POST, "/v1/messages", Some(body.clone()), &key).await.expect(202);
    assert_eq!(replay.bytes, first.bytes);
    assert_eq!(replay.header("idempotent-replay"), "true");
    let other = json!({"from": "hello@example.test", "to": "you@example.org", "text": "twice"});
    let mismatch = dev.call_with(Method::POST, "/v1/messages", Some(other.clone()), &key).await.expect(409);
    assert_eq!(mismatch.json()["code"], "idempotency_mismatch");
    dev.advance(24 * 3600 - 1).await;
    dev.call_with(Method::POST, "/v1/messages", Some(other.clone()), &key).await.expect(409);
    dev.advance(1).await;
    dev.call_with(Method::POST, "/v1/messages", Some(other), &key).await.expect(202);
}

#[tokio::test]
async fn a_reused_directory_keeps_its_account_its_messages_and_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let dev = Dev::on(directory.path(), &["--virtual-clock"]);
    let id = dev.send("you@example.org").await;
    let moved = dev.advance(3600).await;
    let before = (dev.announcement["api_key"].clone(), dev.announcement["account_id"].clone());
    dev.kill();
    let dev = Dev::on(directory.path(), &["--virtual-clock"]);
    assert_eq!((dev.announcement["api_key"].clone(), dev.announcement["account_id"].clone()), before);
    assert_eq!(dev.message(&id).await["status"], "delivered");
    assert_eq!(dev.get("/dev/clock").await.json()["now"], moved["now"]);
    assert!(dev.data_dir().join("dev.json").exists());
}

#[tokio::test]
async fn marketing_mail_needs_its_own_stream_and_an_unsubscribe_url() {
    let dev = Dev::start();
    let marketing = format!("Bearer {}", dev.announcement["marketing_api_key"].as_str().unwrap());
    let headers = [("authorization", marketing.as_str())];
    let wrong = json!({"from": "a@example.test", "to": "you@example.org", "text": "x"});
    let refused = dev.call_with(Method::POST, "/v1/messages", Some(wrong), &headers).await.expect(403);
    assert_eq!(refused.json()["code"], "stream_forbidden");
    let bare = json!({"from": "a@news.example.test", "to": "you@example.org", "text": "x"});
    let refused = dev.call_with(Method::POST, "/v1/messages", Some(bare), &headers).await.expect(422).json();
    assert_eq!(refused["code"], "validation_failed");
    assert!(refused["errors"]["unsubscribe_url"].is_array());
    let whole = json!({"from": "a@news.example.test", "to": "you@example.org", "text": "x",
        "unsubscribe_url": "https://example.test/u/1"});
    let accepted = dev.call_with(Method::POST, "/v1/messages", Some(whole), &headers).await.expect(202).json();
    assert_eq!(accepted["stream"], "marketing");
}

#[tokio::test]
async fn all_errors_of_a_body_are_reported_at_once() {
    let dev = Dev::start();
    let body = json!({"from": "nobody", "to": "a@[127.0.0.1]", "subject": "a\nb", "unsubscribe_ulr": "x",
        "headers": {"X-A\r\nB": "c", "To": "x@y.z"}});
    let refused = dev.post("/v1/messages", body).await.expect(422).json();
    let errors = refused["errors"].as_object().unwrap();
    for field in ["from", "to", "subject", "text", "unsubscribe_ulr", "headers.To"] {
        assert!(errors.contains_key(field), "{field} is not in {errors:?}");
    }
    assert_eq!(errors["unsubscribe_ulr"], json!(["unknown field"]));
    assert!(refused["message"].as_str().unwrap().contains("unsubscribe_url"), "{}", refused["message"]);
}

#[tokio::test]
async fn a_replay_is_answered_even_if_the_request_is_no_longer_valid() {
    let dev = Dev::start();
    let expires_at = dev.time_in(60).await;
    let body = json!({"from": "hello@example.test", "to": "you@example.org", "text": "x", "expires_at": expires_at});
    let key = [("idempotency-key", "late")];
    let first = dev.call_with(Method::POST, "/v1/messages", Some(body.clone()), &key).await.expect(202);
    dev.advance(30).await;
    let again = (0..8).map(|_| dev.call_with(Method::POST, "/v1/messages", Some(body.clone()), &key));
    for answer in join_all(again).await {
        assert_eq!(answer.expect(202).bytes, first.bytes);
    }
    dev.call(Method::POST, "/v1/messages", Some(body)).await.expect(422);
}

/// Awaits all futures concurrently.
async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        for (future, output) in running.iter_mut().filter(|(_, output)| output.is_none()) {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(cx) {
                *output = Some(value);
            }
        }
        if running.iter().all(|(_, output)| output.is_some()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}

#[tokio::test]
async fn query_parameters_of_a_post_are_refused() {
    let dev = Dev::start();
    let body = json!({"from": "hello@example.test", "to": "you@example.org", "text": "x"});
    let refused = dev.post("/v1/messages?dry_run=true", body).await.expect(422).json();
    assert!(refused["errors"]["dry_run"].is_array());
    dev.get("/dev/mail?limit=1").await.expect(422);
}
