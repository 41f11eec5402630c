//! Sending domains: registering one with its keys, the records that it should publish, and checking those records
//! (contract 2).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::Engine;
use super::audit::Behalf;
use super::dns_facts;
use super::domain_records::find;
use super::listing::{self, Page, PageRequest};
use super::settings::Settings;
use super::spf;
use crate::base::id::{AccountId, DomainId};
use crate::domain::dmarc_walk::{self, Discovery};
use crate::domain::hostname::DomainName;
use crate::domain::sending_domain::{DkimAlgorithm, DkimState, DomainStatus, RecordPurpose};
use crate::domain::stream::Stream;
use crate::store::error::{OpError, StoreError};
use crate::store::op::dkim;
use crate::store::op::domain::{CreateDomain, DomainRefusal, RecordDomainCheck, check_new, dkim_name, domain_by_name};
use crate::store::op::domain_change::{DeleteDomain, UpdateDomain, check_stream};
use crate::store::read::Read as _;
use crate::store::row::domain::{DkimKeyRow, DnsFacts, DomainRow, Finding, dmarc_answers};
use crate::store::schema::{self, Table};

/// Time before the first check of a new domain: enough for the user to publish a record.
const FIRST_CHECK: Duration = Duration::from_secs(120);

/// The type of a DNS record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordType {
    /// Text.
    Txt,
    /// An alias.
    Cname,
}

impl RecordType {
    /// Returns the name on every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Txt => "TXT",
            Self::Cname => "CNAME",
        }
    }
}

/// A record that a domain should publish.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpectedRecord {
    /// Purpose of the record.
    pub purpose: RecordPurpose,
    /// Type.
    pub kind: RecordType,
    /// Name at which the record is published.
    pub name: String,
    /// Value of the record.
    pub value: String,
    /// Whether the record is required for sending.
    pub required: bool,
}

/// A change of a domain; `None` leaves a member unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DomainChange {
    /// Stream.
    pub stream: Option<Stream>,
    /// Days between rotations of its DKIM keys; 0 for none.
    pub rotation_days: Option<u16>,
}

impl Engine {
    /// Registers a domain of the account: pending, with new keys.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn create_domain(
        &self,
        on: impl Into<Behalf>,
        name: DomainName,
        stream: Stream,
    ) -> Result<(DomainId, DomainRow), OpError<DomainRefusal>> {
        let on = on.into();
        check_stream(on.stream, stream)?;
        // Generating keys is expensive, so refuse the domain first.
        check_new(&self.store.snapshot()?, on.account, &name)?;
        let (id, mut row) = self.new_domain(on.account, name, stream, DkimState::Pending).await?;
        row.next_check_at = Some(row.created_at + FIRST_CHECK);
        let op = CreateDomain { account: on.account, id, row };
        let row = self.commit_on(on, op).await?;
        Ok((id, row))
    }

    /// Registers a domain that is verified from the start and never checked, for `postrider dev`.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn create_verified_domain(
        &self,
        account: AccountId,
        name: DomainName,
        stream: Stream,
    ) -> Result<(DomainId, DomainRow), OpError<DomainRefusal>> {
        let (id, row) = self.new_verified_domain(account, name, stream).await?;
        let row = self.store.commit(CreateDomain { account, id, row }).await?;
        Ok((id, row))
    }

    /// Returns a verified domain with its keys.
    pub(super) async fn new_verified_domain(
        &self,
        account: AccountId,
        name: DomainName,
        stream: Stream,
    ) -> Result<(DomainId, DomainRow), OpError<DomainRefusal>> {
        let (id, mut row) = self.new_domain(account, name, stream, DkimState::Active).await?;
        row.status = DomainStatus::Verified;
        row.verified_at = Some(row.created_at);
        Ok((id, row))
    }

    async fn new_domain(
        &self,
        account: AccountId,
        name: DomainName,
        stream: Stream,
        state: DkimState,
    ) -> Result<(DomainId, DomainRow), OpError<DomainRefusal>> {
        let now = self.clock.now();
        let id: DomainId = self.store.reserve_id(now);
        let dkim = self.new_keys(account, id, 1, state).await?;
        let row = DomainRow { dkim, ..DomainRow::new(name, stream, now) };
        Ok((id, row))
    }

    /// Changes a domain. Accepted messages stay on their stream. Enabling rotation adds a pair of keys immediately.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn update_domain(
        &self,
        on: impl Into<Behalf>,
        domain: DomainId,
        change: DomainChange,
    ) -> Result<DomainRow, OpError<DomainRefusal>> {
        let on = on.into();
        let DomainChange { stream, rotation_days } = change;
        let keys = self.keys_to_add(&on, domain, rotation_days).await?;
        let op = UpdateDomain { account: on.account, domain, stream, rotation_days, keys, limit: on.stream };
        self.commit_on(on, op).await
    }

    /// Returns the pair of keys that a schedule of `days` needs; `None` if there is one already.
    async fn keys_to_add(
        &self,
        on: &Behalf,
        id: DomainId,
        days: Option<u16>,
    ) -> Result<Vec<DkimKeyRow>, OpError<DomainRefusal>> {
        let row = self.own_domain(on, id)?;
        match days.filter(|days| *days > 0 && dkim::further(&row.dkim).is_none()) {
            Some(_) => self.new_keys(on.account, id, dkim::next_number(&row), DkimState::Pending).await,
            None => Ok(Vec::new()),
        }
    }

    /// Removes a domain. Accepted messages are signed already, and are still sent.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn delete_domain(&self, on: impl Into<Behalf>, domain: DomainId) -> Result<(), OpError<DomainRefusal>> {
        let on = on.into();
        let op = DeleteDomain { account: on.account, domain, limit: on.stream };
        self.commit_on(on, op).await.map(drop)
    }

    /// Returns a domain of the account.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn domain(&self, account: AccountId, id: DomainId) -> Result<Option<DomainRow>, StoreError> {
        self.store.snapshot()?.row(&schema::domain(account, id))
    }

    /// Returns the account's domain of this name.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn domain_named(&self, account: AccountId, name: &str) -> Result<Option<DomainId>, StoreError> {
        Ok(domain_by_name(&self.store.snapshot()?, account, name)?.map(|(id, _)| id))
    }

    /// Returns a page of the account's domains.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn domains(&self, account: AccountId, page: PageRequest) -> Result<Page<(DomainId, DomainRow)>, StoreError> {
        let Page { rows, next } = listing::rows(&self.store.snapshot()?, account.as_bytes(), page)?;
        Ok(Page { rows: rows.into_iter().map(|(id, row)| (DomainId(id), row)).collect(), next })
    }

    /// Checks the domain's records at the account's request. Only a few such checks run at once.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn verify_domain(
        &self,
        on: impl Into<Behalf>,
        id: DomainId,
    ) -> Result<DomainRow, OpError<DomainRefusal>> {
        let on = on.into();
        let _verification = self.domain_verifications.begin(on.account).await?;
        let row = self.own_domain(&on, id)?;
        self.check_owner(on.account, id, &row)?;
        self.check_domain(on, id).await
    }

    /// Returns a domain of the account that the caller may change.
    pub(super) fn own_domain(&self, on: &Behalf, id: DomainId) -> Result<DomainRow, OpError<DomainRefusal>> {
        let Some(row) = self.domain(on.account, id)? else { return Err(OpError::Refused(DomainRefusal::NotFound)) };
        check_stream(on.stream, row.stream)?;
        Ok(row)
    }

    /// Refuses a domain that another account has verified, regardless of its records.
    fn check_owner(&self, account: AccountId, id: DomainId, row: &DomainRow) -> Result<(), OpError<DomainRefusal>> {
        let owner = self.store.snapshot()?.get(Table::DomainOwners, row.name.as_str().as_bytes())?;
        match owner.is_some_and(|owner| owner != schema::domain(account, id)) {
            true => Err(OpError::Refused(DomainRefusal::Taken)),
            false => Ok(()),
        }
    }

    /// Checks the domain's records now, without any cache, and records the findings.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn check_domain(&self, on: impl Into<Behalf>, id: DomainId) -> Result<DomainRow, OpError<DomainRefusal>> {
        let on = on.into();
        let (account, row) = (on.account, self.own_domain(&on, id)?);
        // A domain without scheduled checks is pre-verified (`dev`), so a check could not find its records. Only
        // rotation needs the records of its keys.
        if row.next_check_at.is_none() && row.rotation.days == 0 {
            return Ok(row);
        }
        // The checklist has the reverse names of the last check too.
        self.reverse_dns.forget();
        let (findings, facts) = self.look(&row).await;
        let row = self.store.commit(RecordDomainCheck { account, domain: id, findings, facts }).await?;
        Ok(self.with_standby(account, id, row).await)
    }

    /// Looks up the domain's records, or only those of its keys if the domain is pre-verified. All lookups run
    /// concurrently, and the resolver limits their time.
    pub(super) async fn look(&self, row: &DomainRow) -> (Vec<Finding>, DnsFacts) {
        if row.next_check_at.is_none() {
            return (self.look_for_records(row).await, DnsFacts::default());
        }
        let (mut findings, mut facts) =
            tokio::join!(self.look_for_records(row), dns_facts::look(&*self.resolver, &row.name));
        let spf = findings.iter_mut().find(|finding| finding.purpose == RecordPurpose::Spf);
        // Receivers ignore several records (RFC 7208 4.5).
        if let Some(Finding { status, found, .. }) = spf
            && let [record] = &**found
        {
            let Settings { hostname, direct_relays, .. } = &self.settings;
            let evaluated = spf::evaluate(&*self.resolver, (row.name.as_str(), record), hostname, direct_relays).await;
            (*status, facts.spf_lookups) = (evaluated.status, evaluated.lookups);
            facts.spf_uncovered = evaluated.uncovered;
        }
        (findings, facts)
    }

    async fn look_for_records(&self, row: &DomainRow) -> Vec<Finding> {
        let mut expected = expected_records(row, &self.settings);
        expected.retain(|record| row.next_check_at.is_some() || record.purpose == RecordPurpose::Dkim);
        let mut looks = JoinSet::new();
        for (place, record) in expected.into_iter().enumerate() {
            let resolver = Arc::clone(&self.resolver);
            looks.spawn(async move { (place, find(&*resolver, record).await) });
        }
        let mut found = BTreeMap::new();
        while let Some(look) = looks.join_next().await {
            // If a lookup panicked, its record stays unchecked.
            if let Ok((place, finding)) = look {
                found.insert(place, finding);
            }
        }
        let mut findings = found.into_values().collect();
        if row.next_check_at.is_some() {
            self.walk_up(&row.name, &mut findings).await;
        }
        findings
    }

    /// Looks up the DMARC records of the parent domains, as the tree walk of RFC 9989 requires.
    async fn walk_up(&self, domain: &DomainName, findings: &mut Vec<Finding>) {
        for name in dmarc_walk::names(domain).into_iter().skip(1) {
            if dmarc_walk::is_over(&dmarc_answers(findings)) {
                return;
            }
            let (purpose, kind) = (RecordPurpose::Dmarc, RecordType::Txt);
            let record = ExpectedRecord { purpose, kind, name, value: String::new(), required: false };
            findings.push(find(&*self.resolver, record).await);
        }
    }
}

/// Returns the DMARC record that applied to the domain at its last check: its own, or that of a parent domain.
pub fn dmarc_record_of(row: &DomainRow) -> Discovery {
    dmarc_walk::discover(&dmarc_answers(&row.findings))
}

/// Returns the last finding for a record; `None` before the first check.
pub fn finding_of<'r>(row: &'r DomainRow, record: &ExpectedRecord) -> Option<&'r Finding> {
    row.findings.iter().find(|finding| finding.purpose == record.purpose && finding.name == record.name)
}

/// Returns the records that the domain should publish, in display order.
pub fn expected_records(row: &DomainRow, settings: &Settings) -> Vec<ExpectedRecord> {
    let is_rsa = |key: &&DkimKeyRow| key.algorithm == DkimAlgorithm::RsaSha256;
    let has_active_rsa = row.dkim.iter().filter(is_rsa).any(|key| key.state == DkimState::Active);
    // If no key signs, the oldest pair will sign first.
    let first = row.dkim.iter().filter(is_rsa).find(|key| key.state == DkimState::Pending).map(|key| &key.selector);
    let keys = row.dkim.iter().map(|key| ExpectedRecord {
        purpose: RecordPurpose::Dkim,
        kind: RecordType::Txt,
        name: dkim_name(row, &key.selector),
        value: key.record.clone(),
        required: key.algorithm == DkimAlgorithm::RsaSha256
            && match key.state {
                DkimState::Active => true,
                // While another key signs, its successor's record is not required.
                DkimState::Pending => !has_active_rsa && first == Some(&key.selector),
                DkimState::Retiring | DkimState::Standby => false,
            },
    });
    let mut records: Vec<_> = keys.collect();
    let mut add = |purpose, kind, name: String, value: String| {
        records.push(ExpectedRecord { purpose, kind, name, value, required: false });
    };
    let name = &row.name;
    add(RecordPurpose::ReturnPath, RecordType::Cname, format!("rp.{name}"), settings.bounce_host.clone());
    add(RecordPurpose::Spf, RecordType::Txt, name.to_string(), format!("v=spf1 a:{} ~all", settings.hostname));
    add(RecordPurpose::Dmarc, RecordType::Txt, format!("_dmarc.{name}"), settings.dmarc_record(name));
    records
}
