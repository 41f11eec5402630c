//! Tests of suppressed addresses: how they are added and removed, and the effect on messages.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Dev, types};

#[tokio::test]
async fn a_queued_message_is_not_retried_after_its_address_is_suppressed() {
    let dev = Dev::start();
    let id = dev.send("deferred@simulator.test").await;
    dev.advance(0).await;
    assert_eq!(types(&dev.message(&id).await), ["queued", "deferred"]);
    dev.post("/v1/suppressions", json!({"email": "Deferred@simulator.test", "note": "asked"})).await.expect(201);
    dev.advance(3600).await;
    let message = dev.message(&id).await;
    assert_eq!(types(&message), ["queued", "deferred", "suppressed"]);
    assert_eq!((&message["status"], &message["attempts"]), (&json!("suppressed"), &json!(1)));
}

#[tokio::test]
async fn the_suppression_list_survives_a_power_cut_and_can_be_moved() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let dev = Dev::on(&path, &["--virtual-clock"]);
    let id = dev.send("bounced+1@simulator.test").await;
    dev.advance(0).await;
    let csv = "email,note\nann@example.org,\"left, for good\"\nANN@example.org,again\n";
    let done = dev.upload("/v1/suppressions/import", "text/csv", csv).await.expect(200).json();
    assert_eq!(done, json!({"imported": 1, "skipped": 1, "errors": []}));
    let faulty = dev.upload("/v1/suppressions/import", "text/csv", "email\nbob@example.org\nbob\n").await.expect(422);
    assert_eq!(faulty.json()["lines"][0]["line"], 3);
    dev.kill();

    let dev = Dev::on(&path, &["--virtual-clock"]);
    let list = dev.get("/v1/suppressions").await.expect(200).json();
    let row = |place: usize, field: &str| list["data"][place][field].clone();
    assert_eq!(
        [row(0, "email"), row(0, "reason"), row(0, "message_id")],
        [json!("ann@example.org"), json!("import"), Value::Null]
    );
    assert_eq!(
        [row(1, "email"), row(1, "reason"), row(1, "message_id")],
        [json!("bounced+1@simulator.test"), json!("bounce"), json!(id)]
    );
    assert_eq!(row(1, "smtp_code"), 550);
    let exported = dev.get("/v1/suppressions/export").await.expect(200);
    let exported = String::from_utf8(exported.bytes).unwrap();

    let other = Dev::start();
    let done = other.upload("/v1/suppressions/import", "text/csv", &exported).await.expect(200).json();
    assert_eq!(done["imported"], 2);
    let letter = json!({"from": "hello@example.test", "to": "ann@example.org", "text": "Hello"});
    assert_eq!(other.post("/v1/messages", letter.clone()).await.expect(422).json()["code"], "recipient_suppressed");
    other.call(Method::DELETE, "/v1/suppressions/ann@example.org", None).await.expect(204);
    other.post("/v1/messages", letter).await.expect(202);
}
