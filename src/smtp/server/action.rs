//! What a session is told at its start, and what it asks of its driver.

#[cfg(doc)]
use super::ServerSession;
use super::path::Path;

/// How a server presents itself, and its limits.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The server's name, said in the answer to EHLO.
    pub hostname: String,
    /// The greeting's text after `220 `; its first word has to be the server's name (RFC 5321 4.2).
    pub greeting: String,
    /// The largest message, in octets (RFC 1870).
    pub size_max: usize,
    /// The most recipients of one message.
    pub recipients_max: usize,
    /// The number of faulty commands after which the session ends with 421.
    pub errors_max: u32,
    /// The number of refused recipients after which it does, where there is such a limit: on the open internet
    /// whoever tries names is sent away, while in `dev` refusals are what is asked for.
    pub refusals_max: Option<u32>,
    /// Whether STARTTLS is offered (RFC 3207).
    pub starttls: bool,
}

/// What the driver has to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerAction {
    /// Write these octets.
    Write(Vec<u8>),
    /// Read from the client and call [`ServerSession::receive`].
    Read(Awaiting),
    /// Decide about a recipient and call [`ServerSession::answer_recipient`].
    AskRecipient(RecipientQuestion),
    /// Decide about a message and call [`ServerSession::answer_message`]. A positive answer makes it ours.
    TakeMessage(ReceivedMessage),
    /// Do the TLS handshake and call [`ServerSession::tls_established`].
    StartTls,
    /// Close the connection.
    Close,
}

/// What is read for, since the deadlines differ (RFC 5321 4.5.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaiting {
    /// The next command.
    Command,
    /// More of a message.
    Data,
}

/// Whether mail for this recipient is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecipientQuestion {
    /// The name given in EHLO or HELO.
    pub client: String,
    /// The return path; none is the null path `<>`.
    pub mail_from: Option<Path>,
    /// The recipient.
    pub recipient: Path,
}

/// A whole message, dots unstuffed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// The name given in EHLO or HELO.
    pub client: String,
    /// The return path; none is the null path `<>`.
    pub mail_from: Option<Path>,
    /// The recipients that were accepted, at least one.
    pub recipients: Vec<Path>,
    /// Whether the client declared BODY=8BITMIME.
    pub eight_bit: bool,
    /// Whether the client declared SMTPUTF8.
    pub smtputf8: bool,
    /// The message's octets.
    pub bytes: Vec<u8>,
}
