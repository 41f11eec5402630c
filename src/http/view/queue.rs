//! What waits, by site and relay (contract 8 `queue list`).

use serde::Serialize;

use crate::base::time::{Timestamp, iso};
use crate::engine::queue::SiteQueue;

/// What one relay has to bring to one site.
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
        }
    }
}
