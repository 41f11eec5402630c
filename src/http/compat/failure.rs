//! Error of a compatible API's handler: one of our errors, with the keywords that the client's code looks for.

use super::service::{ClientError, CompatService};
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::messages;
use crate::http::route::Call;
use crate::http::state::Api;

/// A refusal or failure of one message, or of a whole request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fault {
    /// The error.
    pub(super) error: ApiError,
    words: Box<ErrorKeyword>,
}

/// Text that the client's code looks for in the error message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ErrorKeyword {
    /// Sentences before the message, such as `Invalid 'To' address: 'x'.`
    opening: Vec<String>,
    /// A sentence after the message.
    closing: Option<String>,
    /// Postmark's error number, if it differs from the usual one of the error.
    number: Option<u16>,
    /// Position of the message in a list.
    place: Option<String>,
}

impl From<ApiError> for Fault {
    fn from(error: ApiError) -> Self {
        Self { error, words: Box::default() }
    }
}

impl From<Violations> for Fault {
    fn from(violations: Violations) -> Self {
        ApiError::from(violations).into()
    }
}

impl Fault {
    /// Sets Postmark's error number.
    pub(super) fn numbered(mut self, number: u16) -> Self {
        self.words.number = Some(number);
        self
    }

    /// Adds sentences that Postmark's clients look for at the start of the message.
    pub(super) fn opened_by(mut self, opening: Vec<String>) -> Self {
        self.words.opening = opening;
        self
    }

    /// Adds a sentence that Postmark's clients look for at the end of the message.
    pub(super) fn closed_by(mut self, closing: Option<String>) -> Self {
        self.words.closing = closing;
        self
    }

    /// Sets the position of the message in a list.
    pub(super) fn at(mut self, place: String) -> Self {
        self.words.place = Some(place);
        self
    }

    /// Returns the error in the client's form.
    pub(super) fn told(&self, door: CompatService, request_id: &str) -> ClientError {
        let ErrorKeyword { opening, closing, number, place } = &*self.words;
        let mut told = door.told(&self.error, request_id, place.as_deref());
        told.number = number.unwrap_or(told.number);
        if door != CompatService::Postmark {
            return told;
        }
        // Each sentence has its own line, because client patterns end at line ends.
        if !opening.is_empty() {
            told.message = format!("{}\n{}", opening.join("\n"), told.message);
        }
        if let Some(closing) = closing {
            told.message = format!("{}\n{closing}", told.message);
        }
        told
    }

    /// Returns the answer to `call`.
    pub(super) fn answer(&self, door: CompatService, api: &Api, call: &Call<Caller>) -> Answer {
        let told = self.told(door, &call.request_id);
        let answer = door.written(&self.error, &told).refused_as(self.error.code());
        match &self.error {
            ApiError::QuotaExceeded(..) => messages::with_quota_of(api, &call.caller, answer),
            _ => answer,
        }
    }
}
