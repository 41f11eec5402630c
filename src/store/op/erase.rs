//! Erasing the rows of an account, for `dev` (contract 12.2), except those that the account keeps after a reset.
//!
//! One operation erases a slice. The last one finds nothing more and writes those rows back, so that rows written
//! between two slices are erased too.

use serde::{Deserialize, Serialize};

use super::{Infallible, Op};
use crate::base::id::AccountId;
use crate::domain::api_key::ApiKey;
use crate::domain::return_path::AccountHint;
use crate::domain::user::User;
use crate::store::error::{OpError, StoreError};
use crate::store::read::{OnDamage, Order, Read as _, after_prefix};
use crate::store::row::domain::DomainRow;
use crate::store::row::identity::IdentityRow;
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::Timer;

/// Maximum number of rows that one operation erases.
pub const SLICE: usize = 20_000;

/// Place of the account in a table's keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// The keys begin with the account.
    Prefixed,
    /// The keys contain the account at this place.
    At(usize),
    /// The keys do not contain the account. Its rows there are erased with the rows that they name, or it has none.
    Without,
}

/// Returns the place of the account in a table's keys.
const fn keys_of(table: Table) -> Keys {
    match table {
        Table::Accounts
        | Table::Keys
        | Table::Domains
        | Table::DomainsByName
        | Table::Messages
        | Table::Transfers
        | Table::MessageIndex
        | Table::MessagesByOriginalId
        | Table::Timeline
        | Table::Transcripts
        | Table::EventLog
        | Table::EventLogByType
        | Table::Endpoints
        | Table::Deliveries
        | Table::DeliveriesByEndpoint
        | Table::Attempts
        | Table::Redelivered
        | Table::Parked
        | Table::Outstanding
        | Table::ActiveKeys
        | Table::StoredContent
        | Table::Idempotency
        | Table::Quotas
        | Table::Suppressions
        | Table::SuppressionsById
        | Table::SuppressionCounts
        | Table::SuppressionImports
        | Table::Waiting
        | Table::Pauses
        | Table::Suspensions
        | Table::Alerts
        | Table::AlertStates
        | Table::OpenAlerts
        | Table::Invitations
        | Table::AuditLog
        | Table::AuditLines
        | Table::Outcomes
        | Table::DmarcReports
        | Table::DmarcSeen
        | Table::DmarcDays
        | Table::DmarcCounts
        | Table::DmarcSources
        | Table::DmarcMarks
        | Table::DmarcReporters
        | Table::DmarcSums
        | Table::Reputations => Keys::Prefixed,
        Table::Users | Table::Identities | Table::SavedSearches | Table::SessionsByUser => Keys::Prefixed,
        Table::StoredContentByBucket | Table::IdempotencyByExpiry => Keys::At(8),
        Table::Timers => Keys::At(9),
        Table::Meta
        | Table::AccountsByHint
        | Table::KeysByHash
        | Table::DomainOwners
        | Table::UsersByEmail
        | Table::UsersByIdentity
        | Table::AlertOwners
        | Table::Notices
        | Table::NoticeAddresses
        | Table::ProvenAddresses
        | Table::Sessions
        | Table::WarmUps
        | Table::StsPolicies
        | Table::TlsReports
        | Table::TlsReportDays
        | Table::ClockDoubts => Keys::Without,
    }
}

/// A row as bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawRow {
    /// The place of its table in [`Table::ALL`].
    table: u8,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl RawRow {
    /// Returns whether the row belongs to `table`.
    pub fn is_of(&self, table: Table) -> bool {
        self.table() == Some(table)
    }

    /// Returns whether both rows have the same table and key.
    pub fn is_at(&self, other: &Self) -> bool {
        (self.table, &self.key) == (other.table, &other.key)
    }

    /// Returns the row at `key`, if there is one.
    ///
    /// # Errors
    /// Store errors.
    pub fn read(read: &impl crate::store::read::Read, table: Table, key: &[u8]) -> Result<Option<Self>, StoreError> {
        let place = Table::ALL.iter().position(|known| *known == table).and_then(|place| u8::try_from(place).ok());
        let found = read.get(table, key)?.zip(place);
        Ok(found.map(|(value, table)| Self { table, key: key.to_vec(), value }))
    }

    fn table(&self) -> Option<Table> {
        Table::ALL.get(usize::from(self.table)).copied()
    }
}

/// Erases a slice of an account's rows.
#[derive(Debug, Serialize, Deserialize)]
pub struct EraseAccount {
    /// The account.
    pub account: AccountId,
    /// The rows that the account keeps; without any, the account itself is erased.
    pub rows: Vec<RawRow>,
}

impl Op for EraseAccount {
    /// Whether everything is erased.
    type Reply = bool;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<bool, OpError<Infallible>> {
        let mut left = SLICE;
        for table in Table::ALL {
            for key in self.found(tables, *table, left)? {
                left -= 1;
                Self::erase(tables, *table, &key)?;
            }
            if left == 0 {
                return Ok(false);
            }
        }
        if self.rows.is_empty() {
            tables.remove(Table::AccountsByHint, &schema::account_of_hint(AccountHint::of(self.account), self.account));
        }
        for row in &self.rows {
            if let Some(table) = row.table() {
                tables.put_bytes(table, &row.key, row.value.clone());
            }
        }
        Ok(true)
    }
}

impl EraseAccount {
    /// Returns up to `limit` keys of the account in `table`, including damaged rows.
    fn found(&self, tables: &Tables<'_>, table: Table, limit: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        let account = self.account.as_bytes();
        let (from, to) = match keys_of(table) {
            Keys::Prefixed => (account.to_vec(), after_prefix(account)),
            Keys::At(_) => (Vec::new(), after_prefix(&[])),
            Keys::Without => return Ok(Vec::new()),
        };
        let place = if let Keys::At(place) = keys_of(table) { place } else { 0 };
        let mut found = Vec::new();
        tables.scan_with(table, (&from, &to), Order::Ascending, OnDamage::Key, &mut |key, _| {
            if key.get(place..place + account.len()) == Some(account.as_slice()) && !self.is_kept(table, key) {
                found.push(key.to_vec());
            }
            Ok(if found.len() < limit { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) })
        })?;
        Ok(found)
    }

    fn is_kept(&self, table: Table, key: &[u8]) -> bool {
        self.rows.iter().any(|row| row.table() == Some(table) && row.key == key)
    }

    /// Erases one row, and the rows that refer to it from tables without the account in their keys.
    fn erase(tables: &mut Tables<'_>, table: Table, key: &[u8]) -> Result<(), StoreError> {
        match table {
            Table::Timers => {
                if let Some(timer) = Timer::decode(key) {
                    tables.disarm(timer);
                }
            }
            Table::Keys => {
                if let Some(row) = tables.sound_row::<ApiKey>(key)? {
                    tables.remove(Table::KeysByHash, &row.hash);
                }
            }
            Table::Domains => {
                if let Some(row) = tables.sound_row::<DomainRow>(key)? {
                    let name = row.name.as_str().as_bytes();
                    if tables.get(Table::DomainOwners, name)?.is_some_and(|owner| owner == key) {
                        tables.remove(Table::DomainOwners, name);
                    }
                }
            }
            Table::Users => {
                if let Some(row) = tables.sound_row::<User>(key)? {
                    tables.remove(Table::UsersByEmail, row.email.match_key().as_bytes());
                }
            }
            Table::Identities => {
                if let Some(row) = tables.sound_row::<IdentityRow>(key)? {
                    tables.remove(Table::UsersByIdentity, &row.digest());
                }
            }
            Table::Alerts => {
                if let Some(alert) = key.last_chunk::<16>() {
                    tables.remove(Table::AlertOwners, alert);
                }
            }
            Table::SessionsByUser => {
                if let Some(token) = key.last_chunk::<32>() {
                    tables.remove(Table::Sessions, token);
                }
            }
            _ => {}
        }
        tables.remove(table, key);
        Ok(())
    }
}
