//! The handlers: each reads what was asked, has the engine do it, and shows what came of it. What they share stands
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
use crate::store::error::Stop;
use crate::store::op::NotThere;

/// Characters of a name or a description that an account gives.
pub(super) const LABEL_CHARACTERS: usize = 255;

/// The identifier in the path. One that is malformed is as unknown as any other (contract 1).
fn id<T: FromStr>(call: &Call<impl Sized>) -> Result<T, ApiError> {
    call.param("id").parse().map_err(|_| ApiError::NotFound)
}

/// A change of what is not there.
pub(crate) fn not_there(stop: Stop<NotThere>) -> ApiError {
    match stop {
        Stop::Refused(NotThere) => ApiError::NotFound,
        Stop::Failed(error) => error.into(),
    }
}

/// A name, where it can be shown.
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

/// A stream, where one is given.
fn stream(fields: &mut Fields<'_>) -> Option<Stream> {
    let text = fields.text("stream")?;
    fields.check("stream", text.parse())
}

/// The texts of an array; what is no text is a fault under its place.
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
