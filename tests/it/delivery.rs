//! Tests of the outcomes of accepted messages.

use serde_json::json;

use crate::support::{Dev, types};

#[tokio::test]
async fn a_message_is_captured_and_delivered_with_a_complete_timeline() {
    let dev = Dev::start();
    let id = dev.send("you@example.org").await;
    dev.advance(0).await;
    let message = dev.message(&id).await;
    assert_eq!(types(&message), ["queued", "delivered"]);
    assert_eq!(message["status"], "delivered");
    assert_eq!(message["relay"], "direct");
    assert_eq!(message["smtp_code"], 250);
    assert_eq!(message["attempts"], 1);
    assert_eq!(message["text"], "It works.\n");
    let mail = dev.get(&format!("/dev/mail/{id}")).await.expect(200).json();
    assert_eq!(mail["rcpt_to"], "you@example.org");
    assert_eq!(mail["subject"], "Hello");
    let list = dev.get("/dev/mail").await.expect(200).json();
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_hard_bounce_stores_the_answer_and_suppresses_the_address() {
    let dev = Dev::start();
    let id = dev.send("bounced+1@simulator.test").await;
    dev.advance(0).await;
    let message = dev.message(&id).await;
    assert_eq!(types(&message), ["queued", "bounced"]);
    let bounce = &message["events"][1]["bounce"];
    assert_eq!(
        (&bounce["kind"], &bounce["status"], &bounce["suppressed"]),
        (&json!("hard"), &json!("5.1.1"), &json!(true))
    );
    assert!(message["smtp_response"].as_str().unwrap().starts_with("550"));
    let again = json!({"from": "hello@example.test", "to": "bounced+1@simulator.test", "text": "again"});
    let refused = dev.post("/v1/messages", again).await.expect(422).json();
    assert_eq!(refused["code"], "recipient_suppressed");
    assert!(refused["errors"]["to"].is_array());
}

#[tokio::test]
async fn a_policy_block_bounces_and_suppresses_nobody() {
    let dev = Dev::start();
    let id = dev.send("blocked@simulator.test").await;
    dev.advance(0).await;
    let message = dev.message(&id).await;
    assert_eq!(message["status"], "bounced");
    assert_eq!(message["events"][1]["bounce"]["kind"], "block");
    assert_eq!(message["events"][1]["bounce"]["suppressed"], false);
    dev.send("blocked@simulator.test").await;
}

#[tokio::test]
async fn a_deferred_message_is_retried_on_schedule() {
    let dev = Dev::start();
    let id = dev.send("deferred@simulator.test").await;
    dev.advance(0).await;
    let message = dev.message(&id).await;
    assert_eq!(types(&message), ["queued", "deferred"]);
    assert_eq!(message["status"], "deferred");
    dev.advance(53).await;
    assert_eq!(types(&dev.message(&id).await), ["queued", "deferred"], "the first retry is due after 54 to 66 s");
    dev.advance(13).await;
    assert_eq!(types(&dev.message(&id).await), ["queued", "deferred", "deferred"]);
    dev.advance(132).await;
    let message = dev.message(&id).await;
    assert_eq!(types(&message), ["queued", "deferred", "deferred", "delivered"]);
    assert_eq!(message["attempts"], 3);
}

#[tokio::test]
async fn a_message_that_is_never_accepted_fails_at_the_end_of_its_lifetime() {
    let dev = Dev::start();
    let id = dev.send("full@simulator.test").await;
    dev.advance(48 * 3600 - 1).await;
    assert_eq!(dev.message(&id).await["status"], "deferred");
    dev.advance(1).await;
    let message = dev.message(&id).await;
    assert_eq!(message["status"], "failed");
    assert_eq!(message["next_attempt_at"], json!(null));
    let attempts = message["attempts"].as_u64().unwrap();
    assert!((50..=58).contains(&attempts), "{attempts} attempts in 48 hours");
    dev.send("full@simulator.test").await;
}

#[tokio::test]
async fn a_silent_server_costs_one_attempt() {
    let dev = Dev::start();
    let id = dev.send("timeout@simulator.test").await;
    dev.advance(0).await;
    let message = dev.message(&id).await;
    assert_eq!(types(&message), ["queued", "deferred"]);
    assert_eq!(message["smtp_code"], json!(null));
}

#[tokio::test]
async fn a_message_expires_even_while_its_site_is_backed_off() {
    let dev = Dev::start();
    let expires_at = dev.time_in(70).await;
    let body =
        json!({"from": "hello@example.test", "to": "timeout@simulator.test", "text": "x", "expires_at": expires_at});
    let id = dev.post("/v1/messages", body).await.expect(202).json()["id"].as_str().unwrap().to_owned();
    dev.advance(69).await;
    let message = dev.message(&id).await;
    assert_eq!(
        types(&message),
        ["queued", "deferred", "deferred"],
        "the second failure backs off the site beyond the message's lifetime"
    );
    dev.advance(1).await;
    assert_eq!(dev.message(&id).await["status"], "failed");
}

#[tokio::test]
async fn a_canceled_deferred_message_is_never_retried() {
    let dev = Dev::start();
    let id = dev.send("deferred@simulator.test").await;
    dev.advance(0).await;
    assert_eq!(dev.message(&id).await["status"], "deferred");
    let canceled = dev.post(&format!("/v1/messages/{id}/cancel"), json!({})).await.expect(200).json();
    assert_eq!((&canceled["status"], &canceled["attempts"]), (&json!("canceled"), &json!(1)));
    dev.advance(3 * 86_400).await;
    assert_eq!(types(&dev.message(&id).await), ["queued", "deferred", "canceled"]);
    dev.post(&format!("/v1/messages/{id}/cancel"), json!({})).await.expect(409);
}
