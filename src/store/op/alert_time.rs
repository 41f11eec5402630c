//! The timers of alerts: reminders of open ones, and the removal of ended ones after 90 days.

use serde::{Deserialize, Serialize};

use super::alert::{KEPT, step};
use super::{Infallible, Op};
use crate::base::id::AlertId;
use crate::machine::alert::{Input, Open, State};
use crate::store::error::OpError;
use crate::store::read::Read;
use crate::store::row::alert::{AlertRow, AlertStateRow};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Announces an alert that is still open and critical.
#[derive(Debug, Serialize, Deserialize)]
pub struct RemindAlert {
    /// The timer that was served.
    pub timer: Timer,
}

impl Op for RemindAlert {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(self.timer);
        let (account, id) = (self.timer.account, AlertId(self.timer.id));
        let Some(row) = tables.sound_row::<AlertRow>(&schema::alert(account, id))? else { return Ok(()) };
        let subject = row.subject.as_ref().map_or("", |subject| &subject.id);
        let key = schema::alert_state(account, row.condition, subject);
        let state: AlertStateRow = tables.sound_row(&key)?.unwrap_or_default();
        let is_due = matches!(state.state, State::Open(Open { remind_at: Some(at), .. }) if at <= self.timer.due);
        if state.alert == Some(id) && is_due {
            step(tables, account, Input::ReminderDue, row.condition, subject, None)?;
        }
        Ok(())
    }
}

/// Removes an alert that ended 90 days ago.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExpireAlert {
    /// The timer that was served.
    pub timer: Timer,
}

impl Op for ExpireAlert {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(self.timer);
        let (account, id) = (self.timer.account, AlertId(self.timer.id));
        let key = schema::alert(account, id);
        let row: Option<AlertRow> = tables.sound_row(&key)?;
        let resolved_at = row.as_ref().and_then(|row| row.resolved_at);
        if resolved_at.is_some_and(|at| at + KEPT > self.timer.due) {
            // The alert was reopened since, and has another timer.
            return Ok(());
        }
        if let Some(row) = &row {
            if row.resolved_at.is_none() {
                return Ok(());
            }
            let subject = row.subject.as_ref().map_or("", |subject| &subject.id);
            let state_key = schema::alert_state(account, row.condition, subject);
            let state: Option<AlertStateRow> = tables.sound_row(&state_key)?;
            if state.is_some_and(|state| state.alert == Some(id) && !state.state.is_open()) {
                tables.remove(Table::AlertStates, &state_key);
            }
        }
        tables.remove(Table::Alerts, &key);
        tables.remove(Table::OpenAlerts, &key);
        tables.remove(Table::AlertOwners, id.as_bytes());
        for announcement in row.iter().flat_map(|row| &row.announcements) {
            tables.disarm(Timer::new(announcement.at, TimerKind::AlertAnnouncement, account, id.0));
        }
        Ok(())
    }
}
