//! DMARC reports of one domain: the next step first, then the record, the sources, and a chart by day.
//!
//! Text in a report comes from strangers. The templates escape it, and no link is built from it.

use askama::Template;
use hyper::StatusCode;
use serde_json::{Map, Value};

use super::dmarc_verdict::Verdict;
use crate::base::id::{DmarcReportId, DomainId};
use crate::domain::dmarc_record::DmarcPolicy;
use crate::domain::dmarc_source::{DmarcCounts, SourceKind};
use crate::domain::dmarc_walk::Discovery;
use crate::engine::dmarc::{Overview, Reporter, Source};
use crate::engine::listing::{Page, PageRequest};
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::dmarc::{DAYS_DEFAULT, DAYS_MAX, date, days_of, mark_of, refused, reporter_of, shown};
use crate::http::view::dmarc_reporters::REPORTERS_MAX;
use crate::panel::chart::{Bar, Chart, Column, Heading};
use crate::panel::components::{Badge, Choice, grouped};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::record_card::Record;
use crate::store::op::dmarc::day_of;
use crate::store::row::dmarc::DmarcReportRow;

/// Maximum number of sources on the page, the largest ones. The API returns more.
const SOURCES_MAX: usize = 50;
/// Longest range that is shown by day; longer ones are shown by week.
const DAYS_SHOWN: u32 = 90;
const WEEK: u32 = 7;
/// Maximum number of reports on the page, the latest ones.
const REPORTS_MAX: usize = 20;
/// Ranges to choose from, in days.
const RANGES: [u32; 4] = [7, DAYS_DEFAULT, 90, DAYS_MAX];

#[derive(Template)]
#[template(path = "dmarc.html")]
struct DmarcPage {
    frame: PageFrame,
    id: DomainId,
    domain: String,
    verdict: Verdict,
    blockers: Vec<String>,
    record_name: String,
    policy: PolicyLine,
    figures: Vec<(&'static str, String)>,
    ranges: Vec<Choice>,
    /// Whether the service receives mail, so that reports can arrive.
    receives_reports: bool,
    /// Reason why the reports have no messages.
    no_messages: &'static str,
    days: u32,
    chart: Option<Chart>,
    day_lines: Vec<DayLine>,
    is_weekly: bool,
    sources: Vec<SourceLine>,
    hidden_sources: usize,
    reporters: Vec<ReporterLine>,
    reports: Vec<ReportLine>,
    has_more_reports: bool,
    record: Record,
}

/// The effective DMARC record.
struct PolicyLine {
    text: String,
    at: String,
    badge: Badge,
    is_inherited: bool,
    none: &'static str,
}

/// One row of the table behind the chart.
struct DayLine {
    day: String,
    counts: [String; 4],
}

/// A source.
struct SourceLine {
    network: String,
    badge: Badge,
    mark: &'static str,
    is_blocker: bool,
    messages: String,
    pass_rate: String,
    dkim: String,
    spf: String,
    dkim_domains: String,
    spf_domains: String,
    /// First and last day.
    seen: [String; 2],
}

/// A reporter.
struct ReporterLine {
    name: String,
    /// The domain that signs its reports; empty if unknown.
    signed_by: String,
    reports: String,
    messages: String,
    is_ignored: bool,
}

impl From<Reporter> for ReporterLine {
    fn from(Reporter { name, signed_by, reports, messages, is_ignored }: Reporter) -> Self {
        let signed_by = signed_by.unwrap_or_default();
        Self { name, signed_by, reports: grouped(reports), messages: grouped(messages), is_ignored }
    }
}

/// A report.
struct ReportLine {
    reporter: String,
    from_domain: String,
    range: String,
    messages: String,
    passed: String,
    badge: Badge,
}

/// `GET /domains/{id}/dmarc`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let id: DomainId = visit.id()?;
    let query = Form::of_query(&visit.call);
    let days = days_of(query.given("days")).unwrap_or(DAYS_DEFAULT);
    let done = match query.text("done") {
        "marked" => Some("Source saved."),
        "ignored" => Some("Reporter ignored: its reports no longer count."),
        "counted" => Some("The reporter's reports count again."),
        _ => None,
    };
    let engine = &visit.api.engine;
    let overview = engine.dmarc_overview(visit.account_id(), id, days).await?.ok_or(ApiError::NotFound)?;
    let row = engine.domain(visit.account_id(), id)?.ok_or(ApiError::NotFound)?;
    let page = PageRequest { before: None, limit: REPORTS_MAX };
    let Page { rows, next } = engine.dmarc_reports(visit.account_id(), id, page)?;
    let own = format!("/domains/{id}/dmarc");
    let steps = steps(&overview);
    let with_messages = || steps.iter().rev().filter(|(_, counts)| counts.messages() > 0);
    let page = DmarcPage {
        frame: PageFrame::new(&visit, format!("DMARC reports of {}", overview.domain), "/domains")?.with_done(done),
        id,
        domain: overview.domain.to_string(),
        verdict: Verdict::new(&overview.advice, &overview.published, &row, !rows.is_empty()),
        blockers: overview.advice.blockers.iter().take(SOURCES_MAX).map(ToString::to_string).collect(),
        record_name: format!("_dmarc.{}", overview.domain),
        policy: PolicyLine::new(&overview.published),
        figures: figures(&overview),
        ranges: RANGES.map(|range| choice(&own, range, days)).into(),
        days,
        receives_reports: engine.settings.receives_mail,
        no_messages: no_messages(engine.settings.receives_mail, &rows),
        chart: (overview.counts.messages() > 0).then(|| chart(&overview, &steps)),
        day_lines: with_messages().map(|(day, counts)| DayLine::new(short(*day, overview.to), counts)).collect(),
        is_weekly: days > DAYS_SHOWN,
        hidden_sources: overview.sources_total.saturating_sub(SOURCES_MAX),
        sources: overview.sources.iter().take(SOURCES_MAX).map(|source| SourceLine::new(source, &overview)).collect(),
        reporters: reporter_lines(overview.reporters),
        reports: rows.iter().map(|(_, row)| ReportLine::new(row, overview.to)).collect(),
        has_more_reports: next.is_some(),
        record: Record::new(&visit, id, &own, &format!("/v1{own}")),
    };
    html::page(StatusCode::OK, &page)
}

/// `GET /domains/{id}/dmarc/json`: the figures as the API returns them.
pub(in crate::panel) async fn json(visit: Visit<'_>) -> Result<Answer, PageError> {
    Ok(shown(visit.api, visit.account_id(), visit.id()?, DAYS_DEFAULT).await?)
}

/// `POST /domains/{id}/dmarc/sources`.
pub(in crate::panel) async fn mark(visit: Visit<'_>) -> Result<Answer, PageError> {
    let id: DomainId = visit.id()?;
    let form = Form::of(&visit.call)?;
    let mut body = form.as_body(&["network"]);
    let is_mine = match form.text("mine") {
        "yes" => Value::Bool(true),
        "no" => Value::Bool(false),
        _ => Value::Null,
    };
    body.insert("mine".to_owned(), is_mine);
    let (network, is_mine) = mark_of(body)?;
    visit.api.engine.mark_dmarc_source(visit.on(), id, network, is_mine).await.map_err(refused)?;
    Ok(html::redirect(&format!("/domains/{id}/dmarc?done=marked")))
}

/// `POST /domains/{id}/dmarc/reporters`.
pub(in crate::panel) async fn ignore(visit: Visit<'_>) -> Result<Answer, PageError> {
    let id: DomainId = visit.id()?;
    let form = Form::of(&visit.call)?;
    let mut body: Map<String, Value> = form.as_body(&["name", "signed_by"]);
    body.insert("ignored".to_owned(), Value::Bool(form.text("ignored") == "yes"));
    let (reporter, is_ignored) = reporter_of(body)?;
    visit.api.engine.ignore_dmarc_reporter(visit.on(), id, reporter, is_ignored).await.map_err(refused)?;
    let done = if is_ignored { "ignored" } else { "counted" };
    Ok(html::redirect(&format!("/domains/{id}/dmarc?done={done}")))
}

/// Returns the largest reporters, and the largest ignored ones.
fn reporter_lines(reporters: Vec<Reporter>) -> Vec<ReporterLine> {
    let (ignored, counted): (Vec<_>, Vec<_>) = reporters.into_iter().partition(|reporter| reporter.is_ignored);
    let shown = [counted, ignored].into_iter().flat_map(|some| some.into_iter().take(REPORTERS_MAX));
    shown.map(ReporterLine::from).collect()
}

/// Returns the reason why the reports of a period have no messages. `latest` are the latest reports.
fn no_messages(receives_mail: bool, latest: &[(DmarcReportId, DmarcReportRow)]) -> &'static str {
    match latest {
        _ if !receives_mail => "Reports appear here once the service receives mail.",
        [_, ..] if latest.iter().all(|(_, row)| !row.is_authentic) => {
            "The latest reports have no valid signature of their From domain, so they are not counted."
        }
        _ => "Receivers send reports once a day to the address in your DMARC record.",
    }
}

impl PolicyLine {
    fn new(published: &Discovery) -> Self {
        let without = |badge, none| Self { text: String::new(), at: String::new(), badge, is_inherited: false, none };
        match published {
            Discovery::Published(found) => Self {
                text: found.text.clone(),
                at: found.at.clone(),
                badge: match found.policy {
                    DmarcPolicy::None => Badge::new("p=none", "wait", "warn"),
                    DmarcPolicy::Quarantine => Badge::new("p=quarantine", "good", "shield"),
                    DmarcPolicy::Reject => Badge::new("p=reject", "good", "shield"),
                },
                is_inherited: found.is_inherited,
                none: "",
            },
            Discovery::Absent => {
                without(Badge::new("no record", "bad", "cross"), "No record was found at the last check.")
            }
            Discovery::Invalid(text) => {
                Self { text: text.clone(), ..without(Badge::new("invalid", "bad", "cross"), "Receivers ignore it.") }
            }
            Discovery::Unknown => without(Badge::new("unknown", "calm", "clock"), "Not checked yet."),
        }
    }
}

fn figures(overview: &Overview) -> Vec<(&'static str, String)> {
    let counts = &overview.counts;
    vec![
        ("Messages", grouped(counts.messages())),
        ("Passed", share(counts.passed(), counts.messages())),
        ("Quarantined", grouped(counts.disposed(DmarcPolicy::Quarantine))),
        ("Rejected", grouped(counts.disposed(DmarcPolicy::Reject))),
        ("Reports", grouped(overview.reports)),
    ]
}

fn choice(own: &str, range: u32, days: u32) -> Choice {
    Choice { words: format!("{range} days"), path: format!("{own}?days={range}"), is_here: range == days }
}

/// Returns the steps of the chart and of its table, oldest first: days, or weeks of a long range.
fn steps(overview: &Overview) -> Vec<(u32, DmarcCounts)> {
    let (first, last) = (overview.from, overview.to);
    let width = if last - first < DAYS_SHOWN { 1 } else { WEEK };
    // The last step ends with the last day, so the first one can be shorter.
    let begin = |step: u32| (last + 1).saturating_sub((step + 1) * width).max(first);
    let count = (last - first + width) / width;
    let mut steps: Vec<_> = (0..count).rev().map(|step| (begin(step), DmarcCounts::ZERO)).collect();
    for (day, counts) in &overview.days {
        let step = steps.partition_point(|(begin, _)| begin <= day);
        if let Some((_, sum)) = step.checked_sub(1).and_then(|step| steps.get_mut(step)) {
            sum.merge(counts);
        }
    }
    steps
}

fn chart(overview: &Overview, steps: &[(u32, DmarcCounts)]) -> Chart {
    let (mut bars, mut columns) = (Vec::new(), Vec::new());
    for (day, counts) in steps {
        let name = short(*day, overview.to);
        let (passed, failed) = (counts.passed(), counts.failed());
        bars.push(Bar { parts: vec![("good", passed), ("bad", failed)] });
        let words = format!("{name}: {} passed, {} failed", grouped(passed), grouped(failed));
        columns.push(Column { label: name, words, link: None });
    }
    let about = format!(
        "{} of {} messages passed DMARC.",
        grouped(overview.counts.passed()),
        grouped(overview.counts.messages())
    );
    Chart::of_bars(Heading { name: "dmarc", title: "Messages over time", about }, &bars, columns)
}

impl DayLine {
    fn new(day: String, counts: &DmarcCounts) -> Self {
        let disposed = |policy| counts.disposed(policy);
        let numbers =
            [counts.messages(), counts.passed(), disposed(DmarcPolicy::Quarantine), disposed(DmarcPolicy::Reject)];
        Self { day, counts: numbers.map(grouped) }
    }
}

impl SourceLine {
    fn new(source: &Source, overview: &Overview) -> Self {
        let (counts, messages) = (&source.counts, source.counts.messages());
        let list = |names: &[crate::domain::hostname::DomainName]| {
            names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        Self {
            network: source.network.to_string(),
            badge: kind(source.kind),
            mark: match source.is_mine {
                Some(true) => "yes",
                Some(false) => "no",
                None => "unset",
            },
            is_blocker: overview.advice.blockers.contains(&source.network),
            messages: grouped(messages),
            pass_rate: share(counts.passed(), messages),
            dkim: share(counts.dkim_aligned(), messages),
            spf: share(counts.spf_aligned(), messages),
            dkim_domains: list(&source.dkim_domains),
            spf_domains: list(&source.spf_domains),
            seen: [source.first_day, source.last_day].map(|day| short(day, overview.to)),
        }
    }
}

const fn kind(kind: SourceKind) -> Badge {
    match kind {
        SourceKind::Own => Badge::new("this service", "good", "check"),
        SourceKind::Forwarder => Badge::new("forwarder", "calm", "leave"),
        SourceKind::Authorised => Badge::new("authorised", "calm", "check"),
        SourceKind::Unknown => Badge::new("unknown", "wait", "help"),
    }
}

impl ReportLine {
    fn new(row: &DmarcReportRow, today: u32) -> Self {
        let day = |at| short(day_of(at), today);
        let (begin, end) = (day(row.begin), day(row.end));
        Self {
            reporter: row.reporter.clone(),
            from_domain: row
                .from_domain
                .as_ref()
                .map_or_else(|| "no single From address".to_owned(), ToString::to_string),
            range: if begin == end { begin } else { format!("{begin} to {end}") },
            messages: grouped(row.messages),
            passed: grouped(row.passed),
            badge: if row.is_authentic {
                Badge::new("signed", "good", "check")
            } else {
                Badge::new("not signed", "wait", "warn")
            },
        }
    }
}

/// Formats a day (UTC), with its year if it differs from the year of `today`.
fn short(day: u32, today: u32) -> String {
    let form = if date(day)[..4] == date(today)[..4] { "%-d %b" } else { "%-d %b %Y" };
    let at = jiff::Timestamp::from_second(i64::from(day) * 86_400).unwrap_or_default();
    at.to_zoned(jiff::tz::TimeZone::UTC).strftime(form).to_string()
}

/// Formats a share in percent with one decimal.
fn share(count: u64, of: u64) -> String {
    if of == 0 {
        return "–".to_owned();
    }
    let tenths = u128::from(count) * 1000 / u128::from(of);
    format!("{}.{}%", tenths / 10, tenths % 10)
}
