//! Tests of message search by response, domain and key, and with excluded terms.

use super::page_contents::facts;
use super::*;

#[tokio::test]
async fn messages_are_found_by_responses_and_excluded_terms() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let deferred = TransferEnd::Deferred { bounce: None, not_before: None };
    let ends = [
        ("a@example.com", "Order one", Some((deferred, facts(451, "451 4.7.1 Greylisted, try again")))),
        ("b@example.com", "Order two", Some((TransferEnd::Delivered, facts(250, "250 2.0.0 Ok")))),
        ("c@example.org", "Invoice", None),
    ];
    let mut ids = Vec::new();
    for (to, subject, end) in ends {
        let id = world.send(serde_json::json!({ "to": to, "subject": subject })).await;
        if let Some((end, facts)) = end {
            world.settle(id, end, facts).await;
        }
        ids.push(id);
    }
    for (search, found) in [
        ("code:451", [true, false, false]),
        ("answer:greylisted", [true, false, false]),
        ("answer:\"try AGAIN\"", [true, false, false]),
        ("domain:example.org", [false, false, true]),
        ("domain:EXAMPLE.test", [true, true, true]),
        ("@example.com", [true, true, false]),
        ("example.org", [false, false, true]),
        ("key:key_00000000000000000000000000", [false, false, false]),
        ("-status:delivered", [true, false, true]),
        ("order -two", [true, false, false]),
        ("-to:a@example.com -domain:example.org", [false, true, false]),
        (&format!("-{}", ids[0]), [false, true, true]),
        ("-code:250 -code:451", [false, false, true]),
    ] {
        let query: String = form_urlencoded::byte_serialize(search.as_bytes()).collect();
        let page = browser.get(&format!("/messages?q={query}")).await;
        let shown = [0, 1, 2].map(|n| page.shows(&format!("<a href=\"/messages/{}\">", ids[n])));
        assert_eq!((page.status, shown), (200, found), "{search}");
    }
    for (search, found) in [("shop@example.test", true), ("order two -50%", false), ("nobody@example.test", false)] {
        let query: String = form_urlencoded::byte_serialize(search.as_bytes()).collect();
        let page = browser.get(&format!("/messages?q={query}")).await;
        assert_eq!(page.shows("These messages match"), found, "{search}");
    }
    for (search, said) in [
        ("code:high", "The value after &#34;code:&#34; must"),
        ("key:mine", "The value after &#34;key:&#34; must"),
        ("ann@", "ann@ is only a part of an address."),
        ("-before:2023-11-14", "without the minus"),
    ] {
        let page = browser.get(&format!("/messages?q={search}")).await;
        assert!(page.shows("role=\"alert\"") && page.shows(said), "{search}");
    }
}

#[tokio::test]
async fn tabs_show_the_messages_of_a_group_of_statuses_within_a_search() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let ends = [
        ("Order one", Some(TransferEnd::Deferred { bounce: None, not_before: None })),
        ("Order two", Some(TransferEnd::Delivered)),
        ("Order three", Some(TransferEnd::Suppressed)),
        ("Order four", None),
        ("Invoice", None),
    ];
    let mut ids = Vec::new();
    for (subject, end) in ends {
        let id = world.send(serde_json::json!({ "subject": subject })).await;
        if let Some(end) = end {
            world.settle(id, end, facts(451, "451 4.7.1 Later")).await;
        }
        ids.push(id);
    }
    for (tab, query, found) in [
        ("All", "?q=order", [true, true, true, true, false]),
        ("Problems", "?q=order&#38;status=problems", [false, false, true, false, false]),
        ("Waiting", "?q=order&#38;status=waiting", [true, false, false, true, false]),
        ("Delivered", "?q=order&#38;status=delivered", [false, true, false, false, false]),
    ] {
        let page = browser.get("/messages?q=order+status:canceled").await;
        assert!(page.shows(&format!("<a href=\"/messages{query}\">{tab}</a>")), "{tab}: {}", page.body);
        let page = browser.get(&format!("/messages{}", query.replace("&#38;", "&"))).await;
        assert!(page.shows(&format!("aria-current=\"page\">{tab}</a>")), "{tab}");
        let shown: Vec<_> = ids.iter().map(|id| page.shows(&format!("<a href=\"/messages/{id}\">"))).collect();
        assert_eq!(shown, found, "{tab}");
    }
    let export = browser.get("/messages/export?q=order&status=waiting").await.unchunked();
    let exported: Vec<_> = ids.iter().map(|id| export.contains(&id.to_string())).collect();
    assert_eq!(exported, [true, false, false, true, false]);
}

#[tokio::test]
async fn each_user_saves_searches_under_names_and_removes_them() {
    let world = World::new().await;
    let (mut viewer, mut owner) = (world.viewer().await, world.owner().await);
    world.send(serde_json::json!({ "subject": "Order one" })).await;
    let form = [("q", "order -\"two <b>\""), ("status", "waiting"), ("name", " Open <i>orders</i> ")];
    let saved = viewer.post("/messages", &form).await;
    let path = "/messages?q=order+%22-two+%3Cb%3E%22&status=waiting";
    assert_eq!((saved.status, saved.location()), (303, format!("{path}&done=saved").as_str()));
    let page = viewer.get(saved.location()).await;
    let link =
        format!("href=\"{}\" aria-current=\"page\">Open &#60;i&#62;orders&#60;/i&#62;</a>", path.replace('&', "&#38;"));
    assert!(page.shows(&link) && page.shows("Search saved.") && page.shows("Order one"), "{}", page.body);
    assert!(!page.shows("id=\"save-name\""), "it is saved already");
    let plain = viewer.get("/messages").await;
    assert!(plain.shows("Open &#60;i&#62;") && !plain.shows("save-name") && !plain.shows("remove-search"));
    assert!(viewer.get("/messages?q=order").await.shows("id=\"save-name\""));
    assert!(!owner.get("/messages").await.shows("Saved searches"), "it belongs to its user");
    let audited = world.audited().len();
    assert_eq!(viewer.post("/messages", &[("q", "invoice"), ("name", "Open <i>orders</i>")]).await.status, 303);
    let page = viewer.get("/messages").await;
    assert!(page.shows("href=\"/messages?q=invoice\"") && !page.shows("status=waiting\">Open"), "it is replaced");
    assert_eq!(world.audited().len(), audited);
    viewer.post("/messages/remove-search", &[("name", "Open <i>orders</i>")]).await;
    let again = viewer.post("/messages/remove-search", &[("name", "Open <i>orders</i>")]).await;
    assert_eq!(again.location(), "/messages?done=removed");
    assert!(!viewer.get("/messages").await.shows("Saved searches"));
}

#[tokio::test]
async fn invalid_names_and_searches_are_not_saved_and_their_number_is_bounded() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for (name, error) in [
        ("", "The name must have 1 to 60 characters"),
        ("a\u{202e}b", "The name must have 1 to 60 characters"),
        (&"x".repeat(61), "The name must have 1 to 60 characters"),
    ] {
        let page = browser.post("/messages", &[("q", "order"), ("name", name)]).await;
        assert!(page.status == 422 && page.shows(error) && page.shows("aria-invalid"), "{name}: {}", page.body);
        assert!(page.shows("name=\"q\" value=\"order\""));
    }
    for (search, location) in
        [("", "/messages"), ("status:open", "/messages?q=status%3Aopen"), ("to:", "/messages?q=to%3A")]
    {
        let reply = browser.post("/messages", &[("q", search), ("name", "one")]).await;
        assert_eq!((reply.status, reply.location()), (303, location));
    }
    assert!(!browser.get("/messages").await.shows("Saved searches"));
    for number in 0..20 {
        let form = [("q", "order"), ("name", &format!("search {number}"))];
        assert_eq!(browser.post("/messages", &form).await.status, 303);
    }
    let page = browser.post("/messages", &[("q", "invoice"), ("name", "further")]).await;
    assert!(page.status == 422 && page.shows("You have 20 saved searches. Remove one first."));
    let mut foreign = world.owner().await;
    foreign.origin = Origin::Lines("Sec-Fetch-Site: cross-site\r\n");
    for path in ["/messages", "/messages/remove-search"] {
        assert_eq!(foreign.post(path, &[("q", "order"), ("name", "search 1")]).await.status, 403);
    }
}

#[tokio::test]
async fn a_word_that_is_a_value_of_metadata_leads_to_that_search_also_above_results() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let message = world.send(serde_json::json!({ "metadata": { "order": "A-30001", "shop": "berlin" } })).await;
    let link = "href=\"/messages?q=metadata.order%3AA-30001\">metadata.order:A-30001</a>";
    let page = browser.get("/messages?q=A-30001").await;
    assert!(page.shows("These messages match <code>metadata.order:A-30001</code>"), "{}", page.body);
    assert!(!page.shows("metadata.shop:A-30001"), "no message has it");
    assert!(browser.get("/messages?q=metadata.order%3AA-30001").await.shows(&message.to_string()));
    world.send(serde_json::json!({ "subject": "Invoice of A-30001" })).await;
    let page = browser.get("/messages?q=A-30001").await;
    assert!(page.shows(link) && page.shows("Invoice of A-30001") && !page.shows("No messages match"));
    let page = browser.get("/messages?q=A-30001&status=queued").await;
    assert!(page.shows("q=metadata.order%3AA-30001&#38;status=queued"), "{}", page.body);
    for query in ["A-30001+paid", "A-30001&status=bounced", "a-30001", "A-3000", "-A-30001"] {
        assert!(!browser.get(&format!("/messages?q={query}")).await.shows("\">metadata.order:"), "{query}");
    }
    for number in 0..50 {
        world.send(serde_json::json!({ "metadata": { "campaign": format!("c{number}") } })).await;
    }
    assert!(browser.get("/messages?q=A-30001").await.shows(link), "newer messages have other names");
    let page = browser.get("/messages?q=nowhere").await;
    assert!(page.shows("Words are searched in subjects.") && !page.shows("Also search"));
}
