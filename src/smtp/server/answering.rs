//! Answers of a session: written, counted against the client's limits, and recorded if they refuse a submission.

use super::transaction::Transaction;
use super::{Answer, RefusedCommand, ServerSession, Stage, SubmissionStage};

/// The command that is being answered, for [`RefusedCommand`].
#[derive(Debug)]
pub(super) struct Step {
    pub(super) stage: SubmissionStage,
    /// The path of MAIL or RCPT; for DATA, the path of its MAIL.
    pub(super) path: Option<String>,
}

impl ServerSession {
    /// Answers a command without effect. The number of these between messages is limited for a submission client.
    pub(super) fn say_idle(&mut self, answer: &Answer) {
        if self.is_submission() && self.conduct.idled() {
            self.say(&self.farewell("4.7.0", "Too many commands without a message"));
        } else {
            self.say(answer);
        }
    }

    /// Writes an answer. A 421 ends the session (RFC 5321 3.8), whether the session or the caller chose it.
    pub(super) fn say(&mut self, answer: &Answer) {
        let (is_logged_in, faults_max) = (self.is_logged_in(), self.config.errors_max);
        if self.is_submission() && self.conduct.answered(answer, is_logged_in, faults_max) {
            self.write(&self.farewell("4.7.0", "Too many errors"));
        } else {
            self.write(answer);
        }
    }

    /// Writes an answer that the caller chose. The caller has recorded a refusal itself.
    pub(super) fn pass_on(&mut self, answer: &Answer) {
        let step = self.step.take();
        self.say(answer);
        self.step = step;
    }

    fn write(&mut self, answer: &Answer) {
        answer.write_to(&mut self.out);
        if answer.code() >= 400 && self.is_submission() {
            self.note_refused(answer);
        }
        if answer.code() == 421 {
            self.stage = Stage::Closing;
        }
    }

    fn note_refused(&mut self, answer: &Answer) {
        let stage = match (&self.stage, &self.step) {
            (Stage::Data(_), _) => SubmissionStage::Data,
            (_, Some(step)) => step.stage,
            (_, None) => return,
        };
        let path = self.step.as_ref().and_then(|step| step.path.clone());
        let begun = self.transaction.as_ref().map(Transaction::mail_from);
        let (mail_from, to) = match stage {
            SubmissionStage::Auth => (None, None),
            SubmissionStage::Mail => (path, None),
            SubmissionStage::Rcpt => (begun, path),
            SubmissionStage::Data => (begun.or(path), None),
        };
        let client = self.client.clone().unwrap_or_default();
        self.refused.push(RefusedCommand { stage, answer: answer.clone(), client, mail_from, to });
    }

    /// Answers a client's error and counts it.
    pub(super) fn fault(&mut self, answer: &Answer) {
        self.say(answer);
        if !self.is_submission() {
            self.errors += 1;
            self.end_if_exceeded(self.errors >= self.config.errors_max);
        }
    }

    pub(super) fn end_if_exceeded(&mut self, too_many: bool) {
        if too_many && !matches!(self.stage, Stage::Closing) {
            self.end(&self.farewell("4.7.0", "Too many errors"));
        }
    }

    /// Returns a 421 answer, which ends the session.
    pub(super) fn farewell(&self, enhanced: &'static str, reason: &str) -> Answer {
        Answer::new(421, enhanced, format!("{} {reason}", self.config.hostname))
    }
}

impl Step {
    /// Returns the step of a command line, if its refusal is one of a submission.
    pub(super) fn of(line: &[u8]) -> Option<Self> {
        let verb = line.get(..4)?.to_ascii_uppercase();
        let stage = match verb.as_slice() {
            b"MAIL" => SubmissionStage::Mail,
            b"RCPT" => SubmissionStage::Rcpt,
            b"DATA" => SubmissionStage::Data,
            _ => return None,
        };
        let text = String::from_utf8_lossy(line);
        let inner = text.split_once('<').and_then(|(_, rest)| rest.rsplit_once('>')).map(|(inner, _)| inner.to_owned());
        Some(Self { stage, path: inner })
    }
}
