//! Accounts and their API keys.

use serde::{Deserialize, Serialize};

use super::{Never, Op};
use crate::base::id::{AccountId, KeyId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::account::Account;
use crate::domain::api_key::ApiKey;
use crate::store::error::{Stop, StoreError};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Creates an account.
#[derive(Debug, Serialize, Deserialize)]
pub struct CreateAccount {
    /// Its settings; the identifier is given by the store.
    pub account: Account,
}

impl Op for CreateAccount {
    type Reply = Account;
    type Refusal = Never;

    fn apply(&self, tables: &mut Tables<'_, '_>) -> Result<Account, Stop<Never>> {
        let id: AccountId = tables.next_id();
        let account = Account { id, created_at: tables.now(), ..self.account.clone() };
        // The event log's sweep runs for ever from the first account on, and once for all of them.
        if tables.keys(Table::Accounts, &[], &after_prefix(&[]), Order::Ascending, 1)?.is_empty() {
            tables.arm(Timer::of_store(tables.now(), TimerKind::EventLog));
        }
        tables.put(id.as_bytes(), &account);
        Ok(account)
    }
}

/// Creates an API key.
#[derive(Debug, Serialize, Deserialize)]
pub struct CreateKey {
    /// The account.
    pub account: AccountId,
    /// The key, with the hash of its secret; the identifier is given by the store.
    pub key: ApiKey,
}

/// Why a key can't be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateKeyRefusal {
    /// There is no such account.
    NoSuchAccount,
}

impl Op for CreateKey {
    type Reply = ApiKey;
    type Refusal = CreateKeyRefusal;

    fn apply(&self, tables: &mut Tables<'_, '_>) -> Result<ApiKey, Stop<CreateKeyRefusal>> {
        if tables.row::<Account>(self.account.as_bytes())?.is_none() {
            return Err(Stop::Refused(CreateKeyRefusal::NoSuchAccount));
        }
        let id: KeyId = tables.next_id();
        let key = ApiKey { id, created_at: tables.now(), ..self.key.clone() };
        tables.put(&schema::api_key(self.account, id), &key);
        tables.put_bytes(Table::KeysByHash, &key.hash, schema::api_key(self.account, id).to_vec());
        Ok(key)
    }
}

/// Notes that a key was used.
#[derive(Debug, Serialize, Deserialize)]
pub struct TouchKey {
    /// The account.
    pub account: AccountId,
    /// The key.
    pub key: KeyId,
    /// When it was used.
    pub at: Timestamp,
}

impl Op for TouchKey {
    type Reply = ();
    type Refusal = Never;

    fn apply(&self, tables: &mut Tables<'_, '_>) -> Result<(), Stop<Never>> {
        let row_key = schema::api_key(self.account, self.key);
        if let Some(key) = tables.row::<ApiKey>(&row_key)? {
            tables.put(&row_key, &ApiKey { last_used_at: Some(self.at), ..key });
        }
        Ok(())
    }
}

/// The key with this hash, and its account.
///
/// # Errors
/// Those of the store.
pub fn key_by_hash(read: &impl Read, hash: &[u8; 32]) -> Result<Option<(AccountId, ApiKey)>, StoreError> {
    let Some(row_key) = read.get(Table::KeysByHash, hash)? else { return Ok(None) };
    let Some(key) = read.row::<ApiKey>(&row_key)? else { return Ok(None) };
    let account = row_key.first_chunk::<16>().map(|account| AccountId(Ulid(*account)));
    Ok(account.map(|account| (account, key)))
}
