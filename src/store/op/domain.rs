//! Sending domains: registering one, and recording the result of a check of its records.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Infallible, Op, alert_domain, audit, dkim};
use crate::base::id::{AccountId, DomainId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::audit::{Action, Actor, Change};
use crate::domain::hostname::DomainName;
use crate::domain::limits::DOMAINS_COUNT;
use crate::domain::sending_domain::{DkimAlgorithm, DkimState, DomainStatus, RecordPurpose, RecordStatus};
use crate::domain::stream::Stream;
use crate::machine::verification;
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::domain::{DkimKeyRow, DnsFacts, DomainRow, Finding, has_dmarc};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Interval between checks of a domain while the records of its new keys are awaited.
const ROTATION_CHECK: Duration = Duration::from_secs(3600);

/// Registers a domain.
#[derive(Debug, Serialize, Deserialize)]
pub struct CreateDomain {
    /// The account.
    pub account: AccountId,
    /// Identifier, reserved because the domain's keys are sealed for it.
    pub id: DomainId,
    /// The domain. Only `dev` registers one that is already verified.
    pub row: DomainRow,
}

/// Reason why a change of a domain is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainRefusal {
    /// The account already has the domain.
    Exists,
    /// There is no such domain.
    NotFound,
    /// Another account has the domain verified.
    Taken,
    /// The API key is limited to this stream, and the domain has another.
    Stream(Stream),
    /// The account has [`DOMAINS_COUNT`] domains.
    TooMany,
    /// Too many keys are being generated.
    Crowded,
    /// The account has the maximum number of requested checks in flight.
    Verifying,
}

impl Op for CreateDomain {
    type Reply = DomainRow;
    type Refusal = DomainRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DomainRow, OpError<DomainRefusal>> {
        let name = self.row.name.as_str().as_bytes();
        let by_name = schema::named(self.account, name);
        check_new(tables, self.account, &self.row.name)?;
        let row = DomainRow { created_at: tables.now(), ..self.row.clone() };
        let key = schema::domain(self.account, self.id);
        if row.status.may_send() {
            if tables.get(Table::DomainOwners, name)?.is_some_and(|owner| owner != key) {
                return Err(OpError::Refused(DomainRefusal::Taken));
            }
            tables.put_bytes(Table::DomainOwners, name, key.to_vec());
        }
        tables.put_bytes(Table::DomainsByName, &by_name, self.id.as_bytes().to_vec());
        tables.put(&key, &row);
        if let Some(due) = row.next_check_at {
            tables.arm(Timer::new(due, TimerKind::DomainCheck, self.account, self.id.0));
        }
        Ok(row)
    }
}

/// Registers a verified domain even if other accounts have it verified: in `dev`, where every domain counts as
/// verified.
#[derive(Debug, Serialize, Deserialize)]
pub struct AdoptDomain {
    /// The account.
    pub account: AccountId,
    /// Identifier, reserved because the domain's keys are sealed for it.
    pub id: DomainId,
    /// The domain.
    pub row: DomainRow,
}

impl Op for AdoptDomain {
    type Reply = ();
    type Refusal = DomainRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<DomainRefusal>> {
        let name = self.row.name.as_str().as_bytes();
        if let Some(id) = tables.get(Table::DomainsByName, &schema::named(self.account, name))? {
            return adopt_known(tables, self.account, &id);
        }
        check_new(tables, self.account, &self.row.name)?;
        let key = schema::domain(self.account, self.id);
        if tables.get(Table::DomainOwners, name)?.is_none() {
            tables.put_bytes(Table::DomainOwners, name, key.to_vec());
        }
        tables.put_bytes(Table::DomainsByName, &schema::named(self.account, name), self.id.as_bytes().to_vec());
        tables.put(&key, &self.row);
        Ok(())
    }
}

/// Makes an existing domain of the account count as verified.
fn adopt_known(tables: &mut Tables<'_>, account: AccountId, id: &[u8]) -> Result<(), OpError<DomainRefusal>> {
    let key = schema::named(account, id);
    let Some(row) = tables.row::<DomainRow>(&key)? else { return Err(OpError::Refused(DomainRefusal::NotFound)) };
    let verified_at = row.verified_at.or(Some(tables.now()));
    let mut dkim = row.dkim;
    dkim::adopt(&mut dkim);
    let name = row.name.as_str().as_bytes().to_vec();
    tables.put(&key, &DomainRow { status: DomainStatus::Verified, verified_at, dkim, ..row });
    if tables.get(Table::DomainOwners, &name)?.is_none() {
        tables.put_bytes(Table::DomainOwners, &name, key);
    }
    Ok(())
}

/// Checks that the account may register a domain of this name. Called before keys are generated, and again inside the
/// operation, where the result counts.
///
/// # Errors
/// The account already has the domain, or too many; store failures.
pub fn check_new(read: &impl Read, account: AccountId, name: &DomainName) -> Result<(), OpError<DomainRefusal>> {
    if read.get(Table::DomainsByName, &schema::named(account, name.as_str().as_bytes()))?.is_some() {
        return Err(OpError::Refused(DomainRefusal::Exists));
    }
    let (from, to) = (account.as_bytes(), after_prefix(account.as_bytes()));
    if read.keys(Table::Domains, from, &to, Order::Ascending, DOMAINS_COUNT)?.len() >= DOMAINS_COUNT {
        return Err(OpError::Refused(DomainRefusal::TooMany));
    }
    Ok(())
}

/// Records a check of a domain's records.
#[derive(Debug, Serialize, Deserialize)]
pub struct RecordDomainCheck {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// Findings by record.
    pub findings: Vec<Finding>,
    /// Facts for the checklist.
    pub facts: DnsFacts,
}

impl Op for RecordDomainCheck {
    type Reply = DomainRow;
    type Refusal = DomainRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DomainRow, OpError<DomainRefusal>> {
        let key = schema::domain(self.account, self.domain);
        let Some(mut row) = tables.row::<DomainRow>(&key)? else {
            return Err(OpError::Refused(DomainRefusal::NotFound));
        };
        self.record(tables, &mut row, false)?;
        Ok(row)
    }
}

impl RecordDomainCheck {
    /// Records the check in `row`. Rotates the keys if a rotation is due or requested and the records of the next ones
    /// were found.
    pub(super) fn record(
        &self,
        tables: &mut Tables<'_>,
        row: &mut DomainRow,
        is_due: bool,
    ) -> Result<(), OpError<DomainRefusal>> {
        let (time, key) = (tables.time(), schema::domain(self.account, self.domain));
        let suffix = dkim_name(row, "");
        let seen = |key: &DkimKeyRow| self.status_at(&format!("{}{suffix}", key.selector));
        dkim::advance(row, is_due, seen, &time);
        row.last_checked_at = Some(time.now);
        // A domain without a timer counts as verified without checks: a check only affects its keys.
        if row.next_check_at.is_some() {
            self.record_status(tables, row, &key)?;
            row.return_path_seen = self.finding(RecordPurpose::ReturnPath).unwrap_or(row.return_path_seen);
            self.note_losses(row);
        }
        row.findings = self.findings.clone();
        alert_domain::looked_at(tables, self.account, self.domain, row)?;
        row.facts = self.facts.clone();
        dkim::rearm(tables, self.account, self.domain, row);
        tables.put(&key, row);
        Ok(())
    }

    /// Steps the domain's status by the record of the signing key.
    fn record_status(
        &self,
        tables: &mut Tables<'_>,
        row: &mut DomainRow,
        key: &[u8],
    ) -> Result<(), OpError<DomainRefusal>> {
        let now = tables.now();
        let step = verification::step(
            verification::State { status: row.status, last_seen_at: row.last_seen_at, checks: row.checks },
            self.dkim_finding(row),
            now,
        );
        if step.state.status.may_send() {
            self.claim(tables, row, key)?;
        } else {
            self.give_up_claim(tables, row, key)?;
        }
        if step.state.status == DomainStatus::Verified && row.status == DomainStatus::Pending {
            row.verified_at = Some(now);
        }
        if step.state.status != row.status {
            self.tell_status(tables, row, step.state.status)?;
            let lost =
                self.signing_name(row).and_then(|name| self.findings.iter().find(|finding| finding.name == name));
            alert_domain::status_changed(tables, (self.account, self.domain, row), step.state.status, lost)?;
        }
        row.status = step.state.status;
        row.last_seen_at = step.state.last_seen_at;
        row.checks = step.state.checks;
        let is_awaited = dkim::is_awaited(&row.dkim, now);
        let due = if is_awaited { step.next_check_at.min(now + ROTATION_CHECK) } else { step.next_check_at };
        self.rearm(tables, row, due);
        Ok(())
    }

    /// Updates the record of losses: DNS records that receivers once used, and use no longer.
    fn note_losses(&self, row: &mut DomainRow) {
        for purpose in [RecordPurpose::ReturnPath, RecordPurpose::Spf, RecordPurpose::Dmarc] {
            let finding = self.findings.iter().find(|finding| finding.purpose == purpose);
            let is_seen = match purpose {
                RecordPurpose::Dmarc => has_dmarc(&self.findings),
                _ => finding.and_then(Finding::is_effective),
            };
            let Some(is_seen) = is_seen else { continue };
            row.lost.retain(|lost| *lost != purpose);
            match (is_seen, row.once_ok.contains(&purpose)) {
                (true, false) => row.once_ok.push(purpose),
                (false, true) => row.lost.push(purpose),
                (true, true) | (false, false) => {}
            }
        }
    }

    /// Writes the service's finding to the audit log.
    fn tell_status(&self, tables: &mut Tables<'_>, row: &DomainRow, status: DomainStatus) -> Result<(), StoreError> {
        let action = match status {
            DomainStatus::Verified => Action::DomainVerified,
            DomainStatus::Failing => Action::DomainFailing,
            DomainStatus::Pending => Action::DomainUnverified,
        };
        let change = Change::new(action, self.domain, row.name.as_str());
        audit::write(tables, self.account, &Actor::Service, change).map(drop)
    }

    /// Returns whether the record of the signing RSA key was found. If none signs, the record of the first waiting key
    /// decides. `None` if the lookup failed.
    fn dkim_finding(&self, row: &DomainRow) -> Option<bool> {
        self.status_at(&self.signing_name(row)?)
    }

    fn signing_name(&self, row: &DomainRow) -> Option<String> {
        let in_state = |state| {
            let mut keys = row.dkim.iter().filter(|key| key.algorithm == DkimAlgorithm::RsaSha256);
            keys.find(|key| key.state == state)
        };
        let key = in_state(DkimState::Active).or_else(|| in_state(DkimState::Pending))?;
        Some(dkim_name(row, &key.selector))
    }

    fn finding(&self, purpose: RecordPurpose) -> Option<bool> {
        self.findings.iter().find(|finding| finding.purpose == purpose).and_then(seen)
    }

    fn status_at(&self, name: &str) -> Option<bool> {
        self.findings.iter().find(|finding| finding.name == name).and_then(seen)
    }

    fn claim(&self, tables: &mut Tables<'_>, row: &DomainRow, key: &[u8]) -> Result<(), OpError<DomainRefusal>> {
        let name = row.name.as_str().as_bytes();
        if tables.get(Table::DomainOwners, name)?.is_some_and(|owner| owner != key) {
            return Err(OpError::Refused(DomainRefusal::Taken));
        }
        tables.put_bytes(Table::DomainOwners, name, key.to_vec());
        Ok(())
    }

    fn give_up_claim(&self, tables: &mut Tables<'_>, row: &DomainRow, key: &[u8]) -> Result<(), StoreError> {
        let name = row.name.as_str().as_bytes();
        if tables.get(Table::DomainOwners, name)?.is_some_and(|owner| owner == key) {
            tables.remove(Table::DomainOwners, name);
        }
        Ok(())
    }

    fn rearm(&self, tables: &mut Tables<'_>, row: &mut DomainRow, due: Timestamp) {
        let timer = |due| Timer::new(due, TimerKind::DomainCheck, self.account, self.domain.0);
        // A domain without a timer is never re-checked, and a manual check does not change that.
        let Some(armed) = row.next_check_at else { return };
        tables.disarm(timer(armed));
        tables.arm(timer(due));
        row.next_check_at = Some(due);
    }
}

/// Delay before a check is repeated if its result could not be recorded, because the domain is verified in another
/// account.
const POSTPONED_CHECK: Duration = Duration::from_secs(24 * 3600);

/// Postpones a domain's next check.
#[derive(Debug, Serialize, Deserialize)]
pub struct PostponeDomainCheck {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The timer that was served.
    pub due: Timestamp,
}

impl Op for PostponeDomainCheck {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(Timer::new(self.due, TimerKind::DomainCheck, self.account, self.domain.0));
        let key = schema::domain(self.account, self.domain);
        let Some(mut row) = tables.row::<DomainRow>(&key)? else { return Ok(()) };
        if row.next_check_at == Some(self.due) {
            let due = tables.now() + POSTPONED_CHECK;
            row.next_check_at = Some(due);
            tables.put(&key, &row);
            tables.arm(Timer::new(due, TimerKind::DomainCheck, self.account, self.domain.0));
        }
        Ok(())
    }
}

const fn seen(finding: &Finding) -> Option<bool> {
    match finding.status {
        RecordStatus::Ok => Some(true),
        RecordStatus::Missing | RecordStatus::Mismatch => Some(false),
        RecordStatus::Unchecked => None,
    }
}

/// Returns the name of a DKIM key's record (RFC 6376 3.6.2.1).
pub fn dkim_name(row: &DomainRow, selector: &str) -> String {
    format!("{selector}._domainkey.{}", row.name)
}

/// Returns the domain of `account` with this name.
///
/// # Errors
/// Store errors.
pub fn domain_by_name(
    read: &impl Read,
    account: AccountId,
    name: &str,
) -> Result<Option<(DomainId, DomainRow)>, StoreError> {
    let Some(id) = read.get(Table::DomainsByName, &schema::named(account, name.as_bytes()))? else { return Ok(None) };
    let damaged = |_| StoreError::Row { table: Table::DomainsByName, fault: "not an identifier".into() };
    let id = DomainId(Ulid(id.try_into().map_err(damaged)?));
    Ok(read.row::<DomainRow>(&schema::domain(account, id))?.map(|row| (id, row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::account::QuotaLimits;
    use crate::domain::stream::Stream;
    use crate::store::testing::{TestStore, domain_row};

    #[test]
    fn an_account_has_at_most_100_domains() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        for number in 0..DOMAINS_COUNT {
            test.domain(account, &format!("d{number}.example"), Stream::Transactional, DomainStatus::Pending);
        }
        let row = domain_row("one-more.example", Stream::Transactional, DomainStatus::Pending);
        let one_more = CreateDomain { account, id: DomainId(Ulid([1; 16])), row };
        assert!(matches!(test.commit(one_more), Err(OpError::Refused(DomainRefusal::TooMany))));
        let other = test.account(QuotaLimits::default());
        test.domain(other, "d1.example", Stream::Transactional, DomainStatus::Pending);
    }
}
