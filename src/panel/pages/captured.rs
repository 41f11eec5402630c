//! Mail that `dev` captured instead of sending it, as a receiver would have seen it. These pages do not exist in
//! `serve`.

use std::sync::Arc;

use askama::Template;
use hyper::StatusCode;

use crate::base::id::MessageId;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::mail::read::{ListFields, ReadParts, parts_of};
use crate::net::dev::capture::{Capture, CapturedMail};
use crate::panel::components::byte_size;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::preview::{self, Preview};
use crate::panel::timestamp::{Days, Moment};

/// Maximum number of rows in the list.
const ROWS: usize = 100;

#[derive(Template)]
#[template(path = "captured.html")]
struct CapturedPage {
    frame: PageFrame,
    lines: Vec<CapturedLine>,
    is_cut: bool,
    live: &'static str,
}

/// One captured message in the list.
struct CapturedLine {
    /// Day heading, if this line is the first of its day.
    day: Option<String>,
    id: MessageId,
    at: Moment,
    to: String,
    subject: Option<String>,
}

#[derive(Template)]
#[template(path = "captured_mail.html")]
struct CapturedMailPage {
    frame: PageFrame,
    mail: CapturedMail,
    at: Moment,
    size: String,
    /// Whether the message belongs to the account. Mail relayed for others does not.
    is_ours: bool,
    preview: Preview,
}

/// Returns the store of captured mail, if the service captures mail.
fn capture(visit: &Visit<'_>) -> Result<Arc<Capture>, PageError> {
    visit.api.dev.as_ref().map(|dev| Arc::clone(&dev.capture)).ok_or_else(|| ApiError::NotFound.into())
}

/// `GET /captured`.
pub(in crate::panel) async fn list(visit: Visit<'_>) -> Result<Answer, PageError> {
    let mails = capture(&visit)?.list();
    let mut days = Days::new(visit.now);
    let line = |mail: &CapturedMail| {
        let at = visit.moment(mail.received_at);
        let (to, subject) = (mail.rcpt_to.clone(), mail.subject.clone());
        CapturedLine { day: days.begin(&at), id: mail.message_id, at, to, subject }
    };
    let page = CapturedPage {
        frame: PageFrame::new(&visit, "Captured mail", "/captured")?,
        lines: mails.iter().take(ROWS).map(line).collect(),
        is_cut: mails.len() > ROWS,
        live: "/events/stream?type=delivered",
    };
    html::page(StatusCode::OK, &page)
}

/// Returns one captured message with its bytes. After the content deadline every page refuses it (contract 7).
async fn find(visit: &Visit<'_>) -> Result<(CapturedMail, Vec<u8>), PageError> {
    let (id, capture): (MessageId, _) = (visit.id()?, capture(visit)?);
    if visit.api.engine.is_content_over(id)? {
        return Err(ApiError::NotFound.into());
    }
    let found = visit.api.engine.blocking(visit.account_id(), move || capture.get(id)).await?;
    let found = found.map_err(|error| {
        tracing::error!(%error, "could not read captured mail; the request failed");
        ApiError::Internal
    })?;
    found.ok_or_else(|| ApiError::NotFound.into())
}

async fn parts(visit: &Visit<'_>, bytes: Vec<u8>) -> Result<ReadParts, PageError> {
    Ok(visit.api.engine.blocking(visit.account_id(), move || parts_of(&bytes, ListFields::Callers)).await?)
}

/// `GET /captured/{id}`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (mail, bytes_read) = find(&visit).await?;
    let size = byte_size(bytes_read.len() as u64);
    let own = format!("/captured/{}", mail.message_id);
    let title = mail.subject.clone().unwrap_or_else(|| "Mail without subject".to_owned());
    let page = CapturedMailPage {
        frame: PageFrame::new(&visit, title, "/captured")?,
        at: visit.moment(mail.received_at),
        size,
        is_ours: visit.api.engine.message(visit.account_id(), mail.message_id)?.is_some(),
        preview: Preview::new(parts(&visit, bytes_read).await?, &own, &Form::of_query(&visit.call)),
        mail,
    };
    html::page(StatusCode::OK, &page)
}

/// `GET /captured/{id}/preview`: the HTML for the sandboxed frame.
pub(in crate::panel) async fn preview(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (_, bytes) = find(&visit).await?;
    preview::document(parts(&visit, bytes).await?, &Form::of_query(&visit.call))
}

/// `GET /captured/{id}/source`: the unchanged bytes as text.
pub(in crate::panel) async fn source(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (_, bytes) = find(&visit).await?;
    Ok(Answer::bytes(StatusCode::OK, "text/plain; charset=utf-8", bytes))
}
