//! Summary of a domain's DMARC reports as JSON.

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::base::id::{self, DmarcReportId};
use crate::base::time::{Timestamp, iso};
use crate::domain::dmarc_record::DmarcPolicy;
use crate::domain::dmarc_source::{DmarcCounts, SourceKind};
use crate::domain::dmarc_walk::Discovery;
use crate::domain::hostname::DomainName;
use crate::engine::dmarc::{Overview, SOURCES_SHOWN, Source};
use crate::http::openapi::schema::Schema;
use crate::http::openapi::shape::describe;
use crate::http::view::dmarc_reporters::{ReporterView, SignedReporterView, largest};
use crate::machine::dmarc_advice::{Action, Advice};
use crate::store::op::dmarc::start_of;
use crate::store::row::dmarc::DmarcReportRow;

/// Formats a UTC day, counted from the epoch, as a date.
pub(crate) fn date(day: u32) -> String {
    start_of(day).to_date()
}

fn as_date<S: Serializer>(day: &u32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&date(*day))
}

/// Returns a fraction; `None` if the total is 0.
fn rate(count: u64, of: u64) -> Option<f64> {
    // Counts are far below 2^53, above which floats skip integers.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
    let rate = (of > 0).then(|| count as f64 / of as f64);
    rate
}

/// Summary of the reports of a range of days.
#[derive(Serialize)]
pub(in crate::http) struct DmarcView<'a> {
    domain: &'a str,
    #[serde(serialize_with = "as_date")]
    from: u32,
    #[serde(serialize_with = "as_date")]
    to: u32,
    policy: PolicyView<'a>,
    reports: u64,
    reporters: Vec<ReporterView<'a>>,
    all_reporters: Vec<SignedReporterView<'a>>,
    messages: u64,
    passed: u64,
    pass_rate: Option<f64>,
    days: Vec<DayView>,
    sources: Vec<SourceView>,
    recommendation: RecommendationView<'a>,
}

#[derive(Serialize)]
struct PolicyView<'a> {
    record: Option<&'a str>,
    p: Option<&'static str>,
    at: Option<&'a str>,
    inherited: bool,
}

#[derive(Serialize)]
struct DayView {
    #[serde(serialize_with = "as_date")]
    day: u32,
    messages: u64,
    passed: u64,
    quarantined: u64,
    rejected: u64,
}

/// A source.
#[derive(Serialize)]
pub(in crate::http) struct SourceView {
    network: String,
    kind: &'static str,
    mine: Option<bool>,
    #[serde(serialize_with = "as_date")]
    first_seen: u32,
    #[serde(serialize_with = "as_date")]
    last_seen: u32,
    messages: u64,
    passed: u64,
    pass_rate: Option<f64>,
    dkim_aligned: u64,
    spf_aligned: u64,
    dkim_domains: Vec<String>,
    spf_domains: Vec<String>,
}

#[derive(Serialize)]
struct RecommendationView<'a> {
    action: &'static str,
    record: Option<&'a str>,
    reason: &'a str,
    blockers: Vec<String>,
}

/// A report in the list.
#[derive(Serialize)]
pub(in crate::http) struct DmarcReportView<'a> {
    #[serde(serialize_with = "id::as_text")]
    id: DmarcReportId,
    reporter: &'a str,
    from_domain: Option<&'a str>,
    report_id: &'a str,
    #[serde(serialize_with = "iso::serialize")]
    begin: Timestamp,
    #[serde(serialize_with = "iso::serialize")]
    end: Timestamp,
    messages: u64,
    passed: u64,
    skipped_rows: u64,
    authentic: bool,
}

impl<'a> DmarcView<'a> {
    pub(in crate::http) fn new(overview: &'a Overview) -> Self {
        let (messages, passed) = (overview.counts.messages(), overview.counts.passed());
        Self {
            domain: overview.domain.as_str(),
            from: overview.from,
            to: overview.to,
            policy: PolicyView::new(&overview.published),
            reports: overview.reports,
            reporters: largest(overview, false).map(ReporterView::new).collect(),
            all_reporters: [false, true]
                .into_iter()
                .flat_map(|are_ignored| largest(overview, are_ignored))
                .map(SignedReporterView::new)
                .collect(),
            messages,
            passed,
            pass_rate: rate(passed, messages),
            days: overview.days.iter().map(|(day, counts)| DayView::new(*day, counts)).collect(),
            sources: overview.sources.iter().map(SourceView::new).collect(),
            recommendation: RecommendationView::new(&overview.advice),
        }
    }
}

impl<'a> PolicyView<'a> {
    fn new(published: &'a Discovery) -> Self {
        match published {
            Discovery::Published(found) => Self {
                record: Some(&found.text),
                p: Some(found.policy.as_str()),
                at: Some(&found.at),
                inherited: found.is_inherited,
            },
            Discovery::Absent | Discovery::Invalid(_) | Discovery::Unknown => {
                Self { record: None, p: None, at: None, inherited: false }
            }
        }
    }
}

impl DayView {
    fn new(day: u32, counts: &DmarcCounts) -> Self {
        Self {
            day,
            messages: counts.messages(),
            passed: counts.passed(),
            quarantined: counts.disposed(DmarcPolicy::Quarantine),
            rejected: counts.disposed(DmarcPolicy::Reject),
        }
    }
}

impl SourceView {
    pub(in crate::http) fn new(source: &Source) -> Self {
        let (messages, passed) = (source.counts.messages(), source.counts.passed());
        let names = |domains: &[DomainName]| domains.iter().map(ToString::to_string).collect();
        Self {
            network: source.network.to_string(),
            kind: source.kind.as_str(),
            mine: source.is_mine,
            first_seen: source.first_day,
            last_seen: source.last_day,
            messages,
            passed,
            pass_rate: rate(passed, messages),
            dkim_aligned: source.counts.dkim_aligned(),
            spf_aligned: source.counts.spf_aligned(),
            dkim_domains: names(&source.dkim_domains),
            spf_domains: names(&source.spf_domains),
        }
    }
}

impl<'a> RecommendationView<'a> {
    fn new(advice: &'a Advice) -> Self {
        Self {
            action: advice.action.as_str(),
            record: advice.record.as_deref(),
            reason: &advice.reason,
            blockers: advice.blockers.iter().take(SOURCES_SHOWN).map(ToString::to_string).collect(),
        }
    }
}

impl<'a> DmarcReportView<'a> {
    pub(in crate::http) fn new(id: DmarcReportId, row: &'a DmarcReportRow) -> Self {
        Self {
            id,
            reporter: &row.reporter,
            from_domain: row.from_domain.as_ref().map(DomainName::as_str),
            report_id: &row.report_id,
            begin: row.begin,
            end: row.end,
            messages: row.messages,
            passed: row.passed,
            skipped_rows: row.skipped_rows,
            authentic: row.is_authentic,
        }
    }
}

fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Schema {
    Schema::words(words.into_iter().map(Value::from))
}

/// Returns the schema of one of these words, or null.
fn nullable<'a>(words: impl IntoIterator<Item = &'a str>) -> Schema {
    Schema::words(words.into_iter().map(Value::from).chain([Value::Null])).or_null()
}

fn day_schema(_: Schema) -> Schema {
    Schema::string().format("date").example("2026-11-24")
}

describe! {
    DmarcView<'_> as "Dmarc", "Summary of the DMARC aggregate reports about a domain. A signature proves who wrote a \
        report, not that it is true."
    {
        domain: "The domain." => |schema| schema.example("example.com"),
        from: "The first UTC day." => day_schema,
        to: "The last UTC day: today." => day_schema,
        policy: "The effective record at the last DNS check.",
        reports: "Reports that count.",
        reporters: "The 200 largest reporters, most messages first.",
        all_reporters: "The 200 largest reporters with the domains that sign their reports, then the 200 largest \
            ignored ones.",
        messages: "Messages in the reports.",
        passed: "Messages for which DKIM or SPF passed and aligned.",
        pass_rate: "The share that passed, from 0 to 1; null without messages." => |schema| schema.example(0.98),
        days: "The days with reports.",
        sources: "The 200 largest sources.",
        recommendation: "The next step, based on the last 30 days.",
    }
}

describe! {
    PolicyView<'_> as "DmarcRecord", "The effective DMARC record of a domain; all null if there is none."
    {
        record: "The text." => |schema| schema.example("v=DMARC1; p=none; rua=mailto:dmarc@rp.example.com"),
        p: "The policy for this domain. For an inherited record, its subdomain policy."
            => |_| nullable(DmarcPolicy::ALL.map(DmarcPolicy::as_str)).example("none"),
        at: "The name at which it is published." => |schema| schema.example("_dmarc.example.com"),
        inherited: "Whether the record comes from a parent domain.",
    }
}

describe! {
    DayView as "DmarcDay", "The messages of one day."
    {
        day: "The UTC day that contains the middle of the report's range." => day_schema,
        messages: "Messages.",
        passed: "Messages for which DKIM or SPF passed and aligned.",
        quarantined: "Messages that were quarantined.",
        rejected: "Messages that were rejected.",
    }
}

describe! {
    SourceView as "DmarcSource", "A network that sent mail with the domain in From."
    {
        network: "The network: a /24, a /48, or `other` for all beyond 1,000 of a day."
            => |_| Schema::string().example("192.0.2.0/24"),
        kind: "The kind of source: `own` is this service, a `forwarder` passes on signed mail, and mail of an \
            `authorised` source has passed a check."
            => |_| words(SourceKind::ALL.map(SourceKind::as_str)).example("own"),
        mine: "Whether you marked it as yours; null without a mark." => |schema| schema.example(()),
        first_seen: "The first day on which a report names it." => day_schema,
        last_seen: "The last day on which a report names it." => day_schema,
        messages: "Messages in the range.",
        passed: "Messages for which DKIM or SPF passed and aligned.",
        pass_rate: "The share that passed, from 0 to 1; null without messages." => |schema| schema.example(1.0),
        dkim_aligned: "Messages for which DKIM passed and aligned.",
        spf_aligned: "Messages for which SPF passed and aligned.",
        dkim_domains: "The three domains that signed most often." => |schema| schema.example(["example.com"]),
        spf_domains: "The three domains that SPF was checked for most often."
            => |schema| schema.example(["rp.example.com"]),
    }
}

describe! {
    RecommendationView<'_> as "DmarcRecommendation", "The next step towards a policy that protects the domain."
    {
        action: "Advice." => |_| words(Action::ALL.map(Action::as_str)).example("wait"),
        record: "The text to publish at `_dmarc.<domain>`; null if the record stays." => |schema| schema.example(()),
        reason: "The reason, with figures.",
        blockers: "The sources that block the next step." => |schema| schema.example(["198.51.100.0/24"]),
    }
}

describe! {
    DmarcReportView<'_> as "DmarcReport", "One aggregate report, or the part of it that belongs to the domain."
    {
        id: "The report's identifier.",
        reporter: "The reporting organisation, as it names itself." => |schema| schema.example("google.com"),
        from_domain: "The domain that sent the report; null if its From header does not have exactly one address."
            => |schema| schema.example("google.com"),
        report_id: "The reporter's identifier." => |schema| schema.example("12345678901234567890"),
        begin: "The first second of its range.",
        end: "The last second of its range.",
        messages: "Messages.",
        passed: "Messages for which DKIM or SPF passed and aligned.",
        skipped_rows: "Rows without a valid address or count.",
        authentic: "Whether a DKIM signature proves who sent it. Only authentic reports count.",
    }
}
