//! Tests of messages submitted by SMTP: acceptance, answers, and their view in the API.

use super::*;
use crate::domain::api_key::Scope;
use crate::engine::settings::SmtpAddress;
use crate::engine::smtp_submission::{Decision, LoginOutcome, SmtpClient, SmtpSender, SmtpSession};
use crate::store::row::message::MessageRow;

pub(super) const LETTER: &str = "From: Shop <shop@example.test>\r\nTo: a@example.net\r\nSubject: Your order\r\n\
    Message-ID: <1@shop.example>\r\n\r\nThank you.\r\n";

pub(super) fn session_of(world: &World, key: &str) -> SmtpSession {
    let address = [192, 0, 2, 17].into();
    let client = SmtpClient { name: "shop.example".to_owned(), address, tls_version: Some("TLSv1.3".to_owned()) };
    let mut session = world.engine.smtp_session(client);
    assert!(matches!(session.login(key.as_bytes()), LoginOutcome::Good { .. }));
    session
}

pub(super) fn text(decision: &Decision) -> String {
    match decision {
        Decision::Answer(answer) => answer.as_line(),
        Decision::CloseWithoutAnswer => "closed".to_owned(),
    }
}

pub(super) fn sender() -> SmtpSender {
    SmtpSender { mail_from: "www-data@shop".to_owned(), size: None }
}

/// Submits a message, and returns the answer to it, or to the first refused recipient.
pub(super) async fn submit(session: &mut SmtpSession, to: &[&str], message: &str) -> String {
    assert_eq!(session.sender(sender()).as_line(), "250 2.1.0 OK");
    for to in to {
        let answer = session.recipient(to);
        if !answer.is_positive() {
            return answer.as_line();
        }
    }
    text(&session.message(message.as_bytes().to_vec()).await)
}

/// Returns the identifiers in an answer.
fn ids(answer: &str) -> Vec<String> {
    let ids = answer.strip_prefix("250 2.0.0 ").unwrap_or_else(|| panic!("{answer}"));
    ids.split(' ').filter(|word| word.starts_with("msg_")).map(str::to_owned).collect()
}

async fn raw_of(world: &mut World, id: &str) -> String {
    world.get(&format!("/v1/messages/{id}/raw")).await.body
}

#[tokio::test]
async fn each_recipient_has_a_separate_message_with_one_body() {
    let mut world = World::new().await;
    let mut session = session_of(&world, &world.key);
    let to = ["a@example.net", "b@example.net", "A@EXAMPLE.net", "c@example.net"];
    let answer = submit(&mut session, &to, LETTER).await;
    let ids = ids(&answer);
    assert_eq!((ids.len(), answer), (3, format!("250 2.0.0 Ok: queued as {}", ids.join(" "))));
    assert!(ids.is_sorted());
    for (id, to) in ids.iter().zip(["a@example.net", "b@example.net", "c@example.net"]) {
        let record = world.get(&format!("/v1/messages/{id}")).await;
        let record = record.json();
        assert_eq!(
            (&record["to"], &record["from"], &record["from_name"]),
            (&to.into(), &"shop@example.test".into(), &"Shop".into())
        );
        let submission = serde_json::json!({
            "mail_from": "www-data@shop", "client_name": "shop.example", "client_address": "192.0.2.17",
            "tls_version": "TLSv1.3", "key_prefix": world.key[..16], "original_message_id": "<1@shop.example>",
            "recipients": 3, "first_id": ids[0]
        });
        assert_eq!(record["submission"], submission);
        let raw = raw_of(&mut world, id).await;
        let trace = format!("Received: by mail.example.com with ESMTPSA id {id}; Tue, 14 Nov 2023 22:13:20 +0000\r\n");
        assert!(raw.starts_with(&trace) && raw.ends_with("\r\n\r\nThank you.\r\n"), "{raw}");
        assert!(raw.contains(&format!("\r\nMessage-ID: <{id}@example.test>\r\n")));
        assert!(raw.contains("\r\nX-Original-Message-ID: <1@shop.example>\r\n"));
        assert!(raw.contains("DKIM-Signature: ") && !raw.contains("192.0.2.17"));
    }
    assert_eq!(world.get("/v1/me").await.json()["quota"]["hour"]["used"], 3);
    let of_api = world.sent_to("a@example.net").await;
    assert_eq!(world.get(&format!("/v1/messages/{of_api}")).await.json()["submission"], Value::Null);
    assert_eq!(world.engine.meters.submission.messages.read(), 3);
}

#[tokio::test]
async fn messages_are_found_by_client_message_id_and_by_protocol() {
    let mut world = World::new().await;
    let mut session = session_of(&world, &world.key);
    let ids = ids(&submit(&mut session, &["a@example.net", "b@example.net"], LETTER).await);
    let of_api = world.sent_to("c@example.net").await.to_string();
    let found = async |world: &mut World, query: &str| -> Vec<String> {
        let page = world.get(&format!("/v1/messages?{query}")).await.json();
        page["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    let both = vec![ids[1].clone(), ids[0].clone()];
    assert_eq!(found(&mut world, "message_id_header=%3C1%40shop.example%3E").await, both);
    assert_eq!(found(&mut world, "message_id_header=1%40shop.example&to=a%40example.net").await, [ids[0].clone()]);
    assert_eq!(
        found(&mut world, &format!("message_id_header=%3C{}%40example.test%3E", ids[0])).await,
        [ids[0].clone()]
    );
    assert!(found(&mut world, "message_id_header=%3C2%40shop.example%3E").await.is_empty());
    assert_eq!(found(&mut world, "via=smtp").await, both);
    assert_eq!(found(&mut world, "via=api").await, [of_api]);
    world.get("/v1/messages?via=fax").await.fails_with(422, "validation_failed");
}

#[tokio::test]
async fn an_account_can_keep_the_clients_message_id() {
    let mut world = World::new().await;
    world.patch("/v1/settings", serde_json::json!({ "keep_message_id": true })).await;
    let mut session = session_of(&world, &world.key);
    let ids = ids(&submit(&mut session, &["a@example.net"], LETTER).await);
    let record = world.get(&format!("/v1/messages/{}", ids[0])).await.json();
    assert_eq!(record["message_id_header"], "<1@shop.example>");
    assert_eq!(record["events"][0]["message_id_header"], "<1@shop.example>");
    let raw = raw_of(&mut world, &ids[0]).await;
    assert!(raw.contains("Message-ID: <1@shop.example>\r\n") && !raw.contains("X-Original-Message-ID"));
}

#[tokio::test]
async fn refusals_say_what_to_do_and_store_nothing() {
    let mut world = World::new().await;
    world.post("/v1/suppressions", serde_json::json!({ "email": "gone@example.net" })).await;
    let mut session = session_of(&world, &world.key);
    let gone = submit(&mut session, &["gone@example.net"], LETTER).await;
    assert!(gone.starts_with("550 5.7.1 <gone@example.net> is suppressed (manual since 2023-11-14"), "{gone}");
    assert!(submit(&mut session, &["no address"], LETTER).await.starts_with("553 5.1.3 "));
    for (message, start) in [
        ("From: a@elsewhere.example\r\n\r\nx", "550 5.7.1 From is at elsewhere.example, which is not a domain"),
        ("From: a@news.example.test\r\n\r\nx", "550 5.7.1 news.example.test is a marketing domain"),
        ("Subject: x\r\n\r\nx", "550 5.6.0 The message must have a From header"),
        ("From: a@example.test\r\nX-Service-Stream: x\r\n\r\nx", "550 5.6.0 X-Service-Stream is unknown"),
        ("From: a@example.test\r\nX-Service-Expires-At: soon\r\n\r\nx", "550 5.6.0 X-Service-Expires-At must be"),
    ] {
        let answer = submit(&mut session, &["a@example.net", "b@example.net"], message).await;
        assert!(answer.starts_with(start), "{answer}");
    }
    let long = format!("{}\r\n\r\nx", "X: y\r\n".repeat(20_000));
    assert!(submit(&mut session, &["a@example.net"], &long).await.starts_with("552 5.3.4 "));
    assert!(world.get("/v1/messages").await.json()["data"].as_array().unwrap().is_empty());
    assert_eq!(world.get("/v1/me").await.json()["quota"]["hour"]["used"], 0);
    assert_eq!(ids(&submit(&mut session, &["a@example.net"], LETTER).await).len(), 1, "the session is still usable");
    let refusals = world.get("/v1/submission-refusals").await;
    let refusals = refusals.json()["data"].as_array().unwrap().clone();
    assert_eq!(refusals.len(), 8);
    let first = refusals.last().unwrap();
    assert_eq!(
        (&first["stage"], &first["to"], &first["from"]),
        (&"rcpt".into(), &"gone@example.net".into(), &Value::Null)
    );
    assert_eq!((&first["mail_from"], &first["key_prefix"]), (&"www-data@shop".into(), &world.key[..16].into()));
    assert_eq!((&refusals[5]["stage"], &refusals[5]["from"]), (&"data".into(), &"a@elsewhere.example".into()));
    assert_eq!(world.get("/v1/submission-refusals?limit=2").await.json()["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_suppression_after_rcpt_refuses_the_message_for_all() {
    let mut world = World::new().await;
    let mut session = session_of(&world, &world.key);
    session.sender(sender());
    for to in ["a@example.net", "b@example.net"] {
        assert_eq!(session.recipient(to).code(), 250);
    }
    world.post("/v1/suppressions", serde_json::json!({ "email": "b@example.net" })).await;
    let answer = text(&session.message(LETTER.into()).await);
    assert!(answer.starts_with("550 5.7.1 <b@example.net> is suppressed"), "{answer}");
    assert!(world.get("/v1/messages").await.json()["data"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn quota_and_rate_count_each_recipient() {
    let mut world = World::with(QuotaLimits { per_hour: 3, per_day: 100 }, 4).await;
    let mut session = session_of(&world, &world.key);
    assert_eq!(ids(&submit(&mut session, &["a@example.net", "b@example.net"], LETTER).await).len(), 2);
    session.sender(sender());
    assert_eq!(session.recipient("a@example.net").code(), 250);
    let refused = session.recipient("b@example.net").as_line();
    assert_eq!(refused, "452 4.7.1 The account's quota of this hour is used up: try again in 2800 seconds");
    assert_eq!(session.recipient("A@example.net").code(), 250, "the same mailbox does not count again");
    let refused = session.recipient("a@example.net").as_line();
    assert_eq!(refused, "450 4.7.1 Too many messages with this key: try again in 60 seconds");
    assert_eq!(ids(&text(&session.message(LETTER.into()).await)).len(), 1);
    world.advance(Duration::from_secs(60));
    assert_eq!(world.get("/v1/me").await.json()["quota"]["hour"]["used"], 3);
}

#[tokio::test]
async fn an_idempotency_key_applies_to_each_recipient() {
    let mut world = World::new().await;
    let mut session = session_of(&world, &world.key);
    let with = |date: &str, body: &str| {
        format!(
            "From: shop@example.test\r\nSubject: s\r\nDate: {date}\r\nMessage-ID: <{date}@x>\r\n\
             X-Service-Idempotency-Key: order-1\r\n\r\n{body}\r\n"
        )
    };
    let first = ids(&submit(&mut session, &["a@example.net"], &with("1", "hello")).await);
    let again = ids(&submit(&mut session, &["b@example.net", "a@example.net"], &with("2", "hello")).await);
    assert_eq!((again.len(), &again[1]), (2, &first[0]));
    assert_eq!(world.get("/v1/me").await.json()["quota"]["hour"]["used"], 2);
    assert_eq!(ids(&submit(&mut session, &["b@example.net"], &with("3", "hello")).await), [again[0].clone()]);
    let other = submit(&mut session, &["c@example.net", "a@example.net"], &with("4", "other")).await;
    assert!(other.starts_with("550 5.7.1 X-Service-Idempotency-Key was used"), "{other}");
    assert_eq!(world.get("/v1/me").await.json()["quota"]["hour"]["used"], 2);
    let api = world.send_with("Idempotency-Key: order-1\r\n", &letter("a@example.net")).await;
    assert_eq!((api.status, api.header("idempotent-replay")), (202, ""), "the API has separate keys");
}

#[tokio::test]
async fn failed_logins_are_answered_alike_and_listed_for_the_keys_account() {
    let mut world = World::new().await;
    let reader = world.new_key(world.account, None, Scopes::from(Scope::Read)).await;
    let client = || SmtpClient { name: String::new(), address: [192, 0, 2, 17].into(), tls_version: None };
    let mut session = world.engine.smtp_session(client());
    assert_eq!(session.login(reader.as_bytes()), LoginOutcome::NoSendScope);
    assert_eq!(session.login(b"hunter2"), LoginOutcome::Refused);
    let revoked = world.new_key(world.account, None, Scopes::ALL).await;
    let mut live = session_of(&world, &format!(" {revoked}\r\n"));
    let id = match live.login(revoked.as_bytes()) {
        LoginOutcome::Good { key, .. } => key,
        other => panic!("{other:?}"),
    };
    world.engine.revoke_key(&Caller { account: world.account, key: None }, id).await.unwrap();
    assert_eq!(session.login(revoked.as_bytes()), LoginOutcome::Refused);
    assert!(live.sender(sender()).as_line().starts_with("530 5.7.0 "), "the key is checked again");
    let refusals = world.get("/v1/submission-refusals").await.json()["data"].as_array().unwrap().clone();
    assert_eq!(
        (refusals.len(), &refusals[0]["stage"], &refusals[0]["key_prefix"]),
        (1, &"mail".into(), &revoked[..16].into())
    );
}

#[tokio::test]
async fn a_key_limited_to_a_stream_sends_and_sees_only_that_stream() {
    let mut world = World::new().await;
    let news = world.new_key(world.account, Some(Stream::Marketing), Scopes::ALL).await;
    let answer = submit(&mut session_of(&world, &news), &["a@example.net"], LETTER).await;
    assert!(answer.starts_with("550 5.7.1 example.test is a transactional domain"), "{answer}");
    submit(&mut session_of(&world, &world.key), &["no address"], LETTER).await;
    let letter = LETTER.replace("shop@example.test", "shop@news.example.test");
    let letter = letter.replace("\r\n\r\n", "\r\nList-Unsubscribe: <https://shop.example/u>\r\n\r\n");
    let ids = ids(&submit(&mut session_of(&world, &news), &["a@example.net"], &letter).await);
    assert_eq!(
        world.get(&format!("/v1/messages/{}", ids[0])).await.json()["unsubscribe_url"],
        "https://shop.example/u"
    );
    let seen = world.ask_as(&news, "GET /v1/submission-refusals", "", &Value::Null).await.json();
    assert_eq!(seen["data"].as_array().unwrap().len(), 1);
    assert_eq!(world.get("/v1/submission-refusals").await.json()["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn many_large_copies_are_appended_one_after_the_other() {
    let world = World::new().await;
    let mut session = session_of(&world, &world.key);
    let mut noise = 1_u64;
    let mut word = || {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{noise:016x}{noise:016x}\r\n")
    };
    let body: String = (0..12_000).map(|_| word()).collect();
    let message = format!("From: shop@example.test\r\n\r\n{body}");
    let to: Vec<String> = (0..12).map(|number| format!("n{number}@example.net")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    let ids = ids(&submit(&mut session, &to, &message).await);
    assert_eq!(ids.len(), 12);
    for id in ids {
        let id = id.parse().unwrap();
        let row: MessageRow = world.engine.message(world.account, id).unwrap().map(|record| record.row).unwrap();
        let stored = world.engine.store.body(row.place, id, row.created_at).unwrap();
        assert!(stored.ends_with(body.as_bytes()));
    }
}

#[tokio::test]
async fn me_shows_the_address_of_smtp_submission() {
    let mut world = World::new().await;
    assert_eq!(world.get("/v1/me").await.json()["smtp"], Value::Null);
    let host = "mail.example.com".to_owned();
    let address = SmtpAddress { host, port: Some(587), offers_starttls: true, tls_port: None };
    world.engine.settings.smtp.set(address).unwrap();
    let expected =
        serde_json::json!({"host": "mail.example.com", "port": 587, "tls_port": null, "username": "postrider"});
    assert_eq!(world.get("/v1/me").await.json()["smtp"], expected);
}
