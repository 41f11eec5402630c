//! Changing a domain: its stream, its keys, and taking it away (contract 2).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::domain::DomainRefusal;
use super::{Op, dkim};
use crate::base::id::{AccountId, DomainId};
use crate::domain::stream::Stream;
use crate::store::error::Stop;
use crate::store::read::Read;
use crate::store::row::domain::{DkimKeyRow, DomainRow};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Time before the first look-up of new keys: enough to copy a record.
const FIRST_CHECK: Duration = Duration::from_secs(120);

/// Changes a domain; an absent member stays as it is.
#[derive(Debug, Serialize, Deserialize)]
pub struct UpdateDomain {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The stream of everything sent from it from now on.
    pub stream: Option<Stream>,
    /// The only stream whose domains may be changed; any where absent.
    pub limit: Option<Stream>,
}

impl Op for UpdateDomain {
    type Reply = DomainRow;
    type Refusal = DomainRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DomainRow, Stop<DomainRefusal>> {
        let key = schema::domain(self.account, self.domain);
        let mut row = found(tables, &key, self.limit)?;
        check_stream(self.limit, self.stream.unwrap_or(row.stream))?;
        row.stream = self.stream.unwrap_or(row.stream);
        tables.put(&key, &row);
        Ok(row)
    }
}

/// Takes a domain away: its name is free for others, and for this account to register anew.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeleteDomain {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The only stream whose domains may be changed; any where absent.
    pub limit: Option<Stream>,
}

impl Op for DeleteDomain {
    /// The domain as it was.
    type Reply = DomainRow;
    type Refusal = DomainRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DomainRow, Stop<DomainRefusal>> {
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
        Ok(row)
    }
}

/// Gives a domain new keys, which take the place of the old ones when their records are seen.
#[derive(Debug, Serialize, Deserialize)]
pub struct RotateDkim {
    /// The account.
    pub account: AccountId,
    /// The domain.
    pub domain: DomainId,
    /// The new keys, pending.
    pub keys: Vec<DkimKeyRow>,
    /// The only stream whose domains may be changed; any where absent.
    pub limit: Option<Stream>,
}

impl Op for RotateDkim {
    type Reply = DomainRow;
    type Refusal = DomainRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<DomainRow, Stop<DomainRefusal>> {
        let key = schema::domain(self.account, self.domain);
        let mut row = found(tables, &key, self.limit)?;
        let is_there = |new: &DkimKeyRow| row.dkim.iter().any(|old| old.selector == new.selector);
        if self.keys.iter().any(is_there) {
            // Another rotation was faster, and its keys have these selectors: they count for this one too.
            return Ok(row);
        }
        let now = tables.now();
        dkim::add(&mut row.dkim, &self.keys, &tables.time());
        match row.next_check_at {
            Some(armed) => {
                let due = armed.min(now + FIRST_CHECK);
                tables.disarm(Timer::new(armed, TimerKind::DomainCheck, self.account, self.domain.0));
                tables.arm(Timer::new(due, TimerKind::DomainCheck, self.account, self.domain.0));
                row.next_check_at = Some(due);
            }
            // Verified by decree: no look will ever find the records, so the keys count from the start.
            None => dkim::advance(&mut row.dkim, |_| true, &tables.time()),
        }
        tables.put(&key, &row);
        Ok(row)
    }
}

fn found(tables: &Tables<'_>, key: &[u8], limit: Option<Stream>) -> Result<DomainRow, Stop<DomainRefusal>> {
    let row = tables.row::<DomainRow>(key)?.ok_or(Stop::Refused(DomainRefusal::NotFound))?;
    check_stream(limit, row.stream)?;
    Ok(row)
}

/// Checks that a caller who is limited to the stream `limit` may touch a domain of `stream`.
///
/// # Errors
/// [`DomainRefusal::Stream`] where it may not.
pub fn check_stream(limit: Option<Stream>, stream: Stream) -> Result<(), Stop<DomainRefusal>> {
    match limit.filter(|own| *own != stream) {
        Some(own) => Err(Stop::Refused(DomainRefusal::Stream(own))),
        None => Ok(()),
    }
}
