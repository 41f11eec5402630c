//! Command lines of a session: takes a line from the received bytes, within the limit of its kind, and executes it.

use zeroize::Zeroizing;

use super::answering::Step;
use super::command::Command;
use super::{Answer, COMMAND_LINE_MAX, ENDLESS_LINE_MAX, ServerKind, ServerSession, Stage, SubmissionStage, submitted};

/// Maximum length of a line of AUTH and its exchange, including CR LF (RFC 4954 4).
const AUTH_LINE_MAX: usize = 12_288;

/// The kind of a line, which determines its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    /// A command other than AUTH.
    Command,
    /// AUTH, or a line of its exchange.
    Auth,
}

impl LineKind {
    const fn max(self) -> usize {
        match self {
            Self::Command => COMMAND_LINE_MAX,
            Self::Auth => AUTH_LINE_MAX,
        }
    }

    fn too_long(self) -> Answer {
        match self {
            Self::Command => Answer::new(500, "5.5.2", "Line too long"),
            Self::Auth => Answer::new(500, "5.5.6", "Authentication line too long"),
        }
    }
}

impl ServerSession {
    /// Takes one line and executes it; false if no complete line has arrived.
    pub(super) fn take_line(&mut self) -> bool {
        let kind = self.line_kind();
        let Some(end) = self.inbox.iter().position(|&b| b == b'\n') else {
            if self.inbox.len() < kind.max() {
                self.step = None;
                return false;
            }
            self.stage = Stage::OverlongLine(0, kind);
            return true;
        };
        let rest = self.inbox.split_off(end + 1);
        // The line may hold a password, so its memory is wiped.
        let line = Zeroizing::new(std::mem::replace(&mut self.inbox, rest));
        match line.strip_suffix(b"\r\n") {
            _ if line.len() > kind.max() => self.refuse_line(kind, &kind.too_long()),
            Some(line) => self.take_whole_line(line),
            None => self.refuse_bare_lf(kind),
        }
        true
    }

    fn line_kind(&self) -> LineKind {
        let is_auth = matches!(self.stage, Stage::Exchange(_)) || submitted::auth_argument(&self.inbox).is_some();
        if is_auth && self.is_submission() { LineKind::Auth } else { LineKind::Command }
    }

    fn take_whole_line(&mut self, line: &[u8]) {
        if let Stage::Exchange(exchange) = self.stage {
            return self.continue_login(exchange.continue_with(line));
        }
        let parsed = match (&self.config.kind, submitted::auth_argument(line)) {
            (ServerKind::Inbound, _) => Command::parse(line),
            (ServerKind::Submission(_), Some(argument)) => return self.begin_login(argument),
            (ServerKind::Submission(_), None) => {
                self.step = Step::of(line);
                submitted::parse(line)
            }
        };
        match parsed {
            Ok(command) => self.obey(command),
            Err(answer) => self.fault(&answer),
        }
    }

    /// Refuses a line. This also ends an AUTH exchange.
    fn refuse_line(&mut self, kind: LineKind, answer: &Answer) {
        self.stage = Stage::Command;
        if kind == LineKind::Auth {
            self.step = Some(Step { stage: SubmissionStage::Auth, path: None });
        }
        self.fault(answer);
    }

    /// Refuses a line for a bare LF, together with the bytes up to the next CR LF. A program that lets an LF into an
    /// address must not send a second command that way. Clients that end all lines with LF send them one at a time.
    fn refuse_bare_lf(&mut self, kind: LineKind) {
        self.refuse_line(kind, &Answer::new(500, "5.5.2", "Lines end with CR LF"));
        if !self.inbox.is_empty() && !matches!(self.stage, Stage::Closing) {
            self.stage = Stage::RefusedLine(0);
        }
    }

    /// Discards the rest of a refused line, of which `length` bytes have arrived; false if its end has not.
    pub(super) fn skip_refused_line(&mut self, length: usize) -> bool {
        if let Some(end) = self.inbox.windows(2).position(|pair| pair == b"\r\n") {
            self.inbox.drain(..end + 2);
            self.stage = Stage::Command;
            return true;
        }
        // A trailing CR may be the first half of CR LF.
        let kept = usize::from(self.inbox.ends_with(b"\r"));
        let dropped = self.inbox.len() - kept;
        self.inbox.drain(..dropped);
        let length = length + dropped;
        self.stage = Stage::RefusedLine(length);
        if length >= ENDLESS_LINE_MAX {
            self.end(&LineKind::Command.too_long());
        }
        length >= ENDLESS_LINE_MAX
    }

    /// Discards the rest of an overlong line, of which `length` bytes have arrived; false if its end has not.
    pub(super) fn skip_line(&mut self, length: usize, kind: LineKind) -> bool {
        let Some(end) = self.inbox.iter().position(|&b| b == b'\n') else {
            let length = length + Zeroizing::new(std::mem::take(&mut self.inbox)).len();
            self.stage = Stage::OverlongLine(length, kind);
            if length >= ENDLESS_LINE_MAX {
                self.end(&kind.too_long());
            }
            return length >= ENDLESS_LINE_MAX;
        };
        self.inbox.drain(..=end);
        self.refuse_line(kind, &kind.too_long());
        true
    }
}
