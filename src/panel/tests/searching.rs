//! Tests of message search by response, domain and key, and with excluded terms.

use super::looking::facts;
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
    for (search, said) in [
        ("code:high", "The value after &#34;code:&#34; must"),
        ("key:mine", "The value after &#34;key:&#34; must"),
        ("-before:2023-11-14", "without the minus"),
    ] {
        let page = browser.get(&format!("/messages?q={search}")).await;
        assert!(page.shows("role=\"alert\"") && page.shows(said), "{search}");
    }
}
