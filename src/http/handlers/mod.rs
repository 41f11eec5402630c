//! The handlers: each parses the request, calls the engine, and returns the result. Helpers used by several of them are
//! here.

pub(crate) mod accounts;
pub(super) mod alerts;
pub(super) mod backup;
pub(super) mod clock;
pub(crate) mod dmarc;
pub(crate) mod domains;
pub(crate) mod endpoints;
pub(crate) mod events;
pub(super) mod explain;
pub(crate) mod exports;
pub(super) mod health;
pub(crate) mod keys;
mod listing;
pub(super) mod me;
pub(crate) mod messages;
pub(crate) mod providers;
pub(crate) mod queue;
pub(crate) mod replica;
pub(crate) mod settings;
pub(super) mod status;
pub(super) mod submission_refusals;
pub(crate) mod suppression_list;
pub(crate) mod suppressions;
pub(super) mod unsubscribe;
pub(crate) mod users;

use std::str::FromStr;

use super::error::ApiError;
use super::route::Call;
use crate::domain::fields::Fields;
use crate::domain::stream::Stream;
use crate::domain::text::{has_control, is_longer};
use crate::store::error::OpError;
use crate::store::op::NotFound;

/// Maximum number of characters of an account's names and descriptions.
pub(super) const LABEL_CHARACTERS: usize = 255;

/// Parses the identifier in the path. A malformed one counts as unknown (contract 1).
fn id<T: FromStr>(call: &Call<impl Sized>) -> Result<T, ApiError> {
    call.param("id").parse().map_err(|_| ApiError::NotFound)
}

/// Returns the error of a change to a missing object.
pub(crate) fn not_found(stop: OpError<NotFound>) -> ApiError {
    match stop {
        OpError::Refused(NotFound) => ApiError::NotFound,
        OpError::Failed(error) => error.into(),
    }
}

/// Parses a name of printable text.
fn label(fields: &mut Fields<'_>, name: &'static str, text: Option<String>) -> Option<String> {
    let text = text?;
    if text.trim().is_empty() || is_longer(&text, LABEL_CHARACTERS) || has_control(&text) {
        fields.fault(
            name,
            format!("must have 1 to {LABEL_CHARACTERS} characters, not all white space, and no control characters"),
        );
    }
    Some(text)
}

/// Parses a stream, if one is given.
fn stream(fields: &mut Fields<'_>) -> Option<Stream> {
    let text = fields.text("stream")?;
    fields.check("stream", text.parse())
}

/// Parses an array of texts. Elements of other types are violations under their index.
fn texts(fields: &mut Fields<'_>, name: &'static str) -> Option<Vec<String>> {
    let values = fields.array(name)?;
    let mut texts = Vec::with_capacity(values.len());
    for (place, value) in values.into_iter().enumerate() {
        match value {
            serde_json::Value::String(text) => texts.push(text),
            _ => fields.fault(&format!("{name}.{place}"), "must be a string"),
        }
    }
    Some(texts)
}
