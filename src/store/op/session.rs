//! Browser sessions: beginning and ending them. Each has two rows, its own and the one that lists it under its user.
//! Only this file writes and removes them.

use serde::{Deserialize, Serialize};

use super::{Infallible, Op, alert, view};
use crate::base::id::{AccountId, UserId};
use crate::base::time::Timestamp;
use crate::domain::alert::{Condition, Severity, Sighting, Subject, SubjectKind};
use crate::domain::device::{DeviceKey, Devices};
use crate::domain::session::{Session, SessionKey, Stage};
use crate::domain::user::{SecondFactor, User};
use crate::domain::user_agent::browser_name;
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;

/// Maximum number of sessions of one user; a new one ends the oldest.
pub const SESSIONS_MAX: usize = 32;

/// Begins a session for a user who has authenticated.
#[derive(Debug, Serialize, Deserialize)]
pub struct BeginSession {
    /// Key of the session.
    pub key: SessionKey,
    /// The session.
    pub session: Session,
    /// The hash against which the password was checked. If the password has changed since, the session is refused.
    pub password_hash: String,
    /// Step of the code that was entered.
    pub totp_step: Option<u64>,
    /// The session that this one replaces.
    pub replaces: Option<SessionKey>,
    /// The browser, which is remembered from then on.
    pub device: Option<DeviceKey>,
}

/// Refusal of a session or proof: the checked credentials have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outdated;

impl Op for BeginSession {
    type Reply = ();
    type Refusal = Outdated;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Outdated>> {
        let Session { account, user: id, .. } = self.session;
        let user_key = schema::user(account, id);
        let Some(user) = tables.row::<User>(&user_key)? else { return Err(OpError::Refused(Outdated)) };
        check(&user, &self.password_hash, self.totp_step)?;
        if let Some(replaced) = &self.replaces {
            end(tables, replaced)?;
        }
        make_space(tables, account, id)?;
        tables.put(&self.key, &self.session);
        tables.put_bytes(Table::SessionsByUser, &schema::session_of_user(account, id, &self.key), Vec::new());
        if self.session.stage == Stage::SignedIn {
            let now = tables.now();
            let is_known = self.device.is_some_and(|device| user.devices.know(&device, now));
            if !is_known && user.last_sign_in_at.is_some() {
                alert::happened(tables, account, &new_sign_in(&user, &self.session))?;
            }
            let totp = stepped(user.totp, self.totp_step);
            let devices = remember(user.devices, self.device, now);
            let sign_ins = user.sign_ins.with(&self.session, now);
            tables.put(&user_key, &User { last_sign_in_at: Some(now), totp, devices, sign_ins, ..user });
        }
        Ok(())
    }
}

/// Returns the alert of a sign-in from a browser that is new for the user.
fn new_sign_in(user: &User, session: &Session) -> Sighting {
    let subject = Subject::new(SubjectKind::User, user.id, user.email.as_given());
    let browser = browser_name(&session.agent).unwrap_or_else(|| format!("browser {:?}", session.agent));
    let seen = format!("From {}, {browser}.", session.address);
    Sighting::new(Condition::NewSignIn, Severity::Info, "New sign-in to the panel", seen).of(subject)
}

/// Ends the expired sessions of a user, and the oldest ones if there are too many.
fn make_space(tables: &mut Tables<'_>, account: AccountId, user: UserId) -> Result<(), StoreError> {
    let mut live: Vec<(Timestamp, SessionKey)> = Vec::new();
    for (key, session) in sessions_of(tables, account, user)? {
        if session.is_live(tables.expiry()) {
            live.push((session.created_at, key));
        } else {
            end(tables, &key)?;
        }
    }
    live.sort_unstable();
    let surplus = (live.len() + 1).saturating_sub(SESSIONS_MAX);
    for (_, key) in live.into_iter().take(surplus) {
        end(tables, &key)?;
    }
    Ok(())
}

/// Ends sessions of one user.
#[derive(Debug, Serialize, Deserialize)]
pub struct EndSessions {
    /// The account.
    pub account: AccountId,
    /// The user; only their own sessions end.
    pub user: UserId,
    /// Selection of the sessions.
    pub which: SessionSelection,
}

/// Returns the browsers of a user, with `device` if there is one.
fn remember(devices: Devices, device: Option<DeviceKey>, now: Timestamp) -> Devices {
    match device {
        Some(key) => devices.with(key, now),
        None => devices,
    }
}

/// Selection of a user's sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionSelection {
    /// One session.
    One(SessionKey),
    /// All sessions except one. All remembered browsers are removed.
    AllBut(SessionKey),
}

impl Op for EndSessions {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        match &self.which {
            SessionSelection::AllBut(keep) => {
                end_sessions(tables, self.account, self.user, Some(keep))?;
                let user_key = schema::user(self.account, self.user);
                if let Some(user) = tables.row::<User>(&user_key)? {
                    tables.put(&user_key, &User { devices: Devices::default(), ..user });
                }
            }
            SessionSelection::One(key) => {
                let session = tables.row::<Session>(key)?;
                if session.is_some_and(|session| (session.account, session.user) == (self.account, self.user)) {
                    end(tables, key)?;
                }
            }
        }
        Ok(())
    }
}

/// Remembers the browser of a signed-in user.
#[derive(Debug, Serialize, Deserialize)]
pub struct RememberDevice {
    /// The user's session.
    pub session: SessionKey,
    /// The browser.
    pub device: DeviceKey,
}

impl Op for RememberDevice {
    type Reply = ();
    type Refusal = Outdated;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Outdated>> {
        let session = tables.row::<Session>(&self.session)?.ok_or(OpError::Refused(Outdated))?;
        let user_key = schema::user(session.account, session.user);
        let user = tables.row::<User>(&user_key)?.ok_or(OpError::Refused(Outdated))?;
        let devices = user.devices.with(self.device, tables.now());
        tables.put(&user_key, &User { devices, ..user });
        Ok(())
    }
}

/// Records the use of a session.
#[derive(Debug, Serialize, Deserialize)]
pub struct TouchSession {
    /// Key of the session.
    pub key: SessionKey,
}

impl Op for TouchSession {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        if let Some(session) = tables.row::<Session>(&self.key)? {
            tables.put(&self.key, &Session { seen_at: tables.now(), ..session });
        }
        Ok(())
    }
}

/// Records that the user of a session has authenticated again.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProveSession {
    /// Key of the session.
    pub key: SessionKey,
    /// The hash against which the password was checked.
    pub password_hash: String,
    /// Step of the code that was entered, if the user has a second factor.
    pub totp_step: Option<u64>,
}

impl Op for ProveSession {
    type Reply = ();
    type Refusal = Outdated;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Outdated>> {
        let session = tables.row::<Session>(&self.key)?.ok_or(OpError::Refused(Outdated))?;
        let user_key = schema::user(session.account, session.user);
        let user = tables.row::<User>(&user_key)?.ok_or(OpError::Refused(Outdated))?;
        check(&user, &self.password_hash, self.totp_step)?;
        let now = tables.now();
        tables.put(&self.key, &Session { seen_at: now, proved_at: now, ..session });
        tables.put(&user_key, &User { totp: stepped(user.totp, self.totp_step), ..user });
        Ok(())
    }
}

/// Checks that the credentials still belong to the user, and that no code is used twice.
fn check(user: &User, password_hash: &str, totp_step: Option<u64>) -> Result<(), OpError<Outdated>> {
    let is_replayed = match (totp_step, &user.totp) {
        (Some(step), Some(totp)) => step <= totp.last_step,
        (Some(_), None) | (None, _) => false,
    };
    if user.disabled || user.password_hash != password_hash || is_replayed {
        return Err(OpError::Refused(Outdated));
    }
    Ok(())
}

/// Returns the second factor after a code of this step.
fn stepped(totp: Option<SecondFactor>, step: Option<u64>) -> Option<SecondFactor> {
    totp.map(|totp| SecondFactor { last_step: step.unwrap_or(totp.last_step), ..totp })
}

/// Returns the sessions of a user with their keys; there are never many.
///
/// # Errors
/// Store errors.
pub fn sessions_of(
    read: &impl Read,
    account: AccountId,
    user: UserId,
) -> Result<Vec<(SessionKey, Session)>, StoreError> {
    let prefix = schema::user(account, user);
    let to = after_prefix(&prefix);
    let keys = read.keys(Table::SessionsByUser, &prefix, &to, Order::Ascending, SESSIONS_MAX + 1)?;
    let mut sessions = Vec::with_capacity(keys.len());
    for key in keys.iter().filter_map(|key| key.last_chunk::<32>()) {
        sessions.extend(read.row::<Session>(key)?.map(|session| (*key, session)));
    }
    Ok(sessions)
}

/// Ends all sessions of a user except `keep`.
pub(super) fn end_sessions(
    tables: &mut Tables<'_>,
    account: AccountId,
    user: UserId,
    keep: Option<&SessionKey>,
) -> Result<(), StoreError> {
    for (key, _) in sessions_of(tables, account, user)? {
        if keep != Some(&key) {
            end(tables, &key)?;
        }
    }
    Ok(())
}

fn end(tables: &mut Tables<'_>, key: &SessionKey) -> Result<(), StoreError> {
    if let Some(session) = tables.row::<Session>(key)? {
        let session = view::without_view(tables, key, session)?;
        tables.remove(Table::SessionsByUser, &schema::session_of_user(session.account, session.user, key));
        tables.remove(Table::Sessions, key);
    }
    Ok(())
}
