//! Responses for browsers: pages, redirects, and the security headers.

use askama::Template;
use hyper::StatusCode;
use hyper::header::{
    CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
};

use crate::http::answer::Answer;
use crate::http::error::ApiError;

use super::page_error::PageError;

/// No external resources, nothing inline, no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; font-src 'self'; form-action 'self'; frame-src 'self'; frame-ancestors 'none'; \
    base-uri 'none'; require-trusted-types-for 'script'";
/// Policy for foreign HTML: no scripts, forms, frames or requests. Only our own pages may frame it.
const PREVIEW_POLICY: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
    frame-ancestors 'self'; base-uri 'none'; form-action 'none'";
/// Policy of a message's frame with remote images, for one view, after a warning.
const PREVIEW_WITH_IMAGES_POLICY: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; \
    img-src data: https: http:; frame-ancestors 'self'; base-uri 'none'; form-action 'none'";

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const HTML: &str = "text/html; charset=utf-8";

/// Whether a preview loads remote content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remote {
    /// Loads nothing.
    Blocked,
    /// Loads images.
    Images,
}

/// Renders a page.
pub(super) fn page(status: StatusCode, template: &impl Template) -> Result<Answer, PageError> {
    let body = template.render().map_err(|error| {
        tracing::error!(%error, "could not render a page; answering 500");
        ApiError::Internal
    })?;
    Ok(Answer::bytes(status, HTML, body))
}

/// Returns foreign HTML for the sandboxed frame.
pub(super) fn preview(html: String, remote: Remote) -> Answer {
    let policy = match remote {
        Remote::Blocked => PREVIEW_POLICY,
        Remote::Images => PREVIEW_WITH_IMAGES_POLICY,
    };
    Answer::bytes(StatusCode::OK, HTML, html)
        .with_header(CONTENT_SECURITY_POLICY, policy)
        .with_header(REFERRER_POLICY, "no-referrer")
}

/// Redirects to another path of the panel, with a GET.
pub(super) fn redirect(to: &str) -> Answer {
    Answer::bytes(StatusCode::SEE_OTHER, HTML, "").with_location(to)
}

/// Adds the headers that every panel response carries.
pub(super) fn guarded(answer: Answer, encrypted: bool) -> Answer {
    let has_policy = answer.headers().contains_key(CONTENT_SECURITY_POLICY);
    let answer = if has_policy {
        answer
    } else {
        answer.with_header(CONTENT_SECURITY_POLICY, POLICY).with_header(REFERRER_POLICY, "same-origin")
    };
    let answer = answer
        .with_header(X_CONTENT_TYPE_OPTIONS, "nosniff")
        .with_header(OPENER_POLICY, "same-origin")
        .with_header(RESOURCE_POLICY, "same-origin");
    if encrypted { answer.with_header(STRICT_TRANSPORT_SECURITY, "max-age=31536000") } else { answer }
}
