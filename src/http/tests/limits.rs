//! Tests of requests that are too large, too slow or too many.

use super::*;
use crate::http::body::BodyLimits;
use crate::http::body_budget::{BodyBudgets, BudgetSizes};

const SHORT: Duration = Duration::from_millis(50);

fn bodies_of(bytes: usize) -> ServiceLimits {
    ServiceLimits { body: BodyLimits { message_bytes: bytes, ..BodyLimits::default() }, ..ServiceLimits::default() }
}

async fn with(http: HttpLimits, limits: ServiceLimits) -> (HttpServer<HttpService<Toy>>, Client<TcpStream>) {
    let (server, address) = listening(http, limits).await;
    (server, Client::open(address).await)
}

#[tokio::test]
async fn a_large_body_is_refused_by_length_or_growth_and_closes_the_connection() {
    let (_server, mut client) = with(HttpLimits::default(), bodies_of(100)).await;
    let head = "POST /v1/messages HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer all\r\n";
    // `Expect: 100-continue` is answered before a byte of the body is sent.
    client.write(format!("{head}Content-Length: 101\r\nExpect: 100-continue\r\n\r\n")).await;
    let reply = client.read().await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "payload_too_large"));
    assert_eq!(reply.header("connection"), "close");
    assert!(client.is_closed().await);

    let (_server, mut client) = with(HttpLimits::default(), bodies_of(100)).await;
    let chunk = format!("40\r\n{}\r\n", " ".repeat(64));
    client.write(format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n")).await;
    assert_eq!(client.read().await.status, 413);
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_refused_body_is_drained_so_that_the_sender_sees_the_answer() {
    let (_server, mut client) = with(HttpLimits::default(), bodies_of(1_000_000)).await;
    for (key, size, status) in [("bad", 1_500_000, 401), ("bad", 20_000, 401)] {
        let reply = client.ask("POST /v1/messages", key, "", &" ".repeat(size)).await;
        assert_eq!(reply.status, status);
    }
    assert_eq!(client.post("{}").await.status, 202);
    assert_eq!(client.ask("POST /v1/messages", "all", "", &" ".repeat(1_500_000)).await.status, 413);
}

#[tokio::test]
async fn a_refused_body_is_not_drained_if_its_sender_pauses() {
    let body = BodyLimits { discard_pause: SHORT, ..BodyLimits::default() };
    let limits = ServiceLimits { body, ..ServiceLimits::default() };
    let (_server, address) = listening(HttpLimits::default(), limits).await;
    for (key, status) in [("all", 413), ("bad", 401)] {
        let mut client = Client::open(address).await;
        let head = "POST /v1/messages HTTP/1.1\r\nHost: test\r\nContent-Length: 99000000\r\n";
        client.write(format!("{head}Authorization: Bearer {key}\r\n\r\n{{")).await;
        assert_eq!(client.read().await.status, status);
        let closed = tokio::time::timeout(Duration::from_secs(5), client.is_closed()).await;
        assert_eq!(closed, Ok(true), "{status}");
    }
}

#[tokio::test]
async fn a_body_in_many_pieces_is_joined() {
    let (_server, mut client) = with(HttpLimits::default(), bodies_of(1_000_000)).await;
    let body = format!("{{\"text\":\"{}\"}}", "x".repeat(500_000));
    let reply = client.post(&body).await;
    assert_eq!((reply.status, reply.body), (202, body));
}

#[tokio::test]
async fn a_slow_body_is_408_and_closes_the_connection() {
    let body = BodyLimits { window: SHORT, ..BodyLimits::default() };
    let (_server, mut client) = with(HttpLimits::default(), ServiceLimits { body, ..ServiceLimits::default() }).await;
    client
        .write("POST /v1/messages HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer all\r\nContent-Length: 9\r\n\r\n{")
        .await;
    let reply = client.read().await;
    assert_eq!((reply.status, reply.code().as_str()), (408, "request_timeout"));
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn bodies_over_the_memory_budget_are_503() {
    let budgets = BudgetSizes { shared: 40, ..BudgetSizes::default() };
    let limits = ServiceLimits { budgets: Arc::new(BodyBudgets::new(&budgets)), ..ServiceLimits::default() };
    let (_server, mut client) = with(HttpLimits::default(), limits).await;
    let reply = client.post(r#"{"a":"12345678"}"#).await;
    assert_eq!((reply.status, reply.code().as_str(), reply.header("retry-after")), (503, "overloaded", "1"));
    for _ in 0..3 {
        assert_eq!(client.post(r#"{"a":12}"#).await.status, 202);
    }
}

#[tokio::test]
async fn a_large_head_is_431() {
    let (server, mut client) = connected().await;
    let large = format!("X-Large: {}\r\n", "x".repeat(17_000));
    assert_eq!(client.ask("GET /healthz", "", &large, "").await.status, 431);
    server.shutdown(Duration::from_secs(5)).await;
    let (_server, mut client) = connected().await;
    assert_eq!(client.ask("GET /healthz", "", &"X-Many: 1\r\n".repeat(101), "").await.status, 431);
}

#[tokio::test]
async fn a_slow_head_is_408_and_an_idle_connection_is_closed_silently() {
    let limits = HttpLimits { head_read: SHORT, ..HttpLimits::default() };
    let (_server, mut client) = with(limits, ServiceLimits::default()).await;
    client.write("GET /healthz HTTP/1.1\r\nHost: a-client-that-stops").await;
    assert_eq!(client.read().await.status, 408);
    assert!(client.is_closed().await);

    let limits = HttpLimits { head_read: SHORT, ..HttpLimits::default() };
    let (_server, mut client) = with(limits, ServiceLimits::default()).await;
    assert!(client.is_closed().await, "it sent nothing");

    let limits = HttpLimits { head_read: SHORT, idle: SHORT, ..HttpLimits::default() };
    let (_server, mut client) = with(limits, ServiceLimits::default()).await;
    assert_eq!(client.get("/healthz", "").await.status, 200);
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn at_the_limit_a_connection_waits_until_another_has_answered() {
    let limits = HttpLimits { connections: 1, ..HttpLimits::default() };
    let (mut server, toy) = server(limits, ServiceLimits::default());
    let address = server.listen_tcp(([127, 0, 0, 1], 0).into(), None).await.unwrap();
    let mut first = Client::open(address).await;
    first.write("GET /wait HTTP/1.1\r\nHost: test\r\n\r\n").await;
    toy.entered.notified().await;
    let mut second = Client::open(address).await;
    let mut asked = Box::pin(second.get("/healthz", ""));
    tokio::select! {
        biased;
        _ = &mut asked => panic!("there was no place"),
        () = tokio::time::sleep(4 * SHORT) => {}
    }
    toy.released.notify_one();
    assert_eq!(first.read().await.status, 204);
    assert_eq!(asked.await.status, 200);
    assert!(first.is_closed().await, "it was closed in favour of another");
}

#[tokio::test]
async fn at_the_limit_the_longest_idle_connections_are_closed() {
    let limits = HttpLimits { connections: 4, ..HttpLimits::default() };
    let (_server, address) = listening(limits, ServiceLimits::default()).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = Client::open(address).await;
        assert_eq!(client.get("/healthz", "").await.status, 200);
        clients.push(client);
    }
    // The first client has sent the latest request, so the second one is idle longest.
    assert_eq!(clients[0].get("/healthz", "").await.status, 200);
    assert_eq!(Client::open(address).await.get("/healthz", "").await.status, 200);
    assert!(clients[1].is_closed().await);
    assert_eq!(clients[0].get("/healthz", "").await.status, 200);
}

#[tokio::test]
async fn unfinished_unauthenticated_requests_block_no_other_client() {
    let limits = HttpLimits { connections: 4, ..HttpLimits::default() };
    let (_server, address) = listening(limits, ServiceLimits::default()).await;
    let form = "POST /form HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\n{";
    let refused = "POST /form HTTP/1.1\r\nHost: test\r\nContent-Length: 99000000\r\n\r\n{";
    let http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for begun in ["", "GET /healthz HTTP/1.1\r\nHost: a-cl", form, refused, http2] {
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut client = Client::open(address).await;
            client.write(begun).await;
            held.push(client);
        }
        let mut new = Client::open(address).await;
        let answered = tokio::time::timeout(Duration::from_secs(2), new.get("/healthz", "")).await;
        assert_eq!(answered.map(|reply| reply.status), Ok(200), "{begun}");
    }
}

#[tokio::test]
async fn idle_connections_end_sooner_when_few_places_are_left() {
    let limits = HttpLimits { connections: 4, idle_pressed: SHORT, ..HttpLimits::default() };
    let (_server, address) = listening(limits, ServiceLimits::default()).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Client::open(address).await;
        assert_eq!(client.get("/healthz", "").await.status, 200);
        clients.push(client);
    }
    assert!(clients[0].is_closed().await);
}

#[tokio::test]
async fn unfinished_unauthenticated_bodies_do_not_affect_keyed_requests() {
    let budgets = BudgetSizes { shared: 400_000, strangers: 20_000, stranger: 20_000 };
    let (_server, address) = listening(
        HttpLimits::default(),
        ServiceLimits { budgets: Arc::new(BodyBudgets::new(&budgets)), ..ServiceLimits::default() },
    )
    .await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut client = Client::open(address).await;
        client.write("POST /form HTTP/1.1\r\nHost: test\r\nContent-Length: 60000\r\n\r\n").await;
        client.write(" ".repeat(9000)).await;
        held.push(client);
    }
    // Two requests use up the memory for unauthenticated requests. The third is refused, and so is any that is not
    // small.
    let reply = held[2].read().await;
    assert_eq!((reply.status, reply.code().as_str(), reply.header("retry-after")), (503, "overloaded", "1"));
    let mut small = Client::open(address).await;
    assert_eq!(small.ask("POST /form", "", "", "{}").await.status, 200);
    let mut sender = Client::open(address).await;
    assert_eq!(sender.post(&format!("{{\"text\":\"{}\"}}", "x".repeat(90_000))).await.status, 202);
}

#[tokio::test]
async fn one_account_uses_a_quarter_and_others_are_served() {
    let budgets = BudgetSizes { shared: 80_000, ..BudgetSizes::default() };
    let (_server, address) = listening(
        HttpLimits::default(),
        ServiceLimits { budgets: Arc::new(BodyBudgets::new(&budgets)), ..ServiceLimits::default() },
    )
    .await;
    let head = "POST /v1/messages HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer all\r\nContent-Length: 60000\r\n\r\n";
    let (mut first, mut second) = (Client::open(address).await, Client::open(address).await);
    first.write(head).await;
    first.write(" ".repeat(15_000)).await;
    second.write(head).await;
    second.write(" ".repeat(15_000)).await;
    let refused = tokio::select! { reply = first.read() => reply, reply = second.read() => reply };
    assert_eq!((refused.status, refused.code().as_str(), refused.header("retry-after")), (503, "overloaded", "1"));
    let mut other = Client::open(address).await;
    let reply = other.ask("POST /v1/messages", "other", "", &format!("{{\"a\":\"{}\"}}", "x".repeat(10_000))).await;
    assert_eq!(reply.status, 202);
}

#[tokio::test]
async fn each_route_has_its_own_limit() {
    let (_server, address) = listening(HttpLimits::default(), ServiceLimits::default()).await;
    for (line, key, most) in [("POST /form", "", 64 * 1024), ("POST /v1/keys", "all", 256 * 1024)] {
        let mut client = Client::open(address).await;
        assert_eq!(client.ask(line, key, "", &format!("{{}}{}", " ".repeat(most - 2))).await.status, 200);
        let reply = client.ask(line, key, "", &format!("{{}}{}", " ".repeat(most - 1))).await;
        assert_eq!((reply.status, reply.header("connection")), (413, "close"), "{line}");
        assert!(reply.body.contains(&most.to_string()));
        assert!(client.is_closed().await);
    }
}

#[tokio::test]
async fn an_address_over_its_share_is_refused_and_loopback_has_no_share() {
    let limits = HttpLimits { connections_each: 2, ..HttpLimits::default() };
    let (_server, address) =
        listening(HttpLimits { uncounted: Vec::new(), ..limits.clone() }, ServiceLimits::default()).await;
    let (mut first, mut second) = (Client::open(address).await, Client::open(address).await);
    assert_eq!(first.get("/healthz", "").await.status, 200);
    assert_eq!(second.get("/healthz", "").await.status, 200);
    assert!(Client::open(address).await.is_closed().await);
    assert_eq!(first.get("/healthz", "").await.status, 200);
    // A released place is available again once the server has noticed the end.
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
