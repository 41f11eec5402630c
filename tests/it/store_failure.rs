//! Tests of a store that fails under the running service: the service reports it immediately, and the process ends with
//! an error.

use std::fs;

use serde_json::json;

use crate::smtp::Session;
use crate::support::Dev;

#[tokio::test]
async fn a_service_whose_store_fails_is_not_ready_and_ends_with_an_error() {
    let dev = Dev::start();
    dev.send("before@example.org").await;
    dev.get("/readyz").await.expect(200);
    // The next content segment, for another hour, can't create its directory.
    let content = dev.data_dir().join("content");
    fs::rename(&content, content.with_extension("gone")).unwrap();
    fs::write(&content, b"no directory").unwrap();
    dev.advance(26 * 3600).await;
    let body = json!({"from": "hello@example.test", "to": "after@example.org", "subject": "Hello", "text": "x"});
    let refused = dev.post("/v1/messages", body).await.expect(503);
    assert_eq!(refused.json()["code"], "storage_failed");
    let not_ready = dev.get("/readyz").await.expect(503);
    assert_eq!(not_ready.json()["code"], "storage_failed");
    dev.get("/healthz").await.expect(200);
    assert_eq!(dev.ended().await.code(), Some(1));
}

#[tokio::test]
async fn an_smtp_message_that_cannot_be_stored_is_answered_451() {
    let dev = Dev::start();
    dev.send("before@example.org").await;
    let mut smtp = Session::submission(&dev).await;
    for (line, code) in [("MAIL FROM:<a@b>", "250"), ("RCPT TO:<ann@example.org>", "250"), ("DATA", "354")] {
        assert!(smtp.say(&format!("{line}\r\n")).await.starts_with(code));
    }
    let content = dev.data_dir().join("content");
    fs::rename(&content, content.with_extension("gone")).unwrap();
    fs::write(&content, b"no directory").unwrap();
    dev.advance(26 * 3600).await;
    let refused = smtp.say("From: hello@example.test\r\nSubject: x\r\n\r\nx\r\n.\r\n").await;
    assert!(refused.starts_with("451 4.3.0 "), "{refused}");
    assert_eq!(dev.ended().await.code(), Some(1));
}
