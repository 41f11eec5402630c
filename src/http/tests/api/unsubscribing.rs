//! Tests of hosted unsubscribe links: which messages get them, and the effects of GET and POST.

use super::*;

fn newsletter() -> Value {
    let mut letter = letter("ann@example.net");
    letter["unsubscribe_url"] = "https://example.com/own?a=<b>\"&c".into();
    letter["from_name"] = "Tom & <Jerry>".into();
    letter
}

impl World {
    /// Sends a message with an unsubscribe URL. Returns its identifier and the value of its List-Unsubscribe.
    async fn offered(&mut self) -> (String, String) {
        let sent = self.send(newsletter()).await;
        let id = sent.json()["id"].as_str().unwrap().to_owned();
        let raw = self.get(&format!("/v1/messages/{id}/raw")).await.body;
        let unfolded = raw.replace("\r\n ", " ");
        let line = unfolded.lines().find(|line| line.starts_with("List-Unsubscribe:")).unwrap();
        assert!(unfolded.contains("\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"));
        (id, line.split_once(['<']).unwrap().1.trim_end_matches('>').to_owned())
    }
}

#[tokio::test]
async fn our_link_replaces_the_callers_only_if_the_account_enables_it() {
    let mut world = World::new().await;
    assert!(world.offered().await.1.starts_with("https://example.com/own?"));
    world.patch("/v1/settings", serde_json::json!({ "hosted_unsubscribe": true })).await;
    let (id, link) = world.offered().await;
    let token = link.strip_prefix("https://mail.example.com/unsubscribe/").unwrap();
    assert!(!token.contains(&world.account.to_string()));
    // The record shows the caller's header.
    assert_eq!(
        world.get(&format!("/v1/messages/{id}")).await.json()["unsubscribe_url"],
        newsletter()["unsubscribe_url"]
    );
    assert!(!world.get(&format!("/v1/messages/{id}")).await.json()["headers"].to_string().contains("unsubscribe"));
}

#[tokio::test]
async fn get_changes_nothing_and_one_click_unsubscribes() {
    let mut world = World::new().await;
    world.patch("/v1/settings", serde_json::json!({ "hosted_unsubscribe": true })).await;
    let (id, link) = world.offered().await;
    let (waits, _) = world.offered().await;
    let path = link.strip_prefix("https://mail.example.com").unwrap().to_owned();
    let looked = world.client.ask(&format!("GET {path}"), "", "", "").await;
    assert_eq!((looked.status, looked.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(looked.header("content-security-policy").starts_with("default-src 'none'"));
    assert!(
        looked.body.contains("Tom &amp; &lt;Jerry&gt;") && looked.body.contains("ann@example.net"),
        "{}",
        looked.body
    );
    assert!(looked.body.contains("href=\"https://example.com/own?a=&lt;b&gt;&quot;&amp;c\""), "{}", looked.body);
    assert_eq!(world.get("/v1/suppressions").await.json()["data"], serde_json::json!([]));

    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    for _ in 0..2 {
        let clicked = world.client.ask(&format!("POST {path}"), "", form, "List-Unsubscribe=One-Click").await;
        assert_eq!(clicked.status, 200, "{}", clicked.body);
    }
    let suppression = world.get("/v1/suppressions/ann@example.net").await.json();
    assert_eq!((&suppression["reason"], &suppression["message_id"]), (&"unsubscribe".into(), &id.as_str().into()));
    let events = world.get("/v1/events?type=unsubscribed").await.json();
    assert_eq!((events["data"].as_array().unwrap().len(), &events["data"][0]["message_id"]), (1, &id.as_str().into()));
    for message in [&id, &waits] {
        assert_eq!(world.get(&format!("/v1/messages/{message}")).await.json()["status"], "suppressed");
    }
    world.send(newsletter()).await.fails_with(422, "recipient_suppressed");
}

#[tokio::test]
async fn an_invalid_link_shows_a_page_and_changes_nothing() {
    let mut world = World::new().await;
    world.patch("/v1/settings", serde_json::json!({ "hosted_unsubscribe": true })).await;
    let (id, link) = world.offered().await;
    let path = link.strip_prefix("https://mail.example.com").unwrap().to_owned();
    let last = if path.ends_with('0') { "1" } else { "0" };
    let record: MessageId = id.parse().unwrap();
    let row = world.engine.message(world.account, record).unwrap().unwrap().row;
    // Every server on the way knows the return path's token. It is not valid here.
    let return_path = row.return_path[2..].split_once('@').unwrap().0.to_owned();
    for token in [format!("{}{last}", &path["/unsubscribe/".len()..path.len() - 1]), return_path, "x".into(), id] {
        for method in ["GET", "POST"] {
            let reply = world.client.ask(&format!("{method} /unsubscribe/{token}"), "", "", "").await;
            assert_eq!((reply.status, reply.header("content-type")), (404, "text/html; charset=utf-8"), "{token}");
        }
    }
    assert_eq!(world.get("/v1/suppressions").await.json()["data"], serde_json::json!([]));
}
