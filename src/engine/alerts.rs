//! Alerts: who is told of them and how, and the checks that find their conditions.
//!
//! What an operation of the store knows is raised inside it ([`crate::store::op::alert`]). Everything else is found by
//! checks, every 5 minutes and, where they ask a network, every hour. A change arms a timer of its alert; served, it is
//! fanned out to those who are told ([`announce`]), as notices that the [`notifier`] sends.

pub(super) mod announce;
mod checks;
mod dmarc;
mod egress;
pub mod listing;
mod network;
pub(super) mod notifier;
pub mod outlook;
mod providers;
mod quotas;
pub mod record;
mod relays;
mod stalled;
pub mod testing;
mod text;
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
    /// Whether alerts of an account go to its owners.
    pub tells_owners: bool,
    /// The relay that is tried first.
    pub relay: Option<String>,
    /// The operator's webhook.
    pub webhook: Option<AlertWebhook>,
    /// The block lists to look up source addresses in.
    pub block_lists: Vec<DomainName>,
    /// The age at which the last backup is too old; none where nobody wants to know.
    pub backup_age_max: Option<Duration>,
    /// Whether checks run by timer. In `dev` they run by command alone.
    pub runs_checks: bool,
}

/// The webhook that alerts are sent to.
#[derive(Debug, Clone)]
pub struct AlertWebhook {
    /// Its https URL.
    pub url: Url,
    /// The secret that requests are signed with.
    pub secret: Secret,
}

impl AlertSettings {
    /// The settings of a service that tells nobody and checks by command alone.
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

/// The state of alerts that is in memory alone.
#[derive(Default)]
pub struct Alerts {
    /// The sender of notices, once there is a dispatcher.
    pub(super) notifier: OnceLock<Weak<Notifier>>,
    /// Facts that the engine does not know itself.
    pub sources: OnceLock<Sources>,
    /// The last attempts at mail servers.
    attempts: Mutex<Attempts>,
    /// Relays that were seen to work since they last failed.
    working: Mutex<HashSet<Arc<str>>>,
    /// When mail servers were last reached directly.
    reached_directly: Mutex<Option<Timestamp>>,
    /// Observations of earlier checks. The running check holds the lock.
    memory: tokio::sync::Mutex<Memory>,
}

impl Alerts {
    /// Notes the end of an attempt at `now`.
    pub(super) fn attempted(&self, end: &TransferEnd, now: Timestamp) {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner).note(end, now);
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        self.notifier.get().and_then(Weak::upgrade)
    }
}
