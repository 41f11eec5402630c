//! Check for providers that block an account's mail, from the answers of the last 24 hours.

use super::checks::DAY;
use crate::base::id::{AccountId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::alert::{Condition, Severity, Sighting, Subject, SubjectKind};
use crate::domain::provider_name::provider_name;
use crate::engine::Engine;
use crate::machine::reputation::Level;
use crate::store::error::StoreError;
use crate::store::op::alert::{Finding, known_subjects};
use crate::store::op::outcomes::hour_of;
use crate::store::read::{Order, Read, after_prefix};
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;

/// Maximum number of accounts that one check reads.
const ACCOUNTS_MAX: usize = 100_000;

/// Returns the findings of every account that sent mail in the last 24 hours or has an alert.
pub(super) fn findings(engine: &Engine, snapshot: &Snapshot, now: Timestamp) -> Result<Vec<Finding>, StoreError> {
    const CONDITION: Condition = Condition::ProviderBlocking;
    let mut findings = Vec::new();
    for key in snapshot.sound_keys(Table::Accounts, &[], &after_prefix(&[]), Order::Ascending, ACCOUNTS_MAX)? {
        let Ok(account) = <[u8; 16]>::try_from(key).map(|id| AccountId(Ulid(id))) else { continue };
        let (from, to) = (hour_of(now - DAY), hour_of(now).saturating_add(1));
        let (from, to) = (schema::outcomes_of_hour(account, from), schema::outcomes_of_hour(account, to));
        let has_mailed = !snapshot.sound_keys(Table::Outcomes, &from, &to, Order::Ascending, 1)?.is_empty();
        if !has_mailed && known_subjects(snapshot, account, CONDITION)?.is_empty() {
            continue;
        }
        let levels = engine.provider_levels(account)?;
        let found: Vec<_> = levels.into_iter().filter_map(|(name, level)| sighting(&name, level)).collect();
        findings.push(Finding { account, condition: CONDITION, found, unknown: Vec::new() });
    }
    Ok(findings)
}

fn sighting(provider: &str, level: Level) -> Option<Sighting> {
    let (severity, share) = match level {
        Level::Ok => return None,
        Level::Warn => (Severity::Warning, "5%"),
        Level::Alarm => (Severity::Critical, "20%"),
    };
    let name = provider_name(provider);
    let summary = format!("The provider {name} blocks mail");
    let seen = format!("In the last 24 hours {share} or more of the answers of {name} were blocks.");
    let sighting = Sighting::new(Condition::ProviderBlocking, severity, summary, seen);
    Some(sighting.of(Subject::named(SubjectKind::Provider, provider)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_providers_page_level_maps_to_the_alert_severity() {
        let severity = |level| sighting("google", level).map(|sighting| sighting.severity);
        assert_eq!(severity(Level::Ok), None);
        assert_eq!(severity(Level::Warn), Some(Severity::Warning));
        assert_eq!(severity(Level::Alarm), Some(Severity::Critical));
    }

    #[test]
    fn texts_have_the_provider_s_name_for_people() {
        let sighting = sighting("office365", Level::Warn).unwrap();
        assert_eq!(sighting.summary, "The provider Microsoft 365 blocks mail");
        assert!(sighting.seen.ends_with("answers of Microsoft 365 were blocks."));
        assert_eq!(sighting.subject.unwrap().name, "office365");
    }
}
