//! Outcome of one attempt to send a message to one mail server: the facts, without judgement.

use std::net::IpAddr;

use super::reply::Reply;
use super::tls_policy::TlsFault;
use super::transcript::Transcript;
use crate::domain::event::TlsFacts;

/// The envelope and message properties that the client needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The return path, without angle brackets.
    pub mail_from: String,
    /// The recipient in wire form, without angle brackets.
    pub rcpt_to: String,
    /// Whether the message has bytes above 127 (BODY=8BITMIME).
    pub eight_bit: bool,
    /// Whether an address or a header needs SMTPUTF8 (RFC 6531).
    pub smtputf8: bool,
}

impl Envelope {
    /// Returns whether no address can end its command early. Addresses were validated long before; this is the last
    /// check.
    pub fn is_safe(&self) -> bool {
        let is_safe = |address: &str| !address.bytes().any(|byte| byte < b' ' || byte == 0x7f);
        is_safe(&self.mail_from) && is_safe(&self.rcpt_to)
    }
}

/// Meaning of a server that uses our own name in its greeting or its EHLO answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoopCheck {
    /// The message would come back to us: [`Ending::Loop`].
    #[default]
    OwnNameIsLoop,
    /// No meaning: it is the development mode's receiver, which runs in this process under the same name.
    OwnNameIsExpected,
}

/// Phase of a session, in order.
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
    /// RSET before a further message. An attempt that ends here only shows that the kept connection was unusable; the
    /// message was not mentioned.
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
    /// The server answered, positively or not.
    Answered(Reply),
    /// No connection: refused or unreachable.
    Unreachable(String),
    /// Our own source address can't be used: it does not belong to this machine. No server was contacted.
    Unusable(String),
    /// No answer within the phase's deadline.
    TimedOut,
    /// The connection ended during the session.
    Closed(String),
    /// The server sent something that is not an SMTP reply, or too much of it.
    Unreadable(String),
    /// TLS could not be set up.
    TlsFailed(String),
    /// The receiver's policy requires more than this server offers. Nothing was sent.
    PolicyFailed {
        /// The unmet requirement.
        fault: TlsFault,
        /// The requirement as text.
        why: String,
    },
    /// The server's SIZE is less than the message. Nothing was sent (5.3.4).
    TooLarge {
        /// The announced SIZE, in bytes.
        limit: u64,
    },
    /// The message needs SMTPUTF8 and the server lacks it. Nothing was sent (5.6.7).
    NeedsSmtpUtf8,
    /// The server is this service: a routing loop (5.4.6).
    Loop,
}

/// One attempt at one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The phase in which the attempt ended.
    pub phase: Phase,
    /// End of the attempt. A 2xx in phase `Dot` is a delivery.
    pub ending: Ending,
    /// The server's address.
    pub peer: Option<IpAddr>,
    /// Security of the connection.
    pub tls: Option<TlsFacts>,
    /// Transcript of the session.
    pub transcript: Transcript,
}
