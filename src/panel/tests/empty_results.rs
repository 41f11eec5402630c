//! Tests of the advice for a search that finds nothing.

use super::*;

#[tokio::test]
async fn an_empty_result_offers_first_the_search_of_metadata_and_then_to_remove_filters() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    world.send(serde_json::json!({ "metadata": { "order": "10482" } })).await;
    let page = browser.get("/messages?q=10482").await;
    let advice = page.between("No messages match", "</div>");
    let offer = advice.find("href=\"/messages?q=metadata.order%3A10482\">metadata.order:10482</a>").unwrap();
    let removal = advice.find("aria-label=\"Remove the filter 10482\">10482 ×</a>").unwrap();
    assert!(offer < removal && advice.contains("Or remove a filter:"), "{advice}");
    assert!(!page.shows("Also search"), "it is offered once");
}

#[tokio::test]
async fn an_empty_result_for_a_part_of_an_address_offers_whole_ones() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for to in ["carla.smith@example.com", "Carla.Smith@Example.com", "bob@carla.example", "ann@example.com"] {
        world.send(serde_json::json!({ "to": to })).await;
    }
    let page = browser.get("/messages?q=Carla&stream=transactional").await;
    let offers = page.between("aria-label=\"Searches of recipients\"", "</ul>");
    assert_eq!(offers.matches("<li>").count(), 2, "each address once: {offers}");
    assert!(offers.contains("href=\"/messages?q=bob%40carla.example&#38;stream=transactional\""), "{offers}");
    assert!(page.shows("such as <code>Carla@example.com</code>, or by domain"), "{}", page.body);
    let page = browser.get("/messages?q=nobody").await;
    assert!(!page.shows("Searches of recipients") && page.shows("<p>Remove a filter:</p>"), "{}", page.body);
    let page = browser.get("/messages?q=%22two+words%22").await;
    assert!(page.shows("such as <code>ann@example.com</code>"), "two words are no part of an address");
}
