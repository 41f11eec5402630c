//! Suppressing addresses and removing suppressions: by request, by import, and as the result of an outcome (contract
//! 6).
//!
//! Every suppression has two rows: one under its address, and one that finds the address by the identifier. Only this
//! file writes and removes them, so they always agree.

use serde::{Deserialize, Serialize};

use super::suppression_count::{self, TooManySuppressions};
use super::{NotFound, Op, waiting};
use crate::base::id::{AccountId, MessageId, SuppressionId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::store::error::{OpError, StoreError};
use crate::store::read::Read;
use crate::store::row::suppression::{ImportStage, SuppressionImportRow, SuppressionReason, SuppressionRow};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;

/// Maximum number of addresses that one operation imports, so that other operations in the same transaction don't wait
/// long.
pub const IMPORTED_MAX: usize = 200;

/// An address to suppress, with the reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Suppression {
    /// The address.
    pub address: Address,
    /// Reason of the suppression.
    pub reason: SuppressionReason,
    /// The message that caused the suppression.
    pub message: Option<MessageId>,
    /// SMTP code of the reply.
    pub smtp_code: Option<u16>,
    /// The reply as received.
    pub smtp_response: Option<String>,
    /// The account's note.
    pub note: Option<String>,
    /// Time of creation from another list; `None` means now.
    pub created_at: Option<Timestamp>,
}

impl Suppression {
    /// Returns a suppression that the account requests.
    pub const fn of(address: Address, reason: SuppressionReason) -> Self {
        Self { address, reason, message: None, smtp_code: None, smtp_response: None, note: None, created_at: None }
    }
}

/// Result of adding a suppression.
#[derive(Clone, Debug)]
pub struct Added {
    /// The current suppression.
    pub row: SuppressionRow,
    /// Whether the suppression is new.
    pub is_new: bool,
}

/// Suppresses an address, even beyond the account's limit. An address that is already suppressed keeps its first
/// reason.
///
/// # Errors
/// Store errors.
pub fn add(tables: &mut Tables<'_>, account: AccountId, new: &Suppression) -> Result<Added, StoreError> {
    add_in(tables, account, new, None)
}

/// Suppresses an address as part of `import`, whose suppressions take effect once it has finished.
pub(super) fn add_in(
    tables: &mut Tables<'_>,
    account: AccountId,
    new: &Suppression,
    import: Option<Ulid>,
) -> Result<Added, StoreError> {
    let match_key = new.address.match_key();
    let key = schema::named(account, match_key.as_bytes());
    // A damaged row is replaced: the address stays suppressed, and its row is intact again.
    if let Some(row) = tables.sound_row::<SuppressionRow>(&key)? {
        if row.import == import || !UnfinishedImport::of_row(tables, account, &row)?.hides(&row) {
            return Ok(Added { row, is_new: false });
        }
        // An unfinished import wrote the row and may remove it again. The new suppression takes effect now.
        tables.remove(Table::SuppressionsById, &schema::suppression(account, row.id));
    } else if !tables.has(Table::Suppressions, &key)? {
        suppression_count::added(tables, account)?;
    }
    let row = SuppressionRow {
        id: tables.next_id::<SuppressionId>(),
        email: new.address.as_given().to_owned(),
        reason: new.reason,
        message: new.message,
        smtp_code: new.smtp_code,
        smtp_response: new.smtp_response.clone(),
        note: new.note.clone(),
        created_at: new.created_at.unwrap_or(tables.now()),
        import,
    };
    tables.put(&key, &row);
    tables.put_bytes(Table::SuppressionsById, &schema::suppression(account, row.id), match_key.into_bytes());
    Ok(Added { row, is_new: true })
}

/// Returns whether an address is suppressed.
///
/// # Errors
/// Store errors.
pub fn is_suppressed(read: &impl Read, account: AccountId, address: &Address) -> Result<bool, StoreError> {
    Ok(find(read, account, &schema::named(account, address.match_key().as_bytes()))?.is_some())
}

/// Returns the suppression at `key`, if it is in effect.
///
/// # Errors
/// Store errors.
pub fn find(read: &impl Read, account: AccountId, key: &[u8]) -> Result<Option<SuppressionRow>, StoreError> {
    let Some(row) = read.row::<SuppressionRow>(key)? else { return Ok(None) };
    let is_hidden = UnfinishedImport::of_row(read, account, &row)?.hides(&row);
    Ok((!is_hidden).then_some(row))
}

/// An account's unfinished import, if there is one. Its suppressions are not in effect.
#[derive(Clone, Copy, Debug)]
pub struct UnfinishedImport(Option<Ulid>);

impl UnfinishedImport {
    /// Returns the unfinished import of `account`.
    ///
    /// # Errors
    /// Store errors.
    pub fn of(read: &impl Read, account: AccountId) -> Result<Self, StoreError> {
        let row = read.row::<SuppressionImportRow>(account.as_bytes())?;
        Ok(Self(row.filter(|row| row.stage != ImportStage::Finished).map(|row| row.id)))
    }

    /// Returns the unfinished import of `account` if `row` came from an import. Other rows do not need the lookup.
    fn of_row(read: &impl Read, account: AccountId, row: &SuppressionRow) -> Result<Self, StoreError> {
        if row.import.is_none() { Ok(Self(None)) } else { Self::of(read, account) }
    }

    /// Returns whether `row` was written by the import.
    pub fn hides(&self, row: &SuppressionRow) -> bool {
        self.0.is_some() && row.import == self.0
    }
}

/// Identifies a suppression: contract 6 accepts either form.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Name {
    /// The suppression's identifier.
    Id(SuppressionId),
    /// The suppressed address.
    Address(Address),
}

impl Name {
    /// Returns the key of the named row; `None` if the identifier is unknown.
    ///
    /// # Errors
    /// Store errors.
    pub fn row_key(&self, read: &impl Read, account: AccountId) -> Result<Option<Vec<u8>>, StoreError> {
        let match_key = match self {
            Self::Id(id) => read.get(Table::SuppressionsById, &schema::suppression(account, *id))?,
            Self::Address(address) => Some(address.match_key().into_bytes()),
        };
        Ok(match_key.map(|match_key| schema::named(account, &match_key)))
    }
}

/// Suppresses an address at the account's request.
#[derive(Debug, Serialize, Deserialize)]
pub struct Suppress {
    /// The account.
    pub account: AccountId,
    /// The address.
    pub suppression: Suppression,
    /// Queued messages to the address whose leases the caller holds; they end.
    pub waiting: Vec<MessageId>,
}

impl Op for Suppress {
    type Reply = Added;
    type Refusal = TooManySuppressions;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Added, OpError<TooManySuppressions>> {
        suppression_count::check(tables, self.account, std::iter::once(&self.suppression))?;
        let added = add(tables, self.account, &self.suppression)?;
        waiting::suppress(tables, self.account, &self.waiting)?;
        Ok(added)
    }
}

/// Suppresses a short list. A longer one is a [`super::suppression_import::BeginImport`].
#[derive(Debug, Serialize, Deserialize)]
pub struct ImportSuppressions {
    /// The account.
    pub account: AccountId,
    /// The addresses, [`IMPORTED_MAX`] at most.
    pub suppressions: Vec<Suppression>,
    /// Queued messages to the addresses whose leases the caller holds; they end.
    pub waiting: Vec<MessageId>,
}

impl Op for ImportSuppressions {
    /// Number of new suppressions.
    type Reply = usize;
    type Refusal = TooManySuppressions;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<usize, OpError<TooManySuppressions>> {
        suppression_count::check(tables, self.account, self.suppressions.iter())?;
        let mut imported = 0;
        for suppression in &self.suppressions {
            imported += usize::from(add(tables, self.account, suppression)?.is_new);
        }
        waiting::suppress(tables, self.account, &self.waiting)?;
        Ok(imported)
    }
}

/// Removes a suppression.
#[derive(Debug, Serialize, Deserialize)]
pub struct Unsuppress {
    /// The account.
    pub account: AccountId,
    /// Name of the suppression.
    pub name: Name,
}

impl Op for Unsuppress {
    /// The removed suppression.
    type Reply = SuppressionRow;
    type Refusal = NotFound;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<SuppressionRow, OpError<NotFound>> {
        let Some(key) = self.name.row_key(tables, self.account)? else { return Err(OpError::Refused(NotFound)) };
        let Some(row) = find(tables, self.account, &key)? else { return Err(OpError::Refused(NotFound)) };
        tables.remove(Table::Suppressions, &key);
        tables.remove(Table::SuppressionsById, &schema::suppression(self.account, row.id));
        suppression_count::removed(tables, self.account)?;
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::account::QuotaLimits;
    use crate::store::testing::TestStore;

    fn manual(address: &str) -> Suppression {
        Suppression::of(address.parse().unwrap(), SuppressionReason::Manual)
    }

    #[test]
    fn an_address_is_suppressed_once_in_any_spelling_and_keeps_its_first_reason() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let first = test.done(Suppress { account, suppression: manual("Ann@Example.net"), waiting: vec![] });
        let suppression = Suppression { reason: SuppressionReason::Complaint, ..manual("ann@EXAMPLE.NET") };
        let again = test.done(Suppress { account, suppression, waiting: vec![] });
        assert_eq!((first.is_new, again.is_new, again.row.id), (true, false, first.row.id));
        assert_eq!((again.row.email.as_str(), again.row.reason), ("Ann@Example.net", SuppressionReason::Manual));
    }

    #[test]
    fn both_rows_are_written_and_removed_together_by_either_name() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let rows = || (test.count(Table::Suppressions, &[]), test.count(Table::SuppressionsById, &[]));
        let one = test.done(Suppress { account, suppression: manual("a@example.net"), waiting: vec![] }).row.id;
        test.done(Suppress { account, suppression: manual("b@example.net"), waiting: vec![] });
        assert_eq!(rows(), (2, 2));
        test.done(Unsuppress { account, name: Name::Id(one) });
        test.done(Unsuppress { account, name: Name::Address("B@example.net".parse().unwrap()) });
        assert_eq!(rows(), (0, 0));
        let again = test.commit(Unsuppress { account, name: Name::Id(one) });
        assert!(matches!(again, Err(OpError::Refused(NotFound))));
        let stranger = test.account(QuotaLimits::default());
        let theirs = Suppress { account: stranger, suppression: manual("a@example.net"), waiting: vec![] };
        let theirs = test.done(theirs).row.id;
        assert!(test.commit(Unsuppress { account, name: Name::Id(theirs) }).is_err());
        assert_eq!(rows(), (1, 1));
    }

    #[test]
    fn a_repeated_address_in_a_short_list_counts_once() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let suppressions = (0..IMPORTED_MAX).map(|n| manual(&format!("a{}@example.net", n / 2))).collect();
        let imported = test.done(ImportSuppressions { account, suppressions, waiting: vec![] });
        assert_eq!((imported, test.count(Table::SuppressionsById, &[])), (IMPORTED_MAX / 2, imported));
    }
}
