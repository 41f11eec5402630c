//! The table of contract 1, "Errors": one row for each error, from which every answer is made.

use std::borrow::Cow;
use std::collections::BTreeMap;

use hyper::StatusCode;

use super::{ApiError, Unauthenticated, sentence};

/// The violations of a request, by field.
type Errors<'a> = Cow<'a, BTreeMap<String, Vec<String>>>;

/// Content of an error's answer.
pub(super) struct Row<'a> {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: Cow<'a, str>,
    /// The violations by field, of a 422.
    pub(super) errors: Option<Errors<'a>>,
    /// Seconds after which a retry is useful, at least 1.
    pub(super) retry_after: Option<u64>,
}

/// Returns a row; `status` is one of the statuses that HTTP defines.
fn row<'a>(status: u16, code: &'static str, message: impl Into<Cow<'a, str>>) -> Row<'a> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Row { status, code, message: message.into(), errors: None, retry_after: None }
}

impl<'a> Row<'a> {
    fn after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds.max(1)), ..self }
    }

    fn with(self, errors: Errors<'a>) -> Self {
        Self { errors: Some(errors), ..self }
    }

    fn at(self, field: &str, violation: &str) -> Self {
        self.with(Cow::Owned(BTreeMap::from([(field.to_owned(), vec![violation.to_owned()])])))
    }
}

impl Unauthenticated {
    const fn message(self) -> &'static str {
        match self {
            Self::Missing => "Send your API key as \"Authorization: Bearer <key>\".",
            Self::Malformed => "The Authorization header must be \"Bearer\", one space and the API key.",
            Self::Unknown => "This API key is unknown, revoked or expired. Use another one.",
        }
    }
}

impl ApiError {
    /// Returns the error's row.
    pub(super) fn row(&self) -> Row<'_> {
        match self {
            Self::Unauthenticated(why) => row(401, "unauthenticated", why.message()),
            Self::StreamForbidden(stream) => {
                row(403, "stream_forbidden", format!("This API key may only use domains of the {stream} stream."))
            }
            Self::ScopeForbidden(scope) => {
                row(403, "scope_forbidden", format!("This API key lacks the scope \"{scope}\"; use a key that has it."))
            }
            Self::AccountSuspended(reason) => {
                let sentence = format!("The account is suspended ({reason}). Ask the operator of this service.");
                row(403, "account_suspended", sentence)
            }
            Self::DevForbidden(why) => row(403, "dev_forbidden", why.message()),
            Self::NotFound => {
                row(404, "not_found", "There is nothing at this address; check the path and the identifier.")
            }
            Self::MethodNotAllowed(allow) => {
                row(405, "method_not_allowed", format!("This path only supports {allow}."))
            }
            Self::RequestTimeout => row(408, "request_timeout", "The request arrived too slowly. Send it again."),
            Self::IdempotencyMismatch => row(409, "idempotency_mismatch", sentence::MISMATCH),
            Self::IdempotencyInProgress => row(409, "idempotency_in_progress", sentence::IN_PROGRESS).after(1),
            Self::Conflict(sentence) => row(409, "conflict", sentence),
            Self::ContentGone => {
                row(410, "content_gone", "The message's content was deleted at its retention deadline.")
            }
            Self::PayloadTooLarge(bytes) => {
                row(413, "payload_too_large", format!("The request body may have at most {bytes} bytes."))
            }
            Self::UnsupportedMediaType(sentence) => row(415, "unsupported_media_type", sentence),
            Self::InvalidJson(sentence) => row(422, "invalid_json", sentence).with(Cow::default()),
            Self::Invalid(violations) => row(422, "validation_failed", sentence::of_violations(violations))
                .with(Cow::Borrowed(violations.by_field())),
            Self::DomainUnknown(domain) => row(422, "domain_unknown", sentence::domain_unknown(domain))
                .at("from", "must be at a domain of this account"),
            Self::DomainUnverified(domain) => row(422, "domain_unverified", sentence::domain_unverified(domain))
                .at("from", "must be at a verified domain"),
            Self::RecipientSuppressed(reason) => {
                let sentence = format!("Not sent: the recipient's address is suppressed ({reason}).");
                row(422, "recipient_suppressed", sentence).at("to", "is suppressed")
            }
            Self::RateLimited(seconds) => {
                row(429, "rate_limited", format!("Too many requests. Wait {seconds} s.")).after(*seconds)
            }
            Self::QuotaExceeded(window, seconds) => {
                let sentence = format!("The account's quota for the {window} is used up. Wait {seconds} s.");
                row(429, "quota_exceeded", sentence).after(*seconds)
            }
            Self::StorageQuotaExceeded => {
                row(429, "storage_quota_exceeded", "The account's storage is full. Wait until content expires.")
                    .after(3600)
            }
            Self::HeadersTooLarge => row(431, "headers_too_large", sentence::HEADERS_TOO_LARGE),
            Self::Internal => {
                row(500, "internal", "Internal error. Try again, and quote the request ID if it persists.")
            }
            Self::StorageFull => {
                row(503, "storage_full", "The service is out of disk space. Try again later.").after(60)
            }
            Self::StorageFailed => {
                row(503, "storage_failed", "The service can't write to its disk. Try again later.").after(10)
            }
            Self::Overloaded => row(503, "overloaded", "The service is overloaded. Try again shortly.").after(1),
            Self::ShuttingDown => row(503, "shutting_down", "The service is starting or stopping. Try again.").after(5),
            Self::ReplicaUnavailable => row(503, "replica_unavailable", sentence::UNAVAILABLE).after(5),
            Self::ReplicaInDoubt => row(503, "replica_unavailable", sentence::IN_DOUBT).after(5),
        }
    }
}
