//! Checks that need no network: disk, certificate, backup, clock, damage, quotas and replication.

use std::ops::ControlFlow;
use std::time::Duration;

use super::network;
use super::notifier::SERVICE;
use super::stalled::Searches;
use super::{deposed, dmarc, providers, rates};
use crate::base::id::{AccountId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::account::Account;
use crate::domain::alert::{Condition, Severity, Sighting};
use crate::engine::Engine;
use crate::engine::replica::{ReplicaStatus, Role, State};
use crate::machine::quota::Quota;
use crate::store::error::{OpError, StoreError};
use crate::store::op::alert::{ChangedAlerts, Finding, RecordFindings, known_subjects};
use crate::store::op::alert_quota;
use crate::store::read::{Order, Read, after_prefix, sound};
use crate::store::row::Row as _;
use crate::store::row::alert::OpenAlertRow;
use crate::store::schema::Table;
use crate::store::snapshot::Snapshot;

/// Free space below this multiple of the required minimum is low.
const ROOM: u64 = 16;
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);
/// Remaining validity of the certificate that is a warning, and that is critical.
const CERTIFICATE: [Duration; 2] = [Duration::from_secs(14 * 24 * 3600), Duration::from_secs(3 * 24 * 3600)];
/// Replication lag that is a warning, and time for which an unreachable bucket becomes critical.
const LAG: Duration = Duration::from_secs(60);
const UNREACHABLE: Duration = Duration::from_secs(15 * 60);
/// Maximum number of open quota alerts that one check reads.
const QUOTAS_MAX: usize = 10_000;

/// State that checks keep from one run to the next.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Number of reads that found damaged records, and the time of the last change.
    damage: Option<(u64, Timestamp)>,
    /// State of replication, and the time of the first check that found it.
    replica: Option<(State, Timestamp)>,
    /// Searches for messages that wait in a stalled queue.
    searches: Searches,
}

impl Engine {
    /// Runs every check now, and records what they find.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn check_alerts(self: &std::sync::Arc<Self>) -> Result<ChangedAlerts, StoreError> {
        let mut memory = self.alerts.memory.lock().await;
        let mut findings = self.look_around(&mut memory).await?;
        findings.extend(network::findings(self).await);
        findings.extend(rates::findings(self).await?);
        self.record_findings(findings).await
    }

    /// Runs the checks that need no network.
    pub(super) async fn check_locally(self: &std::sync::Arc<Self>) -> Result<ChangedAlerts, StoreError> {
        let mut memory = self.alerts.memory.lock().await;
        let findings = self.look_around(&mut memory).await?;
        self.record_findings(findings).await
    }

    /// Records findings. If nothing has changed, nothing is written.
    pub(super) async fn record_findings(&self, findings: Vec<Finding>) -> Result<ChangedAlerts, StoreError> {
        let is_new = {
            let snapshot = self.store.snapshot()?;
            findings.iter().try_fold(false, |is_new, finding| {
                let known = || known_subjects(&snapshot, finding.account, finding.condition);
                Ok::<_, StoreError>(is_new || !finding.found.is_empty() || !known()?.is_empty())
            })?
        };
        if !is_new {
            return Ok(ChangedAlerts::default());
        }
        self.store.commit(RecordFindings { findings }).await.map_err(|stop| match stop {
            OpError::Failed(error) => error,
            OpError::Refused(never) => match never {},
        })
    }

    async fn look_around(self: &std::sync::Arc<Self>, memory: &mut Memory) -> Result<Vec<Finding>, StoreError> {
        let engine = std::sync::Arc::clone(self);
        let looked = self.blocking(crate::engine::blocking::OPERATOR, move || engine.look_at_alerts()).await??;
        let mut findings = looked;
        findings.push(self.queue_finding(&mut memory.searches).await?);
        findings.push(Finding::of_service(Condition::StoreDamaged, self.damage(memory)));
        findings.push(Finding::of_service(Condition::Replica, self.replica(memory)));
        findings.extend(dmarc::findings(self).await?);
        Ok(findings)
    }

    fn look_at_alerts(&self) -> Result<Vec<Finding>, StoreError> {
        let snapshot = self.store.snapshot()?;
        let now = self.clock.now();
        let mut findings = vec![
            Finding::of_service(Condition::DiskLow, disk(self.store.free_bytes()?, self.settings.min_free_bytes)),
            Finding::of_service(Condition::BackupOld, self.backup(&snapshot, now)?),
            Finding::of_service(Condition::ClockDoubtful, self.clock_doubt()),
        ];
        if let Some(sources) = self.alerts.sources.get() {
            let certificate = (sources.certificate_until)().and_then(|until| certificate(until, now));
            findings.push(Finding::of_service(Condition::CertificateExpiring, certificate));
        }
        findings.extend(self.removed_relays(&snapshot)?);
        findings.extend(quotas(&snapshot, now)?);
        findings.extend(providers::findings(self, &snapshot, now)?);
        Ok(findings)
    }

    /// Finds a backup that is too old. Without a backup, the age counts from the first account, which was created with
    /// the store.
    fn backup(&self, snapshot: &Snapshot, now: Timestamp) -> Result<Option<Sighting>, StoreError> {
        let Some(age_max) = self.settings.alerts.backup_age_max else { return Ok(None) };
        let replica = self.replication.get().map(|replication| replication.status(now));
        if replica.is_some_and(|status| status.role == Role::Active && status.state == State::Ok) {
            return Ok(None);
        }
        let last = self.last_backup().and_then(|text| text.trim().parse::<Timestamp>().ok());
        let made = || -> Result<_, StoreError> {
            let first = snapshot.sound_keys(Table::Accounts, &[], &after_prefix(&[]), Order::Ascending, 1)?;
            let id = first.first().and_then(|key| key.first_chunk::<16>()).map(|id| Ulid(*id));
            Ok(id.map(Ulid::timestamp))
        };
        let Some(since) = last.map_or_else(made, |last| Ok(Some(last)))? else { return Ok(None) };
        if now.since(since) <= age_max {
            return Ok(None);
        }
        let seen = match last {
            Some(last) => format!("The last backup was taken at {last}."),
            None => format!("No backup was taken since the store was created at {since}."),
        };
        let hours = age_max.as_secs() / 3600;
        let summary = format!("No backup in the last {hours} hours");
        Ok(Some(Sighting::new(Condition::BackupOld, Severity::Warning, summary, seen)))
    }

    fn clock_doubt(&self) -> Option<Sighting> {
        let doubt = self.clock.doubt()?;
        Some(crate::store::op::clock_doubt::sighting(Some(doubt.cause.as_str())))
    }

    /// Returns the problem of replication, if there is one.
    fn replica(&self, memory: &mut Memory) -> Option<Sighting> {
        let now = self.clock.now();
        let status = self.replication.get()?.status(now);
        let since = match memory.replica {
            Some((before, at)) if before == status.state => at,
            _ => now,
        };
        memory.replica = Some((status.state, since));
        // An idle log has no lag, even if its bucket has not answered for a long time. So both are checked for an
        // unreachable bucket.
        let lag = Duration::try_from_secs_f64(status.lag_seconds).unwrap_or_default();
        replica(&status, now.since(since).max(lag))
    }

    /// Reports damage that was found since the start, until no more is found for a day.
    fn damage(&self, memory: &mut Memory) -> Option<Sighting> {
        let now = self.clock.now();
        let keys = self.store.content().key_faults();
        let rows = self.store.meters().damage.met.read();
        let met = rows.saturating_add(keys);
        let (_, changed_at) = match memory.damage {
            Some((before, at)) if before == met => (before, at),
            _ => (met, now),
        };
        memory.damage = Some((met, changed_at));
        if met == 0 || now.since(changed_at) > DAY {
            return None;
        }
        let seen = format!(
            "Damaged rows were read {rows} times since the start, which found {keys} damaged slots of content keys."
        );
        let summary = "The store has damaged data";
        Some(Sighting::new(Condition::StoreDamaged, Severity::Critical, summary, seen))
    }
}

fn disk(free: u64, least: u64) -> Option<Sighting> {
    const MIB: u64 = 1 << 20;
    let (severity, summary) = match free {
        free if free < least => (Severity::Critical, "The disk is full: no message is accepted"),
        free if free < least.saturating_mul(ROOM) => (Severity::Warning, "The disk is nearly full"),
        _ => return None,
    };
    let seen = format!("{} MiB are free; messages are accepted from {} MiB on.", free / MIB, least / MIB);
    Some(Sighting::new(Condition::DiskLow, severity, summary, seen))
}

fn certificate(until: Timestamp, now: Timestamp) -> Option<Sighting> {
    let left = until.since(now);
    let [warning, critical] = CERTIFICATE;
    let severity = match left {
        left if left < critical => Severity::Critical,
        left if left < warning => Severity::Warning,
        _ => return None,
    };
    let summary = if left.is_zero() { "The TLS certificate has expired" } else { "The TLS certificate expires soon" };
    Some(Sighting::new(Condition::CertificateExpiring, severity, summary, format!("It is valid until {until}.")))
}

/// Returns the problem of a replica that has been in the same state for `lasts`.
fn replica(status: &ReplicaStatus, lasts: Duration) -> Option<Sighting> {
    if status.role == Role::Deposed {
        return Some(deposed::sighting(status.holder.as_deref().unwrap_or("another machine")));
    }
    let (severity, word) = match status.state {
        State::Unreachable if lasts >= UNREACHABLE => (Severity::Critical, status.state.as_str()),
        State::Lagging | State::Unreachable if status.lag_seconds >= LAG.as_secs_f64() => {
            (Severity::Warning, status.state.as_str())
        }
        State::Forbidden | State::Degraded | State::Resync => (Severity::Critical, status.state.as_str()),
        State::Ok | State::Waiting | State::Lagging | State::Unreachable | State::DiskFull => return None,
    };
    let why = status.error.as_deref().map(|error| format!(" Last error: {error}.")).unwrap_or_default();
    let seen = format!(
        "The bucket lacks {} bytes; the oldest are {:.0} s old.{why}",
        status.backlog_bytes, status.lag_seconds
    );
    Some(Sighting::new(Condition::Replica, severity, format!("Replication is {word}"), seen))
}

/// Returns the accounts with an open quota alert, with their current quota.
fn quotas(snapshot: &Snapshot, now: Timestamp) -> Result<Vec<Finding>, StoreError> {
    let mut accounts = Vec::new();
    snapshot.scan_sound(Table::OpenAlerts, &[], &after_prefix(&[]), Order::Ascending, &mut |key, bytes| {
        let is_quota = sound(OpenAlertRow::decode(bytes))?.is_some_and(|open| open.condition == Condition::Quota);
        accounts.extend(key.first_chunk::<16>().filter(|_| is_quota).map(|id| AccountId(Ulid(*id))));
        Ok(if accounts.len() < QUOTAS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    let mut findings = Vec::new();
    for account in accounts.into_iter().filter(|account| *account != SERVICE) {
        let limits = snapshot.sound_row::<Account>(account.as_bytes())?.map(|account| account.quota);
        let quota: Quota = snapshot.sound_row(account.as_bytes())?.unwrap_or_default();
        let found = limits.and_then(|limits| alert_quota::quota_sighting(&quota, limits, now));
        let (condition, found, unknown) = (Condition::Quota, found.into_iter().collect(), Vec::new());
        findings.push(Finding { account, condition, found, unknown });
    }
    Ok(findings)
}

#[cfg(test)]
mod tests;
