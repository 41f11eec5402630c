//! Accounts and their API keys.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::{Infallible, NotFound, Op, audit};
use crate::base::id::{AccountId, KeyId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::account::{Account, AccountName, QuotaLimits, RetentionDays, TimeZoneName};
use crate::domain::api_key::ApiKey;
use crate::domain::audit::{Action, Actor, Change};
use crate::domain::limits::{ACTIVE_KEYS_COUNT, INACTIVE_KEYS_COUNT};
use crate::domain::return_path::AccountHint;
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::Row as _;
use crate::store::row::totals::{ActiveKey, ActiveKeysRow};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Creates an account.
#[derive(Debug, Serialize, Deserialize)]
pub struct CreateAccount {
    /// Settings; the store assigns the identifier.
    pub account: Account,
    /// The creator, if the audit log is to begin with a line about it.
    pub by: Option<Actor>,
}

impl Op for CreateAccount {
    type Reply = Account;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Account, OpError<Infallible>> {
        let id: AccountId = tables.next_id();
        let account = Account { id, created_at: tables.now(), ..self.account.clone() };
        // The first account starts these sweeps, which cover all accounts and never end.
        if tables.keys(Table::Accounts, &[], &after_prefix(&[]), Order::Ascending, 1)?.is_empty() {
            tables.arm(Timer::of_store(tables.now(), TimerKind::EventLog));
            tables.arm(Timer::of_store(tables.now(), TimerKind::Deliveries));
        }
        tables.put(id.as_bytes(), &account);
        tables.put_bytes(Table::AccountsByHint, &schema::account_of_hint(AccountHint::of(id), id), Vec::new());
        if let Some(actor) = &self.by {
            audit::write(tables, id, actor, Change::new(Action::AccountCreated, id, account.name.as_str()))?;
        }
        Ok(account)
    }
}

/// A change of an account's settings or quota. Absent members stay unchanged, and existing messages are not affected
/// (contract 2). Only the operator changes the quota.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AccountChange {
    /// The account's name.
    pub name: Option<AccountName>,
    /// Time zone in which the panel shows times.
    pub time_zone: Option<TimeZoneName>,
    /// Number of days for which a new message's content is kept.
    pub content_retention_days: Option<RetentionDays>,
    /// Whether Postrider's one-click unsubscribe links replace the sender's.
    pub hosted_unsubscribe: Option<bool>,
    /// Whether a valid Message-ID of a message submitted by SMTP is kept.
    pub keep_message_id: Option<bool>,
    /// Messages per hour.
    pub quota_per_hour: Option<u64>,
    /// Messages per day.
    pub quota_per_day: Option<u64>,
}

/// Changes an account.
#[derive(Debug, Serialize, Deserialize)]
pub struct UpdateAccount {
    /// The account.
    pub account: AccountId,
    /// The change.
    pub change: AccountChange,
}

impl Op for UpdateAccount {
    type Reply = Account;
    type Refusal = NotFound;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Account, OpError<NotFound>> {
        let Some(old) = tables.row::<Account>(self.account.as_bytes())? else { return Err(OpError::Refused(NotFound)) };
        let quota = QuotaLimits {
            per_hour: self.change.quota_per_hour.unwrap_or(old.quota.per_hour),
            per_day: self.change.quota_per_day.unwrap_or(old.quota.per_day),
        };
        let account = Account {
            quota,
            name: self.change.name.clone().unwrap_or(old.name),
            time_zone: self.change.time_zone.clone().unwrap_or(old.time_zone),
            content_retention_days: self.change.content_retention_days.unwrap_or(old.content_retention_days),
            hosted_unsubscribe: self.change.hosted_unsubscribe.unwrap_or(old.hosted_unsubscribe),
            keep_message_id: self.change.keep_message_id.unwrap_or(old.keep_message_id),
            ..old
        };
        tables.put(self.account.as_bytes(), &account);
        Ok(account)
    }
}

/// Maximum number of keys that one operation removes.
const FORGOTTEN_MAX: usize = 64;

/// Creates an API key.
#[derive(Debug, Serialize, Deserialize)]
pub struct CreateKey {
    /// The account.
    pub account: AccountId,
    /// The key with the hash of its secret; the store assigns the identifier.
    pub key: ApiKey,
}

/// Reason why a key can't be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateKeyRefusal {
    /// There is no such account.
    NoSuchAccount,
    /// The account has [`ACTIVE_KEYS_COUNT`] active keys.
    TooMany,
}

impl Op for CreateKey {
    type Reply = ApiKey;
    type Refusal = CreateKeyRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<ApiKey, OpError<CreateKeyRefusal>> {
        if tables.row::<Account>(self.account.as_bytes())?.is_none() {
            return Err(OpError::Refused(CreateKeyRefusal::NoSuchAccount));
        }
        let mut active = active_keys(tables, self.account)?;
        active.keys.retain(|key| key.is_live(tables.now()));
        if active.keys.len() >= ACTIVE_KEYS_COUNT {
            return Err(OpError::Refused(CreateKeyRefusal::TooMany));
        }
        let id: KeyId = tables.next_id();
        active.keys.push(ActiveKey { id, expires_at: self.key.expires_at });
        tables.put(self.account.as_bytes(), &active);
        let key = ApiKey { id, created_at: tables.now(), ..self.key.clone() };
        tables.put(&schema::api_key(self.account, id), &key);
        tables.put_bytes(Table::KeysByHash, &key.hash, schema::api_key(self.account, id).to_vec());
        forget_inactive(tables, self.account)?;
        Ok(key)
    }
}

/// Removes the oldest revoked or expired keys if the account has more of them than are listed.
fn forget_inactive(tables: &mut Tables<'_>, account: AccountId) -> Result<(), StoreError> {
    const STORED_COUNT: usize = ACTIVE_KEYS_COUNT + INACTIVE_KEYS_COUNT;
    let stored = tables.sound_rows::<ApiKey>(account.as_bytes(), STORED_COUNT + FORGOTTEN_MAX)?;
    let surplus = stored.len().saturating_sub(STORED_COUNT);
    let now = tables.now();
    let is_inactive =
        |key: &ApiKey| key.revoked_at.is_some() || key.expires_at.is_some_and(|expires_at| expires_at <= now);
    for (row_key, key) in stored.into_iter().filter(|(_, key)| is_inactive(key)).take(surplus) {
        tables.remove(Table::Keys, &row_key);
        tables.remove(Table::KeysByHash, &key.hash);
    }
    Ok(())
}

/// Returns the account's keys that are not revoked. A store of an earlier version has no such row, so the keys are read
/// the first time.
fn active_keys(tables: &Tables<'_>, account: AccountId) -> Result<ActiveKeysRow, StoreError> {
    if let Some(row) = tables.row::<ActiveKeysRow>(account.as_bytes())? {
        return Ok(row);
    }
    let mut keys = Vec::new();
    let (from, to) = (account.as_bytes(), after_prefix(account.as_bytes()));
    tables.scan(Table::Keys, from, &to, Order::Ascending, &mut |_, bytes| {
        let ApiKey { id, expires_at, revoked_at, .. } = ApiKey::decode(bytes)?;
        keys.extend(revoked_at.is_none().then_some(ActiveKey { id, expires_at }));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(ActiveKeysRow { keys })
}

/// Records the use of a key.
#[derive(Debug, Serialize, Deserialize)]
pub struct TouchKey {
    /// The account.
    pub account: AccountId,
    /// The key.
    pub key: KeyId,
    /// Time of the use.
    pub at: Timestamp,
}

impl Op for TouchKey {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        let row_key = schema::api_key(self.account, self.key);
        if let Some(key) = tables.row::<ApiKey>(&row_key)? {
            tables.put(&row_key, &ApiKey { last_used_at: Some(self.at), ..key });
        }
        Ok(())
    }
}

/// Renames a key.
#[derive(Debug, Serialize, Deserialize)]
pub struct RenameKey {
    /// The account.
    pub account: AccountId,
    /// The key.
    pub key: KeyId,
    /// New name; `None` keeps the current one.
    pub name: Option<String>,
}

impl Op for RenameKey {
    type Reply = ApiKey;
    type Refusal = NotFound;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<ApiKey, OpError<NotFound>> {
        let row_key = schema::api_key(self.account, self.key);
        let Some(old) = tables.row::<ApiKey>(&row_key)? else { return Err(OpError::Refused(NotFound)) };
        let key = ApiKey { name: self.name.clone().unwrap_or(old.name), ..old };
        tables.put(&row_key, &key);
        Ok(key)
    }
}

/// Revokes a key: it is refused from this transaction on, and stays listed. Repeating it changes nothing.
#[derive(Debug, Serialize, Deserialize)]
pub struct RevokeKey {
    /// The account.
    pub account: AccountId,
    /// The key.
    pub key: KeyId,
}

impl Op for RevokeKey {
    type Reply = ApiKey;
    type Refusal = NotFound;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<ApiKey, OpError<NotFound>> {
        let row_key = schema::api_key(self.account, self.key);
        let Some(old) = tables.row::<ApiKey>(&row_key)? else { return Err(OpError::Refused(NotFound)) };
        let revoked_at = Some(old.revoked_at.unwrap_or(tables.now()));
        let key = ApiKey { revoked_at, ..old };
        if let Some(mut active) = tables.row::<ActiveKeysRow>(self.account.as_bytes())? {
            active.keys.retain(|key| key.id != self.key);
            tables.put(self.account.as_bytes(), &active);
        }
        tables.put(&row_key, &key);
        // Event streams that were opened with the key end now.
        tables.notify_followers(self.account);
        Ok(key)
    }
}

/// Returns the key with this hash, and its account.
///
/// # Errors
/// Store errors.
pub fn key_by_hash(read: &impl Read, hash: &[u8; 32]) -> Result<Option<(AccountId, ApiKey)>, StoreError> {
    let Some(row_key) = read.get(Table::KeysByHash, hash)? else { return Ok(None) };
    let Some(key) = read.row::<ApiKey>(&row_key)? else { return Ok(None) };
    let account = row_key.first_chunk::<16>().map(|account| AccountId(Ulid(*account)));
    Ok(account.map(|account| (account, key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::api_key::Scopes;
    use crate::store::testing::TestStore;

    fn new_key(account: AccountId, number: usize, expires_at: Option<Timestamp>) -> CreateKey {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        let key = ApiKey {
            id: KeyId::default(),
            name: "ci".to_owned(),
            prefix: "pr_live_".to_owned(),
            hash,
            stream: None,
            scopes: Scopes::ALL,
            created_at: Timestamp::ZERO,
            last_used_at: None,
            expires_at,
            revoked_at: None,
        };
        CreateKey { account, key }
    }

    #[test]
    fn an_account_has_at_most_100_active_keys() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let soon = test.now() + std::time::Duration::from_secs(60);
        let is_full = |number| {
            let answer = test.commit(new_key(account, number, None));
            matches!(answer, Err(OpError::Refused(CreateKeyRefusal::TooMany)))
        };
        let first = test.done(new_key(account, 0, None)).id;
        test.done(new_key(account, 1, Some(soon)));
        (2..ACTIVE_KEYS_COUNT).for_each(|number| drop(test.done(new_key(account, number, None))));
        assert!(is_full(100));
        test.done(RevokeKey { account, key: first });
        test.done(RevokeKey { account, key: first });
        test.done(new_key(account, 101, None));
        assert!(is_full(102));
        test.set_now(soon);
        test.done(new_key(account, 103, None));
        assert!(is_full(104));
        let other = test.account(QuotaLimits::default());
        test.done(new_key(other, 105, None));
    }

    #[test]
    fn the_newest_1000_inactive_keys_are_kept() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let kept = test.done(new_key(account, 1, None)).id;
        let mut made = Vec::new();
        for number in 2..INACTIVE_KEYS_COUNT + ACTIVE_KEYS_COUNT + 7 {
            let key = test.done(new_key(account, number, None)).id;
            test.done(RevokeKey { account, key });
            made.push(key);
        }
        assert_eq!(test.count(Table::Keys, &[]), INACTIVE_KEYS_COUNT + ACTIVE_KEYS_COUNT);
        assert_eq!(test.count(Table::KeysByHash, &[]), INACTIVE_KEYS_COUNT + ACTIVE_KEYS_COUNT);
        let is_stored = |key| test.snapshot().has(Table::Keys, &schema::api_key(account, key)).unwrap();
        assert!(is_stored(kept) && !is_stored(made[5]) && is_stored(made[6]));
    }

    #[test]
    fn keys_created_by_an_earlier_version_count() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        for number in 0..ACTIVE_KEYS_COUNT {
            test.done(new_key(account, number, None));
        }
        let before = test.row::<ActiveKeysRow>(account.as_bytes());
        test.put(Table::ActiveKeys, account.as_bytes(), None);
        assert!(matches!(test.commit(new_key(account, 100, None)), Err(OpError::Refused(CreateKeyRefusal::TooMany))));
        let key = before.keys[0].id;
        test.done(RevokeKey { account, key });
        test.done(new_key(account, 101, None));
    }
}
