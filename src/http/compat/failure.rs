//! Why a door's handler has no success to tell: an error of ours with what the client's own code looks for beside it.

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

/// Text that the client's code looks for in the message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ErrorKeyword {
    /// Sentences before the message, such as `Invalid 'To' address: 'x'.`
    opening: Vec<String>,
    /// A sentence behind the message.
    closing: Option<String>,
    /// Postmark's number, where it is not that of the error.
    number: Option<u16>,
    /// Where the message stands in a list.
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
    /// The same with a number of Postmark's.
    pub(super) fn numbered(mut self, number: u16) -> Self {
        self.words.number = Some(number);
        self
    }

    /// The same with sentences that Postmark's clients look for at the beginning of the message.
    pub(super) fn opened_by(mut self, opening: Vec<String>) -> Self {
        self.words.opening = opening;
        self
    }

    /// The same with a sentence that Postmark's clients look for.
    pub(super) fn closed_by(mut self, closing: Option<String>) -> Self {
        self.words.closing = closing;
        self
    }

    /// The same about the message at this place of a list.
    pub(super) fn at(mut self, place: String) -> Self {
        self.words.place = Some(place);
        self
    }

    /// The error in the client's words.
    pub(super) fn told(&self, door: CompatService, request_id: &str) -> ClientError {
        let ErrorKeyword { opening, closing, number, place } = &*self.words;
        let mut told = door.told(&self.error, request_id, place.as_deref());
        told.number = number.unwrap_or(told.number);
        if door != CompatService::Postmark {
            return told;
        }
        // On lines of their own: patterns of clients end at a line's end.
        if !opening.is_empty() {
            told.message = format!("{}\n{}", opening.join("\n"), told.message);
        }
        if let Some(closing) = closing {
            told.message = format!("{}\n{closing}", told.message);
        }
        told
    }

    /// The answer to `call`.
    pub(super) fn answer(&self, door: CompatService, api: &Api, call: &Call<Caller>) -> Answer {
        let told = self.told(door, &call.request_id);
        let answer = door.written(&self.error, &told).refused_as(self.error.code());
        match &self.error {
            ApiError::QuotaExceeded(..) => messages::with_quota_of(api, &call.caller, answer),
            _ => answer,
        }
    }
}
