//! The waiting claims of one stream. Accounts take turns.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::{Claim, ClaimId};
use crate::base::id::AccountId;

/// The waiting claims.
#[derive(Debug, Default)]
pub(super) struct WaitingClaims {
    /// The claims of each account, in the order of their requests.
    pub(super) claims: HashMap<AccountId, BTreeMap<ClaimId, Claim>>,
    /// The accounts with claims, next turn first.
    pub(super) turns: VecDeque<AccountId>,
}

impl WaitingClaims {
    /// Adds a claim after the others of its account.
    pub(super) fn add(&mut self, id: ClaimId, claim: Claim) {
        let claims = self.claims.entry(claim.account).or_default();
        if claims.is_empty() {
            self.turns.push_back(claim.account);
        }
        claims.insert(id, claim);
    }

    /// Removes a claim.
    pub(super) fn remove(&mut self, id: ClaimId, account: AccountId) {
        let Some(claims) = self.claims.get_mut(&account) else { return };
        claims.remove(&id);
        if claims.is_empty() {
            self.claims.remove(&account);
            self.turns.retain(|other| *other != account);
        }
    }

    /// Moves the account to the end of the queue.
    pub(super) fn end_turn(&mut self, account: AccountId) {
        if let Some(at) = self.turns.iter().position(|other| *other == account) {
            self.turns.remove(at);
            self.turns.push_back(account);
        }
    }
}
