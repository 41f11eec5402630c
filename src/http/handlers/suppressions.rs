//! Suppressions (contract 6).

use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde_json::{Map, Value};

use super::listing::Listing;
use super::suppression_list::{self, CheckedList, FaultyList, Form};
use super::{label, not_found};
use crate::base::id::AccountId;
use crate::domain::address::Address;
use crate::domain::fields::Fields;
use crate::domain::limits::SUPPRESSIONS_COUNT;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::engine::background_thread::JobFailure;
use crate::engine::imports::ImportRefusal;
use crate::engine::listing::Page;
use crate::engine::suppressions::SuppressionFilter;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::suppression_export::SuppressionExport;
use crate::http::view::suppression::{FaultyListView, ImportedView, SuppressionView};
use crate::store::error::OpError;
use crate::store::op::suppression::{Name, Suppression};
use crate::store::op::suppression_count::TooManySuppressions;
use crate::store::row::suppression::{SuppressionReason, SuppressionRow};

/// Media type of a CSV list.
pub(in crate::http) const CSV: &str = "text/csv";
/// Media type of a list of JSON lines.
pub(in crate::http) const NDJSON: &str = "application/x-ndjson";

/// `POST /v1/suppressions`: 201, or 200 with the existing suppression if the address is already suppressed.
pub(in crate::http) async fn create(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let suppression = new_of(call.json()?)?;
    let added = api.engine.suppress(&call.caller, suppression).await.map_err(not_suppressed)?;
    let status = if added.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let answer = Answer::json(status, &SuppressionView::new(&added.row));
    Ok(answer.with_location(&format!("/v1/suppressions/{}", added.row.id)))
}

/// Returns the error of a refused suppression.
pub(crate) fn not_suppressed(stop: OpError<TooManySuppressions>) -> ApiError {
    match stop {
        OpError::Refused(TooManySuppressions) => too_many(),
        OpError::Failed(error) => error.into(),
    }
}

fn too_many() -> ApiError {
    ApiError::Conflict(format!("An account has at most {SUPPRESSIONS_COUNT} suppressions. Remove some of them first."))
}

/// Parses the members of `object` as a suppression. The panel's form uses it too.
pub(crate) fn new_of(object: Map<String, Value>) -> Result<Suppression, ApiError> {
    let mut violations = Violations::new();
    let mut fields = Fields::new(object, &mut violations);
    let address = email(&mut fields);
    let note = note(&mut fields);
    fields.finish();
    Ok(violations.or(|| Some(Suppression { note, ..Suppression::of(address?, SuppressionReason::Manual) }))?)
}

/// Parses the address to suppress. A pattern may look like an address, but would match nothing.
pub(super) fn email(fields: &mut Fields<'_>) -> Option<Address> {
    let text = fields.required_text("email")?;
    if is_pattern(&text) {
        fields.fault("email", "Wildcards are not supported; suppress each address");
        return None;
    }
    fields.check("email", text.parse())
}

/// Returns whether a text has a `*` as patterns do: around the local part, or in the domain.
fn is_pattern(text: &str) -> bool {
    let (local, domain) = text.rsplit_once('@').unwrap_or(("", text));
    local.starts_with('*') || local.ends_with('*') || domain.contains('*')
}

/// Parses the account's note; an empty text counts as none.
pub(super) fn note(fields: &mut Fields<'_>) -> Option<String> {
    let text = fields.text("note").filter(|text| !text.is_empty());
    label(fields, "note", text)
}

/// `GET /v1/suppressions`.
pub(in crate::http) async fn list(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let account = call.caller.account;
    let mut violations = Violations::new();
    let listing = Listing::read(&call, "suppressions", account, &["email", "reason"], &mut violations);
    let filter = filter_of(|name| listing.filter(name), &mut violations);
    violations.or(|| Some(()))?;
    let Page { rows, next } = api.engine.suppressions(account, filter, listing.page).await?;
    listing.answer_of(rows.iter().map(SuppressionView::new), next)
}

/// Parses the filter. Errors go to `violations`.
pub(crate) fn filter_of<'v>(value: impl Fn(&str) -> Option<&'v str>, violations: &mut Violations) -> SuppressionFilter {
    SuppressionFilter {
        address: value("email").and_then(|text| violations.check("email", text.parse())),
        part: None,
        reason: value("reason").and_then(|text| violations.check("reason", text.parse())),
    }
}

/// Returns the identifier or address in the path. Anything else counts as unknown (contract 1).
fn name(call: &Call<Caller>) -> Result<Name, ApiError> {
    let text = call.param("name");
    let by_address = || text.parse().map(Name::Address).map_err(|_| ApiError::NotFound);
    text.parse().map(Name::Id).or_else(|_| by_address())
}

/// `GET /v1/suppressions/{id or address}`.
pub(in crate::http) async fn show(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let row = api.engine.suppression(call.caller.account, &name(&call)?)?.ok_or(ApiError::NotFound)?;
    Ok(shown(&row))
}

/// Returns the record of a suppression.
pub(crate) fn shown(row: &SuppressionRow) -> Answer {
    Answer::json(StatusCode::OK, &SuppressionView::new(row))
}

/// `DELETE /v1/suppressions/{id or address}`.
pub(in crate::http) async fn delete(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    api.engine.unsuppress(&call.caller, name(&call)?).await.map_err(not_found)?;
    Ok(Answer::no_content())
}

/// `POST /v1/suppressions/import`: the whole list is checked before any of it is written.
pub(in crate::http) async fn import(api: &Api, mut call: Call<Caller>) -> Result<Answer, ApiError> {
    let is_dry = is_dry_run(&call)?;
    let account = call.caller.account;
    let list = match list_of(api, account, call.take_body(), form(&call)).await? {
        Ok(list) => list,
        Err(FaultyList::Unreadable(error)) => return Err(error),
        Err(FaultyList::Lines(violations, lines)) => {
            let error = ApiError::from(violations.clone());
            let (message, code) = (error.message(), error.code());
            let view = FaultyListView { message, code, errors: violations.by_field(), lines: &lines };
            return Ok(Answer::json(error.status(), &view));
        }
    };
    let done = if is_dry {
        api.engine.preview_import(account, Arc::new(list)).await
    } else {
        api.engine.import_suppressions(&call.caller, Arc::new(list)).await
    };
    let done = done.map_err(not_imported)?;
    Ok(Answer::json(StatusCode::OK, &ImportedView::new(done)))
}

/// Returns the error of a refused import.
pub(crate) fn not_imported(stop: OpError<ImportRefusal>) -> ApiError {
    match stop {
        OpError::Refused(ImportRefusal::Running) => ApiError::Conflict(
            "Another import of this account is running or being undone. Try again when it has finished.".to_owned(),
        ),
        OpError::Refused(ImportRefusal::Crowded) => ApiError::Overloaded,
        OpError::Refused(ImportRefusal::TooMany) => too_many(),
        OpError::Failed(error) => error.into(),
    }
}

/// Checks a whole list outside the async threads. Returns all of its errors, if there are any. The panel's import uses
/// it too.
pub(crate) async fn list_of(
    api: &Api,
    account: AccountId,
    body: Bytes,
    form: Form,
) -> Result<Result<CheckedList, FaultyList>, ApiError> {
    let now = api.engine.clock.now();
    Ok(api.engine.beside(account, move || suppression_list::check(&body, form, now)).await?)
}

fn is_dry_run(call: &Call<Caller>) -> Result<bool, ApiError> {
    let mut violations = Violations::new();
    let query = call.query(&["dry_run"], &mut violations);
    let is_dry = match query.get("dry_run") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => {
            violations.add("dry_run", "must be true or false");
            false
        }
    };
    Ok(violations.or(|| Some(is_dry))?)
}

/// Returns the list's form by its type, which was checked before; CSV is the default.
fn form(call: &Call<Caller>) -> Form {
    let given = call.header(&CONTENT_TYPE).unwrap_or(CSV);
    let essence = given.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case(NDJSON) { Form::JsonLines } else { Form::Csv }
}

/// `GET /v1/suppressions/export`: the whole list, in the format of the import.
pub(in crate::http) async fn export(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let (engine, caller) = (Arc::clone(&api.engine), call.caller);
    let account = caller.account;
    exported(api, account, move || engine.is_key_live(&caller).unwrap_or(false)).await
}

/// Returns the whole list of an account as a file. It is read in parts for as long as `still_may` returns true.
pub(crate) async fn exported(
    api: &Api,
    account: AccountId,
    still_may: impl Fn() -> bool + Send + 'static,
) -> Result<Answer, ApiError> {
    let slot = api.engine.export_slot(account).ok_or(ApiError::Overloaded)?;
    let list = SuppressionExport::begin(Arc::clone(&api.engine), (account, slot), still_may).await?;
    let answer = Answer::stream(StatusCode::OK, "text/csv; charset=utf-8", Box::pin(list));
    Ok(answer.with_header(CONTENT_DISPOSITION, "attachment; filename=\"suppressions.csv\""))
}

impl From<JobFailure> for ApiError {
    fn from(not_done: JobFailure) -> Self {
        match not_done {
            JobFailure::Crowded => Self::Overloaded,
            JobFailure::Failed => Self::Internal,
        }
    }
}
