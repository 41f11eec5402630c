//! List of messages, newest first, with search by address, subject, Message-ID and operators.

use askama::Template;
use hyper::StatusCode;
use jiff::tz::TimeZone;
use url::form_urlencoded;

use super::found_messages::{FoundMessages, instead, look, others};
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;
use crate::domain::violation::Violations;
use crate::engine::exports::ExportFilter;
use crate::engine::listing::Page;
use crate::engine::messages::MessageRecord;
use crate::engine::wait_reason::WaitReason;
use crate::http::answer::Answer;
use crate::http::handlers::exports::of_messages;
use crate::machine::transfer::Status;
use crate::panel::components::{Badge, Choice, excerpt};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::pages::saved_searches::{RefusedName, SavedSearches};
use crate::panel::pages::{events, metadata_values, recipient_offers};
use crate::panel::search::{Search, Term, TimeField, presets, with_times};
use crate::panel::status_group::{StatusGroup, TABS};
use crate::panel::timestamp::{Days, Moment};
use crate::panel::wording::{EXPORT_SPAN, capitalized};

/// Rows of a page. The page and everything it loads stay below 60 KB.
pub(super) const ROWS: usize = 40;

#[derive(Template)]
#[template(path = "messages.html")]
struct MessagesPage {
    frame: PageFrame,
    search: Search,
    faults: Vec<String>,
    /// The text as typed, after the words that say how it was read first, if another reading of it is shown.
    instead_of: Option<(&'static str, String)>,
    /// Tabs by status.
    tabs: Vec<Choice>,
    saved: SavedSearches,
    /// Values of the status field.
    statuses: Vec<(&'static str, String)>,
    streams: [Stream; 2],
    /// Fields of the first and of the last day or time.
    after: TimeField,
    until: TimeField,
    /// Ranges to choose.
    ranges: Vec<Choice>,
    lines: Vec<MessageLine>,
    newer: Option<String>,
    older: Option<String>,
    is_filtered: bool,
    /// Whether words are searched in subjects.
    has_words: bool,
    /// Time at which the search stopped, if it stopped before the end.
    looked_back_to: Option<Moment>,
    without: Vec<(String, String)>,
    /// Time from which metadata is indexed, if the search uses metadata and some messages are older.
    indexed_since: Option<Moment>,
    /// Whether an export can cover the time of the search.
    is_exportable: bool,
    export_span: &'static str,
    /// Searches for metadata that the visitor may have meant, and the typed terms.
    metadata_hints: Vec<(String, String, String)>,
    /// Searches that find the typed word as a value of metadata.
    metadata_values: Vec<(String, String)>,
    /// Searches for recipients whose addresses contain the typed word, if nothing else matches it.
    recipients: Vec<(String, String)>,
}

/// A message in a list.
pub(in crate::panel) struct MessageLine {
    /// Day heading, if this line is the first of its day.
    pub(in crate::panel) day: Option<String>,
    pub(in crate::panel) path: String,
    pub(in crate::panel) at: Moment,
    pub(in crate::panel) badge: Badge,
    pub(in crate::panel) to: String,
    pub(in crate::panel) subject: Option<String>,
    pub(in crate::panel) stream: Stream,
    pub(in crate::panel) answer: String,
}

impl MessageLine {
    /// Whether a second line shows the reason: for messages with problems.
    pub(in crate::panel) const fn is_problem(&self) -> bool {
        matches!(self.badge.tone().as_bytes(), b"bad" | b"wait")
    }

    /// Converts messages to list lines, in the same order.
    pub(in crate::panel) fn list(records: &[MessageRecord], zone: &TimeZone, now: Timestamp) -> Vec<Self> {
        let mut days = Days::new(now);
        let line = |record| {
            let line = Self::new(record, zone, now);
            Self { day: days.begin(&line.at), ..line }
        };
        records.iter().map(line).collect()
    }

    fn new(record: &MessageRecord, zone: &TimeZone, now: Timestamp) -> Self {
        let MessageRecord { id, row, transfer, waiting, next_attempt_at } = record;
        let next = next_attempt_at.map(|at| Moment::new(at, zone.clone()).short(now).text());
        let answer = transfer.last.smtp_response.as_deref().unwrap_or_default();
        let status = transfer.state.status();
        // For complaints, the last response belongs to the delivery and explains nothing.
        let reason = match status {
            Status::Complained => Some("Marked as spam".to_owned()),
            _ => waiting.as_ref().map(|wait| waits(wait.reason, next)).filter(|_| answer.is_empty()),
        };
        Self {
            day: None,
            path: format!("/messages/{id}"),
            at: Moment::new(row.created_at, zone.clone()),
            badge: Badge::of_status(status),
            to: row.to.as_given().to_owned(),
            subject: row.subject.clone(),
            stream: row.stream,
            answer: reason.unwrap_or_else(|| excerpt(answer, row.to.as_given())),
        }
    }
}

/// Returns the reason why a message waits, in a few words, with the time of the next attempt.
fn waits(reason: WaitReason, next: Option<String>) -> String {
    let words = match reason {
        WaitReason::Backoff => match next {
            Some(next) => return format!("Waiting for the next attempt: {next}"),
            None => "Waiting for the next attempt",
        },
        WaitReason::Throttled => "Waiting: the destination is throttled or unreachable",
        WaitReason::Paused => "Waiting: sending to the destination is paused",
        WaitReason::Dns => "Waiting for DNS",
        WaitReason::Relay => "Waiting for the relay",
        WaitReason::Busy => "Waiting for a free connection",
        WaitReason::Held => "On hold until the operator releases the queue",
        WaitReason::Unconfirmed => "Waiting for the replica",
    };
    words.to_owned()
}

/// `GET /messages`.
pub(in crate::panel) async fn list(visit: Visit<'_>) -> Result<Answer, PageError> {
    written(&visit, StatusCode::OK, &Form::of_query(&visit.call), RefusedName::nothing()).await
}

/// Renders the list for the search in `query`, and the form that saves the search with refused input if there is any.
pub(super) async fn written(
    visit: &Visit<'_>,
    status: StatusCode,
    query: &Form,
    refused: RefusedName,
) -> Result<Answer, PageError> {
    let (engine, account, zone) = (&visit.api.engine, visit.account_id(), visit.account.time_zone.zone());
    let search = search_of(query, &zone);
    if let [Term::Id(id)] = search.terms.as_slice()
        && engine.message(account, *id)?.is_some()
    {
        return Ok(html::redirect(&format!("/messages/{id}")));
    }
    let newer: Option<MessageId> = query.given("newer").and_then(|text| text.parse().ok());
    let older: Option<MessageId> = query.given("older").and_then(|text| text.parse().ok());
    let first = look(visit, &search, newer, older).await?;
    let saved = SavedSearches::new(visit, &search, refused)?;
    let is_first = newer.or(older).is_none();
    let mut metadata_values = match is_first {
        true => metadata_values::searches(visit, &search, &zone).await?,
        false => Vec::new(),
    };
    let recipients = match first.page.rows.is_empty() && is_first {
        true => recipient_offers::searches(visit, &search).await?,
        false => Vec::new(),
    };
    let others = match first.has_nothing() && is_first {
        true => others(&search, [&metadata_values, &recipients], &zone),
        false => Vec::new(),
    };
    let (search, instead_of, found) = instead(visit, (search, first), others).await?;
    metadata_values.retain(|(text, _)| *text != search.text);
    let FoundMessages { faults, indexed_since, is_exportable, page: found } = found;
    let cut_at = found.next.filter(|_| newer.is_none() && found.rows.len() < ROWS);
    let (newer, older) = links(&search, &found, newer.is_some(), older);
    let hint = |(typed, meant, params): (String, String, Vec<_>)| (typed, meant, address("/messages", &params, None));
    let done = match query.text("done") {
        "saved" => Some("Search saved."),
        "removed" => Some("Saved search removed."),
        _ => None,
    };
    let removal = |(words, rest): (String, Vec<_>)| (words, address("/messages", &rest, None));
    let page = MessagesPage {
        is_exportable,
        export_span: EXPORT_SPAN,
        metadata_values,
        recipients,
        metadata_hints: search.metadata_hints().into_iter().map(hint).collect(),
        indexed_since: indexed_since.map(|since| Moment::new(since, zone.clone())),
        frame: PageFrame::new(visit, "Messages", "/messages")?.with_search(search.text.as_str()).with_done(done),
        saved,
        faults,
        instead_of,
        tabs: tabs(&search),
        statuses: statuses(),
        streams: Stream::ALL,
        after: TimeField::new(&search.range(&zone)[0], &zone),
        until: TimeField::new(&search.range(&zone)[1], &zone),
        ranges: presets(visit.now, &zone).into_iter().map(|preset| range(&search, &zone, preset)).collect(),
        lines: MessageLine::list(&found.rows, &zone, visit.now),
        newer,
        older,
        looked_back_to: cut_at.map(|id| Moment::new(id.timestamp(), zone.clone())),
        is_filtered: !search.is_empty(),
        has_words: search.terms.iter().any(|term| matches!(term, Term::Word(_))),
        without: search.without_each(&zone).into_iter().map(removal).collect(),
        search,
    };
    html::page(status, &page)
}

/// Returns the search of a page or export. Days from the date fields replace typed ones.
pub(super) fn search_of(query: &Form, zone: &TimeZone) -> Search {
    let text = with_times(query.text("q"), &["after", "before", "until"].map(|name| (name, query.field(name))));
    Search::read(&text, query.text("status"), query.text("stream"), zone)
}

/// `GET /messages/export`: the messages that match the search, as a file.
pub(in crate::panel) async fn export(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (query, zone, engine) = (Form::of_query(&visit.call), visit.account.time_zone.zone(), &visit.api.engine);
    let (search, mut violations) = (search_of(&query, &zone), Violations::new());
    search.faults.iter().for_each(|fault| violations.add("q", fault.as_str()));
    let filter = search.filter(&mut violations);
    let filter = of_messages(engine, filter, &mut violations);
    // The page of the search shows the faults at its fields.
    if !violations.is_empty() {
        return Ok(html::redirect(&address("/messages", &search.params(), None)));
    }
    events::export_of(&visit, &query, Some(ExportFilter::Messages(Box::new(filter))), violations).await
}

/// Returns the tabs. They retain the search except its status.
fn tabs(search: &Search) -> Vec<Choice> {
    let here = search.value("status").unwrap_or_default();
    let tab = |(words, status): (&str, &str)| Choice {
        words: words.to_owned(),
        path: address("/messages", &search.with_status(status), None),
        is_here: status == here,
    };
    TABS.into_iter().map(tab).collect()
}

/// Returns the values of the status field with their words: groups, then statuses.
fn statuses() -> Vec<(&'static str, String)> {
    let words = |group: StatusGroup| match group {
        StatusGroup::Problems => "Problems".to_owned(),
        StatusGroup::Waiting => {
            let statuses: Vec<_> = group.statuses().into_iter().map(Status::as_str).collect();
            format!("Waiting ({})", statuses.join(", "))
        }
    };
    let groups = StatusGroup::ALL.into_iter().map(|group| (group.as_str(), words(group)));
    groups.chain(Status::ALL.into_iter().map(|status| (status.as_str(), capitalized(status.as_str())))).collect()
}

/// Returns the link to the same search with another range.
fn range(search: &Search, zone: &TimeZone, (words, first, last): (&str, String, String)) -> Choice {
    let text = with_times(&search.text, &[("after", Some(&first)), ("until", Some(&last))]);
    let params =
        search.params().into_iter().map(|(name, value)| (name, if name == "q" { text.clone() } else { value }));
    Choice {
        words: words.to_owned(),
        path: address("/messages", &params.collect::<Vec<_>>(), None),
        is_here: search.range(zone) == [first, last],
    }
}

/// Returns the links to the previous and next page.
fn links(
    search: &Search,
    found: &Page<MessageRecord>,
    goes_newer: bool,
    older: Option<MessageId>,
) -> (Option<String>, Option<String>) {
    let (first, last) = (found.rows.first().map(|row| row.id), found.rows.last().map(|row| row.id));
    let to = |name: &'static str, id: MessageId| address("/messages", &search.params(), Some((name, id)));
    if goes_newer {
        let newer = first.filter(|_| found.next.is_some()).map(|id| to("newer", id));
        return (newer, Some(last.map_or_else(|| address("/messages", &search.params(), None), |id| to("older", id))));
    }
    let newer = older.map(|from| to("newer", first.unwrap_or(from)));
    (newer, found.next.map(|before| to("older", MessageId(before))))
}

/// Returns `path` with these parameters.
pub(super) fn address(
    path: &str,
    params: &[(&'static str, String)],
    place: Option<(&'static str, MessageId)>,
) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in params.iter().filter(|(_, value)| !value.is_empty()) {
        query.append_pair(name, value);
    }
    if let Some((name, id)) = place {
        query.append_pair(name, &id.to_string());
    }
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_waits_for_an_attempt_shows_its_time() {
        let next = |next: Option<&str>| waits(WaitReason::Backoff, next.map(str::to_owned));
        assert_eq!(next(Some("20 Nov, 16:04")), "Waiting for the next attempt: 20 Nov, 16:04");
        assert_eq!(next(None), "Waiting for the next attempt");
    }

    #[test]
    fn waiting_names_its_statuses_in_the_status_field() {
        assert!(statuses().contains(&("waiting", "Waiting (queued, deferred)".to_owned())));
        assert!(statuses().contains(&("queued", "Queued".to_owned())));
    }
}
