//! The reason why a message waits (contract 3). Part of it comes from rows: pauses, a restored store's hold, the
//! next attempt. The rest comes from the dispatcher's memory.

use serde::Serialize;

use super::Engine;
use super::messages::MessageRecord;
use super::pauses::pauses;
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::provider_name::provider_name;
use crate::domain::site_name::SiteName;
use crate::store::error::StoreError;
use crate::store::op::suspension::suspension;
use crate::store::read::Read;
use crate::store::row::restored::RestoreOrigin;
use crate::store::row::suspension::SuspensionRow;
use crate::store::schema::meta;
use crate::store::snapshot::Snapshot;
use crate::store::timer::{Timer, TimerKind};

/// The kind of obstacle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitReason {
    /// The last attempt failed; the next one is due later.
    Backoff,
    /// The site is throttled, can't be reached, or accepts no more messages this minute.
    Throttled,
    /// The account has paused mail for the site.
    Paused,
    /// The mail servers of the domain are being looked up, or could not be.
    Dns,
    /// The relay can't be used, or its daily limit is reached.
    Relay,
    /// All connections are in use, or the message is being sent.
    Busy,
    /// The account is suspended, or the store was restored and the operator has not released its queue.
    Held,
    /// A replica has not confirmed the message yet.
    Unconfirmed,
}

impl WaitReason {
    /// Returns the name on every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Backoff => "backoff",
            Self::Throttled => "throttled",
            Self::Paused => "paused",
            Self::Dns => "dns",
            Self::Relay => "relay",
            Self::Busy => "busy",
            Self::Held => "held",
            Self::Unconfirmed => "unconfirmed",
        }
    }
}

/// Reason why a message waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The kind of obstacle.
    pub reason: WaitReason,
    /// Start of the obstacle, as far as it is known. Never before the message was accepted.
    pub since: Timestamp,
    /// End of the obstacle; `None` if it is unknown.
    pub until: Option<Timestamp>,
    /// The obstacle in one sentence.
    pub detail: String,
}

/// Rows that suspend an account's mail, independent of the dispatcher.
pub(super) struct Holds {
    account: AccountId,
    restored: Option<RestoreOrigin>,
    suspension: Option<SuspensionRow>,
    pauses: Vec<(SiteName, Timestamp)>,
}

impl Holds {
    pub(super) fn read(snapshot: &Snapshot, account: AccountId) -> Result<Self, StoreError> {
        let restored = snapshot.row::<RestoreOrigin>(meta::RESTORED)?.filter(|restored| restored.is_on_hold);
        Ok(Self { account, restored, suspension: suspension(snapshot, account)?, pauses: pauses(snapshot, account)? })
    }

    /// Returns whether the message of a timer is on hold.
    pub(super) fn are_on(&self, timer: &Timer) -> bool {
        self.suspension.is_some() || self.restored.is_some_and(|restored| restored.holds(timer))
    }

    /// Returns the hold of a suspended account, of a restored store, or of a store that was started with a damaged
    /// journal.
    fn hold(&self, record: &MessageRecord, due: Timestamp) -> Option<Wait> {
        if let Some(SuspensionRow { since, reason }) = &self.suspension {
            let detail = format!("The account is suspended: {}", reason.as_str());
            return Some(Wait { reason: WaitReason::Held, since: *since, until: None, detail });
        }
        let timer = Timer::new(due, TimerKind::Transfer, self.account, record.id.0);
        let restored = self.restored.filter(|restored| restored.holds(&timer))?;
        let detail = "The queue is on hold since the store was restored, until the operator releases it.".to_owned();
        Some(Wait { reason: WaitReason::Held, since: restored.backup_at, until: None, detail })
    }

    /// Returns the pause of one of these sites.
    fn pause(&self, sites: &[String]) -> Option<Wait> {
        let (site, since) = self.pauses.iter().find(|(site, _)| sites.iter().any(|name| name == site.as_str()))?;
        let detail = format!("Mail for {} is paused.", provider_name(site.as_str()));
        Some(Wait { reason: WaitReason::Paused, since: *since, until: None, detail })
    }
}

impl Engine {
    /// Returns the reason for a message's wait; `None` if the message has ended.
    pub(super) fn wait_of(&self, record: &MessageRecord, holds: &Holds) -> Option<Wait> {
        let due = record.transfer.due.filter(|_| record.transfer.state.status().is_waiting())?;
        let view = self.queue_view();
        let sites = || {
            let site = view.as_ref().map(|view| view.site_of(record));
            site.into_iter().chain([record.row.to.domain().to_string()]).collect::<Vec<_>>()
        };
        let held = holds.hold(record, due);
        let unconfirmed = || {
            self.waits_for_replica().then(|| Wait {
                reason: WaitReason::Unconfirmed,
                since: due,
                until: None,
                detail: "The bucket of the replica has not confirmed that this machine may send.".to_owned(),
            })
        };
        let wait = held.or_else(unconfirmed);
        let wait = wait.or_else(|| if holds.pauses.is_empty() { None } else { holds.pause(&sites()) });
        let wait = wait.or_else(|| view.as_ref().map(|view| view.wait(holds.account, record, due)));
        let wait = wait.unwrap_or_else(|| Wait {
            reason: WaitReason::Busy,
            since: due,
            until: None,
            detail: "The service does not send mail now.".to_owned(),
        });
        Some(Wait { since: wait.since.max(record.row.created_at), ..wait })
    }
}
