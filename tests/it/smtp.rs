//! An SMTP client for tests, which sends line by line.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::support::Dev;

/// A session without TLS.
pub(crate) struct Session(BufReader<TcpStream>);

impl Session {
    /// Connects and sends EHLO.
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let mut session = Self(BufReader::new(TcpStream::connect(address).await.unwrap()));
        assert!(session.read_reply().await.starts_with("220 "));
        assert!(session.say("EHLO mx.example.org\r\n").await.starts_with("250 "));
        session
    }

    /// Connects to the submission listener of `dev`.
    pub(crate) async fn submission(dev: &Dev) -> Self {
        let url = dev.announcement["smtp_url"].as_str().unwrap();
        Self::open(url.strip_prefix("smtp://").unwrap().parse().unwrap()).await
    }

    /// Returns the last line of the next reply; empty if the server has closed the connection.
    pub(crate) async fn read_reply(&mut self) -> String {
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            if line.as_bytes().get(3) != Some(&b'-') {
                return line;
            }
        }
    }

    pub(crate) async fn say(&mut self, text: &str) -> String {
        self.write(text).await;
        self.read_reply().await
    }

    pub(crate) async fn write(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Returns the reply to RCPT, in a separate transaction with the null return path.
    pub(crate) async fn rcpt(&mut self, to: &str) -> String {
        assert!(self.say("RSET\r\n").await.starts_with("250 "));
        assert!(self.say("MAIL FROM:<>\r\n").await.starts_with("250 "));
        self.say(&format!("RCPT TO:<{to}>\r\n")).await
    }

    /// Sends `message`, and returns the final reply.
    pub(crate) async fn mail(&mut self, to: &str, message: &str) -> String {
        let answer = self.rcpt(to).await;
        if !answer.starts_with("250 ") {
            return answer;
        }
        assert!(self.say("DATA\r\n").await.starts_with("354 "));
        let message = message.replace("\r\n", "\n").replace('\n', "\r\n");
        self.say(&format!("{message}\r\n.\r\n")).await
    }

    pub(crate) async fn is_closed(&mut self) -> bool {
        self.0.read_to_end(&mut Vec::new()).await.is_ok_and(|bytes| bytes == 0)
    }
}

/// Returns a delivery status notification about `recipient`, in Postfix's form.
pub(crate) fn dsn(recipient: &str, action: &str, status: &str, diagnostic: &str) -> String {
    format!(
        "From: MAILER-DAEMON@mx.example.org\nTo: you\nSubject: Undelivered Mail Returned to Sender\nMIME-Version: 1.0\n\
         Content-Type: multipart/report; report-type=delivery-status; boundary=\"b\"\n\n\
         --b\nContent-Type: text/plain\n\nI'm sorry to have to inform you.\n\n\
         --b\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; mx.example.org\n\n\
         Final-Recipient: rfc822; {recipient}\nAction: {action}\nStatus: {status}\nRemote-MTA: dns; store.example.org\n\
         Diagnostic-Code: smtp; {diagnostic}\n\n\
         --b\nContent-Type: text/rfc822-headers\n\nSubject: Hello\n\n--b--\n"
    )
}

/// Returns a complaint of this type that includes `headers`.
pub(crate) fn arf(kind: &str, headers: &str) -> String {
    format!(
        "From: <fbl@example.org>\nTo: you\nSubject: complaint\nMIME-Version: 1.0\n\
         Content-Type: multipart/report; report-type=feedback-report; boundary=\"b\"\n\n\
         --b\nContent-Type: text/plain\n\nThis is an abuse report.\n\n\
         --b\nContent-Type: message/feedback-report\n\nFeedback-Type: {kind}\nUser-Agent: Loop/2.1\nVersion: 1\n\n\
         --b\nContent-Type: text/rfc822-headers\n\n{headers}\n--b--\n"
    )
}
