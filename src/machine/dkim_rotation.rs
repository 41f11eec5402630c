//! The life cycle of a domain's DKIM keys (contract 14.1). Keys come in pairs with one number: RSA and Ed25519. The
//! state of a pair is that of its RSA key.
//!
//! ```text
//!            seen, nothing signs or no schedule
//!          .------------------------------------.
//!          |                                    v
//! pending -+-- seen --> standby -- due, seen -> active -- another becomes active --> retiring
//!                          |                    ^
//!                          '-- signing record --'
//!                              missed, seen
//! ```
//!
//! A key becomes active only after a check that found its record. If the check misses the record of the Ed25519 key,
//! that key stays `pending` in the signing pair, and becomes active once its record is found.

use crate::domain::sending_domain::{DkimAlgorithm, DkimState};

/// One key of a domain, with the result of the last DNS check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// The number of its pair. Later pairs have higher numbers.
    pub number: u32,
    /// The algorithm.
    pub algorithm: DkimAlgorithm,
    /// The state.
    pub state: DkimState,
    /// Whether the key's record was found; `None` if it was not looked up, or the lookup failed.
    pub seen: Option<bool>,
}

/// The rule by which another pair takes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// The pair takes over as soon as its record is seen.
    AtOnce,
    /// The pair takes over when a rotation is due, or when the signing key's record is missing.
    Scheduled {
        /// Whether a rotation is due.
        is_due: bool,
    },
}

/// The outcome of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The new state of each key, in order. `None` means that the key is dropped: it never signed, and never will.
    pub states: Vec<Option<DkimState>>,
    /// Whether another pair signs from now on.
    pub is_rotated: bool,
}

/// Returns the number of the signing pair. If none signs, the number of the pair that will sign first.
pub fn current(keys: impl Iterator<Item = (u32, DkimAlgorithm, DkimState)> + Clone) -> Option<u32> {
    let rsa = keys.filter(|(_, algorithm, _)| *algorithm == DkimAlgorithm::RsaSha256);
    let signing = rsa.clone().filter(|(_, _, state)| *state == DkimState::Active).map(|(number, ..)| number).max();
    signing.or_else(|| rsa.filter(|(_, _, state)| *state != DkimState::Retiring).map(|(number, ..)| number).min())
}

/// Returns the number of the newest pair that waits beside the current one.
pub fn further(keys: impl Iterator<Item = (u32, DkimAlgorithm, DkimState)> + Clone) -> Option<u32> {
    let current = current(keys.clone())?;
    let waits = |(number, algorithm, state): &(u32, DkimAlgorithm, DkimState)| {
        *number > current
            && *algorithm == DkimAlgorithm::RsaSha256
            && matches!(state, DkimState::Pending | DkimState::Standby)
    };
    keys.filter(waits).map(|(number, ..)| number).max()
}

/// Applies the result of a check to the keys.
pub fn step(keys: &[Key], plan: Plan) -> Step {
    let parts = || keys.iter().map(|key| (key.number, key.algorithm, key.state));
    let rsa_seen = |number| {
        let rsa = keys.iter().find(|key| key.number == number && key.algorithm == DkimAlgorithm::RsaSha256);
        rsa.and_then(|key| key.seen)
    };
    let (Some(current), further) = (current(parts()), further(parts())) else {
        return Step { states: keys.iter().map(|key| Some(key.state)).collect(), is_rotated: false };
    };
    let signs = keys.iter().any(|key| key.number == current && is_signing(key));
    let next = further.filter(|number| rsa_seen(*number) == Some(true)).filter(|_| match plan {
        Plan::AtOnce => true,
        Plan::Scheduled { is_due } => is_due || rsa_seen(current) == Some(false),
    });
    match next {
        Some(next) if signs => Step { states: activate(keys, next), is_rotated: true },
        // No pair signs yet: the oldest pair starts as soon as its record is found.
        _ if !signs && rsa_seen(current) == Some(true) => Step { states: activate(keys, current), is_rotated: false },
        Some(next) => Step { states: activate(keys, next), is_rotated: false },
        None => {
            // Without a schedule a pair waits only for its record.
            let standby = further.filter(|_| plan != Plan::AtOnce);
            let states = keys.iter().map(|key| Some(wait(key, keys, current, standby))).collect();
            Step { states, is_rotated: false }
        }
    }
}

fn is_signing(key: &Key) -> bool {
    key.algorithm == DkimAlgorithm::RsaSha256 && key.state == DkimState::Active
}

/// Returns the states if the pair `number` starts to sign.
fn activate(keys: &[Key], number: u32) -> Vec<Option<DkimState>> {
    let state = |key: &Key| match key.state {
        DkimState::Retiring => Some(DkimState::Retiring),
        _ if key.number == number => Some(match (key.algorithm, key.seen, key.state) {
            (DkimAlgorithm::RsaSha256, ..) | (_, Some(true), _) | (_, _, DkimState::Active) => DkimState::Active,
            (DkimAlgorithm::Ed25519Sha256, ..) => DkimState::Pending,
        }),
        DkimState::Active => Some(DkimState::Retiring),
        DkimState::Pending | DkimState::Standby => (key.number > number).then_some(key.state),
    };
    keys.iter().map(state).collect()
}

/// Returns the state of a key if no other pair starts to sign. Keys of the pair `standby` become standby once their
/// records are found.
fn wait(key: &Key, keys: &[Key], current: u32, standby: Option<u32>) -> DkimState {
    let signs = keys.iter().any(|other| other.number == current && is_signing(other));
    let is_seen = key.seen == Some(true);
    match key.state {
        // The second key of the pair that signs.
        DkimState::Pending if signs && is_seen && key.number == current => DkimState::Active,
        DkimState::Pending if is_seen && Some(key.number) == standby => DkimState::Standby,
        // An older key of this algorithm, which the second key of the signing pair replaces now.
        DkimState::Active
            if key.number < current
                && keys.iter().any(|other| {
                    other.number == current && other.algorithm == key.algorithm && other.seen == Some(true)
                }) =>
        {
            DkimState::Retiring
        }
        state => state,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    use DkimAlgorithm::{Ed25519Sha256 as Ed, RsaSha256 as Rsa};
    use DkimState::{Active, Pending, Retiring, Standby};

    const LATER: Plan = Plan::Scheduled { is_due: false };
    const DUE: Plan = Plan::Scheduled { is_due: true };
    const YES: Option<bool> = Some(true);
    const NO: Option<bool> = Some(false);

    /// Returns the states after a check of pairs of RSA and Ed25519 keys.
    fn after(pairs: &[[(DkimState, Option<bool>); 2]], plan: Plan) -> (Vec<Option<DkimState>>, bool) {
        let key = |number: usize, algorithm, (state, seen)| Key {
            number: u32::try_from(number).unwrap(),
            algorithm,
            state,
            seen,
        };
        let pair = |(number, [rsa, ed]): (usize, &[_; 2])| [key(number, Rsa, *rsa), key(number, Ed, *ed)];
        let keys: Vec<_> = pairs.iter().enumerate().flat_map(pair).collect();
        let step = step(&keys, plan);
        (step.states, step.is_rotated)
    }

    fn all(states: &[DkimState]) -> Vec<Option<DkimState>> {
        states.iter().copied().map(Some).collect()
    }

    #[test]
    fn the_first_pair_signs_once_its_rsa_record_is_found_and_its_ed25519_key_follows() {
        assert_eq!(after(&[[(Pending, NO), (Pending, YES)]], LATER).0, all(&[Pending, Pending]));
        assert_eq!(after(&[[(Pending, YES), (Pending, None)]], LATER).0, all(&[Active, Pending]));
        assert_eq!(after(&[[(Active, YES), (Pending, YES)]], LATER).0, all(&[Active, Active]));
        // Another pair's record is found first: mail can be signed, and the first pair is never needed.
        let both = [[(Pending, NO), (Pending, NO)], [(Pending, YES), (Pending, YES)]];
        assert_eq!(after(&both, Plan::AtOnce).0, [None, None, Some(Active), Some(Active)]);
        let both = [[(Pending, YES), (Pending, NO)], [(Pending, YES), (Pending, YES)]];
        assert_eq!(after(&both, DUE).0, all(&[Active, Pending, Pending, Pending]));
    }

    #[test]
    fn without_a_schedule_a_found_pair_replaces_both_keys_at_once() {
        let waits = [[(Active, YES), (Active, YES)], [(Pending, NO), (Pending, YES)]];
        assert_eq!(after(&waits, Plan::AtOnce), (all(&[Active, Active, Pending, Pending]), false));
        let seen = [[(Active, YES), (Active, YES)], [(Pending, YES), (Pending, NO)]];
        assert_eq!(after(&seen, Plan::AtOnce), (all(&[Retiring, Retiring, Active, Pending]), true));
    }

    #[test]
    fn with_a_schedule_a_found_pair_is_standby_until_the_rotation_is_due() {
        let seen = [[(Active, YES), (Active, YES)], [(Pending, YES), (Pending, YES)]];
        assert_eq!(after(&seen, LATER), (all(&[Active, Active, Standby, Standby]), false));
        let stands = [[(Active, YES), (Active, YES)], [(Standby, YES), (Standby, YES)]];
        assert_eq!(after(&stands, LATER), (all(&[Active, Active, Standby, Standby]), false));
        assert_eq!(after(&stands, DUE), (all(&[Retiring, Retiring, Active, Active]), true));
        for unseen in [NO, None] {
            let stands = [[(Active, YES), (Active, YES)], [(Standby, unseen), (Standby, YES)]];
            assert_eq!(after(&stands, DUE), (all(&[Active, Active, Standby, Standby]), false));
        }
        let half = [[(Active, YES), (Active, YES)], [(Standby, YES), (Standby, NO)]];
        assert_eq!(after(&half, DUE), (all(&[Retiring, Retiring, Active, Pending]), true));
    }

    #[test]
    fn a_standby_takes_over_if_the_signing_record_is_missing_and_its_own_is_found() {
        for (signing, standby, takes_over) in
            [(NO, YES, true), (NO, NO, false), (NO, None, false), (None, YES, false), (YES, YES, false)]
        {
            let pairs = [[(Active, signing), (Active, YES)], [(Standby, standby), (Standby, YES)]];
            let (states, is_rotated) = after(&pairs, LATER);
            assert_eq!(is_rotated, takes_over, "{signing:?} {standby:?}");
            assert_eq!(states[0], Some(if takes_over { Retiring } else { Active }), "{signing:?} {standby:?}");
        }
    }

    #[test]
    fn an_ed25519_key_retires_its_predecessor() {
        // State left by earlier versions, in which the algorithms rotated independently.
        let mixed = [[(Retiring, YES), (Active, YES)], [(Active, YES), (Pending, YES)]];
        assert_eq!(after(&mixed, Plan::AtOnce).0, all(&[Retiring, Retiring, Active, Active]));
        let ahead = [[(Active, YES), (Retiring, YES)], [(Pending, YES), (Active, None)]];
        assert_eq!(after(&ahead, Plan::AtOnce).0, all(&[Retiring, Retiring, Active, Active]));
    }

    fn keys() -> impl Strategy<Value = Vec<Key>> {
        let state = prop_oneof![Just(Pending), Just(Standby), Just(Active), Just(Retiring)];
        let seen = prop_oneof![Just(None), Just(YES), Just(NO)];
        let key = (0_u32..4, prop_oneof![Just(Rsa), Just(Ed)], state, seen);
        prop::collection::vec(key, 0..8).prop_map(|keys| {
            keys.into_iter().map(|(number, algorithm, state, seen)| Key { number, algorithm, state, seen }).collect()
        })
    }

    proptest! {
        #[test]
        fn no_key_starts_to_sign_before_its_record_was_found(
            keys in keys(),
            plan in prop_oneof![Just(Plan::AtOnce), Just(LATER), Just(DUE)],
        ) {
            let step = step(&keys, plan);
            prop_assert_eq!(step.states.len(), keys.len());
            for (key, state) in keys.iter().zip(&step.states) {
                if *state == Some(Active) && key.state != Active {
                    let pair_seen = keys.iter().any(|other| other.number == key.number && other.algorithm == key.algorithm && other.seen == YES);
                    prop_assert!(pair_seen, "{:?} in {:?}", key, keys);
                }
                // A key that signed is never dropped at once, and a retired key never returns.
                prop_assert!(key.state != Active || state.is_some());
                prop_assert!(key.state != Retiring || *state == Some(Retiring));
            }
        }
    }
}
