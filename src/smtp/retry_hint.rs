//! How long a server asks to be left alone: "please try again in 300 seconds" (greylisting, mostly).
//!
//! Only what it says in so many words counts. A hint puts an attempt off; it never brings one forward.

use std::time::Duration;

/// The longest that a hint is followed.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// A little more than is asked for: the server's clock counts whole seconds, and began before its answer was read.
const GRACE: Duration = Duration::from_secs(10);

/// What stands before the time.
const CUES: [[&str; 2]; 8] = [
    ["again", "in"],
    ["again", "after"],
    ["back", "in"],
    ["retry", "in"],
    ["retry", "after"],
    ["wait", "for"],
    ["greylisted", "for"],
    ["graylisted", "for"],
];

/// The wait that a transient answer asks for, a little added, an hour at most; its `words` are as
/// [`Reply::words`](super::reply::Reply::words) has them.
pub fn retry_after(words: &str) -> Option<Duration> {
    let words: Vec<_> = words.split(' ').map(|word| word.trim_matches(['.', ',', ';', ':', '(', ')', '!'])).collect();
    let asked = (2..words.len()).find_map(|at| {
        let is_behind_cue = CUES.iter().any(|cue| words[at - 2..at] == cue[..]);
        is_behind_cue.then(|| time(words[at], words.get(at + 1).copied().unwrap_or_default())).flatten()
    })?;
    Some((asked + GRACE).min(WAIT_MAX))
}

/// `300 seconds`, `5m`, `00:05:00`; none of a time of nought.
fn time(number: &str, unit: &str) -> Option<Duration> {
    let seconds = if number.contains(':') {
        clock(number)?
    } else {
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let (digits, suffix) = number.split_at(end);
        let unit = if suffix.is_empty() { unit } else { suffix };
        small(digits)?.checked_mul(seconds_of(unit)?)?
    };
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// `hh:mm:ss` or `mm:ss`, in seconds.
fn clock(text: &str) -> Option<u64> {
    let parts = text.split(':').map(small).collect::<Option<Vec<_>>>()?;
    (2..=3).contains(&parts.len()).then(|| parts.iter().fold(0, |seconds, part| seconds * 60 + part))
}

fn small(digits: &str) -> Option<u64> {
    digits.parse::<u32>().ok().filter(|number| *number < 1_000_000).map(u64::from)
}

fn seconds_of(unit: &str) -> Option<u64> {
    match unit {
        "s" | "sec" | "secs" | "second" | "seconds" => Some(1),
        "m" | "min" | "mins" | "minute" | "minutes" => Some(60),
        "h" | "hour" | "hours" => Some(3600),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &str) -> Option<u64> {
        retry_after(words).map(|wait| wait.as_secs())
    }

    #[test]
    fn the_time_that_a_server_asks_for_is_found_and_a_little_added() {
        for (words, seconds) in [
            ("please try again in 300 seconds.", 310),
            ("greylisted, try again in 5 minutes", 310),
            ("greylisting in action, please come back in 00:02:00", 130),
            ("recipient address rejected: greylisted for 60 sec.", 70),
            ("you must wait for 90s before", 100),
            ("try again after 10m, see our page", 610),
            ("retry in 04:10 (greylisted)", 260),
            ("please retry after 1 hour", 3600),
        ] {
            assert_eq!(asked(words), Some(seconds), "{words}");
        }
    }

    #[test]
    fn nobody_is_waited_for_longer_than_an_hour() {
        assert_eq!(asked("try again in 2 hours"), Some(3600));
        assert_eq!(asked("try again in 999999 hours"), Some(3600));
        assert_eq!(asked("try again in 999999:59:59"), Some(3600));
    }

    #[test]
    fn what_says_no_time_asks_for_none() {
        for words in [
            "",
            "in",
            "try again later",
            "please try again in a few minutes",
            "try again in 5",
            "try again in 5 days",
            "try again in 0 seconds",
            "try again in 18446744073709551615 seconds",
            "try again in -5 seconds",
            "try again in 1:2:3:4",
            "try again in ::",
            "greylisted",
            "exceeded 300 seconds",
            "you are in 5 minutes of",
        ] {
            assert_eq!(asked(words), None, "{words}");
        }
    }
}
