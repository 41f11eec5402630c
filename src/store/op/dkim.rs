//! The life of a domain's DKIM keys (contract 2): pending until its record is seen, active while it signs, retiring for
//! seven days once another has taken its place, so that what is still on its way can be verified.

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::domain::sending_domain::{DkimAlgorithm, DkimState};
use crate::machine::service_clock::ServiceTime;
use crate::store::row::domain::DkimKeyRow;

/// Time for which a key's record stays published after its last signature.
const RETIREMENT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time for which new keys are looked up more often than daily.
const AWAITED: Duration = Duration::from_secs(7 * 24 * 3600);

/// Activates the pending keys whose records were seen, retires those whose place they take, and drops what has been
/// retiring for long enough.
pub(super) fn advance(keys: &mut Vec<DkimKeyRow>, is_seen: impl Fn(&DkimKeyRow) -> bool, time: &ServiceTime) {
    for algorithm in [DkimAlgorithm::RsaSha256, DkimAlgorithm::Ed25519Sha256] {
        let seen =
            keys.iter().rposition(|key| key.algorithm == algorithm && key.state == DkimState::Pending && is_seen(key));
        if let Some(place) = seen {
            activate(keys, place, time.now);
        }
    }
    keys.retain(|key| !is_over(key, time.expiry));
}

/// Puts new keys behind the others, in the place of those that still waited for their records.
pub(super) fn add(keys: &mut Vec<DkimKeyRow>, new: &[DkimKeyRow], time: &ServiceTime) {
    keys.retain(|key| key.state != DkimState::Pending && !is_over(key, time.expiry));
    keys.extend_from_slice(new);
}

fn activate(keys: &mut [DkimKeyRow], place: usize, now: Timestamp) {
    let algorithm = keys[place].algorithm;
    for key in keys.iter_mut().filter(|key| key.algorithm == algorithm && key.state == DkimState::Active) {
        key.state = DkimState::Retiring;
        key.retired_at = Some(now);
    }
    keys[place].state = DkimState::Active;
}

fn is_over(key: &DkimKeyRow, now: Timestamp) -> bool {
    key.retired_at.is_some_and(|at| now.since(at) >= RETIREMENT)
}

/// Whether a new key's record may appear any hour.
pub(super) fn is_awaited(keys: &[DkimKeyRow], now: Timestamp) -> bool {
    keys.iter().any(|key| {
        let replaces = |other: &DkimKeyRow| other.algorithm == key.algorithm && other.state == DkimState::Active;
        key.state == DkimState::Pending && now.since(key.created_at) < AWAITED && keys.iter().any(replaces)
    })
}
