//! Metrics of replication. Their families exist without replication too, so that alert rules find them.

use super::exposition::{Exposition, Unit};
use crate::base::time::Timestamp;
use crate::engine::Engine;
use crate::engine::bucket::meters::BucketMeters;
use crate::engine::replica::{ReplicaStatus, Role, State};

/// Writes the metrics of `engine`'s replication at `now`.
pub(super) fn write(text: &mut Exposition, engine: &Engine, now: Timestamp) {
    let replication = engine.replication.get();
    write_status(text, &replication.map_or_else(ReplicaStatus::off, |replication| replication.status(now)));
    let unconfirmed = replication.map_or(0, |replication| replication.unconfirmed().records);
    write_log(text, unconfirmed, replication.map_or(0, |replication| replication.resyncs()));
    write_requests(text, replication.and_then(|replication| replication.meters.as_deref()));
}

/// Writes the metrics of a standby, which ships no log.
pub(super) fn write_standby(text: &mut Exposition, status: &ReplicaStatus, meters: &BucketMeters) {
    write_status(text, status);
    write_log(text, 0, 0);
    write_requests(text, Some(meters));
}

/// Writes the metrics of the log that this machine ships.
fn write_log(text: &mut Exposition, unconfirmed_records: u64, resyncs: u64) {
    text.gauges(
        "postrider_replica_unconfirmed_records",
        "Log records that the bucket does not have yet.",
        [(vec![], unconfirmed_records)],
    );
    text.counters(
        "postrider_replica_resyncs",
        "Gaps in the log after which a new base was made: times within a gap can't be restored.",
        [(vec![], resyncs)],
    );
}

/// Writes the metrics of the status, which a standby has too.
fn write_status(text: &mut Exposition, status: &ReplicaStatus) {
    role(text, status.role);
    let states = State::ALL.iter().map(|state| (vec![("state", state.as_str())], u8::from(*state == status.state)));
    text.gauges("postrider_replica_state", "1 for the state of replication, 0 for the others.", states);
    text.gauges(
        "postrider_replica_lag_seconds",
        "Age of the oldest change that the bucket does not have yet; for a standby, that it has not applied yet.",
        [(vec![], status.lag_seconds)],
    );
    text.gauges(
        "postrider_replica_backlog_bytes",
        "Bytes of log on this machine that the bucket does not have yet.",
        [(vec![], status.backlog_bytes)],
    );
    text.gauges(
        "postrider_replica_confirmed_timestamp_seconds",
        "Time of the bucket's last confirmation; absent before the first.",
        status.last_confirmed_at.map(|at| (vec![], at.as_secs())),
    );
    text.gauges(
        "postrider_replica_epoch",
        "Number of the epoch, which rises with each start and each promotion.",
        [(vec![], status.epoch)],
    );
    #[expect(clippy::cast_precision_loss, reason = "a lease has at most 60,000 ms")]
    let lease_left = status.lease_left_ms.map(|millis| (vec![], millis as f64 / 1000.0));
    text.gauges(
        "postrider_replica_lease_remaining_seconds",
        "Time until the sending lease needs another confirmation; absent if it has no end.",
        lease_left,
    );
}

fn role(text: &mut Exposition, current: Role) {
    let roles = Role::ALL.iter().map(|role| (vec![("role", role.as_str())], u8::from(*role == current)));
    text.gauges("postrider_replica_role", "1 for the role of this process, 0 for the others.", roles);
}

/// Writes the counts of requests to the bucket, if there is one.
fn write_requests(text: &mut Exposition, meters: Option<&BucketMeters>) {
    text.counters(
        "postrider_replica_requests",
        "Requests to the bucket, by operation and outcome; exists means that the object already existed.",
        meters
            .into_iter()
            .flat_map(BucketMeters::requests)
            .map(|(operation, outcome, count)| (vec![("operation", operation), ("outcome", outcome)], count)),
    );
    text.histograms(
        "postrider_replica_request_duration_seconds",
        "Duration of requests to the bucket, by operation.",
        Unit::Microseconds,
        meters
            .into_iter()
            .flat_map(BucketMeters::durations)
            .map(|(operation, read)| (vec![("operation", operation)], read)),
    );
    text.counters(
        "postrider_replica_sent_bytes",
        "Bytes of objects sent to the bucket.",
        [(vec![], meters.map_or(0, |meters| meters.sent_bytes.read()))],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_one_role_and_one_state() {
        let mut text = Exposition::default();
        let status = ReplicaStatus {
            role: Role::Active,
            state: State::Lagging,
            lag_seconds: 6.5,
            epoch: 3,
            lease_left_ms: Some(2500),
            last_confirmed_at: Some(Timestamp::from_millis(1_700_000_000_999)),
            ..ReplicaStatus::off()
        };
        write_status(&mut text, &status);
        let text = text.finish();
        for line in [
            "postrider_replica_role{role=\"active\"} 1",
            "postrider_replica_role{role=\"standby\"} 0",
            "postrider_replica_state{state=\"lagging\"} 1",
            "postrider_replica_state{state=\"ok\"} 0",
            "postrider_replica_lag_seconds 6.5",
            "postrider_replica_epoch 3",
            "postrider_replica_confirmed_timestamp_seconds 1700000000",
            "postrider_replica_lease_remaining_seconds 2.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
    }

    #[test]
    fn requests_are_counted_by_operation_and_outcome() {
        let mut text = Exposition::default();
        write_requests(&mut text, Some(&BucketMeters::default()));
        let text = text.finish();
        for line in [
            "postrider_replica_requests_total{operation=\"create\",outcome=\"exists\"} 0",
            "postrider_replica_request_duration_seconds_count{operation=\"list\"} 0",
            "postrider_replica_sent_bytes_total 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
    }
}
