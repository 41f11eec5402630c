//! Tests of the advice for a search that finds nothing.

use super::*;

#[tokio::test]
async fn an_empty_result_offers_first_the_search_of_metadata_and_then_to_remove_filters() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    world.send(serde_json::json!({ "metadata": { "order": "10482" } })).await;
    world.send(serde_json::json!({ "metadata": { "invoice": "10482" } })).await;
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
    let page = browser.get("/messages?q=nobody").await;
    assert!(!page.shows("Searches of recipients") && page.shows("<p>Remove a filter:</p>"), "{}", page.body);
    assert!(page.shows("enter the whole address, or a domain such as <code>@example.com</code>"));
}

#[tokio::test]
async fn a_word_with_one_clear_result_elsewhere_lists_its_messages_at_once() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let order = world.send(serde_json::json!({ "metadata": { "order": "10482" } })).await;
    let other = world.send(serde_json::json!({ "to": "carla.smith@example.org" })).await;
    for (word, found, other, search) in
        [("10482", order, other, "metadata.order:10482"), ("carla.smith", other, order, "carla.smith@example.org")]
    {
        let page = browser.get(&format!("/messages?q={word}")).await;
        assert!(
            page.shows(&format!("Nothing matches <code>{word}</code>. These messages match <code>{search}</code>"))
        );
        assert!(page.shows(&format!("/messages/{found}\"")) && !page.shows(&format!("/messages/{other}\"")), "{word}");
        assert!(!page.shows("No messages match") && !page.shows("Also search"), "{}", page.body);
    }
    // A search of an older page stays as it is.
    let page = browser.get(&format!("/messages?q=10482&older={order}")).await;
    assert!(page.shows("No messages match") && !page.shows("These messages match"), "{}", page.body);
}
