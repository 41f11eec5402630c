//! Tests of the checks' thresholds.

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn severity(sighting: Option<Sighting>) -> Option<Severity> {
    sighting.map(|sighting| sighting.severity)
}

#[test]
fn a_disk_is_low_below_16_times_the_limit_and_full_below_the_limit() {
    let judged = |free| severity(disk(free, 64));
    assert_eq!(
        [1024, 1023, 64, 63].map(judged),
        [None, Some(Severity::Warning), Some(Severity::Warning), Some(Severity::Critical)]
    );
    assert_eq!(severity(disk(0, 0)), None, "no limit, no alert");
}

#[test]
fn a_certificate_raises_a_warning_14_days_before_its_end_and_is_critical_3_days_before() {
    let judged = |days: u64, and: u64| severity(certificate(NOW + Duration::from_secs(days * 24 * 3600 + and), NOW));
    assert_eq!(
        [judged(14, 0), judged(13, 86_399), judged(3, 0)],
        [None, Some(Severity::Warning), Some(Severity::Warning)]
    );
    assert_eq!(judged(2, 86_399), Some(Severity::Critical));
    assert_eq!(severity(certificate(NOW, NOW + DAY)), Some(Severity::Critical));
}

#[test]
fn a_replication_lag_of_a_minute_is_a_warning_and_a_lost_bucket_is_critical() {
    let judged = |state, seconds: u32| {
        let status =
            ReplicaStatus { role: Role::Active, state, lag_seconds: f64::from(seconds), ..ReplicaStatus::off() };
        severity(replica(&status, Duration::from_secs(seconds.into())))
    };
    use State::{Degraded, Forbidden, Lagging, Ok, Resync, Unreachable, Waiting};
    assert_eq!([judged(Ok, 999), judged(Waiting, 999), judged(Lagging, 59)], [None; 3]);
    assert_eq!(judged(Lagging, 60), Some(Severity::Warning));
    assert_eq!([judged(Unreachable, 59), judged(Unreachable, 60)], [None, Some(Severity::Warning)]);
    assert_eq!([judged(Unreachable, 899), judged(Unreachable, 900)], [Severity::Warning, Severity::Critical].map(Some));
    for state in [Forbidden, Degraded, Resync] {
        assert_eq!(judged(state, 0), Some(Severity::Critical));
    }
    let deposed = ReplicaStatus { role: Role::Deposed, ..ReplicaStatus::off() };
    assert_eq!(severity(replica(&deposed, Duration::ZERO)), Some(Severity::Critical));
}
