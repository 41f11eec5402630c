//! HTTP/2 from misbehaving clients, frame by frame (RFC 9113): malformed frames end their stream, abusive ones their
//! connection. Memory and time stay within their limits.

use tokio::time::timeout;

use super::*;
use crate::http::body_budget::{BodyBudgets, BudgetSizes};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ENHANCE_YOUR_CALM: u32 = 11;
/// `431` in the Huffman code of RFC 7541, appendix B.
const HUFFMAN_431: [u8; 3] = [0x69, 0x90, 0xff];
const SHORT: Duration = Duration::from_millis(50);
/// Time limit for everything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(20);

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header block of literals without indexing (RFC 7541 6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        let length = text.len();
        let mut coded = if length < 127 { vec![length as u8] } else { vec![127] };
        let mut rest = length.checked_sub(127);
        while let Some(left) = rest {
            coded.push(if left < 128 { left as u8 } else { left as u8 | 128 });
            rest = (left >= 128).then_some(left >> 7);
        }
        [coded, text.as_bytes().to_vec()].concat()
    };
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

const REQUEST: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":authority", "test"), (":path", "/healthz")];

fn request(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(&[&REQUEST, more].concat()))
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    /// Returns the code of a RST_STREAM or a GOAWAY.
    fn code(&self) -> u32 {
        let from = if self.kind == GO_AWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[from..from + 4].try_into().unwrap())
    }
}

impl Client<TcpStream> {
    /// Opens a connection with these settings.
    async fn begin(http: HttpLimits, settings: &[u8]) -> (HttpServer<HttpService<Toy>>, Self) {
        Self::begin_with(http, ServiceLimits::default(), settings).await
    }

    /// Opens a connection to a service with these limits.
    async fn begin_with(
        http: HttpLimits,
        service: ServiceLimits,
        settings: &[u8],
    ) -> (HttpServer<HttpService<Toy>>, Self) {
        let (server, address) = listening(http, service).await;
        let mut client = Self::open(address).await;
        client.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        client.write(frame(SETTINGS, 0, 0, settings)).await;
        (server, client)
    }

    async fn next_frame(&mut self) -> Option<Frame> {
        while self.unread.len() < 9 || self.unread.len() < 9 + self.payload_length() {
            if !timeout(PATIENCE, self.fill()).await.expect("neither a frame nor an end") {
                return None;
            }
        }
        let length = self.payload_length();
        let head: Vec<u8> = self.unread.drain(..9).collect();
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        Some(Frame { kind: head[3], flags: head[4], stream, payload: self.unread.drain(..length).collect() })
    }

    fn payload_length(&self) -> usize {
        usize::from(self.unread[0]) << 16 | usize::from(self.unread[1]) << 8 | usize::from(self.unread[2])
    }

    /// Returns the frame that ends `stream`: an answer or a reset.
    async fn end_of(&mut self, stream: u32) -> Frame {
        loop {
            let frame = self.next_frame().await.expect("the connection ended");
            assert_ne!(frame.kind, GO_AWAY, "code {}", frame.code());
            if frame.stream == stream && (frame.kind == RST_STREAM || frame.flags & END_STREAM != 0) {
                return frame;
            }
        }
    }

    /// Returns the GOAWAY's code once the connection has ended; `None` if it ended without one.
    async fn farewell(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.next_frame().await {
            code = if frame.kind == GO_AWAY { Some(frame.code()) } else { code };
        }
        code
    }

    /// Writes `bytes` repeatedly and reads nothing, until the connection ends. Returns the number of bytes written.
    async fn pour(&mut self, bytes: &[u8]) -> usize {
        let mut poured = 0;
        let pouring = async {
            while self.stream.write_all(bytes).await.is_ok() {
                poured += bytes.len();
            }
        };
        timeout(PATIENCE, pouring).await.expect("the connection is never ended");
        poured
    }
}

#[tokio::test]
async fn a_connection_field_resets_only_its_stream() {
    let (_server, mut client) = Client::begin(HttpLimits::default(), &[]).await;
    let mut stream = 1;
    for field in [
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("keep-alive", "1"),
        ("proxy-connection", "close"),
        ("te", "gzip"),
        (":path", "/other"),
    ] {
        client.write(request(stream, &[field])).await;
        assert_eq!(client.end_of(stream).await.kind, RST_STREAM, "{field:?}");
        client.write(request(stream + 2, &[("te", "trailers")])).await;
        assert_eq!(client.end_of(stream + 2).await.kind, DATA);
        stream += 4;
    }
}

#[tokio::test]
async fn an_upper_case_field_ends_the_connection() {
    let (_server, mut client) = Client::begin(HttpLimits::default(), &[]).await;
    client.write(request(1, &[("X-Upper", "case")])).await;
    assert!(client.farewell().await.is_some_and(|code| code != 0));
}

#[tokio::test]
async fn a_body_with_the_wrong_length_is_not_served() {
    for (length, body) in [("1", "{}"), ("3", "{}"), ("x", "{}"), ("2, 2", "{}"), ("-1", "{}")] {
        let (_server, mut client) = Client::begin(HttpLimits::default(), &[]).await;
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/v1/messages"),
            ("authorization", "Bearer all"),
            ("content-length", length),
        ];
        client.write(frame(HEADERS, END_HEADERS, 1, &block(&fields))).await;
        client.write(frame(DATA, END_STREAM, 1, body.as_bytes())).await;
        assert_eq!(client.end_of(1).await.kind, RST_STREAM, "{length}");
    }
}

#[tokio::test]
async fn a_large_head_is_refused() {
    let (_server, mut client) = Client::begin(HttpLimits::default(), &[]).await;
    let large = "x".repeat(9000);
    let whole = block(&[&REQUEST[..], &[("a", &large), ("b", &large)]].concat());
    let (first, rest) = whole.split_at(16_000);
    client.write([frame(HEADERS, END_STREAM, 1, first), frame(CONTINUATION, END_HEADERS, 1, rest)].concat()).await;
    let answer = client.end_of(1).await;
    assert!(answer.payload.ends_with(&HUFFMAN_431), "{:?}", answer.payload);
    client.write(request(3, &[])).await;
    assert_eq!(client.end_of(3).await.kind, DATA);
}

#[tokio::test]
async fn rapid_resets_end_the_connection() {
    let (_server, mut client) = Client::begin(HttpLimits::default(), &[]).await;
    let pair = |stream: u32| [request(stream, &[]), frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat();
    let flood: Vec<u8> = (0..2000).flat_map(|number| pair(2 * number + 1)).collect();
    let _cut_off = client.stream.write_all(&flood).await;
    assert_eq!(client.farewell().await, Some(ENHANCE_YOUR_CALM));
}

#[tokio::test]
async fn an_endless_head_ends_the_connection() {
    let (_server, mut client) = Client::begin(HttpLimits::default(), &[]).await;
    client.write(frame(HEADERS, END_STREAM, 1, &block(&REQUEST))).await;
    let poured = client.pour(&frame(CONTINUATION, 0, 1, &block(&[("a", "b")]))).await;
    assert!(poured < 8 << 20, "{poured} bytes were taken");
    let (_server, mut client) = Client::begin(HttpLimits::default(), &[]).await;
    client.write(frame(HEADERS, END_STREAM, 1, &block(&REQUEST))).await;
    assert!(client.pour(&frame(CONTINUATION, 0, 1, &[])).await < 8 << 20, "empty ones too");
}

#[tokio::test]
async fn a_client_that_reads_no_replies_is_disconnected() {
    let limits = || HttpLimits { write_stall: SHORT, head_read: SHORT, ..HttpLimits::default() };
    for flood in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, &[]), request(1, &[])] {
        let (_server, mut client) = Client::begin(limits(), &[]).await;
        client.pour(&flood.repeat(1000)).await;
    }
}

#[tokio::test]
async fn an_answer_without_window_is_dropped_after_a_time() {
    let limits = HttpLimits { write_stall: SHORT, head_read: SHORT, ..HttpLimits::default() };
    let initial_window_of_0 = [0, 4, 0, 0, 0, 0];
    let (_server, mut client) = Client::begin(limits, &initial_window_of_0).await;
    client.write(request(1, &[])).await;
    // Pings are answered, so that only the answer stalls.
    while let Some(frame) = client.next_frame().await {
        if frame.kind == PING && frame.flags == 0 {
            let _closed = client.stream.write_all(&self::frame(PING, 1, 0, &frame.payload)).await;
        }
    }
}

#[tokio::test]
async fn an_answer_without_window_is_charged_to_its_account() {
    let budgets = BudgetSizes { shared: 80_000, ..BudgetSizes::default() };
    let limits = ServiceLimits { budgets: Arc::new(BodyBudgets::new(&budgets)), ..ServiceLimits::default() };
    let initial_window_of_0 = [0, 4, 0, 0, 0, 0];
    let (_server, mut client) = Client::begin_with(HttpLimits::default(), limits, &initial_window_of_0).await;
    let fields = [(":method", "GET"), (":scheme", "http"), (":path", "/v1/large"), ("authorization", "Bearer all")];
    client.write(frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&fields))).await;
    while client.next_frame().await.unwrap().kind != HEADERS {}
    let mut second = Client::open(client.stream.peer_addr().unwrap()).await;
    let reply = second.get("/v1/large", "all").await;
    assert_eq!((reply.status, reply.code().as_str(), reply.header("retry-after")), (503, "overloaded", "1"));
    assert_eq!(second.get("/v1/large", "other").await.body.len(), 20_000);
    client.write(frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])).await;
    let freed = async { while second.get("/v1/large", "all").await.status != 200 {} };
    timeout(PATIENCE, freed).await.expect("the charge ends with the stream");
}

#[tokio::test]
async fn streams_above_the_limit_are_refused_separately() {
    let limits = HttpLimits { streams: 2, ..HttpLimits::default() };
    let (_server, mut client) = Client::begin(limits, &[]).await;
    // Our settings apply once they are acknowledged.
    while client.next_frame().await.unwrap().kind != SETTINGS {}
    client.write(frame(SETTINGS, 1, 0, &[])).await;
    let waits = |stream| {
        let fields = [(":method", "GET"), (":scheme", "http"), (":path", "/wait")];
        frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(&fields))
    };
    client.write([waits(1), waits(3), waits(5)].concat()).await;
    let refused = client.end_of(5).await;
    assert_eq!((refused.kind, refused.code()), (RST_STREAM, 7), "REFUSED_STREAM: safe to repeat");
}
