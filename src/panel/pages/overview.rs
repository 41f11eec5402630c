//! Overview: notices, figures of one period, deliveries over time, delivery problems, and the newest messages. The
//! figures are hourly counts, so no message is read for them. An account without messages sees the first steps instead.

use askama::Template;
use hyper::StatusCode;

use super::messages::MessageLine;
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;
use crate::engine::listing::PageRequest;
use crate::engine::messages::{MessageFilter, MessageRecord};
use crate::engine::reputation::{Outcomes, OutcomesQuestion, Step};
use crate::http::answer::Answer;
use crate::machine::quota::WindowView;
use crate::machine::reputation::Rate;
use crate::panel::chart::percent;
use crate::panel::components::{Choice, grouped};
use crate::panel::delivery_problems::{DeliveryProblems, LOOKED_AT, problems};
use crate::panel::delivery_time::{self, DeliveryTime};
use crate::panel::first_steps::FirstSteps;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::paging;
use crate::panel::sender_reputation::AccountReputation;
use crate::panel::trend::{Links, Span, Trend};

/// Percentage of a quota window from which it is shown.
const QUOTA_SHOWN: u64 = 80;
/// Messages shown.
const NEWEST: usize = 5;
const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);
const WEEK: std::time::Duration = std::time::Duration::from_secs(7 * 24 * 3600);

#[derive(Template)]
#[template(path = "first_steps.html")]
struct FirstStepsPage {
    frame: PageFrame,
    first: FirstSteps,
    live: &'static str,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: PageFrame,
    /// Verdict on the period in one sentence.
    verdict: String,
    standing: AccountReputation,
    problems: DeliveryProblems,
    /// Maximum number of events that the problems count, of each type.
    looked_at: usize,
    figures: Vec<Figure>,
    /// Quota windows that are mostly used.
    windows: Vec<QuotaBar>,
    newest: Vec<MessageLine>,
    spans: Vec<Choice>,
    streams: Vec<Choice>,
    /// Description of the period.
    shown: String,
    widest: String,
    trend: Trend,
    live: &'static str,
}

/// One figure of the period, with a link to the messages that it counts.
struct Figure {
    name: &'static str,
    figure: String,
    hint: String,
    path: Option<String>,
}

/// One quota window as a progress bar.
struct QuotaBar {
    name: &'static str,
    used: String,
    limit: String,
    raw_used: u64,
    raw_limit: u64,
    resets_in: String,
}

/// The selected period and stream.
#[derive(Clone, Copy)]
struct Period {
    span: Span,
    stream: Option<Stream>,
}

impl Period {
    fn of(query: &Form) -> Self {
        Self { span: Span::named(query.text("range")), stream: query.text("stream").parse().ok() }
    }

    /// Returns the path of the page for this period.
    fn address(self) -> String {
        let stream = self.stream.map(|stream| format!("&stream={stream}")).unwrap_or_default();
        format!("/?range={}{stream}", self.span.as_str())
    }

    fn spans(self) -> Vec<Choice> {
        let choice = |span: Span| Choice {
            words: span.words().to_owned(),
            path: Self { span, ..self }.address(),
            is_here: span == self.span,
        };
        Span::ALL.map(choice).into()
    }

    fn streams(self) -> Vec<Choice> {
        let choice = |stream: Option<Stream>| Choice {
            words: stream.map_or_else(|| "All streams".to_owned(), capitalized),
            path: Self { stream, ..self }.address(),
            is_here: stream == self.stream,
        };
        [None, Some(Stream::Transactional), Some(Stream::Marketing)].map(choice).into()
    }

    fn words(self) -> String {
        match self.stream {
            Some(stream) => format!("in the last {}, {stream} stream", self.span.words()),
            None => format!("in the last {}", self.span.words()),
        }
    }
}

fn capitalized(stream: Stream) -> String {
    match stream {
        Stream::Transactional => "Transactional".to_owned(),
        Stream::Marketing => "Marketing".to_owned(),
    }
}

/// `GET /`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let newest = newest(&visit).await?;
    if newest.is_empty() {
        return first_steps(&visit, StatusCode::OK, String::new());
    }
    let (engine, account) = (&visit.api.engine, visit.account_id());
    let zone = visit.account.time_zone.zone();
    let period = Period::of(&Form::of_query(&visit.call));
    let outcomes = engine.outcomes(account, &period.span.question(visit.now, &zone, period.stream))?;
    let before = engine.outcomes(account, &period.span.question_before(visit.now, &zone, period.stream))?;
    let standing = AccountReputation::new(&engine.reputation(account)?, visit.now, &zone);
    let (quota, shown) = (engine.quota(&visit.account)?, period.words());
    let page = OverviewPage {
        frame: PageFrame::new(&visit, "Overview", "/")?,
        problems: problems(&visit, start(&visit, &outcomes), period.stream)?,
        verdict: standing.verdict(&outcomes.total, &shown),
        standing,
        looked_at: LOOKED_AT,
        figures: figures(&visit, period, &outcomes)?,
        windows: [bar("hour", quota.hour, &visit), bar("day", quota.day, &visit)].into_iter().flatten().collect(),
        newest: MessageLine::list(&newest, &zone, visit.now),
        spans: period.spans(),
        streams: period.streams(),
        shown,
        widest: Period { span: Span::Month, stream: None }.address(),
        trend: Trend::new(&before, &outcomes, period.span, &zone, Links::Messages(period.stream)),
        live: "/events/stream",
    };
    html::page(StatusCode::OK, &page)
}

/// The first steps after the test message was refused for this reason.
pub(super) fn refused(visit: &Visit<'_>, fault: String) -> Result<Answer, PageError> {
    first_steps(visit, StatusCode::UNPROCESSABLE_ENTITY, fault)
}

fn first_steps(visit: &Visit<'_>, status: StatusCode, fault: String) -> Result<Answer, PageError> {
    let frame = PageFrame::new(visit, "Overview", "/")?;
    let first = FirstSteps::of(visit, fault)?;
    html::page(status, &FirstStepsPage { frame, first, live: "/events/stream" })
}

async fn newest(visit: &Visit<'_>) -> Result<Vec<MessageRecord>, PageError> {
    let page = PageRequest { before: None, limit: NEWEST };
    Ok(visit.api.engine.messages(visit.account_id(), MessageFilter::default(), page).await?.rows)
}

/// Returns the figures of the period. They count messages: a message can have many attempts.
fn figures(visit: &Visit<'_>, period: Period, outcomes: &Outcomes) -> Result<Vec<Figure>, PageError> {
    let total = &outcomes.total;
    let zone = visit.account.time_zone.zone();
    let search = period.span.search(visit.now, &zone);
    let stream = period.stream.map_or("", Stream::as_str);
    let to =
        |status: &str| Some(paging::address("/messages", &[("q", &search), ("status", status), ("stream", stream)]));
    let answered = total.answered();
    let delivered = Rate { count: answered.saturating_sub(total.bounced()), of: answered };
    let bounced = Rate { count: total.bounced(), of: answered };
    let complained = Rate { count: total.complained, of: total.delivered };
    let times = delivery_time::of_period(visit, start(visit, outcomes), period.stream, total)?;
    Ok(vec![
        Figure { name: "Accepted", figure: grouped(total.accepted), hint: before(visit, period)?, path: to("") },
        share("Delivered", delivered, to("delivered")),
        share("Bounced", bounced, to("bounced")),
        share("Complaints", complained, to("complained")),
        median(times),
    ])
}

/// Returns the start of the period.
fn start(visit: &Visit<'_>, outcomes: &Outcomes) -> Timestamp {
    outcomes.series.first().map_or(visit.now, |(at, _)| *at)
}

/// Formats a share of messages, or the count alone if there are too few for a percentage.
fn share(name: &'static str, rate: Rate, path: Option<String>) -> Figure {
    let counts = format!("{} of {}", grouped(rate.count), grouped(rate.of));
    match rate.millionths() {
        Some(share) => Figure { name, figure: percent(share), hint: counts, path },
        None => Figure { name, figure: grouped(rate.count), hint: format!("of {}", grouped(rate.of)), path },
    }
}

fn median(times: Option<DeliveryTime>) -> Figure {
    let (figure, hint) = match times {
        None => ("–".to_owned(), "no deliveries".to_owned()),
        Some(DeliveryTime { median, most }) => (median, format!("95% within {most}")),
    };
    Figure { name: "Median time", figure, hint, path: None }
}

/// Returns the number of messages accepted in the same hours a week before, for the shortest period.
fn before(visit: &Visit<'_>, period: Period) -> Result<String, PageError> {
    if period.span != Span::Day {
        return Ok(String::new());
    }
    let (from, to): (Timestamp, Timestamp) = (visit.now - HOUR * 23 - WEEK, visit.now + HOUR - WEEK);
    let question = OutcomesQuestion { from, to, step: Step::Day, stream: period.stream, domain: None };
    let then = visit.api.engine.outcomes(visit.account_id(), &question)?.total.accepted;
    Ok(format!("{} same time last week", grouped(then)))
}

/// The bar of a quota window. None while less than [`QUOTA_SHOWN`] of it is used.
fn bar(name: &'static str, window: WindowView, visit: &Visit<'_>) -> Option<QuotaBar> {
    if window.used.saturating_mul(100) < window.limit.saturating_mul(QUOTA_SHOWN) {
        return None;
    }
    Some(QuotaBar {
        name,
        used: grouped(window.used),
        limit: grouped(window.limit),
        raw_used: window.used.min(window.limit),
        raw_limit: window.limit.max(1),
        resets_in: in_words(window.reset.saturating_sub(visit.now.as_secs()).div_ceil(60)),
    })
}

fn in_words(minutes: u64) -> String {
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}
