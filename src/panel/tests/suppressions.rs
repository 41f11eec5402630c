//! Tests of suppressions: search, adding, removing, import and export.

use super::*;
use crate::engine::listing::PageRequest;
use crate::engine::suppressions::SuppressionFilter;
use crate::machine::transfer::Status;
use crate::store::op::suppression::Suppression;
use crate::store::row::suppression::SuppressionReason;

impl World {
    async fn suppressed(&self) -> Vec<String> {
        let page = PageRequest { before: None, limit: 99 };
        let rows = self.engine.suppressions(self.account, SuppressionFilter::default(), page).await.unwrap().rows;
        rows.into_iter().map(|row| row.email).collect()
    }

    async fn suppress(&self, email: &str, reason: SuppressionReason) {
        self.engine.suppress(self.account, Suppression::of(email.parse().unwrap(), reason)).await.unwrap();
    }
}

#[tokio::test]
async fn suppressing_an_address_cancels_its_queued_messages() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    assert!(browser.get("/suppressions").await.shows("No suppressed addresses"));
    let message = world.send(serde_json::json!({ "to": "bob@example.com" })).await;
    let added = browser.post("/suppressions", &[("email", "Bob@Example.com"), ("note", "asked by phone")]).await;
    assert_eq!(added.location(), "/suppressions?email=Bob%40Example.com&done=added");
    let page = browser.get(added.location()).await;
    assert!(
        page.shows("Bob@Example.com is suppressed.") && page.between("class=\"undo\"", "</form>").contains("/remove\"")
    );
    assert!(page.shows("Bob@Example.com") && page.shows("asked by phone") && page.shows("manual"));
    let transfer = world.engine.message(world.account, message).unwrap().unwrap().transfer;
    assert_eq!(transfer.state.status(), Status::Suppressed);
    let again = browser.post("/suppressions", &[("email", "bob@example.com")]).await;
    assert!(again.location().ends_with("done=already"));
    let refused = browser.post("/suppressions", &[("email", "bob"), ("note", "x")]).await;
    assert!(refused.status == 422 && refused.shows("new-email-fault") && refused.shows("value=\"bob\""));
    let refused = browser.post("/suppressions", &[("email", "gmail.com")]).await;
    let link = "To stop mail to all of gmail.com, <a href=\"/queue?domain=gmail.com#pause\">";
    assert!(refused.status == 422 && refused.shows(link), "{}", refused.body);
    assert!(browser.get("/queue?domain=gmail.com").await.shows("name=\"domain\" value=\"gmail.com\""));
}

#[tokio::test]
async fn suppressions_are_searched_by_address_and_reason_and_paged() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for number in 0..60 {
        world.suppress(&format!("n{number}@example.com"), SuppressionReason::Bounce).await;
    }
    world.suppress("ann@example.com", SuppressionReason::Complaint).await;
    let count = |page: &Reply| page.body.matches("href=\"/suppressions/sup_").count();
    let first = browser.get("/suppressions?reason=bounce").await;
    assert_eq!(count(&first), 50);
    let older = first.between("rel=\"next\" class=\"button\" href=\"", "\"").replace("&#38;", "&");
    assert!(older.starts_with("/suppressions?reason=bounce&older=sup_"), "{older}");
    let second = browser.get(&older).await;
    assert_eq!(count(&second), 10);
    assert!(second.shows("href=\"/suppressions?reason=bounce\">Newest"));
    for (query, found) in [
        ("?email=ANN@example.com", 1),
        ("?email=ann@example.com&reason=bounce", 0),
        ("?reason=complaint", 1),
        ("?reason=import", 0),
        ("?email=ann", 1),
        ("?email=+N1", 11),
        ("?email=%40example.com", 50),
        ("?email=%40example.com&reason=complaint", 1),
        ("?email=nobody", 0),
        ("?reason=boredom", 0),
    ] {
        assert_eq!(count(&browser.get(&format!("/suppressions{query}")).await), found, "{query}");
    }
    let page = browser.get("/suppressions?email=nobody").await;
    let is_answered = |page: &Reply| page.shows("No suppressions match");
    assert!(is_answered(&page) && page.shows("value=\"nobody\""));
    assert!(!is_answered(&browser.get("/suppressions?reason=boredom").await));
    assert!(is_answered(&browser.get("/suppressions?reason=import").await));
}

#[tokio::test]
async fn a_suppression_shows_its_reason_and_can_be_removed() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let suppression = Suppression {
        smtp_code: Some(550),
        smtp_response: Some("550 5.1.1 <nobody>".to_owned()),
        ..Suppression::of("nobody@example.com".parse().unwrap(), SuppressionReason::Bounce)
    };
    let id = world.engine.suppress(world.account, suppression).await.unwrap().row.id;
    let path = format!("/suppressions/{id}");
    let page = browser.get(&path).await;
    assert!(page.shows("550 5.1.1 &#60;nobody&#62;") && page.shows("Permanent bounce; may bounce again."));
    assert!(page.shows(&format!("curl http://panel.test/v1/suppressions/{id}")));
    assert!(browser.get(&format!("{path}/json")).await.body.starts_with(&format!("{{\"id\":\"{id}\"")));
    let removed = browser.post(&format!("{path}/remove"), &[]).await;
    assert_eq!(removed.location(), "/suppressions?done=lifted&lifted=nobody%40example.com");
    assert!(world.suppressed().await.is_empty());
    let page = browser.get(removed.location()).await;
    let undo = page.between("class=\"undo\"", "</div>");
    assert!(undo.contains("nobody@example.com is no longer suppressed."), "{undo}");
    assert!(
        undo.contains("action=\"/suppressions\"><input type=\"hidden\" name=\"email\" value=\"nobody@example.com\">")
    );
    let foreign = browser.get("/suppressions?done=lifted&lifted=%3Cb%3E").await;
    assert!(!foreign.shows("class=\"undo\"") && !foreign.shows("<b>"));
    assert_eq!(browser.post(&format!("{path}/remove"), &[]).await.status, 404);
    assert_eq!(browser.get(&path).await.status, 404);
}

#[tokio::test]
async fn a_list_is_checked_first_and_then_imported() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    world.suppress("a@example.com", SuppressionReason::Manual).await;
    let list = "email,reason\r\na@example.com,bounce\r\nb@example.com,complaint\r\n";
    let checked = browser.upload("/suppressions/import", &[("file", ""), ("list", list), ("act", "check")]).await;
    assert!(
        checked.status == 200 && checked.shows("No errors; nothing imported yet. 1 new, 1 already listed."),
        "{}",
        checked.body
    );
    assert!(checked.shows("b@example.com,complaint"), "the list is still there");
    assert_eq!(world.suppressed().await.len(), 1);
    let done = browser.upload("/suppressions/import", &[("file", list), ("act", "import")]).await;
    assert_eq!(done.location(), "/suppressions/import?imported=1&skipped=1");
    assert!(browser.get(done.location()).await.shows("1 imported, 1 already listed."));
    assert_eq!(world.suppressed().await, ["b@example.com", "a@example.com"]);
    let lines = "{\"email\":\"c@example.com\"}\n";
    assert_eq!(browser.upload("/suppressions/import", &[("list", lines), ("act", "import")]).await.status, 303);
    let export = browser.get("/suppressions/export").await;
    assert_eq!(export.header("content-type"), "text/csv; charset=utf-8");
    assert!(
        export.unchunked().starts_with("email,reason,created_at,note\r\n") && export.shows("c@example.com,import,")
    );
}

#[tokio::test]
async fn a_list_with_errors_is_rejected_line_by_line_and_not_imported() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let list = "email,reason\na@example.com,bounce\nnobody,boredom\n";
    for act in ["check", "import"] {
        let reply = browser.upload("/suppressions/import", &[("list", list), ("act", act)]).await;
        assert_eq!(reply.status, 422);
        assert!(reply.shows(">3</td>") && reply.shows("The reason must be one of") && reply.shows("nobody,boredom"));
    }
    let many = format!("email\n{}", "nobody\n".repeat(150));
    let reply = browser.upload("/suppressions/import", &[("file", &many), ("act", "import")]).await;
    assert!(reply.status == 422 && reply.shows("50 more lines have errors."));
    let empty = browser.upload("/suppressions/import", &[("act", "import")]).await;
    assert!(empty.status == 422 && empty.shows("must name the columns"));
    let urlencoded = browser.post("/suppressions/import", &[("list", "email\na@example.com\n")]).await;
    assert_eq!(urlencoded.status, 415);
    assert!(world.suppressed().await.is_empty());
}
