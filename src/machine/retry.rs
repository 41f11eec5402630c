//! The retry schedule of a message, and the end of its lifetime (contract 6).
//!
//! ```text
//! attempt  1    2    3    4    5     6     7     8 ...
//!          |-1--|-2--|-4--|-8--|-15--|-30--|-60--|-60--|...      minutes, each give or take 10 %
//!          created_at .................................... give_up_at: failed, with no further attempt
//! ```
//!
//! An attempt that would fall at or after `give_up_at` is not moved forward. The message waits until `give_up_at` and
//! fails then, so that it never fails before its promised lifetime is over.

use std::time::Duration;

use crate::base::time::Timestamp;

/// Minutes between the end of an attempt and the next. From the seventh on, the last value.
const MINUTES: [u64; 7] = [1, 2, 4, 8, 15, 30, 60];

/// Default queue lifetime in hours.
pub const DEFAULT_LIFETIME_HOURS: u64 = 48;

/// Returns the time at which an undelivered message ends as `failed`. This is the earliest of the end of its queue
/// lifetime, its `expires_at` and its content's deadline.
pub fn give_up_at(
    created_at: Timestamp,
    lifetime: Duration,
    expires_at: Option<Timestamp>,
    content_deadline: Timestamp,
) -> Timestamp {
    let end = (created_at + lifetime).min(content_deadline);
    expires_at.map_or(end, |expires_at| end.min(expires_at))
}

/// Returns the due time of attempt `attempt + 1`, after attempt `attempt` (from 1) failed temporarily at `ended_at`.
/// `None` means that there is no further attempt and the message fails at `give_up_at`. `jitter` in `[0, 1)` changes
/// the delay by -10 % to +10 %.
pub fn next_attempt(attempt: u32, ended_at: Timestamp, give_up_at: Timestamp, jitter: f64) -> Option<Timestamp> {
    let due = ended_at + delay(attempt, jitter);
    (due < give_up_at).then_some(due)
}

/// Converts random bytes to a number in `[0, 1)`.
pub fn jitter(random: [u8; 4]) -> f64 {
    f64::from(u32::from_be_bytes(random)) / (f64::from(u32::MAX) + 1.0)
}

fn delay(attempt: u32, jitter: f64) -> Duration {
    let step = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX).min(MINUTES.len() - 1);
    let share = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
    Duration::from_secs(60 * MINUTES[step]).mul_f64(0.9 + 0.2 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn without_jitter_the_delays_match_the_contract() {
        let minutes = (1..=9).map(|attempt| delay(attempt, 0.5).as_secs() / 60).collect::<Vec<_>>();
        assert_eq!(minutes, [1, 2, 4, 8, 15, 30, 60, 60, 60]);
        assert_eq!(delay(0, 0.5), delay(1, 0.5));
        assert_eq!(delay(1, f64::NAN), Duration::from_secs(54));
    }

    #[test]
    fn the_earliest_of_lifetime_expiry_and_content_deadline_ends_a_message() {
        let hours = |hours: u64| START + Duration::from_secs(3600 * hours);
        let lifetime = Duration::from_secs(3600 * DEFAULT_LIFETIME_HOURS);
        assert_eq!(give_up_at(START, lifetime, None, hours(720)), hours(48));
        assert_eq!(give_up_at(START, lifetime, Some(hours(1)), hours(720)), hours(1));
        assert_eq!(give_up_at(START, lifetime, Some(hours(47)), hours(24)), hours(24));
    }

    proptest! {
        #[test]
        fn an_attempt_is_due_within_ten_percent_of_its_delay_and_never_after_the_end(
            attempt in 1_u32..200, jitter in 0.0..1.0_f64, left_ms in 0_u64..10_000_000,
        ) {
            let end = START + Duration::from_millis(left_ms);
            let nominal = delay(attempt, 0.5);
            let taken = delay(attempt, jitter);
            prop_assert!(taken >= nominal.mul_f64(0.8999) && taken <= nominal.mul_f64(1.1001));
            match next_attempt(attempt, START, end, jitter) {
                Some(due) => prop_assert!(due > START && due < end),
                None => prop_assert!(START + taken >= end),
            }
        }

        #[test]
        fn random_bytes_map_to_a_number_below_one(random: [u8; 4]) {
            prop_assert!((0.0..1.0).contains(&jitter(random)));
        }
    }
}
