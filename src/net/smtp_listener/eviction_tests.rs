//! A full listener makes room for new clients by closing connections whose clients are silent.

use std::net::SocketAddr;

use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpSocket;

use super::tests::{Client, config};
use super::*;

/// Listens with this many places, of which one client may have two.
async fn listen(places: usize, deadlines: Deadlines) -> SmtpListener {
    let config = ListenerConfig { gate: ConnectionCap::new(places, 2), deadlines, ..config() };
    super::tests::listen(config).await
}

/// Connects from an address of its own, and returns the greeting too.
async fn connect(listener: &SmtpListener, host: u8) -> (Client<TcpStream>, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 7, host], 0))).unwrap();
    let mut client = Client(BufReader::new(socket.connect(listener.local_addr()).await.unwrap()));
    let greeting = client.read_reply().await;
    (client, greeting)
}

#[tokio::test]
async fn silent_connections_of_many_addresses_exclude_no_client() {
    let listener = listen(4, Deadlines { silent: Duration::ZERO, ..Deadlines::default() }).await;
    let mut silent = Vec::new();
    for host in [1, 1, 2, 2] {
        silent.push(connect(&listener, host).await.0);
    }
    let (mut client, greeting) = connect(&listener, 3).await;
    assert!(greeting.starts_with("220 "), "{greeting}");
    assert_eq!(silent[0].read_reply().await, "421 4.7.0 mx.test Too many connections, try again later\r\n");
    assert_eq!(client.transact("text").await, "250 2.0.0 Took 6 bytes\r\n");
}

#[tokio::test]
async fn a_closing_connection_gives_its_place_to_a_new_client() {
    let hour = Duration::from_secs(3600);
    let listener = listen(1, Deadlines { silent: hour, linger: hour, ..Deadlines::default() }).await;
    let (mut leaving, _) = connect(&listener, 1).await;
    assert!(leaving.say("QUIT\r\n").await.starts_with("221 "));
    // The client does not close its side, and the listener waits for that close.
    while !connect(&listener, 2).await.1.starts_with("220 ") {}
    assert!(leaving.is_closed().await);
}

#[tokio::test]
async fn a_client_has_time_to_begin() {
    let listener = listen(1, Deadlines { silent: Duration::from_secs(60), ..Deadlines::default() }).await;
    let (mut first, _) = connect(&listener, 1).await;
    assert!(connect(&listener, 2).await.1.starts_with("421 4.7.0 "));
    assert_eq!(first.transact("text").await, "250 2.0.0 Took 6 bytes\r\n");
}

#[tokio::test]
async fn a_transaction_keeps_its_place_as_long_as_it_does_not_stall() {
    for (stalled, answer) in [(Duration::from_secs(60), "421 4.7.0 "), (Duration::ZERO, "220 ")] {
        let listener = listen(1, Deadlines { silent: Duration::ZERO, stalled, ..Deadlines::default() }).await;
        let (mut sender, _) = connect(&listener, 1).await;
        for line in ["EHLO me\r\n", "MAIL FROM:<>\r\n", "RCPT TO:<a@b.example>\r\n", "DATA\r\n"] {
            sender.say(line).await;
        }
        let (_second, greeting) = connect(&listener, 2).await;
        assert!(greeting.starts_with(answer), "{greeting}");
        let end = if stalled.is_zero() { "421 4.7.0 " } else { "250 2.0.0 " };
        assert!(sender.say("text\r\n.\r\n").await.starts_with(end));
    }
}

#[tokio::test]
async fn a_decision_that_waits_long_gives_its_place_to_a_new_client() {
    for (deciding, answer) in [(Duration::from_secs(60), "421 4.7.0 "), (Duration::ZERO, "220 ")] {
        let listener = listen(1, Deadlines { deciding, ..Deadlines::default() }).await;
        let (mut slow, _) = connect(&listener, 1).await;
        for line in ["EHLO me\r\n", "MAIL FROM:<>\r\n", "RCPT TO:<a@b.example>\r\n", "DATA\r\n"] {
            slow.say(line).await;
        }
        slow.0.get_mut().write_all(b"slow\r\n.\r\n").await.unwrap();
        // The place is lost once the message has arrived.
        let mut greeting = connect(&listener, 2).await.1;
        while deciding.is_zero() && greeting.starts_with("421 ") {
            greeting = connect(&listener, 2).await.1;
        }
        assert!(greeting.starts_with(answer), "{greeting}");
        if deciding.is_zero() {
            assert_eq!(slow.read_reply().await, "421 4.7.0 mx.test Too many connections, try again later\r\n");
        }
    }
}
