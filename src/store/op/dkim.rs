//! The DKIM keys in a domain's row (contract 2, contract 14.1): the effects of a check, new pairs, and the rotation
//! timer. [`dkim_rotation`] decides.

use std::time::Duration;

use crate::base::id::{AccountId, DomainId};
use crate::base::time::Timestamp;
use crate::domain::sending_domain::{DkimAlgorithm, DkimState};
use crate::machine::dkim_rotation::{self, Key, Plan};
use crate::machine::service_clock::ServiceTime;
use crate::store::row::domain::{DkimKeyRow, DomainRow};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Time for which a key's record stays published after its last signature.
const RETIREMENT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time for which the records of new keys are looked up more often than daily.
const AWAITED: Duration = Duration::from_secs(7 * 24 * 3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Interval between tries of a due rotation with missing records.
const DUE_AGAIN: Duration = DAY;
/// Delay before key generation is retried after a failure.
const KEYS_AGAIN: Duration = Duration::from_secs(3600);

fn parts(keys: &[DkimKeyRow]) -> impl Iterator<Item = (u32, DkimAlgorithm, DkimState)> + Clone + '_ {
    keys.iter().map(|key| (key.number(), key.algorithm, key.state))
}

/// Returns the RSA key of the standby pair.
pub fn further(keys: &[DkimKeyRow]) -> Option<&DkimKeyRow> {
    let number = dkim_rotation::further(parts(keys))?;
    keys.iter().find(|key| key.number() == number && key.algorithm == DkimAlgorithm::RsaSha256)
}

/// Returns whether a rotation is scheduled without a standby pair.
pub fn lacks_further(row: &DomainRow) -> bool {
    row.rotation.days > 0 && !row.dkim.is_empty() && further(&row.dkim).is_none()
}

/// Returns a number above that of every selector that the domain ever had.
pub fn next_number(row: &DomainRow) -> u32 {
    let greatest = row.dkim.iter().map(DkimKeyRow::number).max().unwrap_or_default();
    greatest.max(row.rotation.dropped) + 1
}

/// Applies a check to the keys, and drops keys that have been retiring for long enough. A rotation moves its next time.
pub(super) fn advance(
    row: &mut DomainRow,
    is_due: bool,
    seen: impl Fn(&DkimKeyRow) -> Option<bool>,
    time: &ServiceTime,
) {
    let key =
        |key: &DkimKeyRow| Key { number: key.number(), algorithm: key.algorithm, state: key.state, seen: seen(key) };
    let keys: Vec<_> = row.dkim.iter().map(key).collect();
    let plan = match row.rotation.days {
        0 => Plan::AtOnce,
        _ => Plan::Scheduled { is_due: is_due || row.rotation.next_at.is_some_and(|at| at <= time.now) },
    };
    let step = dkim_rotation::step(&keys, plan);
    set_states(row, &step.states, time.now);
    if step.is_rotated && row.rotation.days > 0 {
        row.rotation.next_at = Some(time.now + DAY * row.rotation.days.into());
    }
    row.dkim.retain(|key| !is_over(key, time.expiry));
}

/// Makes the newest pair sign without a check: in `dev`, where domains count as verified and no record is looked up.
pub(super) fn activate_unchecked(row: &mut DomainRow, time: &ServiceTime) {
    let Some(newest) = row.dkim.iter().map(DkimKeyRow::number).max() else { return };
    let state = |key: &DkimKeyRow| match key.state {
        _ if key.number() == newest => Some(DkimState::Active),
        DkimState::Active | DkimState::Retiring => Some(DkimState::Retiring),
        DkimState::Pending | DkimState::Standby => None,
    };
    let states: Vec<_> = row.dkim.iter().map(state).collect();
    set_states(row, &states, time.now);
}

/// Makes the current pair sign without a check. A pair that already signs is unchanged.
pub(super) fn adopt(keys: &mut [DkimKeyRow]) {
    let is_signing = |key: &DkimKeyRow| key.algorithm == DkimAlgorithm::RsaSha256 && key.state == DkimState::Active;
    let current = dkim_rotation::current(parts(keys));
    if keys.iter().any(is_signing) {
        return;
    }
    keys.iter_mut().filter(|key| Some(key.number()) == current).for_each(|key| key.state = DkimState::Active);
}

fn set_states(row: &mut DomainRow, states: &[Option<DkimState>], now: Timestamp) {
    let mut states = states.iter();
    let dropped = &mut row.rotation.dropped;
    row.dkim.retain_mut(|key| {
        let Some(state) = states.next().copied().flatten() else {
            *dropped = (*dropped).max(key.number());
            return false;
        };
        if state == DkimState::Retiring && key.state == DkimState::Active {
            key.retired_at = Some(now);
        }
        key.state = state;
        true
    });
}

/// Appends new keys and drops those that were still waiting for their records.
pub(super) fn replace_pending(row: &mut DomainRow, new: &[DkimKeyRow], time: &ServiceTime) {
    row.dkim.retain(|key| key.state != DkimState::Pending && !is_over(key, time.expiry));
    row.dkim.extend_from_slice(new);
}

/// Adds a standby pair for the next rotation, if there is none.
pub(super) fn add_further(row: &mut DomainRow, new: &[DkimKeyRow]) {
    let is_there = |new: &DkimKeyRow| row.dkim.iter().any(|old| old.selector == new.selector);
    let is_used = new.iter().any(|key| is_there(key) || key.number() <= row.rotation.dropped);
    if lacks_further(row) && !is_used {
        row.dkim.extend_from_slice(new);
    }
}

/// Drops the standby pair.
pub(super) fn drop_further(row: &mut DomainRow) {
    let Some(current) = dkim_rotation::current(parts(&row.dkim)) else { return };
    let waits = |key: &DkimKeyRow| matches!(key.state, DkimState::Pending | DkimState::Standby);
    let is_dropped = |key: &DkimKeyRow| key.number() > current && waits(key);
    let dropped = row.dkim.iter().filter(|key| is_dropped(key)).map(DkimKeyRow::number).max();
    row.rotation.dropped = row.rotation.dropped.max(dropped.unwrap_or_default());
    row.dkim.retain(|key| !is_dropped(key));
}

/// Arms the rotation timer as the row needs it.
pub(super) fn rearm(tables: &mut Tables<'_>, account: AccountId, domain: DomainId, row: &mut DomainRow) {
    let now = tables.now();
    let wanted = row.rotation.next_at.map(|at| match at {
        _ if lacks_further(row) => now + KEYS_AGAIN,
        at if at > now => at,
        _ => now + DUE_AGAIN,
    });
    if wanted == row.rotation.timer {
        return;
    }
    let timer = |due| Timer::new(due, TimerKind::DkimRotation, account, domain.0);
    row.rotation.timer.into_iter().for_each(|due| tables.disarm(timer(due)));
    wanted.into_iter().for_each(|due| tables.arm(timer(due)));
    row.rotation.timer = wanted;
}

fn is_over(key: &DkimKeyRow, now: Timestamp) -> bool {
    key.retired_at.is_some_and(|at| now.since(at) >= RETIREMENT)
}

/// Returns whether a new key's record may appear soon.
pub(super) fn is_awaited(keys: &[DkimKeyRow], now: Timestamp) -> bool {
    keys.iter().any(|key| {
        let replaces = |other: &DkimKeyRow| other.algorithm == key.algorithm && other.state == DkimState::Active;
        key.state == DkimState::Pending && now.since(key.created_at) < AWAITED && keys.iter().any(replaces)
    })
}
