//! Model of a mail server: reads the client's bytes line by line, and randomly answers, refuses, stops answering or
//! closes. It records the messages offered and accepted.

use std::sync::Arc;
use std::time::Duration;

use super::plan::FaultClass;
use super::replica::fence;
use super::world::{Bounce, Offered, Taken, World};

/// Probability of a fault for each command, per mille.
const FAULTS: u64 = 60;

/// One connection of a mail server.
pub(super) struct MailServer {
    world: Arc<World>,
    pub(super) name: String,
    /// The process that sends.
    life: u32,
    has_pipelining: bool,
    /// Bytes that are not processed yet.
    input: Vec<u8>,
    /// Bytes to send to the client.
    pub(super) output: Vec<u8>,
    /// Whether the connection closes after the output.
    pub(super) is_closed: bool,
    /// Whether the server has stopped answering.
    is_silent: bool,
    is_in_data: bool,
    mail_at: Duration,
    return_path: String,
    recipient: Option<String>,
}

impl MailServer {
    /// Creates a server with a greeting to send.
    pub(super) fn new(world: &Arc<World>, name: &str, life: u32) -> Self {
        let mut server = Self {
            world: Arc::clone(world),
            name: name.to_owned(),
            life,
            has_pipelining: world.below(3) != 0,
            input: Vec::new(),
            output: Vec::new(),
            is_closed: false,
            is_silent: false,
            is_in_data: false,
            mail_at: Duration::ZERO,
            return_path: String::new(),
            recipient: None,
        };
        server.answer(&format!("220 {name} ESMTP"));
        server
    }

    /// Processes bytes of the client.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while !self.is_closed && !self.is_silent {
            if self.is_in_data {
                let Some(end) = find(&self.input, b"\r\n.\r\n") else { return };
                let message: Vec<u8> = self.input.drain(..end + 5).collect();
                self.is_in_data = false;
                self.take(&message);
            } else {
                let Some(end) = find(&self.input, b"\r\n") else { return };
                let line: Vec<u8> = self.input.drain(..end + 2).collect();
                self.command(&String::from_utf8_lossy(&line[..end]));
            }
        }
    }

    fn command(&mut self, line: &str) {
        let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        match verb.as_str() {
            "EHLO" if self.has_pipelining => {
                self.answer(&format!("250-{}\r\n250-PIPELINING\r\n250 8BITMIME", self.name))
            }
            "EHLO" => self.answer(&format!("250-{}\r\n250 8BITMIME", self.name)),
            "MAIL" => {
                self.mail_at = self.world.clocks.elapsed();
                self.recipient = None;
                self.return_path = path(line).to_owned();
                self.answer("250 2.1.0 ok");
            }
            "RCPT" => self.receive_recipient(line),
            "DATA" if self.recipient.is_some() => {
                self.answer("354 go on");
                self.is_in_data = self.output.ends_with(b"354 go on\r\n");
            }
            "DATA" => self.answer("503 5.5.1 no recipient"),
            "RSET" => self.answer("250 2.0.0 ok"),
            "QUIT" => {
                self.say("221 2.0.0 bye");
                self.is_closed = true;
            }
            _ => self.say("500 5.5.2 unknown command"),
        }
    }

    fn receive_recipient(&mut self, line: &str) {
        let recipient = path(line).to_ascii_lowercase();
        let offered = Offered { recipient: recipient.clone(), mail_at: self.mail_at };
        self.world.state().offered.push(offered);
        let before = self.output.len();
        self.answer("250 2.1.5 ok");
        if self.output[before..].starts_with(b"250") {
            self.recipient = Some(recipient);
        }
    }

    /// Answers the final dot. A server that closes or stops answering may have accepted the message before.
    fn take(&mut self, message: &[u8]) {
        let Some(recipient) = self.recipient.take() else { return self.say("503 5.5.1 no recipient") };
        fence::sends(&self.world, self.life);
        let before = self.output.len();
        self.answer("250 2.0.0 taken");
        let is_answered = self.output[before..].starts_with(b"250");
        let is_refused = self.output.len() > before && !is_answered;
        if is_refused || (!is_answered && self.world.below(2) == 0) {
            return;
        }
        let text = String::from_utf8_lossy(message);
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        let (subject, message_id) = (field("Subject:"), field("Message-ID:"));
        self.world.note(format!("{} takes {subject} for {recipient}, answered: {is_answered}", self.name));
        let (mail_at, life, at) = (self.mail_at, self.life, self.world.clocks.elapsed());
        let taken = Taken { message_id: message_id.clone(), subject, mail_at, at, life, is_answered };
        self.world.state().taken.push(taken);
        if is_answered && self.world.strikes(FaultClass::Bounces, 300) {
            let headers = text.split_once("\r\n\r\n").map_or(&*text, |(headers, _)| headers);
            self.bounce(message_id, recipient, headers.to_owned());
        }
    }

    /// Sends a bounce for an accepted message, at once or hours later.
    fn bounce(&self, message_id: String, recipient: String, headers: String) {
        let delay = self.world.pick(&[0, 1_000, 60_000, 4 * 3_600_000]);
        let at = self.world.clocks.elapsed() + self.world.millis(0, delay);
        let bounce = Bounce { message_id, recipient, return_path: self.return_path.clone(), headers, at, answer: None };
        self.world.state().bounces.push(bounce);
        self.world.has_bounce.notify_one();
    }

    /// Answers with `text`, unless a fault occurs.
    fn answer(&mut self, text: &str) {
        let world = Arc::clone(&self.world);
        if world.strikes_at(&self.name, FaultClass::Silence, FAULTS / 3) {
            self.is_silent = true;
        } else if world.strikes_at(&self.name, FaultClass::Close, FAULTS) {
            self.is_closed = true;
        } else if world.strikes_at(&self.name, FaultClass::Transient, FAULTS) {
            let reply = world.pick(&["451 4.3.0 not now", "450 4.2.1 busy", "421 4.7.0 too many", "452 4.2.2 full"]);
            self.is_closed = reply.starts_with("421");
            self.say(reply);
        } else if world.strikes_at(&self.name, FaultClass::Permanent, FAULTS) {
            self.say(world.pick(&["550 5.1.1 no such user", "554 5.7.1 refused", "552 5.2.2 full"]));
        } else {
            self.say(text);
        }
    }

    fn say(&mut self, text: &str) {
        self.output.extend_from_slice(text.as_bytes());
        self.output.extend_from_slice(b"\r\n");
    }
}

/// Returns the address of a MAIL or RCPT command.
fn path(line: &str) -> &str {
    line.split(['<', '>']).nth(1).unwrap_or_default()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
