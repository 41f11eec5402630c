//! Manual control of queued mail for a site: pause it, resume it, or retry it now. A pause belongs to an account and
//! outlives a restart. It writes nothing to the queued messages.

use serde::{Deserialize, Serialize};

use super::{Infallible, NotFound, Op};
use crate::base::id::{AccountId, MessageId};
use crate::domain::site_name::SiteName;
use crate::store::error::{OpError, StoreError};
use crate::store::read::Read;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::row::pause::PauseRow;
use crate::store::schema;
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Maximum number of paused sites of an account.
pub const PAUSES_MAX: usize = 100;
/// Maximum number of messages in one [`TryNow`].
pub const TRIED_MAX: usize = 256;

/// Returns whether the account's mail for `site` is paused.
///
/// # Errors
/// Store errors.
pub fn is_paused(read: &impl Read, account: AccountId, site: &str) -> Result<bool, StoreError> {
    Ok(read.row::<PauseRow>(&schema::named(account, site.as_bytes()))?.is_some())
}

/// Pauses the account's mail for a site. May be repeated.
#[derive(Debug, Serialize, Deserialize)]
pub struct PauseSite {
    /// The account.
    pub account: AccountId,
    /// The site, or a domain of recipients.
    pub site: SiteName,
}

/// Error: the account has [`PAUSES_MAX`] paused sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyPauses;

impl Op for PauseSite {
    type Reply = ();
    type Refusal = TooManyPauses;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<TooManyPauses>> {
        let key = schema::named(self.account, self.site.as_str().as_bytes());
        if tables.row::<PauseRow>(&key)?.is_some() {
            return Ok(());
        }
        if tables.sound_rows::<PauseRow>(self.account.as_bytes(), PAUSES_MAX)?.len() == PAUSES_MAX {
            return Err(OpError::Refused(TooManyPauses));
        }
        let since = tables.now();
        tables.put(&key, &PauseRow { since });
        Ok(())
    }
}

/// Resumes the account's mail for a site.
#[derive(Debug, Serialize, Deserialize)]
pub struct ResumeSite {
    /// The account.
    pub account: AccountId,
    /// The paused site.
    pub site: SiteName,
}

impl Op for ResumeSite {
    type Reply = ();
    type Refusal = NotFound;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<NotFound>> {
        let key = schema::named(self.account, self.site.as_str().as_bytes());
        tables.row::<PauseRow>(&key)?.ok_or(OpError::Refused(NotFound))?;
        tables.remove(schema::Table::Pauses, &key);
        Ok(())
    }
}

/// Makes messages that wait for a retry due now. Others are not changed.
#[derive(Debug, Serialize, Deserialize)]
pub struct TryNow {
    /// The account.
    pub account: AccountId,
    /// The messages, whose leases the caller holds.
    pub messages: Vec<MessageId>,
}

impl Op for TryNow {
    /// Number of messages that are retried earlier.
    type Reply = u64;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<u64, OpError<Infallible>> {
        let (mut tried, now, expiry) = (0, tables.now(), tables.expiry());
        for id in &self.messages {
            let key = schema::message(self.account, *id);
            let (Some(row), Some(transfer)) = (tables.row::<MessageRow>(&key)?, tables.row::<TransferRow>(&key)?)
            else {
                continue;
            };
            let Some(due) = transfer.due.filter(|due| *due > now && row.give_up_at > expiry) else { continue };
            let timer = |due| Timer::new(due, TimerKind::Transfer, self.account, id.0);
            tables.disarm(timer(due));
            tables.arm(timer(now));
            tables.put(&key, &TransferRow { due: Some(now), ..transfer });
            tried += 1;
        }
        Ok(tried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::account::QuotaLimits;
    use crate::store::op::settle_transfer::TransferEnd;
    use crate::store::schema::Table;
    use crate::store::testing::TestStore;

    fn site(name: &str) -> SiteName {
        name.parse().unwrap()
    }

    #[test]
    fn a_pause_applies_to_one_account_and_site_and_ends_once() {
        let test = TestStore::new();
        let (account, other) = (test.account(QuotaLimits::default()), test.account(QuotaLimits::default()));
        let is_paused = |account, name| is_paused(&test.snapshot(), account, name).unwrap();
        for _ in 0..2 {
            test.done(PauseSite { account, site: site("google") });
        }
        assert!(is_paused(account, "google") && !is_paused(account, "googl") && !is_paused(other, "google"));
        test.done(ResumeSite { account, site: site("google") });
        assert!(!is_paused(account, "google"));
        let again = test.commit(ResumeSite { account, site: site("google") });
        assert!(matches!(again, Err(OpError::Refused(NotFound))));
    }

    #[test]
    fn an_account_may_pause_100_sites() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        for n in 0..PAUSES_MAX {
            test.done(PauseSite { account, site: site(&format!("{n}.example")) });
        }
        let more = test.commit(PauseSite { account, site: site("more.example") });
        assert!(matches!(more, Err(OpError::Refused(TooManyPauses))));
        test.done(PauseSite { account, site: site("0.example") });
    }

    #[test]
    fn messages_waiting_for_a_retry_become_due_and_nothing_else_changes() {
        let test = TestStore::new();
        let sender = test.sender();
        let messages = ["a@example.net", "b@example.net", "c@example.net"].map(|to| sender.accept(to));
        sender.settle(messages[0], TransferEnd::Deferred { bounce: None, not_before: None });
        sender.settle(messages[1], TransferEnd::Delivered);
        let due = |id: MessageId| test.row::<TransferRow>(&sender.key(id)).due;
        assert!(due(messages[0]) > Some(test.now()));
        let account = sender.account;
        assert_eq!(test.done(TryNow { account, messages: messages.to_vec() }), 1, "the third was already due");
        assert_eq!(messages.map(due), [Some(test.now()), None, Some(test.now())]);
        let timers = test.timers(TimerKind::Transfer);
        assert_eq!(timers.len(), 2);
        assert!(timers.iter().all(|timer| timer.due == test.now()));
        assert_eq!(test.count(Table::Timeline, &sender.key(messages[0])), 2, "a manual retry is not an event");
        assert_eq!(test.done(TryNow { account, messages: messages.to_vec() }), 0);
    }
}
