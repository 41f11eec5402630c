//! The sending side of an SMTP session, without a socket: bytes in, bytes and deadlines out (RFC 5321, 2920, 3207).
//!
//! The driver performs the request of [`Client::want`] and reports the result, until [`Client::take_outcome`] returns
//! the end of an attempt or [`ClientAction::Ready`] asks for a message. For every server behaviour, a message counts as
//! delivered only after a 2xx that arrived after the whole message and its final dot were written.

use std::time::Duration;

use bytes::Bytes;

use super::capabilities::Capabilities;
use super::outcome::{Ending, Envelope, Outcome, Phase};
use super::reply::{Reply, ReplyParser};
use super::tls_policy::TlsFault;
use super::transaction::{Next, Transaction};
use super::transcript::Transcript;
use crate::domain::event::TlsFacts;

mod auth;
mod opening;
mod reset;
mod settings;

use auth::Step;
pub use settings::{ClientAction, Login, Settings, StartTls};

#[derive(Debug)]
enum State {
    Greeting,
    Ehlo,
    Helo,
    StartTls,
    Handshake,
    Auth(Step),
    Ready,
    Reset,
    Transaction(Transaction),
    Quit,
    Ended,
}

/// One session with one server.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    state: State,
    parser: ReplyParser,
    capabilities: Capabilities,
    tls: Option<TlsFacts>,
    out: Vec<u8>,
    due: Duration,
    /// Deadline for greeting and EHLO.
    opening_ends: Duration,
    /// Number of messages started on this connection.
    messages: u32,
    /// Whether the server has answered an RSET after the last message.
    is_reset: bool,
    transcript: Transcript,
    outcome: Option<Outcome>,
}

impl Client {
    /// Creates a session over a new connection. `now` is a monotonic time; all calls must use the same clock.
    pub fn new(settings: Settings, now: Duration) -> Self {
        let opening_ends = now + settings.deadlines.opening;
        let due = opening_ends.min(now + settings.deadlines.greeting);
        Self {
            settings,
            state: State::Greeting,
            parser: ReplyParser::new(),
            capabilities: Capabilities::default(),
            tls: None,
            out: Vec::with_capacity(512),
            due,
            opening_ends,
            messages: 0,
            is_reset: false,
            transcript: Transcript::default(),
            outcome: None,
        }
    }

    /// Returns the next request of the client to its driver.
    pub const fn want(&self) -> ClientAction {
        if self.outcome.is_some() {
            return ClientAction::Finished;
        }
        if !self.out.is_empty() {
            return ClientAction::Write;
        }
        match self.state {
            State::Greeting | State::Ehlo | State::Helo | State::StartTls | State::Auth(_) => ClientAction::Read,
            State::Transaction(ref transaction) if transaction.wants_content() => ClientAction::Body,
            State::Transaction(_) | State::Reset | State::Quit => ClientAction::Read,
            State::Handshake => ClientAction::Handshake,
            State::Ready => ClientAction::Ready,
            State::Ended => ClientAction::Finished,
        }
    }

    /// Returns the time at which to call [`Client::deadline_passed`], if the requested event has not happened by then.
    pub const fn due(&self) -> Duration {
        self.due
    }

    /// Returns the bytes to write.
    pub fn output(&self) -> &[u8] {
        &self.out
    }

    /// Returns the security of the connection; `None` if it is unencrypted.
    pub const fn tls(&self) -> Option<&TlsFacts> {
        self.tls.as_ref()
    }

    /// Returns the reason why the connection is unencrypted, if it is.
    pub const fn fault_of_clear_text(&self) -> TlsFault {
        if self.capabilities.starttls { TlsFault::ValidationFailure } else { TlsFault::StartTlsNotSupported }
    }

    /// Takes the outcome, if opening the session failed or a message's attempt has ended.
    pub const fn take_outcome(&mut self) -> Option<Outcome> {
        self.outcome.take()
    }

    /// Returns whether another message may be sent.
    pub fn is_reusable(&self) -> bool {
        let has_room = self.capabilities.messages_max.is_none_or(|max| self.messages < max);
        matches!(self.state, State::Ready) && has_room
    }

    /// Starts a message of `size` bytes, if the client is ready for one. Its bytes are requested once the server
    /// accepts them.
    pub fn begin(&mut self, envelope: &Envelope, size: usize, now: Duration) {
        if self.messages > 0 && !self.is_reset {
            self.begin_transcript();
        }
        if !matches!(self.state, State::Ready) {
            return self.end_in(Phase::Rset, Ending::Closed("the session had ended".to_owned()));
        }
        if let Some((phase, ending)) = self.refusal_of_our_own(envelope, size) {
            self.outcome = Some(self.outcome_of(phase, ending));
            return;
        }
        let is_clean = self.messages == 0 || self.is_reset;
        self.messages += 1;
        self.is_reset = false;
        let transaction = Transaction::begin(envelope, size, self.capabilities, is_clean, &mut self.out);
        self.due = now + transaction.allowance(&self.settings.deadlines);
        self.state = State::Transaction(transaction);
    }

    /// Sends the bytes of the message, if [`ClientAction::Body`] requests them.
    pub fn give_body(&mut self, message: Bytes, now: Duration) {
        if let State::Transaction(transaction) = &mut self.state
            && transaction.wants_content()
        {
            transaction.send_content(message, now, &mut self.out);
            self.due = now + transaction.allowance(&self.settings.deadlines);
        }
    }

    /// Returns whether the pending output ends with the message's final dot.
    pub fn is_at_dot(&self) -> bool {
        matches!(&self.state, State::Transaction(transaction) if transaction.is_at_dot())
    }

    /// Ends the session without the final dot, so that the server drops the message. Called if the message can't be
    /// read, or must not be delivered.
    pub fn body_missing(&mut self) {
        self.end(Ending::Closed("the message could not be read".to_owned()));
    }

    /// Returns a refusal that is known without asking the server: its capabilities exclude this message.
    fn refusal_of_our_own(&self, envelope: &Envelope, size: usize) -> Option<(Phase, Ending)> {
        if !envelope.is_safe() {
            return Some((Phase::Mail, Ending::Unreadable("the envelope contains a control character".to_owned())));
        }
        if envelope.smtputf8 && !self.capabilities.smtputf8 {
            return Some((Phase::Mail, Ending::NeedsSmtpUtf8));
        }
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        let limit = self.capabilities.size_max.filter(|&limit| limit < size)?;
        Some((Phase::Mail, Ending::TooLarge { limit }))
    }

    /// Reports that the output has been written.
    pub fn written(&mut self, now: Duration) {
        self.note_output();
        self.out.clear();
        // Frees the buffer of a large message: thousands of connections may be kept open.
        self.out.shrink_to(32 * 1024);
        if let State::Transaction(transaction) = &mut self.state
            && let Some(due) = transaction.written(&self.settings.deadlines, now, &mut self.out)
        {
            self.due = due;
        }
    }

    /// Adds the output to the transcript, except for the message and the lines of a login.
    fn note_output(&mut self) {
        match &self.state {
            State::Auth(_) => self.transcript.happened("> AUTH exchange, not shown"),
            State::Transaction(transaction) if transaction.phase() == Phase::Body => {
                self.transcript.happened_once("> the message");
            }
            State::Greeting | State::Ehlo | State::Helo | State::StartTls | State::Handshake => {
                self.transcript.said(&self.out);
            }
            State::Ready | State::Reset | State::Transaction(_) | State::Quit | State::Ended => {
                self.transcript.said(&self.out);
            }
        }
    }

    /// Reports that the output could not be written. `pending` holds bytes that the server sent before, such as the
    /// reason for closing: a 421, or a refusal in the middle of the message.
    pub fn write_failed(&mut self, pending: &[u8], reason: &str) {
        let said = ReplyParser::new().feed(pending).ok().and_then(|(_, reply)| reply);
        let is_amid_body = matches!(&self.state, State::Transaction(transaction) if transaction.phase() == Phase::Body);
        match said.filter(|reply| reply.code == 421 || (is_amid_body && reply.code >= 400)) {
            Some(reply) => {
                self.transcript.record_reply(&reply);
                self.end(Ending::Answered(reply));
            }
            None => self.end(Ending::Closed(reason.to_owned())),
        }
    }

    /// Reports that the server sent `bytes`.
    pub fn received(&mut self, mut bytes: &[u8], now: Duration) {
        while !bytes.is_empty() && self.want() == ClientAction::Read {
            match self.parser.feed(bytes) {
                Err(fault) => return self.end(Ending::Unreadable(fault.to_string())),
                Ok((used, reply)) => {
                    bytes = &bytes[used..];
                    if let Some(reply) = reply {
                        self.answered(reply, now);
                    }
                }
            }
        }
        if !bytes.is_empty() {
            self.unsolicited_data();
        }
    }

    /// Handles unsolicited data: further bytes can't be matched to commands.
    fn unsolicited_data(&mut self) {
        match self.state {
            State::Ready if self.outcome.is_none() => {
                self.end_in(Phase::Ehlo, Ending::Unreadable("unexpected data from server".to_owned()));
            }
            // Bytes injected in clear text must not count as the secured server's answer (RFC 3207 5, CVE-2011-0411).
            State::Handshake => {
                self.end(Ending::TlsFailed("the server sent data after its 220 to STARTTLS".to_owned()))
            }
            // The outcome of a message stays. The connection is not used again.
            State::Ready | State::Ended | State::Quit => self.state = State::Ended,
            State::Greeting
            | State::Ehlo
            | State::Helo
            | State::StartTls
            | State::Auth(_)
            | State::Reset
            | State::Transaction(_) => {
                self.end(Ending::Unreadable("unexpected data from server".to_owned()));
            }
        }
    }

    /// Reports that the connection has ended.
    pub fn closed(&mut self, reason: &str) {
        self.end(Ending::Closed(reason.to_owned()));
    }

    /// Reports that the awaited event did not happen before the deadline.
    pub fn deadline_passed(&mut self) {
        self.end(Ending::TimedOut);
    }

    /// Marks the connection as secured before its first byte (RFC 8314 3.3). Call it before anything is read.
    #[must_use]
    pub fn over_tls(mut self, facts: TlsFacts) -> Self {
        self.transcript.happened(&format!("{} with {}", facts.version, facts.cipher));
        self.tls = Some(facts);
        self
    }

    /// Reports that the handshake succeeded.
    pub fn secured(&mut self, facts: TlsFacts, now: Duration) {
        self.transcript.happened(&format!("{} with {}", facts.version, facts.cipher));
        self.tls = Some(facts);
        // Capabilities announced in clear text are discarded (RFC 3207 4.2).
        self.capabilities = Capabilities::default();
        self.parser = ReplyParser::new();
        self.greet("EHLO", State::Ehlo, now);
    }

    /// Reports that the handshake succeeded, but the server did not meet its policy.
    pub fn untrusted(&mut self, fault: TlsFault, why: &str) {
        self.end(Ending::PolicyFailed { fault, why: why.to_owned() });
    }

    /// Reports that the handshake failed.
    pub fn handshake_failed(&mut self, reason: &str) {
        self.end(Ending::TlsFailed(reason.to_owned()));
    }

    /// Sends QUIT. The driver writes it, reads until the end or the deadline, and closes.
    pub fn quit(&mut self, now: Duration) {
        if matches!(self.state, State::Ready) {
            self.due = now + self.settings.deadlines.quit;
            self.out.extend_from_slice(b"QUIT\r\n");
            self.state = State::Quit;
        }
    }

    fn answered(&mut self, reply: Reply, now: Duration) {
        self.transcript.record_reply(&reply);
        // 421 announces the end of the connection in answer to any command (RFC 5321 3.8).
        if reply.code == 421 {
            return self.end(Ending::Answered(reply));
        }
        match &mut self.state {
            State::Greeting => self.greeted(reply, now),
            State::Ehlo => self.ehlo_answered(reply, now),
            State::Helo => self.helo_answered(reply, now),
            State::StartTls => self.starttls_answered(&reply, now),
            &mut State::Auth(step) => self.auth_answered(step, reply, now),
            State::Transaction(transaction) => match transaction.answered(reply, &mut self.out) {
                Next::GoOn => self.due = now + transaction.allowance(&self.settings.deadlines),
                Next::Finished(phase, ending) => {
                    self.outcome = Some(self.outcome_of(phase, ending));
                    self.state = State::Ready;
                }
                Next::Broken(ending) => self.end(ending),
            },
            State::Reset if reply.is_positive() => (self.is_reset, self.state) = (true, State::Ready),
            State::Reset => self.end(Ending::Answered(reply)),
            State::Quit => self.state = State::Ended,
            State::Handshake | State::Ready | State::Ended => {}
        }
    }

    /// Ends session and attempt in the current phase.
    fn end(&mut self, ending: Ending) {
        let phase = match &mut self.state {
            State::Greeting => Phase::Greeting,
            State::Ehlo | State::Helo => Phase::Ehlo,
            State::StartTls | State::Handshake => Phase::StartTls,
            State::Auth(_) => Phase::Auth,
            State::Reset => Phase::Rset,
            State::Transaction(transaction) => match transaction.take_refusal() {
                // The server has already refused the message. That is the answer, regardless of how the connection
                // ends.
                Some((phase, reply)) => return self.end_in(phase, Ending::Answered(reply)),
                None => transaction.phase(),
            },
            State::Ready | State::Quit | State::Ended => {
                self.state = State::Ended;
                return;
            }
        };
        self.end_in(phase, ending);
    }

    fn end_in(&mut self, phase: Phase, ending: Ending) {
        self.outcome = Some(self.outcome_of(phase, ending));
        self.out.clear();
        self.state = State::Ended;
    }

    fn outcome_of(&self, phase: Phase, ending: Ending) -> Outcome {
        let mut transcript = self.transcript.clone();
        transcript.ended(&ending);
        Outcome { phase, ending, peer: self.settings.peer, tls: self.tls.clone(), transcript }
    }
}

/// Returns the end for an answer of a class that is not valid for the command.
pub(super) fn unexpected(reply: &Reply) -> Ending {
    Ending::Unreadable(format!("the server answered out of sequence: {}", reply.text()))
}

#[cfg(test)]
mod auth_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod script;
#[cfg(test)]
mod tests;
