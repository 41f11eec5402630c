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
use crate::panel::parts::{Badge, Choice, grouped};
use crate::panel::patience::{Patience, patience};
use crate::panel::standing::Standing;
use crate::panel::trend::{Span, Trend};
use crate::panel::trouble::{Trouble, troubles};

/// Messages shown.
const NEWEST: usize = 8;
const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);
const WEEK: std::time::Duration = std::time::Duration::from_secs(7 * 24 * 3600);

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    standing: Standing,
    troubles: Vec<Trouble>,
    patience: Vec<Patience>,
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
    /// The same by this hour a week ago, where anything was sent then.
    before: Option<String>,
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
    has_domain: bool,
    has_key: bool,
    has_webhook: bool,
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
        troubles: troubles(&visit)?,
        patience: patience(&visit)?,
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

/// Counts the outcomes of the messages that were accepted since `midnight`, in the order of a message's life, and the
/// same for the same part of the day a week ago. Only messages are counted: a message may have many attempts.
fn counts(visit: &Visit<'_>, midnight: Timestamp) -> Result<Vec<Count>, Fault> {
    let between = |from, to| {
        let question = OutcomesQuestion { from, to, step: Step::Day, stream: None, domain: None };
        visit.api.engine.outcomes(visit.account_id(), &question).map(|outcomes| outcomes.total)
    };
    let today = between(midnight, visit.now + HOUR)?;
    let then = between(midnight - WEEK, visit.now + HOUR - WEEK)?;
    let counted = [
        (Badge::new("accepted", "calm", "mail"), "/messages", today.accepted, then.accepted),
        (Badge::of_event(EventType::Delivered), "/messages?status=delivered", today.delivered, then.delivered),
        (Badge::of_event(EventType::Bounced), "/messages?status=bounced", today.bounced(), then.bounced()),
        (Badge::of_event(EventType::Failed), "/messages?status=failed", today.failed, then.failed),
        (Badge::of_event(EventType::Complained), "/messages?status=complained", today.complained, then.complained),
    ];
    let count = |(badge, path, count, before): (Badge, &str, u64, u64)| Count {
        badge,
        figure: grouped(count),
        before: (then.accepted > 0).then(|| grouped(before)),
        path: path.to_owned(),
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
    let (engine, account) = (&visit.api.engine, visit.account_id());
    let some = PageRequest { before: None, limit: 100 };
    let domains = engine.domains(account, some)?.rows;
    let verified = domains.into_iter().rev().find(|(_, row)| row.status == DomainStatus::Verified);
    let has_key = engine.keys(account, some)?.rows.iter().any(|key| key.revoked_at.is_none());
    let has_webhook = !engine.endpoints(account, some)?.rows.is_empty();
    let has_domain = verified.is_some();
    let domain = verified.map_or_else(|| "your-domain.example".to_owned(), |(_, row)| row.name.to_string());
    let url = engine.settings.public_url.get().map_or("", |url| url.trim_end_matches('/')).to_owned();
    Ok(FirstSteps { url, from: format!("hello@{domain}"), has_domain, has_key, has_webhook })
}

fn in_words(minutes: u64) -> String {
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}
