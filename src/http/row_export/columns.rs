//! The CSV columns of an export: the members of a record, with nested ones dotted.

use std::borrow::Cow;

use serde_json::Value;

use crate::http::csv::write_record;

/// The members of a message in lists.
pub(super) const MESSAGE_COLUMNS: [&str; 40] = [
    "id",
    "message_id_header",
    "status",
    "stream",
    "from",
    "to",
    "subject",
    "created_at",
    "from_name",
    "metadata",
    "unsubscribe_url",
    "size_bytes",
    "status_at",
    "attempts",
    "next_attempt_at",
    "waiting.reason",
    "waiting.since",
    "waiting.until",
    "waiting.detail",
    "delivered_at",
    "relay",
    "mx_host",
    "smtp_code",
    "smtp_enhanced_code",
    "smtp_response",
    "tls.version",
    "tls.cipher",
    "tls.authenticated",
    "tls.policy",
    "submission.mail_from",
    "submission.client_name",
    "submission.client_address",
    "submission.tls_version",
    "submission.key_prefix",
    "submission.original_message_id",
    "submission.recipients",
    "submission.first_id",
    "expires_at",
    "content_expires_at",
    "content_deleted_at",
];

/// The members of an event.
pub(super) const EVENT_COLUMNS: [&str; 32] = [
    "id",
    "type",
    "message_id",
    "message_id_header",
    "stream",
    "from",
    "to",
    "subject",
    "metadata",
    "created_at",
    "attempt",
    "smtp_code",
    "smtp_enhanced_code",
    "smtp_response",
    "mx_host",
    "mx_ip",
    "relay",
    "tls.version",
    "tls.cipher",
    "tls.authenticated",
    "tls.policy",
    "duration_ms",
    "next_attempt_at",
    "bounce.kind",
    "bounce.category",
    "bounce.status",
    "bounce.source",
    "bounce.rule",
    "bounce.advice",
    "bounce.suppressed",
    "complaint.feedback_type",
    "complaint.reporter",
];

/// Appends the line with the column names.
pub(super) fn write_head(text: &mut Vec<u8>, columns: &[&str]) {
    write_record(text, columns);
}

/// Appends the line of `record`.
pub(super) fn write_cells(text: &mut Vec<u8>, columns: &[&str], record: &Value) {
    let cells: Vec<_> = columns.iter().map(|column| cell(member(record, column))).collect();
    write_record(text, &cells.iter().map(Cow::as_ref).collect::<Vec<_>>());
}

/// Returns the member of a dotted name.
fn member<'a>(record: &'a Value, column: &str) -> &'a Value {
    column.split('.').fold(record, |value, name| &value[name])
}

/// Formats a member as text: empty for null, and JSON for objects and arrays.
fn cell(value: &Value) -> Cow<'_, str> {
    match value {
        Value::Null => Cow::Borrowed(""),
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::openapi::described;
    use serde_json::json;
    use std::collections::BTreeSet;

    /// Returns the member names of a component, with those of nested objects dotted.
    fn names(document: &Value, component: &str, prefix: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (name, schema) in document["components"]["schemas"][component]["properties"].as_object().unwrap() {
            let choices = schema["anyOf"].as_array().into_iter().flatten().chain([schema]);
            let nested = choices.filter_map(|choice| choice["$ref"].as_str()?.strip_prefix("#/components/schemas/"));
            let nested = nested.filter(|nested| document["components"]["schemas"][nested]["properties"].is_object());
            let before = found.len();
            nested.for_each(|nested| found.extend(names(document, nested, &format!("{prefix}{name}."))));
            if found.len() == before {
                found.insert(format!("{prefix}{name}"));
            }
        }
        found
    }

    #[test]
    fn every_member_of_a_record_has_a_column() {
        let document = described();
        for (component, columns) in [("Message", &MESSAGE_COLUMNS[..]), ("Event", &EVENT_COLUMNS)] {
            let columns: BTreeSet<_> = columns.iter().map(|&column| column.to_owned()).collect();
            assert_eq!(names(&document, component, ""), columns);
        }
    }

    #[test]
    fn a_row_has_nested_members_and_json_for_collections() {
        let record = json!({
            "id": "evt_1", "metadata": {"order": "1,2"}, "attempt": 1, "smtp_response": "550 no\r\n\"x\"",
            "tls": null, "bounce": {"kind": "hard", "suppressed": true},
        });
        let mut text = Vec::new();
        let columns = ["id", "metadata", "attempt", "smtp_response", "tls.version", "bounce.kind", "bounce.suppressed"];
        write_cells(&mut text, &columns, &record);
        assert_eq!(text, b"evt_1,\"{\"\"order\"\":\"\"1,2\"\"}\",1,\"550 no\r\n\"\"x\"\"\",,hard,true\r\n");
    }
}
