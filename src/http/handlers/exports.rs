//! Exports: `GET /v1/messages/export` and `GET /v1/events/export` (contract 4).

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::CONTENT_DISPOSITION;

use super::messages::{FILTERS, METADATA, filter_of, metadata_of, with_message_id};
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::violation::Violations;
use crate::engine::events::EventFilter;
use crate::engine::exports::{ExportError, ExportFilter};
use crate::engine::messages::MessageFilter;
use crate::engine::{Caller, Engine};
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::row_export::{ExportFormat, RowExport, span};
use crate::http::state::Api;

/// `GET /v1/messages/export`.
pub(in crate::http) async fn messages(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let mut violations = Violations::new();
    let query = call.query(&[&FILTERS[..], &[METADATA, "format"]].concat(), &mut violations);
    let mut filter = filter_of(|name| query.get(name), &mut violations);
    filter.metadata = metadata_of(query.pairs(), &mut violations);
    let format = query.parsed("format", &mut violations).unwrap_or_default();
    let filter = of_messages(&api.engine, filter, &mut violations);
    violations.or(|| Some(()))?;
    let filter = with_message_id(api, call.caller.account, filter, query.get("message_id_header"))?;
    exported_to(api, call.caller, ExportFilter::Messages(Box::new(filter)), format).await
}

/// `GET /v1/events/export`.
pub(in crate::http) async fn events(api: &Api, call: Call<Caller>) -> Result<Answer, ApiError> {
    let mut violations = Violations::new();
    let query = call.query(&["message_id", "type", "after", "before", "format"], &mut violations);
    let kind = query.parsed("type", &mut violations);
    let after = query.parsed("after", &mut violations);
    let before = query.parsed("before", &mut violations);
    let format = query.parsed("format", &mut violations).unwrap_or_default();
    // A malformed identifier counts as unknown, so no event belongs to its message (contract 4).
    let message = query.get("message_id").map(|text| text.parse().unwrap_or_default());
    let filter = of_events(&api.engine, EventFilter { message, kind, after, before }, &mut violations);
    violations.or(|| Some(()))?;
    exported_to(api, call.caller, filter, format).await
}

/// Returns the export of the messages that match a filter, within the maximum span.
pub(crate) fn of_messages(engine: &Engine, filter: MessageFilter, violations: &mut Violations) -> MessageFilter {
    let (after, before) = span(filter.after, filter.before, engine.clock.now(), violations);
    let before = engine.bound_of_ids(Some(before));
    MessageFilter { after: Some(after), before, ..filter }
}

/// Returns the export of the events that match a filter, within the maximum span.
pub(crate) fn of_events(engine: &Engine, filter: EventFilter, violations: &mut Violations) -> ExportFilter {
    let (after, before) = span(filter.after, filter.before, engine.clock.now(), violations);
    let before = engine.bound_of_ids(Some(before));
    ExportFilter::Events(EventFilter { after: Some(after), before, ..filter })
}

async fn exported_to(
    api: &Api,
    caller: Caller,
    filter: ExportFilter,
    format: ExportFormat,
) -> Result<Answer, ApiError> {
    let (engine, account) = (Arc::clone(&api.engine), caller.account);
    exported(api, account, filter, format, move || engine.is_key_live(&caller).unwrap_or(false)).await
}

/// Returns the rows of the export as a file. They are read in parts for as long as `still_may` returns true.
pub(crate) async fn exported(
    api: &Api,
    account: AccountId,
    filter: ExportFilter,
    format: ExportFormat,
    still_may: impl Fn() -> bool + Send + 'static,
) -> Result<Answer, ApiError> {
    let name = file_name(&filter, format);
    let export = api.engine.export(account, filter).ok_or(ApiError::Overloaded)?;
    let rows = RowExport::begin(export, format, still_may, api.engine.clock.time().expiry).await;
    let file = format!("attachment; filename=\"{name}\"");
    let answer = Answer::stream(StatusCode::OK, format.media_type(), Box::pin(rows?));
    Ok(answer.with_header(CONTENT_DISPOSITION, &file))
}

/// Returns the name of the file: its rows and the UTC days of its span.
fn file_name(filter: &ExportFilter, format: ExportFormat) -> String {
    let (name, after, before) = match filter {
        ExportFilter::Messages(filter) => ("messages", filter.after, filter.before),
        ExportFilter::Events(filter) => ("events", filter.after, filter.before),
    };
    let day = |at: Timestamp| at.to_string().chars().take("2026-11-20".len()).collect::<String>();
    let days: String = [after, before].into_iter().flatten().map(|at| format!("-{}", day(at))).collect();
    format!("{name}{days}.{}", format.as_str())
}

impl From<ExportError> for ApiError {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::NotDone(not_done) => not_done.into(),
            ExportError::Failed(error) => error.into(),
        }
    }
}
