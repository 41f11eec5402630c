//! Waiting mail by site and relay (contract 8 `queue list`).

use serde::Serialize;

use crate::base::time::{Timestamp, iso};
use crate::engine::backup::ReleaseResult;
use crate::engine::queue::SiteQueue;
use crate::engine::wait_reason::WaitReason;
use crate::store::TimersOnHold;

/// Queue of one relay for one site.
#[derive(Serialize)]
pub(in crate::http) struct SiteQueueView<'a> {
    site: &'a str,
    relay: &'a str,
    waiting: u64,
    in_flight: u64,
    #[serde(serialize_with = "iso::option::serialize")]
    next_at: Option<Timestamp>,
    #[serde(serialize_with = "iso::option::serialize")]
    held_until: Option<Timestamp>,
    last_answer: Option<&'a str>,
    reason: Option<WaitReason>,
}

impl<'a> SiteQueueView<'a> {
    pub(in crate::http) fn new(queue: &'a SiteQueue) -> Self {
        Self {
            site: &queue.site,
            relay: &queue.relay,
            waiting: queue.waiting,
            in_flight: queue.in_flight,
            next_at: queue.next_at,
            held_until: queue.held_until,
            last_answer: queue.last_answer.as_deref(),
            reason: queue.reason,
        }
    }
}

/// Whether an account's mail for a site is paused.
#[derive(Serialize)]
pub(in crate::http) struct PausedView<'a> {
    pub(in crate::http) site: &'a str,
    pub(in crate::http) paused: bool,
}

/// Result of retrying now.
#[derive(Serialize)]
pub(in crate::http) struct TriedView<'a> {
    pub(in crate::http) site: &'a str,
    pub(in crate::http) messages: u64,
    /// Whether another call may retry more.
    pub(in crate::http) more: bool,
}

/// Timers on hold in a restored store.
#[derive(Serialize)]
pub(in crate::http) struct RestoreHoldView {
    #[serde(serialize_with = "iso::serialize")]
    backup_at: Timestamp,
    messages: u64,
    deliveries: u64,
}

impl RestoreHoldView {
    pub(in crate::http) const fn new(backup_at: Timestamp, on_hold: TimersOnHold) -> Self {
        Self { backup_at, messages: on_hold.messages, deliveries: on_hold.deliveries }
    }
}

/// Result of `queue release`.
#[derive(Serialize)]
pub(in crate::http) struct ReleasedView {
    released: bool,
    #[serde(serialize_with = "iso::option::serialize")]
    backup_at: Option<Timestamp>,
    messages: u64,
    deliveries: u64,
}

impl ReleasedView {
    pub(in crate::http) const fn new(released: &ReleaseResult) -> Self {
        let ReleaseResult { backup_at, on_hold } = *released;
        Self { released: backup_at.is_some(), backup_at, messages: on_hold.messages, deliveries: on_hold.deliveries }
    }
}
