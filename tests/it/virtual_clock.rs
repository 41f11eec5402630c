//! Tests of the virtual clock and its effects.

use serde_json::json;

use crate::support::Dev;

#[tokio::test]
async fn virtual_time_advances_only_on_request() {
    let dev = Dev::start();
    let before = dev.get("/dev/clock").await.expect(200).json();
    assert_eq!(dev.get("/dev/clock").await.json(), before);
    let moved = dev.advance(90).await;
    assert_ne!(moved["now"], before["now"]);
    assert_eq!(dev.get("/dev/clock").await.json()["now"], moved["now"]);
    dev.post("/dev/clock", json!({"advance_seconds": -1})).await.expect(422);
    dev.post("/dev/clock", json!({"advance": 1})).await.expect(422);
}

#[tokio::test]
async fn content_is_removed_at_its_deadline_while_row_and_timeline_stay() {
    let dev = Dev::start();
    let id = dev.send("you@example.org").await;
    dev.advance(30 * 86_400 - 1).await;
    let message = dev.message(&id).await;
    assert_eq!(message["text"], "It works.\n");
    assert_eq!(message["content_deleted_at"], json!(null));
    dev.advance(1).await;
    let message = dev.message(&id).await;
    assert_eq!(message["text"], json!(null));
    assert_eq!(message["subject"], "Hello");
    assert_eq!(message["events"].as_array().unwrap().len(), 2);
    let gone = dev.get(&format!("/v1/messages/{id}/raw")).await.expect(410).json();
    assert_eq!(gone["code"], "content_gone");
    dev.advance(3600).await;
    assert_ne!(dev.message(&id).await["content_deleted_at"], json!(null));
    let content = dev.data_dir().join("content");
    let mut left: Vec<_> = std::fs::read_dir(&content).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["keys", "keys.mirror"], "the bucket's files are unlinked");
    for keys in left {
        assert!(std::fs::read(content.join(keys)).unwrap().iter().all(|byte| *byte == 0));
    }
}

#[tokio::test]
async fn events_expire_after_30_days_but_timelines_do_not() {
    let dev = Dev::start();
    let id = dev.send("you@example.org").await;
    dev.advance(29 * 86_400).await;
    assert_eq!(dev.get("/v1/events").await.json()["data"].as_array().unwrap().len(), 2);
    dev.advance(2 * 86_400).await;
    assert_eq!(dev.get("/v1/events").await.json()["data"], json!([]));
    assert_eq!(dev.message(&id).await["events"].as_array().unwrap().len(), 2);
}
