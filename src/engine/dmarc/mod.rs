//! DMARC aggregate reports: their summary for a domain, the sources that send in its name, and the next step towards a
//! policy.
//!
//! [`super::receive`] receives the reports; this module reads them.

mod by_network;
mod counted;
mod figures;
mod own;
mod sums;
mod warm;

pub use figures::{Overview, Reporter, SOURCES_SHOWN, Source};
pub(super) use own::OwnNetworks;
pub(super) use sums::DmarcSums;
pub(super) use warm::domains_with_reports;

use std::collections::HashSet;
use std::sync::Arc;

use super::Engine;
use super::audit::Behalf;
use super::domains::dmarc_record_of;
use super::listing::{self, Page, PageRequest};
use crate::base::id::{AccountId, DmarcReportId, DomainId, Ulid};
use crate::domain::address::Address;
use crate::domain::dmarc_source::{DmarcCounts, SourceKind, SourceNetwork};
use crate::domain::dmarc_walk::Discovery;
use crate::domain::hostname::DomainName;
use crate::machine::dmarc_advice::{self, Evidence};
use crate::store::error::{OpError, StoreError};
use crate::store::op::dmarc::{DmarcRefusal, IgnoreDmarcReporter, MarkDmarcSource, day_of};
use crate::store::read::Read;
use crate::store::row::dmarc::DmarcReportRow;
use crate::store::row::domain::DomainRow;
use crate::store::schema::{self, Table};
use figures::{Figures, Range};

/// Local part of the mailboxes that reports are sent to.
pub const MAILBOX: &str = "dmarc";

/// Returns the address for reports of a domain.
pub fn report_address(domain: &DomainName) -> String {
    format!("{MAILBOX}@rp.{domain}")
}

impl Engine {
    /// Summarises the reports of the last `days` days about a domain. `None` if the account has no such domain.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn dmarc_overview(
        self: &Arc<Self>,
        account: AccountId,
        domain: DomainId,
        days: u32,
    ) -> Result<Option<Overview>, StoreError> {
        let own = self.own_networks().await;
        let (engine, today) = (Arc::clone(self), day_of(self.clock.now()));
        self.blocking.run(account, move || engine.overview(account, domain, (today, days), &own)).await?
    }

    fn overview(
        &self,
        account: AccountId,
        id: DomainId,
        (today, days): (u32, u32),
        own: &HashSet<SourceNetwork>,
    ) -> Result<Option<Overview>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let Some(row) = snapshot.row::<DomainRow>(&schema::domain(account, id))? else { return Ok(None) };
        let of = (account, id);
        let range = Range::of_last(today, days);
        let figures = Figures::read(&snapshot, of, range, (own, &self.dmarc_sums))?;
        let published = dmarc_record_of(&row);
        let advice = if days == dmarc_advice::DAYS {
            self.advice(&snapshot, (account, &row), &published, &figures)?
        } else {
            let range = Range::of_last(today, dmarc_advice::DAYS);
            let figures = Figures::read(&snapshot, of, range, (own, &self.dmarc_sums))?;
            self.advice(&snapshot, (account, &row), &published, &figures)?
        };
        self.keep_dmarc_sums(today);
        Ok(Some(figures.into_overview(&snapshot, of, (row.name, range), (published, advice))?))
    }

    fn advice(
        &self,
        read: &impl Read,
        (account, row): (AccountId, &DomainRow),
        published: &Discovery,
        figures: &Figures<'_>,
    ) -> Result<dmarc_advice::Advice, StoreError> {
        let addresses: Vec<Address> = match published {
            Discovery::Published(published) => published.record.report_addresses().collect(),
            Discovery::Absent | Discovery::Invalid(_) | Discovery::Unknown => Vec::new(),
        };
        let mut reports_to_us = false;
        for address in &addresses {
            reports_to_us |= self.takes_reports(read, (account, &row.name), address)?;
        }
        Ok(dmarc_advice::advise(&Evidence {
            published: published.clone(),
            was_checked: row.last_checked_at.is_some(),
            our_record: self.settings.dmarc_record(&row.name),
            our_address: self.settings.receives_mail.then(|| report_address(&row.name)),
            reports_to_us,
            days_with_reports: figures.days_with_reports(),
            quarantine_days: figures.quarantine_days(),
            sources: figures.source_figures().collect(),
        }))
    }

    /// Returns whether reports about `domain` to an address arrive here. Below `rp.` of an unrelated domain they do
    /// not: reporters ask that name for a permission (RFC 9990 4), which a CNAME can't have.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn takes_reports(
        &self,
        read: &impl Read,
        (account, domain): (AccountId, &DomainName),
        address: &Address,
    ) -> Result<bool, StoreError> {
        if !self.settings.receives_mail || !address.local().eq_ignore_ascii_case(MAILBOX) {
            return Ok(false);
        }
        let host = address.domain().as_str();
        if host == self.settings.bounce_host {
            return Ok(true);
        }
        let Some(name) = host.strip_prefix("rp.") else { return Ok(false) };
        let Ok(name) = name.parse::<DomainName>() else { return Ok(false) };
        let Some(owner) = read.get(Table::DomainOwners, name.as_str().as_bytes())? else { return Ok(false) };
        let is_nested = name.is_same_or_below(domain) || domain.is_same_or_below(&name);
        Ok(is_nested || owner.starts_with(account.as_bytes()) && name.is_aligned_with(domain))
    }

    /// Counts messages by result in the reports of the `days` UTC days that end with `last`. Only the domain's own
    /// sources count: those of this service, and those that the account marked as its own.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn dmarc_counts_of_own(
        self: &Arc<Self>,
        account: AccountId,
        domain: DomainId,
        days: (u32, u32),
    ) -> Result<DmarcCounts, StoreError> {
        let own = Arc::new(self.own_networks().await);
        self.dmarc_counts_of(account, domain, days, &own).await
    }

    /// Counts messages as [`dmarc_counts_of_own`](Self::dmarc_counts_of_own) does, with `own` networks that the caller
    /// has looked up for several domains.
    pub(super) async fn dmarc_counts_of(
        self: &Arc<Self>,
        account: AccountId,
        domain: DomainId,
        (last, days): (u32, u32),
        own: &Arc<HashSet<SourceNetwork>>,
    ) -> Result<DmarcCounts, StoreError> {
        let (engine, own) = (Arc::clone(self), Arc::clone(own));
        let count = move || {
            let snapshot = engine.store.snapshot()?;
            let (range, with) = (Range::of_last(last, days), (&*own, &engine.dmarc_sums));
            let figures = Figures::read(&snapshot, (account, domain), range, with)?;
            engine.keep_dmarc_sums(day_of(engine.clock.now()));
            Ok(figures.own_counts())
        };
        self.blocking.run(account, count).await?
    }

    /// Marks a source of a domain as the account's own or as another's, or removes the mark. Returns the source with
    /// its figures of the last 30 days.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn mark_dmarc_source(
        self: &Arc<Self>,
        on: impl Into<Behalf>,
        domain: DomainId,
        network: SourceNetwork,
        is_mine: Option<bool>,
    ) -> Result<Source, OpError<DmarcRefusal>> {
        let on = on.into();
        let account = on.account;
        let op = MarkDmarcSource { account, domain, network, is_mine, limit: on.stream };
        self.commit_on(on, op).await?;
        let own = self.own_networks().await;
        let (engine, today) = (Arc::clone(self), day_of(self.clock.now()));
        let show = move || {
            let snapshot = engine.store.snapshot()?;
            let range = Range::of_last(today, dmarc_advice::DAYS);
            let figures = Figures::read(&snapshot, (account, domain), range, (&own, &engine.dmarc_sums))?;
            engine.keep_dmarc_sums(today);
            figures.source(&snapshot, (account, domain), network)
        };
        let source = self.blocking.run(account, show).await.and_then(|source| source).map_err(OpError::Failed)?;
        source.ok_or(OpError::Refused(DmarcRefusal::NotFound))
    }

    /// Excludes the reporters with a name from a domain's counts, or includes them again. With `signed_by`, this
    /// applies only to the reporter whose reports that domain signs. If reports with the name are counted under their
    /// signing domain, it applies to that domain's reporter. Returns the reporters' figures of the last 30 days.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn ignore_dmarc_reporter(
        self: &Arc<Self>,
        on: impl Into<Behalf>,
        domain: DomainId,
        (name, signed_by): (String, Option<String>),
        is_ignored: bool,
    ) -> Result<Reporter, OpError<DmarcRefusal>> {
        let on = on.into();
        let account = on.account;
        let limit = on.stream;
        let op = |(name, signer)| IgnoreDmarcReporter { account, domain, name, signer, is_ignored, limit };
        let reporter = (name, signed_by);
        let (name, signed_by) = match self.commit_on(on.clone(), op(reporter.clone())).await {
            Err(OpError::Refused(DmarcRefusal::NotFound)) => {
                let signer = self.signer_of_reporter(account, domain, reporter).await.map_err(OpError::Failed)?;
                let signer = signer.ok_or(OpError::Refused(DmarcRefusal::NotFound))?;
                let reporter = (signer.clone(), Some(signer));
                self.commit_on(on, op(reporter.clone())).await?;
                reporter
            }
            done => done.map(|_| reporter)?,
        };
        let overview = self.dmarc_overview(account, domain, dmarc_advice::DAYS).await.map_err(OpError::Failed)?;
        let overview = overview.ok_or(OpError::Refused(DmarcRefusal::NotFound))?;
        let mut all = Reporter { name, signed_by, reports: 0, messages: 0, is_ignored };
        for one in overview.reporters {
            if one.name == all.name && (all.signed_by.is_none() || one.signed_by == all.signed_by) {
                all.reports += one.reports;
                all.messages = all.messages.saturating_add(one.messages);
            }
        }
        Ok(all)
    }

    /// Returns a page of a domain's reports, last received first.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn dmarc_reports(
        &self,
        account: AccountId,
        domain: DomainId,
        page: PageRequest,
    ) -> Result<Page<(DmarcReportId, DmarcReportRow)>, StoreError> {
        let prefix = schema::dmarc::dmarc_domain(account, domain);
        let Page { rows, next } = listing::rows(&self.store.snapshot()?, &prefix, page)?;
        let with_id = |(id, row): (Ulid, DmarcReportRow)| (DmarcReportId(id), row);
        Ok(Page { rows: rows.into_iter().map(with_id).collect(), next })
    }
}

/// Classifies a source.
fn kind_of(network: SourceNetwork, own: &HashSet<SourceNetwork>, has_own_signature: bool, passed: u64) -> SourceKind {
    // Networks that are counted together can't be classified individually.
    let is_one = network != SourceNetwork::Other;
    if is_one && own.contains(&network) {
        SourceKind::Own
    } else if is_one && has_own_signature {
        SourceKind::Forwarder
    } else if passed > 0 {
        SourceKind::Authorised
    } else {
        SourceKind::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_known_fact_determines_the_kind() {
        let network = SourceNetwork::V4([192, 0, 2]);
        let own = HashSet::from([network]);
        let none = HashSet::new();
        assert_eq!(kind_of(network, &own, true, 1), SourceKind::Own);
        assert_eq!(kind_of(network, &none, true, 1), SourceKind::Forwarder);
        assert_eq!(kind_of(network, &none, false, 1), SourceKind::Authorised);
        assert_eq!(kind_of(network, &none, false, 0), SourceKind::Unknown);
        assert_eq!(kind_of(SourceNetwork::Other, &none, true, 0), SourceKind::Unknown);
    }
}
