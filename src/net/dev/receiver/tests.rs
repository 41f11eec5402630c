//! Every outcome of the simulator over a real loopback connection.

use std::time::Instant;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::*;
use crate::base::time::Timestamp;
use crate::engine::ports::Clock;

struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000)
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

struct World {
    capture: Arc<Capture>,
    receiver: DevReceiver,
    _data_dir: TempDir,
}

async fn world() -> World {
    let data_dir = tempfile::tempdir().unwrap();
    let capture = Arc::new(Capture::open(data_dir.path(), Arc::new(Stopped)).unwrap());
    let reporter = Arc::new(Reporter::new(Arc::default()).unwrap());
    let receiver = DevReceiver::start(Arc::clone(&capture), reporter).await.unwrap();
    World { capture, receiver, _data_dir: data_dir }
}

impl World {
    async fn connect(&self, local: &str) -> BufReader<TcpStream> {
        let address = self.receiver.routes(Scope::SimulatorOnly).route(local, "simulator.test").unwrap();
        BufReader::new(TcpStream::connect(address).await.unwrap())
    }

    /// Sends one message as far as the receiver accepts it, and returns the last answer.
    async fn send(&self, return_path: &str, local: &str) -> String {
        let mut stream = self.connect(local).await;
        let mail = format!("MAIL FROM:<{return_path}>\r\n");
        let rcpt = format!("RCPT TO:<{local}@simulator.test>\r\n");
        let mut answer = read_reply(&mut stream).await;
        for line in ["EHLO me\r\n", &mail, &rcpt, "DATA\r\n", "Subject: hello\r\n\r\nyou\r\n.\r\n"] {
            stream.write_all(line.as_bytes()).await.unwrap();
            answer = read_reply(&mut stream).await;
            if answer.starts_with(['4', '5']) {
                break;
            }
        }
        answer
    }
}

/// Reads one answer with all its lines.
async fn read_reply(stream: &mut BufReader<TcpStream>) -> String {
    let mut answer = String::new();
    loop {
        let start = answer.len();
        let count = stream.read_line(&mut answer).await.unwrap();
        if count == 0 || answer.as_bytes().get(start + 3) != Some(&b'-') {
            return answer;
        }
    }
}

#[tokio::test]
async fn delivered_complained_and_late_bounce_are_accepted_and_captured() {
    let world = world().await;
    for local in ["delivered", "complained+1", "late-bounce+a+b", "DELIVERED+x"] {
        let answer = world.send(&format!("{local}@bounces.example"), local).await;
        assert!(answer.starts_with("250 2.0.0 Ok: captured as msg_"), "{local}: {answer}");
    }
    let captured = world.capture.list();
    let mut recipients: Vec<_> = captured.iter().map(|mail| mail.rcpt_to.as_str()).collect();
    recipients.sort_unstable();
    let expected =
        ["DELIVERED+x", "complained+1", "delivered", "late-bounce+a+b"].map(|local| format!("{local}@simulator.test"));
    assert_eq!(recipients, expected);
    assert!(captured.iter().all(|mail| mail.subject.as_deref() == Some("hello")));
    assert!(captured.iter().any(|mail| mail.mail_from == "complained+1@bounces.example"));
    assert_eq!(world.capture.get(captured[0].message_id).unwrap().unwrap().1, b"Subject: hello\r\n\r\nyou\r\n");
}

#[tokio::test]
async fn bounced_blocked_full_and_unknown_are_refused_with_their_codes() {
    let world = world().await;
    let blocked = "550-5.7.1 Our system has detected that this message is likely unsolicited mail.\r\n\
        550-5.7.1 To reduce the amount of spam sent to simulator.test, this message has been blocked.\r\n\
        550 5.7.1 See https://simulator.test/blocked for more information.\r\n";
    let table = [
        ("bounced+1", "550 5.1.1 <bounced+1@simulator.test>: Recipient address rejected: User unknown"),
        ("blocked", blocked),
        ("full", "452 4.2.2 <full@simulator.test> mailbox full"),
        (
            "other",
            "550 5.1.1 <other@simulator.test>: unknown simulator address; known are delivered, bounced, blocked, \
             deferred, full, timeout, complained, late-bounce\r\n",
        ),
    ];
    for (local, expected) in table {
        let answer = world.send("a@bounces.example", local).await;
        assert!(answer.starts_with(expected), "{local}: {answer}");
    }
    assert!(world.capture.list().is_empty());
}

#[tokio::test]
async fn deferred_refuses_each_message_twice_and_then_accepts_it() {
    let world = world().await;
    for return_path in ["one@bounces.example", "two@bounces.example"] {
        let mut codes = Vec::new();
        for _ in 0..3 {
            codes.push(world.send(return_path, "deferred+x").await[..9].to_owned());
        }
        assert_eq!(codes, ["451 4.7.1", "451 4.7.1", "250 2.0.0"]);
    }
}

#[tokio::test]
async fn timeout_sends_only_a_greeting_and_hangs_up_after_two_seconds() {
    let world = world().await;
    let before = Instant::now();
    let mut stream = world.connect("timeout+x").await;
    assert_eq!(read_reply(&mut stream).await, "220 mx.simulator.test ESMTP ready\r\n");
    stream.write_all(b"EHLO me\r\n").await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
    assert!((1900..4000).contains(&before.elapsed().as_millis()), "{:?}", before.elapsed());
}

#[tokio::test]
async fn many_refusals_do_not_end_a_connection() {
    let world = world().await;
    let mut stream = world.connect("bounced").await;
    read_reply(&mut stream).await;
    stream.write_all(b"EHLO me\r\n").await.unwrap();
    read_reply(&mut stream).await;
    for _ in 0..50 {
        stream.write_all(b"MAIL FROM:<a@b.example>\r\nRCPT TO:<bounced@simulator.test>\r\nRSET\r\n").await.unwrap();
        let codes = [read_reply(&mut stream).await, read_reply(&mut stream).await, read_reply(&mut stream).await];
        assert_eq!(codes.map(|answer| answer[..3].to_owned()), ["250", "550", "250"]);
    }
}

#[tokio::test]
async fn shutdown_closes_the_port() {
    let World { receiver, .. } = world().await;
    let address = receiver.routes(Scope::Everything).route("anyone", "example.com").unwrap();
    receiver.shut_down(Duration::from_secs(5)).await;
    assert!(TcpStream::connect(address).await.is_err());
}
