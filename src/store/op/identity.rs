//! Identities at an OpenID Connect provider. Each has two rows: one belongs to the user, and the other finds the user
//! by the identity. Only this file writes and removes them, so they always agree.

use serde::{Deserialize, Serialize};

use super::Op;
use super::suspension::suspension;
use super::user::{CreateUser, CreateUserRefusal};
use crate::base::id::{AccountId, Ulid, UserId};
use crate::domain::user::User;
use crate::store::error::{OpError, StoreError};
use crate::store::read::Read;
use crate::store::row::identity::IdentityRow;
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;

/// Binds an identity to an existing user.
#[derive(Debug, Serialize, Deserialize)]
pub struct BindIdentity {
    /// The account.
    pub account: AccountId,
    /// The user.
    pub user: UserId,
    /// The user's identity; it replaces one at another provider.
    pub identity: IdentityRow,
}

/// Reason why an identity is not bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindRefusal {
    /// There is no such user.
    NotFound,
    /// The user has another identity at this provider, or the identity belongs to another user.
    Taken,
}

impl Op for BindIdentity {
    type Reply = User;
    type Refusal = BindRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<User, OpError<BindRefusal>> {
        let key = schema::user(self.account, self.user);
        let Some(user) = tables.row::<User>(&key)? else { return Err(OpError::Refused(BindRefusal::NotFound)) };
        let bound = tables.row::<IdentityRow>(&key)?;
        let has_other = bound.is_some_and(|bound| bound.issuer == self.identity.issuer && bound != self.identity);
        let of_other = tables.get(Table::UsersByIdentity, &self.identity.digest())?.is_some_and(|found| found != key);
        if has_other || of_other {
            return Err(OpError::Refused(BindRefusal::Taken));
        }
        unbind(tables, self.account, self.user)?;
        bind(tables, self.account, self.user, &self.identity);
        Ok(user)
    }
}

/// Creates a user whose identity a provider has confirmed.
#[derive(Debug, Serialize, Deserialize)]
pub struct CreateIdentified {
    /// The user.
    pub create: CreateUser,
    /// The user's identity.
    pub identity: IdentityRow,
}

/// Reason why no user is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateIdentifiedRefusal {
    /// The user can't be created.
    NotMade(CreateUserRefusal),
    /// The identity belongs to another user.
    Taken,
    /// The account is suspended and gets no new users.
    Suspended,
}

impl Op for CreateIdentified {
    type Reply = User;
    type Refusal = CreateIdentifiedRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<User, OpError<CreateIdentifiedRefusal>> {
        let account = self.create.account;
        if tables.get(Table::UsersByIdentity, &self.identity.digest())?.is_some() {
            return Err(OpError::Refused(CreateIdentifiedRefusal::Taken));
        }
        if suspension(tables, account)?.is_some() {
            return Err(OpError::Refused(CreateIdentifiedRefusal::Suspended));
        }
        let user = self.create.apply(tables).map_err(|stop| match stop {
            OpError::Refused(refusal) => OpError::Refused(CreateIdentifiedRefusal::NotMade(refusal)),
            OpError::Failed(error) => OpError::Failed(error),
        })?;
        bind(tables, account, user.id, &self.identity);
        Ok(user)
    }
}

fn bind(tables: &mut Tables<'_>, account: AccountId, user: UserId, identity: &IdentityRow) {
    let key = schema::user(account, user);
    tables.put(&key, identity);
    tables.put_bytes(Table::UsersByIdentity, &identity.digest(), key.to_vec());
}

/// Removes the identity of a user, if there is one.
pub(super) fn unbind(tables: &mut Tables<'_>, account: AccountId, user: UserId) -> Result<(), StoreError> {
    let key = schema::user(account, user);
    if let Some(identity) = tables.row::<IdentityRow>(&key)? {
        tables.remove(Table::UsersByIdentity, &identity.digest());
        tables.remove(Table::Identities, &key);
    }
    Ok(())
}

/// Returns the user who signs in with an identity, and their account.
///
/// # Errors
/// Store errors.
pub fn user_by_identity(read: &impl Read, identity: &IdentityRow) -> Result<Option<(AccountId, User)>, StoreError> {
    let Some(key) = read.get(Table::UsersByIdentity, &identity.digest())? else { return Ok(None) };
    let Some(user) = read.row::<User>(&key)? else { return Ok(None) };
    let account = key.first_chunk::<16>().map(|account| AccountId(Ulid(*account)));
    Ok(account.map(|account| (account, user)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;
    use crate::domain::account::QuotaLimits;
    use crate::domain::device::Devices;
    use crate::domain::sign_in_log::SignInLog;
    use crate::domain::user::Role;
    use crate::store::op::user::DeleteUser;
    use crate::store::testing::TestStore;

    fn user(email: &str, id: u8) -> User {
        User {
            id: UserId(Ulid([id; 16])),
            email: email.parse().unwrap(),
            role: Role::Viewer,
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

    fn identity(issuer: &str, subject: &str) -> IdentityRow {
        IdentityRow { issuer: issuer.to_owned(), subject: subject.to_owned() }
    }

    fn found(test: &TestStore, identity: &IdentityRow) -> Option<UserId> {
        user_by_identity(&test.snapshot(), identity).unwrap().map(|(_, user)| user.id)
    }

    #[test]
    fn a_user_has_one_identity_per_provider_and_an_identity_one_user() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let ann = test.done(CreateUser { account, user: user("ann@example.com", 1) }).id;
        let bob = test.done(CreateUser { account, user: user("bob@example.com", 2) }).id;
        let bind = |user, identity| test.commit(BindIdentity { account, user, identity });
        let first = identity("https://a.example", "1");
        assert!(bind(ann, first.clone()).is_ok() && bind(ann, first.clone()).is_ok());
        for (user, other) in [(ann, identity("https://a.example", "2")), (bob, first.clone())] {
            assert!(matches!(bind(user, other), Err(OpError::Refused(BindRefusal::Taken))));
        }
        assert_eq!(found(&test, &first), Some(ann));
        assert_eq!(found(&test, &identity("https://a.example1", "")), None);
        // Another provider replaces the first.
        let second = identity("https://b.example", "1");
        assert!(bind(ann, second.clone()).is_ok());
        assert_eq!((found(&test, &first), found(&test, &second)), (None, Some(ann)));
        test.done(DeleteUser { account, user: ann, keeps_owner: false });
        assert_eq!(found(&test, &second), None);
        assert_eq!((test.count(Table::Identities, &[]), test.count(Table::UsersByIdentity, &[])), (0, 0));
        assert!(matches!(bind(ann, second), Err(OpError::Refused(BindRefusal::NotFound))));
    }

    #[test]
    fn a_user_is_created_with_their_identity_or_not_at_all() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let create = |email: &str, id, subject: &str| {
            let create = CreateUser { account, user: user(email, id) };
            test.commit(CreateIdentified { create, identity: identity("https://a.example", subject) })
        };
        let ann = create("ann@example.com", 1, "1").unwrap_or_else(|_| panic!("she is new"));
        assert_eq!(found(&test, &identity("https://a.example", "1")), Some(ann.id));
        let taken = create("bob@example.com", 2, "1");
        assert!(matches!(taken, Err(OpError::Refused(CreateIdentifiedRefusal::Taken))));
        let known = create("ANN@example.com", 2, "2");
        let refusal = CreateIdentifiedRefusal::NotMade(CreateUserRefusal::EmailTaken);
        assert!(matches!(known, Err(OpError::Refused(refused)) if refused == refusal));
        assert_eq!(test.count(Table::Users, &[]), 1);
    }
}
