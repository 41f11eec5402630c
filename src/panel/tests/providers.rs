//! Tests of the page about receiving providers.

use super::*;
use crate::domain::event::{Bounce, BounceKind, BounceSource};

fn blocked() -> TransferEnd {
    TransferEnd::Bounced(Bounce {
        kind: BounceKind::Block,
        category: "spam".to_owned(),
        status: Some("5.7.1".to_owned()),
        source: BounceSource::Smtp,
        rule: "r".to_owned(),
        advice: String::new(),
        suppressed: false,
    })
}

#[tokio::test]
async fn each_provider_is_shown_with_advice_answers_and_links() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    assert!(browser.get("/providers").await.shows("No messages in this period"));
    let message = world.send(serde_json::json!({})).await;
    let facts = AttemptFacts {
        smtp_code: Some(550),
        smtp_response: Some("550 5.7.1 <script>blocked</script>".to_owned()),
        ..AttemptFacts::default()
    };
    world.settle(message, blocked(), facts).await;
    for path in ["/providers", "/providers?days=90", "/providers?days=nonsense"] {
        let page = browser.get(path).await;
        for shown in
            [">Other</a>", "&#60;script&#62;blocked", ">Spam<", "Read the answers below", "href=\"/messages/msg_"]
        {
            assert!(page.shows(shown), "{shown} in {}", page.body);
        }
    }
    let page = browser.get("/providers").await;
    assert!(
        page.shows("id=\"of-other\"")
            && page.shows("The line <b>Other</b> is for all other servers")
            && !page.shows("block list")
    );
    let overview = browser.get("/").await;
    assert!(overview.shows("href=\"/providers\""));
}
