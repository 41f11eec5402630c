//! System page for service operators: health, storage, checks, and the queue. It shows no address and no response text,
//! because those belong to the accounts.

use askama::Template;
use hyper::StatusCode;
use jiff::tz::TimeZone;

use super::system_health::{ReplicationState, SystemAlert, open_alerts};
use crate::base::id::{AccountId, AlertId};
use crate::base::time::Timestamp;
use crate::engine::Engine;
use crate::engine::alerts::record::Alert;
use crate::engine::blocking::OPERATOR;
use crate::engine::queue::{QueuePage, SiteQueue};
use crate::engine::store_size::Growth;
use crate::engine::wait_reason::WaitReason;
use crate::http::answer::Answer;
use crate::http::status::{Examination, LogLine, StatusSources};
use crate::net::plain_error::plain_error;
use crate::panel::components::{Badge, byte_size, grouped};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::prose::Prose;
use crate::panel::timestamp::{Days, Moment, ShortTime, lasted};
use crate::panel::wording::{self, capitalized, provider, sentence_case};
use crate::store::SizeBytes;
use crate::store::error::StoreError;

/// Maximum number of destinations shown.
const SITES: usize = 100;
/// Maximum number of log lines shown.
const LOG_LINES: usize = 10;
/// Free space is flagged below this multiple of the configured minimum.
const ROOMY: u64 = 16;

#[derive(Template)]
#[template(path = "system.html")]
struct SystemPage {
    frame: PageFrame,
    state: Badge,
    service: Vec<(&'static str, String)>,
    started_at: Moment,
    storage: Vec<(&'static str, String)>,
    last_checkpoint: Option<Moment>,
    last_backup: Option<Moment>,
    certificate: Option<CertificateLine>,
    clock: ClockLine,
    doctor: Option<DoctorLines>,
    may_send: bool,
    alerts: Vec<SystemAlert>,
    replication: Option<ReplicationState>,
    limits: Vec<(&'static str, String)>,
    sites: Vec<SiteLine>,
    is_cut: bool,
    log: Vec<LogEntry>,
}

/// TLS certificate of the HTTP listener.
struct CertificateLine {
    badge: Badge,
    until: Option<Moment>,
}

/// The service's clock.
struct ClockLine {
    badge: Badge,
    now: Moment,
    /// Reason why the clock is in doubt.
    cause: Option<&'static str>,
}

/// Latest results of the checks, the worst first.
struct DoctorLines {
    at: Moment,
    failures: usize,
    warnings: usize,
    checks: Vec<DoctorLine>,
}

/// One check.
struct DoctorLine {
    badge: Badge,
    name: String,
    seen: Prose,
    remedy: Option<Prose>,
}

/// Queue of one destination, across all accounts.
struct SiteLine {
    site: String,
    relay: String,
    waiting: String,
    in_flight: String,
    code: String,
    next_at: Option<ShortTime>,
    /// Reason for the wait of the message that is due next.
    reason: &'static str,
    held_until: Option<ShortTime>,
}

/// A line of the log.
struct LogEntry {
    /// Day heading, if this line is the first of its day.
    day: Option<String>,
    at: Moment,
    badge: Badge,
    message: Prose,
    /// Names and values of the fields.
    fields: Vec<(String, LogValue)>,
}

/// A value of a field of the log.
struct LogValue {
    text: Prose,
    /// Page of the account or alert that the value names.
    path: Option<String>,
}

impl LogValue {
    /// Reads a value. The quotes of a text are removed.
    fn new(value: String, zone: &TimeZone) -> Self {
        let text = plain_error(serde_json::from_str::<String>(&value).unwrap_or(value));
        let account = text.parse::<AccountId>().ok().map(|id| format!("/accounts/{id}"));
        let alert = || text.parse::<AlertId>().ok().map(|id| format!("/alerts#{id}"));
        Self { path: account.or_else(alert), text: Prose::new(&text, zone) }
    }
}

/// Measurements of the store and the disk.
struct Measurements {
    sizes: SizeBytes,
    growth: Option<Growth>,
    free: u64,
    last_backup: Option<Timestamp>,
    alerts: Vec<Alert>,
}

fn measure(engine: &Engine) -> Result<Measurements, StoreError> {
    Ok(Measurements {
        sizes: engine.store.size_bytes(),
        growth: engine.store_growth(),
        free: engine.store.free_bytes()?,
        last_backup: engine.last_backup().and_then(|text| text.parse().ok()),
        alerts: open_alerts(engine)?,
    })
}

/// `GET /system`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let engine = &visit.api.engine;
    let own = std::sync::Arc::clone(engine);
    let measured = engine.blocking(OPERATOR, move || measure(&own)).await??;
    let sources = visit.api.status.get();
    let QueuePage { mut sites, next } = engine.queue(None).await?;
    sites.sort_by_key(|site| std::cmp::Reverse((site.waiting, site.in_flight)));
    let done = match Form::of_query(&visit.call).text("done") {
        "checked" => Some("Checks finished."),
        "running" => Some("Checks are already running. Reload this page in a few seconds."),
        _ => None,
    };
    let started_at = sources.map_or(visit.now, |sources| sources.started_at);
    let least = engine.settings.min_free_bytes;
    let page = SystemPage {
        frame: PageFrame::new(&visit, "System", "/system")?.with_done(done),
        state: state(&visit),
        service: service(&visit, started_at),
        started_at: visit.detail(started_at),
        storage: storage(&visit, &measured, least),
        last_checkpoint: engine.store.meters().last_checkpoint().map(|at| visit.detail(at)),
        last_backup: measured.last_backup.map(|at| visit.detail(at)),
        certificate: sources.and_then(|sources| certificate(&visit, sources)),
        clock: clock(&visit),
        doctor: sources.and_then(|sources| sources.doctor.last()).map(|last| doctor(&visit, &last)),
        may_send: visit.may_operate(),
        alerts: measured.alerts.into_iter().map(|alert| SystemAlert::new(&visit, alert)).collect(),
        replication: ReplicationState::of(&visit),
        limits: sources.map(|sources| limits(&visit, sources)).unwrap_or_default(),
        is_cut: sites.len() > SITES || next.is_some(),
        sites: sites.into_iter().take(SITES).map(|site| site_line(&visit, site)).collect(),
        log: sources.map(|sources| log(&visit, (sources.last_errors)())).unwrap_or_default(),
    };
    html::page(StatusCode::OK, &page)
}

/// `POST /system/doctor`: runs every check. This takes some seconds.
pub(in crate::panel) async fn examine(visit: Visit<'_>) -> Result<Answer, PageError> {
    let examined = match visit.api.status.get() {
        Some(sources) => sources.doctor.examine().await,
        None => None,
    };
    let done = if examined.is_some() { "checked" } else { "running" };
    Ok(html::redirect(&format!("/system?done={done}#doctor")))
}

fn state(visit: &Visit<'_>) -> Badge {
    match visit.api.check_ready() {
        Ok(()) => Badge::new("Ready", "good", "check"),
        Err(_) => Badge::new("Not ready", "bad", "warn"),
    }
}

fn service(visit: &Visit<'_>, started_at: Timestamp) -> Vec<(&'static str, String)> {
    let url = visit.api.engine.settings.public_url.get().cloned().unwrap_or_default();
    vec![
        ("Version", env!("CARGO_PKG_VERSION").to_owned()),
        ("Uptime", lasted(visit.now.since(started_at))),
        ("Public URL", url),
    ]
}

fn storage(visit: &Visit<'_>, measured: &Measurements, least: u64) -> Vec<(&'static str, String)> {
    let Measurements { sizes, growth, free, .. } = measured;
    let growth = growth.map_or_else(
        || "not measured yet".to_owned(),
        |Growth { since, bytes }| {
            let sign = if bytes < 0 { "−" } else { "+" };
            let size = byte_size(bytes.unsigned_abs());
            format!("{sign}{size} in {}", lasted(visit.now.since(since)))
        },
    );
    let disk = match *free {
        free if free < least => format!("{} free: mail is rejected below {}", byte_size(free), byte_size(least)),
        free if free < least.saturating_mul(ROOMY) => {
            format!("{} free; mail is rejected below {}", byte_size(free), byte_size(least))
        }
        free => format!("{} free", byte_size(free)),
    };
    vec![
        ("Store", byte_size(sizes.total())),
        ("Growth", growth),
        ("Database", byte_size(sizes.database)),
        ("Message content", byte_size(sizes.content)),
        ("Journal", byte_size(sizes.journal)),
        ("Disk", disk),
    ]
}

fn certificate(visit: &Visit<'_>, sources: &StatusSources) -> Option<CertificateLine> {
    let until = sources.certificate.as_ref()?.meters.until();
    let badge = match until {
        None => Badge::new("Self-signed", "bad", "warn"),
        Some(until) if until <= visit.now => Badge::new("Expired", "bad", "cross"),
        Some(_) => Badge::new("Valid", "good", "check"),
    };
    Some(CertificateLine { badge, until: until.map(|at| visit.detail(at)) })
}

fn clock(visit: &Visit<'_>) -> ClockLine {
    let clock = &visit.api.engine.clock;
    let badge = match clock.time().is_doubtful() {
        true => Badge::new("In doubt", "bad", "warn"),
        false => Badge::new("Trusted", "good", "check"),
    };
    ClockLine { badge, now: visit.moment(visit.now), cause: clock.doubt().map(|doubt| doubt.cause.as_str()) }
}

fn doctor(visit: &Visit<'_>, last: &Examination) -> DoctorLines {
    let weight = |verdict: &str| match verdict {
        "FAIL" => 0,
        "WARN" => 1,
        _ => 2,
    };
    let mut checks: Vec<_> = last.checks.iter().collect();
    checks.sort_by_key(|check| weight(&check.verdict));
    let count = |verdict: &str| last.checks.iter().filter(|check| check.verdict == verdict).count();
    let lines = checks.into_iter().map(|check| DoctorLine {
        badge: match check.verdict.as_str() {
            "FAIL" => Badge::new("Fail", "bad", "cross"),
            "WARN" => Badge::new("Warning", "wait", "warn"),
            _ => Badge::new("OK", "good", "check"),
        },
        name: wording::check(&check.name),
        seen: visit.prose(&sentence_case(&check.seen)),
        remedy: Some(&check.remedy).filter(|remedy| !remedy.is_empty()).map(|remedy| visit.prose(remedy)),
    });
    DoctorLines { at: visit.detail(last.at), failures: count("FAIL"), warnings: count("WARN"), checks: lines.collect() }
}

fn limits(visit: &Visit<'_>, sources: &StatusSources) -> Vec<(&'static str, String)> {
    let words = |code: &'static str| match code {
        "rate_limited" => "Request rate of a key or user",
        "quota_exceeded" => "Message quota of an account",
        "storage_quota_exceeded" => "Storage of an account",
        "payload_too_large" => "Size of a request",
        "overloaded" => "Memory or connections for requests",
        "storage_full" => "Free space on the disk",
        "request_timeout" => "Time for a request",
        other => other,
    };
    let reached = sources.requests.limits_reached(visit.now);
    reached.into_iter().map(|(code, count)| (words(code), grouped(count))).collect()
}

fn site_line(visit: &Visit<'_>, site: SiteQueue) -> SiteLine {
    SiteLine {
        waiting: grouped(site.waiting),
        in_flight: grouped(site.in_flight),
        code: site.last_answer.as_deref().map(failed_reply).unwrap_or_default(),
        next_at: site.next_at.filter(|at| *at > visit.now).map(|at| visit.moment(at).short(visit.now)),
        reason: site.reason.map(reason_words).unwrap_or_default(),
        held_until: site.held_until.map(|at| visit.moment(at).short(visit.now)),
        site: provider(&site.site).to_owned(),
        relay: site.relay,
    }
}

const fn reason_words(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::Backoff => "after a failed attempt",
        WaitReason::Throttled => "the destination is throttled or unreachable",
        WaitReason::Paused => "paused by its account",
        WaitReason::Dns => "waits for DNS",
        WaitReason::Relay => "the relay is not available",
        WaitReason::Busy => "connections are in use",
        WaitReason::Held => "on hold",
        WaitReason::Unconfirmed => "not replicated yet",
    }
}

/// Returns the reply code and enhanced status code of a failed response, without its text. Our own words stand for a
/// missing response, and nothing for a delivery.
fn failed_reply(answer: &str) -> String {
    let (code, rest) = answer.split_at_checked(3).unwrap_or(("", ""));
    if code.len() != 3 || !code.bytes().all(|byte| byte.is_ascii_digit()) {
        return "No answer".to_owned();
    }
    if code.starts_with('2') {
        return String::new();
    }
    let word = rest.trim_start_matches([' ', '-']).split_whitespace().next().unwrap_or_default();
    let parts: Vec<_> = word.split('.').collect();
    let is_enhanced = parts.len() == 3
        && parts.iter().all(|part| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit()));
    if is_enhanced { format!("{code} {word}") } else { code.to_owned() }
}

fn log(visit: &Visit<'_>, lines: Vec<LogLine>) -> Vec<LogEntry> {
    let (mut days, zone) = (Days::new(visit.now), visit.account.time_zone.zone());
    let value = |(name, value): (&str, String)| (field_name(name), LogValue::new(value, &zone));
    let entry = |line: LogLine| LogEntry {
        day: days.begin(&visit.moment(line.at)),
        at: visit.moment(line.at),
        badge: match line.level {
            "error" => Badge::new("Error", "bad", "cross"),
            _ => Badge::new("Warning", "wait", "warn"),
        },
        message: visit.prose(&capitalized(&line.message)),
        fields: line.fields.into_iter().map(&value).collect(),
    };
    lines.into_iter().take(LOG_LINES).map(entry).collect()
}

/// Returns the name of a field for people: `What to do` for `what_to_do`.
fn field_name(name: &str) -> String {
    capitalized(&name.replace('_', " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    #[test]
    fn fields_of_the_log_are_shown_without_quotes() {
        let of = |value: &str| LogValue::new(value.to_owned(), &TimeZone::UTC);
        let shown = [r#""a \"b\"""#, "3", "no route", r#""cut o"#].map(|value| of(value).text.to_string());
        assert_eq!(shown, ["a &#34;b&#34;", "3", "no route", "&#34;cut o"]);
        assert_eq!(of("Connection refused (os error 111)").text.to_string(), "connection refused");
        assert_eq!(field_name("what_to_do"), "What to do");
        let account = AccountId(Ulid([1; 16])).to_string();
        assert_eq!(of(&account).path, Some(format!("/accounts/{account}")));
        let alert = AlertId(Ulid([1; 16])).to_string();
        assert_eq!(of(&alert).path, Some(format!("/alerts#{alert}")));
    }

    #[test]
    fn only_the_codes_of_a_response_are_shown() {
        for (answer, code) in [
            ("421 4.7.0 ann@example.com: try later", "421 4.7.0"),
            ("450-4.2.1 <ann@example.com>\r\n450 busy", "450 4.2.1"),
            ("421 ann@example.com", "421"),
            ("550 192.0.2.1 is listed", "550"),
            ("connection refused by ann", "No answer"),
            ("250 2.0.0 Ok", ""),
            ("", "No answer"),
            ("4é1", "No answer"),
        ] {
            assert_eq!(failed_reply(answer), code, "{answer}");
        }
    }
}
