//! Panel users: creating, listing, changing and removing them.

use super::Engine;
use super::audit::Behalf;
use super::listing::{self, Page, PageRequest};
use super::passwords::HashQueueFull;
use crate::base::id::{AccountId, UserId};
use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::base::totp;
use crate::domain::address::Address;
use crate::domain::audit::Actor;
use crate::domain::device::Devices;
use crate::domain::session::SessionKey;
use crate::domain::sign_in_log::SignInLog;
use crate::domain::user::{NewPassword, Role, SecondFactor, User};
use crate::store::error::{OpError, StoreError};
use crate::store::op::invitation::ProvingAddress;
use crate::store::op::user::{CreateUser, CreateUserRefusal, DeleteUser, UpdateUser, UserChangeRefusal, user_by_email};
use crate::store::read::Read as _;
use crate::store::schema;

/// Changes of a user; `None` leaves a member unchanged.
#[derive(Clone, Debug, Default)]
pub struct UserChange {
    /// Role of the user.
    pub role: Option<Role>,
    /// Whether the user is disabled, and so can't sign in.
    pub disabled: Option<bool>,
    /// Whether the user is an operator.
    pub operator: Option<bool>,
    /// A new password.
    pub password: Option<NewPassword>,
    /// Hash of the password that may be replaced; `None` if any may be.
    pub instead_of: Option<String>,
    /// A new second factor (its secret and the step of the code that confirmed it); `Some(None)` removes it.
    pub totp: Option<Option<(Secret, u64)>>,
    /// The only session that continues after a password change.
    pub keep: Option<SessionKey>,
    /// Whether the change proves that the user reads mail at their address.
    pub proves_address: bool,
}

/// Reason why a user is not created or changed.
#[derive(Debug)]
pub enum UserRefusal {
    /// The account or user does not exist.
    NotFound,
    /// Another user signs in with this address.
    EmailTaken,
    /// The account has the maximum number of users.
    TooMany,
    /// The user is the account's last owner who can sign in.
    LastOwner,
    /// Too many passwords are being hashed.
    Crowded,
}

impl From<HashQueueFull> for OpError<UserRefusal> {
    fn from(_: HashQueueFull) -> Self {
        Self::Refused(UserRefusal::Crowded)
    }
}

impl Engine {
    /// Creates a user with a generated password, which is returned only once.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn create_user(
        &self,
        on: impl Into<Behalf>,
        email: Address,
        role: Role,
    ) -> Result<(User, NewPassword), OpError<UserRefusal>> {
        let on = on.into();
        let (user, password) = self.new_user(on.account, email, role).await?;
        let op = CreateUser { account: on.account, user };
        // Addresses given on the command line count as proven by the operator.
        let created = match on.actor {
            Actor::Operator => self.commit_on(on, ProvingAddress(op)).await,
            Actor::Person(_) | Actor::Key(_) | Actor::Service | Actor::SetupLink { .. } => self.commit_on(on, op).await,
        };
        match created {
            Ok(user) => Ok((user, password)),
            Err(OpError::Refused(CreateUserRefusal::NoSuchAccount)) => Err(OpError::Refused(UserRefusal::NotFound)),
            Err(OpError::Refused(CreateUserRefusal::EmailTaken)) => Err(OpError::Refused(UserRefusal::EmailTaken)),
            Err(OpError::Refused(CreateUserRefusal::TooMany)) => Err(OpError::Refused(UserRefusal::TooMany)),
            Err(OpError::Failed(error)) => Err(OpError::Failed(error)),
        }
    }

    /// Returns a user of `account` with a generated password, who is not in the store yet.
    pub(super) async fn new_user(
        &self,
        account: AccountId,
        email: Address,
        role: Role,
    ) -> Result<(User, NewPassword), HashQueueFull> {
        let password = NewPassword::generate(&*self.entropy);
        let password_hash = self.passwords.hash(account, &password, &*self.entropy).await?;
        let now = self.clock.now();
        let user = User {
            id: self.store.reserve_id(now),
            email,
            role,
            password_hash,
            totp: None,
            created_at: now,
            last_sign_in_at: None,
            disabled: false,
            devices: Devices::default(),
            is_operator: false,
            sign_ins: SignInLog::default(),
        };
        Ok((user, password))
    }

    /// Returns a user of the account.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn user(&self, account: AccountId, id: UserId) -> Result<Option<User>, StoreError> {
        self.store.snapshot()?.row(&schema::user(account, id))
    }

    /// Returns the user who signs in with an address, and their account.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn user_by_email(&self, email: &Address) -> Result<Option<(AccountId, User)>, StoreError> {
        user_by_email(&self.store.snapshot()?, &email.match_key())
    }

    /// Returns a page of the account's users.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn users(&self, account: AccountId, page: PageRequest) -> Result<Page<User>, StoreError> {
        let Page { rows, next } = listing::rows(&self.store.snapshot()?, account.as_bytes(), page)?;
        Ok(Page { rows: rows.into_iter().map(|(_, user)| user).collect(), next })
    }

    /// Changes a user. A new password, or disabling the user, ends all other sessions.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn change_user(
        &self,
        on: impl Into<Behalf>,
        user: UserId,
        change: UserChange,
    ) -> Result<User, OpError<UserRefusal>> {
        let on = on.into();
        let UserChange { role, disabled, operator, password, instead_of, totp, keep, proves_address } = change;
        let password_hash = match &password {
            Some(password) => Some(self.passwords.hash(on.account, password, &*self.entropy).await?),
            None => None,
        };
        let seal = |(secret, last_step): (Secret, u64)| {
            let context = SecondFactor::context(user);
            let secret = self.store.master_key().seal(&context, secret.expose(), &*self.entropy);
            SecondFactor { secret, last_step }
        };
        let totp = totp.map(|factor| factor.map(seal));
        let keeps_owner = keeps_owner(&on);
        let account = on.account;
        let op =
            UpdateUser { account, user, role, disabled, operator, password_hash, instead_of, totp, keep, keeps_owner };
        let is_vouched = proves_address || matches!(on.actor, Actor::Operator);
        let changed =
            if is_vouched { self.commit_on(on, ProvingAddress(op)).await } else { self.commit_on(on, op).await };
        changed.map_err(refused)
    }

    /// Removes a user, and ends all their sessions.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn delete_user(&self, on: impl Into<Behalf>, user: UserId) -> Result<(), OpError<UserRefusal>> {
        let on = on.into();
        let op = DeleteUser { account: on.account, user, keeps_owner: keeps_owner(&on) };
        self.commit_on(on, op).await.map(drop).map_err(refused)
    }

    /// Returns the step of a code of the user's second factor at `real_now`; `None` if the code is wrong. Codes use the
    /// real time even under a virtual clock, because the authenticator app does.
    pub(super) fn code_step(&self, user: &User, code: &str, real_now: Timestamp) -> Option<u64> {
        let factor = user.totp.as_ref()?;
        let opened = self.store.master_key().open(&SecondFactor::context(user.id), &factor.secret.0);
        match opened {
            Ok(secret) => totp::accepted_step(&secret, code, real_now, factor.last_step),
            Err(error) => {
                tracing::error!(%error, "could not decrypt a second factor; its codes are rejected");
                None
            }
        }
    }
}

/// Returns whether the account must keep an owner. Only the operator may remove the last one.
fn keeps_owner(on: &Behalf) -> bool {
    !matches!(on.actor, Actor::Operator)
}

fn refused(stop: OpError<UserChangeRefusal>) -> OpError<UserRefusal> {
    match stop {
        OpError::Refused(UserChangeRefusal::NotFound) => OpError::Refused(UserRefusal::NotFound),
        OpError::Refused(UserChangeRefusal::LastOwner) => OpError::Refused(UserRefusal::LastOwner),
        OpError::Failed(error) => OpError::Failed(error),
    }
}
