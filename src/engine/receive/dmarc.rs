//! DMARC aggregate reports received by mail: parsed, authenticated by the signature of their From domain, and recorded
//! for each of our domains that they cover.

use std::collections::{HashMap, HashSet};

use super::Receiver;
use crate::base::id::{AccountId, DomainId, Ulid};
use crate::base::meter::Counter;
use crate::base::time::Timestamp;
use crate::domain::dmarc_source::{DmarcCounts, SourceNetwork};
use crate::domain::hostname::DomainName;
use crate::domain::network::Network;
use crate::engine::dkim::is_selector_of;
use crate::mail::dkim_verify::{self, UnverifiedSignature};
use crate::mail::dmarc::{self, AggregateReport, OwnDomains, Part, Unreadable};
use crate::store::error::{OpError, StoreError};
use crate::store::op::dmarc::{RecordDmarcReport, RecordOutcome, SourceCounts};
use crate::store::read::Read as _;
use crate::store::row::dmarc::{DmarcReportRow, DmarcSourceRow};
use crate::store::schema::Table;
use crate::store::schema::dmarc::dmarc_source;
use crate::store::snapshot::Snapshot;

/// Result of processing a report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DmarcResult {
    /// The report covers none of our domains.
    UnknownDomain,
    /// The day has the maximum number of reports.
    OverLimit,
    /// The report was counted before.
    Repeated,
    /// The report is listed but not counted, because it is not authenticated.
    Unauthentic,
    /// The report is counted.
    Counted,
    /// The report can't be parsed.
    Unreadable,
}

impl DmarcResult {
    /// All results.
    pub const ALL: [Self; 6] =
        [Self::UnknownDomain, Self::OverLimit, Self::Repeated, Self::Unauthentic, Self::Counted, Self::Unreadable];

    /// Returns the name in the log and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownDomain => "unknown_domain",
            Self::OverLimit => "over_limit",
            Self::Repeated => "repeated",
            Self::Unauthentic => "unauthentic",
            Self::Counted => "counted",
            Self::Unreadable => "unreadable",
        }
    }
}

impl From<RecordOutcome> for DmarcResult {
    fn from(recorded: RecordOutcome) -> Self {
        match recorded {
            RecordOutcome::Counted => Self::Counted,
            RecordOutcome::Unauthentic => Self::Unauthentic,
            RecordOutcome::Repeated => Self::Repeated,
            RecordOutcome::OverLimit => Self::OverLimit,
        }
    }
}

/// Number of reports since the start, by result.
#[derive(Debug, Default)]
pub struct DmarcTally([Counter; DmarcResult::ALL.len()]);

impl DmarcTally {
    fn count(&self, result: DmarcResult) {
        self.0[result as usize].count();
    }

    /// Returns the counts.
    pub fn read(&self) -> impl Iterator<Item = (&'static str, u64)> {
        DmarcResult::ALL.into_iter().map(|result| (result.as_str(), self.0[result as usize].read()))
    }
}

/// A parsed message with reports.
struct ReadReports {
    reports: Result<Vec<AggregateReport>, Unreadable>,
    domains: Vec<OwnDomain>,
    /// Networks that this service sends from.
    own: HashSet<SourceNetwork>,
    from_domain: Option<DomainName>,
    signatures: Vec<UnverifiedSignature>,
}

/// A domain that reports may cover.
struct OwnDomain {
    account: AccountId,
    domain: DomainId,
}

impl Receiver {
    /// Processes a message to a mailbox for reports. When this returns, its reports are on disk.
    pub(super) async fn receive_dmarc(&self, client: Network, message: Vec<u8>) -> Result<(), StoreError> {
        let reading = self.read_dmarc(client, message).await?;
        let reports = match &reading.reports {
            Ok(reports) => reports,
            Err(reason) => {
                tracing::info!(%reason, "could not read a DMARC report");
                self.engine.meters.dmarc_reports.count(DmarcResult::Unreadable);
                return Ok(());
            }
        };
        let is_known = reports.iter().any(|report| !report.parts.is_empty());
        // Reports that do not name any of our domains cause no lookup.
        let signer = if is_known { self.signer(&reading).await } else { None };
        for report in reports {
            let result = self.record(&reading, report, signer.as_ref()).await?;
            self.engine.meters.dmarc_reports.count(result);
            tracing::info!(result = result.as_str(), "DMARC report received");
        }
        Ok(())
    }

    /// Parses a message on a blocking thread.
    async fn read_dmarc(&self, client: Network, message: Vec<u8>) -> Result<ReadReports, StoreError> {
        let permit = self.reading.take(client).await.ok_or(StoreError::Panicked)?;
        let now = self.engine.clock.now();
        let own = self.engine.known_own_networks().await;
        let snapshot = self.engine.store.snapshot()?;
        let reading = move || {
            // Parsing continues after the connection has ended, so the work owns the permit.
            let _permit = permit;
            let mut names = Names::new(snapshot, own);
            let reports = dmarc::read(&message, now, &mut names);
            let from_domain = dkim_verify::author_domain(&message);
            let is_known = reports.as_ref().is_ok_and(|reports| reports.iter().any(|report| !report.parts.is_empty()));
            let signatures = if is_known { dkim_verify::aligned_signatures(&message, now) } else { Vec::new() };
            names.failure.map_or(
                Ok(ReadReports { reports, own: names.own, domains: names.domains, from_domain, signatures }),
                Err,
            )
        };
        self.engine.settings.executor.run(reading).await.map_err(|_| StoreError::Panicked)?
    }

    /// Returns the domain whose signature proves that the From domain wrote the message: the From domain or a parent of
    /// it.
    async fn signer(&self, reading: &ReadReports) -> Option<DomainName> {
        let from = reading.from_domain.as_ref()?;
        let covers_from = |signature: &&UnverifiedSignature| from.is_same_or_below(signature.signer());
        let signatures: Vec<_> = reading.signatures.iter().filter(covers_from).cloned().collect();
        self.first_verified(&signatures).await.map(|signature| signature.signer().clone())
    }

    /// Records a report for each domain that it covers. The result is `counted` if it counts for any of them.
    async fn record(
        &self,
        reading: &ReadReports,
        report: &AggregateReport,
        signer: Option<&DomainName>,
    ) -> Result<DmarcResult, StoreError> {
        let mut result = DmarcResult::UnknownDomain;
        for part in &report.parts {
            let Some(of) = reading.domains.get(part.domain) else { continue };
            let op = operation(of, reading, report, part, signer);
            match self.engine.store.commit(op).await {
                Ok(recorded) => result = result.max(recorded.into()),
                // The domain was removed meanwhile.
                Err(OpError::Refused(_)) => {}
                Err(OpError::Failed(error)) => return Err(error),
            }
        }
        Ok(result)
    }
}

fn operation(
    of: &OwnDomain,
    reading: &ReadReports,
    report: &AggregateReport,
    part: &Part,
    signer: Option<&DomainName>,
) -> RecordDmarcReport {
    let mut counts = DmarcCounts::default();
    part.sources.iter().for_each(|(_, source)| counts.merge(&source.counts));
    let row = DmarcReportRow {
        reporter: report.reporter.clone(),
        from_domain: reading.from_domain.clone(),
        report_id: report.report_id.clone(),
        policy_domain: report.policy_domain.clone(),
        begin: Timestamp::from_millis(report.begin.saturating_mul(1000)),
        end: Timestamp::from_millis(report.end.saturating_mul(1000)),
        messages: counts.messages(),
        passed: counts.passed(),
        skipped_rows: part.skipped_rows,
        is_authentic: signer.is_some(),
    };
    let sources = part.sources.iter().map(|(network, source)| SourceCounts {
        network: *network,
        counts: source.counts,
        has_own_signature: source.has_own_signature,
        dkim_domains: source.dkim_domains.clone(),
        spf_domains: source.spf_domains.clone(),
    });
    RecordDmarcReport {
        account: of.account,
        domain: of.domain,
        report: row,
        signer: signer.cloned(),
        policy: part.policy,
        own: reading.own.iter().copied().collect(),
        // Reports that are only listed are not counted.
        sources: if signer.is_some() { sources.collect() } else { Vec::new() },
    }
}

/// Maximum number of names remembered from one report.
const NAMES_MAX: usize = 1000;

/// Our domains in a report, collected while it is parsed.
struct Names {
    snapshot: Snapshot,
    own: HashSet<SourceNetwork>,
    domains: Vec<OwnDomain>,
    known: HashMap<DomainName, Option<usize>>,
    failure: Option<StoreError>,
}

impl Names {
    fn new(snapshot: Snapshot, own: HashSet<SourceNetwork>) -> Self {
        Self { snapshot, own, domains: Vec::new(), known: HashMap::new(), failure: None }
    }

    fn look_up(&mut self, name: &DomainName) -> Option<usize> {
        let owner = match self.snapshot.get(Table::DomainOwners, name.as_str().as_bytes()) {
            Ok(owner) => owner?,
            Err(error) => {
                self.failure = Some(error);
                return None;
            }
        };
        let (account, domain) = owner.split_first_chunk::<16>()?;
        let domain = DomainId(Ulid(domain.try_into().ok()?));
        self.domains.push(OwnDomain { account: AccountId(Ulid(*account)), domain });
        Some(self.domains.len() - 1)
    }
}

impl OwnDomains for Names {
    fn domain(&mut self, name: &DomainName) -> Option<usize> {
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let found = self.look_up(name);
        // Our own names are always remembered, because they have results.
        if found.is_some() || self.known.len() < NAMES_MAX {
            self.known.insert(name.clone(), found);
        }
        found
    }

    fn has_selector(&self, domain: usize, selector: &str) -> bool {
        self.domains.get(domain).is_some_and(|of| is_selector_of(of.domain, selector))
    }

    fn is_own_network(&mut self, domain: usize, network: SourceNetwork) -> bool {
        if self.own.contains(&network) {
            return true;
        }
        let Some(of) = self.domains.get(domain) else { return false };
        match self.snapshot.sound_row::<DmarcSourceRow>(&dmarc_source(of.account, of.domain, network)) {
            Ok(row) => row.is_some_and(|row| row.is_mine == Some(true)),
            Err(error) => {
                self.failure = Some(error);
                false
            }
        }
    }
}
