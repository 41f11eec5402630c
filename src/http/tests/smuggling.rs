//! Requests that two servers could parse differently: each ends its connection, and no request hidden in it is served.

use super::*;

/// A request that would be served if the previous request ended at another place.
const HIDDEN: &str = "GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n";

fn post(fields: &str, body: &str) -> String {
    format!("POST /v1/messages HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer all\r\n{fields}\r\n{body}")
}

/// Returns the statuses of all answers until the connection is closed.
async fn statuses(pieces: &[&[u8]]) -> Vec<u16> {
    let (_server, mut client) = connected().await;
    for piece in pieces {
        // A refused connection may close before its last piece is written.
        let _written = client.stream.write_all(piece).await;
        tokio::task::yield_now().await;
    }
    while client.fill().await {}
    let mut statuses = Vec::new();
    while !client.unread.is_empty() {
        statuses.push(client.read().await.status);
    }
    statuses
}

async fn is_refused(request: &str) {
    let (first, second) = request.as_bytes().split_at(request.len() / 2);
    for pieces in [vec![request.as_bytes(), HIDDEN.as_bytes()], vec![first, second, HIDDEN.as_bytes()]] {
        assert_eq!(statuses(&pieces).await, [400], "{request:?}");
    }
}

#[tokio::test]
async fn a_body_with_an_ambiguous_end_is_refused() {
    for fields in [
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
        "Content-Length: 2\r\nContent-Length: 2\r\n",
        "Content-Length: 2\r\nContent-Length: 3\r\n",
        "Content-Length: 2, 2\r\n",
        "Content-Length: +2\r\n",
        "Content-Length: -2\r\n",
        "Content-Length: 2a\r\n",
        "Content-Length: \r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding\r\n : chunked\r\n",
        "X: y\r\n Transfer-Encoding: chunked\r\n",
        "X: y\rTransfer-Encoding: chunked\r\n",
        "X: y\nTransfer-Encoding: chunked\r\n",
        "X: y\0\r\n",
        "X\0: y\r\n",
        ": y\r\n",
        "nonsense\r\n",
    ] {
        is_refused(&post(fields, "{}")).await;
    }
    is_refused(&post("Transfer-Encoding: chunked\r\n", "").replace("HTTP/1.1", "HTTP/1.0")).await;
    is_refused(&post("", "").replace("\r\n", "\n")).await;
}

#[tokio::test]
async fn exactly_one_valid_host_is_required() {
    for fields in
        ["", "Host: a\r\nHost: a\r\n", "Host: a\r\nhost: b\r\n", "Host: a b\r\n", "Host: a/../b\r\n", "Host: é\r\n"]
    {
        is_refused(&format!("GET /healthz HTTP/1.1\r\n{fields}\r\n")).await;
    }
    for fields in ["Host:\r\n", "Host: [::1]:8080\r\n"] {
        let request = format!("GET /healthz HTTP/1.1\r\nConnection: close\r\n{fields}\r\n");
        assert_eq!(statuses(&[request.as_bytes()]).await, [200], "{fields:?}");
    }
    assert_eq!(statuses(&[b"GET /healthz HTTP/1.0\r\n\r\n"]).await, [200]);
}

#[tokio::test]
async fn a_malformed_chunked_body_is_422_and_ends_the_connection() {
    for body in [
        "2 \r\n{}\r\n0\r\n\r\n",
        "2\n{}\r\n0\r\n\r\n",
        "2;x\n{}\r\n0\r\n\r\n",
        "2;x\r{}\r\n0\r\n\r\n",
        "0x2\r\n{}\r\n0\r\n\r\n",
        "+2\r\n{}\r\n0\r\n\r\n",
        "zz\r\n{}\r\n0\r\n\r\n",
        "fffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        "2\r\n{}0\r\n\r\n",
        "2\r\n{} \r\n0\r\n\r\n",
        "2\r\n{}\n0\r\n\r\n",
        "2\r\n{}\r\n0\r\nX: y\n\r\n",
        "2\r\n{}\r\n0\r\nX\0: y\r\n\r\n",
    ] {
        let request = post("Transfer-Encoding: chunked\r\n", body);
        assert_eq!(statuses(&[request.as_bytes(), HIDDEN.as_bytes()]).await, [422], "{body:?}");
    }
    let whole = post("Transfer-Encoding: chunked\r\nConnection: close\r\n", "2;a=\"b\"\r\n{}\r\n0\r\nX: y\r\n\r\n");
    assert_eq!(statuses(&[whole.as_bytes()]).await, [202]);
}

#[tokio::test]
async fn requests_before_a_malformed_one_are_answered_first() {
    let sound = post("Content-Length: 2\r\n", "{}");
    let faulty = post("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n");
    let stream = [&sound, &sound, &faulty, HIDDEN].concat();
    assert_eq!(statuses(&[stream.as_bytes()]).await, [202, 202, 400]);
    let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
    assert_eq!(statuses(&bytes).await, [202, 202, 400]);
}
