//! Views of a suppression, and of the answer to an import (contract 6).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::base::id::{self, MessageId, SuppressionId};
use crate::base::time::{Timestamp, iso};
use crate::engine::suppressions::Imported;
use crate::http::openapi::errors::error_code;
use crate::http::openapi::shape::describe;
use crate::store::row::suppression::{SuppressionReason, SuppressionRow};

/// A suppression.
#[derive(Serialize)]
pub(in crate::http) struct SuppressionView<'a> {
    #[serde(serialize_with = "id::as_text")]
    id: SuppressionId,
    email: &'a str,
    reason: SuppressionReason,
    message_id: Option<String>,
    smtp_code: Option<u16>,
    smtp_response: Option<&'a str>,
    note: Option<&'a str>,
    #[serde(serialize_with = "iso::serialize")]
    created_at: Timestamp,
}

impl<'a> SuppressionView<'a> {
    pub(in crate::http) fn new(row: &'a SuppressionRow) -> Self {
        Self {
            id: row.id,
            email: &row.email,
            reason: row.reason,
            message_id: row.message.as_ref().map(MessageId::to_string),
            smtp_code: row.smtp_code,
            smtp_response: row.smtp_response.as_deref(),
            note: row.note.as_deref(),
            created_at: row.created_at,
        }
    }
}

/// Result of an import or its dry run.
#[derive(Serialize)]
pub(in crate::http) struct ImportedView {
    imported: usize,
    skipped: usize,
    /// Always empty: a list with an error is not imported at all.
    errors: [(); 0],
}

impl ImportedView {
    pub(in crate::http) const fn new(done: Imported) -> Self {
        Self { imported: done.imported, skipped: done.skipped, errors: [] }
    }
}

/// Error in one line of a list.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FaultyLine {
    pub(crate) line: usize,
    pub(crate) message: String,
}

/// The 422 of a list with invalid lines: contract 1's members, and the lines.
#[derive(Serialize)]
pub(in crate::http) struct FaultyListView<'a> {
    pub(in crate::http) message: Cow<'a, str>,
    pub(in crate::http) code: &'static str,
    pub(in crate::http) errors: &'a BTreeMap<String, Vec<String>>,
    pub(in crate::http) lines: &'a [FaultyLine],
}

/// Error text for an invalid address in the examples.
const INVALID_ADDRESS: &str = "must be an email address, such as name@example.com";

describe! {
    SuppressionView<'_> as "Suppression", "An address that gets no mail."
    {
        id: "The suppression's identifier.",
        email: "The address, as given." => |schema| schema.example("gone@example.org"),
        reason: "The reason." => |schema| schema.example("manual"),
        message_id: "The message that caused it." => |_| <Option<MessageId>>::schema().example(()),
        smtp_code: "Reply code of the receiver's server." => |schema| schema.example(()),
        smtp_response: "The reply as received." => |schema| schema.example(()),
        note: "Free text of the account." => |schema| schema.example("asked by phone"),
        created_at: "Time of the suppression.",
    }
}

describe! {
    ImportedView as "Imported", "The result of an import, or of a dry run."
    {
        imported: "Addresses that were added." => |schema| schema.example(2),
        skipped: "Addresses that were already suppressed." => |schema| schema.example(0),
        errors: "Empty: a list with an error is not imported at all.",
    }
}

describe! {
    FaultyLine as "FaultyLine", "An error in one line of a list."
    {
        line: "The line, from 1; the header of a CSV counts." => |schema| schema.example(2),
        message: "All errors of the line." => |schema| schema.example(format!("email: {INVALID_ADDRESS}")),
    }
}

describe! {
    FaultyListView<'_> as "FaultyList", "The reason why a list was not imported: every error of every line."
    {
        message: "One sentence that a person can act on."
            => |schema| schema.example("The request is not valid: see errors for lines.2.email."),
        code: "The error code." => |_| error_code().example("validation_failed"),
        errors: "The errors by line and member."
            => |schema| schema.example(serde_json::json!({ "lines.2.email": [INVALID_ADDRESS] })),
        lines: "The invalid lines, at most 1,000.",
    }
}
