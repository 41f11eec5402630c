//! A month of mail. Recipient, subject and outcome of each message are derived from its number, so the results of a
//! search are known.

use postrider::machine::transfer::Input;

/// Minimum number of messages for every kind to occur.
pub(crate) const LEAST: u64 = 100_000;
/// One of this many subjects has a rare word.
pub(crate) const RARE_EVERY: u64 = 400_000;
/// Number of newest messages that are still queued.
pub(crate) const WAITING: u64 = 20_000;

const FIRST_NAMES: [&str; 16] = [
    "ann", "ben", "carla", "dora", "emil", "fatima", "georg", "hanna", "ivan", "jonas", "kira", "lena", "marek",
    "nora", "otto", "petra",
];
const DOMAINS: [&str; 8] =
    ["gmail.com", "outlook.com", "yahoo.com", "icloud.com", "gmx.net", "example.org", "example.net", "example.com"];
const TOPICS: [&str; 12] = [
    "garden", "winter", "kitchen", "travel", "music", "history", "science", "children", "cooking", "poetry", "maps",
    "comics",
];

/// Returns the recipient of message `number`: every customer gets about ten messages.
pub(crate) fn recipient(number: u64) -> String {
    let customer = number.wrapping_mul(7919) % 100_003;
    let of = |list: &[&'static str], by: u64| list[usize::try_from(by).unwrap_or_default() % list.len()];
    format!("{}.{customer}@{}", of(&FIRST_NAMES, customer), of(&DOMAINS, customer / 16))
}

/// Returns the subject.
pub(crate) fn subject(number: u64) -> String {
    let of = |by: u64| TOPICS[usize::try_from(by).unwrap_or_default() % TOPICS.len()];
    if number % RARE_EVERY == RARE_EVERY / 2 {
        return format!("The zephyr of order {number} has arrived");
    }
    match number % 20 {
        0..=7 => format!("Your order {number} is on its way"),
        8..=11 => format!("Invoice INV-{number} for your order"),
        12..=14 => "Your sign-in code".to_owned(),
        15 => "Reset your password".to_owned(),
        16 if number % 200 == 16 => format!("Your quarterly statement, {} club", of(number / 200)),
        16..=17 => format!("A reply to your question about {} books", of(number / 20)),
        _ => format!("New in {} and {}: ten books for long evenings", of(number / 20), of(number / 240)),
    }
}

/// Returns the outcome, as the inputs of its transfer; `from_end` counts from the newest.
pub(crate) fn fate(number: u64, from_end: u64) -> &'static [Input] {
    if from_end < WAITING {
        return &[Input::AttemptDeferred];
    }
    match number % 10_000 {
        0 => &[Input::Delivered, Input::ReportedComplaint],
        1 if number.is_multiple_of(LEAST / 2) => &[Input::GaveUp],
        other if other % 100 == 7 => &[Input::AttemptBounced],
        other if other % 50 == 11 => &[Input::AttemptDeferred, Input::Delivered],
        _ => &[Input::Delivered],
    }
}

/// Returns the provider of its receiver, by its name in the counts.
pub(crate) fn provider(number: u64) -> &'static str {
    const NAMES: [&str; 5] = ["google", "microsoft", "yahoo", "icloud", "other"];
    NAMES[usize::try_from(number % 5).unwrap_or_default()]
}
