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
    assert!(
        !page.shows("Searches of recipients") && page.shows("<p>These filters are set. Remove one:</p>"),
        "{}",
        page.body
    );
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
            page.shows(&format!("No subject contains <code>{word}</code>. These messages match <code>{search}</code>"))
        );
        assert!(page.shows(&format!("/messages/{found}\"")) && !page.shows(&format!("/messages/{other}\"")), "{word}");
        assert!(!page.shows("No messages match") && !page.shows("Also search"), "{}", page.body);
    }
    // A search of an older page stays as it is.
    let page = browser.get(&format!("/messages?q=10482&older={order}")).await;
    assert!(page.shows("No messages match") && !page.shows("These messages match"), "{}", page.body);
}

#[tokio::test]
async fn a_range_in_the_form_includes_today_and_its_removal_is_offered_first() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = world.send(serde_json::json!({})).await;
    let chip = "Remove the filter Accepted 7 to 14 Nov 2023\">Accepted 7 to 14 Nov 2023 ×</a>";
    for end in ["until=2023-11-14", "before=2023-11-15"] {
        let page = browser.get(&format!("/messages?after=2023-11-07&{end}")).await;
        assert!(page.shows(&format!("/messages/{id}\"")) && page.shows(chip), "{end}: {}", page.body);
        assert!(
            page.shows("<label for=\"until\">to</label>")
                && page.shows("name=\"until\" type=\"date\" value=\"2023-11-14\"")
        );
        let export = browser.get(&format!("/messages/export?after=2023-11-07&{end}")).await.unchunked();
        assert!(export.contains(&id.to_string()), "{end}");
        let events = browser.get(&format!("/events?after=2023-11-07&{end}")).await;
        assert!(events.shows(&format!("/messages/{id}")) && events.shows("value=\"2023-11-14\""), "{}", events.body);
        assert!(events.shows("before=2023-11-15T00%3A00%3A00.000%2B00%3A00"), "the API excludes its end");
    }
    assert!(
        browser
            .get("/messages")
            .await
            .shows("<a href=\"/messages?q=after%3A2023-11-08+until%3A2023-11-14\">7 days</a>")
    );
    let page = browser.get("/messages?status=bounced&after=2023-11-07&until=2023-11-14").await;
    let advice = page.between("No messages match", "</div>");
    let (range, status) = (advice.find(chip).unwrap(), advice.find("Status: bounced ×").unwrap());
    assert!(range < status && advice.contains("<a href=\"/messages?status=bounced\""), "{advice}");
    assert!(!advice.contains("Words are searched"), "no word was searched: {advice}");
    let page = browser.get("/events?type=bounced&after=2023-11-07&until=2023-11-14").await;
    let advice = page.between("No events match", "</div>");
    let (range, kind) = (advice.find("Events 7 to 14 Nov 2023 ×").unwrap(), advice.find("Type: bounced ×").unwrap());
    assert!(range < kind && advice.contains("<a href=\"/events?type=bounced\""), "{advice}");
}
