//! The overview: how today goes, what is left of the quota, and the newest messages.

use askama::Template;
use hyper::StatusCode;

use super::messages::MessageLine;
use crate::domain::event::EventType;
use crate::domain::sending_domain::DomainStatus;
use crate::engine::listing::PageRequest;
use crate::engine::messages::MessageFilter;
use crate::http::answer::Answer;
use crate::machine::quota::WindowView;
use crate::panel::door::Visit;
use crate::panel::fault::Fault;
use crate::panel::frame::Frame;
use crate::panel::html;
use crate::panel::moment::start_of_day;
use crate::panel::parts::{Badge, grouped};
use crate::store::error::StoreError;

/// Messages shown.
const NEWEST: usize = 8;
/// Events of one type that are counted; beyond, "so many and more" is told.
const COUNTED_MAX: usize = 20_000;
/// What is counted, in the order of a message's life.
const COUNTED: [EventType; 5] =
    [EventType::Queued, EventType::Delivered, EventType::Deferred, EventType::Bounced, EventType::Complained];

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    counts: Vec<Count>,
    windows: [QuotaBar; 2],
    newest: Vec<MessageLine>,
    first_steps: Option<FirstSteps>,
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
    minutes: u64,
}

/// What to do where nothing was sent yet.
struct FirstSteps {
    url: String,
    from: String,
}

/// `GET /`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, Fault> {
    let (engine, account) = (&visit.api.engine, visit.account_id());
    let since = start_of_day(visit.now, &visit.account.time_zone.zone());
    let counts = COUNTED.iter().map(|kind| {
        let count = engine.count_events(account, *kind, since, COUNTED_MAX)?;
        let more = if count == COUNTED_MAX { "+" } else { "" };
        let path = format!("/messages?status={kind}");
        Ok(Count { badge: Badge::of_event(*kind), figure: format!("{}{more}", grouped(count as u64)), path })
    });
    let counts = counts.collect::<Result<_, StoreError>>()?;
    let quota = engine.quota(&visit.account)?;
    let page = PageRequest { before: None, limit: NEWEST };
    let newest = engine.messages(account, MessageFilter::default(), page).await?.rows;
    let zone = visit.account.time_zone.zone();
    let first_steps = if newest.is_empty() { Some(first_steps(&visit)?) } else { None };
    let page = OverviewPage {
        frame: Frame::new(&visit, "Overview", "/")?,
        counts,
        windows: [bar("hour", quota.hour, &visit), bar("day", quota.day, &visit)],
        newest: newest.iter().map(|record| MessageLine::new(record, &zone)).collect(),
        first_steps,
    };
    html::page(StatusCode::OK, &page)
}

fn bar(name: &'static str, window: WindowView, visit: &Visit<'_>) -> QuotaBar {
    QuotaBar {
        name,
        used: grouped(window.used),
        limit: grouped(window.limit),
        raw_used: window.used.min(window.limit),
        raw_limit: window.limit.max(1),
        minutes: window.reset.saturating_sub(visit.now.as_secs()).div_ceil(60),
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
