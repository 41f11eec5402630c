//! Bytes of stored message content for each account: the compressed and sealed size of its bodies in segments. The
//! operation that accepts a message adds them, and the end of a bucket subtracts them.

use crate::base::id::{AccountId, Ulid};
use crate::base::time::Timestamp;
use crate::store::content::Place;
use crate::store::error::StoreError;
use crate::store::read::{OnDamage, Order, Read};
use crate::store::row::totals::{StoredContentRow, StoredInBucketRow};
use crate::store::schema::{self, Table, meta};
use crate::store::tables::Tables;

/// Returns the number of bytes that an account has stored. A damaged count never refuses a message: it counts as zero
/// until the next start counts again.
///
/// # Errors
/// Database errors.
pub fn used(read: &impl Read, account: AccountId) -> Result<u64, StoreError> {
    Ok(read.sound_row::<StoredContentRow>(account.as_bytes())?.unwrap_or_default().bytes)
}

/// Returns the count for an operation that changes it.
fn counted_in_all(tables: &mut Tables<'_>, account: AccountId) -> Result<u64, StoreError> {
    match tables.row::<StoredContentRow>(account.as_bytes()) {
        Err(error) if error.is_of_row() => {
            tables.remove(Table::Meta, meta::TOTALS);
            Ok(0)
        }
        found => Ok(found?.unwrap_or_default().bytes),
    }
}

/// Counts a body of the account.
pub(super) fn add(tables: &mut Tables<'_>, account: AccountId, place: Place) -> Result<(), StoreError> {
    let of_bucket = schema::stored_content(place.bucket, account);
    let in_bucket = counted_in_bucket(tables, &of_bucket)?;
    let in_all = counted_in_all(tables, account)?;
    let more = u64::from(place.length);
    if more > 0 {
        tables.put(&of_bucket, &StoredInBucketRow { bytes: in_bucket.saturating_add(more) });
        tables.put(account.as_bytes(), &StoredContentRow { bytes: in_all.saturating_add(more) });
    }
    Ok(())
}

/// Returns the count of a row. A damaged one counts as zero until the next start counts again.
fn counted_in_bucket(tables: &mut Tables<'_>, key: &[u8]) -> Result<u64, StoreError> {
    match tables.row::<StoredInBucketRow>(key) {
        Err(error) if error.is_of_row() => {
            tables.remove(Table::Meta, meta::TOTALS);
            Ok(0)
        }
        found => Ok(found?.unwrap_or_default().bytes),
    }
}

/// Subtracts the bytes of buckets that ended at `bucket` or earlier, for at most `limit` accounts and buckets. Returns
/// whether no such bucket is left.
pub(super) fn give_back(tables: &mut Tables<'_>, bucket: Timestamp, limit: usize) -> Result<bool, StoreError> {
    let end = Timestamp::from_millis(bucket.as_millis().saturating_add(1)).as_millis().to_be_bytes();
    let range: (&[u8], &[u8]) = (&[], &end);
    let keys = tables.keys_with(Table::StoredContentByBucket, range, Order::Ascending, OnDamage::Key, limit)?;
    for key in &keys {
        let Some(account) = key.last_chunk::<16>().map(|account| AccountId(Ulid(*account))) else { continue };
        // A damaged count is dropped: it must not keep a bucket.
        let bytes = counted_in_bucket(tables, key)?;
        tables.remove(Table::StoredContentByBucket, key);
        let used = counted_in_all(tables, account)?;
        if used > bytes {
            tables.put(account.as_bytes(), &StoredContentRow { bytes: used - bytes });
        } else {
            tables.remove(Table::StoredContent, account.as_bytes());
        }
    }
    Ok(keys.len() < limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::op::sweep::ContentDestroyed;
    use crate::store::testing::{START, Sender, TestStore};
    use crate::store::timer::TimerKind;
    use std::time::Duration;

    fn stored(test: &TestStore, sender: &Sender<'_>) -> u64 {
        used(&test.snapshot(), sender.account).unwrap()
    }

    fn hours(hours: u64) -> Timestamp {
        START + Duration::from_secs(3600 * hours)
    }

    #[test]
    fn stored_bytes_grow_with_each_body_and_shrink_as_buckets_end() {
        let test = TestStore::new();
        let (sender, other) = (test.sender(), test.account(crate::domain::account::QuotaLimits::default()));
        sender.accept_with_body("b@example.net", 2, &[7; 3000]);
        let one = stored(&test, &sender);
        assert!(one > 0 && one < 3000, "the compressed size of the body: {one}");
        sender.accept_with_body("b@example.net", 3, &[7; 3000]);
        assert_eq!(stored(&test, &sender), 2 * one);
        assert_eq!(used(&test.snapshot(), other).unwrap(), 0);
        test.set_now(hours(2));
        test.done(ContentDestroyed { bucket: hours(2) });
        assert_eq!(stored(&test, &sender), one);
        test.set_now(hours(3));
        test.done(ContentDestroyed { bucket: hours(3) });
        assert_eq!((stored(&test, &sender), test.count(Table::StoredContentByBucket, &[])), (0, 0));
        assert!(test.timers(TimerKind::Content).is_empty());
    }

    #[test]
    fn bodies_of_an_earlier_version_are_counted_at_start() {
        let mut test = TestStore::new();
        let sender = test.sender();
        let (account, domain) = (sender.account, sender.domain);
        sender.accept_with_body("b@example.net", 2, &[7; 3000]);
        sender.accept_with_body("b@example.net", 3, &[7; 3000]);
        let before = stored(&test, &sender);
        for table in [Table::StoredContent, Table::StoredContentByBucket] {
            test.keys(table, &[]).iter().for_each(|key| test.put(table, key, None));
        }
        test.put(Table::Meta, meta::TOTALS, None);
        test.reopen();
        let sender = Sender::of(&test, account, domain);
        assert_eq!(stored(&test, &sender), before);
        test.set_now(hours(2));
        test.done(ContentDestroyed { bucket: hours(2) });
        assert_eq!(stored(&test, &sender), before / 2);
    }
}
