//! Check that attempts still succeed. Only attempts that show whether our own egress works count, so a hard bounce
//! counts as a success.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::time::Timestamp;
use crate::domain::event::BounceKind;
use crate::store::op::settle_transfer::TransferEnd;

/// Number of attempts without success that raises an alert.
pub(super) const ATTEMPTS: usize = 20;
/// Period of these attempts.
pub(super) const WINDOW: Duration = Duration::from_secs(30 * 60);

/// Failed attempts since the last success.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    failed: VecDeque<Timestamp>,
}

impl Attempts {
    /// Records the end of an attempt.
    pub(super) fn note(&mut self, end: &TransferEnd, now: Timestamp) {
        match end {
            TransferEnd::Delivered => self.failed.clear(),
            TransferEnd::Bounced(bounce) if bounce.kind == BounceKind::Hard => self.failed.clear(),
            TransferEnd::Bounced(_) | TransferEnd::Deferred { .. } => {
                self.failed.push_back(now);
                if self.failed.len() > ATTEMPTS {
                    self.failed.pop_front();
                }
            }
            // No server was contacted, or the attempt panicked.
            TransferEnd::GaveUp(_)
            | TransferEnd::Suppressed
            | TransferEnd::Postponed { .. }
            | TransferEnd::Over
            | TransferEnd::Crashed
            | TransferEnd::Unreadable => {}
        }
    }

    /// Returns whether the last [`ATTEMPTS`] attempts all failed, within [`WINDOW`] before `now`.
    pub(super) fn are_failing(&self, now: Timestamp) -> bool {
        self.failed.len() == ATTEMPTS && self.failed.front().is_some_and(|first| now.since(*first) < WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smtp::finding;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn deferred() -> TransferEnd {
        TransferEnd::Deferred { bounce: None, not_before: None }
    }

    fn of(ends: &[TransferEnd]) -> Attempts {
        let mut attempts = Attempts::default();
        ends.iter().for_each(|end| attempts.note(end, NOW));
        attempts
    }

    #[test]
    fn twenty_failures_within_half_an_hour_without_a_success_are_a_stall() {
        let twenty = vec![deferred(); ATTEMPTS];
        assert!(of(&twenty).are_failing(NOW) && !of(&twenty[1..]).are_failing(NOW));
        assert!(!of(&twenty).are_failing(NOW + WINDOW));
        let after = [&twenty[..], &[TransferEnd::Delivered], &twenty[1..]].concat();
        assert!(!of(&after).are_failing(NOW));
    }

    #[test]
    fn a_hard_bounce_counts_as_a_success_and_a_block_does_not() {
        let bounce = |kind| crate::domain::event::Bounce { kind, ..finding::expired() };
        let twenty = vec![deferred(); ATTEMPTS];
        let hard = [&twenty[..], &[TransferEnd::Bounced(bounce(BounceKind::Hard))]].concat();
        assert!(!of(&hard).are_failing(NOW));
        assert!(of(&vec![TransferEnd::Bounced(bounce(BounceKind::Block)); ATTEMPTS]).are_failing(NOW));
    }
}
