//! Metrics of the engine: attempts at mail servers and webhook endpoints, returned mail, and signatures.

use std::time::Duration;

use super::ports::{PostError, PostOutcome};
use super::receive::{DmarcTally, ReceiptCounts};
use super::smtp_submission::SubmissionMeters;
use crate::base::meter::{Counter, Distribution, Histogram};
use crate::store::op::settle_transfer::TransferEnd;

/// Names of attempt outcomes in metrics.
const ATTEMPTS: [&str; 4] = ["delivered", "deferred", "bounced", "failed"];

/// The engine's metrics. Durations are in microseconds.
#[derive(Debug)]
pub struct EngineMeters {
    attempts: [Histogram; ATTEMPTS.len()],
    posts: [Histogram; PostError::ALL.len() + 1],
    /// Endpoints that were disabled after repeated failures.
    pub endpoints_disabled: Counter,
    /// Counts of returned mail.
    pub came_back: ReceiptCounts,
    /// DMARC reports.
    pub dmarc_reports: DmarcTally,
    /// SMTP submission.
    pub submission: SubmissionMeters,
    /// Time for composing, signing and sealing a message.
    pub signing_duration: Histogram,
}

impl Default for EngineMeters {
    fn default() -> Self {
        Self {
            attempts: std::array::from_fn(|_| Histogram::of_durations()),
            posts: std::array::from_fn(|_| Histogram::of_durations()),
            endpoints_disabled: Counter::default(),
            came_back: ReceiptCounts::default(),
            dmarc_reports: DmarcTally::default(),
            submission: SubmissionMeters::default(),
            signing_duration: Histogram::of_durations(),
        }
    }
}

impl EngineMeters {
    /// Counts an attempt with this result and duration.
    pub(super) fn attempted(&self, end: &TransferEnd, duration_ms: u64) {
        let place = match end {
            TransferEnd::Delivered => 0,
            TransferEnd::Deferred { .. } => 1,
            TransferEnd::Bounced(_) => 2,
            TransferEnd::GaveUp(_) | TransferEnd::Crashed => 3,
            // No attempt was made.
            TransferEnd::Over | TransferEnd::Suppressed | TransferEnd::Postponed { .. } | TransferEnd::Unreadable => {
                return;
            }
        };
        self.attempts[place].observe_duration(Duration::from_millis(duration_ms));
    }

    /// Counts a request to a webhook endpoint.
    pub(super) fn posted(&self, outcome: &PostOutcome) {
        let place = outcome.error.map_or(0, |error| 1 + error as usize);
        self.posts[place].observe_duration(outcome.duration);
    }

    /// Returns the durations of attempts at mail servers, by outcome.
    pub fn attempts(&self) -> impl Iterator<Item = (&'static str, Distribution)> {
        ATTEMPTS.into_iter().zip(self.attempts.iter().map(Histogram::read))
    }

    /// Returns the durations of attempts at webhook endpoints, by outcome: `ok`, or the failure's name in the attempt
    /// log.
    pub fn posts(&self) -> impl Iterator<Item = (&'static str, Distribution)> {
        let outcomes = std::iter::once("ok").chain(PostError::ALL.iter().map(|error| error.as_str()));
        outcomes.zip(self.posts.iter().map(Histogram::read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_without_an_attempt_are_not_counted() {
        let meters = EngineMeters::default();
        meters.attempted(&TransferEnd::Delivered, 20);
        meters.attempted(&TransferEnd::Suppressed, 0);
        let counted: Vec<_> = meters.attempts().map(|(outcome, read)| (outcome, read.count, read.sum)).collect();
        assert_eq!(counted, [("delivered", 1, 20_000), ("deferred", 0, 0), ("bounced", 0, 0), ("failed", 0, 0)]);
    }

    #[test]
    fn a_request_is_counted_by_the_name_of_its_outcome() {
        let meters = EngineMeters::default();
        let outcome = |error| PostOutcome { status: None, error, duration: Duration::ZERO, peer: None, body: None };
        for error in PostError::ALL {
            meters.posted(&outcome(Some(error)));
        }
        meters.posted(&outcome(None));
        assert!(meters.posts().all(|(_, read)| read.count == 1));
        assert_eq!(meters.posts().last().map(|(name, _)| name), Some(PostError::Status.as_str()));
    }
}
