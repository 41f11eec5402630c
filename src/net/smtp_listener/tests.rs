//! The listener over real loopback sockets.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::*;
use crate::smtp::server::ServerKind;

/// A deadline that the tests let pass.
const MOMENT: Duration = Duration::from_millis(50);

/// Accepts everything, but never decides about `slow@`, and messages that begin with `slow`.
struct Taker;

impl MailService for Taker {
    fn connected(&self, _: SocketAddr) -> Box<dyn MailHandler> {
        Box::new(Self)
    }
}

impl MailHandler for Taker {
    fn on_recipient<'a>(&'a mut self, question: &'a RecipientQuestion) -> BoxFuture<'a, Answer> {
        Box::pin(async {
            if question.recipient.local() == "slow" {
                std::future::pending::<()>().await;
            }
            Answer::new(250, "2.1.5", "OK")
        })
    }

    fn on_message(&mut self, message: ReceivedMessage) -> BoxFuture<'_, Decision> {
        Box::pin(async move {
            if message.bytes.starts_with(b"slow") {
                std::future::pending::<()>().await;
            }
            Decision::Answer(Answer::new(250, "2.0.0", format!("Took {} bytes", message.bytes.len())))
        })
    }
}

pub(super) fn config() -> ListenerConfig {
    ListenerConfig {
        session: ServerConfig {
            hostname: "mx.test".to_owned(),
            greeting: "mx.test ESMTP".to_owned(),
            size_max: 1_000_000,
            recipients_max: 10,
            errors_max: 20,
            refusals_max: None,
            starttls: false,
            kind: ServerKind::Inbound,
        },
        gate: ConnectionCap::new(10, 10),
        greeting_pause: Duration::ZERO,
        deadlines: Deadlines::default(),
        tls: ListenerTls::Off,
    }
}

pub(super) async fn listen(config: ListenerConfig) -> SmtpListener {
    SmtpListener::bind("127.0.0.1:0".parse().unwrap(), config, Arc::new(Taker)).await.unwrap()
}

/// A client that writes lines and reads the last line of each answer.
pub(super) struct Client<S>(pub(super) BufReader<S>);

async fn client_of(listener: &SmtpListener) -> Client<TcpStream> {
    Client(BufReader::new(TcpStream::connect(listener.local_addr()).await.unwrap()))
}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> Client<S> {
    pub(super) async fn read_reply(&mut self) -> String {
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            if line.as_bytes().get(3) != Some(&b'-') {
                return line;
            }
        }
    }

    pub(super) async fn say(&mut self, text: &str) -> String {
        self.0.write_all(text.as_bytes()).await.unwrap();
        self.read_reply().await
    }

    pub(super) async fn transact(&mut self, body: &str) -> String {
        assert!(self.say("EHLO me\r\n").await.starts_with("250 "));
        assert!(self.say("MAIL FROM:<>\r\n").await.starts_with("250 "));
        assert!(self.say("RCPT TO:<a@b.example>\r\n").await.starts_with("250 "));
        assert!(self.say("DATA\r\n").await.starts_with("354 "));
        self.say(&format!("{body}\r\n.\r\n")).await
    }

    pub(super) async fn is_closed(&mut self) -> bool {
        self.0.read_to_end(&mut Vec::new()).await.is_ok_and(|count| count == 0)
    }
}

#[tokio::test]
async fn a_message_is_received_over_a_socket_and_quit_closes_it() {
    let listener = listen(config()).await;
    let mut client = client_of(&listener).await;
    assert_eq!(client.read_reply().await, "220 mx.test ESMTP\r\n");
    assert_eq!(client.transact(&"x".repeat(100_000)).await, "250 2.0.0 Took 100002 bytes\r\n");
    assert_eq!(client.say("QUIT\r\n").await, "221 2.0.0 Bye\r\n");
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn an_excess_connection_gets_421_and_a_closed_one_frees_its_permit() {
    let listener = listen(ListenerConfig { gate: ConnectionCap::new(10, 1), ..config() }).await;
    let mut first = client_of(&listener).await;
    first.read_reply().await;
    let mut second = client_of(&listener).await;
    assert_eq!(second.read_reply().await, "421 4.7.0 mx.test Too many connections, try again later\r\n");
    first.say("QUIT\r\n").await;
    drop(first);
    // The permit is released a moment after the close. Until then every try is refused.
    while !client_of(&listener).await.read_reply().await.starts_with("220 ") {}
}

#[tokio::test]
async fn listeners_that_share_a_limit_share_its_count() {
    let config = ListenerConfig { gate: ConnectionCap::new(10, 1), ..config() };
    let (one, two) = (listen(config.clone()).await, listen(config).await);
    let mut first = client_of(&one).await;
    assert!(first.read_reply().await.starts_with("220 "));
    assert!(client_of(&two).await.read_reply().await.starts_with("421 4.7.0 "));
}

#[tokio::test]
async fn a_silent_client_is_disconnected_at_the_command_deadline() {
    let deadlines = Deadlines { command: MOMENT, ..Deadlines::default() };
    let listener = listen(ListenerConfig { deadlines, ..config() }).await;
    let mut client = client_of(&listener).await;
    client.read_reply().await;
    assert_eq!(client.read_reply().await, "421 4.4.2 mx.test Waited too long\r\n");
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_busy_client_is_disconnected_at_the_session_deadline() {
    let deadlines = Deadlines { session: MOMENT, ..Deadlines::default() };
    let listener = listen(ListenerConfig { deadlines, ..config() }).await;
    let mut client = client_of(&listener).await;
    let mut reply = client.read_reply().await;
    while !reply.starts_with("421 ") {
        reply = client.say("NOOP\r\n").await;
    }
    assert_eq!(reply, "421 4.4.2 mx.test Waited too long\r\n");
}

#[tokio::test]
async fn a_late_decision_is_answered_with_451() {
    let deadlines = Deadlines { decision: Some(MOMENT), ..Deadlines::default() };
    let listener = listen(ListenerConfig { deadlines, ..config() }).await;
    let mut client = client_of(&listener).await;
    client.read_reply().await;
    client.say("EHLO me\r\n").await;
    client.say("MAIL FROM:<>\r\n").await;
    assert_eq!(client.say("RCPT TO:<slow@b.example>\r\n").await, "451 4.3.0 Try again later\r\n");
}

#[tokio::test]
async fn an_early_talker_is_refused() {
    let listener = listen(ListenerConfig { greeting_pause: Duration::from_secs(30), ..config() }).await;
    let mut client = client_of(&listener).await;
    assert_eq!(client.say("EHLO me\r\n").await, "554 mx.test You spoke before the greeting\r\n");
    assert!(client.is_closed().await);

    let quick = listen(ListenerConfig { greeting_pause: MOMENT, ..config() }).await;
    assert_eq!(client_of(&quick).await.read_reply().await, "220 mx.test ESMTP\r\n");
}

#[tokio::test]
async fn shutdown_sends_421_to_idle_clients_and_lets_a_message_finish() {
    let listener = listen(config()).await;
    let address = listener.local_addr();
    let (mut idle, mut busy) = (client_of(&listener).await, client_of(&listener).await);
    idle.read_reply().await;
    busy.read_reply().await;
    for line in ["EHLO me\r\n", "MAIL FROM:<>\r\n", "RCPT TO:<a@b.example>\r\n", "DATA\r\n"] {
        busy.say(line).await;
    }
    let down = tokio::spawn(listener.shut_down(Duration::from_secs(30)));
    assert_eq!(idle.read_reply().await, "421 4.3.2 mx.test Shutting down\r\n");
    drop(idle);
    assert!(busy.say("text\r\n.\r\n").await.starts_with("250 "));
    assert_eq!(busy.read_reply().await, "421 4.3.2 mx.test Shutting down\r\n");
    drop(busy);
    down.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

/// Returns TLS for mx.test, and a client that trusts it.
pub(super) fn certified() -> (rustls::ServerConfig, rustls::ClientConfig) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let made = rcgen::generate_simple_self_signed(["mx.test".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let trusting = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (server, trusting)
}

#[tokio::test]
async fn starttls_secures_the_session_if_a_certificate_is_configured() {
    let (server, trusting) = certified();
    let listener =
        listen(ListenerConfig { tls: ListenerTls::StartTls(Arc::new(TlsSettings::new(server))), ..config() }).await;
    let mut client = client_of(&listener).await;
    client.read_reply().await;
    assert_eq!(client.say("STARTTLS\r\n").await, "220 2.0.0 Ready for TLS\r\n");
    let name = "mx.test".try_into().unwrap();
    let stream =
        tokio_rustls::TlsConnector::from(Arc::new(trusting)).connect(name, client.0.into_inner()).await.unwrap();
    let mut client = Client(BufReader::new(stream));
    assert_eq!(client.transact("secret").await, "250 2.0.0 Took 8 bytes\r\n");
    assert_eq!(client.say("QUIT\r\n").await, "221 2.0.0 Bye\r\n");
}

/// Notes how many recipients it was asked about while another task never ran.
struct TurnWatch {
    /// Turns of the other task.
    others: Arc<AtomicUsize>,
    seen: usize,
    asked: usize,
    longest: Arc<AtomicUsize>,
}

impl MailService for TurnWatch {
    fn connected(&self, _: SocketAddr) -> Box<dyn MailHandler> {
        let (others, longest) = (Arc::clone(&self.others), Arc::clone(&self.longest));
        Box::new(Self { others, seen: 0, asked: 0, longest })
    }
}

impl MailHandler for TurnWatch {
    fn on_recipient<'a>(&'a mut self, _: &'a RecipientQuestion) -> BoxFuture<'a, Answer> {
        let others = self.others.load(Ordering::Relaxed);
        self.asked = if others == self.seen { self.asked + 1 } else { 1 };
        self.seen = others;
        self.longest.fetch_max(self.asked, Ordering::Relaxed);
        Box::pin(std::future::ready(Answer::new(550, "5.1.1", "No")))
    }

    fn on_message(&mut self, _: ReceivedMessage) -> BoxFuture<'_, Decision> {
        Box::pin(std::future::ready(Decision::CloseWithoutAnswer))
    }
}

#[tokio::test]
async fn pipelined_commands_leave_the_thread_to_others_in_between() {
    let (others, longest) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let watch = TurnWatch { others: Arc::clone(&others), seen: 0, asked: 0, longest: Arc::clone(&longest) };
    let listener = SmtpListener::bind("127.0.0.1:0".parse().unwrap(), config(), Arc::new(watch)).await.unwrap();
    let other = tokio::spawn(async move {
        loop {
            others.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let mut client = client_of(&listener).await;
    client.read_reply().await;
    client.say("EHLO me\r\n").await;
    client.say("MAIL FROM:<>\r\n").await;
    let many = "RCPT TO:<a@b.c>\r\n".repeat(2_000) + "QUIT\r\n";
    let (mut from, mut to) = tokio::io::split(client.0);
    let all = async { to.write_all(many.as_bytes()).await.unwrap() };
    let mut answers = String::new();
    let (_, read) = tokio::join!(all, from.read_to_string(&mut answers));
    read.unwrap();
    other.abort();
    assert_eq!(answers.matches("550 5.1.1 ").count(), 2_000);
    let longest = longest.load(Ordering::Relaxed);
    assert!(longest <= 500, "{longest} commands in one turn");
}
