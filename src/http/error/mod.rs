//! All refusals and failures of the API: the table of contract 1, "Errors", as a type. One exhaustive match each
//! returns status, code, sentence and headers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use hyper::StatusCode;
use hyper::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Serialize;

use super::answer::Answer;
use super::dev_guard::DevForbidden;
use super::openapi::errors::error_code;
use super::openapi::shape::{Shape as _, describe};
use crate::domain::api_key::Scope;
use crate::domain::violation::Violations;
use crate::store::error::StoreError;

mod sentence;

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
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            Self::StreamForbidden(_) | Self::ScopeForbidden(_) | Self::AccountSuspended(_) | Self::DevForbidden(_) => {
                StatusCode::FORBIDDEN
            }
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::ContentGone => StatusCode::GONE,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::IdempotencyMismatch | Self::IdempotencyInProgress | Self::Conflict(_) => StatusCode::CONFLICT,
            Self::PayloadTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::InvalidJson(_)
            | Self::Invalid(_)
            | Self::DomainUnknown(_)
            | Self::DomainUnverified(_)
            | Self::RecipientSuppressed(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::RateLimited(_) | Self::QuotaExceeded(..) | Self::StorageQuotaExceeded => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::StorageFull
            | Self::StorageFailed
            | Self::Overloaded
            | Self::ShuttingDown
            | Self::ReplicaUnavailable
            | Self::ReplicaInDoubt => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unauthenticated(_) => "unauthenticated",
            Self::StreamForbidden(_) => "stream_forbidden",
            Self::ScopeForbidden(_) => "scope_forbidden",
            Self::AccountSuspended(_) => "account_suspended",
            Self::DevForbidden(_) => "dev_forbidden",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed(_) => "method_not_allowed",
            Self::ContentGone => "content_gone",
            Self::RequestTimeout => "request_timeout",
            Self::HeadersTooLarge => "headers_too_large",
            Self::IdempotencyMismatch => "idempotency_mismatch",
            Self::IdempotencyInProgress => "idempotency_in_progress",
            Self::Conflict(_) => "conflict",
            Self::PayloadTooLarge(_) => "payload_too_large",
            Self::UnsupportedMediaType(_) => "unsupported_media_type",
            Self::InvalidJson(_) => "invalid_json",
            Self::Invalid(_) => "validation_failed",
            Self::DomainUnknown(_) => "domain_unknown",
            Self::DomainUnverified(_) => "domain_unverified",
            Self::RecipientSuppressed(_) => "recipient_suppressed",
            Self::RateLimited(_) => "rate_limited",
            Self::QuotaExceeded(..) => "quota_exceeded",
            Self::StorageQuotaExceeded => "storage_quota_exceeded",
            Self::Internal => "internal",
            Self::StorageFull => "storage_full",
            Self::StorageFailed => "storage_failed",
            Self::Overloaded => "overloaded",
            Self::ShuttingDown => "shutting_down",
            Self::ReplicaUnavailable | Self::ReplicaInDoubt => "replica_unavailable",
        }
    }

    /// Returns one sentence that a person can act on.
    pub fn message(&self) -> Cow<'_, str> {
        match self {
            Self::Unauthenticated(Unauthenticated::Missing) => {
                "Send your API key as \"Authorization: Bearer <key>\".".into()
            }
            Self::Unauthenticated(Unauthenticated::Malformed) => {
                "The Authorization header must be \"Bearer\", one space and the API key.".into()
            }
            Self::Unauthenticated(Unauthenticated::Unknown) => {
                "This API key is unknown, revoked or expired. Use another one.".into()
            }
            Self::StreamForbidden(stream) => {
                format!("This API key may only use domains of the {stream} stream.").into()
            }
            Self::ScopeForbidden(scope) => {
                format!("This API key lacks the scope \"{scope}\"; use a key that has it.").into()
            }
            Self::AccountSuspended(reason) => {
                format!("The account is suspended ({reason}). Ask the operator of this service.").into()
            }
            Self::DevForbidden(why) => why.message(),
            Self::NotFound => "There is nothing at this address; check the path and the identifier.".into(),
            Self::MethodNotAllowed(allow) => format!("This path only supports {allow}.").into(),
            Self::ContentGone => "The message's content was deleted at its retention deadline.".into(),
            Self::RequestTimeout => "The request arrived too slowly. Send it again.".into(),
            Self::HeadersTooLarge => {
                "The request head is too large. Send at most 100 headers and 16 KiB in total.".into()
            }
            Self::IdempotencyMismatch => {
                "This Idempotency-Key was used with another body within 24 hours. Use a new key for a new message."
                    .into()
            }
            Self::IdempotencyInProgress => {
                "The first request with this Idempotency-Key is still running. Repeat it in a second.".into()
            }
            Self::Conflict(sentence) => sentence.as_str().into(),
            Self::PayloadTooLarge(bytes) => format!("The request body may have at most {bytes} bytes.").into(),
            Self::UnsupportedMediaType(sentence) => sentence.as_str().into(),
            Self::InvalidJson(sentence) => sentence.as_str().into(),
            Self::Invalid(violations) => sentence::of_violations(violations).into(),
            Self::DomainUnknown(domain) => {
                format!("The sending domain {domain} does not belong to this account. Add it and publish its records.")
                    .into()
            }
            Self::DomainUnverified(domain) => {
                format!("The sending domain {domain} is not verified. Publish its DKIM record and verify it.").into()
            }
            Self::RecipientSuppressed(reason) => {
                format!("Not sent: the recipient's address is suppressed ({reason}).").into()
            }
            Self::RateLimited(seconds) => format!("Too many requests. Wait {seconds} s.").into(),
            Self::QuotaExceeded(window, seconds) => {
                format!("The account's quota for the {window} is used up. Wait {seconds} s.").into()
            }
            Self::StorageQuotaExceeded => "The account's storage is full. Wait until content expires.".into(),
            Self::Internal => "Internal error. Try again, and quote the request ID if it persists.".into(),
            Self::StorageFull => "The service is out of disk space. Try again later.".into(),
            Self::StorageFailed => "The service can't write to its disk. Try again later.".into(),
            Self::Overloaded => "The service is overloaded. Try again shortly.".into(),
            Self::ShuttingDown => "The service is restarting. Try again shortly.".into(),
            Self::ReplicaUnavailable => {
                "The service can't reach its replica bucket, so nothing was changed. Try again shortly.".into()
            }
            Self::ReplicaInDoubt => sentence::IN_DOUBT.into(),
        }
    }

    /// Returns the violations by field, which every 422 has.
    pub(super) fn errors(&self) -> Option<Cow<'_, BTreeMap<String, Vec<String>>>> {
        let one = |field: &str, sentence: &str| {
            Some(Cow::Owned(BTreeMap::from([(field.to_owned(), vec![sentence.to_owned()])])))
        };
        match self {
            Self::Invalid(violations) => Some(Cow::Borrowed(violations.by_field())),
            Self::InvalidJson(_) => Some(Cow::Owned(BTreeMap::new())),
            Self::DomainUnknown(_) => one("from", "must be at a domain of this account"),
            Self::DomainUnverified(_) => one("from", "must be at a verified domain"),
            Self::RecipientSuppressed(_) => one("to", "is suppressed"),
            Self::Unauthenticated(_)
            | Self::StreamForbidden(_)
            | Self::ScopeForbidden(_)
            | Self::AccountSuspended(_)
            | Self::DevForbidden(_)
            | Self::NotFound
            | Self::MethodNotAllowed(_)
            | Self::ContentGone
            | Self::RequestTimeout
            | Self::HeadersTooLarge
            | Self::IdempotencyMismatch
            | Self::IdempotencyInProgress
            | Self::Conflict(_)
            | Self::PayloadTooLarge(_)
            | Self::UnsupportedMediaType(_)
            | Self::RateLimited(_)
            | Self::QuotaExceeded(..)
            | Self::StorageQuotaExceeded
            | Self::Internal
            | Self::StorageFull
            | Self::StorageFailed
            | Self::Overloaded
            | Self::ShuttingDown
            | Self::ReplicaUnavailable
            | Self::ReplicaInDoubt => None,
        }
    }

    /// Returns the seconds after which a retry is useful, at least 1.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::RateLimited(seconds) | Self::QuotaExceeded(_, seconds) => Some((*seconds).max(1)),
            Self::StorageQuotaExceeded => Some(3600),
            Self::IdempotencyInProgress | Self::Overloaded => Some(1),
            Self::ShuttingDown | Self::ReplicaUnavailable | Self::ReplicaInDoubt => Some(5),
            Self::StorageFailed => Some(10),
            Self::StorageFull => Some(60),
            Self::Unauthenticated(_)
            | Self::StreamForbidden(_)
            | Self::ScopeForbidden(_)
            | Self::AccountSuspended(_)
            | Self::DevForbidden(_)
            | Self::NotFound
            | Self::MethodNotAllowed(_)
            | Self::ContentGone
            | Self::RequestTimeout
            | Self::HeadersTooLarge
            | Self::IdempotencyMismatch
            | Self::Conflict(_)
            | Self::PayloadTooLarge(_)
            | Self::UnsupportedMediaType(_)
            | Self::InvalidJson(_)
            | Self::Invalid(_)
            | Self::DomainUnknown(_)
            | Self::DomainUnverified(_)
            | Self::RecipientSuppressed(_)
            | Self::Internal => None,
        }
    }

    /// Returns the error as a JSON body.
    pub(super) fn body(&self) -> ErrorBody<'_> {
        ErrorBody { message: self.message(), code: self.code(), errors: self.errors() }
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
