//! Tests of quick open, and of the first steps with their test message.

use super::*;
use crate::base::id::AlertId;
use crate::domain::alert::Condition;
use crate::engine::alerts::listing::{AlertFilter, AlertsOf};
use crate::store::op::suppression::Suppression;
use crate::store::row::suppression::SuppressionReason;

#[tokio::test]
async fn quick_open_finds_ids_addresses_domains_and_pages() {
    let world = World::new().await;
    world.owner().await;
    let mut browser = world.owner().await;
    let message = world.send(serde_json::json!({})).await;
    let page = crate::engine::listing::PageRequest { before: None, limit: 9 };
    let domain = world.engine.domains(world.account, page).unwrap().rows[0].0;
    let user = world.engine.users(world.account, page).unwrap().rows[0].id;
    let filter = crate::engine::events::EventFilter::default();
    let event = world.engine.events(world.account, filter, page).unwrap().rows.remove(0);
    let event: serde_json::Value = serde_json::from_slice(&event).unwrap();
    let alerts = AlertFilter { condition: Some(Condition::NewSignIn), ..AlertFilter::default() };
    let signed_in = world.engine.alerts_of(AlertsOf::Account(world.account), alerts, page).unwrap().rows[0].id;
    for (text, path) in [
        (message.to_string(), format!("/messages/{message}")),
        (event["id"].as_str().unwrap().to_owned(), format!("/messages/{message}")),
        (domain.to_string(), format!("/domains/{domain}")),
        ("EXAMPLE.test".to_owned(), format!("/domains/{domain}")),
        (user.to_string(), format!("/users/{user}")),
        (message.to_string().to_lowercase(), format!("/messages/{message}")),
        (signed_in.to_string(), format!("/alerts?older={}#{signed_in}", AlertId(signed_in.0.next()))),
        (world.account.to_string(), "/settings".to_owned()),
        ("api keys".to_owned(), "/keys".to_owned()),
        ("/queue".to_owned(), "/queue".to_owned()),
        ("EXAMPLE.com".to_owned(), "/messages?q=domain%3Aexample.com".to_owned()),
        // No message has this domain, so it is a word.
        ("gone.peter".to_owned(), "/messages?q=gone.peter".to_owned()),
        ("ann@example.com".to_owned(), "/messages?q=ann%40example.com".to_owned()),
        ("your order".to_owned(), "/messages?q=your+order".to_owned()),
        // Owners don't see the operators' pages.
        ("system".to_owned(), "/messages?q=system".to_owned()),
    ] {
        let query: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
        let reply = browser.get(&format!("/open?q={query}")).await;
        assert_eq!((reply.status, reply.location()), (303, path.as_str()), "{text}");
    }
    for unknown in [MessageId::default().to_string(), "dom_x".to_owned(), AccountId::default().to_string()] {
        let reply = browser.get(&format!("/open?q={unknown}")).await;
        assert!(reply.status == 404 && reply.shows("Nothing found with ID"), "{unknown}");
    }
    let form = browser.get("/open").await;
    assert!(form.status == 200 && form.shows("id=\"open-q\"") && form.shows(">Queue</a>"));
    assert!(form.shows("<h1>Search</h1>") && form.between("id=\"open-q\"", ">").ends_with("autofocus"));
    let keeps_field = |page: &Reply| page.shows("<form class=\"search kept\"");
    assert!(keeps_field(&browser.get("/messages?q=order").await) && !keeps_field(&browser.get("/queue").await));
}

#[tokio::test]
async fn first_steps_are_ticked_automatically_and_send_a_test_message() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let page = browser.get("/").await;
    assert!(page.shows("Send your first message") && page.shows("hello@example.test"));
    assert_eq!(page.body.matches("done-step").count(), 1, "the domain is verified");
    assert!(page.shows(&format!("to your address, {EMAIL}.")), "{}", page.body);
    browser.post("/keys", &[("name", "shop"), ("scopes", "send")]).await;
    assert_eq!(browser.get("/").await.body.matches("done-step").count(), 2);
    for language in ["node", "python", "php"] {
        assert!(browser.get(&format!("/?code={language}")).await.shows("POSTRIDER_API_KEY"), "{language}");
    }
    let own = Suppression::of(EMAIL.parse().unwrap(), SuppressionReason::Manual);
    let own = world.engine.suppress(world.account, own).await.unwrap().row.id;
    let refused = browser.post("/test-message", &[]).await;
    assert!(refused.status == 422 && refused.shows("test-fault") && refused.shows("Your address is suppressed."));
    browser.post(&format!("/suppressions/{own}/remove"), &[]).await;
    assert_eq!(world.viewer().await.post("/test-message", &[]).await.status, 403);
    // The message goes to the visitor, whatever a form says.
    let sent = browser.post("/test-message", &[("to", "stranger@example.com")]).await;
    assert!(sent.status == 303 && sent.location().starts_with("/messages/msg_"));
    let message = browser.get(sent.location()).await;
    assert!(message.shows("Test message") && message.shows(EMAIL) && !message.shows("stranger@example.com"));
    assert!(!browser.get("/").await.shows("Send your first message"));
}
