//! Outcome of one attempt to hand a message to one mail server: the fact, before any judgement.

use std::net::IpAddr;

use super::reply::Reply;
use super::tls_policy::TlsFault;
use super::transcript::Transcript;
use crate::domain::event::TlsFacts;

/// Envelope facts that the client needs beside the message itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The return path, without angle brackets.
    pub mail_from: String,
    /// The recipient in its wire form, without angle brackets.
    pub rcpt_to: String,
    /// Whether the message has bytes above 127 (BODY=8BITMIME).
    pub eight_bit: bool,
    /// Whether an address or a header needs SMTPUTF8 (RFC 6531).
    pub smtputf8: bool,
}

impl Envelope {
    /// Whether no address can end its command early. Addresses are parsed long before; this is the last gate.
    pub fn is_safe(&self) -> bool {
        let is_safe = |address: &str| !address.bytes().any(|byte| byte < b' ' || byte == 0x7f);
        is_safe(&self.mail_from) && is_safe(&self.rcpt_to)
    }
}

/// Meaning of a server that names itself, in its greeting or its answer to EHLO, by our own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoopCheck {
    /// That the message would come back to us: [`Ending::Loop`].
    #[default]
    OwnNameIsLoop,
    /// Nothing: it is the development mode's receiver, which runs in this process under the same name.
    OwnNameIsExpected,
}

/// The phase of a session, in the order in which they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// TCP connection.
    Connect,
    /// The server's greeting.
    Greeting,
    /// EHLO or HELO.
    Ehlo,
    /// STARTTLS and the handshake.
    StartTls,
    /// AUTH.
    Auth,
    /// RSET before a further message: where a try ends here, the kept connection was of no more use and nothing was
    /// said about the message.
    Rset,
    /// MAIL FROM.
    Mail,
    /// RCPT TO.
    Rcpt,
    /// DATA, until its 354.
    Data,
    /// The message's bytes.
    Body,
    /// The final dot, until its answer.
    Dot,
}

/// End of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The server answered, in good or ill.
    Answered(Reply),
    /// No connection: refused, unreachable.
    Unreachable(String),
    /// Our own way out can't be used: the address to send from is not this machine's. No server was asked.
    Unusable(String),
    /// Nothing within the phase's deadline.
    TimedOut,
    /// The connection ended in mid-session.
    Closed(String),
    /// The server sent something that is not an SMTP reply, or too much of it.
    Unreadable(String),
    /// TLS could not be set up.
    TlsFailed(String),
    /// The receiver's policy asks for more than this server gave: nothing was sent.
    PolicyFailed {
        /// The requirement that was not met.
        fault: TlsFault,
        /// The same for people.
        why: String,
    },
    /// The server's SIZE is less than the message: nothing was sent (5.3.4).
    TooLarge {
        /// The SIZE it announced, in bytes.
        limit: u64,
    },
    /// The server lacks SMTPUTF8 and the message needs it: nothing was sent (5.6.7).
    NeedsSmtpUtf8,
    /// The server is ourselves: routing loop (5.4.6).
    Loop,
}

/// One try at one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// In which phase it ended.
    pub phase: Phase,
    /// End of the attempt. A 2xx in phase `Dot` is a delivery.
    pub ending: Ending,
    /// The address that was asked.
    pub peer: Option<IpAddr>,
    /// Security of the connection.
    pub tls: Option<TlsFacts>,
    /// Transcript of the session.
    pub transcript: Transcript,
}
