//! Explains the header section of a test mail (contract 14.3). Nothing is stored.

use hyper::StatusCode;

use crate::domain::fields::Fields;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::explain::ExplanationView;
use crate::mail::explain::{HEADERS_BYTES_MAX, explain};

/// `POST /v1/explain`.
pub(in crate::http) async fn show(_: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let mut violations = Violations::new();
    let mut fields = Fields::new(call.json()?, &mut violations);
    let headers = fields.required_text("headers");
    if headers.as_ref().is_some_and(|headers| headers.len() > HEADERS_BYTES_MAX) {
        fields.fault("headers", "is larger than 64 KiB; send only the headers");
    }
    fields.finish();
    let headers = violations.or(|| headers)?;
    Ok(Answer::json(StatusCode::OK, &ExplanationView::new(&explain(&headers))))
}
