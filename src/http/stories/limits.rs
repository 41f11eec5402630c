//! What is too large, too slow or too much.

use super::*;
use crate::http::body::BodyLimits;

const SHORT: Duration = Duration::from_millis(50);

fn bodies_of(bytes: usize) -> ServiceLimits {
    ServiceLimits { body: BodyLimits { bytes, ..BodyLimits::default() }, ..ServiceLimits::default() }
}

async fn with(http: HttpLimits, limits: ServiceLimits) -> (HttpServer<HttpService<Toy>>, Client<TcpStream>) {
    let (server, address) = listening(http, limits).await;
    (server, Client::open(address).await)
}

#[tokio::test]
async fn a_body_too_large_is_refused_by_its_announcement_and_by_its_growth() {
    let (_server, mut client) = with(HttpLimits::default(), bodies_of(100)).await;
    let head = "POST /v1/messages HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer all\r\n";
    // Whoever asks first is told before a byte of the body is sent.
    client.write(format!("{head}Content-Length: 101\r\nExpect: 100-continue\r\n\r\n")).await;
    let reply = client.read().await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "payload_too_large"));

    let (_server, mut client) = with(HttpLimits::default(), bodies_of(100)).await;
    let chunk = format!("40\r\n{}\r\n", " ".repeat(64));
    client.write(format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n")).await;
    assert_eq!(client.read().await.status, 413);
    assert_eq!(client.post("{}").await.status, 202);
}

#[tokio::test]
async fn a_refused_body_is_read_off_so_that_its_sender_sees_the_answer() {
    let (_server, mut client) = with(HttpLimits::default(), bodies_of(1_000_000)).await;
    for (key, size, status) in [("all", 1_500_000, 413), ("bad", 1_500_000, 401), ("bad", 20_000, 401)] {
        let reply = client.ask("POST /v1/messages", key, "", &" ".repeat(size)).await;
        assert_eq!(reply.status, status);
    }
    assert_eq!(client.post("{}").await.status, 202);
}

#[tokio::test]
async fn a_body_in_many_pieces_is_put_together() {
    let (_server, mut client) = with(HttpLimits::default(), bodies_of(1_000_000)).await;
    let body = format!("{{\"text\":\"{}\"}}", "x".repeat(500_000));
    let reply = client.post(&body).await;
    assert_eq!((reply.status, reply.body), (202, body));
}

#[tokio::test]
async fn a_slow_body_is_408_and_its_connection_closes() {
    let body = BodyLimits { grace: SHORT, ..BodyLimits::default() };
    let (_server, mut client) = with(HttpLimits::default(), ServiceLimits { body, ..ServiceLimits::default() }).await;
    client
        .write("POST /v1/messages HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer all\r\nContent-Length: 9\r\n\r\n{")
        .await;
    let reply = client.read().await;
    assert_eq!((reply.status, reply.code().as_str()), (408, "request_timeout"));
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn bodies_that_hold_too_much_together_are_503() {
    let limits = ServiceLimits { bodies_bytes: 10, ..ServiceLimits::default() };
    let (_server, mut client) = with(HttpLimits::default(), limits).await;
    let reply = client.post(r#"{"a":"12345678"}"#).await;
    assert_eq!((reply.status, reply.code().as_str(), reply.header("retry-after")), (503, "overloaded", "1"));
    for _ in 0..3 {
        assert_eq!(client.post(r#"{"a":12}"#).await.status, 202);
    }
}

#[tokio::test]
async fn a_head_too_large_is_431() {
    let (server, mut client) = connected().await;
    let large = format!("X-Large: {}\r\n", "x".repeat(17_000));
    assert_eq!(client.ask("GET /healthz", "", &large, "").await.status, 431);
    server.shutdown(Duration::from_secs(5)).await;
    let (_server, mut client) = connected().await;
    assert_eq!(client.ask("GET /healthz", "", &"X-Many: 1\r\n".repeat(101), "").await.status, 431);
}

#[tokio::test]
async fn a_slow_head_is_408_and_an_idle_connection_is_closed_without_a_word() {
    let limits = HttpLimits { head_read: SHORT, ..HttpLimits::default() };
    let (_server, mut client) = with(limits, ServiceLimits::default()).await;
    client.write("GET /healthz HTTP/1.1\r\nHost: a-client-that-stops").await;
    assert_eq!(client.read().await.status, 408);
    assert!(client.is_closed().await);

    let limits = HttpLimits { head_read: SHORT, ..HttpLimits::default() };
    let (_server, mut client) = with(limits, ServiceLimits::default()).await;
    assert!(client.is_closed().await, "said nothing at all");

    let limits = HttpLimits { head_read: SHORT, idle: SHORT, ..HttpLimits::default() };
    let (_server, mut client) = with(limits, ServiceLimits::default()).await;
    assert_eq!(client.get("/healthz", "").await.status, 200);
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn at_the_cap_a_connection_waits_until_another_ends() {
    let limits = HttpLimits { connections: 1, ..HttpLimits::default() };
    let (_server, address) = listening(limits, ServiceLimits::default()).await;
    let mut first = Client::open(address).await;
    assert_eq!(first.get("/healthz", "").await.status, 200);
    let mut second = Client::open(address).await;
    let mut asked = Box::pin(second.get("/healthz", ""));
    tokio::select! {
        biased;
        _ = &mut asked => panic!("there was no room"),
        reply = first.get("/healthz", "") => assert_eq!(reply.status, 200),
    }
    drop(first);
    assert_eq!(asked.await.status, 200);
}

#[tokio::test]
async fn beyond_its_share_an_address_is_turned_away_and_this_machine_has_no_share() {
    let limits = HttpLimits { connections_each: 2, ..HttpLimits::default() };
    let (_server, address) =
        listening(HttpLimits { uncounted: Vec::new(), ..limits.clone() }, ServiceLimits::default()).await;
    let (mut first, mut second) = (Client::open(address).await, Client::open(address).await);
    assert_eq!(first.get("/healthz", "").await.status, 200);
    assert_eq!(second.get("/healthz", "").await.status, 200);
    assert!(Client::open(address).await.is_closed().await);
    assert_eq!(first.get("/healthz", "").await.status, 200);
    // A place that is given back is there again, though not before the server has seen the end.
    drop(second);
    let mut third = Client::open(address).await;
    third.write("GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n").await;
    while !third.fill().await {
        third = Client::open(address).await;
        let _turned_away = third.stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n").await;
    }

    let (_server, address) = listening(limits, ServiceLimits::default()).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Client::open(address).await;
        assert_eq!(client.get("/healthz", "").await.status, 200);
        clients.push(client);
    }
}
