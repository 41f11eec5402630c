//! The receiving side of SMTP (RFC 5321) without a socket: bytes in, bytes and questions out.
//!
//! `net::smtp_listener` drives it: it performs the actions of [`ServerSession::next_action`], passes received bytes in,
//! and returns the caller's answers. The session decides nothing about mail: the caller decides whether a recipient or
//! a message is accepted, and only then does the session answer 250 to a message. It holds at most one message and one
//! line for any client.
//!
//! Two kinds of server share it ([`ServerKind`]): receivers of mail for their own mailboxes, and submission, where
//! clients log in. The bytes of AUTH are wiped and never appear in a [`RefusedCommand`].

mod action;
mod answer;
mod answering;
mod buffer;
mod command;
mod conduct;
mod data;
mod lines;
mod login;
mod path;
mod sasl;
#[cfg(test)]
mod submission_tests;
mod submitted;
#[cfg(test)]
mod tests;
mod transaction;

pub use action::{
    AwaitedInput, LoginQuestion, LoginRule, ReceivedMessage, RecipientQuestion, RefusedCommand, SenderQuestion,
    ServerAction, ServerConfig, ServerKind, SubmissionRules, SubmissionStage,
};
pub use answer::Answer;
pub use path::Path;

use crate::base::secret::Secret;
use answering::Step;
use command::{Command, Sender};
use conduct::SessionCounts;
use data::DataReader;
use lines::LineKind;
use sasl::Exchange;
use transaction::Transaction;

/// Maximum length of a command line in bytes, including CR LF. RFC 5321 4.5.3.1.4 asks for 512 and the extensions add
/// to it; internationalised paths are longer still.
pub const COMMAND_LINE_MAX: usize = 2048;
/// Number of bytes of a command line without an end after which the session ends.
pub const ENDLESS_LINE_MAX: usize = 64 * 1024;

/// State of the session.
#[derive(Debug)]
enum Stage {
    /// The greeting has not been sent.
    Fresh,
    /// Between commands.
    Command,
    /// Discarding the rest of an overlong line, of which this many bytes have arrived.
    OverlongLine(usize, LineKind),
    /// Discarding the rest of a line refused for a bare LF, of which this many bytes have arrived.
    RefusedLine(usize),
    /// Waiting for the next line of AUTH.
    Exchange(Exchange),
    /// The caller is asked about this password next.
    LoginReady(Secret),
    /// Waiting for the caller's answer about a password.
    CheckingLogin,
    /// Waiting for the caller's answer about this sender.
    SenderAsked(Sender),
    /// Waiting for the caller's answer about this recipient.
    RecipientAsked(Path),
    /// Waiting for the caller to reserve memory for a message.
    DataAsked,
    /// Inside a message.
    Data(DataReader),
    /// Waiting for the caller's answer about the message.
    MessageAsked,
    /// Waiting for the caller's TLS handshake.
    TlsAsked,
    /// Ending: no further input is read.
    Closing,
}

/// One client's session.
#[derive(Debug)]
pub struct ServerSession {
    config: ServerConfig,
    stage: Stage,
    inbox: Vec<u8>,
    out: Vec<u8>,
    client: Option<String>,
    transaction: Option<Transaction>,
    errors: u32,
    refusals: u32,
    secured: bool,
    logged_in: bool,
    conduct: SessionCounts,
    step: Option<Step>,
    refused: Vec<RefusedCommand>,
}

impl ServerSession {
    /// Creates a session at its start. The first [`next_action`](Self::next_action) greets.
    pub fn new(config: ServerConfig) -> Self {
        Self {
            config,
            stage: Stage::Fresh,
            inbox: Vec::new(),
            out: Vec::new(),
            client: None,
            transaction: None,
            errors: 0,
            refusals: 0,
            secured: false,
            logged_in: false,
            conduct: SessionCounts::default(),
            step: None,
            refused: Vec::new(),
        }
    }

    /// Creates a session whose connection uses TLS from its first byte.
    pub fn inside_tls(config: ServerConfig) -> Self {
        Self { secured: true, ..Self::new(config) }
    }

    /// Returns whether mail may be submitted: the client has logged in, or does not have to.
    pub const fn is_logged_in(&self) -> bool {
        match &self.config.kind {
            ServerKind::Inbound => true,
            ServerKind::Submission(rules) => self.logged_in || matches!(rules.login, LoginRule::Optional),
        }
    }

    /// Returns the number of accepted recipients of the client's transaction.
    pub fn recipients(&self) -> usize {
        self.transaction.as_ref().map_or(0, Transaction::recipients)
    }

    /// Returns whether a message is being received.
    pub const fn is_receiving(&self) -> bool {
        matches!(self.stage, Stage::Data(_))
    }

    /// Takes the 4xx and 5xx answers of a submission given since the last call.
    pub fn take_refused(&mut self) -> Vec<RefusedCommand> {
        std::mem::take(&mut self.refused)
    }

    /// Adds bytes from the client. Bytes before the first [`next_action`](Self::next_action) make it an early talker.
    pub fn receive(&mut self, bytes: &[u8]) {
        match self.stage {
            Stage::Closing => {}
            Stage::Fresh
            | Stage::Command
            | Stage::OverlongLine(..)
            | Stage::RefusedLine(_)
            | Stage::Exchange(_)
            | Stage::LoginReady(_)
            | Stage::CheckingLogin
            | Stage::SenderAsked(_)
            | Stage::DataAsked
            | Stage::RecipientAsked(_)
            | Stage::Data(_)
            | Stage::MessageAsked
            | Stage::TlsAsked => self.inbox.extend_from_slice(bytes),
        }
    }

    /// Processes the received bytes until there is an action for the driver. Answers to pipelined commands are written
    /// together (RFC 2920 3.2).
    pub fn next_action(&mut self) -> ServerAction {
        loop {
            let action = match &mut self.stage {
                Stage::Fresh => {
                    self.greet();
                    continue;
                }
                Stage::Command | Stage::Exchange(_) => {
                    if self.take_line() {
                        continue;
                    }
                    ServerAction::Read(AwaitedInput::Command)
                }
                Stage::OverlongLine(length, kind) => {
                    let (length, kind) = (*length, *kind);
                    if self.skip_line(length, kind) {
                        continue;
                    }
                    ServerAction::Read(AwaitedInput::Command)
                }
                Stage::RefusedLine(length) => {
                    let length = *length;
                    if self.skip_refused_line(length) {
                        continue;
                    }
                    ServerAction::Read(AwaitedInput::Command)
                }
                Stage::Data(_) => match self.take_data() {
                    Some(message) => return ServerAction::TakeMessage(message),
                    None if matches!(self.stage, Stage::Data(_)) => ServerAction::Read(AwaitedInput::Data),
                    None => continue,
                },
                Stage::TlsAsked => ServerAction::StartTls,
                Stage::Closing => ServerAction::Close,
                Stage::LoginReady(_)
                | Stage::CheckingLogin
                | Stage::SenderAsked(_)
                | Stage::RecipientAsked(_)
                | Stage::DataAsked
                | Stage::MessageAsked => return self.question(),
            };
            return if self.out.is_empty() { action } else { ServerAction::Write(std::mem::take(&mut self.out)) };
        }
    }

    /// Returns the question to the caller, if the stage has one. Answers to earlier commands stay unwritten meanwhile.
    fn question(&mut self) -> ServerAction {
        match &self.stage {
            Stage::SenderAsked(sender) => ServerAction::AskSender(self.sender_question(sender)),
            Stage::RecipientAsked(recipient) => ServerAction::AskRecipient(self.recipient_question(recipient.clone())),
            Stage::DataAsked => ServerAction::AskData(self.declared_size()),
            Stage::LoginReady(_) => self.login_question(),
            Stage::Fresh
            | Stage::Command
            | Stage::OverlongLine(..)
            | Stage::RefusedLine(_)
            | Stage::Exchange(_)
            | Stage::CheckingLogin
            | Stage::Data(_)
            | Stage::MessageAsked
            | Stage::TlsAsked
            | Stage::Closing => ServerAction::Read(AwaitedInput::Command),
        }
    }

    /// Reports that the handshake is done. The session discards its knowledge of the client (RFC 3207 4.2).
    pub fn tls_established(&mut self) {
        self.stage = Stage::Command;
        self.secured = true;
        self.logged_in = false;
        self.client = None;
        self.transaction = None;
    }

    /// Ends the session without an answer: the outcome of its message is unknown.
    pub fn abandon(&mut self) {
        self.out.clear();
        self.stage = Stage::Closing;
    }

    /// Ends the session with an unsolicited answer, such as 421 at shutdown or after a deadline.
    pub fn end(&mut self, answer: &Answer) {
        self.say(answer);
        self.stage = Stage::Closing;
    }

    /// Sends the greeting. A client must wait for it (RFC 5321 3.1); a client that doesn't is not a mail server.
    fn greet(&mut self) {
        if self.inbox.is_empty() {
            self.stage = Stage::Command;
            self.say(&Answer::plain(220, self.config.greeting.clone()));
        } else {
            self.end(&Answer::plain(554, format!("{} You spoke before the greeting", self.config.hostname)));
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Ehlo(name) => self.welcome(name, Self::extensions),
            Command::Helo(name) => self.welcome(name, |session| Answer::plain(250, session.config.hostname.clone())),
            Command::Farewell(answer) => self.end(&answer),
            Command::Mail(sender) => self.begin(sender),
            Command::Rcpt(recipient) => self.add_recipient(recipient),
            Command::Data => self.begin_data(),
            Command::StartTls => self.begin_tls(),
            Command::Rset => {
                self.transaction = None;
                self.say_idle(&Answer::new(250, "2.0.0", "Flushed"));
            }
            Command::Noop => self.say_idle(&Answer::new(250, "2.0.0", "OK")),
            // RFC 5321 3.5.3: mailboxes are not revealed, and delivery may be tried.
            Command::Vrfy => self.say_idle(&Answer::new(252, "2.0.0", "Cannot verify, send mail and see")),
            Command::Help => self.say_idle(&Answer::new(214, "2.0.0", "See RFC 5321")),
            Command::Quit => self.end(&Answer::new(221, "2.0.0", "Bye")),
        }
    }

    /// Answers EHLO or HELO, which also reset the transaction (RFC 5321 4.1.4).
    fn welcome(&mut self, name: String, answer: fn(&Self) -> Answer) {
        self.client = Some(name);
        self.transaction = None;
        let answer = answer(self);
        self.say_idle(&answer);
    }

    fn extensions(&self) -> Answer {
        let answer = Answer::plain(250, self.config.hostname.clone())
            .and("PIPELINING")
            .and(format!("SIZE {}", self.config.size_max))
            .and("8BITMIME")
            .and("SMTPUTF8");
        let answer = if self.offers_tls() { answer.and("STARTTLS") } else { answer };
        let answer = answer.and("ENHANCEDSTATUSCODES");
        if !self.is_submission() {
            return answer;
        }
        let answer = answer.and(format!("LIMITS RCPTMAX={}", self.config.recipients_max));
        if self.offers_login() { answer.and("AUTH PLAIN LOGIN") } else { answer }
    }

    const fn is_submission(&self) -> bool {
        matches!(self.config.kind, ServerKind::Submission(_))
    }

    const fn offers_tls(&self) -> bool {
        self.config.starttls && !self.secured
    }

    /// Starts the handshake. Clear-text bytes after STARTTLS are refused, because an attacker may have injected them
    /// (CVE-2011-0411).
    fn begin_tls(&mut self) {
        if !self.inbox.is_empty() && (self.offers_tls() || self.is_submission()) {
            self.end(&Answer::new(503, "5.5.1", "Wait for 220 before the handshake"));
        } else if self.offers_tls() {
            self.stage = Stage::TlsAsked;
            self.say(&Answer::new(220, "2.0.0", "Ready for TLS"));
        } else if self.secured {
            // RFC 3207 4.2: a client must not start TLS inside TLS.
            self.fault(&Answer::new(503, "5.5.1", "TLS is active already"));
        } else {
            self.fault(&Answer::new(502, "5.5.1", "TLS is not available"));
        }
    }
}
