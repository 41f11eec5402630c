//! The mail transaction of a session (RFC 5321 3.3): MAIL, RCPT, DATA and the message, and the caller's answers.

use std::collections::HashSet;

use super::data::{DataReader, DataRefusal, LineEnds};
use super::{
    Answer, LoginRule, Path, ReceivedMessage, RecipientQuestion, Sender, SenderQuestion, ServerKind, ServerSession,
    Stage, SubmissionRules,
};
use crate::domain::address::Address;

/// The mail transaction, from MAIL to the end of its message.
#[derive(Debug)]
pub(super) struct Transaction {
    sender: Sender,
    recipients: Vec<Path>,
    /// Mailboxes of a submission's recipients, in the form in which suppressions are compared. A set, because a client
    /// may send thousands of RCPT commands.
    mailboxes: HashSet<String>,
}

impl Transaction {
    /// Returns the path of MAIL; empty for the null path.
    pub(super) fn mail_from(&self) -> String {
        self.sender.path.as_ref().map(Path::to_string).unwrap_or_default()
    }

    pub(super) const fn recipients(&self) -> usize {
        self.recipients.len()
    }

    fn new(sender: Sender) -> Self {
        Self { sender, recipients: Vec::new(), mailboxes: HashSet::new() }
    }
}

impl ServerSession {
    /// Passes the caller's answer to [`super::ServerAction::AskSender`]. After 530 the client must log in again.
    pub fn answer_sender(&mut self, answer: &Answer) {
        let Stage::SenderAsked(sender) = std::mem::replace(&mut self.stage, Stage::Command) else {
            unreachable!("an answer about a sender follows a question");
        };
        if answer.code() == 530 {
            self.logged_in = false;
        }
        self.pass_on(answer);
        if answer.is_positive() {
            self.transaction = Some(Transaction::new(sender));
        }
    }

    /// Passes the caller's answer to [`super::ServerAction::AskRecipient`]. In a submission a repeated mailbox counts
    /// once.
    pub fn answer_recipient(&mut self, answer: &Answer) {
        let Stage::RecipientAsked(recipient) = std::mem::replace(&mut self.stage, Stage::Command) else {
            unreachable!("an answer about a recipient follows a question");
        };
        let is_submission = self.is_submission();
        let address = is_submission.then(|| recipient.as_str().parse::<Address>().ok()).flatten();
        if answer.is_positive()
            && let Some(transaction) = &mut self.transaction
            && address.is_none_or(|address| transaction.mailboxes.insert(address.match_key()))
        {
            transaction.recipients.push(recipient);
        }
        self.pass_on(answer);
        if answer.is_permanent() && !is_submission {
            self.refusals += 1;
            self.end_if_exceeded(self.config.refusals_max.is_some_and(|max| self.refusals >= max));
        }
    }

    /// Passes the caller's answer to [`super::ServerAction::AskData`]: a refusal, or `None` if memory is reserved for a
    /// message of the declared size.
    pub fn answer_data(&mut self, refusal: Option<&Answer>) {
        self.stage = Stage::Command;
        match refusal {
            Some(answer) => self.say(answer),
            None => self.read_message(LineEnds::Repair),
        }
    }

    /// Discards the message that is being received, since there is no memory for it. It is refused with 451 at its end.
    pub fn drop_message(&mut self) {
        if let Stage::Data(reader) = &mut self.stage {
            reader.drop_message();
        }
    }

    /// Passes the caller's answer to [`super::ServerAction::TakeMessage`].
    pub fn answer_message(&mut self, answer: &Answer) {
        self.stage = Stage::Command;
        self.conduct.message_came();
        self.pass_on(answer);
    }

    pub(super) fn begin(&mut self, sender: Sender) {
        let too_large = u64::try_from(self.config.size_max).is_ok_and(|max| sender.size > max);
        if self.client.is_none() {
            self.fault(&Answer::new(503, "5.5.1", "Say EHLO first"));
        } else if self.transaction.is_some() {
            self.fault(&Answer::new(503, "5.5.1", "The sender is already set"));
        } else if !self.is_logged_in() {
            self.fault(&self.login_needed());
        } else if too_large {
            self.say(&self.too_large());
        } else if self.is_submission() {
            self.stage = Stage::SenderAsked(sender);
        } else {
            self.transaction = Some(Transaction::new(sender));
            self.say(&Answer::new(250, "2.1.0", "OK"));
        }
    }

    fn login_needed(&self) -> Answer {
        let in_clear = match &self.config.kind {
            ServerKind::Inbound => false,
            ServerKind::Submission(rules) => !self.secured && rules.login == LoginRule::InsideTls,
        };
        let text = if in_clear {
            "Say STARTTLS first, then log in with an API key"
        } else {
            "Log in first: AUTH PLAIN or AUTH LOGIN, with an API key as the password"
        };
        Answer::new(530, "5.7.0", text)
    }

    pub(super) fn add_recipient(&mut self, recipient: Path) {
        let Some(transaction) = &self.transaction else {
            return self.fault(&Answer::new(503, "5.5.1", "MAIL comes before RCPT"));
        };
        if !transaction.sender.smtputf8 && !recipient.is_ascii() {
            self.fault(&Answer::new(553, "5.6.7", "This address needs SMTPUTF8"));
        } else if let Some(answer) = self.recipient_refusal(transaction, &recipient) {
            self.say(&answer);
        } else {
            self.stage = Stage::RecipientAsked(recipient);
        }
    }

    /// Returns a refusal that needs no decision by the caller.
    fn recipient_refusal(&self, transaction: &Transaction, recipient: &Path) -> Option<Answer> {
        let (count, size) = (transaction.recipients.len(), transaction.declared_size());
        // RFC 5321 4.5.3.1.10: the client sends the rest in another transaction.
        let too_many = (count >= self.config.recipients_max).then(|| Answer::new(452, "4.5.3", "Too many recipients"));
        let ServerKind::Submission(rules) = &self.config.kind else { return too_many };
        let address = match recipient.as_str().parse::<Address>() {
            Ok(address) => address,
            Err(fault) => return Some(Answer::new(553, "5.1.3", format!("Not an address: {fault}"))),
        };
        if transaction.mailboxes.contains(&address.match_key()) {
            return None;
        }
        too_many.or_else(|| {
            let text = "Message size times recipients is over 200 MiB; send the rest in another transaction";
            rules.is_exceeded(size, count + 1).then(|| Answer::new(452, "4.5.3", text))
        })
    }

    /// Handles DATA, the last command of a pipelined group (RFC 2920 3.1). Bytes after it were sent before any 354 and
    /// could be either commands or a message, so the session ends.
    pub(super) fn begin_data(&mut self) {
        match &self.transaction {
            _ if self.is_submission() && !self.inbox.is_empty() => self.end(&spoke_too_soon()),
            None => self.fault(&Answer::new(503, "5.5.1", "MAIL and RCPT come before DATA")),
            Some(transaction) if transaction.recipients.is_empty() => {
                self.fault(&Answer::new(554, "5.5.1", "No valid recipients"));
            }
            Some(_) if !self.inbox.is_empty() => self.end(&spoke_too_soon()),
            Some(_) if self.is_submission() => self.stage = Stage::DataAsked,
            Some(_) => self.read_message(LineEnds::Refuse),
        }
    }

    fn read_message(&mut self, line_ends: LineEnds) {
        self.stage = Stage::Data(DataReader::new(self.config.size_max, line_ends));
        self.say(&Answer::plain(354, "End data with <CR><LF>.<CR><LF>"));
    }

    /// Reads the next bytes of the message. Returns the message if it is complete and valid.
    pub(super) fn take_data(&mut self) -> Option<ReceivedMessage> {
        let Stage::Data(reader) = &mut self.stage else { return None };
        let Some(used) = reader.read(&self.inbox) else {
            self.inbox.clear();
            if reader.is_over_read_limit() {
                self.end(&self.too_large());
            }
            return None;
        };
        self.inbox.drain(..used);
        let Stage::Data(reader) = std::mem::replace(&mut self.stage, Stage::MessageAsked) else { return None };
        let transaction = self.transaction.take()?;
        if let Some(step) = &mut self.step {
            step.path = Some(transaction.mail_from());
        }
        match reader.finish() {
            Ok(bytes) if self.copies_are_too_large(bytes.len(), transaction.recipients.len()) => {
                self.stage = Stage::Command;
                self.conduct.message_came();
                self.say(&Answer::copies_too_large());
                None
            }
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

    fn copies_are_too_large(&self, size: usize, recipients: usize) -> bool {
        match &self.config.kind {
            ServerKind::Submission(rules) => rules.is_exceeded(size, recipients),
            ServerKind::Inbound => false,
        }
    }

    fn too_large(&self) -> Answer {
        let text = format!("The message is too large: the limit is {} bytes", self.config.size_max);
        Answer::new(552, "5.3.4", text)
    }

    fn refuse_message(&mut self, fault: DataRefusal) {
        let enhanced = if self.is_submission() { "5.6.0" } else { "5.5.2" };
        self.conduct.message_came();
        match fault {
            DataRefusal::TooLarge => self.say(&self.too_large()),
            DataRefusal::NoMemory => {
                self.say(&Answer::new(451, "4.3.2", "Too many messages in progress, try again later"))
            }
            DataRefusal::BareLf => self.fault(&Answer::new(550, enhanced, "The message has a LF without CR")),
            DataRefusal::BareCr => self.fault(&Answer::new(550, enhanced, "The message has a CR without LF")),
            DataRefusal::LoneDot => {
                self.fault(&Answer::new(550, enhanced, "The message has a line of one dot beside a LF without CR"));
            }
        }
    }

    pub(super) fn sender_question(&self, sender: &Sender) -> SenderQuestion {
        SenderQuestion {
            client: self.client.clone().unwrap_or_default(),
            mail_from: sender.path.clone(),
            size: sender.declared_size(),
        }
    }

    pub(super) fn recipient_question(&self, recipient: Path) -> RecipientQuestion {
        RecipientQuestion {
            client: self.client.clone().unwrap_or_default(),
            mail_from: self.transaction.as_ref().and_then(|transaction| transaction.sender.path.clone()),
            recipient,
        }
    }

    pub(super) fn declared_size(&self) -> usize {
        self.transaction.as_ref().map_or(0, Transaction::declared_size)
    }
}

impl Transaction {
    fn declared_size(&self) -> usize {
        self.sender.declared_size()
    }
}

impl Sender {
    fn declared_size(&self) -> usize {
        usize::try_from(self.size).unwrap_or(usize::MAX)
    }
}

impl SubmissionRules {
    const fn is_exceeded(&self, size: usize, recipients: usize) -> bool {
        size.saturating_mul(recipients) > self.total_max
    }
}

fn spoke_too_soon() -> Answer {
    Answer::new(503, "5.5.1", "Wait for 354 before the message")
}
