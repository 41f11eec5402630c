//! Tests of the event log, of the queue page, and of the stream that keeps a page up to date.

use super::*;
use crate::domain::event::EventType;

async fn events_of_three(world: &World) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for number in 0..3 {
        ids.push(world.send(serde_json::json!({ "subject": format!("Order {number}") })).await);
        world.advance(Duration::from_secs(1));
    }
    let facts = AttemptFacts { smtp_response: Some("250 2.0.0 Ok".to_owned()), ..AttemptFacts::default() };
    world.settle(ids[0], TransferEnd::Delivered, facts).await;
    ids
}

/// Counts a page's links to a message.
fn links(page: &Reply, message: MessageId) -> usize {
    page.body.matches(&format!("<a href=\"/messages/{message}\">")).count()
}

#[tokio::test]
async fn events_are_filtered_like_the_api_and_link_to_their_messages() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    assert!(browser.get("/events").await.shows("No events yet"));
    let ids = events_of_three(&world).await;
    for (query, counts) in [
        ("".to_owned(), [2, 1, 1]),
        ("?type=delivered".to_owned(), [1, 0, 0]),
        ("?type=queued".to_owned(), [1, 1, 1]),
        (format!("?message_id={}", ids[1]), [0, 1, 0]),
        (format!("?message_id={}&type=delivered", ids[1]), [0, 0, 0]),
        ("?message_id=nonsense".to_owned(), [0, 0, 0]),
        ("?type=opened".to_owned(), [0, 0, 0]),
    ] {
        let page = browser.get(&format!("/events{query}")).await;
        assert_eq!((page.status, [0, 1, 2].map(|n| links(&page, ids[n]))), (200, counts), "{query}");
        assert_eq!(page.shows("No events match"), counts == [0, 0, 0], "{query}");
    }
    let page = browser.get("/events?type=opened").await;
    assert!(page.shows("The type must be one of queued, deferred") && !page.shows("data-live"));
    world.advance(31 * DAY);
    assert!(world.owner().await.get("/events").await.shows("No events yet"), "the log keeps 30 days");
}

#[tokio::test]
async fn event_pages_have_no_gaps_in_either_direction() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for number in 0..90 {
        world.send(serde_json::json!({ "subject": format!("n{number}") })).await;
    }
    let shown = |page: &Reply| -> Vec<String> {
        page.body.split("<a href=\"/messages/msg_").skip(1).map(|rest| rest[..26].to_owned()).collect()
    };
    let link = |page: &Reply, rel: &str| -> Option<String> {
        let rest = page.body.split(&format!("<a rel=\"{rel}\" class=\"button\" href=\"")).nth(1)?;
        Some(rest.split('"').next()?.replace("&#38;", "&"))
    };
    let first = browser.get("/events?type=queued").await;
    assert_eq!((shown(&first).len(), link(&first, "prev"), first.shows("data-live")), (40, None, true));
    let second = browser.get(&link(&first, "next").unwrap()).await;
    let third = browser.get(&link(&second, "next").unwrap()).await;
    assert_eq!((shown(&second).len(), shown(&third).len(), link(&third, "next")), (40, 10, None));
    assert!(!third.shows("data-live"), "a page of older events has no live updates");
    let back = browser.get(&link(&third, "prev").unwrap()).await;
    assert_eq!(shown(&back), shown(&second));
    let newest = browser.get(&link(&back, "prev").unwrap()).await;
    assert_eq!((shown(&newest), link(&newest, "prev")), (shown(&first), None));
}

/// A connection that reads an event stream.
pub(super) struct Following(TcpStream, String);

impl Following {
    pub(super) async fn open(world: &World, browser: &Browser, path: &str) -> Self {
        let (name, value) = browser.cookies.first_key_value().unwrap();
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: panel.test\r\nConnection: close");
        let asked = format!("{head}\r\nCookie: {name}={value}\r\n\r\n");
        stream.write_all(asked.as_bytes()).await.unwrap();
        Self(stream, String::new())
    }

    /// Reads until the text arrives. Returns false if the stream ends first.
    pub(super) async fn has(&mut self, text: &str) -> bool {
        let mut buffer = [0; 4096];
        while !self.1.contains(text) {
            match self.0.read(&mut buffer).await.unwrap() {
                0 => return false,
                length => self.1.push_str(std::str::from_utf8(&buffer[..length]).unwrap()),
            }
        }
        true
    }
}

#[tokio::test]
async fn the_event_stream_ends_with_the_session() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let before = world.send(serde_json::json!({})).await;
    let page = browser.get(&format!("/messages/{before}")).await;
    let live = page.body.split("data-live=\"").nth(1).unwrap().split('"').next().unwrap().replace("&#38;", "&");
    assert!(live.starts_with(&format!("/events/stream?message_id={before}&last_event_id=evt_")), "{live}");
    let mut of_one = Following::open(&world, &browser, &live).await;
    let mut of_all = Following::open(&world, &browser, "/events/stream").await;
    assert!(of_one.has("retry: ").await && of_all.has("retry: ").await);
    assert!(of_one.1.contains("content-type: text/event-stream") && of_one.1.contains("default-src 'none'"));
    let other = world.send(serde_json::json!({})).await;
    assert!(of_all.has(&other.to_string()).await);
    world.settle(before, TransferEnd::Delivered, AttemptFacts::default()).await;
    assert!(of_one.has("event: delivered").await);
    assert!(!of_one.1.contains(&other.to_string()) && !of_one.1.contains("event: queued"), "{}", of_one.1);
    browser.post("/logout", &[]).await;
    let unseen = world.send(serde_json::json!({})).await;
    assert!(!of_all.has(&unseen.to_string()).await, "the stream ends at sign-out");
    assert_eq!(world.browser().get("/events/stream").await.location(), "/login?next=%2Fevents%2Fstream");
    let mut browser = world.owner().await;
    assert_eq!(browser.get("/events/stream?type=opened").await.status, 422);
}

#[tokio::test]
async fn an_empty_queue_is_reported() {
    let world = World::new().await;
    let page = world.viewer().await.get("/queue").await;
    assert!(page.shows("Queue is empty") && page.shows("href=\"/messages\""));
}

#[test]
fn every_event_type_is_followed() {
    let template = include_str!("../../../data/templates/live.html");
    let kinds = EventType::ALL.map(EventType::as_str).join(" ");
    assert!(template.contains(&format!("data-kinds=\"{kinds}\"")), "the script subscribes to event types by name");
}
