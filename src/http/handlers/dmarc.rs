//! DMARC reports of a domain.

use hyper::StatusCode;
use serde_json::{Map, Value};

use super::id;
use super::listing::Listing;
use crate::base::id::{AccountId, DomainId};
use crate::domain::dmarc_source::SourceNetwork;
use crate::domain::fields::Fields;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::engine::listing::Page;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
pub(crate) use crate::http::view::dmarc::date;
use crate::http::view::dmarc::{DmarcReportView, DmarcView, SourceView};
use crate::http::view::dmarc_reporters::IgnoredReporterView;
use crate::store::error::OpError;
use crate::store::op::dmarc::DmarcRefusal;

/// Default number of days.
pub(crate) const DAYS_DEFAULT: u32 = 30;
/// Number of days for which reports are kept.
pub(crate) const DAYS_MAX: u32 = 400;

/// `GET /v1/domains/{id}/dmarc`.
pub(in crate::http) async fn show(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let (account, id): (_, DomainId) = (call.caller.account, id(&call)?);
    // An unknown domain is a 404 even if the query is invalid.
    api.engine.domain(account, id)?.ok_or(ApiError::NotFound)?;
    let mut violations = Violations::new();
    let query = call.query(&["days"], &mut violations);
    let days = days_of(query.get("days"));
    if days.is_none() {
        violations.add("days", format!("must be a whole number from 1 to {DAYS_MAX}"));
    }
    let days = violations.or(|| days)?;
    shown(api, account, id, days).await
}

/// Parses the number of days in a query; `None` if it is not a number in the range.
pub(crate) fn days_of(text: Option<&str>) -> Option<u32> {
    let Some(text) = text else { return Some(DAYS_DEFAULT) };
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|days| digits && (1..=DAYS_MAX).contains(days))
}

/// Returns the figures of a domain.
pub(crate) async fn shown(api: &Api, account: AccountId, id: DomainId, days: u32) -> Result<Answer, ApiError> {
    let overview = api.engine.dmarc_overview(account, id, days).await?.ok_or(ApiError::NotFound)?;
    Ok(Answer::json(StatusCode::OK, &DmarcView::new(&overview)))
}

/// `PATCH /v1/domains/{id}/dmarc/sources`.
pub(in crate::http) async fn mark_source(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let (account, id): (_, DomainId) = (call.caller.account, id(&call)?);
    api.engine.domain(account, id)?.ok_or(ApiError::NotFound)?;
    let (network, is_mine) = mark_of(call.json()?)?;
    let source = api.engine.mark_dmarc_source(&call.caller, id, network, is_mine).await.map_err(refused)?;
    Ok(Answer::json(StatusCode::OK, &SourceView::new(&source)))
}

/// Parses the source and the mark in `object`. The panel's form uses it too.
pub(crate) fn mark_of(object: Map<String, Value>) -> Result<(SourceNetwork, Option<bool>), ApiError> {
    // Null removes the mark, so it differs from a missing member.
    let names_mine = object.contains_key("mine");
    let mut violations = Violations::new();
    let mut fields = Fields::new(object, &mut violations);
    let network = fields.required_text("network").and_then(|text| fields.check("network", text.parse()));
    let is_mine = fields.boolean("mine");
    if !names_mine {
        fields.fault("mine", "is required: true, false or null");
    }
    fields.finish();
    Ok(violations.or(|| network.map(|network| (network, is_mine)))?)
}

/// `PATCH /v1/domains/{id}/dmarc/reporters`.
pub(in crate::http) async fn ignore_reporter(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let (account, id): (_, DomainId) = (call.caller.account, id(&call)?);
    api.engine.domain(account, id)?.ok_or(ApiError::NotFound)?;
    let (reporter, is_ignored) = reporter_of(call.json()?)?;
    let reporter = api.engine.ignore_dmarc_reporter(&call.caller, id, reporter, is_ignored).await.map_err(refused)?;
    Ok(Answer::json(StatusCode::OK, &IgnoredReporterView::new(&reporter)))
}

/// Parses the reporter in `object`, its name and optionally its signing domain, and whether it is ignored. The panel's
/// form uses it too.
pub(crate) fn reporter_of(object: Map<String, Value>) -> Result<((String, Option<String>), bool), ApiError> {
    let names_ignored = object.get("ignored").is_some_and(|value| !value.is_null());
    let mut violations = Violations::new();
    let mut fields = Fields::new(object, &mut violations);
    let name = fields.required_text("name");
    let signed_by = fields.text("signed_by");
    let is_ignored = fields.boolean("ignored");
    if !names_ignored {
        fields.fault("ignored", "is required: true or false");
    }
    fields.finish();
    Ok(violations.or(|| name.map(|name| (name, signed_by)).zip(is_ignored))?)
}

/// `GET /v1/domains/{id}/dmarc/reports`.
pub(in crate::http) async fn reports(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let (account, id): (_, DomainId) = (call.caller.account, id(&call)?);
    api.engine.domain(account, id)?.ok_or(ApiError::NotFound)?;
    let listing = Listing::plain(&call, format!("dmarc reports of {id}"), account)?;
    let Page { rows, next } = api.engine.dmarc_reports(account, id, listing.page)?;
    listing.answer_of(rows.iter().map(|(id, row)| DmarcReportView::new(*id, row)), next)
}

/// Returns the error of a refused mark.
pub(crate) fn refused(stop: OpError<DmarcRefusal>) -> ApiError {
    match stop {
        OpError::Refused(DmarcRefusal::NotFound) => ApiError::NotFound,
        OpError::Refused(DmarcRefusal::Stream(stream)) => ApiError::StreamForbidden(stream.to_string()),
        OpError::Failed(error) => error.into(),
    }
}
