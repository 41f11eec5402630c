//! Configuration of a session, and its requests to the driver.

use serde::Serialize;

#[cfg(doc)]
use super::ServerSession;
use super::answer::Answer;
use super::path::Path;
use crate::base::secret::Secret;

/// Name, capabilities and limits of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The server's name in its answer to EHLO.
    pub hostname: String,
    /// The greeting's text after `220 `. Its first word must be the server's name (RFC 5321 4.2).
    pub greeting: String,
    /// Maximum size of a message in bytes (RFC 1870).
    pub size_max: usize,
    /// Maximum number of recipients of a message.
    pub recipients_max: usize,
    /// Number of faulty commands after which the session ends with 421.
    pub errors_max: u32,
    /// Number of refused recipients after which the session ends; `None` for no limit. On the open internet it stops
    /// clients that guess addresses. In `dev` refusals are expected.
    pub refusals_max: Option<u32>,
    /// Whether STARTTLS is offered (RFC 3207).
    pub starttls: bool,
    /// The kind of server.
    pub kind: ServerKind,
}

/// The kind of server: one that receives mail for its own mailboxes, or one that accepts submissions from programs (RFC
/// 6409).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerKind {
    /// Receives mail from other servers, without a login.
    Inbound,
    /// Accepts mail for anyone from clients that log in.
    Submission(SubmissionRules),
}

/// The rules of a submission server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmissionRules {
    /// Condition under which AUTH is offered, and whether mail requires it.
    pub login: LoginRule,
    /// Maximum size of a message times its recipients, in bytes.
    pub total_max: usize,
}

/// Condition under which AUTH is offered, and whether mail requires it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginRule {
    /// AUTH is offered inside TLS only, and required.
    InsideTls,
    /// AUTH is offered without TLS too, and required.
    InClear,
    /// AUTH is offered without TLS too, and optional.
    Optional,
}

/// A request of the session to its driver.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerAction {
    /// Write these bytes.
    Write(Vec<u8>),
    /// Read from the client and call [`ServerSession::receive`].
    Read(AwaitedInput),
    /// Check a password and call [`ServerSession::answer_login`]. Submission only.
    CheckLogin(LoginQuestion),
    /// Decide about a sender and call [`ServerSession::answer_sender`]. Submission only.
    AskSender(SenderQuestion),
    /// Reserve memory for a message of this declared size (0 if none was declared) and call
    /// [`ServerSession::answer_data`]. Submission only.
    AskData(usize),
    /// Decide about a recipient and call [`ServerSession::answer_recipient`].
    AskRecipient(RecipientQuestion),
    /// Decide about a message and call [`ServerSession::answer_message`]. A positive answer makes us responsible for
    /// it.
    TakeMessage(ReceivedMessage),
    /// Do the TLS handshake and call [`ServerSession::tls_established`].
    StartTls,
    /// Close the connection.
    Close,
}

/// Kind of input that the session waits for. Deadlines differ by kind (RFC 5321 4.5.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitedInput {
    /// The next command.
    Command,
    /// More of a message.
    Data,
}

/// A password to check: the API key of a submission client. The user name is ignored.
#[derive(Debug)]
pub struct LoginQuestion {
    /// The name given in EHLO or HELO.
    pub client: String,
    /// The password.
    pub password: Secret,
}

impl PartialEq for LoginQuestion {
    fn eq(&self, other: &Self) -> bool {
        self.client == other.client && self.password.expose() == other.password.expose()
    }
}

impl Eq for LoginQuestion {}

/// Asks whether mail from this sender is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SenderQuestion {
    /// The name given in EHLO or HELO.
    pub client: String,
    /// The path of MAIL; `None` for the null path `<>`.
    pub mail_from: Option<Path>,
    /// The declared size in bytes, 0 if none was declared.
    pub size: usize,
}

/// The stage of a submission in which an answer was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SubmissionStage {
    /// AUTH and its exchange.
    Auth,
    /// MAIL.
    Mail,
    /// RCPT.
    Rcpt,
    /// DATA and the final dot.
    #[default]
    Data,
}

impl SubmissionStage {
    /// Every stage, in the order of a session.
    pub const ALL: [Self; 4] = [Self::Auth, Self::Mail, Self::Rcpt, Self::Data];

    /// Returns the name in the API and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Mail => "mail",
            Self::Rcpt => "rcpt",
            Self::Data => "data",
        }
    }
}

/// A 4xx or 5xx answer that the session itself chose, or an answer to a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedCommand {
    /// The stage in which the answer was given.
    pub stage: SubmissionStage,
    /// The answer.
    pub answer: Answer,
    /// The name given in EHLO or HELO.
    pub client: String,
    /// The path of MAIL, empty for `<>`; `None` if there was no MAIL.
    pub mail_from: Option<String>,
    /// The path of the refused RCPT.
    pub to: Option<String>,
}

/// Asks whether mail for this recipient is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecipientQuestion {
    /// The name given in EHLO or HELO.
    pub client: String,
    /// The return path; `None` for the null path `<>`.
    pub mail_from: Option<Path>,
    /// The recipient.
    pub recipient: Path,
}

/// A complete message, with dots unstuffed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// The name given in EHLO or HELO.
    pub client: String,
    /// The return path; `None` for the null path `<>`.
    pub mail_from: Option<Path>,
    /// The accepted recipients, at least one.
    pub recipients: Vec<Path>,
    /// Whether the client declared BODY=8BITMIME.
    pub eight_bit: bool,
    /// Whether the client declared SMTPUTF8.
    pub smtputf8: bool,
    /// The message's bytes.
    pub bytes: Vec<u8>,
}
