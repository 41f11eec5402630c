//! A kept SMTP session over TLS: one login, then pipelined transactions one after the other.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::body::SENDING_DOMAIN;
use crate::client::{ANSWER_DEADLINE, Load};
use crate::tls::Tls;
use crate::{BenchError, Outcome};

/// A session that has logged in.
pub(crate) struct SmtpSession {
    stream: BufReader<TlsStream<TcpStream>>,
}

impl SmtpSession {
    /// Connects with TLS from the start, and logs in with `key`.
    pub(crate) async fn open(address: SocketAddr, tls: &Tls, key: &str) -> Outcome<Self> {
        let mut session = Self { stream: BufReader::new(tls.connect(address).await?) };
        session.expect("220").await?;
        session.ask("EHLO bench\r\n", "250").await?;
        let login = STANDARD.encode(format!("\0postrider\0{key}"));
        session.ask(&format!("AUTH PLAIN {login}\r\n"), "235").await?;
        Ok(session)
    }

    /// Sends one message to the recipients of `numbers`.
    pub(crate) async fn send(&mut self, load: &Load, numbers: std::ops::Range<usize>) -> Outcome<()> {
        let mut envelope = format!("MAIL FROM:<orders@{SENDING_DOMAIN}>\r\n");
        for number in numbers.clone() {
            envelope.push_str(&format!("RCPT TO:<{}>\r\n", load.recipients.of(number)));
        }
        envelope.push_str("DATA\r\n");
        let mut message = Vec::new();
        load.bodies.write_mime(numbers.start, &load.recipients.of(numbers.start), &mut message);
        let exchange = async {
            self.stream.write_all(envelope.as_bytes()).await?;
            self.stream.flush().await?;
            for _ in 0..=numbers.len() {
                self.expect("250").await?;
            }
            self.expect("354").await?;
            self.stream.write_all(&message).await?;
            self.stream.flush().await?;
            self.expect("250").await
        };
        tokio::time::timeout(ANSWER_DEADLINE, exchange).await?
    }

    async fn ask(&mut self, command: &str, code: &str) -> Outcome<()> {
        self.stream.write_all(command.as_bytes()).await?;
        self.stream.flush().await?;
        self.expect(code).await
    }

    /// Reads one answer, which must have this code.
    async fn expect(&mut self, code: &str) -> Outcome<()> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.stream.read_line(&mut line).await? == 0 {
                return Err("the server closed a kept session".into());
            }
            if line.as_bytes().get(3) != Some(&b'-') {
                break;
            }
        }
        if line.starts_with(code) { Ok(()) } else { Err(BenchError::from(format!("{code} was expected: {line}"))) }
    }
}
