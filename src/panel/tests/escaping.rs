//! Tests: foreign text full of markup is shown and never interpreted, in subjects, names, addresses, responses and
//! searches.

use super::*;
use crate::domain::event::{Bounce, BounceKind, BounceSource};

/// Payloads that would have an effect if a page interpreted them.
pub(super) const PAYLOADS: [&str; 20] = [
    "<script>alert(1)</script>",
    "\"><script>alert(1)</script>",
    "'><img src=x onerror=alert(1)>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "</title><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</pre><script>alert(1)</script>",
    "<iframe srcdoc=\"<script>alert(1)</script>\">",
    "<a href=\"javascript:alert(1)\">x</a>",
    "\" autofocus onfocus=alert(1) x=\"",
    "' onmouseover='alert(1)",
    "{{ frame.email }}",
    "{% include \"login.html\" %}",
    "<!--<script>alert(1)//-->",
    "<math><mtext></p><script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<body onload=alert(1)>",
    "<base href=//evil.test>",
    "<meta http-equiv=refresh content=0;url=//evil.test>",
];

/// Returns a text as pages escape it.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '<' => out.push_str("&#60;"),
            '>' => out.push_str("&#62;"),
            '&' => out.push_str("&#38;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// Whether a page contains the payload unescaped. Payloads without markup need no escaping.
pub(super) fn does(page: &Reply, payload: &str) -> bool {
    escaped(payload) != payload && page.shows(payload)
}

#[tokio::test]
async fn markup_in_a_message_is_escaped_on_every_page() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for payload in PAYLOADS {
        let message = world
            .send(serde_json::json!({
                "subject": payload, "from_name": payload, "text": payload, "metadata": { "note": payload },
                "headers": { "X-Story": payload }
            }))
            .await;
        let bounce = Bounce {
            kind: BounceKind::Block,
            category: payload.to_owned(),
            status: Some(payload.to_owned()),
            source: BounceSource::Smtp,
            rule: payload.to_owned(),
            advice: payload.to_owned(),
            suppressed: false,
        };
        let text = || Some(payload.to_owned());
        let facts = AttemptFacts {
            attempt: Some(1),
            smtp_code: Some(550),
            smtp_response: text(),
            mx_host: text(),
            mx_ip: text(),
            relay: text(),
            ..AttemptFacts::default()
        };
        world.settle(message, TransferEnd::Bounced(bounce), facts).await;
        let own = format!("/messages/{message}");
        for path in ["/", "/messages", &own, &format!("{own}?tab=source"), &format!("{own}?tab=json")] {
            let page = browser.get(path).await;
            assert_eq!(page.status, 200);
            assert!(!does(&page, payload), "{payload} at {path}");
            // Source and JSON encode the payload in their own format first.
            assert!(page.shows(&escaped(payload)) || path.contains("tab="), "{payload} at {path}");
        }
    }
}

#[tokio::test]
async fn markup_in_form_input_is_escaped() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for payload in PAYLOADS {
        let encoded: String = form_urlencoded::byte_serialize(payload.as_bytes()).collect();
        for path in [
            format!("/messages?q={encoded}"),
            format!("/messages?status={encoded}&stream={encoded}"),
            format!("/login/confirm?next={encoded}"),
            format!("/messages/{encoded}"),
        ] {
            let page = browser.get(&path).await;
            assert!(!does(&page, payload), "{payload} at {path}");
        }
        let page = world.browser().get(&format!("/login?email={encoded}&next={encoded}")).await;
        assert!(!does(&page, payload) && page.shows(&escaped(payload)), "{payload}");
        let reply = browser.post("/settings", &[("name", ""), ("time_zone", payload)]).await;
        assert_eq!(reply.status, 422);
        assert!(!does(&reply, payload) && reply.shows(&escaped(payload)), "{payload}");
        let reply = browser.post("/users", &[("email", payload), ("role", payload)]).await;
        assert!(reply.status == 422 && !does(&reply, payload), "{payload}");
        let reply = browser.post("/settings", &[("name", payload)]).await;
        assert_eq!(reply.status, 303);
        assert!(!does(&browser.get("/settings").await, payload), "{payload}");
    }
}
