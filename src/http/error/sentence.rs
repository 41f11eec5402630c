//! Long error sentences, such as the one of an invalid request with its fields and hints.

use crate::domain::violation::Violations;

pub(super) const MISMATCH: &str =
    "This Idempotency-Key was used with another body within 24 hours. Use a new key for a new message.";
pub(super) const IN_PROGRESS: &str =
    "The first request with this Idempotency-Key is still running. Repeat it in a second.";
pub(super) const HEADERS_TOO_LARGE: &str =
    "The request head is too large. Send at most 100 headers and 16 KiB in total.";
pub(super) const UNAVAILABLE: &str =
    "The service can't reach its replica bucket, so nothing was changed. Try again shortly.";
/// Reported if the request was committed but the replica's bucket has not confirmed it.
pub(super) const IN_DOUBT: &str = "The request is in doubt: the replica bucket has not confirmed it. \
                                   Repeat it with the same Idempotency-Key.";

/// Returns the sentence for an unknown sending domain.
pub(super) fn domain_unknown(domain: &str) -> String {
    format!("The sending domain {domain} does not belong to this account. Add it and publish its records.")
}

/// Returns the sentence for a sending domain that is not verified.
pub(super) fn domain_unverified(domain: &str) -> String {
    format!("The sending domain {domain} is not verified. Publish its DKIM record and verify it.")
}

/// Returns the sentence for an invalid request. It names at most three fields.
pub(super) fn of_violations(violations: &Violations) -> String {
    let fields: Vec<&str> = violations.by_field().keys().take(3).map(String::as_str).collect();
    let count = violations.by_field().len();
    let mut message = match count {
        0 => "The request is not valid.".to_owned(),
        1..=3 => format!("The request is not valid: see errors for {}.", fields.join(", ")),
        _ => format!("The request is not valid: see errors for {} and {} more.", fields.join(", "), count - 3),
    };
    for hint in violations.hints() {
        message.push(' ');
        message.push_str(hint);
    }
    message
}
