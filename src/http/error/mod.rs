//! All refusals and failures of the API: the table of contract 1, "Errors", as a type. [`table`] has the status, code
//! and sentence of each.

use std::borrow::Cow;
use std::collections::BTreeMap;

use hyper::StatusCode;
use hyper::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Serialize;

use self::table::Row;
use super::answer::Answer;
use super::dev_guard::DevForbidden;
use super::openapi::errors::error_code;
use super::openapi::shape::{Shape as _, describe};
use crate::domain::api_key::Scope;
use crate::domain::violation::Violations;
use crate::store::error::StoreError;

mod sentence;
mod table;

/// Reasons for a 401. The code is the same; the sentence helps to fix the setup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unauthenticated {
    /// There is no `Authorization` header.
    Missing,
    /// The header is not exactly `Bearer` and one token.
    Malformed,
    /// The key is unknown, revoked or expired; the answer does not say which.
    Unknown,
}

/// A refusal or failure, as the caller sees it.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiError {
    /// 401 `unauthenticated`.
    Unauthenticated(Unauthenticated),
    /// 403 `stream_forbidden`: the stream that the key is limited to.
    StreamForbidden(String),
    /// 403 `scope_forbidden`: the missing scope.
    ScopeForbidden(Scope),
    /// 403 `account_suspended`: the operator's reason.
    AccountSuspended(String),
    /// 403 `dev_forbidden`: the reason for a refused request under `/dev`.
    DevForbidden(DevForbidden),
    /// 404 `not_found`: an unknown path or identifier.
    NotFound,
    /// 405 `method_not_allowed`: the value of the `Allow` header.
    MethodNotAllowed(String),
    /// 410 `content_gone`.
    ContentGone,
    /// 408 `request_timeout`.
    RequestTimeout,
    /// 431 `headers_too_large`.
    HeadersTooLarge,
    /// 409 `idempotency_mismatch`.
    IdempotencyMismatch,
    /// 409 `idempotency_in_progress`.
    IdempotencyInProgress,
    /// 409 `conflict`: the sentence that names the conflict.
    Conflict(String),
    /// 413 `payload_too_large`: the limit in bytes.
    PayloadTooLarge(usize),
    /// 415 `unsupported_media_type`: the accepted types, as a sentence.
    UnsupportedMediaType(String),
    /// 422 `invalid_json`: the error and its position.
    InvalidJson(String),
    /// 422 `validation_failed`.
    Invalid(Violations),
    /// 422 `domain_unknown`: the domain of `from`.
    DomainUnknown(String),
    /// 422 `domain_unverified`: the domain of `from`.
    DomainUnverified(String),
    /// 422 `recipient_suppressed`: the reason.
    RecipientSuppressed(String),
    /// 429 `rate_limited`: seconds to wait.
    RateLimited(u64),
    /// 429 `quota_exceeded`: the window (`hour` or `day`) and the seconds to wait.
    QuotaExceeded(&'static str, u64),
    /// 429 `storage_quota_exceeded`.
    StorageQuotaExceeded,
    /// 500 `internal`. The detail goes to the log, under the request's ID, and never to the client.
    Internal,
    /// 503 `storage_full`.
    StorageFull,
    /// 503 `storage_failed`.
    StorageFailed,
    /// 503 `overloaded`.
    Overloaded,
    /// 503 `shutting_down`.
    ShuttingDown,
    /// 503 `replica_unavailable`: nothing was changed.
    ReplicaUnavailable,
    /// 503 `replica_unavailable`: the change is only on this machine's disk.
    ReplicaInDoubt,
}

impl From<Violations> for ApiError {
    fn from(violations: Violations) -> Self {
        Self::Invalid(violations)
    }
}

/// A store failure is reported without its detail, which goes to the log.
impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "request failed because of the store");
        match error {
            StoreError::Full => Self::StorageFull,
            // Listeners close before the store, so a closed store is one that failed earlier.
            StoreError::Database(_)
            | StoreError::DatabaseFull
            | StoreError::Corrupted(_)
            | StoreError::Unsynced(_)
            | StoreError::Content(_)
            | StoreError::Closed => Self::StorageFailed,
            StoreError::Row { .. } | StoreError::Damaged { .. } | StoreError::Panicked => Self::Internal,
            StoreError::Unconfirmed => Self::ReplicaUnavailable,
            StoreError::InDoubt => Self::ReplicaInDoubt,
        }
    }
}

/// The error body of contract 1.
#[derive(Serialize)]
pub(super) struct ErrorBody<'a> {
    message: Cow<'a, str>,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Cow<'a, BTreeMap<String, Vec<String>>>>,
}

describe! {
    ErrorBody<'_> as "Error", "The reason why a request was refused or failed."
    {
        message: "One sentence that a person can act on." => |schema| schema.example(ApiError::NotFound.message()),
        code: "The error code." => |_| error_code().example(ApiError::NotFound.code()),
    }
    whole "ValidationError", "The reason why a request was refused: all errors at once, by field."
    {
        errors: "The errors by field. Nested fields are dotted, such as `headers.X-Foo` or `events.1`. May be empty."
            => |_| <BTreeMap<String, Vec<String>>>::schema().example(serde_json::json!({"to": ["is required"]})),
    }
}

impl ApiError {
    /// Returns the HTTP status.
    pub fn status(&self) -> StatusCode {
        self.row().status
    }

    /// Returns the error code.
    pub fn code(&self) -> &'static str {
        self.row().code
    }

    /// Returns one sentence that a person can act on.
    pub fn message(&self) -> Cow<'_, str> {
        self.row().message
    }

    /// Returns the violations by field, which every 422 has.
    pub(super) fn errors(&self) -> Option<Cow<'_, BTreeMap<String, Vec<String>>>> {
        self.row().errors
    }

    /// Returns the seconds after which a retry is useful, at least 1.
    pub fn retry_after(&self) -> Option<u64> {
        self.row().retry_after
    }

    /// Returns the error as a JSON body.
    pub(super) fn body(&self) -> ErrorBody<'_> {
        let Row { message, code, errors, .. } = self.row();
        ErrorBody { message, code, errors }
    }

    /// Returns the error as an answer, to which a handler may add headers.
    pub fn answer(&self) -> Answer {
        self.with_message(self.message())
    }

    /// Returns the answer to the request with this ID, which the message of a 500 contains.
    pub(super) fn answer_for(&self, request_id: &str) -> Answer {
        if let Self::Internal = self {
            return self.with_message(format!("{} ({request_id})", self.message()).into());
        }
        self.answer()
    }

    fn with_message(&self, message: Cow<'_, str>) -> Answer {
        self.with_headers(Answer::json(self.status(), &ErrorBody { message, ..self.body() }))
    }

    /// Adds the headers that the error requires.
    pub(super) fn with_headers(&self, mut answer: Answer) -> Answer {
        if let Some(seconds) = self.retry_after() {
            answer = answer.with_header(RETRY_AFTER, &seconds.to_string());
        }
        if let Self::Unauthenticated(_) = self {
            answer = answer.with_header(WWW_AUTHENTICATE, "Bearer");
        }
        if let Self::MethodNotAllowed(allow) = self {
            answer = answer.with_header(ALLOW, allow);
        }
        answer
    }
}

#[cfg(test)]
mod tests;
