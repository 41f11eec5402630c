//! Long error sentences, such as the one of an invalid request with its fields and hints.

use crate::domain::violation::Violations;

/// Reported if the request was committed but the replica's bucket has not confirmed it.
pub(super) const IN_DOUBT: &str = "The request is in doubt: the replica bucket has not confirmed it. \
                                   Repeat it with the same Idempotency-Key.";

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
