//! Errors of pages and forms. Every kind becomes an error page or a redirect.

use std::borrow::Cow;

use hyper::StatusCode;

use super::components::FormErrors;
use super::sent_once::NotSent;
use crate::domain::user::Role;
use crate::engine::background_thread::JobFailure;
use crate::http::error::ApiError;
use crate::store::error::StoreError;

/// A refusal or failure, as the visitor sees it.
#[derive(Debug, PartialEq)]
pub(crate) enum PageError {
    /// An error of the API.
    Api(ApiError),
    /// The form came from another site. Answered with 403.
    ForeignForm,
    /// The visitor's role lacks the right. Answered with 403.
    RoleForbids(Role),
    /// The page is for operators of the service. Answered with 403.
    OperatorsOnly,
    /// An operator's view does not allow the request. Answered with 403.
    ReadOnlyView,
    /// The visitor is not signed in. Redirects to the login and then back to this path.
    SignInFirst(String),
    /// A form came without a session, and its input is not kept. Redirects like [`Self::SignInFirst`].
    SessionEnded(String),
    /// The form at this path was not executed. Answered with 409.
    NotSent(NotSent, String),
    /// The visitor must confirm the password. Redirects to the form and then on to this path.
    ProveFirst(String),
}

impl From<ApiError> for PageError {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

impl From<StoreError> for PageError {
    fn from(error: StoreError) -> Self {
        Self::Api(error.into())
    }
}

impl From<JobFailure> for PageError {
    fn from(not_done: JobFailure) -> Self {
        Self::Api(not_done.into())
    }
}

/// Text of an error page.
pub(super) struct ErrorText {
    /// The status.
    pub(super) status: StatusCode,
    /// Title of the error.
    pub(super) title: &'static str,
    /// Explanation and remedy.
    pub(super) sentence: Cow<'static, str>,
}

/// Returns the text for an API error.
pub(super) fn words(error: &ApiError) -> ErrorText {
    let (title, sentence): (_, Cow<'static, str>) = match error {
        ApiError::NotFound => ("Page not found", "The address is wrong, or its object was deleted.".into()),
        ApiError::MethodNotAllowed(_) => ("Method not allowed", "This page does not support that method.".into()),
        ApiError::ContentGone => ("Content deleted", error.message().into_owned().into()),
        ApiError::Internal => ("Internal error", "Try again. If it persists, quote the request ID below.".into()),
        ApiError::StorageFull
        | ApiError::StorageFailed
        | ApiError::Overloaded
        | ApiError::ShuttingDown
        | ApiError::ReplicaUnavailable
        | ApiError::ReplicaInDoubt => ("Temporarily unavailable", error.message().into_owned().into()),
        ApiError::Invalid(violations) => {
            ("Check the entered values", FormErrors::from(violations.clone()).all().join(" ").into())
        }
        ApiError::UnsupportedMediaType(_) => ("Unsupported form", error.message().into_owned().into()),
        ApiError::Conflict(_) => ("Not possible in the current state", error.message().into_owned().into()),
        ApiError::AccountSuspended(_) => ("The account is suspended", error.message().into_owned().into()),
        ApiError::Unauthenticated(_)
        | ApiError::StreamForbidden(_)
        | ApiError::ScopeForbidden(_)
        | ApiError::DevForbidden(_)
        | ApiError::RequestTimeout
        | ApiError::HeadersTooLarge
        | ApiError::IdempotencyMismatch
        | ApiError::IdempotencyInProgress
        | ApiError::PayloadTooLarge(_)
        | ApiError::InvalidJson(_)
        | ApiError::DomainUnknown(_)
        | ApiError::DomainUnverified(_)
        | ApiError::RecipientSuppressed(_)
        | ApiError::RateLimited(_)
        | ApiError::StorageQuotaExceeded
        | ApiError::QuotaExceeded(..) => ("Request refused", error.message().into_owned().into()),
    };
    ErrorText { status: error.status(), title, sentence }
}
