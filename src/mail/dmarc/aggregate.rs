//! Builds an aggregate report (RFC 9990, RFC 7489 C) from the elements of its document. Rows are added up during
//! reading, so they are never all in memory.

use std::collections::HashMap;
use std::net::IpAddr;

use super::xml::Handler;
use super::{COUNT_MAX, NETWORKS_MAX, OwnDomains, PARTS_MAX, ROWS_MAX, SIGNERS_MAX, Unreadable};
use crate::domain::dmarc_record::DmarcPolicy;
use crate::domain::dmarc_source::{DmarcCounts, Evaluation, SourceNetwork};
use crate::domain::hostname::DomainName;
use crate::domain::text::is_deceptive;

/// A report with its rows added up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AggregateReport {
    /// The reporting organisation's name for itself.
    pub reporter: String,
    /// The organisation's report ID.
    pub report_id: String,
    /// First second of the range, since the epoch.
    pub begin: u64,
    /// Last second of the range.
    pub end: u64,
    /// The domain whose policy was applied.
    pub policy_domain: DomainName,
    /// The messages of each of our domains, in the order of their indexes.
    pub parts: Vec<Part>,
}

/// The part of a report that belongs to one domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Index of the domain among ours.
    pub domain: usize,
    /// The policy published in its DNS, as seen by the reporter.
    pub policy: DmarcPolicy,
    /// Number of rows without a valid source or count.
    pub skipped_rows: u64,
    /// Messages by source, sorted by network.
    pub sources: Vec<(SourceNetwork, Source)>,
}

/// The messages from one network.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Source {
    /// Message counts by evaluation.
    pub counts: DmarcCounts,
    /// Whether some of the messages had one of our signatures.
    pub has_own_signature: bool,
    /// The signing domains, with the message counts of their rows.
    pub dkim_domains: Vec<(DomainName, u64)>,
    /// The domains checked by SPF, with the message counts of their rows.
    pub spf_domains: Vec<(DomainName, u64)>,
}

/// The relevant elements, identified by local name and parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Element {
    Feedback,
    Metadata,
    OrgName,
    ReportId,
    DateRange,
    Begin,
    End,
    Published,
    PolicyDomain,
    Policy,
    SubdomainPolicy,
    Record,
    Row,
    SourceIp,
    Count,
    Evaluated,
    Disposition,
    EvaluatedDkim,
    EvaluatedSpf,
    Identifiers,
    HeaderFrom,
    Results,
    DkimResult,
    SpfResult,
    ResultDomain,
    ResultSelector,
    Result,
    Unknown,
}

impl Element {
    /// Returns the element with this name inside `parent`, which is `None` for the root.
    fn inside(parent: Option<Self>, name: &str) -> Self {
        match (parent, name) {
            (None, "feedback") => Self::Feedback,
            (Some(Self::Feedback), "report_metadata") => Self::Metadata,
            (Some(Self::Metadata), "org_name") => Self::OrgName,
            (Some(Self::Metadata), "report_id") => Self::ReportId,
            (Some(Self::Metadata), "date_range") => Self::DateRange,
            (Some(Self::DateRange), "begin") => Self::Begin,
            (Some(Self::DateRange), "end") => Self::End,
            (Some(Self::Feedback), "policy_published") => Self::Published,
            (Some(Self::Published), "domain") => Self::PolicyDomain,
            (Some(Self::Published), "p") => Self::Policy,
            (Some(Self::Published), "sp") => Self::SubdomainPolicy,
            (Some(Self::Feedback), "record") => Self::Record,
            (Some(Self::Record), "row") => Self::Row,
            (Some(Self::Row), "source_ip") => Self::SourceIp,
            (Some(Self::Row), "count") => Self::Count,
            (Some(Self::Row), "policy_evaluated") => Self::Evaluated,
            (Some(Self::Evaluated), "disposition") => Self::Disposition,
            (Some(Self::Evaluated), "dkim") => Self::EvaluatedDkim,
            (Some(Self::Evaluated), "spf") => Self::EvaluatedSpf,
            // An early draft has another name for the same element.
            (Some(Self::Record), "identifiers" | "identities") => Self::Identifiers,
            (Some(Self::Identifiers), "header_from") => Self::HeaderFrom,
            (Some(Self::Record), "auth_results") => Self::Results,
            (Some(Self::Results), "dkim") => Self::DkimResult,
            (Some(Self::Results), "spf") => Self::SpfResult,
            (Some(Self::DkimResult | Self::SpfResult), "domain") => Self::ResultDomain,
            (Some(Self::DkimResult), "selector") => Self::ResultSelector,
            (Some(Self::DkimResult | Self::SpfResult), "result") => Self::Result,
            _ => Self::Unknown,
        }
    }
}

/// A DKIM or SPF result of a row.
#[derive(Default)]
struct AuthResult {
    domain: Option<DomainName>,
    selector: String,
    /// Whether nothing was checked.
    is_none: bool,
}

/// A row that is being read.
#[derive(Default)]
struct Row {
    source: Option<IpAddr>,
    count: Option<u64>,
    disposition: Option<DmarcPolicy>,
    dkim: bool,
    spf: bool,
    header_from: String,
    dkim_results: Vec<AuthResult>,
    spf_results: Vec<AuthResult>,
    result: AuthResult,
}

/// The sums of one domain. The policy's domain is known only once it has been read.
#[derive(Default)]
struct Sums {
    skipped_rows: u64,
    sources: HashMap<SourceNetwork, Source>,
}

/// Builds a report.
pub(super) struct Builder<'n> {
    names: &'n mut dyn OwnDomains,
    open: Vec<Element>,
    is_report: bool,
    reporter: String,
    report_id: String,
    begin: Option<u64>,
    end: Option<u64>,
    policy_domain: Option<DomainName>,
    policy: Option<DmarcPolicy>,
    subdomain_policy: Option<DmarcPolicy>,
    row: Row,
    rows: usize,
    networks: usize,
    sums: HashMap<Option<usize>, Sums>,
    /// Cache of `header_from` texts and their domains, which repeat from row to row.
    known: HashMap<String, Option<usize>>,
}

/// Maximum number of cached texts while a report is read.
const KNOWN_MAX: usize = 1000;
/// Maximum number of networks counted separately in a report, over all of its domains. Each takes some 200 bytes.
const ALL_NETWORKS_MAX: usize = 10 * NETWORKS_MAX;
/// Maximum number of DKIM or SPF results that are read of one row.
const RESULTS_MAX: usize = 10;

impl<'n> Builder<'n> {
    pub(super) fn new(names: &'n mut dyn OwnDomains) -> Self {
        Self {
            names,
            open: Vec::new(),
            is_report: false,
            reporter: String::new(),
            report_id: String::new(),
            begin: None,
            end: None,
            policy_domain: None,
            policy: None,
            subdomain_policy: None,
            row: Row::default(),
            rows: 0,
            networks: 0,
            sums: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// Returns the report after its document has ended.
    pub(super) fn finish(self) -> Result<AggregateReport, Unreadable> {
        if !self.is_report {
            return Err(Unreadable::NoReport);
        }
        let (Some(begin), Some(end), Some(policy_domain)) = (self.begin, self.end, self.policy_domain) else {
            return Err(Unreadable::Incomplete);
        };
        if self.reporter.is_empty() || self.report_id.is_empty() {
            return Err(Unreadable::Incomplete);
        }
        let own = self.names.domain(&policy_domain);
        let policy = self.policy.unwrap_or(DmarcPolicy::None);
        let subdomain_policy = self.subdomain_policy.unwrap_or(policy);
        let mut sums = self.sums;
        let mut by_domain: HashMap<usize, Sums> = own.map(|own| (own, Sums::default())).into_iter().collect();
        // Rows for other domains than ours belong to the policy's domain, if that is ours.
        let rest = sums.remove(&None).zip(own).map(|(rest, own)| (Some(own), rest));
        for (domain, sums) in sums.into_iter().chain(rest) {
            let Some(domain) = domain else { continue };
            by_domain.entry(domain).or_default().merge(sums);
        }
        let parts = by_domain.into_iter().map(|(domain, sums)| {
            let policy = if own == Some(domain) { policy } else { subdomain_policy };
            let mut sources: Vec<_> = sums.sources.into_iter().collect();
            sources.sort_unstable_by_key(|(network, _)| *network);
            Part { domain, policy, skipped_rows: sums.skipped_rows, sources }
        });
        let mut parts: Vec<_> = parts.collect();
        parts.sort_unstable_by_key(|part| part.domain);
        Ok(AggregateReport { reporter: self.reporter, report_id: self.report_id, begin, end, policy_domain, parts })
    }

    /// Adds the current row.
    fn add_row(&mut self) -> Result<(), Unreadable> {
        self.rows += 1;
        if self.rows > ROWS_MAX {
            return Err(Unreadable::TooManyRows);
        }
        let row = std::mem::take(&mut self.row);
        let mut domain = self.domain_of(&row.header_from);
        if self.sums.len() > PARTS_MAX && !self.sums.contains_key(&domain) {
            domain = None;
        }
        let (Some(source), Some(count)) = (row.source, row.count) else {
            self.sums.entry(domain).or_default().skipped_rows += 1;
            return Ok(());
        };
        let network = self.place(domain, SourceNetwork::of(source));
        let sums = self.sums.entry(domain).or_default();
        let source = sums.sources.entry(network).or_default();
        let disposition = row.disposition.unwrap_or(DmarcPolicy::None);
        source.counts.add(Evaluation { disposition, dkim: row.dkim, spf: row.spf }, count);
        for result in row.dkim_results {
            let Some(signer) = result.domain else { continue };
            let of = self.names.domain(&signer);
            source.has_own_signature |= of.is_some_and(|of| self.names.has_selector(of, &result.selector));
            if !result.is_none {
                count_signer(&mut source.dkim_domains, signer, count);
            }
        }
        for domain in row.spf_results.into_iter().filter_map(|result| result.domain) {
            count_signer(&mut source.spf_domains, domain, count);
        }
        Ok(())
    }

    /// Returns the network under which messages of a domain are counted.
    fn place(&mut self, domain: Option<usize>, network: SourceNetwork) -> SourceNetwork {
        let sums = self.sums.get(&domain);
        if sums.is_some_and(|sums| sums.sources.contains_key(&network)) {
            return network;
        }
        let of_domain = sums.map_or(0, |sums| sums.sources.len());
        if of_domain < NETWORKS_MAX && self.networks < ALL_NETWORKS_MAX {
            self.networks += 1;
            return network;
        }
        // Rows of unknown domains belong to the policy's domain.
        let names = &mut *self.names;
        let of = domain.or_else(|| self.policy_domain.as_ref().and_then(|name| names.domain(name)));
        match of {
            Some(of) if names.is_own_network(of, network) => network,
            _ => SourceNetwork::Other,
        }
    }

    /// Returns the index of the domain in a row's `header_from`.
    fn domain_of(&mut self, header_from: &str) -> Option<usize> {
        if let Some(known) = self.known.get(header_from) {
            return *known;
        }
        // Some reporters write the whole address.
        let name = header_from.rsplit_once('@').map_or(header_from, |(_, name)| name.trim_end_matches('>'));
        let found = domain(name).and_then(|name| self.names.domain(&name));
        if self.known.len() < KNOWN_MAX {
            self.known.insert(header_from.to_owned(), found);
        }
        found
    }
}

impl Sums {
    fn merge(&mut self, more: Self) {
        self.skipped_rows += more.skipped_rows;
        for (network, more) in more.sources {
            let source = self.sources.entry(network).or_default();
            source.counts.merge(&more.counts);
            source.has_own_signature |= more.has_own_signature;
            for (domain, count) in more.dkim_domains {
                count_signer(&mut source.dkim_domains, domain, count);
            }
            for (domain, count) in more.spf_domains {
                count_signer(&mut source.spf_domains, domain, count);
            }
        }
    }
}

/// Counts messages of one domain. If the list is full, the domain replaces the one with the lowest count and takes over
/// that count. A frequent domain therefore always gets an entry.
fn count_signer(list: &mut Vec<(DomainName, u64)>, domain: DomainName, count: u64) {
    if let Some((_, counted)) = list.iter_mut().find(|(known, _)| *known == domain) {
        *counted = counted.saturating_add(count);
    } else if list.len() < SIGNERS_MAX {
        list.push((domain, count));
    } else if let Some(rarest) = list.iter_mut().min_by_key(|(_, counted)| *counted) {
        *rarest = (domain, rarest.1.saturating_add(count));
    }
}

/// Parses a domain of a report. A trailing dot is accepted.
fn domain(text: &str) -> Option<DomainName> {
    text.trim().trim_end_matches('.').parse().ok()
}

/// Converts untrusted text to one line without characters that control lines or the direction of text.
fn line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() || is_deceptive(c) { ' ' } else { c }).collect();
    line.trim().to_owned()
}

fn is_pass(text: &str) -> bool {
    text.eq_ignore_ascii_case("pass")
}

impl Handler for Builder<'_> {
    fn start(&mut self, name: &str) {
        let element = Element::inside(self.open.last().copied(), name);
        self.is_report |= element == Element::Feedback;
        match element {
            Element::Record => self.row = Row::default(),
            Element::DkimResult | Element::SpfResult => self.row.result = AuthResult::default(),
            _ => {}
        }
        self.open.push(element);
    }

    fn end(&mut self, text: &str) -> Result<(), Unreadable> {
        let Some(element) = self.open.pop() else { return Ok(()) };
        let row = &mut self.row;
        match element {
            Element::OrgName if self.reporter.is_empty() => self.reporter = line(text),
            Element::ReportId if self.report_id.is_empty() => self.report_id = line(text),
            Element::Begin => self.begin = self.begin.or_else(|| text.parse().ok()),
            Element::End => self.end = self.end.or_else(|| text.parse().ok()),
            Element::PolicyDomain if self.policy_domain.is_none() => self.policy_domain = domain(text),
            Element::Policy => self.policy = self.policy.or_else(|| DmarcPolicy::parse(text)),
            Element::SubdomainPolicy => {
                self.subdomain_policy = self.subdomain_policy.or_else(|| DmarcPolicy::parse(text));
            }
            Element::SourceIp => row.source = text.parse().ok(),
            Element::Count => row.count = text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count)),
            Element::Disposition => row.disposition = DmarcPolicy::parse(text),
            Element::EvaluatedDkim => row.dkim = is_pass(text),
            Element::EvaluatedSpf => row.spf = is_pass(text),
            Element::HeaderFrom => text.clone_into(&mut row.header_from),
            Element::ResultDomain => row.result.domain = domain(text),
            Element::ResultSelector => text.clone_into(&mut row.result.selector),
            Element::Result => row.result.is_none = text.eq_ignore_ascii_case("none"),
            Element::DkimResult if row.dkim_results.len() < RESULTS_MAX => {
                row.dkim_results.push(std::mem::take(&mut row.result));
            }
            Element::SpfResult if row.spf_results.len() < RESULTS_MAX => {
                row.spf_results.push(std::mem::take(&mut row.result));
            }
            Element::Record => self.add_row()?,
            _ => {}
        }
        Ok(())
    }
}
