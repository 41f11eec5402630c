//! Long error sentences: that of an invalid request names the fields, with hints.

use crate::domain::violation::Violations;

/// For a client whose request was committed, but not confirmed by the bucket of the replica.
pub(super) const IN_DOUBT: &str = "It is in doubt whether this request took effect: the bucket of the replica has not \
                                   confirmed it yet. Repeat it with the same Idempotency-Key.";

/// Names at most three fields.
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
