//! The next step of a domain towards a DMARC policy of `reject`, according to 30 days of reports.
//!
//! The first condition that applies decides:
//!
//! ```text
//! no record                        publish      a record for reports, which asks receivers for nothing else
//! rua names no address of ours     add_rua      theirs, with ours
//! too few days or messages         wait
//! own mail fails                   fix          blockers: the sources that fail
//! unmarked others fail             review       blockers: the sources that fail
//! p=none                           quarantine   theirs, with p=quarantine
//! p=quarantine for too few days    wait
//! p=quarantine                     reject       theirs, with p=reject
//! p=reject                         keep
//! ```

use crate::base::digits::grouped;
use crate::domain::dmarc_record::{DmarcPolicy, DmarcRecord};
use crate::domain::dmarc_source::{SourceKind, SourceNetwork};
use crate::domain::dmarc_walk::{Discovery, PublishedRecord};

/// Number of days of reports that the advice considers.
pub const DAYS: u32 = 30;
/// Minimum number of days with reports.
const DAYS_MIN: u32 = 14;
/// Minimum number of messages.
const MESSAGES_MIN: u64 = 100;

/// Facts about a domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evidence {
    /// The applicable record, from the last DNS check.
    pub published: Discovery,
    /// Whether the domain's DNS was ever checked.
    pub was_checked: bool,
    /// The record for a domain without one.
    pub our_record: String,
    /// Our address for reports; `None` if this service receives no mail.
    pub our_address: Option<String>,
    /// Whether the record requests reports to one of our addresses.
    pub reports_to_us: bool,
    /// Number of days with a counted report.
    pub days_with_reports: u32,
    /// Number of days with a counted report that listed `p=quarantine`.
    pub quarantine_days: u32,
    /// The sources of the domain's mail.
    pub sources: Vec<SourceFigures>,
}

/// The messages of one source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceFigures {
    /// The network.
    pub network: SourceNetwork,
    /// Classification of the source.
    pub kind: SourceKind,
    /// Whether the account has marked the source as its own; `None` if unmarked.
    pub is_mine: Option<bool>,
    /// Number of messages.
    pub messages: u64,
    /// Number of messages that failed.
    pub failed: u64,
}

impl SourceFigures {
    /// Returns whether the source's mail is the domain's own and must pass.
    pub const fn is_own(&self) -> bool {
        matches!(self.kind, SourceKind::Own) || matches!(self.is_mine, Some(true))
    }

    /// Returns whether the source is not marked yet.
    const fn is_open(&self) -> bool {
        self.is_mine.is_none() && matches!(self.kind, SourceKind::Unknown | SourceKind::Authorised)
    }
}

/// Recommended step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Publish a record.
    Publish,
    /// Add one of our addresses to `rua`.
    AddRua,
    /// Wait for more reports.
    Wait,
    /// Repair SPF or DKIM of the domain's own mail.
    Fix,
    /// Mark the domain's own sources.
    Review,
    /// Publish `p=quarantine`.
    Quarantine,
    /// Publish `p=reject`.
    Reject,
    /// No change.
    Keep,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 8] =
        [Self::Publish, Self::AddRua, Self::Wait, Self::Fix, Self::Review, Self::Quarantine, Self::Reject, Self::Keep];

    /// Returns the name used in every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::AddRua => "add_rua",
            Self::Wait => "wait",
            Self::Fix => "fix",
            Self::Review => "review",
            Self::Quarantine => "quarantine",
            Self::Reject => "reject",
            Self::Keep => "keep",
        }
    }
}

/// A recommendation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// Recommended step.
    pub action: Action,
    /// The text to publish at the domain's own name, if the record should change.
    pub record: Option<String>,
    /// The reason, with its figures.
    pub reason: String,
    /// The sources that block the next step, most failures first.
    pub blockers: Vec<SourceNetwork>,
}

impl Advice {
    fn new(action: Action, reason: impl Into<String>) -> Self {
        Self { action, record: None, reason: reason.into(), blockers: Vec::new() }
    }

    fn with_record(self, record: impl ToString) -> Self {
        Self { record: Some(record.to_string()), ..self }
    }
}

/// A number of messages, and how many of them failed.
#[derive(Clone, Copy, Default)]
struct Failures {
    failed: u64,
    messages: u64,
}

impl Failures {
    fn of<'s>(sources: impl Iterator<Item = &'s SourceFigures>) -> Self {
        sources.fold(Self::default(), |sum, source| Self {
            failed: sum.failed.saturating_add(source.failed),
            messages: sum.messages.saturating_add(source.messages),
        })
    }

    /// Returns whether more than 1 % failed.
    const fn is_over_limit(self) -> bool {
        self.failed.saturating_mul(100) > self.messages
    }

    /// Formats the failed share in percent.
    fn percent(self) -> String {
        let tenths = u128::from(self.failed) * 1000 / u128::from(self.messages.max(1));
        format!("{}.{}%", tenths / 10, tenths % 10)
    }
}

/// Returns the recommended next step.
pub fn advise(evidence: &Evidence) -> Advice {
    let published = match &evidence.published {
        Discovery::Published(published) => published,
        Discovery::Absent => {
            let reason =
                "There is no valid DMARC record for this domain or a parent domain; several at one name are ignored.";
            return Advice::new(Action::Publish, reason).with_record(&evidence.our_record);
        }
        Discovery::Invalid(text) => {
            let reason = format!("Receivers ignore the domain's DMARC record, because it is invalid: {text}");
            return Advice::new(Action::Publish, reason).with_record(&evidence.our_record);
        }
        Discovery::Unknown if !evidence.was_checked => {
            let reason = "The DNS was not checked yet. Check it first, and publish this record only if there is none.";
            return Advice::new(Action::Publish, reason).with_record(&evidence.our_record);
        }
        Discovery::Unknown => {
            return Advice::new(Action::Wait, "The last lookup of the domain's DMARC record failed.");
        }
    };
    let theirs = published.at_own_name();
    if let Some(address) = evidence.our_address.as_ref().filter(|_| !evidence.reports_to_us) {
        let reason = format!("The record at {} does not request reports to {address}.", published.at);
        return Advice::new(Action::AddRua, reason).with_record(theirs.with_report_address(address));
    }
    by_reports(evidence, published, theirs)
}

/// Returns the step of a domain whose reports come here.
fn by_reports(evidence: &Evidence, published: &PublishedRecord, theirs: DmarcRecord) -> Advice {
    let all = Failures::of(evidence.sources.iter());
    let (days, messages, of) = (evidence.days_with_reports, all.messages, grouped(all.messages));
    if days < DAYS_MIN || messages < MESSAGES_MIN {
        let reason = format!(
            "Days with reports in the last {DAYS} days: {days} ({DAYS_MIN} are needed). \
             Messages in them: {of} ({MESSAGES_MIN} are needed)."
        );
        return Advice::new(Action::Wait, reason);
    }
    let own = Failures::of(evidence.sources.iter().filter(|source| source.is_own()));
    if own.is_over_limit() {
        let (failed, of) = (grouped(own.failed), grouped(own.messages));
        let share = own.percent();
        let reason = format!("{failed} of {of} messages from your own sources failed ({share}). At most 1% may fail.");
        let blockers = failing(evidence, SourceFigures::is_own);
        return Advice { blockers, ..Advice::new(Action::Fix, reason) };
    }
    let open = Failures::of(evidence.sources.iter().filter(|source| source.is_open()));
    let share = Failures { failed: open.failed, messages };
    if share.is_over_limit() {
        let reason = format!(
            "{} of {of} messages failed and come from unmarked sources ({}). At most 1% may fail.",
            grouped(open.failed),
            share.percent()
        );
        let blockers = failing(evidence, SourceFigures::is_open);
        return Advice { blockers, ..Advice::new(Action::Review, reason) };
    }
    let passed = grouped(messages.saturating_sub(all.failed));
    let figures = format!("{passed} of {of} messages passed in reports of {days} days");
    match published.effective_policy() {
        DmarcPolicy::None => Advice::new(Action::Quarantine, format!("{figures}, and none are protected yet."))
            .with_record(theirs.with_policy(DmarcPolicy::Quarantine)),
        DmarcPolicy::Quarantine if evidence.quarantine_days < DAYS_MIN => {
            let seen = evidence.quarantine_days;
            let reason = format!("Days with reports under p=quarantine: {seen} ({DAYS_MIN} are needed for p=reject).");
            Advice::new(Action::Wait, reason)
        }
        DmarcPolicy::Quarantine => {
            let reason = format!("{figures}, of which {} saw p=quarantine.", evidence.quarantine_days);
            Advice::new(Action::Reject, reason).with_record(theirs.with_policy(DmarcPolicy::Reject))
        }
        DmarcPolicy::Reject => Advice::new(Action::Keep, format!("{figures}, and receivers reject failing mail.")),
    }
}

fn failing(evidence: &Evidence, is_meant: impl Fn(&SourceFigures) -> bool) -> Vec<SourceNetwork> {
    let mut failing: Vec<_> = evidence.sources.iter().filter(|source| is_meant(source) && source.failed > 0).collect();
    failing.sort_by_key(|source| (std::cmp::Reverse(source.failed), source.network));
    failing.into_iter().map(|source| source.network).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::dmarc_walk::{Answer, discover};

    const OURS: &str = "v=DMARC1; p=none; rua=mailto:dmarc@rp.a.example";
    const RUA: &str = "rua=mailto:dmarc@rp.a.example";

    fn network(number: u8) -> SourceNetwork {
        SourceNetwork::V4([192, 0, number])
    }

    fn source(number: u8, kind: SourceKind, messages: u64, failed: u64) -> SourceFigures {
        SourceFigures { network: network(number), kind, is_mine: None, messages, failed }
    }

    /// Returns facts about a domain with this record at this name, whose reports show no problem.
    fn evidence(at: &str, record: &str) -> Evidence {
        let (own, records) = ("_dmarc.a.example", vec![record.to_owned()]);
        let mut answers = vec![Answer { name: own, records: Some(&[]) }, Answer { name: at, records: Some(&records) }];
        if at == own {
            answers.remove(0);
        }
        Evidence {
            published: discover(&answers),
            was_checked: true,
            our_record: OURS.to_owned(),
            our_address: Some("dmarc@rp.a.example".to_owned()),
            reports_to_us: record.contains("@rp.a.example"),
            days_with_reports: 14,
            quarantine_days: 14,
            sources: vec![source(1, SourceKind::Own, 100, 1)],
        }
    }

    fn own(record: &str) -> Evidence {
        evidence("_dmarc.a.example", record)
    }

    fn step(evidence: &Evidence) -> (Action, Option<String>) {
        let advice = advise(evidence);
        assert!(!advice.reason.is_empty());
        (advice.action, advice.record)
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn advises_publish_if_no_record_applies() {
        let ours = (Action::Publish, some(OURS));
        assert_eq!(step(&Evidence { published: Discovery::Absent, ..own("") }), ours);
        assert_eq!(step(&own("v=DMARC1")), ours, "an invalid record is replaced");
        assert_eq!(step(&own("v=spf1 -all")), ours);
        let unchecked = Evidence { published: Discovery::Unknown, was_checked: false, ..own("") };
        assert_eq!(step(&unchecked), ours);
    }

    #[test]
    fn advises_add_rua_if_reports_go_only_elsewhere() {
        let theirs = own("v=DMARC1; p=reject; rua=mailto:x@other.example");
        let both = format!("v=DMARC1; p=reject; rua=mailto:x@other.example,{}", &RUA[4..]);
        assert_eq!(step(&theirs), (Action::AddRua, some(&both)));
        let inherited = evidence("_dmarc.example", "v=DMARC1; p=reject; sp=none");
        assert_eq!(step(&inherited), (Action::AddRua, some(&format!("v=DMARC1; p=none; {RUA}"))));
        let deaf = Evidence { our_address: None, ..theirs };
        assert_eq!(step(&deaf).0, Action::Keep, "there is no address to add");
    }

    #[test]
    fn advises_wait_until_fourteen_days_and_a_hundred_messages() {
        let good = own(&format!("v=DMARC1; p=none; {RUA}"));
        assert_eq!(step(&Evidence { days_with_reports: 13, ..good.clone() }), (Action::Wait, None));
        let few = vec![source(1, SourceKind::Own, 99, 0)];
        assert_eq!(step(&Evidence { sources: few, ..good.clone() }), (Action::Wait, None));
        assert_eq!(step(&Evidence { published: Discovery::Unknown, ..good.clone() }), (Action::Wait, None));
        assert_ne!(step(&good).0, Action::Wait);
    }

    #[test]
    fn advises_fix_if_over_one_percent_of_own_mail_fails() {
        let good = own(&format!("v=DMARC1; p=none; {RUA}"));
        let mine = SourceFigures { is_mine: Some(true), ..source(3, SourceKind::Unknown, 10, 10) };
        let sources = vec![source(1, SourceKind::Own, 1000, 1), source(2, SourceKind::Own, 1000, 0), mine];
        let advice = advise(&Evidence { sources: sources.clone(), ..good.clone() });
        assert_eq!(
            (advice.action, advice.record),
            (Action::Quarantine, some(&format!("v=DMARC1; p=quarantine; {RUA}")))
        );
        let more = SourceFigures { messages: 20, failed: 20, ..mine };
        let advice = advise(&Evidence { sources: vec![sources[0], sources[1], more], ..good });
        assert_eq!((advice.action, advice.record), (Action::Fix, None));
        assert_eq!(advice.blockers, [network(3), network(1)]);
        assert_eq!(advice.reason, "21 of 2,020 messages from your own sources failed (1.0%). At most 1% may fail.");
    }

    #[test]
    fn advises_review_if_unmarked_sources_fail() {
        let good = own(&format!("v=DMARC1; p=none; {RUA}"));
        let with = |kind, is_mine, failed| {
            let other = SourceFigures { is_mine, ..source(2, kind, 50, failed) };
            advise(&Evidence { sources: vec![source(1, SourceKind::Own, 950, 0), other], ..good.clone() })
        };
        for kind in [SourceKind::Unknown, SourceKind::Authorised] {
            let advice = with(kind, None, 11);
            assert_eq!((advice.action, advice.blockers), (Action::Review, vec![network(2)]));
            assert_eq!(with(kind, None, 10).action, Action::Quarantine, "10 of 1000 are 1 %");
            assert_eq!(with(kind, Some(false), 50).action, Action::Quarantine);
        }
        assert_eq!(with(SourceKind::Forwarder, None, 50).action, Action::Quarantine);
    }

    #[test]
    fn advises_quarantine_after_none() {
        let theirs = own(&format!("v=DMARC1; p=none; sp=none; x=y; {RUA}; pct=50"));
        let record = format!("v=DMARC1; p=quarantine; sp=none; x=y; {RUA}");
        assert_eq!(step(&theirs), (Action::Quarantine, some(&record)));
        let testing = own(&format!("v=DMARC1; p=quarantine; t=y; {RUA}"));
        assert_eq!(step(&testing), (Action::Quarantine, some(&format!("v=DMARC1; p=quarantine; {RUA}"))));
        let inherited = evidence("_dmarc.example", &format!("v=DMARC1; p=reject; sp=none; {RUA}"));
        assert_eq!(step(&inherited), (Action::Quarantine, some(&format!("v=DMARC1; p=quarantine; {RUA}"))));
    }

    #[test]
    fn advises_reject_after_fourteen_days_of_quarantine() {
        let theirs = own(&format!("v=DMARC1; p=quarantine; {RUA}"));
        assert_eq!(step(&Evidence { quarantine_days: 13, ..theirs.clone() }), (Action::Wait, None));
        assert_eq!(step(&theirs), (Action::Reject, some(&format!("v=DMARC1; p=reject; {RUA}"))));
    }

    #[test]
    fn advises_keep_for_reject() {
        assert_eq!(step(&own(&format!("v=DMARC1; p=reject; {RUA}"))), (Action::Keep, None));
        assert_eq!(step(&own(&format!("v=DMARC1; p=reject; t=y; {RUA}"))).0, Action::Reject);
    }
}
