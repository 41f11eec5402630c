//! Tests of event streams: content, resumption, and end.

use http_body_util::BodyExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;
use crate::engine::follow::STREAMS_OF_ACCOUNT_MAX;

/// A client of an event stream.
struct Follower {
    client: Client<TcpStream>,
    head: Reply,
    text: String,
}

/// An event as sent in the stream.
#[derive(Debug, PartialEq, Eq)]
struct ReceivedEvent {
    id: String,
    kind: String,
    record: String,
}

impl Follower {
    async fn open(world: &World, key: &str, query: &str, headers: &str) -> Self {
        let mut client = Client::open(world.address).await;
        let head = format!("GET /v1/events/stream{query} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n");
        client.write(format!("{head}{headers}\r\n")).await;
        let head = client.read_head().await;
        Self { client, head, text: String::new() }
    }

    /// Opens a stream that is accepted.
    async fn accepted(world: &World, query: &str, headers: &str) -> Self {
        let mut follower = Self::open(world, &world.key, query, headers).await;
        assert_eq!(follower.head.status, 200);
        assert_eq!(follower.line().await.as_deref(), Some("retry: 3000"));
        follower
    }

    /// Opens a stream after this event.
    async fn after(world: &World, event: &str) -> Self {
        Self::accepted(world, "", &format!("Last-Event-ID: {event}\r\n")).await
    }

    /// Returns the next line; `None` at the stream's end.
    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some((line, rest)) = self.text.split_once('\n') {
                let line = line.to_owned();
                self.text = rest.to_owned();
                return Some(line);
            }
            let chunk = self.chunk().await?;
            self.text.push_str(&chunk);
        }
    }

    /// Returns the next chunk (RFC 9112 7.1); `None` at the last one.
    async fn chunk(&mut self) -> Option<String> {
        let unread = |client: &Client<TcpStream>| client.unread.windows(2).position(|two| two == b"\r\n");
        while unread(&self.client).is_none() {
            assert!(self.client.fill().await, "cut off between chunks");
        }
        let line: Vec<u8> = self.client.unread.drain(..unread(&self.client).unwrap() + 2).collect();
        let length = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim_end(), 16).unwrap();
        while self.client.unread.len() < length + 2 {
            assert!(self.client.fill().await, "cut off within a chunk");
        }
        let chunk: Vec<u8> = self.client.unread.drain(..length + 2).take(length).collect();
        (length > 0).then(|| String::from_utf8(chunk).unwrap())
    }

    async fn event(&mut self) -> ReceivedEvent {
        let mut field = async |name: &str| {
            let line = self.line().await.unwrap();
            line.strip_prefix(name).unwrap_or_else(|| panic!("{line}")).to_owned()
        };
        let event =
            ReceivedEvent { id: field("id: ").await, kind: field("event: ").await, record: field("data: ").await };
        assert_eq!(self.line().await.as_deref(), Some(""));
        event
    }

    async fn events(&mut self, count: usize) -> Vec<ReceivedEvent> {
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(self.event().await);
        }
        events
    }
}

impl World {
    /// Returns the whole log, oldest first, from its list.
    async fn log(&mut self) -> Vec<ReceivedEvent> {
        let (mut events, mut path) = (Vec::new(), "/v1/events?limit=100".to_owned());
        loop {
            let body = self.get(&path).await.body;
            let page: Page<'_> = serde_json::from_str(&body).unwrap();
            events.extend(page.data.iter().map(|record| received_event(record.get())));
            let Some(cursor) = page.next_cursor else { break };
            path = format!("/v1/events?limit=100&cursor={cursor}");
        }
        events.reverse();
        events
    }
}

#[derive(serde::Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    data: Vec<&'a serde_json::value::RawValue>,
    next_cursor: Option<String>,
}

fn received_event(record: &str) -> ReceivedEvent {
    let value: Value = serde_json::from_str(record).unwrap();
    let text = |name: &str| value[name].as_str().unwrap().to_owned();
    ReceivedEvent { id: text("id"), kind: text("type"), record: record.to_owned() }
}

#[tokio::test]
async fn events_are_streamed_as_committed_in_the_logs_bytes() {
    let mut world = World::new().await;
    world.sent_to("before@example.net").await;
    let before = world.log().await.pop().unwrap();
    let mut follower = Follower::accepted(&world, "", "").await;
    assert_eq!(follower.head.header("content-type"), "text/event-stream");
    assert_eq!(follower.head.header("cache-control"), "no-store");
    assert_eq!(follower.head.header("content-length"), "");
    assert_eq!(follower.head.header("last-event-id"), before.id, "it starts after the existing events");
    assert!(!follower.head.header("ratelimit").is_empty());
    let message = world.sent_to("a@example.net").await;
    let queued = follower.event().await;
    assert_eq!(queued.kind, "queued");
    world.settle(message, hard_bounce(), AttemptFacts::default()).await;
    let bounced = follower.event().await;
    assert_eq!(world.log().await, [before, queued, bounced]);
}

#[tokio::test]
async fn a_stream_resumes_after_the_named_event() {
    let mut world = World::new().await;
    let mut first = None;
    for number in 0..5 {
        let message = world.sent_to(&format!("a{number}@example.net")).await;
        world.settle(message, TransferEnd::Delivered, AttemptFacts::default()).await;
        first.get_or_insert(message);
    }
    let log = world.log().await;
    let (second, fourth) = (&log[1].id, &log[3].id);
    assert_eq!(Follower::after(&world, second).await.events(8).await, log[2..]);
    let by_query = format!("?last_event_id={second}");
    assert_eq!(Follower::accepted(&world, &by_query, "").await.events(8).await, log[2..]);
    // A reconnection to the same URL sends a newer position in the header.
    let header = format!("Last-Event-ID: {fourth}\r\n");
    assert_eq!(Follower::accepted(&world, &by_query, &header).await.events(6).await, log[4..]);

    let delivered = Follower::accepted(&world, &format!("{by_query}&type=delivered"), "").await.events(4).await;
    assert!(delivered.iter().all(|event| event.kind == "delivered"));
    let oldest = "evt_00000000000000000000000000";
    let of_first = format!("?message_id={}&last_event_id={oldest}", first.unwrap());
    assert_eq!(Follower::accepted(&world, &of_first, "").await.events(2).await, log[..2]);
    let of_both = format!("{of_first}&type=delivered");
    assert_eq!(Follower::accepted(&world, &of_both, "").await.events(1).await, log[1..2]);

    // A position beyond the log counts as its end; and no event belongs to a malformed message ID.
    let mut ahead = Follower::after(&world, "evt_7ZZZZZZZZZZZZZZZZZZZZZZZZZ").await;
    let mut of_none = Follower::accepted(&world, "?message_id=nonsense", "").await;
    world.sent_to("new@example.net").await;
    assert_eq!(ahead.event().await, world.log().await.pop().unwrap());
    world.engine.streams.end();
    assert_eq!(of_none.line().await, None);
}

#[tokio::test]
async fn a_position_before_the_logs_30_days_means_the_oldest_event() {
    let mut world = World::new().await;
    world.sent_to("old@example.net").await;
    let gone = world.log().await.pop().unwrap();
    world.advance(20 * DAY);
    world.sent_to("kept@example.net").await;
    world.advance(11 * DAY);
    world.sent_to("new@example.net").await;
    let kept = world.log().await;
    assert_eq!(kept.len(), 2);
    assert_eq!(Follower::after(&world, &gone.id).await.events(2).await, kept);
    assert_eq!(Follower::after(&world, "evt_00000000000000000000000000").await.events(2).await, kept);
}

#[tokio::test]
async fn invalid_positions_filters_and_parameters_are_named() {
    let mut world = World::new().await;
    for place in ["", "x", "msg_00000000000000000000000000", "evt_0000000000000000000000000a"] {
        let headers = format!("Last-Event-ID: {place}\r\n");
        let line = format!("GET /v1/events/stream?last_event_id={place}&type=opened&mesage_id=x");
        let refused = world.ask_as(&world.key.clone(), &line, &headers, &Value::Null).await;
        refused.fails_with(422, "validation_failed");
        assert_eq!(refused.faults(), ["Last-Event-ID", "last_event_id", "mesage_id", "type"], "{place}");
        assert!(refused.json()["message"].as_str().unwrap().contains("message_id"));
    }
    let head = world.ask_as(&world.key.clone(), "HEAD /v1/events/stream", "", &Value::Null).await;
    assert_eq!((head.status, head.header("content-type")), (200, "text/event-stream"));
    assert_eq!((world.get("/v1/me").await.status, world.engine.streams.count()), (200, 0), "HEAD follows nothing");
}

#[tokio::test]
async fn many_streams_over_many_commits_neither_skip_nor_repeat() {
    const SENDERS: usize = 8;
    const EACH: usize = 10;
    let mut world = World::new().await;
    let mut steady = [Follower::accepted(&world, "", "").await, Follower::accepted(&world, "?type=queued", "").await];
    let senders = (0..SENDERS).map(|sender| {
        let (address, key) = (world.address, world.key.clone());
        tokio::spawn(async move {
            let mut client = Client::open(address).await;
            for number in 0..EACH {
                let body = letter(&format!("a{sender}.{number}@example.net")).to_string();
                assert_eq!(client.ask("POST /v1/messages", &key, "", &body).await.status, 202);
            }
        })
    });
    let senders: Vec<_> = senders.collect();
    // One client is disconnected after every few events, and reconnects after the last one that it received.
    let mut cut = Vec::new();
    let mut follower = Follower::after(&world, "evt_00000000000000000000000000").await;
    while cut.len() < SENDERS * EACH {
        cut.push(follower.event().await);
        if cut.len() % 7 == 0 {
            follower = Follower::after(&world, &cut.last().unwrap().id).await;
        }
    }
    let log = world.log().await;
    assert_eq!(log.len(), SENDERS * EACH);
    assert_eq!(cut, log);
    for follower in &mut steady {
        assert_eq!(follower.events(SENDERS * EACH).await, log);
    }
    for sender in senders {
        sender.await.unwrap();
    }
}

#[tokio::test]
async fn a_stream_has_only_events_of_its_own_account() {
    let mut world = World::new().await;
    let (_, stranger) = world.stranger().await;
    let own = world.sent_to("a@example.net").await;
    let place = world.log().await.pop().unwrap().id;
    for query in
        ["".to_owned(), format!("?message_id={own}"), "?last_event_id=evt_00000000000000000000000000".to_owned()]
    {
        let mut other = Follower::open(&world, &stranger, &query, "").await;
        assert_eq!((other.head.status, other.head.header("last-event-id")), (200, ""));
        other.line().await.unwrap();
        let mut named = Follower::open(&world, &stranger, &query, &format!("Last-Event-ID: {place}\r\n")).await;
        assert_eq!((named.head.status, named.head.header("last-event-id")), (200, ""));
        named.line().await.unwrap();
        world.sent_to("b@example.net").await;
        // The stream ends when its key is revoked, so it is certain that no event was sent.
        let key = world.engine.authenticate(&stranger).unwrap().unwrap();
        let (other_account, id) = (key.account, key.key.unwrap().id);
        if query.starts_with("?last") {
            world.engine.revoke_key(other_account, id).await.unwrap();
            assert_eq!((other.line().await, named.line().await), (None, None));
        }
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_key_is_revoked_or_expires() {
    let mut world = World::new().await;
    let made = world.post("/v1/keys", serde_json::json!({ "name": "x", "scopes": ["read"] })).await;
    let key = made.json()["key"].as_str().unwrap().to_owned();
    let mut follower = Follower::open(&world, &key, "", "").await;
    follower.line().await.unwrap();
    assert_eq!(world.delete(made.header("location")).await.status, 204);
    assert_eq!(follower.line().await, None, "it does not wait for an event");
    assert!(follower.client.get("/v1/me", &world.key).await.status == 200, "the connection stays open");

    let body = serde_json::json!({ "name": "x", "expires_at": "2023-11-14T23:00:00Z" });
    let made = world.post("/v1/keys", body).await;
    let mut follower = Follower::open(&world, made.json()["key"].as_str().unwrap(), "", "").await;
    follower.line().await.unwrap();
    world.advance(Duration::from_secs(3600));
    assert_eq!(follower.line().await, None);
}

/// Deadlines that a test exceeds.
fn short() -> HttpLimits {
    const SHORT: Duration = Duration::from_millis(50);
    HttpLimits { head_read: SHORT, idle: SHORT, write_stall: SHORT, ..HttpLimits::default() }
}

#[tokio::test]
async fn a_quiet_stream_sends_keepalives_and_has_no_deadline() {
    let quiet = Streams::new(Duration::from_millis(20));
    let mut world = World::serving(QuotaLimits::default(), 600, short(), quiet).await;
    let mut follower = Follower::accepted(&world, "", "").await;
    for _ in 0..20 {
        assert_eq!(follower.line().await.as_deref(), Some(": nothing new"));
    }
    world.client = Client::open(world.address).await;
    world.sent_to("a@example.net").await;
    let event = loop {
        let line = follower.line().await.unwrap();
        if line != ": nothing new" {
            follower.text = format!("{line}\n{}", follower.text);
            break follower.event().await;
        }
    };
    world.client = Client::open(world.address).await;
    assert_eq!(event, world.log().await.pop().unwrap());
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let mut world = World::serving(QuotaLimits::default(), 600, short(), Streams::default()).await;
    let metadata: serde_json::Map<_, _> = (0..10).map(|n| (format!("k{n}"), "x".repeat(500).into())).collect();
    let mut message = letter("a@example.net");
    message["metadata"] = metadata.into();
    // More events than the buffers of a socket hold.
    for _ in 0..100 {
        world.client = Client::open(world.address).await;
        assert_eq!(world.send(message.clone()).await.status, 202);
    }
    world.client = Client::open(world.address).await;
    let log = world.log().await;
    assert_eq!(Follower::after(&world, "evt_00000000000000000000000000").await.events(100).await, log, "for a reader");
    let socket = tokio::net::UnixStream::connect(world.directory.path().join("admin.sock")).await.unwrap();
    let mut lazy = Client::over(socket);
    let place = "Last-Event-ID: evt_00000000000000000000000000";
    lazy.write(format!("GET /v1/events/stream HTTP/1.1\r\nHost: test\r\n{place}\r\n\r\n")).await;
    assert_eq!(lazy.read_head().await.status, 200);
    assert_eq!(world.engine.streams.count(), 1);
    while world.engine.streams.count() > 0 {
        tokio::task::yield_now().await;
    }
    drop(lazy);
}

#[tokio::test]
async fn streams_per_account_are_limited_and_the_next_must_wait() {
    let mut world = World::new().await;
    let mut followers = Vec::new();
    for _ in 0..STREAMS_OF_ACCOUNT_MAX {
        followers.push(Follower::accepted(&world, "", "").await);
    }
    let refused = world.get("/v1/events/stream").await;
    refused.fails_with(503, "overloaded");
    assert_eq!(refused.header("retry-after"), "1");
    let (_, stranger) = world.stranger().await;
    assert_eq!(Follower::open(&world, &stranger, "", "").await.head.status, 200, "other accounts have their own limit");
    followers.pop();
    // The server notices the disconnect some time later.
    while Follower::open(&world, &world.key, "", "").await.head.status != 200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_shutdown_ends_streams_and_refuses_new_ones() {
    let mut world = World::new().await;
    let mut follower = Follower::accepted(&world, "", "").await;
    let api = Api::new(Arc::clone(&world.engine), Arc::default(), 1, ServiceLimits::default().budgets, None);
    api.shut_down();
    assert_eq!(follower.line().await, None);
    world.get("/v1/events/stream").await.fails_with(503, "shutting_down");
    assert!(world._server.shutdown(Duration::from_secs(30)).await);
}

#[tokio::test]
async fn http2_streams_run_beside_other_requests() {
    let mut world = World::new().await;
    let io = TokioIo::new(TcpStream::connect(world.address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let request = |path: &str| {
        let request = hyper::Request::get(format!("http://localhost{path}"));
        let request = request.header("authorization", format!("Bearer {}", world.key));
        request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap()
    };
    let response = sender.send_request(request("/v1/events/stream")).await.unwrap();
    let me = sender.send_request(request("/v1/me")).await.unwrap();
    assert_eq!((response.status().as_u16(), me.status().as_u16()), (200, 200));
    let mut body = response.into_body();
    let mut text = String::new();
    world.sent_to("a@example.net").await;
    let event = world.log().await.pop().unwrap();
    while !text.ends_with("\n\n") {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&frame).unwrap());
    }
    let expected = format!("retry: 3000\nid: {}\nevent: queued\ndata: {}\n\n", event.id, event.record);
    assert_eq!(text, expected);
    world.engine.streams.end();
    assert!(body.collect().await.unwrap().to_bytes().is_empty(), "a complete end, not a reset");
}
