//! Event log of the account, newest first, with the API's filters, and the stream that keeps an open page up to date.

use std::sync::Arc;

use askama::Template;
use hyper::StatusCode;
use jiff::tz::TimeZone;
use url::form_urlencoded;

use crate::base::id::{EventId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::domain::violation::Violations;
use crate::engine::Caller;
use crate::engine::events::EventFilter;
use crate::engine::exports::ExportFilter;
use crate::engine::listing::{Page, PageRequest};
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::event_stream::EventStream;
use crate::http::handlers::events::{followed, last_event_id, refused};
use crate::http::handlers::exports::{exported, of_events};
use crate::panel::components::{Choice, FormErrors};
use crate::panel::event::{Event, EventLine};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::search::{TimeField, end, in_words, last, moment, presets};

/// Rows of a page. The page and everything it loads stay below 60 KB.
const ROWS: usize = 40;

#[derive(Template)]
#[template(path = "events.html")]
struct EventsPage {
    frame: PageFrame,
    asked: TypedFilters,
    kinds: [EventType; 9],
    /// Fields of the first and of the last day or time.
    after: TimeField,
    until: TimeField,
    /// Ranges to choose.
    ranges: Vec<Choice>,
    /// Filters in words, and the links that remove them.
    without: Vec<(String, String)>,
    faults: Vec<String>,
    lines: Vec<EventLine>,
    newer: Option<String>,
    older: Option<String>,
    /// Path of the live stream. `None` for a page with older events.
    live: Option<String>,
    curl: String,
}

/// Filters as typed.
#[derive(Default, Clone)]
struct TypedFilters {
    kind: String,
    message: String,
    after: String,
    /// Last day or time.
    until: String,
}

impl TypedFilters {
    /// Returns the filters of a page. The API's `before`, the moment after the range, is accepted too.
    fn of(query: &Form, zone: &TimeZone) -> Self {
        let [kind, message, after, until] =
            ["type", "message_id", "after", "until"].map(|name| query.text(name).to_owned());
        let before = query.given("before").filter(|_| until.is_empty());
        Self { kind, message, after, until: before.map_or(until, |before| last(before, zone)) }
    }

    fn is_filtered(&self) -> bool {
        [&self.kind, &self.message, &self.after, &self.until].iter().any(|text| !text.is_empty())
    }

    /// Returns the API's filter. `None` if no event can match; a malformed identifier is treated as unknown. Days
    /// without a time are days of `zone`.
    fn filter(&self, zone: &TimeZone, violations: &mut Violations) -> Option<EventFilter> {
        let kind = match self.kind.as_str() {
            "" => None,
            text => Some(violations.check("type", text.parse())?),
        };
        let mut time = |name: &str, text: String| match text.as_str() {
            "" => Some(None),
            text => violations.check(name, text.parse()).map(Some),
        };
        let (after, before) = (time("after", moment(&self.after, zone))?, time("before", end(&self.until, zone))?);
        let message = match self.message.as_str() {
            "" => None,
            text => Some(text.parse().ok()?),
        };
        Some(EventFilter { message, kind, after, before })
    }

    /// Returns `path` with the filters and one more parameter.
    fn address(&self, path: &str, more: Option<(&str, &str)>) -> String {
        let range = [("after", self.after.as_str()), ("until", self.until.as_str())];
        self.address_with(path, range.into_iter().chain(more))
    }

    /// Returns the address of the same list in the API.
    fn api_address(&self, public_url: &str, zone: &TimeZone) -> String {
        let range = [("after", &moment(&self.after, zone)), ("before", &end(&self.until, zone))];
        self.address_with(&format!("{public_url}/v1/events"), range.map(|(name, value)| (name, value.as_str())))
    }

    fn address_with<'a>(&'a self, path: &str, more: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let asked = [("type", self.kind.as_str()), ("message_id", self.message.as_str())];
        for (name, value) in asked.into_iter().chain(more).filter(|(_, value)| !value.is_empty()) {
            query.append_pair(name, value);
        }
        match query.finish() {
            query if query.is_empty() => path.to_owned(),
            query => format!("{path}?{query}"),
        }
    }

    /// Returns each filter in words, and the link that removes it: first the range of times.
    fn without_each(&self, zone: &TimeZone) -> Vec<(String, String)> {
        let link = |rest: Self| rest.address("/events", None);
        let range = in_words(&self.after, &self.until, zone).map(|words| format!("Events {words}"));
        let range = range.map(|words| (words, Self { after: String::new(), until: String::new(), ..self.clone() }));
        let kind = (format!("Type: {}", self.kind), Self { kind: String::new(), ..self.clone() });
        let message = (format!("Message: {}", self.message), Self { message: String::new(), ..self.clone() });
        let [kind, message] = [(&self.kind, kind), (&self.message, message)]
            .map(|(value, removal)| Some(removal).filter(|_| !value.is_empty()));
        [range, kind, message].into_iter().flatten().map(|(words, rest)| (words, link(rest))).collect()
    }

    /// Returns the links to the same list with another range.
    fn ranges(&self, now: Timestamp, zone: &TimeZone) -> Vec<Choice> {
        let choice = |(words, after, until): (&str, String, String)| {
            let is_here = (&self.after, &self.until) == (&after, &until);
            let path = Self { after, until, ..self.clone() }.address("/events", None);
            Choice { words: words.to_owned(), path, is_here }
        };
        presets(now, zone).into_iter().map(choice).collect()
    }
}

/// `GET /events`.
pub(in crate::panel) async fn list(visit: Visit<'_>) -> Result<Answer, PageError> {
    written(&visit, StatusCode::OK, None)
}

/// Renders the list, with the reasons for which an export was refused.
fn written(visit: &Visit<'_>, status: StatusCode, refused: Option<Violations>) -> Result<Answer, PageError> {
    let (engine, account, zone) = (&visit.api.engine, visit.account_id(), visit.account.time_zone.zone());
    let query = Form::of_query(&visit.call);
    let asked = TypedFilters::of(&query, &zone);
    let mut violations = Violations::new();
    let filter = asked.filter(&zone, &mut violations);
    let newer: Option<EventId> = query.given("newer").and_then(|text| text.parse().ok());
    let older: Option<EventId> = query.given("older").and_then(|text| text.parse().ok());
    let found = match (filter, newer) {
        (None, _) => Page { rows: Vec::new(), next: None },
        (Some(filter), Some(after)) => engine.newer_events(account, filter, after, ROWS)?,
        (Some(filter), None) => {
            engine.events(account, filter, PageRequest { before: older.map(|id| id.0), limit: ROWS })?
        }
    };
    let has_next = found.next.is_some();
    let events: Vec<_> = found.rows.iter().filter_map(|bytes| Event::read(bytes)).collect();
    let (first, last) = (events.first().map(|event| event.id.as_str()), events.last().map(|event| event.id.as_str()));
    let place = older.or(newer).map(|id| id.to_string()).unwrap_or_default();
    let to = |name, id: Option<&str>| asked.address("/events", Some((name, id.unwrap_or(&place))));
    let has_newer = if newer.is_some() { has_next } else { older.is_some() };
    let has_older = if newer.is_some() { true } else { has_next };
    let is_newest = !has_newer && asked.after.is_empty() && asked.until.is_empty() && filter.is_some();
    let public_url = engine.settings.public_url.get().map_or("", |url| url.trim_end_matches('/'));
    let page = EventsPage {
        frame: PageFrame::new(visit, "Events", "/events")?,
        kinds: EventType::ALL,
        after: TimeField::new(&asked.after, &zone),
        until: TimeField::new(&asked.until, &zone),
        ranges: asked.ranges(visit.now, &zone),
        without: asked.without_each(&zone),
        faults: FormErrors::from(refused.unwrap_or(violations)).all(),
        newer: has_newer.then(|| to("newer", first)),
        older: has_older.then(|| to("older", last)),
        live: is_newest.then(|| asked.address("/events/stream", first.map(|id| ("last_event_id", id)))),
        curl: asked.api_address(public_url, &zone),
        lines: EventLine::list(events, &zone, visit.now),
        asked,
    };
    html::page(status, &page)
}

/// `GET /events/export`: the events that match the filters, as a file.
pub(in crate::panel) async fn export(visit: Visit<'_>) -> Result<Answer, PageError> {
    let mut violations = Violations::new();
    let (query, zone) = (Form::of_query(&visit.call), visit.account.time_zone.zone());
    let filter = TypedFilters::of(&query, &zone).filter(&zone, &mut violations);
    let filter = filter.map(|filter| of_events(&visit.api.engine, filter, &mut violations));
    if !violations.is_empty() {
        return written(&visit, StatusCode::UNPROCESSABLE_ENTITY, Some(violations));
    }
    export_of(&visit, &query, filter, violations).await
}

/// Returns the rows that match `filter` as a file in the requested format. The download ends when the session ends.
pub(super) async fn export_of(
    visit: &Visit<'_>,
    query: &Form,
    filter: Option<ExportFilter>,
    mut violations: Violations,
) -> Result<Answer, PageError> {
    let format = query.given("format").and_then(|text| violations.check("format", text.parse())).unwrap_or_default();
    violations.or(|| Some(())).map_err(ApiError::from)?;
    let filter = filter.ok_or(ApiError::NotFound)?;
    let (engine, key, account) = (Arc::clone(&visit.api.engine), visit.visitor.key, visit.account_id());
    let still_may = move || engine.still_sees(key, account).unwrap_or(false);
    Ok(exported(visit.api, account, filter, format, still_may).await?)
}

/// `GET /events/stream`: the API's event stream. It ends when the session ends.
pub(in crate::panel) async fn stream(visit: Visit<'_>) -> Result<Answer, PageError> {
    let query = Form::of_query(&visit.call);
    let mut violations = Violations::new();
    let zone = visit.account.time_zone.zone();
    let filter = TypedFilters::of(&query, &zone).filter(&zone, &mut violations);
    let given = last_event_id(&visit.call, &mut violations);
    // The header is newer than the parameter: browsers send it when they reconnect.
    let after = given.or_else(|| query.given("last_event_id").and_then(|text| text.parse().ok()));
    violations.or(|| Some(())).map_err(ApiError::from)?;
    let caller = Caller { account: visit.account_id(), key: None };
    let follower = visit.api.engine.follow(&caller, filter, after).map_err(refused)?;
    let (engine, key, account) = (Arc::clone(&visit.api.engine), visit.visitor.key, visit.account_id());
    let still_may = move || engine.still_sees(key, account).unwrap_or(false);
    Ok(followed(EventStream::while_allowed(follower, still_may)))
}

/// Returns the path of a message's live stream, starting after the last event on the page.
pub(super) fn news_of(message: MessageId, events: &[Vec<u8>]) -> String {
    let last = events.last().and_then(|bytes| Event::read(bytes)).map(|event| event.id);
    let asked = TypedFilters { message: message.to_string(), ..TypedFilters::default() };
    asked.address("/events/stream", last.as_deref().map(|id| ("last_event_id", id)))
}
