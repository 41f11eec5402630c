//! Tests of SMTP submission: the settings, the refusals, and the timeline of a submitted message.

use super::*;
use crate::domain::api_key::Scopes;
use crate::engine::accounts::NewKey;
use crate::engine::settings::SmtpAddress;
use crate::engine::smtp_submission::{Decision, SmtpClient, SmtpSender, SmtpSession};

async fn session(world: &World) -> (SmtpSession, String) {
    let new = NewKey { name: "blog".to_owned(), stream: None, scopes: Scopes::ALL, expires_at: None };
    let caller = Caller { account: world.account, key: None };
    let (key, secret) = world.engine.create_key(&caller, new).await.unwrap();
    let client = SmtpClient {
        name: "blog<b>.example".to_owned(),
        address: [192, 0, 2, 17].into(),
        tls_version: Some("TLSv1.3".to_owned()),
    };
    let mut session = world.engine.smtp_session(client);
    session.login(secret.expose().as_bytes());
    (session, key.prefix)
}

#[tokio::test]
async fn the_page_has_settings_to_copy_if_submission_is_configured() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    assert!(browser.get("/smtp").await.shows("SMTP submission is not configured"));
    let host = "mail.example.com".to_owned();
    let address = SmtpAddress { host, port: Some(587), offers_starttls: true, tls_port: Some(465) };
    world.engine.settings.smtp.set(address).unwrap();
    let page = browser.get("/smtp").await;
    for shown in ["mail.example.com", "Port with STARTTLS", "Port with SSL/TLS", "postrider", "No refusals"] {
        assert!(page.shows(shown), "{shown} in {}", page.body);
    }
    for (id, copied) in [("copy-port", "587"), ("copy-tls-port", "465")] {
        assert_eq!(page.between(&format!("id=\"{id}\" class=\"whole\">"), "<"), copied, "{}", page.body);
    }
    assert!(browser.get("/").await.shows("href=\"/smtp\""));
}

#[tokio::test]
async fn starttls_is_not_promised_where_the_listener_does_not_offer_it() {
    let world = World::new().await;
    let host = "127.0.0.1".to_owned();
    let address = SmtpAddress { host, port: Some(1025), offers_starttls: false, tls_port: None };
    world.engine.settings.smtp.set(address).unwrap();
    let page = world.owner().await.get("/smtp").await;
    assert!(page.shows("Port without encryption") && !page.shows("STARTTLS"), "{}", page.body);
}

#[tokio::test]
async fn refusals_are_listed_and_escaped() {
    let world = World::new().await;
    let (mut session, prefix) = session(&world).await;
    session.sender(SmtpSender { mail_from: "root@blog".to_owned(), size: None });
    assert_eq!(session.recipient("<script>@example.net").code(), 553);
    let page = world.viewer().await.get("/smtp").await;
    for shown in ["553 5.1.3", "root@blog", "blog&#60;b&#62;.example [192.0.2.17]", &prefix] {
        assert!(page.shows(shown), "{shown} in {}", page.body);
    }
    assert!(!page.shows("<script>@"));
}

#[tokio::test]
async fn the_timeline_shows_that_a_message_came_by_smtp() {
    let world = World::new().await;
    let (mut session, prefix) = session(&world).await;
    session.sender(SmtpSender::default());
    session.recipient("bob@example.com");
    let decision = session.message(b"From: shop@example.test\r\nSubject: Hi\r\n\r\nx\r\n".to_vec()).await;
    let Decision::Answer(answer) = decision else { panic!("closed") };
    let id = answer.as_line().rsplit_once(' ').unwrap().1.to_owned();
    let page = world.owner().await.get(&format!("/messages/{id}")).await;
    let shown = format!("Accepted by SMTP from 192.0.2.17 (TLSv1.3, key {prefix})");
    assert!(page.shows(&shown), "{}", page.body);
    assert!(world.owner().await.get("/messages?q=via%3Asmtp").await.shows(&id));
}
