//! The alerts of a sending domain: it lost its verification, or one of its records is no longer correct.

use std::time::Duration;

use super::domain::dkim_name;
use super::{alert, dkim};
use crate::base::id::{AccountId, DomainId};
use crate::domain::alert::{Condition, Severity, Sighting, Subject, SubjectKind};
use crate::domain::sending_domain::{DkimState, DomainStatus, RecordPurpose, RecordStatus};
use crate::store::error::StoreError;
use crate::store::row::domain::{DomainRow, Finding};
use crate::store::tables::Tables;

/// Time before a rotation by which the records of the next keys must be visible.
const STANDBY_BEFORE: Duration = Duration::from_secs(14 * 24 * 3600);

fn subject(domain: DomainId, row: &DomainRow) -> Subject {
    Subject::new(SubjectKind::Domain, domain, row.name.as_str())
}

/// Raises or ends the alert when a domain's status changes. `row` is the domain before the change, `dkim` the finding
/// for its signing key.
///
/// # Errors
/// Database errors.
pub(super) fn status_changed(
    tables: &mut Tables<'_>,
    (account, domain, row): (AccountId, DomainId, &DomainRow),
    status: DomainStatus,
    dkim: Option<&Finding>,
) -> Result<(), StoreError> {
    let name = &row.name;
    let seen = match (row.status, status) {
        (_, DomainStatus::Verified) => {
            return alert::gone(tables, account, Condition::DomainFailing, &domain.to_string()).map(drop);
        }
        (_, DomainStatus::Failing) => {
            format!("{} It can send for 72 hours after the record was seen.", dkim_fault(dkim))
        }
        (DomainStatus::Verified | DomainStatus::Failing, DomainStatus::Pending) => {
            format!("{} It has not been seen for 72 hours, so the domain can't send.", dkim_fault(dkim))
        }
        (DomainStatus::Pending, DomainStatus::Pending) => return Ok(()),
    };
    let summary = match status {
        DomainStatus::Failing => format!("The domain {name} is failing"),
        DomainStatus::Pending | DomainStatus::Verified => format!("The domain {name} is not verified any more"),
    };
    let sighting = Sighting::new(Condition::DomainFailing, Severity::Critical, summary, seen);
    alert::found(tables, account, &sighting.of(subject(domain, row))).map(drop)
}

/// Describes why a domain's DKIM record was not seen. Receivers choose any of several TXT records.
fn dkim_fault(finding: Option<&Finding>) -> String {
    match finding {
        Some(Finding { found, name, .. }) if found.len() > 1 => {
            format!("There are {} TXT records at {name}, and only one of them is its DKIM record.", found.len())
        }
        Some(Finding { status: RecordStatus::Mismatch, .. }) => {
            "Its DKIM record has another key or an error.".to_owned()
        }
        _ => "Its DKIM record is missing.".to_owned(),
    }
}

/// Raises or ends the alerts of records that are no longer correct, and of missing records of keys that will soon sign.
/// `row` is the domain after the check.
///
/// # Errors
/// Database errors.
pub(super) fn looked_at(
    tables: &mut Tables<'_>,
    account: AccountId,
    domain: DomainId,
    row: &DomainRow,
) -> Result<(), StoreError> {
    let mut names: Vec<_> = row.lost.iter().map(|purpose| described(row, *purpose)).collect();
    let is_soon = row.rotation.next_at.is_some_and(|at| at <= tables.now() + STANDBY_BEFORE);
    if is_soon && !is_next_seen(row) {
        names.push("DKIM of the next signing keys".to_owned());
    }
    if names.is_empty() {
        return alert::gone(tables, account, Condition::DomainRecord, &domain.to_string()).map(drop);
    }
    let summary = format!("A DNS record of {} is missing or different", row.name);
    let seen = format!("Missing or different: {}.", names.join(", "));
    let sighting = Sighting::new(Condition::DomainRecord, Severity::Warning, summary, seen);
    alert::found(tables, account, &sighting.of(subject(domain, row))).map(drop)
}

/// Returns whether the RSA record of the next signing keys was seen at the last successful lookup.
fn is_next_seen(row: &DomainRow) -> bool {
    let Some(key) = dkim::further(&row.dkim).filter(|key| key.state == DkimState::Standby) else { return false };
    let name = dkim_name(row, &key.selector);
    let finding = row.findings.iter().find(|finding| finding.name == name);
    finding.and_then(Finding::is_effective) != Some(false)
}

/// Names a lost record. If there is one, adds the reason why receivers ignore it.
fn described(row: &DomainRow, purpose: RecordPurpose) -> String {
    let finding = row.findings.iter().find(|finding| finding.purpose == purpose);
    let name = shown(purpose);
    match (purpose, finding.map_or(0, |finding| finding.found.len())) {
        (RecordPurpose::Dmarc, 1) => format!("{name} (invalid)"),
        (RecordPurpose::Spf | RecordPurpose::Dmarc, several @ 2..) => {
            format!("{name} ({several} records, so receivers ignore all of them)")
        }
        (RecordPurpose::Spf | RecordPurpose::Dmarc | RecordPurpose::ReturnPath | RecordPurpose::Dkim, _) => {
            name.to_owned()
        }
    }
}

const fn shown(purpose: RecordPurpose) -> &'static str {
    match purpose {
        RecordPurpose::ReturnPath => "the return path (CNAME)",
        RecordPurpose::Spf => "SPF",
        RecordPurpose::Dmarc => "DMARC",
        RecordPurpose::Dkim => "DKIM",
    }
}

/// Ends the alerts of a removed domain.
///
/// # Errors
/// Database errors.
pub(super) fn removed(tables: &mut Tables<'_>, account: AccountId, domain: DomainId) -> Result<(), StoreError> {
    let id = domain.to_string();
    for condition in [Condition::DomainFailing, Condition::DomainRecord, Condition::DmarcOwnFailing] {
        alert::gone(tables, account, condition, &id)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::secret::SealedSecret;
    use crate::base::time::Timestamp;
    use crate::domain::account::QuotaLimits;
    use crate::domain::sending_domain::DkimAlgorithm;
    use crate::domain::stream::Stream;
    use crate::store::op::domain::RecordDomainCheck;
    use crate::store::read::Read as _;
    use crate::store::row::alert::AlertRow;
    use crate::store::row::domain::{DkimKeyRow, DnsFacts};
    use crate::store::schema;
    use crate::store::testing::TestStore;
    use crate::store::testing::domain_row;

    fn look(test: &TestStore, account: AccountId, domain: DomainId, spf: RecordStatus) {
        let found = if spf == RecordStatus::Ok { vec!["v=spf1 mx -all".to_owned()] } else { Vec::new() };
        let finding = Finding { purpose: RecordPurpose::Spf, name: "example.com".to_owned(), status: spf, found };
        let (findings, facts) = (vec![finding], DnsFacts::default());
        test.done(RecordDomainCheck { account, domain, findings, facts });
    }

    fn open(test: &TestStore, account: AccountId) -> Vec<(Condition, String)> {
        let rows = test.snapshot().rows::<AlertRow>(account.as_bytes(), 9).unwrap().into_iter();
        let open = rows.filter(|(_, row)| row.resolved_at.is_none());
        open.map(|(_, row)| (row.condition, row.seen)).collect()
    }

    #[test]
    fn a_lost_record_is_an_alert_until_it_is_found_again() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let domain = test.domain(account, "example.com", Stream::Transactional, DomainStatus::Verified);
        let key = schema::domain(account, domain);
        let row: DomainRow = test.row(&key);
        test.write(&key, &DomainRow { next_check_at: Some(test.now()), ..row });
        look(&test, account, domain, RecordStatus::Missing);
        look(&test, account, domain, RecordStatus::Ok);
        assert_eq!(open(&test, account), []);
        for status in [RecordStatus::Missing, RecordStatus::Unchecked, RecordStatus::Mismatch] {
            test.pass(Duration::from_secs(60));
            look(&test, account, domain, status);
            let lost = (Condition::DomainRecord, "Missing or different: SPF.".to_owned());
            assert_eq!(open(&test, account), [lost]);
        }
        look(&test, account, domain, RecordStatus::Ok);
        assert_eq!(open(&test, account), []);
    }

    #[test]
    fn an_inherited_dmarc_record_replaces_a_removed_one() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let domain = test.domain(account, "shop.example.com", Stream::Transactional, DomainStatus::Verified);
        let key = schema::domain(account, domain);
        let row: DomainRow = test.row(&key);
        test.write(&key, &DomainRow { next_check_at: Some(test.now()), ..row });
        let look = |own: &[&str], inherited: &[&str]| {
            let finding = |name: &str, found: &[&str]| Finding {
                purpose: RecordPurpose::Dmarc,
                name: name.to_owned(),
                status: if found.is_empty() { RecordStatus::Missing } else { RecordStatus::Ok },
                found: found.iter().map(|text| (*text).to_owned()).collect(),
            };
            let names = ["_dmarc.shop.example.com", "_dmarc.example.com"];
            let findings = vec![finding(names[0], own), finding(names[1], inherited)];
            test.done(RecordDomainCheck { account, domain, findings, facts: DnsFacts::default() });
            open(&test, account).len()
        };
        let (own, reject) = (&["v=DMARC1; p=none"][..], &["v=DMARC1; p=reject"][..]);
        assert_eq!([look(own, reject), look(&[], reject), look(&[], &[]), look(own, &[])], [0, 0, 1, 0]);
        assert_eq!([look(&[own[0], own[0]], reject), look(&["v=DMARC1; p=x"], reject), look(&[], reject)], [1, 1, 0]);
    }

    #[test]
    fn a_failing_domain_names_further_records_at_its_key_as_the_cause() {
        let finding = |status, found: &[&str]| Finding {
            purpose: RecordPurpose::Dkim,
            name: "s._domainkey.example.com".to_owned(),
            status,
            found: found.iter().map(|text| (*text).to_owned()).collect(),
        };
        for (found, expected) in [
            (finding(RecordStatus::Missing, &[]), "is missing"),
            (finding(RecordStatus::Mismatch, &["p=x"]), "another key"),
            (finding(RecordStatus::Mismatch, &["p=x", "junk"]), "2 TXT records at s._domainkey.example.com"),
        ] {
            let fault = dkim_fault(Some(&found));
            assert!(fault.contains(expected), "{fault}");
        }
    }

    #[test]
    fn missing_records_of_the_next_keys_are_an_alert_two_weeks_before_rotation() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let domain = test.domain(account, "example.com", Stream::Transactional, DomainStatus::Verified);
        let key = schema::domain(account, domain);
        let row: DomainRow = test.row(&key);
        let mut rotation = row.rotation;
        rotation.next_at = Some(test.now() + STANDBY_BEFORE + Duration::from_secs(1));
        test.write(&key, &DomainRow { rotation, ..row });
        look(&test, account, domain, RecordStatus::Ok);
        assert_eq!(open(&test, account), []);
        test.pass(Duration::from_secs(1));
        look(&test, account, domain, RecordStatus::Ok);
        assert_eq!(open(&test, account).len(), 1);
    }

    #[test]
    fn the_next_rsa_key_counts_as_seen_only_by_its_last_look_up() {
        let key = |number: u32, algorithm, state| DkimKeyRow {
            selector: format!("pr-x-{}{number}", if algorithm == DkimAlgorithm::RsaSha256 { 'r' } else { 'e' }),
            algorithm,
            state,
            created_at: Timestamp::ZERO,
            retired_at: None,
            record: String::new(),
            private_key: SealedSecret(Vec::new()),
        };
        let is_seen = |rsa, ed25519, status| {
            let mut row = domain_row("example.com", Stream::Transactional, DomainStatus::Verified);
            row.dkim = vec![
                key(1, DkimAlgorithm::RsaSha256, DkimState::Active),
                key(2, DkimAlgorithm::RsaSha256, rsa),
                key(2, DkimAlgorithm::Ed25519Sha256, ed25519),
            ];
            let name = dkim_name(&row, "pr-x-r2");
            row.findings = vec![Finding { purpose: RecordPurpose::Dkim, name, status, found: Vec::new() }];
            is_next_seen(&row)
        };
        use DkimState::{Pending, Standby};
        assert!(is_seen(Standby, Pending, RecordStatus::Ok));
        assert!(is_seen(Standby, Standby, RecordStatus::Unchecked), "a failed lookup proves nothing");
        assert!(!is_seen(Pending, Standby, RecordStatus::Missing), "only the Ed25519 record is published");
        assert!(!is_seen(Standby, Standby, RecordStatus::Missing), "the record was removed again");
        assert!(!is_seen(Standby, Standby, RecordStatus::Mismatch));
    }
}
