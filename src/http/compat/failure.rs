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
pub(super) struct CompatError {
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

impl From<ApiError> for CompatError {
    fn from(error: ApiError) -> Self {
        Self { error, words: Box::default() }
    }
}

impl From<Violations> for CompatError {
    fn from(violations: Violations) -> Self {
        ApiError::from(violations).into()
    }
}

impl CompatError {
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
    pub(super) fn client_error(&self, service: CompatService, request_id: &str) -> ClientError {
        let ErrorKeyword { opening, closing, number, place } = &*self.words;
        let mut client_error = service.client_error(&self.error, request_id, place.as_deref());
        client_error.number = number.unwrap_or(client_error.number);
        if service != CompatService::Postmark {
            return client_error;
        }
        // Each sentence has its own line, because client patterns end at line ends.
        if !opening.is_empty() {
            client_error.message = format!("{}\n{}", opening.join("\n"), client_error.message);
        }
        if let Some(closing) = closing {
            client_error.message = format!("{}\n{closing}", client_error.message);
        }
        client_error
    }

    /// Returns the answer to `call`.
    pub(super) fn answer(&self, service: CompatService, api: &Api, call: &Call<Caller>) -> Answer {
        let client_error = self.client_error(service, &call.request_id);
        let answer = service.written(&self.error, &client_error).refused_as(self.error.code());
        match &self.error {
            ApiError::QuotaExceeded(..) => messages::with_quota_of(api, &call.caller, answer),
            _ => answer,
        }
    }
}
