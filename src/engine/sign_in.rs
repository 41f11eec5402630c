//! Signing in to the panel: the password, the second factor, and the sessions that follow (contract 9).
//!
//! Whoever fails learns nothing but that they failed: an unknown address costs the same time and gets the same answer
//! as a wrong password.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::Engine;
use super::audit::Behalf;
use super::passwords::Crowded;
use crate::base::id::{AccountId, UserId};
use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::session::{Client, Session, SessionKey, SessionToken, Stage};
use crate::domain::user::{User, may_be_password};
use crate::machine::throttle::{Throttle, Throttled};
use crate::store::error::{Stop, StoreError};
use crate::store::op::session::{BeginSession, EndSessions, Outdated, ProveSession, TouchSession, Which, sessions_of};
use crate::store::op::user::user_by_email;
use crate::store::read::Read as _;
use crate::store::schema;

/// Failures for one name in the throttle's window.
const FAILURES_OF_NAME: usize = 10;
/// Failures from one address in the throttle's window.
const FAILURES_OF_ADDRESS: usize = 50;
/// Names and addresses remembered at most.
const REMEMBERED_MAX: usize = 20_000;

/// Why somebody is not signed in.
#[derive(Debug)]
pub enum SignInRefusal {
    /// What was shown is wrong; which part of it is not told.
    Wrong,
    /// Too many failures of this name or address.
    Throttled(Throttled),
    /// Too many are signing in at once.
    Crowded,
}

impl From<Crowded> for Stop<SignInRefusal> {
    fn from(_: Crowded) -> Self {
        Self::Refused(SignInRefusal::Crowded)
    }
}

/// A session that has begun: the token for the cookie, and how far it is.
#[derive(Debug)]
pub struct Begun {
    /// What the cookie carries.
    pub token: SessionToken,
    /// Whether the second factor is still awaited.
    pub stage: Stage,
}

/// What somebody shows to prove once more who they are.
#[derive(Clone, Copy)]
pub struct Proof<'p> {
    /// Their password.
    pub password: &'p Secret,
    /// The code of their second factor; of no meaning where they have none.
    pub code: &'p str,
}

/// A session as a request finds it.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// What the session is found by.
    pub key: SessionKey,
    /// The session.
    pub session: Session,
    /// Whose it is.
    pub user: User,
}

/// The failures of names and addresses, by the hash of either. Memory alone.
#[derive(Default)]
pub(super) struct Throttles(Mutex<HashMap<[u8; 32], Throttle>>);

/// An attempt that is under way.
struct Attempt {
    names: [[u8; 32]; 2],
    begun: Duration,
}

impl Throttles {
    fn begin(&self, name: &str, address: &str, now: Duration) -> Result<Attempt, Throttled> {
        let hash = |kind: &str, text: &str| Sha256::digest(format!("{kind} {text}")).into();
        let names = [hash("name", name), hash("address", address)];
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() + 2 > REMEMBERED_MAX {
            all.retain(|_, throttle| !throttle.is_idle(now));
        }
        // So many at once are an attack; forgetting the rest of it is better than locking everybody out.
        if all.len() + 2 > REMEMBERED_MAX {
            all.clear();
        }
        all.entry(names[0]).or_default().attempt(FAILURES_OF_NAME, now)?;
        if let Err(throttled) = all.entry(names[1]).or_default().attempt(FAILURES_OF_ADDRESS, now) {
            all.entry(names[0]).or_default().succeeded(now);
            return Err(throttled);
        }
        Ok(Attempt { names, begun: now })
    }

    fn succeeded(&self, attempt: &Attempt) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for name in &attempt.names {
            if let Some(throttle) = all.get_mut(name) {
                throttle.succeeded(attempt.begun);
            }
        }
    }
}

impl Engine {
    /// Checks an address and a password, and begins a session: a whole one, or one that awaits the second factor.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn sign_in(
        &self,
        email: &str,
        password: &Secret,
        from: Client<'_>,
    ) -> Result<Begun, Stop<SignInRefusal>> {
        let address = email.trim().parse::<Address>().ok();
        let name = address.as_ref().map_or_else(|| email.trim().to_lowercase(), Address::match_key);
        let attempt = self.begin_attempt(&name, from)?;
        let found = match &address {
            Some(address) => user_by_email(&self.store.snapshot()?, &address.match_key())?,
            None => None,
        };
        let hash = found.as_ref().map(|(_, user)| user.password_hash.as_str());
        let is_worth_hashing = may_be_password(password.expose_text());
        let is_right = self.passwords.is_right(password, hash.filter(|_| is_worth_hashing)).await?;
        let known = found.filter(|(_, user)| is_right && !user.disabled);
        let Some((account, user)) = known else { return Err(Stop::Refused(SignInRefusal::Wrong)) };
        let stage = if user.totp.is_some() { Stage::CodeAwaited } else { Stage::SignedIn };
        let session = Session::begin(account, user.id, stage, from, self.clock.now());
        let begun = self.begin_session(session, &user, None, None).await?;
        self.throttles.succeeded(&attempt);
        Ok(begun)
    }

    /// Checks the second factor of a session that awaits it, and begins a whole one in its place.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn show_code(
        &self,
        visitor: &Visitor,
        code: &str,
        from: Client<'_>,
        real_now: Timestamp,
    ) -> Result<Begun, Stop<SignInRefusal>> {
        let attempt = self.begin_attempt(&format!("code of {}", visitor.user.id), from)?;
        let step = self.code_step(&visitor.user, code, real_now).ok_or(Stop::Refused(SignInRefusal::Wrong))?;
        let Session { account, user, .. } = visitor.session;
        let session = Session::begin(account, user, Stage::SignedIn, from, self.clock.now());
        let begun = self.begin_session(session, &visitor.user, Some(step), Some(visitor.key)).await?;
        self.throttles.succeeded(&attempt);
        Ok(begun)
    }

    /// Checks the password of somebody who is signed in.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn check_password(
        &self,
        visitor: &Visitor,
        password: &Secret,
        from: Client<'_>,
    ) -> Result<(), Stop<SignInRefusal>> {
        let attempt = self.begin_attempt(&visitor.user.email.match_key(), from)?;
        if !self.passwords.is_right(password, Some(&visitor.user.password_hash)).await? {
            return Err(Stop::Refused(SignInRefusal::Wrong));
        }
        self.throttles.succeeded(&attempt);
        Ok(())
    }

    /// Checks the password, and the code where there is a second factor, of somebody who is signed in, so that they may
    /// make and see secrets for a while. Which of the two was wrong is not told.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn prove(
        &self,
        visitor: &Visitor,
        shown: Proof<'_>,
        from: Client<'_>,
        real_now: Timestamp,
    ) -> Result<(), Stop<SignInRefusal>> {
        let user = &visitor.user;
        let attempt = self.begin_attempt(&user.email.match_key(), from)?;
        let is_right = self.passwords.is_right(shown.password, Some(&user.password_hash)).await?;
        let totp_step = self.code_step(user, shown.code, real_now);
        if !is_right || (user.totp.is_some() && totp_step.is_none()) {
            return Err(Stop::Refused(SignInRefusal::Wrong));
        }
        let password_hash = user.password_hash.clone();
        match self.store.commit(ProveSession { key: visitor.key, password_hash, totp_step }).await {
            Ok(()) => {
                self.throttles.succeeded(&attempt);
                Ok(())
            }
            Err(Stop::Refused(Outdated)) => Err(Stop::Refused(SignInRefusal::Wrong)),
            Err(Stop::Failed(error)) => Err(Stop::Failed(error)),
        }
    }

    fn begin_attempt(&self, name: &str, from: Client<'_>) -> Result<Attempt, Stop<SignInRefusal>> {
        let begun = self.throttles.begin(name, from.address, self.clock.monotonic());
        begun.map_err(|throttled| Stop::Refused(SignInRefusal::Throttled(throttled)))
    }

    pub(super) async fn begin_session(
        &self,
        session: Session,
        user: &User,
        totp_step: Option<u64>,
        replaces: Option<SessionKey>,
    ) -> Result<Begun, Stop<SignInRefusal>> {
        let token = SessionToken::generate(&*self.entropy);
        let (key, stage, password_hash) = (token.key(), session.stage, user.password_hash.clone());
        match self.store.commit(BeginSession { key, session, password_hash, totp_step, replaces }).await {
            Ok(()) => Ok(Begun { token, stage }),
            Err(Stop::Refused(Outdated)) => Err(Stop::Refused(SignInRefusal::Wrong)),
            Err(Stop::Failed(error)) => Err(Stop::Failed(error)),
        }
    }

    /// Whose session a token belongs to; none where it is unknown or over, or its user may not sign in any more.
    ///
    /// # Errors
    /// Those of the store.
    pub fn visitor(&self, token: &SessionToken) -> Result<Option<Visitor>, StoreError> {
        let (snapshot, key, now) = (self.store.snapshot()?, token.key(), self.clock.now());
        let Some(session) = snapshot.row::<Session>(&key)?.filter(|session| session.is_live(now)) else {
            return Ok(None);
        };
        let user = snapshot.row::<User>(&schema::user(session.account, session.user))?;
        let Some(user) = user.filter(|user| !user.disabled) else { return Ok(None) };
        if session.needs_seen_stamp(now) {
            // Unwritten, the next request tries again.
            self.store.post(TouchSession { key }, |_written| {});
        }
        Ok(Some(Visitor { key, session, user }))
    }

    /// Whether a session still opens anything. Unlike a visit, asking keeps no session alive.
    ///
    /// # Errors
    /// Those of the store.
    pub fn is_signed_in(&self, key: &SessionKey) -> Result<bool, StoreError> {
        let snapshot = self.store.snapshot()?;
        let session = snapshot.row::<Session>(key)?.filter(|session| session.is_live(self.clock.now()));
        let Some(session) = session.filter(|session| session.stage == Stage::SignedIn) else { return Ok(false) };
        let user = snapshot.row::<User>(&schema::user(session.account, session.user))?;
        Ok(user.is_some_and(|user| !user.disabled))
    }

    /// The live sessions of a user, newest first, with what each is found by.
    ///
    /// # Errors
    /// Those of the store.
    pub fn sessions(&self, account: AccountId, user: UserId) -> Result<Vec<(SessionKey, Session)>, StoreError> {
        let now = self.clock.now();
        let mut sessions = sessions_of(&self.store.snapshot()?, account, user)?;
        sessions.retain(|(_, session)| session.is_live(now) && session.stage == Stage::SignedIn);
        sessions.sort_by_key(|(_, session)| std::cmp::Reverse(session.created_at));
        Ok(sessions)
    }

    /// Ends one session of a user, which they leave or which another takes the place of. This is no change of the
    /// account, so the audit log has no line of it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn leave_session(&self, account: AccountId, user: UserId, key: SessionKey) -> Result<(), StoreError> {
        let op = EndSessions { account, user, which: Which::One(key) };
        self.store.commit(op).await.map_err(|stop| match stop {
            Stop::Failed(error) => error,
            Stop::Refused(never) => match never {},
        })
    }

    /// Ends sessions of a user.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn sign_out(&self, on: impl Into<Behalf>, user: UserId, which: Which) -> Result<(), StoreError> {
        let on = on.into();
        let op = EndSessions { account: on.account, user, which };
        self.commit_on(on, op).await.map_err(|stop| match stop {
            Stop::Failed(error) => error,
            Stop::Refused(never) => match never {},
        })
    }
}
