//! The receiving side of SMTP (RFC 5321) without a socket: octets in, octets and questions out.
//!
//! `net::smtp_listener` drives it: it calls [`ServerSession::next`] until that asks to read, hands over what it read,
//! and brings answers back to what was asked. The session decides nothing about mail: who may receive and whether
//! a message is taken are questions to the caller, and "250" to a message is said only when the caller says so.
//! It holds at most one message and one line, whatever the client sends.

mod action;
mod answer;
mod command;
mod data;
mod path;
#[cfg(test)]
mod tests;

pub use action::{Awaiting, ReceivedMessage, RecipientQuestion, ServerAction, ServerConfig};
pub use answer::Answer;
pub use path::Path;

use command::{Command, Sender};
use data::{DataReader, Fault};

/// The longest command line, CR LF included. RFC 5321 4.5.3.1.4 asks for 512 and the extensions add to it;
/// internationalised paths are longer still.
pub const COMMAND_LINE_MAX: usize = 2048;
/// Bytes of a command line without an end after which the session ends.
pub const ENDLESS_LINE_MAX: usize = 64 * 1024;

/// Where the session stands.
#[derive(Debug)]
enum Stage {
    /// Before the greeting.
    Fresh,
    /// Between commands.
    Command,
    /// Skipping the rest of a line that is too long, of which so many bytes have come.
    OverlongLine(usize),
    /// The caller is asked about this recipient.
    RecipientAsked(Path),
    /// Within a message.
    Data(DataReader),
    /// The caller is asked about the message.
    MessageAsked,
    /// The caller does the TLS handshake.
    TlsAsked,
    /// Nothing more is read.
    Closing,
}

/// The mail transaction between MAIL and the end of its message (RFC 5321 3.3).
#[derive(Debug)]
struct Transaction {
    sender: Sender,
    recipients: Vec<Path>,
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
}

impl ServerSession {
    /// A session at its very start: the first [`next_action`](Self::next_action) greets.
    pub const fn new(config: ServerConfig) -> Self {
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
        }
    }

    /// Takes octets from the client. Octets before the first [`next_action`](Self::next_action) are an early talker's.
    pub fn receive(&mut self, octets: &[u8]) {
        match self.stage {
            Stage::Closing => {}
            Stage::Fresh
            | Stage::Command
            | Stage::OverlongLine(_)
            | Stage::RecipientAsked(_)
            | Stage::Data(_)
            | Stage::MessageAsked
            | Stage::TlsAsked => self.inbox.extend_from_slice(octets),
        }
    }

    /// Works through what was received, until there is something for the driver to do. Answers to pipelined
    /// commands are written together (RFC 2920 3.2).
    pub fn next_action(&mut self) -> ServerAction {
        loop {
            let action = match &mut self.stage {
                Stage::Fresh => {
                    self.greet();
                    continue;
                }
                Stage::Command => {
                    if self.take_command() {
                        continue;
                    }
                    ServerAction::Read(Awaiting::Command)
                }
                Stage::OverlongLine(length) => {
                    let length = *length;
                    if self.skip_line(length) {
                        continue;
                    }
                    ServerAction::Read(Awaiting::Command)
                }
                Stage::RecipientAsked(recipient) => {
                    let recipient = recipient.clone();
                    return ServerAction::AskRecipient(self.question(recipient));
                }
                Stage::Data(_) => match self.take_data() {
                    Some(message) => return ServerAction::TakeMessage(message),
                    None if matches!(self.stage, Stage::Data(_)) => ServerAction::Read(Awaiting::Data),
                    None => continue,
                },
                Stage::MessageAsked => ServerAction::Read(Awaiting::Command),
                Stage::TlsAsked => ServerAction::StartTls,
                Stage::Closing => ServerAction::Close,
            };
            return if self.out.is_empty() { action } else { ServerAction::Write(std::mem::take(&mut self.out)) };
        }
    }

    /// The caller's answer to [`ServerAction::AskRecipient`].
    pub fn answer_recipient(&mut self, answer: &Answer) {
        let Stage::RecipientAsked(recipient) = std::mem::replace(&mut self.stage, Stage::Command) else {
            unreachable!("a recipient is answered when it was asked about");
        };
        if answer.is_positive()
            && let Some(transaction) = &mut self.transaction
        {
            transaction.recipients.push(recipient);
        }
        self.say(answer);
        if answer.is_permanent() {
            self.refusals += 1;
            self.leave_where(self.config.refusals_max.is_some_and(|max| self.refusals >= max));
        }
    }

    /// The caller's answer to [`ServerAction::TakeMessage`].
    pub fn answer_message(&mut self, answer: &Answer) {
        self.stage = Stage::Command;
        self.say(answer);
    }

    /// The handshake is done: what was known of the client is forgotten (RFC 3207 4.2).
    pub fn tls_established(&mut self) {
        self.stage = Stage::Command;
        self.secured = true;
        self.client = None;
        self.transaction = None;
    }

    /// Ends the session with an answer of its own accord, such as 421 at shutdown or after a deadline.
    pub fn end(&mut self, answer: &Answer) {
        self.say(answer);
        self.stage = Stage::Closing;
    }

    /// RFC 5321 3.1: the client waits for the greeting. One that doesn't is no mail server.
    fn greet(&mut self) {
        if self.inbox.is_empty() {
            self.stage = Stage::Command;
            self.say(&Answer::plain(220, self.config.greeting.clone()));
        } else {
            self.end(&Answer::plain(554, format!("{} You spoke before the greeting", self.config.hostname)));
        }
    }

    /// Takes one line and obeys it; false where there is no whole line.
    fn take_command(&mut self) -> bool {
        let Some(end) = self.inbox.iter().position(|&b| b == b'\n') else {
            if self.inbox.len() < COMMAND_LINE_MAX {
                return false;
            }
            self.stage = Stage::OverlongLine(0);
            return true;
        };
        let line: Vec<u8> = self.inbox.drain(..=end).collect();
        match line.strip_suffix(b"\r\n") {
            _ if line.len() > COMMAND_LINE_MAX => self.fault(&Answer::new(500, "5.5.2", "Line too long")),
            Some(line) => match Command::parse(line) {
                Ok(command) => self.obey(command),
                Err(answer) => self.fault(&answer),
            },
            None => self.fault(&Answer::new(500, "5.5.2", "Lines end with CR LF")),
        }
        true
    }

    /// Drops the rest of a line too long, of which `length` bytes have come; false where its end has not.
    fn skip_line(&mut self, length: usize) -> bool {
        let Some(end) = self.inbox.iter().position(|&b| b == b'\n') else {
            let length = length + std::mem::take(&mut self.inbox).len();
            self.stage = Stage::OverlongLine(length);
            if length >= ENDLESS_LINE_MAX {
                self.end(&Answer::new(500, "5.5.2", "Line too long"));
            }
            return length >= ENDLESS_LINE_MAX;
        };
        self.inbox.drain(..=end);
        self.stage = Stage::Command;
        self.fault(&Answer::new(500, "5.5.2", "Line too long"));
        true
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Ehlo(name) => self.welcome(name, Self::extensions),
            Command::Helo(name) => self.welcome(name, |session| Answer::plain(250, session.config.hostname.clone())),
            Command::Mail(sender) => self.begin(sender),
            Command::Rcpt(recipient) => self.add_recipient(recipient),
            Command::Data => self.begin_data(),
            Command::StartTls => self.begin_tls(),
            Command::Rset => {
                self.transaction = None;
                self.say(&Answer::new(250, "2.0.0", "Flushed"));
            }
            Command::Noop => self.say(&Answer::new(250, "2.0.0", "OK")),
            // RFC 5321 3.5.3: nobody's mailbox is told, and delivery may be tried.
            Command::Vrfy => self.say(&Answer::new(252, "2.0.0", "Cannot verify, send mail and see")),
            Command::Help => self.say(&Answer::new(214, "2.0.0", "RFC 5321 is spoken here")),
            Command::Quit => self.end(&Answer::new(221, "2.0.0", "Bye")),
        }
    }

    /// RFC 5321 4.1.4: EHLO and HELO also reset the transaction.
    fn welcome(&mut self, name: String, answer: fn(&Self) -> Answer) {
        self.client = Some(name);
        self.transaction = None;
        let answer = answer(self);
        self.say(&answer);
    }

    fn extensions(&self) -> Answer {
        let answer = Answer::plain(250, self.config.hostname.clone())
            .and("PIPELINING")
            .and(format!("SIZE {}", self.config.size_max))
            .and("8BITMIME")
            .and("SMTPUTF8");
        let answer = if self.offers_tls() { answer.and("STARTTLS") } else { answer };
        answer.and("ENHANCEDSTATUSCODES")
    }

    const fn offers_tls(&self) -> bool {
        self.config.starttls && !self.secured
    }

    fn begin(&mut self, sender: Sender) {
        let too_large = u64::try_from(self.config.size_max).is_ok_and(|max| sender.size > max);
        if self.client.is_none() {
            self.fault(&Answer::new(503, "5.5.1", "Say EHLO first"));
        } else if self.transaction.is_some() {
            self.fault(&Answer::new(503, "5.5.1", "There is a sender already"));
        } else if too_large {
            self.say(&too_large_answer());
        } else {
            self.transaction = Some(Transaction { sender, recipients: Vec::new() });
            self.say(&Answer::new(250, "2.1.0", "OK"));
        }
    }

    fn add_recipient(&mut self, recipient: Path) {
        let Some(transaction) = &self.transaction else {
            return self.fault(&Answer::new(503, "5.5.1", "MAIL comes before RCPT"));
        };
        if !transaction.sender.smtputf8 && !recipient.is_ascii() {
            self.fault(&Answer::new(553, "5.6.7", "This address needs SMTPUTF8"));
        } else if transaction.recipients.len() >= self.config.recipients_max {
            // RFC 5321 4.5.3.1.10: the client sends the rest in a further transaction.
            self.say(&Answer::new(452, "4.5.3", "Too many recipients"));
        } else {
            self.stage = Stage::RecipientAsked(recipient);
        }
    }

    /// RFC 2920 3.1: DATA is the last of a pipelined group. Octets behind it were sent before any 354 and would be
    /// taken for commands or for a message as chance has it, so the session ends.
    fn begin_data(&mut self) {
        match &self.transaction {
            None => self.fault(&Answer::new(503, "5.5.1", "MAIL and RCPT come before DATA")),
            Some(transaction) if transaction.recipients.is_empty() => {
                self.fault(&Answer::new(554, "5.5.1", "No valid recipients"));
            }
            Some(_) if !self.inbox.is_empty() => {
                self.end(&Answer::new(503, "5.5.1", "Wait for 354 before the message"));
            }
            Some(_) => {
                self.stage = Stage::Data(DataReader::new(self.config.size_max));
                self.say(&Answer::plain(354, "End data with <CR><LF>.<CR><LF>"));
            }
        }
    }

    /// What follows STARTTLS in the clear might have been put there by somebody in between (CVE-2011-0411).
    fn begin_tls(&mut self) {
        if !self.offers_tls() {
            self.fault(&Answer::new(502, "5.5.1", "TLS is not available"));
        } else if self.inbox.is_empty() {
            self.stage = Stage::TlsAsked;
            self.say(&Answer::new(220, "2.0.0", "Ready for TLS"));
        } else {
            self.end(&Answer::new(503, "5.5.1", "Wait for 220 before the handshake"));
        }
    }

    /// Reads on in the message; the message where it is whole and good.
    fn take_data(&mut self) -> Option<ReceivedMessage> {
        let Stage::Data(reader) = &mut self.stage else { return None };
        let Some(used) = reader.read(&self.inbox) else {
            self.inbox.clear();
            if reader.is_hopeless() {
                self.end(&too_large_answer());
            }
            return None;
        };
        self.inbox.drain(..used);
        let Stage::Data(reader) = std::mem::replace(&mut self.stage, Stage::MessageAsked) else { return None };
        let transaction = self.transaction.take()?;
        match reader.finish() {
            Ok(bytes) => Some(ReceivedMessage {
                client: self.client.clone().unwrap_or_default(),
                mail_from: transaction.sender.path,
                recipients: transaction.recipients,
                eight_bit: transaction.sender.eight_bit,
                smtputf8: transaction.sender.smtputf8,
                bytes,
            }),
            Err(fault) => {
                self.stage = Stage::Command;
                self.refuse_message(fault);
                None
            }
        }
    }

    fn refuse_message(&mut self, fault: Fault) {
        match fault {
            Fault::TooLarge => self.say(&too_large_answer()),
            Fault::BareLf => self.fault(&Answer::new(550, "5.5.2", "The message has a LF without CR")),
            Fault::BareCr => self.fault(&Answer::new(550, "5.5.2", "The message has a CR without LF")),
        }
    }

    fn question(&self, recipient: Path) -> RecipientQuestion {
        RecipientQuestion {
            client: self.client.clone().unwrap_or_default(),
            mail_from: self.transaction.as_ref().and_then(|transaction| transaction.sender.path.clone()),
            recipient,
        }
    }

    /// Answers; an answer of 421 ends the session (RFC 5321 3.8), whoever gave it.
    fn say(&mut self, answer: &Answer) {
        answer.write_to(&mut self.out);
        if answer.code() == 421 {
            self.stage = Stage::Closing;
        }
    }

    /// Answers a fault of the client's and counts it.
    fn fault(&mut self, answer: &Answer) {
        self.say(answer);
        self.errors += 1;
        self.leave_where(self.errors >= self.config.errors_max);
    }

    fn leave_where(&mut self, too_many: bool) {
        if too_many && !matches!(self.stage, Stage::Closing) {
            self.end(&Answer::new(421, "4.7.0", format!("{} Too many errors", self.config.hostname)));
        }
    }
}

fn too_large_answer() -> Answer {
    Answer::new(552, "5.3.4", "The message is too large")
}
