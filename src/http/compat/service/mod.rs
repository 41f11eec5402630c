//! Services with compatible clients: the path prefix, the key header, and the error form of each. The HTTP service uses
//! it for every answer under a compatible prefix.

use std::borrow::Cow;
use std::collections::BTreeMap;

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName};
use serde::Serialize;

use super::names;
use crate::http::answer::Answer;
use crate::http::authenticator::{self, Authenticator};
use crate::http::error::{ApiError, Unauthenticated};
use crate::http::router::RouteMatch;

const POSTMARK_TOKEN: HeaderName = HeaderName::from_static("x-postmark-server-token");

/// A service whose clients can use this API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompatService {
    /// resend.com.
    Resend,
    /// postmarkapp.com.
    Postmark,
}

/// An error in the client's form, before serialisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientError {
    pub(super) message: String,
    /// Postmark's error number.
    pub(super) number: u16,
    name: &'static str,
    code: &'static str,
    errors: Option<BTreeMap<String, Vec<String>>>,
}

/// Resend's error, with our `code` and `errors`.
#[derive(Serialize)]
struct ResendError<'a> {
    #[serde(rename = "statusCode")]
    status: u16,
    name: &'static str,
    message: &'a str,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<&'a BTreeMap<String, Vec<String>>>,
}

/// Postmark's error, with our `code` and `errors`.
#[derive(Serialize)]
struct PostmarkError<'a> {
    #[serde(rename = "ErrorCode")]
    number: u16,
    #[serde(rename = "Message")]
    message: &'a str,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<&'a BTreeMap<String, Vec<String>>>,
}

impl CompatService {
    /// Both services.
    const ALL: [Self; 2] = [Self::Resend, Self::Postmark];

    /// Returns the prefix of the routes.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Resend => "/v1/compat/resend",
            Self::Postmark => "/v1/compat/postmark",
        }
    }

    /// Returns the service whose prefix `path` has, whether the path is known or not.
    fn of_path(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/v1/compat/")?;
        Self::ALL.into_iter().find(|service| {
            let name = &service.prefix()["/v1/compat/".len()..];
            rest.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Returns the service of the client: that of the matched row, or of the prefix of an unknown path.
    pub(in crate::http) fn of_request<S: Authenticator>(found: &RouteMatch<'_, S>, path: &str) -> Option<Self> {
        match found {
            RouteMatch::Row(route, _) | RouteMatch::OtherMethod(route, _) => route.service,
            RouteMatch::Nothing => Self::of_path(path),
        }
    }

    /// Returns the API key of a request.
    pub(in crate::http) fn key(self, headers: &HeaderMap) -> Result<&str, ApiError> {
        let missing = || ApiError::Unauthenticated(Unauthenticated::Missing);
        match self {
            // The SDK sends the scheme alone if it has no key.
            Self::Resend if headers.get(AUTHORIZATION).is_some_and(|value| value == "Bearer") => Err(missing()),
            Self::Resend => authenticator::bearer(headers),
            Self::Postmark => {
                let mut given = headers.get_all(POSTMARK_TOKEN).iter();
                let token = given.next().filter(|token| !token.is_empty()).ok_or_else(missing)?;
                let token = token.to_str().ok().filter(|_| given.next().is_none());
                let token = token.filter(|token| !token.contains(' '));
                token.ok_or(ApiError::Unauthenticated(Unauthenticated::Malformed))
            }
        }
    }

    /// Returns the client's name for one of our fields.
    pub(super) fn field(self, ours: &str) -> String {
        match self {
            Self::Resend => names::of_resend(ours),
            Self::Postmark => names::of_postmark(ours),
        }
    }

    /// Returns the answer with the error, for the request with this ID.
    pub(in crate::http) fn answer(self, error: &ApiError, request_id: &str) -> Answer {
        self.written(error, &self.client_error(error, request_id, None))
    }

    /// Returns the error in the client's form. Field errors already have the client's names. `place` is the position of
    /// the message in a list, if there is one.
    pub(super) fn client_error(self, error: &ApiError, request_id: &str, place: Option<&str>) -> ClientError {
        let field = |field: &String| {
            let name = if matches!(error, ApiError::Invalid(_)) { field.clone() } else { self.field(field) };
            place.map_or_else(|| name.clone(), |place| format!("{place}.{name}"))
        };
        let errors = error.errors();
        let errors = errors.map(|errors| errors.iter().map(|(name, said)| (field(name), said.clone())).collect());
        let errors: Option<BTreeMap<_, _>> = errors;
        let first = errors.as_ref().and_then(|errors| errors.keys().next());
        let message = match (error, &errors, first) {
            (ApiError::Invalid(violations), Some(errors), Some(_)) => named(errors, violations.hints()),
            (_, _, Some(field)) => format!("{field}: {}", error.message()),
            (_, _, None) => {
                let sentence = self.sentence(error, request_id);
                place.map_or_else(|| sentence.clone().into_owned(), |place| format!("{place}: {sentence}"))
            }
        };
        let (name, number) = (resend_name(error), postmark_number(error));
        ClientError { message, number, name, code: error.code(), errors }
    }

    fn sentence(self, error: &ApiError, request_id: &str) -> Cow<'static, str> {
        match (self, error) {
            (Self::Postmark, ApiError::Unauthenticated(Unauthenticated::Missing)) => {
                "Send your API key in the header X-Postmark-Server-Token.".into()
            }
            (Self::Postmark, ApiError::Unauthenticated(Unauthenticated::Malformed)) => {
                "The header X-Postmark-Server-Token must hold the API key alone, once.".into()
            }
            (_, ApiError::Internal) => format!("{} ({request_id})", error.message()).into(),
            _ => error.message().into_owned().into(),
        }
    }

    /// Serialises an error in the client's form.
    pub(super) fn written(self, error: &ApiError, error_view: &ClientError) -> Answer {
        let ClientError { message, number, name, code, errors } = error_view;
        let (status, errors) = (error.status(), errors.as_ref());
        let answer = match self {
            Self::Resend => {
                let body = ResendError { status: status.as_u16(), name, message, code, errors };
                Answer::json(status, &body)
            }
            Self::Postmark => Answer::json(status, &PostmarkError { number: *number, message, code, errors }),
        };
        error.with_headers(answer)
    }
}

/// Returns all errors as `field: sentence`, followed by the hints.
fn named(errors: &BTreeMap<String, Vec<String>>, hints: &[String]) -> String {
    let faults = errors.iter().flat_map(|(field, said)| said.iter().map(move |said| format!("{field}: {said}")));
    let mut message = faults.collect::<Vec<_>>().join("; ");
    for hint in hints {
        message.push_str(". ");
        message.push_str(hint);
    }
    message
}

/// Returns Resend's name for an error (contract 12.3).
fn resend_name(error: &ApiError) -> &'static str {
    match error {
        ApiError::Unauthenticated(Unauthenticated::Missing) => return "missing_api_key",
        ApiError::Unauthenticated(_) => return "invalid_api_key",
        ApiError::Invalid(violations) => {
            let mut sentences = violations.by_field().values().flatten();
            let only_missing = !violations.is_empty() && sentences.all(|said| said.contains("is required"));
            return if only_missing { "missing_required_field" } else { "validation_error" };
        }
        _ => {}
    }
    match error.code() {
        "scope_forbidden" | "stream_forbidden" | "account_suspended" => "restricted_api_key",
        "invalid_json" | "domain_unknown" | "domain_unverified" | "recipient_suppressed" => "validation_error",
        "conflict" | "unsupported_media_type" | "payload_too_large" => "validation_error",
        "idempotency_mismatch" => "invalid_idempotent_request",
        "idempotency_in_progress" => "concurrent_idempotent_requests",
        "not_found" => "not_found",
        "method_not_allowed" => "method_not_allowed",
        "rate_limited" => "rate_limit_exceeded",
        "quota_exceeded" | "storage_quota_exceeded" => "daily_quota_exceeded",
        _ => "application_error",
    }
}

/// Returns Postmark's number for an error (contract 12.3).
fn postmark_number(error: &ApiError) -> u16 {
    match error.code() {
        "unauthenticated" | "scope_forbidden" | "stream_forbidden" | "account_suspended" => 10,
        "invalid_json" => 402,
        "domain_unknown" => 400,
        "domain_unverified" => 401,
        "recipient_suppressed" => 406,
        "not_found" => 701,
        "unsupported_media_type" => 409,
        "rate_limited" => 429,
        "quota_exceeded" | "storage_quota_exceeded" => 405,
        _ => match error.status() {
            StatusCode::SERVICE_UNAVAILABLE => 100,
            status if status.is_server_error() => 500,
            _ => 300,
        },
    }
}

#[cfg(test)]
mod tests;
