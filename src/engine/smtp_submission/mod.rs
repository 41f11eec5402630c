//! The engine's side of SMTP submission: logins, recipients and messages of one connection.
//!
//! `net` creates one [`SmtpSession`] for each connection, calls it at AUTH, MAIL, RCPT and the final dot, and sends the
//! [`Answer`]s. The protocol layer alone decides on syntax, command order and connection limits. It reports its
//! refusals to [`SmtpSession::note_refusal`].

mod accepting;
mod copies;
mod message;
mod meters;
mod recipient;
mod refusals;
mod reply;

pub use crate::smtp::server::SubmissionStage;
pub use meters::{LoginEnd, SubmissionMeters};
pub use refusals::{Refusals, SmtpRefusal};

use std::net::IpAddr;
use std::sync::Arc;

use super::{Caller, Engine};
use crate::base::id::{AccountId, KeyId};
use crate::domain::api_key::Scope;
use crate::domain::limits::MESSAGE_BYTES;
use crate::smtp::server::Answer;
use crate::store::error::StoreError;
use recipient::Transaction;

/// The client of a connection. Its name may change with EHLO, its TLS version with STARTTLS.
#[derive(Clone, Debug)]
pub struct SmtpClient {
    /// The name given in EHLO or HELO.
    pub name: String,
    /// The address from which the client connects.
    pub address: IpAddr,
    /// The TLS version, such as `TLSv1.3`; `None` without TLS.
    pub tls_version: Option<String>,
}

/// The result of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginOutcome {
    /// The session uses this key from now on.
    Good {
        /// The key's account.
        account: AccountId,
        /// The key.
        key: KeyId,
    },
    /// The key is valid, but lacks the scope `send`.
    NoSendScope,
    /// The key is unknown, revoked, expired or malformed. The answer to the client does not show which of these
    /// applies.
    Refused,
    /// The store failed.
    Failed,
}

/// The arguments of MAIL.
#[derive(Clone, Debug, Default)]
pub struct SmtpSender {
    /// The path without its angle brackets; empty for `<>`.
    pub mail_from: String,
    /// The parameter SIZE, in bytes.
    pub size: Option<u64>,
}

/// The answer to a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Send this answer.
    Answer(Answer),
    /// Close the connection without an answer, because it is unknown whether the message is committed.
    CloseWithoutAnswer,
}

/// One connection's login and transaction.
pub struct SmtpSession {
    /// The client, with its current name and TLS version.
    pub client: SmtpClient,
    engine: Arc<Engine>,
    login: Option<Login>,
    /// The owner of the last presented key, valid or not.
    presented: Option<Caller>,
    transaction: Option<Transaction>,
}

/// A successful login.
struct Login {
    hash: [u8; 32],
    caller: Caller,
}

impl Engine {
    /// Starts a session without a login.
    pub fn smtp_session(self: &Arc<Self>, client: SmtpClient) -> SmtpSession {
        SmtpSession { client, engine: Arc::clone(self), login: None, presented: None, transaction: None }
    }
}

impl SmtpSession {
    /// Logs in with an API key. White space around it is ignored. A failed login leaves an earlier one in place.
    ///
    /// The protocol layer answers and counts the login in [`SubmissionMeters::login`]. It reports a refusal to
    /// [`Self::note_refusal`] with the stage [`SubmissionStage::Auth`]. The refusal is listed for the account of this
    /// key, even if the key is revoked or expired.
    pub fn login(&mut self, password: &[u8]) -> LoginOutcome {
        self.presented = None;
        let secret = str::from_utf8(password).ok().and_then(|text| self.engine.secret_of(text.trim()));
        let Some(secret) = secret else { return LoginOutcome::Refused };
        let hash = secret.hash();
        match self.engine.key_owner(&hash) {
            Ok(None) => LoginOutcome::Refused,
            Ok(Some(caller)) => {
                let outcome = self.judge(&caller);
                if matches!(outcome, LoginOutcome::Good { .. }) {
                    self.login = Some(Login { hash, caller: caller.clone() });
                    self.transaction = None;
                }
                self.presented = Some(caller);
                outcome
            }
            Err(error) => {
                tracing::error!(
                    %error,
                    "could not look up the key of an SMTP login; the client can log in again later"
                );
                LoginOutcome::Failed
            }
        }
    }

    fn judge(&self, caller: &Caller) -> LoginOutcome {
        match caller.key.as_deref() {
            Some(key) if !key.is_live(self.engine.clock.now()) => LoginOutcome::Refused,
            Some(key) if !key.scopes.contains(Scope::Send) => LoginOutcome::NoSendScope,
            Some(key) => LoginOutcome::Good { account: caller.account, key: key.id },
            None => LoginOutcome::Refused,
        }
    }

    /// Discards the transaction: after RSET, EHLO and HELO.
    pub fn reset(&mut self) {
        self.transaction = None;
    }

    /// Discards the transaction and the login after STARTTLS.
    pub fn forget(&mut self) {
        self.transaction = None;
        self.login = None;
        self.presented = None;
    }

    /// Starts a transaction, after looking up the key again. The sender's path is not checked.
    pub fn sender(&mut self, sender: SmtpSender) -> Answer {
        self.transaction = None;
        let answer = match self.check_sender(&sender) {
            Ok(()) => Answer::new(250, "2.1.0", "OK"),
            Err(answer) => answer,
        };
        if answer.is_positive() {
            self.transaction = Some(Transaction::new(sender));
        } else {
            self.refused(
                SubmissionStage::Mail,
                &answer,
                SmtpRefusal { mail_from: sender.mail_from, ..SmtpRefusal::default() },
            );
        }
        answer
    }

    fn check_sender(&mut self, sender: &SmtpSender) -> Result<(), Answer> {
        let Some(login) = &self.login else {
            return Err(Answer::new(
                530,
                "5.7.0",
                "Log in first: AUTH PLAIN or LOGIN, with an API key as the password",
            ));
        };
        let owner = self.engine.key_owner(&login.hash).map_err(|error| failed(&error))?;
        let owner = owner.filter(|caller| matches!(self.judge(caller), LoginOutcome::Good { .. }));
        let Some(caller) = owner else {
            self.login = None;
            return Err(Answer::key_has_ended());
        };
        self.login = Some(Login { hash: login.hash, caller: caller.clone() });
        self.engine.stamp_key(&caller);
        let limit = u64::try_from(MESSAGE_BYTES).unwrap_or(u64::MAX);
        if sender.size.is_some_and(|size| size > limit) {
            return Err(Answer::new(552, "5.3.4", "The message is too large: the limit is 20 MiB"));
        }
        self.engine.check_space().map_err(|error| failed(&error))
    }

    /// Reports a refusal by the protocol layer, for the metrics and the account's list. Answers of [`Self::sender`],
    /// [`Self::recipient`] and [`Self::message`] are counted already.
    pub fn note_refusal(&self, stage: SubmissionStage, answer: &Answer, mail_from: Option<&str>, to: Option<&str>) {
        let refusal = SmtpRefusal {
            mail_from: mail_from.unwrap_or_default().to_owned(),
            to: to.unwrap_or_default().to_owned(),
            ..SmtpRefusal::default()
        };
        self.refused(stage, answer, refusal);
    }

    fn refused(&self, stage: SubmissionStage, answer: &Answer, refusal: SmtpRefusal) {
        let engine = &self.engine;
        engine.meters.submission.refused(stage, answer.code());
        let logged_in = self.login.as_ref().map(|login| &login.caller);
        let presented = self.presented.as_ref();
        let owner = if stage == SubmissionStage::Auth { presented.or(logged_in) } else { logged_in.or(presented) };
        let Some((caller, key)) = owner.and_then(|caller| Some((caller, caller.key.as_ref()?))) else { return };
        engine.smtp_refusals.add(
            caller.account,
            SmtpRefusal {
                at: engine.clock.now(),
                stage,
                reply: refusals::text_of(answer),
                key: key.id,
                key_prefix: key.prefix.clone(),
                client_address: self.client.address.to_string(),
                client_name: self.client.name.clone(),
                ..refusal
            },
        );
    }
}

/// Returns the answer to a failure of the service: the client should send the message later.
fn failed(error: &StoreError) -> Answer {
    match error {
        StoreError::Full => Answer::new(452, "4.3.1", "The service's disk is nearly full; try again later"),
        StoreError::Unconfirmed => Answer::replica_unavailable(),
        StoreError::Database(_)
        | StoreError::DatabaseFull
        | StoreError::Corrupted(_)
        | StoreError::Row { .. }
        | StoreError::Damaged { .. }
        | StoreError::Content(_)
        | StoreError::Unsynced(_)
        | StoreError::Panicked
        | StoreError::InDoubt
        | StoreError::Closed => {
            tracing::error!(%error, "could not process an SMTP submission; the client will retry");
            Answer::new(451, "4.3.0", "The service failed; try again later")
        }
    }
}
