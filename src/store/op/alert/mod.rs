//! Alerts: opening and ending them, in the operation that finds their condition, or with the findings of checks.
//!
//! A damaged row of an alert never fails the operation that reads it: a new alert replaces it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Infallible, Op};
use crate::base::id::{AccountId, AlertId};
use crate::domain::alert::{Condition, NoticeKind, Sighting};
use crate::machine::alert::{Effect, Input, Open, State};
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::alert::{AlertRow, AlertStateRow, OpenAlertRow, PendingNotice};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Time for which an ended alert is kept.
pub const KEPT: Duration = Duration::from_secs(90 * 24 * 3600);
/// Maximum number of changes that wait for their announcement; the oldest ones are dropped.
const ANNOUNCEMENTS_MAX: usize = 16;
/// Maximum number of states of one condition that a check reads.
const STATES_MAX: usize = 10_000;

/// The alerts that a step opened and ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedAlerts {
    /// Opened or reopened alerts.
    pub opened: Vec<AlertId>,
    /// Ended alerts.
    pub resolved: Vec<AlertId>,
}

impl ChangedAlerts {
    /// Adds the changes of another step.
    pub fn extend(&mut self, other: Self) {
        self.opened.extend(other.opened);
        self.resolved.extend(other.resolved);
    }
}

/// Records that a condition holds.
///
/// # Errors
/// Database errors.
pub fn found(tables: &mut Tables<'_>, account: AccountId, sighting: &Sighting) -> Result<ChangedAlerts, StoreError> {
    step(tables, account, Input::Found(sighting.severity), sighting.condition, sighting.subject_id(), Some(sighting))
}

/// Records that a condition occurred now and is already over.
///
/// # Errors
/// Database errors.
pub fn happened(tables: &mut Tables<'_>, account: AccountId, sighting: &Sighting) -> Result<ChangedAlerts, StoreError> {
    step(tables, account, Input::Happened(sighting.severity), sighting.condition, sighting.subject_id(), Some(sighting))
}

/// Records that a condition does not hold.
///
/// # Errors
/// Database errors.
pub fn gone(
    tables: &mut Tables<'_>,
    account: AccountId,
    condition: Condition,
    subject: &str,
) -> Result<ChangedAlerts, StoreError> {
    step(tables, account, Input::Gone, condition, subject, None)
}

/// Steps the machine of a condition and subject, and applies its effects.
pub(super) fn step(
    tables: &mut Tables<'_>,
    account: AccountId,
    input: Input,
    condition: Condition,
    subject: &str,
    sighting: Option<&Sighting>,
) -> Result<ChangedAlerts, StoreError> {
    let key = schema::alert_state(account, condition, subject);
    let before: AlertStateRow = tables.sound_row(&key)?.unwrap_or_default();
    let next = before.state.step(input, condition.looks(), tables.now());
    let mut changed = ChangedAlerts::default();
    if next.state == before.state && next.effects.is_empty() {
        if let (State::Open(_), Some(id), Some(sighting)) = (before.state, before.alert, sighting) {
            see_again(tables, account, id, sighting)?;
        }
        return Ok(changed);
    }
    move_reminder(tables, account, &before, &next.state);
    let mut last = match before.alert {
        Some(id) => tables.sound_row::<AlertRow>(&schema::alert(account, id))?.map(|row| (id, row)),
        None => None,
    };
    for effect in next.effects {
        match (effect, sighting) {
            (Effect::Open, Some(sighting)) => last = Some((tables.next_id(), AlertRow::opened(sighting, tables.now()))),
            (Effect::Reopen, Some(sighting)) => match &mut last {
                Some((id, row)) if !condition.keeps_each() => reopen(tables, account, *id, row, sighting),
                // Otherwise the alert's row was damaged.
                Some(_) | None => last = Some((tables.next_id(), AlertRow::opened(sighting, tables.now()))),
            },
            (Effect::ChangeSeverity, Some(sighting)) => {
                if let Some((_, row)) = &mut last {
                    show(row, sighting);
                }
            }
            (Effect::Resolve, _) => {
                if let Some((id, row)) = &mut last {
                    resolve(tables, account, *id, row);
                    changed.resolved.push(*id);
                }
            }
            (Effect::Announce(kind), _) => {
                if let Some((id, row)) = &mut last {
                    announce(tables, account, *id, row, kind);
                }
            }
            (Effect::Remind(_) | Effect::Open | Effect::Reopen | Effect::ChangeSeverity, _) => {}
        }
    }
    let was_open = before.state.is_open();
    if let Some((id, row)) = &last {
        save(tables, account, *id, row);
        if !was_open && row.resolved_at.is_none() {
            changed.opened.push(*id);
        }
    }
    if let (State::Open(Open { remind_at: Some(at), .. }), Some((id, _))) = (&next.state, &last) {
        tables.arm(Timer::new(*at, TimerKind::AlertReminder, account, id.0));
    }
    save_state(tables, &key, AlertStateRow { state: next.state, alert: last.map(|(id, _)| id) });
    Ok(changed)
}

/// Updates the last observation of an open alert.
fn see_again(tables: &mut Tables<'_>, account: AccountId, id: AlertId, sighting: &Sighting) -> Result<(), StoreError> {
    let key = schema::alert(account, id);
    if let Some(row) = tables.sound_row::<AlertRow>(&key)?.filter(|row| row.seen != sighting.seen) {
        tables.put(&key, &AlertRow { seen: sighting.seen.clone(), summary: sighting.summary.clone(), ..row });
    }
    Ok(())
}

/// Saves a state. An initial state has no row.
fn save_state(tables: &mut Tables<'_>, key: &[u8], row: AlertStateRow) {
    if row == AlertStateRow::default() {
        tables.remove(Table::AlertStates, key);
    } else {
        tables.put(key, &row);
    }
}

/// Moves the reminder's timer to the time in the next state.
fn move_reminder(tables: &mut Tables<'_>, account: AccountId, before: &AlertStateRow, after: &State) {
    let remind_at = |state: &State| match state {
        State::Open(open) => open.remind_at,
        State::Absent | State::Suspected { .. } | State::Ended { .. } => None,
    };
    if let (Some(at), Some(id)) = (remind_at(&before.state), before.alert)
        && remind_at(after) != Some(at)
    {
        tables.disarm(Timer::new(at, TimerKind::AlertReminder, account, id.0));
    }
}

/// Copies the latest sighting into an alert.
fn show(row: &mut AlertRow, sighting: &Sighting) {
    row.severity = sighting.severity;
    row.worst = row.worst.max(sighting.severity);
    row.subject.clone_from(&sighting.subject);
    row.summary.clone_from(&sighting.summary);
    row.seen.clone_from(&sighting.seen);
}

fn reopen(tables: &mut Tables<'_>, account: AccountId, id: AlertId, row: &mut AlertRow, sighting: &Sighting) {
    if let Some(resolved_at) = row.resolved_at.take() {
        tables.disarm(Timer::new(resolved_at + KEPT, TimerKind::AlertExpiry, account, id.0));
    }
    show(row, sighting);
}

fn resolve(tables: &mut Tables<'_>, account: AccountId, id: AlertId, row: &mut AlertRow) {
    let now = tables.now();
    row.resolved_at = Some(now);
    tables.arm(Timer::new(now + KEPT, TimerKind::AlertExpiry, account, id.0));
}

/// Records a change for its announcement. The engine serves the timer and knows the recipients.
fn announce(tables: &mut Tables<'_>, account: AccountId, id: AlertId, row: &mut AlertRow, kind: NoticeKind) {
    let now = tables.now();
    if row.announcements.len() >= ANNOUNCEMENTS_MAX {
        row.announcements.remove(0);
    }
    row.announcements.push(PendingNotice { kind, at: now });
    tables.arm(Timer::new(now, TimerKind::AlertAnnouncement, account, id.0));
}

fn save(tables: &mut Tables<'_>, account: AccountId, id: AlertId, row: &AlertRow) {
    let key = schema::alert(account, id);
    tables.put(&key, row);
    tables.put_bytes(Table::AlertOwners, id.as_bytes(), account.as_bytes().to_vec());
    if row.resolved_at.is_none() {
        tables.put(&key, &OpenAlertRow { condition: row.condition, severity: row.severity });
    } else {
        tables.remove(Table::OpenAlerts, &key);
    }
}

/// Records that a condition holds, for a refused operation or a worker that found it.
#[derive(Debug, Serialize, Deserialize)]
pub struct RaiseAlert {
    /// The account; zero for conditions of the service.
    pub account: AccountId,
    /// The condition.
    pub sighting: Sighting,
    /// Whether the alert is already over.
    pub is_over: bool,
}

impl Op for RaiseAlert {
    type Reply = ChangedAlerts;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<ChangedAlerts, OpError<Infallible>> {
        let note = if self.is_over { happened } else { found };
        Ok(note(tables, self.account, &self.sighting)?)
    }
}

/// Records that a condition does not hold for one subject.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClearAlert {
    /// The account; zero for conditions of the service.
    pub account: AccountId,
    /// The condition.
    pub condition: Condition,
    /// Identifier of its subject; empty without one.
    pub subject: String,
}

impl Op for ClearAlert {
    type Reply = ChangedAlerts;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<ChangedAlerts, OpError<Infallible>> {
        Ok(gone(tables, self.account, self.condition, &self.subject)?)
    }
}

/// Result of checking one condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The account; zero for conditions of the service.
    pub account: AccountId,
    /// The condition.
    pub condition: Condition,
    /// Subjects for which the condition holds.
    pub found: Vec<Sighting>,
    /// Subjects without a result; their alerts stay unchanged.
    pub unknown: Vec<String>,
}

impl Finding {
    /// Returns the finding that a condition of the service holds for these subjects.
    pub fn of_service(condition: Condition, found: impl IntoIterator<Item = Sighting>) -> Self {
        Self { account: AccountId::default(), condition, found: found.into_iter().collect(), unknown: Vec::new() }
    }
}

/// Records the results of checks. Alerts of conditions that no longer hold end.
#[derive(Debug, Serialize, Deserialize)]
pub struct RecordFindings {
    /// The results.
    pub findings: Vec<Finding>,
}

impl Op for RecordFindings {
    type Reply = ChangedAlerts;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<ChangedAlerts, OpError<Infallible>> {
        let mut changed = ChangedAlerts::default();
        for finding in &self.findings {
            for subject in known_subjects(tables, finding.account, finding.condition)? {
                let is_gone = !finding.unknown.contains(&subject)
                    && !finding.found.iter().any(|sighting| sighting.subject_id() == subject);
                if is_gone {
                    changed.extend(gone(tables, finding.account, finding.condition, &subject)?);
                }
            }
            for sighting in &finding.found {
                changed.extend(found(tables, finding.account, sighting)?);
            }
        }
        Ok(changed)
    }
}

/// Returns the subjects for which a condition has a state.
///
/// # Errors
/// Database errors.
pub fn known_subjects(read: &impl Read, account: AccountId, condition: Condition) -> Result<Vec<String>, StoreError> {
    let from = schema::alert_states_of(account, condition);
    let keys = read.sound_keys(Table::AlertStates, &from, &after_prefix(&from), Order::Ascending, STATES_MAX)?;
    Ok(keys.iter().filter_map(|key| schema::alert_state_subject(key)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests;
