//! Tests of the message page, of the overview, and of the `dev` pages.

use super::page_contents::facts;
use super::*;
use crate::domain::event::{Bounce, BounceKind, BounceSource};
use crate::domain::webhook_url::WebhookUrl;
use crate::engine::endpoints::NewEndpoint;
use crate::store::op::sweep::SweepEvents;

const HOUR: Duration = Duration::from_secs(3600);

fn bounced() -> TransferEnd {
    TransferEnd::Bounced(Bounce {
        kind: BounceKind::Block,
        category: "policy".to_owned(),
        status: Some("5.7.1".to_owned()),
        source: BounceSource::Smtp,
        rule: "policy".to_owned(),
        advice: "Ask the receiver.".to_owned(),
        suppressed: false,
    })
}

#[tokio::test]
async fn a_failed_attempt_shows_its_conversation_and_a_successful_one_does_not() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let (failed, taken) = (world.send(serde_json::json!({})).await, world.send(serde_json::json!({})).await);
    world.settle(failed, bounced(), AttemptFacts::default()).await;
    world.settle(taken, TransferEnd::Delivered, AttemptFacts::default()).await;
    let page = browser.get(&format!("/messages/{failed}")).await;
    assert!(page.shows("&#62; RCPT TO:&#60;bob@example.com&#62;\n&#60; 550 &#60;script&#62;no"), "{}", page.body);
    assert!(!browser.get(&format!("/messages/{taken}")).await.shows("SMTP conversation"));
    world.advance(31 * DAY);
    world.engine.store.commit(SweepEvents { due: Timestamp::ZERO }).await.unwrap();
    let page = world.owner().await.get(&format!("/messages/{failed}")).await;
    assert!(page.shows("Undeliverable."), "the timeline stays");
    assert!(!page.shows("SMTP conversation"), "the transcript expires with the event log");
}

#[tokio::test]
async fn the_timeline_shows_the_webhook_deliveries_of_each_event() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let mut endpoints = Vec::new();
    for url in ["https://a.example/hook", "https://b.example/<hook>"] {
        let url = WebhookUrl::parse(url, |_| true).unwrap();
        let new = NewEndpoint { url, events: None, description: None };
        endpoints.push(world.engine.create_endpoint(world.account, new).await.unwrap().0);
    }
    let before = world.send(serde_json::json!({})).await;
    let message = world.send(serde_json::json!({})).await;
    let page = browser.get(&format!("/messages/{message}")).await;
    for (endpoint, url) in endpoints.iter().zip(["a.example/hook", "b.example/&#60;hook&#62;"]) {
        let link = format!("<a href=\"/webhooks/{endpoint}/deliveries/dlv_");
        assert_eq!(page.body.matches(&link).count(), 1, "its own delivery, and no other message's");
        assert!(page.shows(&format!("\">{url}</a>")));
    }
    assert!(page.shows("not yet tried") && page.shows("Pending"));
    let again = page.body.split("/deliveries/").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
    let again = world.engine.redeliver(world.account, again).await.unwrap().id;
    let page = browser.get(&format!("/messages/{message}")).await;
    assert!(page.shows(&format!("/deliveries/{again}\"")), "the latest of them");
    world.engine.delete_endpoint(world.account, endpoints[0]).await.unwrap();
    let page = browser.get(&format!("/messages/{before}")).await;
    assert!(page.shows("a deleted webhook") && page.shows(">b.example/&#60;hook&#62;</a>"));
}

#[tokio::test]
async fn a_message_preview_has_tabs_widths_and_a_download() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let message = world.send(serde_json::json!({ "html": "<p>Hi</p><img src=\"https://x.test/p\">" })).await;
    let own = format!("/messages/{message}");
    let page = browser.get(&own).await;
    assert!(page.shows("class=\"preview short\"") && page.shows("width=390#content") && page.shows("copy-id"));
    assert!(page.shows(&format!("curl http://panel.test/v1{own} ")));
    let page = browser.get(&format!("{own}?width=390&images=remote")).await;
    assert!(
        page.shows("class=\"preview w390 short\"")
            && page.shows("preview?images=remote\"")
            && !page.shows("not loaded")
    );
    for (tab, shown) in [
        ("html", "<iframe"),
        ("text", "class=\"mail-text\""),
        ("headers", "aria-label=\"Headers\""),
        ("attachments", "no attachments"),
        ("source", "aria-label=\"Source\""),
        ("json", "aria-label=\"JSON\""),
    ] {
        let page = browser.get(&format!("{own}?tab={tab}")).await;
        let here = format!("?tab={tab}#content\" aria-current=\"page\"");
        assert!(page.shows(&here) && page.shows(shown), "{tab}: {}", page.between("id=\"content\"", "</section>"));
        assert_eq!(page.shows("<iframe"), tab == "html", "{tab}");
    }
    let page = browser.get(&format!("{own}?tab=headers")).await;
    let headers = page.between("aria-label=\"Headers\"", "</pre>");
    for name in ["DKIM-Signature:", "Message-ID: &#60;", "Date: ", "Subject: Your order", "MIME-Version: 1.0"] {
        assert!(headers.contains(name), "{name} in {headers}");
    }
    assert!(!headers.contains("Thank you."));
    let file = browser.get(&format!("{own}/download")).await;
    assert_eq!(file.header("content-type"), "message/rfc822");
    assert_eq!(file.header("content-disposition"), format!("attachment; filename=\"{message}.eml\""));
    assert!(file.shows("DKIM-Signature:"));
    world.advance(31 * DAY);
    assert_eq!(world.owner().await.get(&format!("{own}/download")).await.status, 410);
}

#[tokio::test]
async fn the_overview_draws_the_counts_and_judges_the_reputation() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for number in 0..120 {
        let message = world.send(serde_json::json!({ "to": format!("u{number}@example.com") })).await;
        let end = if number % 15 == 0 { bounced() } else { TransferEnd::Delivered };
        world.settle(message, end, AttemptFacts::default()).await;
    }
    let page = browser.get("/").await;
    for expected in [
        "120 messages accepted in the last 7 days. Needs attention:",
        "Bounces on the transactional stream in 7 days: 6.67% (8 of 120). Providers may block above 5%.",
        "14 Nov: 112 delivered, 8 bounced, 0 failed</span>",
        "class=\"rate\"",
        "<th scope=\"row\">14 Nov</th><td>120</td><td>112</td><td>0</td><td>8</td><td>0</td><td>6.67%</td>",
        "<strong>93.33%</strong>",
        "0% (0 of 112)",
    ] {
        assert!(page.shows(expected), "{expected} in {}", page.body);
    }
    let counted = page.between("class=\"findings\"", "View messages").split("href=\"").nth(1).unwrap_or_default();
    let counted = counted.split('"').next().unwrap_or_default().replace("&#38;", "&");
    let from = "after%3A2023-11-07T23%3A00";
    assert_eq!(counted, format!("/messages?q={from}&status=bounced&stream=transactional"));
    let page = browser.get("/?range=24h").await;
    assert!(page.shows(">22:00: 112 delivered"), "the hour in the account's zone");
    assert!(page.shows("120 messages accepted in the last 24 hours. Needs attention:"));
    let page = browser.get("/?range=30d&stream=marketing").await;
    assert!(page.shows("<p class=\"verdict\">0 messages accepted in the last 30 days, marketing stream. Needs"));
    assert!(page.shows("No messages in the last 30 days, marketing stream"));
    assert!(page.shows("href=\"/?range=7d&#38;stream=marketing\""), "a choice keeps the other");
    world.advance(2 * HOUR);
    browser.post("/settings", &[("time_zone", "Asia/Tokyo")]).await;
    assert!(browser.get("/?range=7d").await.shows(">15 Nov: 112 delivered"), "a day is the zone's");
}

#[tokio::test]
async fn captured_mail_pages_exist_only_in_dev() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    assert!(!browser.get("/").await.shows("/captured"));
    let message = world.send(serde_json::json!({})).await;
    let own = format!("/captured/{message}");
    for path in ["/captured", &own, &format!("{own}/preview"), &format!("{own}/source")] {
        assert_eq!(browser.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn the_overview_shows_delivery_problems_and_last_week() {
    let world = World::new().await;
    let first = world.send(serde_json::json!({ "to": "a@long-ago.test" })).await;
    world.settle(first, bounced(), facts(550, "550 5.1.1 Who?")).await;
    world.advance(7 * DAY);
    let mut browser = world.owner().await;
    for number in 0..3 {
        let message = world.send(serde_json::json!({ "to": format!("u{number}@Example.com") })).await;
        world.settle(message, bounced(), facts(550, &format!("550 5.1.1 No <b>{number}</b>"))).await;
    }
    let deferred_id = world.send(serde_json::json!({ "to": "x@example.org" })).await;
    let deferred = TransferEnd::Deferred { bounce: None, not_before: None };
    world.settle(deferred_id, deferred, facts(451, "451 4.7.1 Later")).await;
    let page = browser.get("/").await;
    let listed = page.between("Delivery problems", "</table>");
    assert!(listed.contains(">example.com</a>") && listed.contains("550 5.1.1 No &#60;b&#62;2"), "{listed}");
    assert!(listed.contains("data-label=\"Count\">3</td>") && listed.contains("451 4.7.1 Later"), "{listed}");
    assert!(!listed.contains("long-ago"), "that was last week");
    assert!(page.shows("The most frequent responses in the last 7 days. <a href=\"/docs/troubleshooting\">"));
    let listed = |page: &Reply| page.between("Delivery problems", "</section>").to_owned();
    let month = listed(&browser.get("/?range=30d").await);
    assert!(month.contains("long-ago") && month.contains("in the last 30 days."), "{month}");
    assert!(browser.get("/?range=30d&stream=marketing").await.shows("No messages in"));
    assert!(listed(&browser.get("/?range=30d&stream=marketing").await).is_empty());
    assert!(page.shows("<strong>4</strong>"));
    assert!(browser.get("/?range=24h").await.shows("<span class=\"before\">1 same time last week</span>"));
}

#[tokio::test]
async fn a_retried_message_says_the_failure_first_and_asks_for_nothing() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let [retried, refused] = [world.send(serde_json::json!({})).await, world.send(serde_json::json!({})).await];
    let timed_out = TransferEnd::Deferred { bounce: Some(crate::smtp::finding::timed_out()), not_before: None };
    world.settle(retried, timed_out, AttemptFacts::default()).await;
    world.settle(refused, bounced(), AttemptFacts::default()).await;
    let page = browser.get(&format!("/messages/{retried}")).await;
    let said =
        "<p class=\"advice\">The server did not answer in time. Nothing to do: Postrider retries the message.</p>";
    assert!(page.shows(said), "{}", page.body);
    let page = browser.get(&format!("/messages/{refused}")).await;
    assert!(page.shows("<span class=\"ours\">What to do</span> Ask the receiver."), "{}", page.body);
}

#[tokio::test]
async fn a_message_canceled_after_attempts_says_so_and_is_no_longer_live() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let [tried, untried] =
        [world.send(serde_json::json!({ "subject": "Your <b>code" })).await, world.send(serde_json::json!({})).await];
    let end = TransferEnd::Deferred { bounce: None, not_before: None };
    world.settle(tried, end, AttemptFacts::default()).await;
    assert!(browser.get(&format!("/messages/{tried}")).await.shows("data-live="));
    assert!(browser.get(&format!("/messages/{tried}/cancel")).await.shows("<bdi>Your &#60;b&#62;code</bdi>"));
    for (message, words) in [(tried, "Canceled before it was delivered"), (untried, "Canceled before it was sent")] {
        browser.post(&format!("/messages/{message}/cancel"), &[]).await;
        let page = browser.get(&format!("/messages/{message}")).await;
        assert!(page.shows(words) && !page.shows("data-live="), "{}", page.body);
    }
}
