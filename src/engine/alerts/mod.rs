//! Alerts: their recipients, and the checks that find their conditions.
//!
//! Alerts for conditions that an operation knows are raised in that operation ([`crate::store::op::alert`]). All others
//! are found by checks, every 5 minutes, or every hour if they use the network. A change of an alert arms its timer.
//! When it is due, the alert is sent to its recipients ([`announce`]) as notices, by the [`notifier`].

pub(super) mod announce;
mod checks;
mod deposed;
mod dmarc;
mod egress;
pub mod immediate;
pub mod listing;
mod mail_permits;
mod network;
pub(super) mod notifier;
pub mod outlook;
mod providers;
mod quotas;
mod rates;
pub mod record;
mod relays;
mod stalled;
pub mod testing;
mod text;
mod turns;
pub(super) mod watch;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use url::Url;

use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::hostname::DomainName;
use crate::store::op::settle_transfer::TransferEnd;
use checks::Memory;
use notifier::Notifier;
use outlook::Sources;
use stalled::Attempts;

/// The settings of alerts.
#[derive(Debug, Clone)]
pub struct AlertSettings {
    /// The operator's addresses.
    pub email: Vec<Address>,
    /// The sender.
    pub from: Address,
    /// Whether alerts of an account also go to its owners.
    pub tells_owners: bool,
    /// The relay to try first.
    pub relay: Option<String>,
    /// The operator's webhook.
    pub webhook: Option<AlertWebhook>,
    /// DNS block lists in which source addresses are looked up.
    pub block_lists: Vec<DomainName>,
    /// Age at which the last backup is too old; `None` disables the check.
    pub backup_age_max: Option<Duration>,
    /// Whether checks run by timer. In `dev` they run only on command.
    pub runs_checks: bool,
}

/// The webhook that alerts are sent to.
#[derive(Debug, Clone)]
pub struct AlertWebhook {
    /// URL with https.
    pub url: Url,
    /// Secret for signing requests.
    pub secret: Secret,
}

impl AlertSettings {
    /// Settings without recipients, with checks only on command.
    pub const fn silent(from: Address) -> Self {
        Self {
            email: Vec::new(),
            from,
            tells_owners: false,
            relay: None,
            webhook: None,
            block_lists: Vec::new(),
            backup_age_max: None,
            runs_checks: false,
        }
    }
}

/// In-memory state of alerts.
#[derive(Default)]
pub struct Alerts {
    /// Sender of notices, once there is a dispatcher.
    pub(super) notifier: OnceLock<Weak<Notifier>>,
    /// Sender of the last notice of a deposed machine, which stops by then.
    pub(super) last_notifier: OnceLock<Weak<Notifier>>,
    /// Facts that other parts of the program provide.
    pub sources: OnceLock<Sources>,
    /// The last attempts at mail servers.
    attempts: Mutex<Attempts>,
    /// Relays that have worked since their last failure.
    working: Mutex<HashSet<Arc<str>>>,
    /// Time at which a mail server was last reached directly.
    reached_directly: Mutex<Option<Timestamp>>,
    /// Observations of earlier checks. The running check holds the lock.
    memory: tokio::sync::Mutex<Memory>,
}

impl Alerts {
    /// Records the end of an attempt at `now`.
    pub(super) fn attempted(&self, end: &TransferEnd, now: Timestamp) {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner).note(end, now);
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        self.notifier.get().and_then(Weak::upgrade)
    }

    fn last_notifier(&self) -> Option<Arc<Notifier>> {
        self.last_notifier.get().and_then(Weak::upgrade)
    }
}
