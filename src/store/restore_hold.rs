//! Hold of a restored store. It suspends the transfers and webhook deliveries that were queued when the backup was
//! taken, and the TLS reports of days that had begun by then. Their timers stay in the table and never come due until
//! the operator releases them. This needs no writes and no memory. Mail accepted since then is sent as usual.

use std::ops::ControlFlow;

use super::Store;
use super::error::{OpError, StoreError};
use super::op::release_queue::ReleaseQueue;
use super::read::{Order, Read, after_prefix};
use super::row::restored::RestoreOrigin;
use super::schema::{Table, meta};
use super::timer::{Timer, TimerKind};

/// Number of timers on hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimersOnHold {
    /// Messages.
    pub messages: u64,
    /// Webhook deliveries that are pending and not held by their endpoint.
    pub deliveries: u64,
}

impl Store {
    /// Returns the backup whose queues are on hold, if there is one.
    ///
    /// # Errors
    /// Database errors.
    pub fn restore_hold(&self) -> Result<Option<RestoreOrigin>, StoreError> {
        let restored = self.snapshot()?.row::<RestoreOrigin>(meta::RESTORED)?;
        Ok(restored.filter(|restored| restored.is_on_hold))
    }

    /// Returns the number of timers on hold. Reads all timers.
    ///
    /// # Errors
    /// Database errors.
    pub fn timers_on_hold(&self, restored: &RestoreOrigin) -> Result<TimersOnHold, StoreError> {
        let mut on_hold = TimersOnHold::default();
        self.snapshot()?.scan_sound(Table::Timers, &[], &after_prefix(&[]), Order::Ascending, &mut |key, _| {
            if let Some(timer) = Timer::decode(key).filter(|timer| restored.holds(timer)) {
                on_hold.messages += u64::from(timer.kind == TimerKind::Transfer);
                on_hold.deliveries += u64::from(timer.kind == TimerKind::Delivery);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(on_hold)
    }

    /// Releases the hold and returns its backup; `None` if there was no hold.
    ///
    /// # Errors
    /// Database errors.
    pub async fn release_queue(&self) -> Result<Option<RestoreOrigin>, StoreError> {
        let released = self.commit(ReleaseQueue).await.map_err(|stop| match stop {
            OpError::Failed(error) => error,
            OpError::Refused(never) => match never {},
        })?;
        // A second request during the first is answered after the same commit, so either may wake the dispatcher.
        self.timers().release();
        Ok(released)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::row::restored::HoldCause;
    use crate::store::schema::Table;
    use crate::store::testing::{START, Sender, TestStore};
    use std::time::Duration;

    /// Marks all waiting timers as restored.
    fn put_on_hold(test: &mut TestStore) -> RestoreOrigin {
        let last = |key: &[u8]| {
            let bytes = test.snapshot().get(Table::Meta, key).unwrap().unwrap();
            crate::base::id::Ulid(bytes.try_into().unwrap())
        };
        let restored = RestoreOrigin {
            backup_at: START,
            has_content: false,
            last_message: last(meta::LAST_MESSAGE_ID),
            last_id: last(meta::LAST_ID),
            is_on_hold: true,
            cause: HoldCause::Restored,
        };
        test.write(meta::RESTORED, &restored);
        test.reopen();
        restored
    }

    fn due(test: &TestStore) -> Vec<Timer> {
        let timer_cache = test.store().timers();
        let mut found = Vec::new();
        loop {
            let due = timer_cache.take_due(test.now(), 100);
            let is_over = due.timers.is_empty() && !due.needs_refill;
            found.extend(due.timers);
            if due.needs_refill {
                timer_cache.refill(test.now(), || test.store().snapshot()).unwrap();
            } else if is_over {
                found.retain(|timer| matches!(timer.kind, TimerKind::Transfer | TimerKind::Delivery));
                return found;
            }
        }
    }

    fn release(test: &TestStore) -> Option<RestoreOrigin> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(test.store().release_queue()).unwrap()
    }

    #[test]
    fn restored_mail_stays_on_hold_across_restarts_and_new_mail_does_not() {
        let mut test = TestStore::new();
        let sender = test.sender();
        let account = sender.account;
        let domain = sender.domain;
        test.endpoint(account, None);
        let old = Sender::of(&test, account, domain).accept("old@example.net");
        let restored = put_on_hold(&mut test);
        test.reopen();
        assert_eq!(test.store().restore_hold().unwrap(), Some(restored));
        assert_eq!(due(&test), []);
        assert_eq!(test.store().timers_on_hold(&restored).unwrap(), TimersOnHold { messages: 1, deliveries: 1 });
        let new = Sender::of(&test, account, domain).accept("new@example.net");
        let found = due(&test);
        assert_eq!(found.len(), 2, "the new message and its event's delivery: {found:?}");
        assert!(found.iter().any(|timer| timer.id == new.0) && found.iter().all(|timer| timer.id != old.0));
    }

    #[test]
    fn released_mail_is_due_at_once_and_a_second_release_changes_nothing() {
        let mut test = TestStore::new();
        let sender = test.sender();
        let (account, domain) = (sender.account, sender.domain);
        let old: Vec<_> = (0..3).map(|n| sender.accept(&format!("old{n}@example.net")).0).collect();
        let restored = put_on_hold(&mut test);
        test.pass(Duration::from_secs(60));
        assert_eq!(due(&test), []);
        let new = Sender::of(&test, account, domain).accept("new@example.net");
        assert_eq!(release(&test), Some(restored));
        let mut found: Vec<_> = due(&test).iter().map(|timer| timer.id).collect();
        found.sort();
        assert_eq!(found, [old, vec![new.0]].concat());
        assert_eq!(release(&test), None);
        assert_eq!(due(&test), [], "each timer is taken once");
        test.reopen();
        assert_eq!(test.store().restore_hold().unwrap(), None);
        assert_eq!(due(&test).len(), 4);
    }
}
