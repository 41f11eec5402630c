//! The verification of a sending domain (contract 2), according to checks of its RSA DKIM record.
//!
//! ```text
//!            seen                    not seen                 not seen for 72 h
//! pending ----------> verified ------------------> failing ----------------------> pending
//!    ^  |                ^  |                         |  |
//!    '--' not seen       '--' seen                    |  '--' not seen
//!                        '------------ seen ----------'
//! ```
//!
//! A failed lookup says nothing about the record, so it changes only the time of the next check.

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::domain::sending_domain::DomainStatus;

/// Time for which a missing record still counts as present.
pub const GRACE: Duration = Duration::from_secs(72 * 3600);
/// Interval between checks of a verified domain.
const DAILY: Duration = Duration::from_secs(24 * 3600);
/// Interval between checks of a failing domain, which is about to stop sending.
const FAILING: Duration = Duration::from_secs(3600);
/// First interval between checks of a pending domain, doubled each time.
const PENDING_FIRST: Duration = Duration::from_secs(2 * 60);
/// Maximum interval between checks of a pending domain.
const PENDING_MAX: Duration = Duration::from_secs(6 * 3600);

/// Verification state of a domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// Status.
    pub status: DomainStatus,
    /// Time at which the domain's record was last found.
    pub last_seen_at: Option<Timestamp>,
    /// Number of checks since the last status change, for the backoff.
    pub checks: u32,
}

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The state to save.
    pub state: State,
    /// Time of the next check.
    pub next_check_at: Timestamp,
}

/// Returns the result of a check at `now`; `seen` is `None` if the lookup itself failed.
pub fn step(state: State, seen: Option<bool>, now: Timestamp) -> Step {
    let status = match (state.status, seen) {
        (_, Some(true)) => DomainStatus::Verified,
        (DomainStatus::Pending, Some(false) | None) => DomainStatus::Pending,
        (DomainStatus::Verified, None) => DomainStatus::Verified,
        (DomainStatus::Verified | DomainStatus::Failing, Some(false)) | (DomainStatus::Failing, None) => {
            if state.last_seen_at.is_some_and(|at| now.since(at) < GRACE) {
                DomainStatus::Failing
            } else {
                DomainStatus::Pending
            }
        }
    };
    let last_seen_at = if seen == Some(true) { Some(now) } else { state.last_seen_at };
    let checks = if status == state.status { state.checks.saturating_add(1) } else { 0 };
    let next_check_at = match status {
        DomainStatus::Pending => now + (PENDING_FIRST * 2_u32.pow(checks.min(10))).min(PENDING_MAX),
        DomainStatus::Verified => now + DAILY,
        // The grace period ends with a check, not up to an hour after it.
        DomainStatus::Failing => last_seen_at.map_or(now, |at| at + GRACE).min(now + FAILING),
    };
    Step { state: State { status, last_seen_at, checks }, next_check_at }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    fn pending() -> State {
        State { status: DomainStatus::Pending, last_seen_at: None, checks: 0 }
    }

    #[test]
    fn a_pending_domain_is_checked_less_and_less_often_until_its_record_is_found() {
        let mut state = pending();
        let mut waits = Vec::new();
        for _ in 0..9 {
            let next = step(state, Some(false), START);
            state = next.state;
            waits.push(next.next_check_at.since(START).as_secs() / 60);
        }
        assert_eq!(waits, [4, 8, 16, 32, 64, 128, 256, 360, 360]);
        let seen = step(state, Some(true), START);
        assert_eq!(seen.state.status, DomainStatus::Verified);
        assert_eq!(seen.next_check_at, START + DAILY);
    }

    #[test]
    fn a_missing_record_counts_for_72_hours_after_it_was_last_found() {
        let verified = step(pending(), Some(true), START).state;
        let failing = step(verified, Some(false), START + 71 * HOUR).state;
        assert_eq!(failing.status, DomainStatus::Failing);
        let late = step(verified, Some(false), START + 71 * HOUR + HOUR / 2);
        assert_eq!(late.next_check_at, START + 72 * HOUR);
        assert!(failing.status.may_send());
        assert_eq!(step(failing, Some(false), START + 72 * HOUR).state.status, DomainStatus::Pending);
        assert_eq!(step(failing, Some(true), START + 71 * HOUR).state.status, DomainStatus::Verified);
    }

    #[test]
    fn a_failed_lookup_leaves_a_verified_domain_verified() {
        let verified = step(pending(), Some(true), START).state;
        assert_eq!(step(verified, None, START + 1000 * HOUR).state.status, DomainStatus::Verified);
    }
}
