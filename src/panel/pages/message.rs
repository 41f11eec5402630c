//! One message: what was sent, its timeline, and its content seen safely.

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
use crate::mail::read::{Parts, parts_of};
use crate::panel::door::Visit;
use crate::panel::fault::Fault;
use crate::panel::form::Form;
use crate::panel::frame::Frame;
use crate::panel::html;
use crate::panel::moment::{Moment, lasted};
use crate::panel::parts::{Badge, Excerpt, octets};
use crate::panel::preview::{self, Preview};
use crate::panel::record::Record;
use crate::panel::timeline::{Step, steps, tls_words};
use crate::store::error::Stop;
use crate::store::op::cancel::CancelRefusal;
use crate::store::row::message::MessageRow;

#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage {
    frame: Frame,
    id: MessageId,
    message_id_header: String,
    badge: Badge,
    subject: Option<String>,
    facts: Vec<(&'static str, String)>,
    metadata: Vec<(String, String)>,
    injected_at: Moment,
    next_attempt_at: Option<Moment>,
    /// Why it waits, in a sentence.
    waits: Option<String>,
    content_until: Moment,
    is_content_gone: bool,
    retention_days: u64,
    may_cancel: bool,
    /// The site, where mail for it is paused.
    paused: Option<String>,
    sent_with: Option<SentWith>,
    steps: Vec<Step>,
    live: String,
    tab: Tab,
    record: Record,
}

/// The key that a message was sent with.
struct SentWith {
    /// Its name; none where it can't be found any more.
    name: Option<String>,
    path: String,
}

/// What is shown of the content.
enum Tab {
    /// The message as its reader sees it.
    Preview(Preview),
    /// The octets.
    Source(Excerpt),
    /// The record as the API gives it.
    Json(Excerpt),
    /// Nothing is left to see.
    Gone,
}

impl Tab {
    const fn name(&self) -> &'static str {
        match self {
            Self::Preview(_) | Self::Gone => "preview",
            Self::Source(_) => "source",
            Self::Json(_) => "json",
        }
    }
}

fn find(visit: &Visit<'_>) -> Result<MessageRecord, Fault> {
    let found = visit.api.engine.message(visit.account_id(), visit.id()?)?;
    found.ok_or_else(|| ApiError::NotFound.into())
}

/// `GET /messages/{id}`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, Fault> {
    let record = find(&visit)?;
    let query = Form::of_query(&visit.call);
    let tab = tab(&visit, &record, &query).await?;
    let (zone, engine) = (visit.account.time_zone.zone(), &visit.api.engine);
    let events = engine.timeline(visit.account_id(), record.id)?;
    let MessageRecord { id, row, transfer, next_attempt_at, waiting } = &record;
    let moment = |at| Moment::new(at, zone.clone());
    let title = row.subject.clone().unwrap_or_else(|| "Message without subject".to_owned());
    let done = match query.text("done") {
        "canceled" => Some("The message was withdrawn; it is not sent any more."),
        "tried" => Some("The message is tried now."),
        _ => None,
    };
    let page = MessagePage {
        frame: Frame::new(&visit, title, "/messages")?.with_done(done),
        id: *id,
        message_id_header: row.message_id_header(*id),
        badge: Badge::of_status(transfer.state.status()),
        subject: row.subject.clone(),
        facts: facts(&record),
        metadata: row.metadata.clone().into_iter().collect(),
        injected_at: moment(row.created_at),
        next_attempt_at: next_attempt_at.map(moment),
        waits: waiting.as_ref().map(|wait| wait.detail.clone()),
        content_until: moment(row.content_expires_at),
        is_content_gone: matches!(tab, Tab::Gone) || engine.clock.time().expiry >= row.content_expires_at,
        retention_days: row.content_expires_at.since(row.created_at).as_secs().div_ceil(24 * 3600),
        paused: engine.pause_of(visit.account_id(), *id)?,
        sent_with: sent_with(&visit, row)?,
        may_cancel: transfer.state.status().is_waiting() && visit.user().role.may_handle_mail(),
        steps: steps(&visit, &record, &events)?,
        live: news_of(*id, &events),
        tab,
        record: Record::new(&visit, id, &format!("/messages/{id}"), &format!("/v1/messages/{id}")),
    };
    html::page(StatusCode::OK, &page)
}

/// What the card at the top tells.
fn facts(record: &MessageRecord) -> Vec<(&'static str, String)> {
    let MessageRecord { row, transfer, .. } = record;
    let from = match &row.from_name {
        Some(name) => format!("{name} <{}>", row.from.as_given()),
        None => row.from.as_given().to_owned(),
    };
    let last = &transfer.last;
    let signed = row.selectors.iter().map(|selector| format!("{selector}._domainkey.{}", row.from.domain()));
    let mut facts = vec![
        ("From", from),
        ("To", row.to.as_given().to_owned()),
        ("Stream", row.stream.to_string()),
        ("Size", octets(row.size_octets.into())),
        ("Attempts", transfer.attempts.to_string()),
    ];
    let mut tell = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    tell("Delivered after", transfer.delivered_at.map(|at| lasted(at.since(row.created_at))));
    tell("Destination server", last.mx_host.clone());
    tell("Relay", last.relay.clone());
    tell("TLS", last.tls.as_ref().map(tls_words));
    tell("Signed by", Some(signed.collect::<Vec<_>>().join(", ")).filter(|names| !names.is_empty()));
    tell("Unsubscribe URL", row.unsubscribe_url.clone());
    facts
}

fn sent_with(visit: &Visit<'_>, row: &MessageRow) -> Result<Option<SentWith>, Fault> {
    let Some(id) = row.key else { return Ok(None) };
    let name = visit.api.engine.key(visit.account_id(), id)?.map(|key| key.name);
    Ok(Some(SentWith { name, path: format!("/keys/{id}") }))
}

async fn parts(visit: &Visit<'_>, record: &MessageRecord) -> Result<Option<Parts>, Fault> {
    let list_fields = record.row.list_fields();
    Ok(visit.api.content(visit.account_id(), record, move |signed| parts_of(&signed, list_fields)).await?)
}

async fn tab(visit: &Visit<'_>, record: &MessageRecord, query: &Form) -> Result<Tab, Fault> {
    Ok(match query.text("tab") {
        "source" => match visit.api.signed_message(visit.account_id(), record).await? {
            Some(signed) => Tab::Source(Excerpt::of(&String::from_utf8_lossy(&signed))),
            None => Tab::Gone,
        },
        "json" => {
            let json = record_json(visit.api, visit.account_id(), record).await?;
            let value: Value = serde_json::from_slice(&json).unwrap_or_default();
            Tab::Json(Excerpt::of(&serde_json::to_string_pretty(&value).unwrap_or_default()))
        }
        _ => match parts(visit, record).await? {
            Some(parts) => Tab::Preview(Preview::new(parts, &format!("/messages/{}", record.id), query)),
            None => Tab::Gone,
        },
    })
}

/// `GET /messages/{id}/preview`: the HTML, for the sandboxed frame alone.
pub(in crate::panel) async fn preview(visit: Visit<'_>) -> Result<Answer, Fault> {
    let record = find(&visit)?;
    let parts = parts(&visit, &record).await?.ok_or(ApiError::ContentGone)?;
    preview::document(parts, &Form::of_query(&visit.call))
}

/// `GET /messages/{id}/download`: the signed message as a file.
pub(in crate::panel) async fn download(visit: Visit<'_>) -> Result<Answer, Fault> {
    let record = find(&visit)?;
    let signed = visit.api.signed_message(visit.account_id(), &record).await?;
    let signed = signed.ok_or(ApiError::ContentGone)?;
    let name = format!("attachment; filename=\"{}.eml\"", record.id);
    Ok(Answer::bytes(StatusCode::OK, "message/rfc822", signed).with_header(CONTENT_DISPOSITION, &name))
}

/// `GET /messages/{id}/source`: the signed message, as text that no browser takes for more.
pub(in crate::panel) async fn source(visit: Visit<'_>) -> Result<Answer, Fault> {
    let record = find(&visit)?;
    let signed = visit.api.signed_message(visit.account_id(), &record).await?;
    let signed = signed.ok_or(ApiError::ContentGone)?;
    Ok(Answer::bytes(StatusCode::OK, "text/plain; charset=utf-8", signed))
}

/// `GET /messages/{id}/json`: the very bytes of the API.
pub(in crate::panel) async fn json(visit: Visit<'_>) -> Result<Answer, Fault> {
    let record = find(&visit)?;
    Ok(Answer::json_bytes(StatusCode::OK, record_json(visit.api, visit.account_id(), &record).await?))
}

/// `POST /messages/{id}/try`: not at its time, but now.
pub(in crate::panel) async fn try_now(visit: Visit<'_>) -> Result<Answer, Fault> {
    let id: MessageId = visit.id()?;
    visit.api.engine.try_message(visit.on(), id).await.map_err(|stop| match stop {
        Stop::Refused(TryRefusal::NotFound) => ApiError::NotFound,
        Stop::Refused(TryRefusal::TooLate) => {
            ApiError::Conflict("The message has ended or is being sent at this moment.".to_owned())
        }
        Stop::Failed(error) => error.into(),
    })?;
    Ok(html::redirect(&format!("/messages/{id}?done=tried")))
}

/// `POST /messages/{id}/cancel`.
pub(in crate::panel) async fn cancel(visit: Visit<'_>) -> Result<Answer, Fault> {
    let id: MessageId = visit.id()?;
    visit.api.engine.cancel(visit.on(), id).await.map_err(|stop| match stop {
        Stop::Refused(CancelRefusal::NotFound) => ApiError::NotFound,
        Stop::Refused(CancelRefusal::TooLate) => ApiError::Conflict(
            "The message has ended or is being sent at this moment; it can't be withdrawn any more.".to_owned(),
        ),
        Stop::Failed(error) => error.into(),
    })?;
    Ok(html::redirect(&format!("/messages/{id}?done=canceled")))
}
