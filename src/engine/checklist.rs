//! The checklist of a domain (contract 14.2): collects facts from the last check and the last days, and passes them to
//! [`checklist`](crate::machine::checklist).

use std::sync::Arc;

use super::Engine;
use super::dmarc::report_address;
use super::domains::{dmarc_record_of, expected_records, finding_of};
use crate::base::id::{AccountId, DomainId};
use crate::domain::dmarc_walk::Discovery;
use crate::domain::sending_domain::{DkimAlgorithm, DkimState, RecordPurpose, RecordStatus};
use crate::domain::stream::Stream;
use crate::machine::checklist::dns::{RecordFacts, Replies, SpfFacts};
use crate::machine::checklist::traffic::{Marketing, Observed};
use crate::machine::checklist::{ItemId, Judgement, bimi, dns, traffic};
use crate::machine::dmarc_advice;
use crate::machine::reputation::Measure;
use crate::store::error::StoreError;
use crate::store::op::dmarc::day_of;
use crate::store::op::domain::dkim_name;
use crate::store::op::outcomes::{hour_of, scan};
use crate::store::row::domain::{DomainRow, Finding, Receiving};
use crate::store::row::outcomes::OutcomeCounts;

const WEEK_HOURS: u32 = 7 * 24;

impl Engine {
    /// Evaluates every item of the domain's checklist, in order.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn checklist(
        self: &Arc<Self>,
        account: AccountId,
        id: DomainId,
        row: &DomainRow,
    ) -> Result<Vec<(ItemId, Judgement)>, StoreError> {
        let observed = self.observed(account, id).await?;
        let week = self.week_of(account, id).await?;
        let reputation = self.reputation(account)?;
        let sources =
            self.reverse_dns.names(&self.resolver, &self.settings.direct_relays, self.clock.monotonic()).await;
        let records = Records::of(self, account, row)?;
        let stream = reputation.of(row.stream);
        let [_, (_, counts)] = &stream.windows;
        let judge = |item| match item {
            ItemId::Spf => records.spf(),
            ItemId::Dkim => dns::dkim(records.dkim(), records.dkim_found),
            ItemId::Dmarc => dns::dmarc(&records.dmarc, records.own_dmarc, &records.wanted_dmarc),
            ItemId::Alignment => dns::alignment(records.dkim(), records.return_path(), &records.dmarc),
            ItemId::DmarcReports => {
                let wanted = self.settings.receives_mail.then(|| records.record_with_reports());
                dns::dmarc_reports(&records.dmarc, records.reports_to_us, wanted.as_deref())
            }
            ItemId::DmarcObserved => traffic::dmarc_observed(observed),
            ItemId::OneClick => traffic::one_click(match row.stream {
                Stream::Transactional => None,
                Stream::Marketing => Some(Marketing { accepted: week.accepted, without: week.without_one_click }),
            }),
            ItemId::ReverseDns => dns::reverse_dns(Some(&*sources).filter(|_| !self.settings.direct_relays.is_empty())),
            ItemId::Tls => traffic::tls(week.timed(), week.delivered_tls),
            ItemId::Complaints => {
                let rate = counts.figures().rate(Measure::Complaints);
                traffic::rate(Measure::Complaints, row.stream, stream.levels.complaints, rate)
            }
            ItemId::Bounces => {
                let rate = counts.figures().rate(Measure::Bounces);
                traffic::rate(Measure::Bounces, row.stream, stream.levels.bounces, rate)
            }
            ItemId::Replies => dns::replies(row.facts.receiving.as_ref().map(replies).as_ref()),
            ItemId::Bimi => bimi::bimi(row.facts.bimi.as_deref(), &records.dmarc),
        };
        Ok(ItemId::ALL.map(|item| (item, judge(item))).into())
    }

    /// Returns the domain's own mail in the DMARC reports of 30 days. `None` if incoming mail is off, because no
    /// reports arrive then.
    async fn observed(self: &Arc<Self>, account: AccountId, id: DomainId) -> Result<Option<Observed>, StoreError> {
        if !self.settings.receives_mail {
            return Ok(None);
        }
        let days = (day_of(self.clock.now()), dmarc_advice::DAYS);
        let counts = self.dmarc_counts_of_own(account, id, days).await?;
        Ok(Some(Observed { messages: counts.messages(), passed: counts.passed() }))
    }

    /// Returns the outcomes of the domain's messages of the last seven days.
    async fn week_of(&self, account: AccountId, id: DomainId) -> Result<OutcomeCounts, StoreError> {
        let end = hour_of(self.clock.now()).saturating_add(1);
        self.off_thread(account, move |store| {
            let mut week = OutcomeCounts::default();
            scan(&store.snapshot()?, account, end.saturating_sub(WEEK_HOURS), end, &mut |row| {
                if row.domain == id {
                    week.add(&row.counts);
                }
            })?;
            Ok(week)
        })
        .await
    }
}

const fn replies(of: &Receiving) -> Replies<'_> {
    match of {
        Receiving::Servers(servers) => Replies::Servers(servers.as_slice()),
        Receiving::NullMx => Replies::NullMx,
        Receiving::Address => Replies::Address,
        Receiving::Nothing => Replies::Nothing,
    }
}

/// A domain's DNS records, as the last check found them.
struct Records<'r> {
    row: &'r DomainRow,
    dkim_name: String,
    dkim_seen: Option<bool>,
    /// The TXT records at that name.
    dkim_found: &'r [String],
    return_path_name: String,
    return_path_seen: Option<bool>,
    spf: Option<&'r Finding>,
    wanted_spf: String,
    dmarc: Discovery,
    /// The DMARC records at the domain itself.
    own_dmarc: usize,
    wanted_dmarc: String,
    /// Whether the applicable record sends reports to this service.
    reports_to_us: bool,
}

impl<'r> Records<'r> {
    fn of(engine: &'r Engine, account: AccountId, row: &'r DomainRow) -> Result<Self, StoreError> {
        let expected = expected_records(row, &engine.settings);
        let record = |purpose| expected.iter().find(|record| record.purpose == purpose);
        let finding = |purpose| record(purpose).and_then(|record| finding_of(row, record));
        let seen = |finding: Option<&Finding>| match finding?.status {
            RecordStatus::Ok => Some(true),
            RecordStatus::Missing | RecordStatus::Mismatch => Some(false),
            RecordStatus::Unchecked => None,
        };
        let text = |purpose| record(purpose).map(|record| record.value.clone()).unwrap_or_default();
        let dkim_name = signing_name(row);
        let dkim = row.findings.iter().find(|finding| finding.name == dkim_name);
        let dmarc = dmarc_record_of(row);
        let mut reports_to_us = false;
        if let Discovery::Published(published) = &dmarc {
            let snapshot = engine.store.snapshot()?;
            for address in published.record.report_addresses() {
                reports_to_us |= engine.takes_reports(&snapshot, (account, &row.name), &address)?;
            }
        }
        Ok(Self {
            row,
            dkim_seen: seen(dkim),
            dkim_found: dkim.map_or(&[], |finding| &finding.found),
            dkim_name,
            return_path_name: format!("rp.{}", row.name),
            return_path_seen: seen(finding(RecordPurpose::ReturnPath)),
            spf: finding(RecordPurpose::Spf).filter(|finding| finding.status != RecordStatus::Unchecked),
            wanted_spf: text(RecordPurpose::Spf),
            dmarc,
            own_dmarc: finding(RecordPurpose::Dmarc).map_or(0, |finding| finding.found.len()),
            wanted_dmarc: text(RecordPurpose::Dmarc),
            reports_to_us,
        })
    }

    fn dkim(&self) -> RecordFacts<'_> {
        RecordFacts { seen: self.dkim_seen, name: &self.dkim_name }
    }

    fn return_path(&self) -> RecordFacts<'_> {
        RecordFacts { seen: self.return_path_seen, name: &self.return_path_name }
    }

    fn spf(&self) -> Judgement {
        let facts = self.spf.map(|finding| SpfFacts {
            found: &finding.found,
            lets_us_pass: finding.status == RecordStatus::Ok,
            lookups: self.row.facts.spf_lookups,
            uncovered: &self.row.facts.spf_uncovered,
            wanted: &self.wanted_spf,
        });
        dns::spf(facts.as_ref())
    }

    /// Returns the applicable record for the domain's own name, with our report address added.
    fn record_with_reports(&self) -> String {
        match &self.dmarc {
            Discovery::Published(published) => {
                published.at_own_name().with_report_address(&report_address(&self.row.name)).to_string()
            }
            Discovery::Absent | Discovery::Invalid(_) | Discovery::Unknown => self.wanted_dmarc.clone(),
        }
    }
}

/// Returns the record name of the RSA key that signs, or that will sign first.
fn signing_name(row: &DomainRow) -> String {
    let rsa = |state| row.dkim.iter().find(|key| key.algorithm == DkimAlgorithm::RsaSha256 && key.state == state);
    let key = rsa(DkimState::Active).or_else(|| rsa(DkimState::Pending));
    key.map(|key| dkim_name(row, &key.selector)).unwrap_or_default()
}
