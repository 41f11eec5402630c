//! The retry schedule of a notice by mail: after 1, 5, 15 and 60 minutes, then hourly for a day.
//!
//! Notices have no queue lifetime, bounce or suppression. A notice that could not be sent for that long has failed, and
//! its failure raises no alert.

use std::time::Duration;

use crate::base::time::Timestamp;

/// Minutes between an attempt and the next, before the hourly ones.
const DELAY_MINUTES: [u64; 4] = [1, 5, 15, 60];
/// Number of hourly attempts after the first ones.
const HOURLY: usize = 24;
/// Time for which changes are collected into one mail.
pub const GATHERED_FOR: Duration = Duration::from_secs(10);
/// Maximum number of mails per hour to one address.
pub const HOURLY_MAX: usize = 30;
const HOUR: Duration = Duration::from_secs(3600);

/// Returns the time of the next attempt after `attempts` failed ones, the last of which ended at `ended_at`. `None` if
/// the notice has failed.
pub fn next_attempt(attempts: u8, ended_at: Timestamp) -> Option<Timestamp> {
    let place = usize::from(attempts).checked_sub(1)?;
    let minutes = match DELAY_MINUTES.get(place) {
        Some(minutes) => *minutes,
        None if place < DELAY_MINUTES.len() + HOURLY => 60,
        None => return None,
    };
    Some(ended_at + Duration::from_secs(minutes * 60))
}

/// Returns the time at which a mail with changes since `at` may be sent. `earlier` has the due times of the last mails
/// to the same address, in order.
pub fn first_attempt(at: Timestamp, earlier: &[Timestamp]) -> Timestamp {
    let wanted = at + GATHERED_FOR;
    let oldest = earlier.len().checked_sub(HOURLY_MAX).and_then(|place| earlier.get(place));
    oldest.map_or(wanted, |oldest| wanted.max(*oldest + HOUR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn retries_follow_after_1_5_15_and_60_minutes_and_then_hourly_for_a_day() {
        let waits: Vec<_> =
            (1..=29).map(|attempts| next_attempt(attempts, NOW).map(|at| at.since(NOW).as_secs() / 60)).collect();
        assert_eq!(&waits[..5], &[Some(1), Some(5), Some(15), Some(60), Some(60)]);
        assert_eq!(
            (waits[27], waits[28], next_attempt(u8::MAX, NOW), next_attempt(0, NOW)),
            (Some(60), None, None, None)
        );
    }

    proptest! {
        #[test]
        fn an_address_gets_at_most_30_mails_per_hour(gaps in proptest::collection::vec(0_u64..300, 1..300)) {
            let (mut now, mut dues) = (NOW, Vec::<Timestamp>::new());
            for gap in gaps {
                now = now + Duration::from_secs(gap);
                dues.push(first_attempt(now, &dues));
            }
            for window in dues.windows(HOURLY_MAX + 1) {
                prop_assert!(window[HOURLY_MAX].since(window[0]) >= HOUR);
            }
        }
    }
}
