//! Tests of the page that explains a test message.

use super::*;

#[tokio::test]
async fn pasted_headers_are_explained_and_escaped() {
    let world = World::new().await;
    let mut owner = world.owner().await;
    assert!(owner.get("/explain").await.shows("<h1>Explain headers</h1>"));
    let headers = "Authentication-Results: <b>mx</b>; spf=fail smtp.mailfrom=a@x.example\r\nFrom: a@shop.example";
    let page = owner.post("/explain", &[("headers", headers)]).await;
    assert_eq!(page.status, 200);
    assert!(
        page.shows("shop.example")
            && page.shows("SPF result for x.example: fail.")
            && page.shows("found no DKIM signature")
    );
    assert!(!page.shows("<b>mx</b>"), "the headers are a stranger's text");
}
