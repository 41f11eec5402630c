//! Tests of page contents and page paths.

use super::*;
use crate::domain::event::{Authenticated, Bounce, BounceKind, BounceSource, TlsFacts, TlsPolicy};
use crate::store::op::account::AccountChange;

pub(super) fn facts(code: u16, response: &str) -> AttemptFacts {
    AttemptFacts {
        attempt: Some(1),
        smtp_code: Some(code),
        smtp_enhanced_code: Some(if code == 250 { "2.0.0" } else { "5.1.1" }.to_owned()),
        smtp_response: Some(response.to_owned()),
        mx_host: Some("mx1.example.com".to_owned()),
        mx_ip: Some("192.0.2.25".to_owned()),
        relay: Some("direct".to_owned()),
        tls: Some(TlsFacts {
            version: "TLSv1.3".to_owned(),
            cipher: "TLS_AES_256_GCM_SHA384".to_owned(),
            authenticated: Authenticated::Pkix,
            policy: TlsPolicy::MtaSts,
        }),
        duration_ms: Some(184),
    }
}

fn bounce() -> TransferEnd {
    TransferEnd::Bounced(Bounce {
        kind: BounceKind::Hard,
        category: "invalid_recipient".to_owned(),
        status: Some("5.1.1".to_owned()),
        source: BounceSource::Smtp,
        rule: "user-unknown".to_owned(),
        advice: "Remove the address.".to_owned(),
        suppressed: true,
    })
}

#[tokio::test]
async fn a_quota_is_shown_from_four_fifths_of_its_window() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let change = AccountChange { quota_per_hour: Some(5), ..AccountChange::default() };
    world.engine.change_account(world.account, change).await.unwrap_or_else(|_| panic!());
    for _ in 0..3 {
        world.send(serde_json::json!({})).await;
    }
    assert!(!browser.get("/").await.shows("id=\"quota\""), "three of five");
    world.send(serde_json::json!({})).await;
    let page = browser.get("/").await;
    assert!(page.shows("This hour: <strong>4</strong> of 5") && !page.shows("This day"), "{}", page.body);
}

#[tokio::test]
async fn the_message_page_shows_the_whole_timeline() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    browser.post("/settings", &[("time_zone", "Europe/Vienna")]).await;
    let message = world.send(serde_json::json!({})).await;
    world.advance(Duration::from_millis(1_840));
    world.settle(message, bounce(), facts(550, "550-5.1.1 <bob@example.com>\r\n550 5.1.1 unknown here")).await;
    let page = browser.get(&format!("/messages/{message}")).await;
    for expected in [
        "Your order",
        "14 Nov 2023, <span>23:13:20 CET</span>",
        "mx1.example.com [192.0.2.25]",
        "direct",
        "550 5.1.1",
        "550-5.1.1 &#60;bob@example.com&#62;\r\n550 5.1.1 unknown here",
        "TLSv1.3 TLS_AES_256_GCM_SHA384 (certificate verified, required by MTA-STS)",
        "+1.8 s",
        "Remove the address.",
        "rejected it (attempt 1)",
        &format!("&#60;{message}@example.test&#62;"),
    ] {
        assert!(page.shows(expected), "{expected} in {}", page.body);
    }
    assert_eq!(browser.get(&format!("/messages/{}", MessageId::default())).await.status, 404);
    assert_eq!(browser.get("/messages/nonsense").await.status, 404);
}

#[tokio::test]
async fn the_record_equals_the_api_answer_and_the_source_is_text() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let message = world.send(serde_json::json!({ "html": "<p>Hi</p><img src=\"https://x.test/p\">" })).await;
    let json = browser.get(&format!("/messages/{message}/json")).await;
    assert_eq!(json.header("content-type"), "application/json");
    assert!(json.body.starts_with(&format!("{{\"id\":\"{message}\"")));
    let source = browser.get(&format!("/messages/{message}/source")).await;
    assert_eq!(source.header("content-type"), "text/plain; charset=utf-8");
    assert!(source.shows("DKIM-Signature:"));
    let preview = browser.get(&format!("/messages/{message}/preview")).await;
    let policy = preview.header("content-security-policy");
    assert!(policy.starts_with("sandbox; default-src 'none'") && policy.contains("img-src data:;"), "{policy}");
    let images = browser.get(&format!("/messages/{message}/preview?images=remote")).await;
    assert!(images.header("content-security-policy").contains("img-src data: https: http:;"));
    let page = browser.get(&format!("/messages/{message}")).await;
    assert!(page.shows("sandbox=\"\"") && page.shows("Load images"));
}

#[tokio::test]
async fn deleted_content_shows_its_date_and_keeps_the_timeline() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    browser.post("/settings", &[("content_retention_days", "7")]).await;
    let message = world.send(serde_json::json!({})).await;
    world.settle(message, TransferEnd::Delivered, facts(250, "250 2.0.0 Ok")).await;
    world.advance(7 * DAY);
    let mut browser = world.owner().await;
    let page = browser.get(&format!("/messages/{message}")).await;
    assert!(page.shows("Content deleted") && page.shows("7-day retention") && page.shows("250 2.0.0 Ok"));
    assert_eq!(browser.get(&format!("/messages/{message}/source")).await.status, 410);
}

#[tokio::test]
async fn a_waiting_message_is_canceled_once() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let message = world.send(serde_json::json!({})).await;
    let path = format!("/messages/{message}/cancel");
    assert!(browser.get(&format!("/messages/{message}")).await.shows(&format!("href=\"{path}\">Cancel message</a>")));
    let asked = browser.get(&path).await;
    assert!(asked.shows("This can&#39;t be undone.") || asked.shows("This can't be undone."), "{}", asked.body);
    assert!(asked.shows(&format!("method=\"post\" action=\"{path}\"")) && asked.shows("bob@example.com"));
    assert_eq!(browser.post(&path, &[]).await.location(), format!("/messages/{message}?done=canceled"));
    assert_eq!(browser.post(&path, &[]).await.status, 409);
    assert_eq!(browser.get(&path).await.location(), format!("/messages/{message}"), "nothing is left to cancel");
    assert!(browser.get(&format!("/messages/{message}?done=canceled")).await.shows("Message canceled."));
}

#[tokio::test]
async fn messages_are_found_by_typed_pasted_and_chosen_filters() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let mut ids = Vec::new();
    for (to, subject) in [("ann@a.test", "Red order"), ("bob@b.test", "Blue order"), ("cy@c.test", "Invoice")] {
        ids.push(world.send(serde_json::json!({ "to": to, "subject": subject })).await);
        world.advance(Duration::from_secs(1));
    }
    world.settle(ids[0], TransferEnd::Delivered, facts(250, "250 2.0.0 Ok")).await;
    let header = format!("%3C{}@example.test%3E", ids[1]);
    for (query, found) in [
        ("", &[true, true, true]),
        ("?q=order", &[true, true, false]),
        ("?q=blue+order", &[false, true, false]),
        ("?q=ann@a.test", &[true, false, false]),
        ("?q=to:cy@c.test", &[false, false, true]),
        ("?q=status:delivered", &[true, false, false]),
        ("?status=delivered&q=order", &[true, false, false]),
        (&format!("?q={header}"), &[false, true, false]),
        ("?q=%3Cforeign@gmail.com%3E", &[false, false, false]),
        ("?q=status:nonsense", &[false, false, false]),
        ("?q=before:2023-11-14", &[false, false, false]),
        ("?q=after:2023-11-14", &[true, true, true]),
    ] {
        let page = browser.get(&format!("/messages{query}")).await;
        assert_eq!(page.status, 200, "{query}");
        let shown: Vec<_> = ids.iter().map(|id| page.shows(&format!("href=\"/messages/{id}\""))).collect();
        assert_eq!(shown, found, "{query}");
    }
    let page = browser.get("/messages?q=red+zebra").await;
    assert!(page.shows("href=\"/messages?q=red\" aria-label=\"Remove the filter zebra\">zebra ×"));
    let direct = browser.get(&format!("/messages?q={}", ids[2])).await;
    assert_eq!((direct.status, direct.location()), (303, format!("/messages/{}", ids[2]).as_str()));
}

#[tokio::test]
async fn message_pages_have_no_gaps_in_either_direction() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for number in 0..100 {
        world.send(serde_json::json!({ "subject": format!("n{number}") })).await;
    }
    let shown = |page: &Reply| -> Vec<String> {
        page.body.split("<a href=\"/messages/msg_").skip(1).map(|rest| rest[..26].to_owned()).collect()
    };
    let link = |page: &Reply, rel: &str| -> Option<String> {
        let rest = page.body.split(&format!("<a rel=\"{rel}\" class=\"button\" href=\"")).nth(1)?;
        Some(rest.split('"').next()?.replace("&#38;", "&"))
    };
    let first = browser.get("/messages").await;
    assert_eq!((shown(&first).len(), link(&first, "prev")), (40, None));
    let second = browser.get(&link(&first, "next").unwrap()).await;
    let third = browser.get(&link(&second, "next").unwrap()).await;
    assert_eq!((shown(&second).len(), shown(&third).len(), link(&third, "next")), (40, 20, None));
    let back = browser.get(&link(&third, "prev").unwrap()).await;
    assert_eq!(shown(&back), shown(&second));
    let newest = browser.get(&link(&back, "prev").unwrap()).await;
    assert_eq!((shown(&newest), link(&newest, "prev")), (shown(&first), None));
}

#[tokio::test]
async fn the_overview_counts_its_period_and_shows_first_steps() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let empty = browser.get("/").await;
    assert!(empty.shows("Send your first message") && empty.shows("http://panel.test/v1/messages"));
    assert!(empty.shows("hello@example.test"));
    let message = world.send(serde_json::json!({})).await;
    world.settle(message, TransferEnd::Delivered, facts(250, "250 2.0.0 Ok")).await;
    let page = browser.get("/").await;
    let delivered =
        "<a href=\"/messages?q=after%3A2023-11-08&#38;status=delivered\"><span class=\"label\">Delivered</span>";
    assert!(page.shows(&format!("{delivered}<strong>1</strong>")) && !page.shows("Send your first"), "{}", page.body);
    world.advance(8 * DAY);
    assert!(world.owner().await.get("/").await.shows("Delivered</span><strong>0</strong>"));
}

#[tokio::test]
async fn the_overview_counts_messages_not_attempts() {
    let world = World::new().await;
    let message = world.send(serde_json::json!({})).await;
    for response in ["451 4.3.0 First", "451 4.3.0 Second"] {
        let end = TransferEnd::Deferred { bounce: None, not_before: None };
        world.settle(message, end, facts(451, response)).await;
        world.advance(DAY / 24);
    }
    world.settle(message, TransferEnd::Delivered, facts(250, "250 2.0.0 Ok")).await;
    let page = world.owner().await.get("/").await;
    let figures = page.between("<ul class=\"figures\">", "</ul>");
    for figure in ["Accepted</span><strong>1<", "Delivered</span><strong>1<", "Bounced</span><strong>0<"] {
        assert!(figures.contains(figure), "{figure}: {figures}");
    }
    assert_eq!(figures.matches("of 1<").count(), 3, "{figures}");
}

#[tokio::test]
async fn examples_name_the_public_url() {
    let world = World::at("http://mail.panel.test/").await;
    world.send(serde_json::json!({})).await;
    let mut browser = world.owner().await;
    for path in ["/keys", "/domains", "/suppressions", "/webhooks"] {
        let page = browser.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        let example = page.between("curl\"", "</pre>");
        assert!(example.contains("http://mail.panel.test/v1/"), "{path}: {example}");
        assert!(example.contains("$POSTRIDER_API_KEY"), "{path}: {example}");
    }
}

#[tokio::test]
async fn pages_have_security_headers_and_programs_get_json() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for path in ["/", "/login", "/nowhere", "/messages/nonsense"] {
        let page = browser.get(path).await;
        let policy = page.header("content-security-policy");
        if page.status != 303 {
            assert!(policy.contains("default-src 'none'; script-src 'self'; style-src 'self'"), "{path}: {policy}");
            assert!(!page.shows(" style=") && !page.shows("<style") && !page.shows(" onclick="), "{path}");
        }
        assert_eq!((page.header("cache-control"), page.header("x-content-type-options")), ("no-store", "nosniff"));
        assert_eq!(page.header("cross-origin-opener-policy"), "same-origin");
    }
    let page = browser.get("/login?next=/users").await;
    assert_eq!(page.location(), "/users", "a signed-in visitor continues");
    let style =
        browser.get("/").await.body.split("href=\"/assets/").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let asset = browser.get(&format!("/assets/{style}")).await;
    assert_eq!((asset.status, asset.header("cache-control")), (200, "public, max-age=31536000, immutable"));
    assert_eq!(browser.get("/assets/panel-0.css").await.status, 404);

    for (path, status) in [("/v1/nowhere", 401), ("/dev/nowhere", 401), ("/healthz", 200)] {
        let reply = browser.get(path).await;
        assert_eq!((reply.status, reply.shows("<html")), (status, false), "{path}");
    }
    let program = browser.ask("GET", "/nowhere", "Accept: application/json\r\n", "").await;
    // The header occurs twice here, and one value names HTML, so the answer is a page.
    assert_eq!(program.status, 404);
    let reply = browser.ask("DELETE", "/messages", "", "").await;
    assert_eq!((reply.status, reply.header("allow")), (405, "GET, HEAD, POST"));
    assert!(reply.shows("Method not allowed"));
    let reply =
        browser.ask("POST", "/settings", "Content-Type: application/json\r\nSec-Fetch-Site: none\r\n", "{}").await;
    assert_eq!((reply.status, reply.shows("<html")), (415, true));
}

#[tokio::test]
async fn lists_have_a_row_per_day_and_name_the_zone_once() {
    let world = World::new().await;
    world.send(serde_json::json!({})).await;
    world.advance(DAY);
    let mut browser = world.owner().await;
    world.send(serde_json::json!({})).await;
    world.send(serde_json::json!({})).await;
    for path in ["/messages", "/events", "/"] {
        let page = browser.get(path).await;
        let days: Vec<_> = page.body.split("scope=\"rowgroup\" colspan=\"4\">").skip(1).collect();
        assert_eq!(days.len(), 2, "{path}");
        assert!(days[0].starts_with("Today</th>") && days[1].starts_with("Tue 14 Nov</th>"), "{path}: {}", days[1]);
        assert!(days[1].contains("<span>22:13:20</span></time>"), "{path}");
        assert_eq!(page.body.matches("Times in UTC.").count(), 1, "{path}");
    }
}
