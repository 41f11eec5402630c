//! The listener with submission settings: deadlines of login and message, memory, and decisions without a deadline.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::Notify;

use super::*;
use crate::smtp::server::{ServerKind, SubmissionRules};

/// A deadline that the tests let pass.
const MOMENT: Duration = Duration::from_millis(50);
const ENVELOPE: &str = "MAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\n";

/// Accepts the password `good`, and has memory for this many bytes.
struct Keeper {
    memory: usize,
    memory_use: Arc<MemoryUse>,
}

/// Number of times that memory was released, and the revocation of a message's memory.
#[derive(Default)]
struct MemoryUse {
    released: AtomicUsize,
    revoked: Notify,
}

impl MailService for Keeper {
    fn connected(&self, _: SocketAddr) -> Box<dyn MailHandler> {
        Box::new(Self { memory: self.memory, memory_use: Arc::clone(&self.memory_use) })
    }
}

impl MailHandler for Keeper {
    fn on_login(&mut self, question: LoginQuestion) -> BoxFuture<'_, Answer> {
        let is_good = question.password.expose() == b"good";
        let answer = if is_good { Answer::new(235, "2.7.0", "Logged in") } else { Answer::new(535, "5.7.8", "No") };
        Box::pin(std::future::ready(answer))
    }

    fn on_recipient<'a>(&'a mut self, _: &'a RecipientQuestion) -> BoxFuture<'a, Answer> {
        Box::pin(std::future::ready(Answer::new(250, "2.1.5", "OK")))
    }

    fn reserve(&mut self, bytes: usize) -> bool {
        let is_free = bytes <= self.memory;
        self.memory -= if is_free { bytes } else { 0 };
        is_free
    }

    fn release(&mut self) {
        self.memory_use.released.fetch_add(1, Ordering::Relaxed);
    }

    fn revoked(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.memory_use.revoked.notified())
    }

    fn on_message(&mut self, message: ReceivedMessage) -> BoxFuture<'_, Decision> {
        Box::pin(async move {
            // Longer than the deadline of a decision would be.
            tokio::time::sleep(MOMENT).await;
            match message.bytes.starts_with(b"doubt") {
                true => Decision::CloseWithoutAnswer,
                false => Decision::Answer(Answer::queued(&["msg_1"])),
            }
        })
    }
}

fn config(deadlines: Deadlines) -> ListenerConfig {
    let rules = SubmissionRules { login: LoginRule::InClear, total_max: 1 << 30 };
    ListenerConfig {
        session: ServerConfig {
            hostname: "mx.test".to_owned(),
            greeting: "mx.test ESMTP".to_owned(),
            size_max: 1_000_000,
            recipients_max: 10,
            errors_max: 20,
            refusals_max: None,
            starttls: false,
            kind: ServerKind::Submission(rules),
        },
        gate: ConnectionCap::new(1, 1),
        greeting_pause: Duration::ZERO,
        deadlines: Deadlines { decision: None, failed_login: MOMENT, ..deadlines },
        tls: ListenerTls::Off,
    }
}

async fn listen(config: ListenerConfig, memory: usize) -> (SmtpListener, Arc<MemoryUse>) {
    let memory_use = Arc::default();
    let service = Arc::new(Keeper { memory, memory_use: Arc::clone(&memory_use) });
    (SmtpListener::bind("127.0.0.1:0".parse().unwrap(), config, service).await.unwrap(), memory_use)
}

struct Client<S>(BufReader<S>);

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> Client<S> {
    async fn read_reply(&mut self) -> String {
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            if line.as_bytes().get(3) != Some(&b'-') {
                return line;
            }
        }
    }

    async fn say(&mut self, text: &str) -> String {
        self.0.write_all(text.as_bytes()).await.unwrap();
        self.read_reply().await
    }
}

/// A client after the greeting, and after a login if requested.
async fn client_of(listener: &SmtpListener, logs_in: bool) -> Client<TcpStream> {
    let mut client = Client(BufReader::new(TcpStream::connect(listener.local_addr()).await.unwrap()));
    assert!(client.read_reply().await.starts_with("220 "));
    client.say("EHLO me\r\n").await;
    if logs_in {
        assert!(client.say("AUTH PLAIN AG1lAGdvb2Q=\r\n").await.starts_with("235 "));
    }
    client
}

/// Brings the client into DATA.
async fn sending(client: &mut Client<TcpStream>) {
    assert!(client.say(ENVELOPE).await.starts_with("250 "));
    assert!(client.read_reply().await.starts_with("250 "));
    assert!(client.read_reply().await.starts_with("354 "));
}

#[tokio::test]
async fn a_client_that_does_not_log_in_is_disconnected_at_the_login_deadline() {
    let deadlines = Deadlines { login: Some(MOMENT), ..Deadlines::default() };
    let (listener, _) = listen(config(deadlines), 0).await;
    let mut idle = client_of(&listener, false).await;
    assert_eq!(idle.read_reply().await, "421 4.4.2 mx.test Waited too long\r\n");
    drop(idle);
    let (listener, _) = listen(config(Deadlines { login: Some(Duration::from_secs(30)), ..deadlines }), 0).await;
    let mut client = client_of(&listener, true).await;
    assert_eq!(client.say("NOOP\r\n").await, "250 2.0.0 OK\r\n");
}

#[tokio::test]
async fn a_failed_login_is_answered_after_a_pause() {
    let (listener, _) = listen(config(Deadlines::default()), 0).await;
    let mut client = client_of(&listener, false).await;
    let began = tokio::time::Instant::now();
    assert!(client.say("AUTH PLAIN AG1lAGJhZA==\r\n").await.starts_with("535 "));
    assert!(began.elapsed() >= MOMENT);
}

#[tokio::test]
async fn a_message_has_a_deadline_even_while_bytes_arrive() {
    let deadlines = Deadlines { message: Some(MOMENT), ..Deadlines::default() };
    let (listener, _) = listen(config(deadlines), 1_000_000).await;
    let mut client = client_of(&listener, true).await;
    sending(&mut client).await;
    assert_eq!(client.say("still busy\r\n").await, "421 4.4.2 mx.test Waited too long\r\n");
}

#[tokio::test]
async fn a_decision_without_a_deadline_is_awaited_and_memory_is_released_after_it() {
    let (listener, memory_use) = listen(config(Deadlines::default()), 1_000_000).await;
    let mut client = client_of(&listener, true).await;
    sending(&mut client).await;
    assert_eq!(client.say("text\r\n.\r\n").await, "250 2.0.0 Ok: queued as msg_1\r\n");
    assert_eq!(memory_use.released.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_unknown_outcome_closes_the_connection_without_an_answer() {
    let (listener, _) = listen(config(Deadlines::default()), 1_000_000).await;
    let mut client = client_of(&listener, true).await;
    sending(&mut client).await;
    assert_eq!(client.say("doubt\r\n.\r\n").await, "");
}

#[tokio::test]
async fn a_message_beyond_the_memory_limit_is_refused_and_the_session_continues() {
    let (listener, _) = listen(config(Deadlines::default()), 100).await;
    let mut client = client_of(&listener, true).await;
    client.say("MAIL FROM:<> SIZE=200\r\nRCPT TO:<c@d.example>\r\n").await;
    client.read_reply().await;
    assert!(client.say("DATA\r\n").await.starts_with("451 4.3.2 "), "there is no memory for the declared size");
    assert_eq!(client.say("RSET\r\n").await, "250 2.0.0 Flushed\r\n");
    sending(&mut client).await;
    assert!(client.say(&format!("{}\r\n.\r\n", "x".repeat(200))).await.starts_with("451 4.3.2 "));
    sending(&mut client).await;
}

#[tokio::test]
async fn a_message_whose_memory_is_revoked_is_refused_and_the_session_continues() {
    let (listener, memory_use) = listen(config(Deadlines::default()), 1_000).await;
    let mut client = client_of(&listener, true).await;
    sending(&mut client).await;
    client.0.write_all(b"begun\r\n").await.unwrap();
    memory_use.revoked.notify_one();
    while memory_use.released.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    assert!(client.say("rest\r\n.\r\n").await.starts_with("451 4.3.2 "));
    sending(&mut client).await;
    assert_eq!(client.say("text\r\n.\r\n").await, "250 2.0.0 Ok: queued as msg_1\r\n");
}

#[tokio::test]
async fn implicit_tls_greets_inside_tls_and_closes_excess_connections_silently() {
    let (server, trusting) = super::tests::certified();
    let settings = Arc::new(TlsSettings::new(server));
    let config = ListenerConfig { tls: ListenerTls::Implicit(settings), ..config(Deadlines::default()) };
    let (listener, _) = listen(config, 0).await;
    let trusting = Arc::new(trusting);
    let raw = TcpStream::connect(listener.local_addr()).await.unwrap();
    let stream = tokio_rustls::TlsConnector::from(trusting).connect("mx.test".try_into().unwrap(), raw).await.unwrap();
    let mut client = Client(BufReader::new(stream));
    assert!(client.read_reply().await.starts_with("220 "));
    assert!(client.say("EHLO me\r\n").await.ends_with("AUTH PLAIN LOGIN\r\n"));
    let second = TcpStream::connect(listener.local_addr()).await.unwrap();
    assert_eq!(Client(BufReader::new(second)).read_reply().await, "");
}
