//! Signing in to the panel: the password, the second factor, and the session (contract 9).
//!
//! A failure reveals no details: an unknown address takes the same time and gets the same answer as a wrong password.
//! Attempts are throttled ([`super::throttles`]).

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::audit::Behalf;
use super::passwords::{HashQueueFull, HashQueueOwner};
use super::throttles::{Bucket, Throttles};
use crate::base::id::{AccountId, UserId};
use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::device::DeviceToken;
use crate::domain::session::{Client, OwnedClient, Session, SessionKey, SessionToken, Stage};
use crate::domain::user::{User, may_be_password};
use crate::machine::throttle::TooManyFailures;
use crate::store::error::{OpError, StoreError};
use crate::store::op::session::{
    BeginSession, EndSessions, Outdated, ProveSession, RememberDevice, SessionSelection, TouchSession, sessions_of,
};
use crate::store::op::user::user_by_email;
use crate::store::read::Read as _;
use crate::store::schema;

/// Reason why a sign-in is refused.
#[derive(Debug)]
pub enum SignInRefusal {
    /// The credentials are wrong. The answer does not show which part.
    Wrong,
    /// Too many failures of this name or address.
    Throttled(TooManyFailures),
    /// Too many sign-ins are being checked.
    Crowded,
}

impl From<TooManyFailures> for SignInRefusal {
    fn from(throttled: TooManyFailures) -> Self {
        Self::Throttled(throttled)
    }
}

impl SignInRefusal {
    /// Returns whether the credentials were wrong.
    const fn is_failure(&self) -> bool {
        matches!(self, Self::Wrong)
    }
}

impl From<HashQueueFull> for OpError<SignInRefusal> {
    fn from(_: HashQueueFull) -> Self {
        Self::Refused(SignInRefusal::Crowded)
    }
}

/// A started session: the token for the cookie, and its stage.
#[derive(Debug)]
pub struct StartedSession {
    /// Token for the session cookie.
    pub token: SessionToken,
    /// Whether the second factor is still missing.
    pub stage: Stage,
    /// Token that makes the browser known once the session is complete.
    pub browser: Option<DeviceToken>,
}

/// Credentials that confirm a user's identity again.
#[derive(Clone, Copy)]
pub struct IdentityProof<'p> {
    /// The user's password.
    pub password: &'p Secret,
    /// The code of their second factor; ignored if they have none.
    pub code: &'p str,
}

/// The session, user and key that belong to a request.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// Key of the session.
    pub key: SessionKey,
    /// The session.
    pub session: Session,
    /// User of the session.
    pub user: User,
}

impl Engine {
    /// Checks an address and a password, and starts a session: a complete one, or one that awaits the second factor.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn sign_in(
        self: &Arc<Self>,
        email: &str,
        password: &Secret,
        from: Client<'_>,
    ) -> Result<StartedSession, OpError<SignInRefusal>> {
        let address = email.trim().parse::<Address>().ok();
        let found = match &address {
            Some(address) => user_by_email(&self.store.snapshot()?, &address.match_key())?,
            None => None,
        };
        let known =
            found.as_ref().and_then(|(account, user)| Some((*account, user.id, self.known_browser(user, from)?)));
        let (buckets, line) = match &known {
            Some((account, user, browser)) => {
                (vec![Bucket::browser(&browser.key())], HashQueueOwner::Known(*account, *user))
            }
            None => {
                let name = address.as_ref().map_or_else(|| email.trim().to_lowercase(), Address::match_key);
                (Bucket::stranger(&name, from.address), HashQueueOwner::stranger(from.address))
            }
        };
        let (engine, password, from) = (Arc::clone(self), password.clone(), OwnedClient::from(from));
        let attempt = async move {
            let hash = found.as_ref().map(|(_, user)| user.password_hash.as_str());
            let is_worth_hashing = may_be_password(password.expose_text());
            let is_right = engine.passwords.is_right(&password, hash.filter(|_| is_worth_hashing), line).await?;
            let known = found.filter(|(_, user)| is_right && !user.disabled);
            let Some((account, user)) = known else { return Err(OpError::Refused(SignInRefusal::Wrong)) };
            let stage = if user.totp.is_some() { Stage::CodeAwaited } else { Stage::SignedIn };
            let session = Session::begin(account, user.id, stage, from.as_client(), engine.clock.now());
            engine.begin_session(session, &user, None, None, from.as_client()).await
        };
        self.throttled(&self.throttles, buckets, attempt, SignInRefusal::is_failure).await
    }

    /// Checks the second factor of a session that awaits it, and replaces it with a complete session.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn show_code(
        self: &Arc<Self>,
        visitor: &Visitor,
        code: &str,
        from: Client<'_>,
        real_now: Timestamp,
    ) -> Result<StartedSession, OpError<SignInRefusal>> {
        let buckets = match self.known_browser(&visitor.user, from) {
            Some(browser) => vec![Bucket::browser(&browser.key())],
            None => Bucket::stranger(&format!("code of {}", visitor.user.id), from.address),
        };
        let (engine, visitor) = (Arc::clone(self), visitor.clone());
        let (code, from) = (code.to_owned(), OwnedClient::from(from));
        let attempt = async move {
            let step =
                engine.code_step(&visitor.user, &code, real_now).ok_or(OpError::Refused(SignInRefusal::Wrong))?;
            let Session { account, user, .. } = visitor.session;
            let session = Session::begin(account, user, Stage::SignedIn, from.as_client(), engine.clock.now());
            engine.begin_session(session, &visitor.user, Some(step), Some(visitor.key), from.as_client()).await
        };
        self.throttled(&self.throttles, buckets, attempt, SignInRefusal::is_failure).await
    }

    /// Checks the password of a signed-in user.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn check_password(
        self: &Arc<Self>,
        visitor: &Visitor,
        password: &Secret,
    ) -> Result<(), OpError<SignInRefusal>> {
        let (engine, password) = (Arc::clone(self), password.clone());
        let (hash, line) =
            (visitor.user.password_hash.clone(), HashQueueOwner::Known(visitor.session.account, visitor.user.id));
        let attempt = async move {
            let is_right = engine.passwords.is_right(&password, Some(&hash), line).await?;
            if is_right { Ok(()) } else { Err(OpError::Refused(SignInRefusal::Wrong)) }
        };
        self.throttled(&self.throttles, vec![Bucket::session(&visitor.key)], attempt, SignInRefusal::is_failure).await
    }

    /// Checks the password of a signed-in user, and the code if there is a second factor. The user may then create and
    /// see secrets for a while. The answer does not show which of the two was wrong.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn prove(
        self: &Arc<Self>,
        visitor: &Visitor,
        shown: IdentityProof<'_>,
        real_now: Timestamp,
    ) -> Result<(), OpError<SignInRefusal>> {
        let (engine, key, user) = (Arc::clone(self), visitor.key, visitor.user.clone());
        let (password, code) = (shown.password.clone(), shown.code.to_owned());
        let line = HashQueueOwner::Known(visitor.session.account, visitor.user.id);
        let attempt = async move {
            let is_right = engine.passwords.is_right(&password, Some(&user.password_hash), line).await?;
            let totp_step = engine.code_step(&user, &code, real_now);
            if !is_right || (user.totp.is_some() && totp_step.is_none()) {
                return Err(OpError::Refused(SignInRefusal::Wrong));
            }
            let password_hash = user.password_hash.clone();
            let op = ProveSession { key, password_hash, totp_step };
            engine.store.commit(op).await.map_err(outdated)
        };
        self.throttled(&self.throttles, vec![Bucket::session(&visitor.key)], attempt, SignInRefusal::is_failure).await
    }

    /// Runs an attempt, and counts it as a failure unless it succeeds. An attempt that the service could not judge is
    /// not counted. The attempt runs to its end even if the client disconnects. So disconnecting gives no additional
    /// attempts, and never counts a good attempt as a failure.
    pub(super) async fn throttled<T: Send + 'static, R: From<TooManyFailures> + Send + 'static>(
        self: &Arc<Self>,
        throttles: &Arc<Throttles>,
        buckets: Vec<Bucket>,
        attempt: impl Future<Output = Result<T, OpError<R>>> + Send + 'static,
        is_failure: fn(&R) -> bool,
    ) -> Result<T, OpError<R>> {
        let begun = self.clock.monotonic();
        let counted = throttles.begin(&buckets, begun);
        counted.map_err(|throttled| OpError::Refused(throttled.into()))?;
        let counted = CountedAttempt { throttles: Arc::clone(throttles), buckets, begun, is_failure: false };
        let judged = tokio::spawn(async move {
            let outcome = attempt.await;
            counted.end(matches!(&outcome, Err(OpError::Refused(refusal)) if is_failure(refusal)));
            outcome
        });
        judged.await.unwrap_or(Err(OpError::Failed(StoreError::Panicked)))
    }

    /// Returns the browser's token, if this user has signed in with it before.
    pub(super) fn known_browser(&self, user: &User, from: Client<'_>) -> Option<DeviceToken> {
        DeviceToken::parse(from.device).filter(|token| user.devices.know(&token.key(), self.clock.now()))
    }

    /// Makes the browser of a session known under a new token, after the old tokens were removed. Returns `None` if the
    /// session is over.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn remember_browser(&self, session: SessionKey) -> Result<Option<DeviceToken>, StoreError> {
        let token = DeviceToken::generate(&*self.entropy);
        match self.store.commit(RememberDevice { session, device: token.key() }).await {
            Ok(()) => Ok(Some(token)),
            Err(OpError::Refused(Outdated)) => Ok(None),
            Err(OpError::Failed(error)) => Err(error),
        }
    }

    pub(super) async fn begin_session(
        &self,
        session: Session,
        user: &User,
        totp_step: Option<u64>,
        replaces: Option<SessionKey>,
        from: Client<'_>,
    ) -> Result<StartedSession, OpError<SignInRefusal>> {
        let token = SessionToken::generate(&*self.entropy);
        let (key, stage, password_hash) = (token.key(), session.stage, user.password_hash.clone());
        // A browser becomes known only after all credentials were checked, including the second factor.
        let new = || self.known_browser(user, from).unwrap_or_else(|| DeviceToken::generate(&*self.entropy));
        let browser = (stage == Stage::SignedIn).then(new);
        let device = browser.as_ref().map(DeviceToken::key);
        let op = BeginSession { key, session, password_hash, totp_step, replaces, device };
        self.store.commit(op).await.map_err(outdated)?;
        Ok(StartedSession { token, stage, browser })
    }

    /// Returns the session of a token; `None` if it is unknown or over, or its user may no longer sign in.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn visitor(&self, token: &SessionToken) -> Result<Option<Visitor>, StoreError> {
        let (snapshot, key, now) = (self.store.snapshot()?, token.key(), self.clock.now());
        let Some(session) = snapshot.row::<Session>(&key)?.filter(|session| session.is_live(now)) else {
            return Ok(None);
        };
        let user = snapshot.row::<User>(&schema::user(session.account, session.user))?;
        let Some(user) = user.filter(|user| !user.disabled) else { return Ok(None) };
        if session.needs_seen_stamp(now) {
            // If the write fails, the next request tries again.
            self.store.post(TouchSession { key }, |_written| {});
        }
        Ok(Some(Visitor { key, session, user }))
    }

    /// Returns whether a session still shows an account: its own, or that of a view that has not ended. Unlike a visit,
    /// this does not extend the session.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn still_sees(&self, key: SessionKey, account: AccountId) -> Result<bool, StoreError> {
        let (snapshot, now) = (self.store.snapshot()?, self.clock.now());
        let session = snapshot.row::<Session>(&key)?.filter(|session| session.is_live(now));
        let Some(session) = session.filter(|session| session.stage == Stage::SignedIn) else { return Ok(false) };
        let user = snapshot.row::<User>(&schema::user(session.account, session.user))?;
        let visitor = user.filter(|user| !user.disabled).map(|user| Visitor { key, session, user });
        Ok(visitor.is_some_and(|visitor| visitor.sees(now) == account))
    }

    /// Returns the live sessions of a user with their keys, newest first.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn sessions(&self, account: AccountId, user: UserId) -> Result<Vec<(SessionKey, Session)>, StoreError> {
        let now = self.clock.now();
        let mut sessions = sessions_of(&self.store.snapshot()?, account, user)?;
        sessions.retain(|(_, session)| session.is_live(now) && session.stage == Stage::SignedIn);
        sessions.sort_by_key(|(_, session)| std::cmp::Reverse(session.created_at));
        Ok(sessions)
    }

    /// Ends one session of a user, because they sign out or another session replaces it. The account does not change,
    /// so the audit log gets no line.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn leave_session(&self, account: AccountId, user: UserId, key: SessionKey) -> Result<(), StoreError> {
        let op = EndSessions { account, user, which: SessionSelection::One(key) };
        self.store.commit(op).await.map_err(|stop| match stop {
            OpError::Failed(error) => error,
            OpError::Refused(never) => match never {},
        })
    }

    /// Ends sessions of a user.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn sign_out(
        &self,
        on: impl Into<Behalf>,
        user: UserId,
        which: SessionSelection,
    ) -> Result<(), StoreError> {
        let on = on.into();
        let op = EndSessions { account: on.account, user, which };
        self.commit_on(on, op).await.map_err(|stop| match stop {
            OpError::Failed(error) => error,
            OpError::Refused(never) => match never {},
        })
    }
}

/// An attempt that is counted. Dropping it cancels the count unless the attempt failed.
struct CountedAttempt {
    throttles: Arc<Throttles>,
    buckets: Vec<Bucket>,
    begun: Duration,
    is_failure: bool,
}

impl CountedAttempt {
    fn end(mut self, is_failure: bool) {
        self.is_failure = is_failure;
    }
}

impl Drop for CountedAttempt {
    fn drop(&mut self) {
        if !self.is_failure {
            self.throttles.take_back(&self.buckets, self.begun);
        }
    }
}

#[cfg(test)]
impl Engine {
    /// Takes all sign-in permits until the result is dropped.
    pub(crate) fn occupy_password_checks(&self) -> impl Sized {
        self.passwords.occupy()
    }
}

fn outdated(stop: OpError<Outdated>) -> OpError<SignInRefusal> {
    match stop {
        OpError::Refused(Outdated) => OpError::Refused(SignInRefusal::Wrong),
        OpError::Failed(error) => OpError::Failed(error),
    }
}
