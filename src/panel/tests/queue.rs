//! Tests of pause, resume and retry, of a message's origin, and of exports.

use super::*;
use crate::domain::api_key::Scopes;
use crate::domain::audit::{Action, Actor};
use crate::engine::accounts::NewKey;
use crate::engine::listing::PageRequest;
use crate::panel::wording::EXPORT_SPAN;

const PAGE: PageRequest = PageRequest { before: None, limit: 99 };

async fn deferred_message(world: &World) -> MessageId {
    let message = world.send(serde_json::json!({})).await;
    let end = TransferEnd::Deferred { bounce: None, not_before: None };
    world.settle(message, end, AttemptFacts::default()).await;
    message
}

#[tokio::test]
async fn an_owner_pauses_and_resumes_a_site_and_both_are_logged() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for _ in 0..2 {
        let reply = browser.post("/queue/pause", &[("site", "google")]).await;
        assert_eq!((reply.status, reply.location()), (303, "/queue?done=paused&site=google"));
    }
    let page = browser.get("/queue?done=paused&site=google").await;
    let undo = page.between("class=\"undo\"", "</div>");
    assert!(undo.contains("action=\"/queue/resume\"><input type=\"hidden\" name=\"site\" value=\"google\">"), "{undo}");
    assert!(
        page.shows("Paused destinations without waiting mail")
            && page.shows("Gmail: Paused; mail in transit will finish.")
    );
    assert!(browser.get("/").await.shows("Sending to Gmail is paused. <a href=\"/queue\">Open queue</a>"));
    let message = world.send(serde_json::json!({})).await;
    browser.post("/queue/pause", &[("site", "example.com")]).await;
    let page = browser.get(&format!("/messages/{message}")).await;
    assert!(page.shows("Mail for example.com is paused") && !page.shows("/try\""), "{}", page.body);
    for site in ["google", "example.com", "example.com"] {
        let resumed = browser.post("/queue/resume", &[("site", site)]).await;
        assert_eq!(resumed.location(), format!("/queue?done=resumed&site={site}"));
    }
    assert!(!browser.get("/queue").await.shows("Paused"));
    assert!(browser.get("/audit").await.shows("paused mail for <strong>Gmail</strong>"));
    let lines = world.engine.audit_log(world.account, PAGE).unwrap().rows;
    let by_people = lines.iter().rev().filter(|(_, row)| row.actor != Actor::Operator);
    let lines: Vec<_> = by_people.map(|(_, row)| (row.change.action, row.change.name.as_str())).collect();
    let (paused, resumed) = (Action::SitePaused, Action::SiteResumed);
    let expected = [(paused, "google"), (paused, "google"), (paused, "example.com"), (resumed, "google")];
    assert_eq!(lines[..4], expected);
    assert_eq!(lines[4..], [(resumed, "example.com")], "resuming an active site is not logged");
}

#[tokio::test]
async fn a_pause_says_when_its_mail_expires() {
    let world = World::new().await;
    let page = world.owner().await.get("/queue").await;
    assert!(page.shows(">Stop refreshing<") && page.body.matches(">Pause").count() == 2, "heading and button");
    assert!(page.shows("still expires 48 hours after acceptance"), "{}", page.body);
}

#[tokio::test]
async fn an_owner_pauses_a_domain_without_waiting_mail() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    assert!(browser.get("/queue").await.shows("Pause mail to a domain"));
    let reply = browser.post("/queue/pause", &[("domain", "Example.COM")]).await;
    assert_eq!(reply.location(), "/queue?done=paused&site=example.com");
    for typed in ["", "a b", "localhost"] {
        let refused = browser.post("/queue/pause", &[("domain", typed)]).await;
        assert_eq!(refused.status, 422, "{typed}");
        assert!(refused.shows("domain-fault") && refused.shows(&format!("name=\"domain\" value=\"{typed}\"")));
    }
    assert!(!world.viewer().await.get("/queue").await.shows("Pause mail to a domain"));
}

#[tokio::test]
async fn only_owners_pause_a_site_and_only_from_the_panel() {
    let world = World::new().await;
    let mut viewer = world.viewer().await;
    let message = deferred_message(&world).await;
    for path in ["/queue/pause", "/queue/resume", "/queue/try", &format!("/messages/{message}/try")] {
        assert_eq!(viewer.post(path, &[("site", "google")]).await.status, 403, "{path}");
    }
    assert!(!viewer.get(&format!("/messages/{message}")).await.shows("Retry now"));
    let mut browser = world.owner().await;
    browser.origin = Origin::Lines("Sec-Fetch-Site: cross-site\r\n");
    for path in ["/queue/pause", "/queue/resume", "/queue/try", &format!("/messages/{message}/try")] {
        assert_eq!(browser.post(path, &[("site", "google")]).await.status, 403, "{path}");
    }
    browser.origin = Origin::Own;
    for site in ["", "a b", "<b>"] {
        let status = browser.post("/queue/pause", &[("site", site)]).await.status;
        assert_eq!(status, if site == "<b>" { 303 } else { 404 }, "{site:?}");
    }
    assert!(browser.get("/queue").await.shows("&#60;b&#62;"));
    let lines = world.engine.audit_log(world.account, PAGE).unwrap().rows;
    assert_eq!(lines.iter().filter(|(_, row)| row.actor != Actor::Operator).count(), 1);
}

#[tokio::test]
async fn a_deferred_message_is_retried_at_once_and_a_finished_one_is_not() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let message = deferred_message(&world).await;
    let due = || world.engine.message(world.account, message).unwrap().unwrap().transfer.due;
    assert!(due() > Some(world.clock.now()));
    let path = format!("/messages/{message}/try");
    assert!(browser.get(&format!("/messages/{message}")).await.shows(&path));
    assert_eq!(browser.post(&path, &[]).await.location(), format!("/messages/{message}?done=tried"));
    assert_eq!(due(), Some(world.clock.now()));
    let lines = world.engine.audit_log(world.account, PAGE).unwrap().rows;
    assert_eq!(lines[0].1.change.action, Action::MessageTried);
    world.settle(message, TransferEnd::Delivered, AttemptFacts::default()).await;
    assert_eq!(browser.post(&path, &[]).await.status, 409);
    assert_eq!(browser.post("/messages/msg_00000000000000000000000000/try", &[]).await.status, 404);
}

#[tokio::test]
async fn a_message_page_shows_its_key_signatures_and_delivery_time() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let operator = Caller { account: world.account, key: None };
    let scopes = Scopes::ALL;
    let new = NewKey { name: "web shop".to_owned(), stream: None, scopes, expires_at: None };
    let key = world.engine.create_key(&operator, new).await.unwrap().0;
    let by_operator = world.send(serde_json::json!({})).await;
    let caller = Caller { account: world.account, key: Some(Arc::new(key.clone())) };
    let message = world.send_as(&caller, serde_json::json!({})).await;
    world.advance(Duration::from_millis(1_800));
    world.settle(message, TransferEnd::Delivered, AttemptFacts::default()).await;
    let page = browser.get(&format!("/messages/{message}")).await;
    assert!(page.shows(&format!("<dt>API key</dt><dd><a href=\"/keys/{}\">web shop</a>", key.id)), "{}", page.body);
    assert!(page.shows("in 1.8 s, attempt"));
    let signed = page.between("<dt>Signed by</dt><dd>", "</dd>");
    assert_eq!(signed.matches("._domainkey.example.test").count(), 2, "{signed}");
    assert!(!browser.get(&format!("/messages/{by_operator}")).await.shows("<dt>API key</dt>"));
    let overview = browser.get("/").await;
    assert!(overview.shows("Median time</span><strong>1.8 s</strong>"));
}

#[tokio::test]
async fn the_median_time_is_of_the_period_and_stream() {
    let world = World::new().await;
    let deliver = async |seconds| {
        let message = world.send(serde_json::json!({})).await;
        world.advance(Duration::from_secs(seconds));
        world.settle(message, TransferEnd::Delivered, AttemptFacts::default()).await;
    };
    deliver(2_880).await;
    world.advance(Duration::from_secs(3 * 24 * 3600));
    deliver(2).await;
    let mut browser = world.owner().await;
    for (query, shown) in [
        ("range=24h", "Median time</span><strong>2 s</strong><span class=\"before\">95% within 2 s<"),
        ("range=7d", "Median time</span><strong>2 s</strong><span class=\"before\">95% within 48 min<"),
        ("range=30d&stream=marketing", "Median time</span><strong>–</strong>"),
    ] {
        let page = browser.get(&format!("/?{query}")).await;
        assert!(page.shows(shown), "{query}: {}", page.between("Median time", "</li>"));
    }
    for _ in 0..200 {
        deliver(3).await;
    }
    let page = world.owner().await.get("/?range=7d").await;
    assert!(page.shows("Median time</span><strong>4 s</strong>"), "{}", page.between("Median time", "</li>"));
}

#[tokio::test]
async fn events_are_exported_with_the_filters_of_the_page() {
    let world = World::new().await;
    let mut browser = world.viewer().await;
    let mut last = None;
    for _ in 0..230 {
        last = Some(world.send(serde_json::json!({})).await);
    }
    let last = last.unwrap();
    world.settle(last, TransferEnd::Delivered, AttemptFacts::default()).await;
    let lines = |reply: &Reply| -> Vec<serde_json::Value> {
        reply.unchunked().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = browser.get("/events/export?format=ndjson").await;
    assert_eq!((all.status, all.header("content-type")), (200, "application/x-ndjson"));
    assert_eq!(all.header("content-disposition"), "attachment; filename=\"events-2023-10-15-2023-11-14.ndjson\"");
    let events = lines(&all);
    assert_eq!((events.len(), events[0]["type"].as_str()), (231, Some("queued")));
    assert_eq!(events[230]["type"], "delivered");
    let ids: Vec<_> = events.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "oldest first, none twice");
    let of_one = lines(&browser.get(&format!("/events/export?format=ndjson&message_id={last}")).await);
    assert_eq!(of_one.len(), 2);
    assert_eq!(lines(&browser.get("/events/export?format=ndjson&type=delivered").await).len(), 1);
    assert_eq!(browser.get("/events/export?type=opened").await.status, 422);
    assert!(browser.get("/events?type=delivered").await.shows("formaction=\"/events/export\""));
    let refused = browser.get("/events/export?after=2020-01-01").await;
    assert!(refused.status == 422 && refused.shows("An export covers at most 30 days."), "{}", refused.body);
    assert!(refused.shows("<h1>Events</h1>") && refused.shows("value=\"2020-01-01\"") && refused.shows("id=\"rail\""));
    assert_eq!(world.browser().get("/events/export").await.status, 303, "an export needs a session");
}

#[tokio::test]
async fn messages_are_exported_with_the_search_of_the_page() {
    let world = World::new().await;
    let mut browser = world.viewer().await;
    let first = world.send(serde_json::json!({ "metadata": { "order": "7" } })).await.to_string();
    let second = world.send(serde_json::json!({ "subject": "Invoice" })).await.to_string();
    let ids = |reply: &Reply| -> Vec<String> {
        reply.unchunked().lines().skip(1).map(|line| line.split(',').next().unwrap().to_owned()).collect()
    };
    let all = browser.get("/messages/export").await;
    assert_eq!((all.status, all.header("content-type")), (200, "text/csv; charset=utf-8"));
    assert_eq!(all.header("content-disposition"), "attachment; filename=\"messages-2023-10-15-2023-11-14.csv\"");
    assert_eq!(ids(&all), [first.as_str(), &second]);
    assert_eq!(ids(&browser.get("/messages/export?q=metadata.order:7").await), [first.as_str()]);
    assert_eq!(ids(&browser.get("/messages/export?q=-metadata.order:7&status=queued").await), [second.as_str()]);
    assert!(ids(&browser.get("/messages/export?before=2023-11-14T00:00:00Z").await).is_empty());
    for faulty in ["q=to:", "q=status:open", "after=2020-01-01", "q=after:2020-01-01"] {
        let reply = browser.get(&format!("/messages/export?{faulty}")).await;
        assert!(reply.status == 303 && reply.location().starts_with("/messages?q="), "{faulty} {}", reply.location());
    }
    let page = browser.get("/messages/export?after=2020-01-01").await.location().to_owned();
    assert!(browser.get(&page).await.shows(EXPORT_SPAN), "the search stays, and its page says what to change");
    assert_eq!(browser.get("/messages/export?format=xlsx").await.status, 422);
    let page = browser.get("/messages?q=metadata.order:7").await;
    assert!(page.shows(&first) && !page.shows(&second) && !page.shows("found by metadata"));
    assert!(page.shows("formaction=\"/messages/export\""), "{}", page.body);
    assert_eq!(world.browser().get("/messages/export").await.status, 303, "an export needs a session");
}
