//! Users of the panel. Every user has two rows: one of their own, and one that finds them by their address. Only this
//! file writes and removes them, so they always agree.

use serde::{Deserialize, Serialize};

use super::identity::unbind;
use super::invitation::is_proven;
use super::session::end_sessions;
use super::{Op, view};
use crate::base::id::{AccountId, Ulid, UserId};
use crate::domain::account::Account;
use crate::domain::device::Devices;
use crate::domain::limits::USERS_COUNT;
use crate::domain::session::SessionKey;
use crate::domain::user::{Role, SecondFactor, User};
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;

/// Creates a user.
#[derive(Debug, Serialize, Deserialize)]
pub struct CreateUser {
    /// The account.
    pub account: AccountId,
    /// The user with a reserved identifier.
    pub user: User,
}

/// Reason why a user can't be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateUserRefusal {
    /// There is no such account.
    NoSuchAccount,
    /// This address is already used for signing in, in this account or another.
    EmailTaken,
    /// The account has [`USERS_COUNT`] users.
    TooMany,
}

impl Op for CreateUser {
    type Reply = User;
    type Refusal = CreateUserRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<User, OpError<CreateUserRefusal>> {
        if tables.row::<Account>(self.account.as_bytes())?.is_none() {
            return Err(OpError::Refused(CreateUserRefusal::NoSuchAccount));
        }
        let match_key = self.user.email.match_key();
        if tables.get(Table::UsersByEmail, match_key.as_bytes())?.is_some() {
            return Err(OpError::Refused(CreateUserRefusal::EmailTaken));
        }
        let (from, to) = (self.account.as_bytes(), after_prefix(self.account.as_bytes()));
        if tables.keys(Table::Users, from, &to, Order::Ascending, USERS_COUNT)?.len() >= USERS_COUNT {
            return Err(OpError::Refused(CreateUserRefusal::TooMany));
        }
        let user = User { created_at: tables.now(), ..self.user.clone() };
        let key = schema::user(self.account, user.id);
        tables.put(&key, &user);
        tables.put_bytes(Table::UsersByEmail, match_key.as_bytes(), key.to_vec());
        Ok(user)
    }
}

/// Changes a user. Absent members stay unchanged.
#[derive(Debug, Serialize, Deserialize)]
pub struct UpdateUser {
    /// The account.
    pub account: AccountId,
    /// The user.
    pub user: UserId,
    /// Role of the user.
    pub role: Option<Role>,
    /// Whether the user may not sign in.
    pub disabled: Option<bool>,
    /// Whether the user is an operator.
    pub operator: Option<bool>,
    /// The hash of a new password.
    pub password_hash: Option<String>,
    /// The hash that the user must still have; otherwise the user counts as not found.
    pub instead_of: Option<String>,
    /// A new second factor; `Some(None)` removes it.
    pub totp: Option<Option<SecondFactor>>,
    /// The only session that is kept after a new password or when the user is disabled.
    pub keep: Option<SessionKey>,
    /// Whether the account must keep an owner who can sign in.
    pub keeps_owner: bool,
}

impl UpdateUser {
    /// Returns a change that changes nothing.
    pub const fn of(account: AccountId, user: UserId) -> Self {
        Self {
            account,
            user,
            role: None,
            disabled: None,
            operator: None,
            password_hash: None,
            instead_of: None,
            totp: None,
            keep: None,
            keeps_owner: false,
        }
    }
}

/// Reason why a user is not changed or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserChangeRefusal {
    /// There is no such user.
    NotFound,
    /// The user is the account's last owner who can sign in.
    LastOwner,
}

impl From<UserChangeRefusal> for OpError<UserChangeRefusal> {
    fn from(refusal: UserChangeRefusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Returns whether a user is an owner who can sign in. An invited one can't before the link is opened.
fn is_active_owner(read: &impl Read, user: &User) -> Result<bool, StoreError> {
    let may = user.role == Role::Owner && !user.disabled;
    Ok(may && (user.last_sign_in_at.is_some() || is_proven(read, &user.email)?))
}

/// Refuses to remove the account's last owner who can sign in.
fn check_other_owner(read: &impl Read, account: AccountId, user: UserId) -> Result<(), OpError<UserChangeRefusal>> {
    let users = read.sound_rows::<User>(account.as_bytes(), USERS_COUNT)?;
    for (_, other) in users.iter().filter(|(_, other)| other.id != user) {
        if is_active_owner(read, other)? {
            return Ok(());
        }
    }
    Err(UserChangeRefusal::LastOwner.into())
}

impl Op for UpdateUser {
    type Reply = User;
    type Refusal = UserChangeRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<User, OpError<UserChangeRefusal>> {
        let key = schema::user(self.account, self.user);
        let is_meant = |user: &User| self.instead_of.as_ref().is_none_or(|hash| *hash == user.password_hash);
        let Some(old) = tables.row::<User>(&key)?.filter(is_meant) else {
            return Err(UserChangeRefusal::NotFound.into());
        };
        let was_owner = is_active_owner(tables, &old)?;
        let user = User {
            role: self.role.unwrap_or(old.role),
            disabled: self.disabled.unwrap_or(old.disabled),
            is_operator: self.operator.unwrap_or(old.is_operator),
            password_hash: self.password_hash.clone().unwrap_or(old.password_hash),
            totp: self.totp.clone().unwrap_or(old.totp),
            // A browser known under the old password must not get its own attempts at the new one.
            devices: if self.password_hash.is_some() { Devices::default() } else { old.devices },
            ..old
        };
        if self.keeps_owner && was_owner && !is_active_owner(tables, &user)? {
            check_other_owner(tables, self.account, self.user)?;
        }
        if user.disabled || self.password_hash.is_some() {
            end_sessions(tables, self.account, self.user, self.keep.as_ref())?;
        }
        if !user.is_operator {
            view::end_views(tables, self.account, self.user)?;
        }
        tables.put(&key, &user);
        Ok(user)
    }
}

/// Removes a user, and signs them out everywhere.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeleteUser {
    /// The account.
    pub account: AccountId,
    /// The user.
    pub user: UserId,
    /// Whether the account must keep an owner who can sign in.
    pub keeps_owner: bool,
}

impl Op for DeleteUser {
    /// The removed user.
    type Reply = User;
    type Refusal = UserChangeRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<User, OpError<UserChangeRefusal>> {
        let key = schema::user(self.account, self.user);
        let Some(user) = tables.row::<User>(&key)? else { return Err(UserChangeRefusal::NotFound.into()) };
        if self.keeps_owner && is_active_owner(tables, &user)? {
            check_other_owner(tables, self.account, self.user)?;
        }
        end_sessions(tables, self.account, self.user, None)?;
        unbind(tables, self.account, self.user)?;
        tables.remove(Table::Users, &key);
        tables.remove(Table::SavedSearches, &key);
        tables.remove(Table::UsersByEmail, user.email.match_key().as_bytes());
        tables.remove(Table::ProvenAddresses, user.email.match_key().as_bytes());
        Ok(user)
    }
}

/// Returns the user who signs in with an address in this matching form, and their account.
///
/// # Errors
/// Store errors.
pub fn user_by_email(read: &impl Read, match_key: &str) -> Result<Option<(AccountId, User)>, StoreError> {
    let Some(key) = read.get(Table::UsersByEmail, match_key.as_bytes())? else { return Ok(None) };
    let Some(user) = read.row::<User>(&key)? else { return Ok(None) };
    let account = key.first_chunk::<16>().map(|account| AccountId(Ulid(*account)));
    Ok(account.map(|account| (account, user)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;
    use crate::domain::account::QuotaLimits;
    use crate::domain::sign_in_log::SignInLog;
    use crate::store::op::invitation::ProvingAddress;
    use crate::store::testing::TestStore;

    fn user(email: &str, id: u8) -> User {
        User {
            id: UserId(Ulid([id; 16])),
            email: email.parse().unwrap(),
            role: Role::Owner,
            password_hash: "$argon2id$x".to_owned(),
            totp: None,
            created_at: Timestamp::ZERO,
            last_sign_in_at: None,
            disabled: false,
            devices: Devices::default(),
            is_operator: false,
            sign_ins: SignInLog::default(),
        }
    }

    #[test]
    fn an_address_signs_in_to_one_account_in_any_spelling() {
        let test = TestStore::new();
        let (account, other) = (test.account(QuotaLimits::default()), test.account(QuotaLimits::default()));
        let ann = test.done(CreateUser { account, user: user("Ann@Example.com", 1) });
        let again = test.commit(CreateUser { account: other, user: user("ann@example.COM", 2) });
        assert!(matches!(again, Err(OpError::Refused(CreateUserRefusal::EmailTaken))));
        let snapshot = test.store().snapshot().unwrap();
        let found = user_by_email(&snapshot, &ann.email.match_key()).unwrap().unwrap();
        assert_eq!((found.0, found.1.id), (account, ann.id));
        drop(snapshot);
        test.done(DeleteUser { account, user: ann.id, keeps_owner: false });
        test.done(CreateUser { account: other, user: user("ann@example.com", 2) });
    }

    #[test]
    fn an_account_has_at_most_50_users() {
        let test = TestStore::new();
        let (account, other) = (test.account(QuotaLimits::default()), test.account(QuotaLimits::default()));
        let new = |account, number: usize| CreateUser {
            account,
            user: user(&format!("u{number}@example.com"), u8::try_from(number).unwrap()),
        };
        let first = test.done(new(account, 0)).id;
        (1..USERS_COUNT).for_each(|number| drop(test.done(new(account, number))));
        assert!(matches!(test.commit(new(account, 60)), Err(OpError::Refused(CreateUserRefusal::TooMany))));
        test.done(new(other, 61));
        test.done(DeleteUser { account, user: first, keeps_owner: true });
        test.done(new(account, 62));
    }

    #[test]
    fn a_user_of_another_account_is_not_found() {
        let test = TestStore::new();
        let (account, other) = (test.account(QuotaLimits::default()), test.account(QuotaLimits::default()));
        let ann = test.done(CreateUser { account, user: user("ann@example.com", 1) });
        let changed = test.commit(UpdateUser { role: Some(Role::Viewer), ..UpdateUser::of(other, ann.id) });
        assert!(matches!(changed, Err(OpError::Refused(UserChangeRefusal::NotFound))));
        assert!(matches!(
            test.commit(DeleteUser { account: other, user: ann.id, keeps_owner: false }),
            Err(OpError::Refused(UserChangeRefusal::NotFound))
        ));
    }

    #[test]
    fn only_the_operator_may_remove_the_last_active_owner() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let ann = test.done(ProvingAddress(CreateUser { account, user: user("ann@example.com", 1) })).id;
        let bob = test.done(ProvingAddress(CreateUser { account, user: user("bob@example.com", 2) })).id;
        test.done(CreateUser { account, user: user("invited@example.com", 4) });
        let viewer = User { role: Role::Viewer, ..user("val@example.com", 3) };
        test.done(CreateUser { account, user: viewer });
        let demote = |user| UpdateUser { role: Some(Role::Member), keeps_owner: true, ..UpdateUser::of(account, user) };
        let disable = |user| UpdateUser { disabled: Some(true), keeps_owner: true, ..UpdateUser::of(account, user) };
        test.done(demote(ann));
        // An invited owner has not opened the link.
        for change in [demote(bob), disable(bob)] {
            assert!(matches!(test.commit(change), Err(OpError::Refused(UserChangeRefusal::LastOwner))));
        }
        let delete = |keeps_owner| test.commit(DeleteUser { account, user: bob, keeps_owner });
        assert!(matches!(delete(true), Err(OpError::Refused(UserChangeRefusal::LastOwner))));
        test.done(UpdateUser { role: Some(Role::Owner), disabled: Some(true), ..UpdateUser::of(account, ann) });
        assert!(
            matches!(delete(true), Err(OpError::Refused(UserChangeRefusal::LastOwner))),
            "a disabled owner does not count"
        );
        assert!(delete(false).is_ok(), "the command line always can");
    }
}
