//! One connection of submission: calls the engine's session and applies the limits of the connection.
//!
//! Logins are never logged: not the key, the user name or the client's address.

use std::future::{pending, ready};
use std::net::IpAddr;
use std::sync::Arc;

use super::logins::{LoginPermit, TooManyLogins};
use super::memory::Reservation;
use super::{DevAccess, Submission};
use crate::base::id::{AccountId, KeyId};
use crate::domain::api_key::KeySecret;
use crate::engine::ports::BoxFuture;
use crate::engine::smtp_submission::{Decision, LoginEnd, LoginOutcome, SmtpClient, SmtpSender, SmtpSession};
use crate::net::smtp_listener::MailHandler;
use crate::smtp::server::{
    Answer, LoginQuestion, LoginRule, Path, ReceivedMessage, RecipientQuestion, RefusedCommand, SenderQuestion,
};

/// The handler of one connection.
pub(super) struct Handler {
    submission: Arc<Submission>,
    dev: Option<Arc<DevAccess>>,
    address: IpAddr,
    /// Absent while a message is being accepted, and permanently if that was aborted.
    session: Option<SmtpSession>,
    /// The account of the login, and the permit among the key's connections, if a key was used.
    login: Option<(AccountId, Option<LoginPermit>)>,
    reservation: Option<Reservation>,
}

impl Handler {
    pub(super) fn new(submission: Arc<Submission>, dev: Option<Arc<DevAccess>>, address: IpAddr) -> Self {
        submission.engine.meters.submission.sessions_begun.count();
        let client = SmtpClient { name: String::new(), address, tls_version: None };
        let session = submission.engine.smtp_session(client);
        let mut handler = Self { submission, dev, address, session: Some(session), login: None, reservation: None };
        if handler.may_skip_login() {
            handler.use_default_key();
        }
        handler
    }

    fn may_skip_login(&self) -> bool {
        self.dev.as_ref().is_some_and(|dev| (dev.may_skip_login)(self.address))
    }

    /// Logs the session in with `dev`'s key.
    fn use_default_key(&mut self) -> Option<LoginOutcome> {
        let (dev, session) = (self.dev.as_ref()?, self.session.as_mut()?);
        let outcome = session.login(dev.key.expose());
        if let LoginOutcome::Good { account, .. } = outcome {
            self.login = Some((account, None));
        }
        Some(outcome)
    }

    fn log_in(&mut self, question: &LoginQuestion) -> Answer {
        let password = question.password.expose();
        // In `dev` a client may send a placeholder instead of a key. For clients that must log in it is just a wrong
        // password.
        let outcome = if self.may_skip_login() && !has_key_form(password) {
            self.use_default_key()
        } else {
            self.session.as_mut().map(|session| {
                session.client.name.clone_from(&question.client);
                session.login(password)
            })
        };
        match outcome {
            Some(LoginOutcome::Good { account, key }) => self.logged_in(account, key),
            Some(LoginOutcome::NoSendScope) => self.login_failed("This API key lacks the scope send"),
            Some(LoginOutcome::Refused) => self.login_failed("Log in with a valid API key as the password"),
            Some(LoginOutcome::Failed) | None => Answer::new(454, "4.7.0", "Cannot check the key now, try again later"),
        }
    }

    fn logged_in(&mut self, account: AccountId, key: KeyId) -> Answer {
        // A connection that logs in again holds one permit.
        self.login = None;
        let permit = match self.submission.logins.enter(account, key, self.submission.gate.free()) {
            Ok(permit) => permit,
            Err(limit) => {
                if let Some(session) = &mut self.session {
                    session.forget();
                }
                return self.farewell(match limit {
                    TooManyLogins::OfKey => "Too many connections with this API key, try again later",
                    TooManyLogins::OfAccount => "Too many connections of this account, try again later",
                });
            }
        };
        self.login = Some((account, Some(permit)));
        self.submission.engine.meters.submission.login(LoginEnd::Ok);
        Answer::new(235, "2.7.0", "Logged in")
    }

    fn login_failed(&self, text: &str) -> Answer {
        let engine = &self.submission.engine;
        if self.submission.failed_logins.failed(self.address, engine.clock.monotonic()) {
            engine.meters.submission.login(LoginEnd::Throttled);
            return self.farewell("Too many failed logins from your address, try again later");
        }
        engine.meters.submission.login(LoginEnd::Refused);
        Answer::new(535, "5.7.8", text)
    }

    fn farewell(&self, text: &str) -> Answer {
        Answer::new(421, "4.7.0", format!("{} {text}", self.submission.hostname))
    }

    /// Accepts a message in a separate task, so that a client that disconnects, or a listener that stops, does not
    /// abort it.
    async fn accept(&mut self, message: ReceivedMessage) -> Decision {
        let (Some(mut session), reservation) = (self.session.take(), self.reservation.take()) else {
            return Decision::CloseWithoutAnswer;
        };
        if let Some(reservation) = &reservation {
            reservation.complete();
        }
        let accepting = tokio::spawn(async move {
            let decision = session.message(message.bytes).await;
            drop(reservation);
            (session, decision)
        });
        match accepting.await {
            Ok((session, decision)) => {
                self.session = Some(session);
                decision
            }
            Err(error) => {
                tracing::error!(%error, "accepting a submission was aborted; its outcome is unknown");
                Decision::CloseWithoutAnswer
            }
        }
    }
}

impl MailHandler for Handler {
    fn login_rule(&self) -> Option<LoginRule> {
        self.dev.as_ref()?;
        Some(if self.may_skip_login() { LoginRule::Optional } else { LoginRule::InClear })
    }

    fn on_tls(&mut self, version: &str) {
        if let Some(session) = &mut self.session {
            session.forget();
            session.client.tls_version = Some(version.to_owned());
        }
    }

    fn on_login(&mut self, question: LoginQuestion) -> BoxFuture<'_, Answer> {
        Box::pin(ready(self.log_in(&question)))
    }

    fn on_sender(&mut self, question: SenderQuestion) -> BoxFuture<'_, Answer> {
        let Some(session) = &mut self.session else { return Box::pin(ready(broken())) };
        session.client.name = question.client;
        let mail_from = question.mail_from.as_ref().map(Path::to_string).unwrap_or_default();
        let size = u64::try_from(question.size).ok().filter(|size| *size > 0);
        Box::pin(ready(session.sender(SmtpSender { mail_from, size })))
    }

    fn on_recipient<'a>(&'a mut self, question: &'a RecipientQuestion) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let Some(session) = &mut self.session else { return broken() };
            if !self.submission.engine.may_accept().await {
                return Answer::replica_unavailable();
            }
            session.recipient(question.recipient.as_str())
        })
    }

    fn reserve(&mut self, bytes: usize) -> bool {
        let Some((account, _)) = &self.login else { return false };
        let memory = &self.submission.memory;
        let reservation = self.reservation.get_or_insert_with(|| Reservation::new(Arc::clone(memory), *account));
        reservation.grow(bytes)
    }

    fn on_data(&mut self, bytes: usize) {
        if let Some(reservation) = &self.reservation {
            reservation.received(bytes);
        }
    }

    fn revoked(&self) -> BoxFuture<'_, ()> {
        match &self.reservation {
            Some(reservation) => Box::pin(reservation.revoked()),
            None => Box::pin(pending()),
        }
    }

    fn release(&mut self) {
        self.reservation = None;
    }

    fn on_message(&mut self, message: ReceivedMessage) -> BoxFuture<'_, Decision> {
        Box::pin(self.accept(message))
    }

    fn on_refused(&mut self, refused: &[RefusedCommand]) {
        let Some(session) = &mut self.session else { return };
        for refused in refused {
            session.client.name.clone_from(&refused.client);
            session.note_refusal(refused.stage, &refused.answer, refused.mail_from.as_deref(), refused.to.as_deref());
        }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.submission.engine.meters.submission.sessions_ended.count();
    }
}

fn has_key_form(password: &[u8]) -> bool {
    std::str::from_utf8(password).is_ok_and(|text| text.trim().parse::<KeySecret>().is_ok())
}

/// Returns the answer of a session whose message was aborted. It is closed and never answers positively.
fn broken() -> Answer {
    Answer::new(421, "4.3.0", "The session has ended")
}
