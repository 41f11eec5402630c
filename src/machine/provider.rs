//! The level of a receiving provider, from the share of final answers that refuse the sender.

use super::reputation::Level;

/// Minimum number of answers for a meaningful share.
pub const ANSWERS_MIN: u64 = 20;
/// Minimum number of answers for a level other than `ok`.
const LEVEL_ANSWERS_MIN: u64 = 50;
/// Shares at which [`Level::Warn`] and [`Level::Alarm`] start, in percent.
const THRESHOLDS: (u64, u64) = (5, 20);

/// Returns the share of `count` in `of`, from 0 to 1. `None` below [`ANSWERS_MIN`].
pub fn share(count: u64, of: u64) -> Option<f64> {
    // Counts are far below 2^53, above which floats skip integers.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
    let share = (of >= ANSWERS_MIN).then(|| count as f64 / of as f64);
    share
}

/// Returns the level of a provider that blocked `blocked` of `answered` messages.
pub fn level(blocked: u64, answered: u64) -> Level {
    let reaches = |hundredths: u64| u128::from(blocked) * 100 >= u128::from(answered) * u128::from(hundredths);
    match THRESHOLDS {
        _ if answered < LEVEL_ANSWERS_MIN => Level::Ok,
        (_, alarm) if reaches(alarm) => Level::Alarm,
        (warn, _) if reaches(warn) => Level::Warn,
        (_, _) => Level::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_needs_50_answers_and_rises_at_5_and_20_percent() {
        for (blocked, answered, expected) in [
            (0, 0, Level::Ok),
            (49, 49, Level::Ok),
            (2, 50, Level::Ok),
            (3, 50, Level::Warn),
            (5, 100, Level::Warn),
            (19, 100, Level::Warn),
            (20, 100, Level::Alarm),
            (u64::MAX, u64::MAX, Level::Alarm),
        ] {
            assert_eq!(level(blocked, answered), expected, "{blocked} of {answered}");
        }
    }

    #[test]
    fn a_share_needs_20_answers() {
        assert_eq!((share(19, 19), share(1, 20), share(0, 20)), (None, Some(0.05), Some(0.0)));
    }
}
