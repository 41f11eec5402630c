//! Tests of a domain's checklist page.

use super::*;
use crate::engine::listing::PageRequest;

#[tokio::test]
async fn the_page_shows_every_item_with_its_requiring_receivers() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let domains = world.engine.domains(world.account, PageRequest { before: None, limit: 1 }).unwrap().rows;
    let path = format!("/domains/{}", domains[0].0);
    let page = browser.get(&format!("{path}/checklist")).await;
    for shown in [
        "SPF lets this server pass",
        "Google, Yahoo, Microsoft",
        "The domain is transactional.",
        "Unknown",
        "Not required",
    ] {
        assert!(page.shows(shown), "{shown} in {}", page.body);
    }
    assert!(page.shows("items are open</span>") && page.shows("Not checked"), "{}", page.body);
    assert!(!page.shows("or the lookup failed"), "the headline says it once");
    let few = "No mail yet: the transactional mail of all your domains had no answer in 7 days.";
    assert!(page.shows(few) && !page.shows("nobody"), "{}", page.body);
    assert!(page.shows("No item failed.") && !page.shows("/verify"), "{}", page.body);
    assert!(browser.get(&path).await.shows(&format!("href=\"{path}/checklist\"")));
    assert_eq!(browser.get("/domains/dom_x/checklist").await.status, 404);
}
