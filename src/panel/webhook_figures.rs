//! Figures of one webhook: success rate and duration of its newest attempts, and its failures by result.

use std::time::Duration;

use super::attempts::AttemptLine;
use super::chart::percent;
use super::components::grouped;
use super::page_guard::Visit;
use super::timestamp::Moment;
use crate::base::id::{DeliveryId, EndpointId};
use crate::engine::listing::PageRequest;
use crate::store::error::StoreError;
use crate::store::row::delivery::AttemptRow;

/// Period of the figures.
const LATELY: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of deliveries read. This takes some milliseconds.
const LOOKED_AT: usize = 100;

/// Returns the figures as facts. Empty without an attempt.
///
/// # Errors
/// Store errors.
pub(super) fn figures(visit: &Visit<'_>, id: EndpointId) -> Result<Vec<(&'static str, String)>, StoreError> {
    let (engine, account) = (&visit.api.engine, visit.account_id());
    let page = PageRequest { before: None, limit: LOOKED_AT };
    let Some(found) = engine.deliveries(account, id, None, page)? else { return Ok(Vec::new()) };
    let period = match found.next {
        Some(_) if found.rows.iter().all(|record| record.row.state.created_at + LATELY > visit.now) => Period::Newest,
        Some(_) | None => Period::Day,
    };
    let mut attempts = Vec::new();
    for record in found.rows {
        if record.row.state.attempts > 0
            && let Some((_, found)) = engine.delivery(account, record.id)?
        {
            attempts.extend(found.into_iter().map(|(_, row)| row).filter(|row| row.at + LATELY > visit.now));
        }
    }
    Ok(of(&attempts, period))
}

/// Attempts that the figures cover.
#[derive(Debug, Clone, Copy)]
enum Period {
    /// The attempts of 24 hours.
    Day,
    /// The attempts of the newest deliveries, because a day has more attempts.
    Newest,
}

fn of(attempts: &[AttemptRow], period: Period) -> Vec<(&'static str, String)> {
    let (count, taken) = (attempts.len(), attempts.iter().filter(|row| row.error.is_none()).count());
    if count == 0 {
        return Vec::new();
    }
    let share = u32::try_from(taken * 1_000_000 / count).unwrap_or_default();
    let mut times: Vec<_> = attempts.iter().map(|row| row.duration_ms).collect();
    times.sort_unstable();
    let most = times[(count * 95).div_ceil(100) - 1];
    let counts = format!("{} of {}", grouped(taken as u64), grouped(count as u64));
    let (rate, time) = match period {
        Period::Day => ("Success rate, 24 hours", "95% within, 24 hours"),
        Period::Newest => ("Success rate, last 100 deliveries", "95% within, last 100 deliveries"),
    };
    vec![(rate, format!("{} ({counts} attempts)", percent(share))), (time, format!("{most} ms"))]
}

/// Failures with the same result.
pub(super) struct FailureGroup {
    /// Response status, or the name of the error.
    pub(super) result: String,
    /// Explanation.
    pub(super) words: &'static str,
    /// Number of failures.
    pub(super) count: usize,
    /// Time of the newest failure.
    pub(super) at: Moment,
    /// Page of the newest failure's delivery.
    pub(super) path: String,
}

/// Groups failures, which come newest first, by result. The result of the newest failure comes first.
pub(super) fn grouped_failures(
    visit: &Visit<'_>,
    id: EndpointId,
    failures: Vec<(DeliveryId, AttemptRow)>,
) -> Vec<FailureGroup> {
    let mut groups: Vec<FailureGroup> = Vec::new();
    for (delivery, row) in failures {
        let AttemptLine { at, result, words, .. } = AttemptLine::new(visit, row);
        match groups.iter_mut().find(|group| group.result == result) {
            Some(group) => group.count += 1,
            None => {
                let path = format!("/webhooks/{id}/deliveries/{delivery}");
                groups.push(FailureGroup { result, words, count: 1, at, path });
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::AttemptId;
    use crate::base::time::Timestamp;

    fn attempt(duration_ms: u64, error: Option<&str>) -> AttemptRow {
        AttemptRow {
            id: AttemptId::default(),
            at: Timestamp::ZERO,
            status: None,
            error: error.map(str::to_owned),
            duration_ms,
            peer: None,
            response_body: None,
        }
    }

    #[test]
    fn figures_are_computed_from_attempts_and_absent_without_one() {
        assert!(of(&[], Period::Day).is_empty());
        let mut attempts: Vec<_> = (1..=19).map(|millis| attempt(millis, None)).collect();
        attempts.push(attempt(10_000, Some("timeout")));
        let [(_, rate), (_, most)] = &of(&attempts, Period::Day)[..] else { panic!("two figures") };
        assert_eq!((rate.as_str(), most.as_str()), ("95% (19 of 20 attempts)", "19 ms"));
        let [(name, rate), _] = &of(&attempts[19..], Period::Newest)[..] else { panic!("two figures") };
        assert_eq!((*name, rate.as_str()), ("Success rate, last 100 deliveries", "0% (0 of 1 attempts)"));
        assert!(name.contains(&LOOKED_AT.to_string()));
    }
}
