//! Tests of form bodies: size limits, and the right to send them.

use super::*;

impl Browser {
    /// Sends a request head without a body, and reads the answer.
    async fn announce(&mut self, path: &str, kind: &str, length: usize) -> Reply {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: panel.test\r\nAccept: text/html\r\nSec-Fetch-Site: same-origin\r\n\
             Cookie: {}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
            cookies.join("; "),
        );
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        let mut bytes = [0; 4096];
        while !text.contains("\r\n\r\n") {
            let read = stream.read(&mut bytes).await.unwrap();
            assert!(read > 0, "closed without an answer");
            text.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Reply { status, headers, body: body.to_owned() }
    }
}

const FORM: &str = "application/x-www-form-urlencoded";
const UPLOAD: &str = "multipart/form-data; boundary=b0";

#[tokio::test]
async fn forms_larger_than_64_kib_are_rejected_without_reading() {
    let world = World::new().await;
    let mut owner = world.owner().await;
    for path in ["/login", "/setup", "/login/code", "/appearance", "/logout", "/settings", "/keys"] {
        let reply = owner.announce(path, FORM, 64 * 1024 + 1).await;
        assert_eq!((reply.status, reply.header("connection")), (413, "close"), "{path}");
    }
}

#[tokio::test]
async fn an_upload_is_read_only_if_the_visitor_may_send_it() {
    let world = World::new().await;
    let (mut stranger, mut viewer, mut owner) = (world.browser(), world.viewer().await, world.owner().await);
    let upload = 25 * 1024 * 1024;
    let reply = stranger.announce("/suppressions/import", UPLOAD, upload).await;
    assert_eq!((reply.status, reply.location()), (303, "/login?ended=1&next=%2Fsuppressions"));
    assert_eq!(viewer.announce("/suppressions/import", UPLOAD, upload).await.status, 403);
    assert_eq!(owner.announce("/suppressions/import", UPLOAD, upload + 1).await.status, 413);
    assert_eq!(stranger.announce("/settings", FORM, 60_000).await.status, 303);
}

#[tokio::test]
async fn unfinished_forms_of_strangers_do_not_exhaust_the_memory_budget() {
    let world = World::new().await;
    let mut owner = world.owner().await;
    let mut held = Vec::new();
    for path in ["/login", "/setup", "/login/code", "/appearance", "/login"] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: panel.test\r\nSec-Fetch-Site: same-origin\r\nContent-Type: {FORM}\r\n\
             Content-Length: 65000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&[b'a'; 64_999]).await.unwrap();
        held.push(stream);
    }
    // Five bodies of 64,999 bytes are more than one address may hold.
    let mut answer = [0; 12];
    let mut refused = 0;
    for stream in &mut held {
        let read = tokio::time::timeout(Duration::from_millis(200), stream.read_exact(&mut answer)).await;
        refused += usize::from(read.is_ok_and(|read| read.is_ok()) && answer == *b"HTTP/1.1 503");
    }
    assert_eq!(refused, 1);
    assert_eq!(world.browser().sign_in(EMAIL, &world.password).await.status, 303, "a small form");
    let long = "x".repeat(50_000);
    assert_eq!(owner.post("/suppressions", &[("email", "bob@example.com"), ("z", &long)]).await.status, 303);
}
