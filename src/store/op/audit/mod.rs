//! The audit log: every change of an account writes its line in the same transaction. A refused change leaves no line.
//!
//! [`Audited`] wraps an operation that implements [`Auditable`]. The lines are in `audited.rs`, operation by operation.

use std::ops::ControlFlow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Infallible, Op};
use crate::base::id::{AccountId, ChangeId, Ulid};
use crate::domain::audit::{Actor, Change};
use crate::domain::limits::AUDIT_LINES_COUNT;
use crate::store::error::{OpError, StoreError};
use crate::store::read::{OnDamage, Order, Read as _, after_prefix};
use crate::store::row::audit::{AuditLinesRow, AuditRow};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;

mod audited;

pub use audited::host;

/// Time for which a line is kept.
pub const KEPT: Duration = Duration::from_secs(400 * 24 * 3600);

/// Maximum number of old lines that one new line replaces.
const FORGOTTEN_MAX: u64 = 2;

/// Name of a value that may contain a secret. The line says only that it changed.
const CONFIDENTIAL_URL: &str = "URL";

/// Values by name, in the order of the line.
pub type Values = Vec<(&'static str, String)>;

/// Adds the old and the new value of everything that differs to the change's name: `Acme: time_zone UTC to Asia/Tokyo`.
fn with_differences(mut change: Change, before: &Values, after: &Values) -> Change {
    let pairs = before.iter().zip(after).filter(|((_, old), (_, new))| old != new);
    let difference = |((name, old), (_, new)): (&(&str, String), &(&str, String))| match *name {
        CONFIDENTIAL_URL => format!("{name} changed"),
        name => format!("{name} {old} to {new}"),
    };
    let differences: Vec<_> = pairs.map(difference).collect();
    if !differences.is_empty() && !change.name.is_empty() {
        change.name = format!("{}: {}", change.name, differences.join(", "));
    }
    change
}

/// An operation with a line in the audit log.
pub trait Auditable: Op {
    /// Returns the line's change, without any secret.
    fn change(&self, reply: &Self::Reply) -> Change;

    /// Returns the values that the operation can change, by name, as they are now. The line gets those that differ
    /// after it.
    ///
    /// # Errors
    /// Database errors.
    fn values(&self, _read: &Tables<'_>) -> Result<Values, StoreError> {
        Ok(Values::new())
    }

    /// Returns whether the line is written. Operations that may change nothing decide it by their values.
    fn is_logged(&self, _before: &Values, _after: &Values) -> bool {
        true
    }

    /// Returns whether the operation is refused while the disk is nearly full. Operations that remove or stop something
    /// are not.
    fn needs_space(&self) -> bool {
        true
    }
}

/// An operation with its author, for the audit log.
#[derive(Debug, Serialize, Deserialize)]
pub struct Audited<O> {
    /// The account of the log.
    pub account: AccountId,
    /// Author of the change.
    pub actor: Actor,
    /// The operation.
    pub op: O,
}

impl<O: Auditable> Op for Audited<O> {
    type Reply = O::Reply;
    type Refusal = O::Refusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<O::Reply, OpError<O::Refusal>> {
        let before = self.op.values(tables)?;
        let reply = self.op.apply(tables)?;
        let after = self.op.values(tables)?;
        if self.op.is_logged(&before, &after) {
            let change = with_differences(self.op.change(&reply), &before, &after);
            write(tables, self.account, &self.actor, change)?;
        }
        Ok(reply)
    }
}

/// Writes a line for a change that needs several operations, before the first of them, or that changes no row.
#[derive(Debug, Serialize, Deserialize)]
pub struct NoteChange {
    /// The account.
    pub account: AccountId,
    /// Author of the change.
    pub actor: Actor,
    /// The change.
    pub change: Change,
}

impl Op for NoteChange {
    /// Identifier of the line.
    type Reply = ChangeId;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<ChangeId, OpError<Infallible>> {
        Ok(write(tables, self.account, &self.actor, self.change.clone())?)
    }
}

/// Writes the line of a change as part of the calling operation.
///
/// # Errors
/// Database errors.
pub(super) fn write(
    tables: &mut Tables<'_>,
    account: AccountId,
    actor: &Actor,
    change: Change,
) -> Result<ChangeId, StoreError> {
    let lines = counted(tables, account)? + 1;
    let surplus = lines.saturating_sub(AUDIT_LINES_COUNT).min(FORGOTTEN_MAX);
    let (from, to) = (account.as_bytes(), after_prefix(account.as_bytes()));
    let surplus = usize::try_from(surplus).unwrap_or_default();
    let oldest = tables.keys_with(Table::AuditLog, (from, &to), Order::Ascending, OnDamage::Key, surplus)?;
    oldest.iter().for_each(|key| tables.remove(Table::AuditLog, key));
    tables.put(account.as_bytes(), &AuditLinesRow { lines: lines - oldest.len() as u64 });
    let id: ChangeId = tables.next_id();
    let row = AuditRow { at: tables.now(), actor: actor.clone(), change };
    tables.put(&schema::change(account, id), &row);
    Ok(id)
}

/// Returns the number of lines of the account. They are counted if the stored number is missing or damaged.
fn counted(tables: &Tables<'_>, account: AccountId) -> Result<u64, StoreError> {
    if let Some(row) = tables.sound_row::<AuditLinesRow>(account.as_bytes())? {
        return Ok(row.lines);
    }
    let (mut lines, range) = (0, (account.as_bytes().as_slice(), &*after_prefix(account.as_bytes())));
    tables.scan_with(Table::AuditLog, range, Order::Ascending, OnDamage::Key, &mut |_, _| {
        lines += 1;
        // Above the limit, each new line replaces two.
        Ok(if lines <= AUDIT_LINES_COUNT { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(lines)
}

/// Removes up to `limit` lines of the account that have been kept long enough. Returns their number.
pub(super) fn sweep(tables: &mut Tables<'_>, account: AccountId, limit: usize) -> Result<usize, StoreError> {
    let end = Ulid::new(tables.expiry() - KEPT, [0; 10]);
    let (from, to) = (schema::owned(account, &[0; 16]), schema::owned(account, &end.0));
    let keys = tables.sound_keys(Table::AuditLog, &from, &to, Order::Ascending, limit)?;
    if !keys.is_empty() {
        let lines = counted(tables, account)?.saturating_sub(keys.len() as u64);
        keys.iter().for_each(|key| tables.remove(Table::AuditLog, key));
        tables.put(account.as_bytes(), &AuditLinesRow { lines });
    }
    Ok(keys.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::KeyId;
    use crate::base::time::Timestamp;
    use crate::domain::account::QuotaLimits;
    use crate::domain::audit::{Action, Person};
    use crate::store::op::NotFound;
    use crate::store::op::account::{AccountChange, RevokeKey, UpdateAccount};
    use crate::store::op::sweep::SweepEvents;
    use crate::store::testing::TestStore;

    fn ann() -> Actor {
        Actor::Person(Person { user: Default::default(), email: "ann@example.com".to_owned() })
    }

    fn renamed(account: AccountId) -> Audited<UpdateAccount> {
        let change = AccountChange { name: Some("New".parse().unwrap()), ..AccountChange::default() };
        Audited { account, actor: ann(), op: UpdateAccount { account, change } }
    }

    #[test]
    fn a_change_and_its_line_are_written_together_and_a_refusal_writes_none() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        test.done(renamed(account));
        let refused = Audited { account, actor: ann(), op: RevokeKey { account, key: KeyId::default() } };
        assert!(matches!(test.commit(refused), Err(OpError::Refused(NotFound))));
        let lines = test.snapshot().rows::<AuditRow>(account.as_bytes(), 9).unwrap();
        assert_eq!(lines.len(), 1);
        let AuditRow { at, actor, change } = &lines[0].1;
        assert_eq!((*at, actor, change.action), (test.now(), &ann(), Action::SettingsChanged));
        assert_eq!(change.object, account.to_string());
    }

    #[test]
    fn the_newest_100_000_lines_are_kept() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let lines = || test.row::<AuditLinesRow>(account.as_bytes()).lines;
        (0..4).for_each(|_| drop(test.done(renamed(account))));
        assert_eq!(lines(), 4);
        let before = test.keys(Table::AuditLog, &[]);
        test.write(account.as_bytes(), &AuditLinesRow { lines: AUDIT_LINES_COUNT });
        test.done(renamed(account));
        let after = test.keys(Table::AuditLog, &[]);
        assert_eq!((lines(), &after[..3], after.len()), (AUDIT_LINES_COUNT, &before[1..], 4));
        // The store is of an earlier version, or its count is damaged.
        test.put(Table::AuditLines, account.as_bytes(), None);
        test.done(renamed(account));
        assert_eq!((lines(), test.count(Table::AuditLog, &[])), (5, 5));
    }

    #[test]
    fn lines_are_kept_for_400_days() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        test.done(renamed(account));
        let swept = |test: &TestStore| {
            test.done(SweepEvents { due: Timestamp::ZERO });
            test.count(Table::AuditLog, &[])
        };
        test.pass(KEPT);
        assert_eq!(swept(&test), 1);
        test.pass(Duration::from_millis(1));
        assert_eq!(swept(&test), 0);
    }
}
