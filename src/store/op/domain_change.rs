//! Changing a domain: its stream, its keys and their rotation, and its removal (contract 2, contract 14.1).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::domain::{DomainRefusal, RecordDomainCheck};
use super::{Infallible, Op, alert_domain, dkim};
use crate::base::id::{AccountId, DomainId};
use crate::base::time::Timestamp;
use crate::domain::sending_domain::DkimState;
use crate::domain::stream::Stream;
use crate::store::error::OpError;
use crate::store::read::Read;
use crate::store::row::domain::{DkimKeyRow, DomainRow};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Time before the first lookup of new keys: enough to copy a record.
const FIRST_CHECK: Duration = Duration::from_secs(120);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Changes a domain. Absent members stay unchanged.
#[derive(Debug, Serialize, Deserialize)]
pub struct UpdateDomain {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The stream of all later mail from the domain.
    pub stream: Option<Stream>,
    /// Days between rotations of its DKIM keys; 0 for no rotation.
    pub rotation_days: Option<u16>,
    /// The standby pair of keys for the next rotation, pending; not used if there already is one.
    pub keys: Vec<DkimKeyRow>,
    /// The only stream whose domains may be changed; `None` allows any.
    pub limit: Option<Stream>,
}

impl Op for UpdateDomain {
    type Reply = DomainRow;
    type Refusal = DomainRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DomainRow, OpError<DomainRefusal>> {
        let key = schema::domain(self.account, self.domain);
        let mut row = found(tables, &key, self.limit)?;
        check_stream(self.limit, self.stream.unwrap_or(row.stream))?;
        row.stream = self.stream.unwrap_or(row.stream);
        if let Some(days) = self.rotation_days {
            self.schedule(tables, &mut row, days);
        }
        tables.put(&key, &row);
        Ok(row)
    }
}

impl UpdateDomain {
    /// Schedules the rotation. Without a schedule, a pair that waits for its record signs as soon as it is found. Such
    /// a pair is therefore due now.
    fn schedule(&self, tables: &mut Tables<'_>, row: &mut DomainRow, days: u16) {
        let now = tables.now();
        if days == 0 {
            if row.rotation.days > 0 {
                dkim::drop_further(row);
            }
            (row.rotation.days, row.rotation.next_at) = (0, None);
        } else {
            if days != row.rotation.days {
                let is_asked = row.rotation.days == 0 && dkim::further(&row.dkim).is_some();
                let wait = DAY * if is_asked { 0 } else { days.into() };
                (row.rotation.days, row.rotation.next_at) = (days, Some(now + wait));
            }
            if dkim::lacks_further(row) {
                dkim::add_further(row, &self.keys);
                check_soon(tables, self.account, self.domain, row);
            }
        }
        dkim::rearm(tables, self.account, self.domain, row);
    }
}

/// Schedules a check of the domain's records, after enough time to copy them.
fn check_soon(tables: &mut Tables<'_>, account: AccountId, domain: DomainId, row: &mut DomainRow) {
    let Some(armed) = row.next_check_at else { return };
    let due = armed.min(tables.now() + FIRST_CHECK);
    tables.disarm(Timer::new(armed, TimerKind::DomainCheck, account, domain.0));
    tables.arm(Timer::new(due, TimerKind::DomainCheck, account, domain.0));
    row.next_check_at = Some(due);
}

/// Adds a standby pair of keys, if a rotation is scheduled and there is none.
#[derive(Debug, Serialize, Deserialize)]
pub struct AddStandby {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The new keys, pending.
    pub keys: Vec<DkimKeyRow>,
}

impl Op for AddStandby {
    type Reply = DomainRow;
    type Refusal = DomainRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DomainRow, OpError<DomainRefusal>> {
        let key = schema::domain(self.account, self.domain);
        let mut row = found(tables, &key, None)?;
        if dkim::lacks_further(&row) {
            dkim::add_further(&mut row, &self.keys);
            check_soon(tables, self.account, self.domain, &mut row);
            dkim::rearm(tables, self.account, self.domain, &mut row);
            tables.put(&key, &row);
        }
        Ok(row)
    }
}

/// Rotates to the standby now if the check found its record. Otherwise the rotation is due as soon as a check finds it.
#[derive(Debug, Serialize, Deserialize)]
pub struct RotateStandby {
    /// The check, whose findings are recorded too.
    pub look: RecordDomainCheck,
    /// Selector of the standby's RSA key before the check. Another rotation may come first.
    pub selector: String,
    /// The only stream whose domains may be changed; `None` allows any.
    pub limit: Option<Stream>,
}

impl Op for RotateStandby {
    type Reply = DomainRow;
    type Refusal = DomainRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DomainRow, OpError<DomainRefusal>> {
        let key = schema::domain(self.look.account, self.look.domain);
        let mut row = found(tables, &key, self.limit)?;
        let is_it = |key: &DkimKeyRow| key.selector == self.selector && key.state == DkimState::Standby;
        if row.rotation.days > 0 && dkim::further(&row.dkim).is_some_and(is_it) {
            row.rotation.next_at = Some(tables.now());
            self.look.record(tables, &mut row, true)?;
        }
        Ok(row)
    }
}

/// Postpones a rotation whose check failed.
#[derive(Debug, Serialize, Deserialize)]
pub struct PostponeRotation {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The timer that was served.
    pub due: Timestamp,
}

impl Op for PostponeRotation {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        let timer = |due| Timer::new(due, TimerKind::DkimRotation, self.account, self.domain.0);
        tables.disarm(timer(self.due));
        let key = schema::domain(self.account, self.domain);
        let Some(mut row) = tables.row::<DomainRow>(&key)? else { return Ok(()) };
        if row.rotation.timer == Some(self.due) {
            let due = tables.now() + DAY;
            row.rotation.timer = Some(due);
            tables.put(&key, &row);
            tables.arm(timer(due));
        }
        Ok(())
    }
}

/// Removes a domain. Any account may then register its name.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeleteDomain {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The only stream whose domains may be changed; `None` allows any.
    pub limit: Option<Stream>,
}

impl Op for DeleteDomain {
    /// The removed domain.
    type Reply = DomainRow;
    type Refusal = DomainRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DomainRow, OpError<DomainRefusal>> {
        let key = schema::domain(self.account, self.domain);
        let row = found(tables, &key, self.limit)?;
        let name = row.name.as_str().as_bytes();
        if tables.get(Table::DomainOwners, name)?.is_some_and(|owner| owner == key) {
            tables.remove(Table::DomainOwners, name);
        }
        tables.remove(Table::DomainsByName, &schema::named(self.account, name));
        tables.remove(Table::Domains, &key);
        if let Some(due) = row.next_check_at {
            tables.disarm(Timer::new(due, TimerKind::DomainCheck, self.account, self.domain.0));
        }
        if let Some(due) = row.rotation.timer {
            tables.disarm(Timer::new(due, TimerKind::DkimRotation, self.account, self.domain.0));
        }
        alert_domain::removed(tables, self.account, self.domain)?;
        Ok(row)
    }
}

/// Gives a domain new keys, which replace the old ones when their records are found.
#[derive(Debug, Serialize, Deserialize)]
pub struct RotateDkim {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The new keys, pending.
    pub keys: Vec<DkimKeyRow>,
    /// The only stream whose domains may be changed; `None` allows any.
    pub limit: Option<Stream>,
}

impl Op for RotateDkim {
    type Reply = DomainRow;
    type Refusal = DomainRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DomainRow, OpError<DomainRefusal>> {
        let key = schema::domain(self.account, self.domain);
        let mut row = found(tables, &key, self.limit)?;
        let is_there = |new: &DkimKeyRow| row.dkim.iter().any(|old| old.selector == new.selector);
        if row.rotation.days > 0 || self.keys.iter().any(is_there) {
            // A schedule was set in the meantime, or another rotation came first. Its keys have these selectors.
            return Ok(row);
        }
        dkim::replace_pending(&mut row, &self.keys, &tables.time());
        match row.next_check_at {
            Some(_) => check_soon(tables, self.account, self.domain, &mut row),
            // The domain is verified without checks: no check will ever find the records, so the new keys sign
            // immediately.
            None => dkim::activate_unchecked(&mut row, &tables.time()),
        }
        tables.put(&key, &row);
        Ok(row)
    }
}

fn found(tables: &Tables<'_>, key: &[u8], limit: Option<Stream>) -> Result<DomainRow, OpError<DomainRefusal>> {
    let row = tables.row::<DomainRow>(key)?.ok_or(OpError::Refused(DomainRefusal::NotFound))?;
    check_stream(limit, row.stream)?;
    Ok(row)
}

/// Checks that a caller who is limited to the stream `limit` may change a domain of `stream`.
///
/// # Errors
/// [`DomainRefusal::Stream`] if not.
pub fn check_stream(limit: Option<Stream>, stream: Stream) -> Result<(), OpError<DomainRefusal>> {
    match limit.filter(|own| *own != stream) {
        Some(own) => Err(OpError::Refused(DomainRefusal::Stream(own))),
        None => Ok(()),
    }
}
