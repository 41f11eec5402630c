//! AUTH of a submission session (RFC 4954): when it is allowed, the exchange, and the effects of a login.

use super::answering::Step;
use super::sasl::{self, SaslFault};
use super::{Answer, LoginQuestion, LoginRule, ServerAction, ServerKind, ServerSession, Stage, SubmissionStage};

impl ServerSession {
    /// Passes the caller's answer to [`ServerAction::CheckLogin`]. A positive one logs the client in; the third 535
    /// ends the session.
    pub fn answer_login(&mut self, answer: &Answer) {
        self.stage = Stage::Command;
        if answer.is_positive() {
            self.logged_in = true;
        } else if answer.code() == 535 && self.conduct.login_failed() {
            return self.say(&self.farewell("4.7.0", "Too many failed logins"));
        }
        self.say(answer);
    }

    /// Returns whether AUTH is offered now.
    pub(super) const fn offers_login(&self) -> bool {
        match &self.config.kind {
            ServerKind::Inbound => false,
            ServerKind::Submission(rules) => self.secured || !matches!(rules.login, LoginRule::InsideTls),
        }
    }

    /// Handles AUTH with its argument.
    pub(super) fn begin_login(&mut self, argument: &[u8]) {
        self.step = Some(Step { stage: SubmissionStage::Auth, path: None });
        if self.client.is_none() {
            self.fault(&Answer::new(503, "5.5.1", "Say EHLO first"));
        } else if !self.offers_login() {
            self.fault(&Answer::new(538, "5.7.11", "Encryption required: say STARTTLS before AUTH"));
        } else if self.logged_in {
            self.fault(&Answer::new(503, "5.5.1", "You are logged in already"));
        } else if self.transaction.is_some() {
            self.fault(&Answer::new(503, "5.5.1", "Log in before MAIL"));
        } else {
            self.continue_login(sasl::begin(argument));
        }
    }

    /// Handles the next step of the exchange.
    pub(super) fn continue_login(&mut self, step: Result<sasl::Step, SaslFault>) {
        match step {
            Ok(sasl::Step::Challenge(text, exchange)) => {
                self.stage = Stage::Exchange(exchange);
                self.say(&Answer::plain(334, text));
            }
            Ok(sasl::Step::Password(password)) => self.stage = Stage::LoginReady(password),
            Err(fault) => {
                self.stage = Stage::Command;
                self.fault(&fault.answer());
            }
        }
    }

    /// Passes the password to the caller, once.
    pub(super) fn login_question(&mut self) -> ServerAction {
        match std::mem::replace(&mut self.stage, Stage::CheckingLogin) {
            Stage::LoginReady(password) => {
                let client = self.client.clone().unwrap_or_default();
                ServerAction::CheckLogin(LoginQuestion { client, password })
            }
            _ => unreachable!("the password is handed over in its own stage"),
        }
    }
}
