//! One message by SMTP without a socket, to the submission service or to the receiver of bounces: a client that waits
//! for each answer, the real server state machine, and the real handler behind it.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::engine::receive::Receiver;
use crate::engine::smtp_submission::Decision;
use crate::net::bounce_receiver::{BounceService, session_config};
use crate::net::smtp_listener::{ListenerTls, MailHandler, MailService as _};
use crate::net::submission::{Submission, SubmissionService};
use crate::smtp::server::{Answer, ServerAction, ServerSession};

/// Submits a message for `recipients`. Returns the last answer: its code, 0 if the connection was closed, and its text.
pub(super) async fn submit(
    submission: &Arc<Submission>,
    key: &str,
    from: &str,
    recipients: &[String],
    message: &str,
) -> Option<(u16, String)> {
    let service = SubmissionService { submission: Arc::clone(submission), dev: None };
    let mut handler = service.connected(peer());
    let session = ServerSession::inside_tls(submission.listener_config(ListenerTls::Off).session);
    handler.on_tls("TLSv1.3");
    let login = STANDARD.encode(format!("\0postrider\0{key}"));
    let mut lines = vec![format!("AUTH PLAIN {login}"), format!("MAIL FROM:<{from}>")];
    lines.extend(recipients.iter().map(|recipient| format!("RCPT TO:<{recipient}>")));
    converse(session, handler, Dialogue::new(lines, message)).await
}

/// Sends a bounce to `return_path`. Returns the last answer as [`submit`].
pub(super) async fn bounce(receiver: &Arc<Receiver>, return_path: &str, message: &str) -> Option<(u16, String)> {
    let handler = BounceService(Arc::clone(receiver)).connected(peer());
    let session = ServerSession::new(session_config("mail.example.com"));
    let lines = vec!["MAIL FROM:<>".to_owned(), format!("RCPT TO:<{return_path}>")];
    converse(session, handler, Dialogue::new(lines, message)).await
}

fn peer() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7)), 40_000)
}

async fn converse(
    mut session: ServerSession,
    mut handler: Box<dyn MailHandler>,
    mut dialogue: Dialogue,
) -> Option<(u16, String)> {
    loop {
        match session.next_action() {
            ServerAction::Write(bytes) => dialogue.receive(&bytes),
            ServerAction::Read(_) => match dialogue.next() {
                Some(line) => session.receive(line.as_bytes()),
                None => return dialogue.end(),
            },
            ServerAction::Close => return dialogue.end(),
            ServerAction::StartTls => unreachable!("the client asks for no TLS"),
            action => answer(&mut session, &mut *handler, action).await,
        }
    }
}

/// Answers a request of the session.
async fn answer(session: &mut ServerSession, handler: &mut dyn MailHandler, action: ServerAction) {
    match action {
        ServerAction::CheckLogin(question) => session.answer_login(&handler.on_login(question).await),
        ServerAction::AskSender(question) => session.answer_sender(&handler.on_sender(question).await),
        ServerAction::AskRecipient(question) => session.answer_recipient(&handler.on_recipient(&question).await),
        ServerAction::AskData(size) => {
            let refusal = (!handler.reserve(size)).then(|| Answer::new(451, "4.3.2", "no memory"));
            session.answer_data(refusal.as_ref());
        }
        ServerAction::TakeMessage(message) => {
            match handler.on_message(message).await {
                Decision::Answer(answer) => session.answer_message(&answer),
                Decision::CloseWithoutAnswer => session.abandon(),
            }
            handler.release();
        }
        ServerAction::Write(_) | ServerAction::Read(_) | ServerAction::StartTls | ServerAction::Close => {
            unreachable!("it is not a question")
        }
    }
}

/// The client's side.
struct Dialogue {
    lines: VecDeque<String>,
    reply: String,
    /// Code and text of the last complete answer.
    last: (u16, String),
    /// Whether the message was sent.
    is_sent: bool,
}

impl Dialogue {
    fn new(lines: Vec<String>, message: &str) -> Self {
        let mut all = VecDeque::from(lines);
        all.push_front("EHLO client.test".to_owned());
        all.push_back("DATA".to_owned());
        all.push_back(format!("{message}."));
        Self { lines: all, reply: String::new(), last: (0, String::new()), is_sent: false }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.reply.push_str(&String::from_utf8_lossy(bytes));
        let last_line = self.reply.lines().last().unwrap_or_default();
        if self.reply.ends_with("\r\n") && last_line.as_bytes().get(3) != Some(&b'-') {
            let code = last_line.get(..3).and_then(|code| code.parse().ok()).unwrap_or(0);
            self.last = (code, std::mem::take(&mut self.reply));
        }
    }

    /// Returns the next line to send; `None` at the end, or if the last answer was a refusal.
    fn next(&mut self) -> Option<String> {
        if self.last.0 >= 400 {
            return None;
        }
        let line = self.lines.pop_front()?;
        self.is_sent = self.lines.is_empty();
        self.last = (0, String::new());
        Some(format!("{line}\r\n"))
    }

    fn end(self) -> Option<(u16, String)> {
        // A session that ended before its message sent nothing.
        let code = if self.is_sent || self.last.0 >= 400 { self.last.0 } else { 450 };
        Some((code, self.last.1))
    }
}
