//! Reading a message's body. If its key is missing, the read decides whether the key was destroyed on time or was lost.

use super::Store;
use super::clock_doubts::end_of;
use super::content::{Place, Unreadable};
use super::error::StoreError;
use super::read::Read;
use super::row::destroyed_content::DestroyedContent;
use super::row::restored::RestoreOrigin;
use super::schema::meta;
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::machine::retention::Bucket;

/// Returns the content that was destroyed. A damaged row counts as none.
///
/// # Errors
/// Database errors.
pub(super) fn destroyed(read: &impl Read) -> Result<DestroyedContent, StoreError> {
    Ok(read.sound_row(meta::DESTROYED)?.unwrap_or_default())
}

impl Store {
    /// Returns the body of `message` at `place`. Deadlines are judged at `now`.
    ///
    /// # Errors
    /// [`Unreadable::Gone`] if the body's deadline has passed, now or before the clock was set back, or if the store
    /// was restored from a backup without bodies. A key that is missing before its deadline is a failure, like a
    /// damaged body.
    pub fn body(&self, place: Place, message: MessageId, now: Timestamp) -> Result<Vec<u8>, Unreadable> {
        let fault = match self.content().read(place, message) {
            Err(fault) => fault,
            body => return body,
        };
        let snapshot = self.snapshot()?;
        let end = end_of(&snapshot, Bucket { end: place.bucket })?;
        // After a step back of the clock, the bucket may have a new segment of the same number.
        if destroyed(&snapshot)?.has(end, message) {
            return Err(Unreadable::Gone);
        }
        let restored: Option<RestoreOrigin> = snapshot.row(meta::RESTORED)?;
        let may_lack_key = end <= now || restored.is_some_and(|restored| restored.lacks_content_of(message.0));
        Err(match fault {
            Unreadable::Gone if !may_lack_key => StoreError::Content("its key is missing".to_owned()).into(),
            fault => fault,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::id::AccountId;
    use crate::store::check::{KeyPlace, check};
    use crate::store::op::sweep::{ContentDestroyed, ContentExpires};
    use crate::store::row::message::MessageRow;
    use crate::store::schema;
    use crate::store::testing::{START, TestStore};

    fn place(test: &TestStore, account: AccountId, id: MessageId) -> Place {
        test.row::<MessageRow>(&schema::owned(account, id.as_bytes())).place
    }

    #[test]
    fn destroyed_content_stays_deleted_after_a_step_back_of_the_clock() {
        let mut test = TestStore::new();
        let end = START + Duration::from_secs(2 * 3600);
        let sender = test.sender();
        let account = sender.account;
        let before = sender.accept_with_body("a@example.net", 2, b"before");
        test.set_now(end);
        test.done(ContentExpires { until: end });
        test.store().content().destroy(end).unwrap();
        test.done(ContentDestroyed { bucket: end });
        test.set_now(START);
        let read = |test: &TestStore, id| test.store().body(place(test, account, id), id, START);
        assert!(matches!(read(&test, before), Err(Unreadable::Gone)));
        // The same hour comes again, with a segment of the same number.
        let after = sender.accept_with_body("b@example.net", 2, b"after");
        let [first, second] = [before, after].map(|id| place(&test, account, id));
        assert_eq!((first.bucket, first.segment), (second.bucket, second.segment));
        assert_eq!(read(&test, after).unwrap(), b"after");
        assert!(matches!(read(&test, before), Err(Unreadable::Gone)));
        test.close();
        let report = check(test.directory(), START, KeyPlace::WithStore, &mut |_| {}).unwrap();
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        test.open().unwrap();
        test.store().content().destroy(end).unwrap();
        assert!(matches!(read(&test, after), Err(Unreadable::Failed(_))), "it was not destroyed at its deadline");
    }
}
