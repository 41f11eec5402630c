//! The sentence of a request with faults: the fields, and the hints that were collected.

use crate::domain::violation::Violations;

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
