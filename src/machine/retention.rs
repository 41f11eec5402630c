//! The content of a message: its retention, and the bucket in which it is destroyed (contract 7).
//!
//! ```text
//!            DeadlineCame                BucketDestroyed
//!   kept --------------------> refused -------------------> destroyed
//!    created_at + days          nothing reads it             its key is gone; row and timeline stay
//! ```
//!
//! Bodies are stored in segments by bucket. A bucket's key is destroyed at the bucket's end, at or after the deadline
//! of all its content. The delay is less than an hour for retentions up to 30 days, and less than a day for longer
//! ones. After its deadline, content is refused even while its bytes still exist.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Next;
use crate::base::time::Timestamp;
use crate::domain::account::RetentionDays;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// Maximum retention in days with hourly buckets.
const HOURLY_DAYS_MAX: u16 = 30;

/// Returns the time from which content created at `created_at` is refused. It is stored once, so later settings do not
/// change it.
pub fn content_deadline(created_at: Timestamp, days: RetentionDays) -> Timestamp {
    created_at + Duration::from_millis(u64::from(days.get()) * DAY_MS)
}

/// A bucket of content, named by its end. An hourly and a daily bucket with the same end are the same bucket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Bucket {
    /// Time from which all of its content is past its deadline and may be destroyed.
    pub end: Timestamp,
}

impl Bucket {
    /// Returns the bucket of content created at `created_at`: the first boundary at or after its deadline.
    pub fn of(created_at: Timestamp, days: RetentionDays) -> Self {
        let width = if days.get() <= HOURLY_DAYS_MAX { HOUR_MS } else { DAY_MS };
        let deadline = content_deadline(created_at, days).as_millis();
        Self { end: Timestamp::from_millis(deadline.div_ceil(width) * width) }
    }

    /// Returns the separate bucket for content of this bucket that is accepted during clock doubt `number`. Its end
    /// encodes the number in milliseconds after the boundary.
    #[must_use]
    pub fn in_doubt(self, number: u32) -> Self {
        let past = 1 + u64::from(number.saturating_sub(1)) % (HOUR_MS - 1);
        Self { end: self.end + Duration::from_millis(past) }
    }

    /// Returns the number of the clock doubt during which its content was accepted.
    pub fn doubt(self) -> Option<u32> {
        u32::try_from(self.end.as_millis() % HOUR_MS).ok().filter(|number| *number > 0)
    }

    /// Returns whether the bucket's content may be destroyed at `now`.
    pub fn is_over(self, now: Timestamp) -> bool {
        now >= self.end
    }

    /// Returns the bytes of a storage key, which sort in the order of the buckets.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.end.as_millis().to_be_bytes()
    }

    /// Returns the bucket of the bytes from [`Self::to_bytes`].
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self { end: Timestamp::from_millis(u64::from_be_bytes(bytes)) }
    }
}

/// The state of one message's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum State {
    /// Available until the deadline.
    Kept {
        /// The record's `content_expires_at`.
        deadline: Timestamp,
    },
    /// The content is past its deadline: refused everywhere, not yet destroyed.
    Refused {
        /// The record's `content_deleted_at`. From this time on the owner can't read the content.
        at: Timestamp,
    },
    /// Unrecoverable.
    Destroyed {
        /// The record's `content_deleted_at`.
        at: Timestamp,
    },
}

/// An input of the machine: a fact that has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    /// The timer of the deadline fired.
    DeadlineCame,
    /// The key of its bucket was destroyed.
    BucketDestroyed,
}

/// An effect that the operation carries out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// A message that still waits ends as `failed` (contract 7): apply `GaveUp` to its transfer.
    GiveUp,
    /// The timer fired before the deadline, since the clock stepped back: arm it again.
    Schedule(Timestamp),
}

impl State {
    /// Returns whether the content may be read or sent at `now`, even if its timer has not fired yet.
    pub fn is_readable(self, now: Timestamp) -> bool {
        match self {
            Self::Kept { deadline } => now < deadline,
            Self::Refused { .. } | Self::Destroyed { .. } => false,
        }
    }

    /// Returns the next state and its effects after `input` at `now`.
    #[must_use]
    pub fn step(self, input: Input, now: Timestamp) -> Next<Self, Effect> {
        match (self, input) {
            (Self::Kept { deadline }, Input::DeadlineCame) if now < deadline => {
                Next::new(self, [Effect::Schedule(deadline)])
            }
            (Self::Kept { .. }, Input::DeadlineCame) => Next::new(Self::Refused { at: now }, [Effect::GiveUp]),
            (Self::Kept { .. }, Input::BucketDestroyed) => Next::new(Self::Destroyed { at: now }, [Effect::GiveUp]),
            (Self::Refused { at }, Input::BucketDestroyed) => Next::new(Self::Destroyed { at }, []),
            (Self::Refused { .. }, Input::DeadlineCame)
            | (Self::Destroyed { .. }, Input::DeadlineCame | Input::BucketDestroyed) => Next::unchanged(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn days(days: u16) -> RetentionDays {
        RetentionDays::new(days.into()).unwrap()
    }

    #[test]
    fn a_deadline_on_a_boundary_ends_its_bucket_there() {
        let midnight = Timestamp::from_millis(19_000 * DAY_MS);
        for kept in [1, 30, 31, 3650] {
            assert_eq!(Bucket::of(midnight, days(kept)).end, content_deadline(midnight, days(kept)));
        }
        let later = midnight + Duration::from_millis(1);
        assert_eq!(Bucket::of(later, days(30)).end, midnight + Duration::from_millis(30 * DAY_MS + HOUR_MS));
        assert_eq!(Bucket::of(later, days(31)).end, midnight + Duration::from_millis(32 * DAY_MS));
    }

    #[test]
    fn content_is_refused_from_its_deadline_even_if_the_timer_has_not_fired() {
        let deadline = Timestamp::from_millis(1_700_000_000_000);
        let before = deadline - Duration::from_millis(1);
        let kept = State::Kept { deadline };
        assert!(kept.is_readable(before) && !kept.is_readable(deadline));
        assert_eq!(kept.step(Input::DeadlineCame, before).effects, [Effect::Schedule(deadline)]);
        let refused = kept.step(Input::DeadlineCame, deadline);
        assert_eq!(refused, Next::new(State::Refused { at: deadline }, [Effect::GiveUp]));
        let gone = refused.state.step(Input::BucketDestroyed, deadline + Duration::from_secs(9)).state;
        assert_eq!(gone, State::Destroyed { at: deadline });
    }

    proptest! {
        #[test]
        fn a_bucket_ends_after_all_its_deadlines_and_within_the_contracts_delay(
            created in 1_600_000_000_000_u64..2_000_000_000_000, kept in 1_u16..=3650,
        ) {
            let created = Timestamp::from_millis(created);
            let (bucket, deadline) = (Bucket::of(created, days(kept)), content_deadline(created, days(kept)));
            let late = bucket.end.since(deadline).as_millis() as u64;
            let promised = if kept <= 30 { HOUR_MS } else { DAY_MS };
            prop_assert!(bucket.end >= deadline && late < promised);
            prop_assert!(bucket.is_over(bucket.end) && !bucket.is_over(bucket.end - Duration::from_millis(1)));
            prop_assert_eq!(Bucket::from_bytes(bucket.to_bytes()), bucket);
        }

        #[test]
        fn content_accepted_during_a_clock_doubt_gets_a_separate_bucket_with_its_number(
            created in 1_600_000_000_000_u64..2_000_000_000_000, kept in 1_u16..=3650, number in 1_u32..3_600_000,
        ) {
            let bucket = Bucket::of(Timestamp::from_millis(created), days(kept));
            prop_assert_eq!(bucket.doubt(), None);
            let own = bucket.in_doubt(number);
            prop_assert_eq!(own.doubt(), Some(number));
            prop_assert!(own.end > bucket.end && own.end - Duration::from_millis(HOUR_MS) < bucket.end);
        }

        #[test]
        fn encoded_buckets_sort_like_buckets(a in 0_u64..253_402_300_799_999, b in 0_u64..253_402_300_799_999) {
            let (a, b) = (Bucket { end: Timestamp::from_millis(a) }, Bucket { end: Timestamp::from_millis(b) });
            prop_assert_eq!(a.cmp(&b), a.to_bytes().cmp(&b.to_bytes()));
        }

        #[test]
        fn content_never_becomes_readable_again(inputs in proptest::collection::vec((any::<bool>(), 0_u64..2000), 0..12)) {
            let at = |ms: u64| Timestamp::from_millis(1_700_000_000_000 + ms);
            let mut state = State::Kept { deadline: at(1000) };
            for (deadline, ms) in inputs {
                let input = if deadline { Input::DeadlineCame } else { Input::BucketDestroyed };
                let next = state.step(input, at(ms)).state;
                prop_assert!(state.is_readable(at(0)) || !next.is_readable(at(0)));
                state = next;
            }
        }
    }
}
