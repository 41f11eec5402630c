//! Manual control of waiting mail: pausing and resuming an account's mail to a site, and retrying it now. The decision
//! is stored in rows. The dispatcher, if there is one, is notified afterwards.

use std::sync::Arc;

use super::Engine;
use super::audit::Behalf;
use super::lease::Lease;
use super::queue::MailAtSite;
use crate::base::id::{AccountId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::audit::{Action, Change};
use crate::domain::site_name::SiteName;
use crate::store::error::{OpError, StoreError};
use crate::store::op::NotFound;
use crate::store::op::pause::{self, PAUSES_MAX, PauseSite, ResumeSite, TRIED_MAX, TooManyPauses, TryNow};
use crate::store::read::Read;
use crate::store::row::pause::PauseRow;
use crate::store::snapshot::Snapshot;

/// Maximum number of messages of a site that one request retries; further requests retry the rest.
const TRIED_AT_ONCE: usize = 10_000;

/// Result of retrying now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryResult {
    /// Number of messages that are retried earlier than planned.
    pub messages: u64,
    /// Whether there may be more messages to retry.
    pub is_cut: bool,
}

/// Reason why a message can't be retried now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryRefusal {
    /// The message does not exist.
    NotFound,
    /// The message has ended, or is in flight.
    TooLate,
}

/// Returns the pauses of an account, with their start times.
pub(super) fn pauses(snapshot: &Snapshot, account: AccountId) -> Result<Vec<(SiteName, Timestamp)>, StoreError> {
    let rows = snapshot.sound_rows::<PauseRow>(account.as_bytes(), PAUSES_MAX)?;
    let read = |(key, row): (Vec<u8>, PauseRow)| {
        let name = std::str::from_utf8(key.get(16..)?).ok()?.parse().ok()?;
        Some((name, row.since))
    };
    Ok(rows.into_iter().filter_map(read).collect())
}

impl Engine {
    /// Pauses the account's mail for a site, or for recipients of a domain. An attempt in flight continues to its end.
    /// Paused messages still end as `failed` when they expire. Idempotent.
    ///
    /// # Errors
    /// The account has the maximum number of pauses, or the store's failure.
    pub async fn pause_site(&self, on: impl Into<Behalf>, site: SiteName) -> Result<(), OpError<TooManyPauses>> {
        let on = on.into();
        let account = on.account;
        self.commit_on(on, PauseSite { account, site }).await
    }

    /// Resumes the account's mail for a site or domain.
    ///
    /// # Errors
    /// There is no such pause, or the store's failure.
    pub async fn resume_site(&self, on: impl Into<Behalf>, site: SiteName) -> Result<(), OpError<NotFound>> {
        let on = on.into();
        let account = on.account;
        self.commit_on(on, ResumeSite { account, site }).await?;
        if let Some(view) = self.queue_view() {
            view.wake(account);
        }
        Ok(())
    }

    /// Retries the account's waiting mail for a site now, and probes the site if it is throttled. Without mail for the
    /// site, nothing is probed.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn try_site(&self, on: impl Into<Behalf>, site: SiteName) -> Result<RetryResult, StoreError> {
        let on = on.into();
        let account = on.account;
        let Some(view) = self.queue_view() else { return Ok(RetryResult { messages: 0, is_cut: false }) };
        self.note(&on, Change::new(Action::SiteTried, "", site.as_str())).await?;
        let (looking, wanted) = (Arc::clone(&view), site.clone());
        let look = self.blocking(account, move || looking.waiting_at(account, &wanted, TRIED_AT_ONCE));
        let MailAtSite { waiting, is_cut, has_mail } = look.await??;
        let mut messages = 0;
        for part in waiting.chunks(TRIED_MAX) {
            messages += self.try_leased(account, part).await?;
        }
        // A probe uses other accounts' mail too, so only an account with mail for the site may request one.
        if has_mail {
            view.hurry(site.as_str());
        }
        Ok(RetryResult { messages, is_cut })
    }

    /// Retries one message now, and probes its site if it is throttled.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn try_message(&self, on: impl Into<Behalf>, id: MessageId) -> Result<(), OpError<TryRefusal>> {
        let on = on.into();
        let account = on.account;
        let record = self.message(account, id)?.ok_or(OpError::Refused(TryRefusal::NotFound))?;
        let is_over = !record.transfer.state.status().is_waiting() || self.clock.time().expiry >= record.row.give_up_at;
        if is_over || self.leases.is_taken(id) {
            return Err(OpError::Refused(TryRefusal::TooLate));
        }
        self.note(&on, Change::new(Action::MessageTried, id, "")).await?;
        self.try_leased(account, &[id]).await?;
        if let Some(view) = self.queue_view() {
            view.hurry(&view.site_of(&record));
        }
        Ok(())
    }

    /// Returns the names of the sites and domains that the account has paused.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn paused_sites(&self, account: AccountId) -> Result<Vec<SiteName>, StoreError> {
        Ok(pauses(&self.store.snapshot()?, account)?.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns the site of a message, if the account has paused its mail for it.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn pause_of(&self, account: AccountId, id: MessageId) -> Result<Option<String>, StoreError> {
        let Some(record) = self.message(account, id)?.filter(|record| record.transfer.due.is_some()) else {
            return Ok(None);
        };
        let snapshot = self.store.snapshot()?;
        let site = self.queue_view().map(|view| view.site_of(&record));
        for name in site.into_iter().chain([record.row.to.domain().to_string()]) {
            if pause::is_paused(&snapshot, account, &name)? {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Skips messages that a worker has started: they are being attempted already.
    async fn try_leased(&self, account: AccountId, messages: &[MessageId]) -> Result<u64, StoreError> {
        let leased = messages.iter().filter_map(|id| Some((*id, self.leases.take_unreserved(*id)?)));
        let (messages, leases): (Vec<MessageId>, Vec<Lease>) = leased.unzip();
        match self.commit_leased(TryNow { account, messages }, leases).await {
            Ok(tried) => Ok(tried),
            Err(OpError::Failed(error)) => Err(error),
            Err(OpError::Refused(never)) => match never {},
        }
    }
}
