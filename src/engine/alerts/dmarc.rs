//! Check for own mail that fails DMARC, from the reports of the last days.

use std::sync::Arc;

use crate::base::id::DomainId;
use crate::domain::alert::{Condition, Severity, Sighting, Subject, SubjectKind};
use crate::engine::Engine;
use crate::engine::dmarc::domains_with_reports;
use crate::store::error::StoreError;
use crate::store::op::alert::Finding;
use crate::store::row::domain::DomainRow;

/// Number of days to check, including today: reports arrive a day late.
const DAYS: u32 = 3;
/// Minimum number of failed messages of a day, and their minimum share in percent.
const FAILED_MIN: u64 = 10;
const SHARE_MIN: u64 = 1;
const DAY_SECS: u64 = 24 * 3600;

/// Returns the findings of every account with reports of the last days.
pub(super) async fn findings(engine: &Arc<Engine>) -> Result<Vec<Finding>, StoreError> {
    let today = u32::try_from(engine.clock.now().as_secs() / DAY_SECS).unwrap_or(u32::MAX);
    let mut findings: Vec<Finding> = Vec::new();
    let domains = domains_with_reports(&engine.store.snapshot()?)?;
    if domains.is_empty() {
        return Ok(findings);
    }
    // The names are looked up once: while DNS fails, a lookup for each domain would delay all checks by its time
    // limit.
    let own = Arc::new(engine.own_networks().await);
    for (account, domain, row) in domains {
        let mut failing = None;
        for day in (0..DAYS).map(|ago| today.saturating_sub(ago)) {
            let counts = engine.dmarc_counts_of(account, domain, (day, 1), &own).await?;
            let (messages, failed) = (counts.messages(), counts.failed());
            if failed >= FAILED_MIN && failed.saturating_mul(100) >= messages.saturating_mul(SHARE_MIN) {
                failing = failing.or(Some((failed, messages)));
            }
        }
        let found = failing.map(|(failed, of)| sighting(domain, &row, failed, of));
        match findings.last_mut().filter(|finding| finding.account == account) {
            Some(finding) => finding.found.extend(found),
            None => {
                let (condition, found) = (Condition::DmarcOwnFailing, found.into_iter().collect());
                findings.push(Finding { account, condition, found, unknown: Vec::new() });
            }
        }
    }
    Ok(findings)
}

fn sighting(domain: DomainId, row: &DomainRow, failed: u64, of: u64) -> Sighting {
    let summary = format!("Own mail of {} fails DMARC", row.name);
    let seen = format!("Receivers report that {failed} of {of} messages of a day from own sources failed.");
    let subject = Subject::new(SubjectKind::Domain, domain, row.name.as_str());
    Sighting::new(Condition::DmarcOwnFailing, Severity::Critical, summary, seen).of(subject)
}
