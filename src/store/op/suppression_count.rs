//! The number of an account's suppressions, and its limit. Requests and imports are refused beyond the limit. Bounces,
//! complaints and unsubscriptions are always recorded.
//!
//! The number counts the rows, so it includes those of an unfinished import.

use std::collections::BTreeSet;

use super::suppression::Suppression;
use crate::base::id::AccountId;
use crate::domain::limits::SUPPRESSIONS_COUNT;
use crate::store::error::{OpError, StoreError};
use crate::store::read::Read;
use crate::store::row::totals::SuppressionCountRow;
use crate::store::schema::{self, Table, meta};
use crate::store::tables::Tables;

/// Refusal: the account would have more than [`SUPPRESSIONS_COUNT`] suppressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManySuppressions;

/// Returns the number of suppressions that the account may still add. A damaged count never refuses a suppression: it
/// counts as zero until the next start counts again.
///
/// # Errors
/// Database errors.
pub fn remaining(read: &impl Read, account: AccountId) -> Result<u64, StoreError> {
    let row = read.sound_row::<SuppressionCountRow>(account.as_bytes())?.unwrap_or_default();
    Ok(SUPPRESSIONS_COUNT.saturating_sub(row.suppressions))
}

/// Refuses a list whose new addresses exceed the limit. Addresses that are suppressed already need no room.
pub(super) fn check<'s>(
    read: &impl Read,
    account: AccountId,
    list: impl ExactSizeIterator<Item = &'s Suppression>,
) -> Result<(), OpError<TooManySuppressions>> {
    let remaining = remaining(read, account)?;
    if list.len() as u64 <= remaining {
        return Ok(());
    }
    let mut new = BTreeSet::new();
    for suppression in list {
        let key = schema::named(account, suppression.address.match_key().as_bytes());
        if !read.has(Table::Suppressions, &key)? {
            new.insert(key);
        }
    }
    if new.len() as u64 > remaining { Err(OpError::Refused(TooManySuppressions)) } else { Ok(()) }
}

/// Counts a new row.
pub(super) fn added(tables: &mut Tables<'_>, account: AccountId) -> Result<(), StoreError> {
    change(tables, account, |suppressions| suppressions.saturating_add(1))
}

/// Counts a removed row.
pub(super) fn removed(tables: &mut Tables<'_>, account: AccountId) -> Result<(), StoreError> {
    change(tables, account, |suppressions| suppressions.saturating_sub(1))
}

fn change(tables: &mut Tables<'_>, account: AccountId, change: impl FnOnce(u64) -> u64) -> Result<(), StoreError> {
    let found = match tables.row::<SuppressionCountRow>(account.as_bytes()) {
        // Outcomes are recorded even if this count is damaged.
        Err(error) if error.is_of_row() => {
            tables.remove(Table::Meta, meta::TOTALS);
            return Ok(());
        }
        found => found?.unwrap_or_default(),
    };
    match change(found.suppressions) {
        0 => tables.remove(Table::SuppressionCounts, account.as_bytes()),
        suppressions => tables.put(account.as_bytes(), &SuppressionCountRow { suppressions }),
    }
    Ok(())
}

/// Sets the number of an account's suppressions, as if the account had that many.
#[cfg(test)]
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct SetSuppressionCount {
    pub(crate) account: AccountId,
    pub(crate) suppressions: u64,
}

#[cfg(test)]
impl super::Op for SetSuppressionCount {
    type Reply = ();
    type Refusal = super::Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<super::Infallible>> {
        tables.put(self.account.as_bytes(), &SuppressionCountRow { suppressions: self.suppressions });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::account::QuotaLimits;
    use crate::store::op::settle_transfer::TransferEnd;
    use crate::store::op::suppression::{ImportSuppressions, Name, Suppress, Unsuppress};
    use crate::store::op::suppression_import::{BeginImport, FinishImport, ImportBatch, UndoImport};
    use crate::store::op::unsubscribe::Unsubscribe;
    use crate::store::row::suppression::SuppressionReason;
    use crate::store::testing::TestStore;

    fn listed(numbers: std::ops::Range<usize>) -> Vec<Suppression> {
        let address = |number| format!("a{number}@example.net").parse().unwrap();
        numbers.map(|number| Suppression::of(address(number), SuppressionReason::Import)).collect()
    }

    fn suppress(account: AccountId, number: usize) -> Suppress {
        Suppress { account, suppression: listed(number..number + 1).remove(0), waiting: vec![] }
    }

    fn import(account: AccountId, numbers: std::ops::Range<usize>) -> ImportSuppressions {
        ImportSuppressions { account, suppressions: listed(numbers), waiting: vec![] }
    }

    fn used(test: &TestStore, account: AccountId) -> u64 {
        SUPPRESSIONS_COUNT - remaining(&test.snapshot(), account).unwrap()
    }

    #[test]
    fn the_count_follows_every_change_of_the_rows() {
        let test = TestStore::new();
        let (account, other) = (test.account(QuotaLimits::default()), test.account(QuotaLimits::default()));
        test.done(suppress(account, 0));
        test.done(suppress(account, 0));
        test.done(import(account, 0..5));
        assert_eq!((used(&test, account), used(&test, other)), (5, 0));
        let timer = test.done(BeginImport { account });
        test.done(ImportBatch { account, import: timer.id, suppressions: listed(3..9) });
        test.done(suppress(account, 8));
        assert_eq!(used(&test, account), 9, "a replaced row of the import counts once");
        while !test.done(UndoImport { timer }) {}
        assert_eq!(used(&test, account), 6);
        test.done(Unsuppress { account, name: Name::Address(listed(0..1).remove(0).address) });
        assert_eq!((used(&test, account), test.count(Table::Suppressions, &[])), (5, 5));
    }

    #[test]
    fn beyond_the_limit_requests_and_imports_are_refused_and_outcomes_are_recorded() {
        let test = TestStore::new();
        let sender = test.sender();
        let account = sender.account;
        test.done(import(account, 0..2));
        let unsubscribed = sender.accept("u@example.net");
        sender.settle(unsubscribed, TransferEnd::Delivered);
        test.done(SetSuppressionCount { account, suppressions: SUPPRESSIONS_COUNT - 1 });
        assert!(matches!(test.commit(import(account, 0..4)), Err(OpError::Refused(TooManySuppressions))));
        assert_eq!(test.count(Table::Suppressions, &[]), 2, "a refused list writes nothing");
        let timer = test.done(BeginImport { account });
        let batch = |numbers| ImportBatch { account, import: timer.id, suppressions: listed(numbers) };
        assert!(matches!(test.commit(batch(1..4)), Err(OpError::Refused(TooManySuppressions))));
        assert_eq!(test.done(batch(0..3)), 1, "two of three are suppressed already");
        test.done(FinishImport { account, import: timer.id, count: 3 });
        assert_eq!(used(&test, account), SUPPRESSIONS_COUNT);
        assert!(matches!(test.commit(suppress(account, 3)), Err(OpError::Refused(TooManySuppressions))));
        assert!(!test.done(suppress(account, 2)).is_new);
        test.done(Unsubscribe { account, message: unsubscribed, waiting: vec![] });
        assert_eq!(test.count(Table::Suppressions, &[]), 4, "an unsubscription is recorded beyond the limit");
        test.done(Unsuppress { account, name: Name::Address(listed(0..1).remove(0).address) });
        assert!(test.commit(suppress(account, 3)).is_err(), "the account is at its limit again");
        test.done(Unsuppress { account, name: Name::Address(listed(1..2).remove(0).address) });
        assert!(test.done(suppress(account, 3)).is_new);
    }

    #[test]
    fn suppressions_of_an_earlier_version_and_of_a_damaged_count_are_counted_at_start() {
        let mut test = TestStore::new();
        let (account, other) = (test.account(QuotaLimits::default()), test.account(QuotaLimits::default()));
        test.done(import(account, 0..7));
        test.done(suppress(other, 0));
        test.keys(Table::SuppressionCounts, &[]).iter().for_each(|key| test.put(Table::SuppressionCounts, key, None));
        test.put(Table::Meta, meta::TOTALS, Some(&[1]));
        test.reopen();
        assert_eq!((used(&test, account), used(&test, other)), (7, 1));
        test.store().damage_row(Table::SuppressionCounts, account.as_bytes());
        assert!(test.done(suppress(account, 9)).is_new, "a damaged count refuses nothing");
        test.reopen();
        assert_eq!((used(&test, account), used(&test, other)), (8, 1));
    }
}
