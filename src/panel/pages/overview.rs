//! The overview: how the account stands, how today goes, deliveries and rates over time, what is left of the quota, and
//! the newest messages. Its figures are hourly counts; no message is read for them.

use askama::Template;
use hyper::StatusCode;

use super::messages::MessageLine;
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::domain::sending_domain::DomainStatus;
use crate::domain::stream::Stream;
use crate::engine::listing::PageRequest;
use crate::engine::messages::MessageFilter;
use crate::engine::reputation::{OutcomesQuestion, Step};
use crate::http::answer::Answer;
use crate::machine::quota::WindowView;
use crate::panel::door::Visit;
use crate::panel::fault::Fault;
use crate::panel::form::Form;
use crate::panel::frame::Frame;
use crate::panel::html;
use crate::panel::moment::start_of_day;
use crate::panel::parts::{Badge, grouped};
use crate::panel::standing::Standing;
use crate::panel::trend::{Span, Trend};

/// Messages shown.
const NEWEST: usize = 8;
const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    standing: Standing,
    counts: Vec<Count>,
    windows: [QuotaBar; 2],
    newest: Vec<MessageLine>,
    first_steps: Option<FirstSteps>,
    spans: Vec<Choice>,
    streams: Vec<Choice>,
    /// What is shown, in words.
    shown: String,
    widest: String,
    trend: Trend,
    live: &'static str,
}

/// One of today's figures.
struct Count {
    badge: Badge,
    figure: String,
    path: String,
}

/// One quota window as a bar.
struct QuotaBar {
    name: &'static str,
    used: String,
    limit: String,
    raw_used: u64,
    raw_limit: u64,
    anew_in: String,
}

/// What to do where nothing was sent yet.
struct FirstSteps {
    url: String,
    from: String,
}

/// Something else to look at.
struct Choice {
    words: String,
    path: String,
    is_here: bool,
}

/// The address of the page for a span and a stream.
fn address(span: Span, stream: Option<Stream>) -> String {
    let stream = stream.map(|stream| format!("&stream={stream}")).unwrap_or_default();
    format!("/?range={}{stream}#trend", span.as_str())
}

fn spans(chosen: Span, stream: Option<Stream>) -> Vec<Choice> {
    let choice =
        |span: Span| Choice { words: span.words().to_owned(), path: address(span, stream), is_here: span == chosen };
    Span::ALL.map(choice).into()
}

fn streams(span: Span, chosen: Option<Stream>) -> Vec<Choice> {
    let choice = |stream: Option<Stream>| Choice {
        words: stream.map_or_else(|| "all streams".to_owned(), |stream| stream.to_string()),
        path: address(span, stream),
        is_here: stream == chosen,
    };
    [None, Some(Stream::Transactional), Some(Stream::Marketing)].map(choice).into()
}

/// `GET /`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, Fault> {
    let (engine, account) = (&visit.api.engine, visit.account_id());
    let zone = visit.account.time_zone.zone();
    let query = Form::of_query(&visit.call);
    let (span, stream) = (Span::named(query.text("range")), query.text("stream").parse().ok());
    let outcomes = engine.outcomes(account, &span.question(visit.now, &zone, stream))?;
    let quota = engine.quota(&visit.account)?;
    let page = PageRequest { before: None, limit: NEWEST };
    let newest = engine.messages(account, MessageFilter::default(), page).await?.rows;
    let first_steps = if newest.is_empty() { Some(first_steps(&visit)?) } else { None };
    let page = OverviewPage {
        frame: Frame::new(&visit, "Overview", "/")?,
        standing: Standing::new(&engine.reputation(account)?),
        counts: counts(&visit, start_of_day(visit.now, &zone))?,
        windows: [bar("hour", quota.hour, &visit), bar("day", quota.day, &visit)],
        newest: newest.iter().map(|record| MessageLine::new(record, &zone)).collect(),
        first_steps,
        spans: spans(span, stream),
        streams: streams(span, stream),
        shown: match stream {
            Some(stream) => format!("in the last {}, on the {stream} stream", span.words()),
            None => format!("in the last {}", span.words()),
        },
        widest: address(Span::Month, None),
        trend: Trend::new(&outcomes, span, &zone),
        live: "/events/stream",
    };
    html::page(StatusCode::OK, &page)
}

/// What became of the messages that were accepted since `midnight`, in the order of a message's life.
fn counts(visit: &Visit<'_>, midnight: Timestamp) -> Result<Vec<Count>, Fault> {
    let question =
        OutcomesQuestion { from: midnight, to: visit.now + HOUR, step: Step::Day, stream: None, domain: None };
    let today = visit.api.engine.outcomes(visit.account_id(), &question)?.total;
    let counted = [
        (EventType::Queued, today.accepted),
        (EventType::Delivered, today.delivered),
        (EventType::Deferred, today.deferred),
        (EventType::Bounced, today.bounced()),
        (EventType::Complained, today.complained),
    ];
    let count = |(kind, count)| Count {
        badge: Badge::of_event(kind),
        figure: grouped(count),
        path: format!("/messages?status={kind}"),
    };
    Ok(counted.map(count).into())
}

fn bar(name: &'static str, window: WindowView, visit: &Visit<'_>) -> QuotaBar {
    QuotaBar {
        name,
        used: grouped(window.used),
        limit: grouped(window.limit),
        raw_used: window.used.min(window.limit),
        raw_limit: window.limit.max(1),
        anew_in: in_words(window.reset.saturating_sub(visit.now.as_secs()).div_ceil(60)),
    }
}

fn first_steps(visit: &Visit<'_>) -> Result<FirstSteps, Fault> {
    let engine = &visit.api.engine;
    let domains = engine.domains(visit.account_id(), PageRequest { before: None, limit: 100 })?.rows;
    let verified = domains.into_iter().rev().find(|(_, row)| row.status == DomainStatus::Verified);
    let domain = verified.map_or_else(|| "your-domain.example".to_owned(), |(_, row)| row.name.to_string());
    let url = engine.settings.public_url.get().map_or("", |url| url.trim_end_matches('/')).to_owned();
    Ok(FirstSteps { url, from: format!("hello@{domain}") })
}

fn in_words(minutes: u64) -> String {
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}
