//! A store that fails under the running service: it says so at once, and the process ends with an error.

use std::fs;

use serde_json::json;

use crate::support::Dev;

#[tokio::test]
async fn a_service_whose_store_fails_is_not_ready_and_ends_with_an_error() {
    let dev = Dev::start();
    dev.send("before@example.org").await;
    dev.get("/readyz").await.expect(200);
    // The next segment of content, for another hour, finds no directory to be made in.
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
