//! One message: envelope and status, timeline, and a safe preview of its content.

use askama::Template;
use hyper::StatusCode;
use hyper::header::CONTENT_DISPOSITION;
use serde_json::Value;

use super::events::news_of;
use crate::base::id::MessageId;
use crate::engine::messages::MessageRecord;
use crate::engine::pauses::TryRefusal;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::messages::record_json;
use crate::machine::transfer::Status;
use crate::panel::components::{Badge, Choice, Excerpt, byte_size, sentence_case};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::paging;
use crate::panel::preview::{self, Preview};
use crate::panel::record_card::Record;
use crate::panel::search;
use crate::panel::timeline::{Step, steps, tls_words};
use crate::panel::timestamp::{Moment, lasted};
use crate::panel::wording::provider;
use crate::store::error::OpError;
use crate::store::op::cancel::CancelRefusal;
use crate::store::row::message::MessageRow;

/// Tabs of the content, and their names.
const TABS: [(&str, &str); 6] = [
    ("html", "HTML"),
    ("text", "Text"),
    ("headers", "Headers"),
    ("source", "Source"),
    ("json", "JSON"),
    ("attachments", "Attachments"),
];

#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage {
    frame: PageFrame,
    id: MessageId,
    message_id_header: String,
    badge: Badge,
    subject: Option<String>,
    from: String,
    to: String,
    /// Outcome in one sentence, once the message has one.
    summary: Option<String>,
    facts: Vec<(&'static str, String)>,
    technical: Vec<(&'static str, String)>,
    /// Name, value, and the search for messages with the same pair.
    metadata: Vec<(String, String, String)>,
    injected_at: Moment,
    next_attempt_at: Option<Moment>,
    /// Reason why the message waits.
    waits: Option<String>,
    content_until: Moment,
    is_content_gone: bool,
    retention_days: u64,
    may_cancel: bool,
    /// Site for which mail is paused, if it is.
    paused: Option<String>,
    sent_with: Option<SentWith>,
    steps: Vec<Step>,
    live: String,
    /// Whether the message can still change by delivery or a report of the receiver.
    is_live: bool,
    tabs: Vec<Choice>,
    tab: Tab,
    record: Record,
}

/// API key that submitted the message.
struct SentWith {
    /// Name of the key. `None` if the key no longer exists.
    name: Option<String>,
    path: String,
}

/// Selected part of the content.
enum Tab {
    /// One part of the message.
    Preview(Preview),
    /// Header section of the source.
    Headers(Excerpt),
    /// Raw source.
    Source(Excerpt),
    /// Record as the API returns it.
    Json(Excerpt),
    /// The content was deleted.
    Gone,
    /// An operator's view, which shows no content.
    Withheld,
}

impl Tab {
    fn name(&self) -> &'static str {
        match self {
            Self::Preview(preview) => preview.part.unwrap_or_default(),
            Self::Gone | Self::Withheld => "",
            Self::Headers(_) => "headers",
            Self::Source(_) => "source",
            Self::Json(_) => "json",
        }
    }
}

fn find(visit: &Visit<'_>) -> Result<MessageRecord, PageError> {
    let found = visit.api.engine.message(visit.account_id(), visit.id()?)?;
    found.ok_or_else(|| ApiError::NotFound.into())
}

/// `GET /messages/{id}`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let record = find(&visit)?;
    let query = Form::of_query(&visit.call);
    let tab = tab(&visit, &record, &query).await?;
    let engine = &visit.api.engine;
    let events = engine.timeline(visit.account_id(), record.id)?;
    let MessageRecord { id, row, transfer, next_attempt_at, waiting } = &record;
    let title = row.subject.clone().unwrap_or_else(|| "Message without subject".to_owned());
    let done = match query.text("done") {
        "canceled" => Some("Message canceled."),
        "tried" => Some("Retrying now."),
        _ => None,
    };
    let frame = PageFrame::new(&visit, title, "/messages")?.with_done(done);
    let page = MessagePage {
        id: *id,
        message_id_header: row.message_id_header(*id),
        badge: Badge::of_status(transfer.state.status()),
        subject: row.subject.clone(),
        from: from(row),
        to: row.to.as_given().to_owned(),
        summary: summary(&record),
        facts: facts(&record),
        technical: technical(&record, visit.view().is_some()),
        metadata: row.metadata.iter().map(metadata_fact).collect(),
        injected_at: visit.detail(row.created_at),
        next_attempt_at: next_attempt_at.filter(|_| !frame.is_suspended).map(|at| visit.detail(at)),
        waits: waiting.as_ref().map(|wait| wait.detail.clone()),
        content_until: visit.detail(row.content_expires_at),
        is_content_gone: matches!(tab, Tab::Gone) || engine.clock.time().expiry >= row.content_expires_at,
        retention_days: row.content_expires_at.since(row.created_at).as_secs().div_ceil(24 * 3600),
        paused: engine.pause_of(visit.account_id(), *id)?.map(|site| provider(&site).to_owned()),
        sent_with: sent_with(&visit, row)?,
        may_cancel: transfer.state.status().is_waiting() && frame.may_handle_mail,
        frame,
        steps: steps(&visit, &record, &events)?,
        live: news_of(*id, &events),
        is_live: transfer.state.status().is_waiting() || transfer.state.status() == Status::Delivered,
        tabs: tabs(*id, &tab),
        tab,
        record: Record::new(&visit, id, &format!("/messages/{id}"), &format!("/v1/messages/{id}")),
    };
    html::page(StatusCode::OK, &page)
}

/// Returns the tabs of the content. A message whose content was deleted or is hidden has none.
fn tabs(id: MessageId, tab: &Tab) -> Vec<Choice> {
    let choice = |(name, words): (&str, &str)| Choice {
        words: words.to_owned(),
        path: format!("/messages/{id}?tab={name}#content"),
        is_here: tab.name() == name,
    };
    match tab {
        Tab::Gone | Tab::Withheld => Vec::new(),
        Tab::Preview(_) | Tab::Headers(_) | Tab::Source(_) | Tab::Json(_) => TABS.map(choice).into(),
    }
}

/// Returns a metadata pair with the path of the messages that have the same pair.
fn metadata_fact((name, value): (&String, &String)) -> (String, String, String) {
    (name.clone(), value.clone(), paging::address("/messages", &[("q", &search::of_metadata(name, value))]))
}

fn from(row: &MessageRow) -> String {
    match &row.from_name {
        Some(name) => format!("{name} <{}>", row.from.as_given()),
        None => row.from.as_given().to_owned(),
    }
}

/// Returns the outcome in one sentence. `None` while the message is in transit.
fn summary(record: &MessageRecord) -> Option<String> {
    let MessageRecord { row, transfer, .. } = record;
    let server = transfer.last.mx_host.as_deref().unwrap_or("the receiving server");
    let attempt = transfer.attempts;
    Some(match transfer.state.status() {
        Status::Queued | Status::Deferred => return None,
        Status::Delivered => {
            let took = lasted(transfer.delivered_at?.since(row.created_at));
            format!("Delivered to {server} in {took}, attempt {attempt}")
        }
        Status::Bounced if transfer.last.smtp_code.is_some() => format!("Rejected by {server}, attempt {attempt}"),
        Status::Bounced => "Undeliverable".to_owned(),
        Status::Failed => "Expired: no server accepted it in time".to_owned(),
        Status::Complained => "Marked as spam; address suppressed".to_owned(),
        Status::Suppressed => "Not sent: address suppressed".to_owned(),
        Status::Canceled if attempt > 0 => "Canceled before it was delivered".to_owned(),
        Status::Canceled => "Canceled before it was sent".to_owned(),
    })
}

fn facts(record: &MessageRecord) -> Vec<(&'static str, String)> {
    let MessageRecord { row, transfer, .. } = record;
    let mut facts = vec![
        ("Stream", sentence_case(row.stream.as_str())),
        ("Attempts", transfer.attempts.to_string()),
        ("Size", byte_size(row.size_bytes.into())),
    ];
    facts.extend(
        transfer
            .last
            .relay
            .clone()
            .map(|relay| ("Relay", if relay == "direct" { "None: sent directly".to_owned() } else { relay })),
    );
    facts
}

/// Returns technical details. Unsubscribe URLs may contain a recipient token, so an operator's view omits them.
fn technical(record: &MessageRecord, is_view: bool) -> Vec<(&'static str, String)> {
    let MessageRecord { row, transfer, .. } = record;
    let last = &transfer.last;
    let signed = row.selectors.iter().map(|selector| format!("{selector}._domainkey.{}", row.from.domain()));
    let mut facts = Vec::new();
    let mut add = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    add("Destination server", last.mx_host.clone());
    add("TLS", last.tls.as_ref().map(tls_words));
    add("Signed by", Some(signed.collect::<Vec<_>>().join(", ")).filter(|names| !names.is_empty()));
    add("Unsubscribe URL", row.unsubscribe_url.clone().filter(|_| !is_view));
    facts
}

fn sent_with(visit: &Visit<'_>, row: &MessageRow) -> Result<Option<SentWith>, PageError> {
    let Some(id) = row.key else { return Ok(None) };
    let name = visit.api.engine.key(visit.account_id(), id)?.map(|key| key.name);
    Ok(Some(SentWith { name, path: format!("/keys/{id}") }))
}

async fn tab(visit: &Visit<'_>, record: &MessageRecord, query: &Form) -> Result<Tab, PageError> {
    Ok(match query.text("tab") {
        _ if visit.view().is_some() => Tab::Withheld,
        "headers" => match visit.signed_message(record).await? {
            Some(signed) => Tab::Headers(Excerpt::of(&String::from_utf8_lossy(header_section(&signed)))),
            None => Tab::Gone,
        },
        "source" => match visit.signed_message(record).await? {
            Some(signed) => Tab::Source(Excerpt::of(&String::from_utf8_lossy(&signed))),
            None => Tab::Gone,
        },
        "json" => {
            let json = record_json(visit.api, visit.account_id(), record).await?;
            let value: Value = serde_json::from_slice(&json).unwrap_or_default();
            Tab::Json(Excerpt::of(&serde_json::to_string_pretty(&value).unwrap_or_default()))
        }
        _ => match visit.parts(record).await? {
            Some(parts) => {
                let preview = Preview::new(parts, &format!("/messages/{}", record.id), query);
                Tab::Preview(preview.with_tab(query.text("tab")))
            }
            None => Tab::Gone,
        },
    })
}

/// Returns the header fields of a message, up to the empty line.
fn header_section(message: &[u8]) -> &[u8] {
    message.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(message, |end| &message[..end])
}

/// `GET /messages/{id}/preview`: the HTML for the sandboxed frame.
pub(in crate::panel) async fn preview(visit: Visit<'_>) -> Result<Answer, PageError> {
    let record = find(&visit)?;
    let parts = visit.parts(&record).await?.ok_or(ApiError::ContentGone)?;
    preview::document(parts, &Form::of_query(&visit.call))
}

/// `GET /messages/{id}/download`: the signed message as a file.
pub(in crate::panel) async fn download(visit: Visit<'_>) -> Result<Answer, PageError> {
    let record = find(&visit)?;
    let signed = visit.signed_message(&record).await?.ok_or(ApiError::ContentGone)?;
    let name = format!("attachment; filename=\"{}.eml\"", record.id);
    Ok(Answer::bytes(StatusCode::OK, "message/rfc822", signed).with_header(CONTENT_DISPOSITION, &name))
}

/// `GET /messages/{id}/source`: the signed message as plain text.
pub(in crate::panel) async fn source(visit: Visit<'_>) -> Result<Answer, PageError> {
    let record = find(&visit)?;
    let signed = visit.signed_message(&record).await?.ok_or(ApiError::ContentGone)?;
    Ok(Answer::bytes(StatusCode::OK, "text/plain; charset=utf-8", signed))
}

/// `GET /messages/{id}/json`: the same bytes as the API's answer.
pub(in crate::panel) async fn json(visit: Visit<'_>) -> Result<Answer, PageError> {
    let record = find(&visit)?;
    Ok(Answer::json_bytes(StatusCode::OK, record_json(visit.api, visit.account_id(), &record).await?))
}

/// `POST /messages/{id}/try`: retries the message now.
pub(in crate::panel) async fn try_now(visit: Visit<'_>) -> Result<Answer, PageError> {
    let id: MessageId = visit.id()?;
    visit.api.engine.try_message(visit.on(), id).await.map_err(|stop| match stop {
        OpError::Refused(TryRefusal::NotFound) => ApiError::NotFound,
        OpError::Refused(TryRefusal::TooLate) => {
            ApiError::Conflict("The message is finished or is being sent.".to_owned())
        }
        OpError::Failed(error) => error.into(),
    })?;
    Ok(html::redirect(&format!("/messages/{id}?done=tried")))
}

#[derive(Template)]
#[template(path = "cancel.html")]
struct CancelPage {
    frame: PageFrame,
    id: MessageId,
    to: String,
    subject: Option<String>,
}

/// `GET /messages/{id}/cancel`: asks for confirmation. A message that no longer waits can't be canceled.
pub(in crate::panel) async fn ask_to_cancel(visit: Visit<'_>) -> Result<Answer, PageError> {
    let record = find(&visit)?;
    if !record.transfer.state.status().is_waiting() {
        return Ok(html::redirect(&format!("/messages/{}", record.id)));
    }
    let frame = PageFrame::new(&visit, "Cancel message", "/messages")?;
    let (to, subject) = (record.row.to.as_given().to_owned(), record.row.subject.clone());
    html::page(StatusCode::OK, &CancelPage { frame, id: record.id, to, subject })
}

/// `POST /messages/{id}/cancel`.
pub(in crate::panel) async fn cancel(visit: Visit<'_>) -> Result<Answer, PageError> {
    let id: MessageId = visit.id()?;
    visit.api.engine.cancel(visit.on(), id).await.map_err(|stop| match stop {
        OpError::Refused(CancelRefusal::NotFound) => ApiError::NotFound,
        OpError::Refused(CancelRefusal::TooLate) => {
            ApiError::Conflict("The message is finished or is being sent; it can no longer be canceled.".to_owned())
        }
        OpError::Failed(error) => error.into(),
    })?;
    Ok(html::redirect(&format!("/messages/{id}?done=canceled")))
}
