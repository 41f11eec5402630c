//! A budget that accounts and sites share: connections, lookups, or memory. Accounts take turns. A single active
//! account may use all of it. While another account holds or claims units, an account gets at most half of the budget.
//! Under contention a site or a network gets at most a sixteenth.
//!
//! Units are released when their use ends, which may take minutes, and nobody knows when the next account comes. A
//! reserve within the budget would either stay unused by a single account, or be gone when it is needed. So the reserve
//! for others is added to the budget. Together, accounts exceed the budget by at most a half:
//!
//! - Units that an account holds beyond its half do not count against the others, up to a quarter of the budget. An
//!   account that took everything while it was alone leaves the others as much as it would have left beside them.
//! - Accounts that hold few units may exceed the budget by an eighth, and accounts that hold none by another eighth. So
//!   they are served at once even if several accounts have taken everything.

mod waiting;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

use crate::base::id::AccountId;
use crate::domain::stream::Stream;
use waiting::WaitingClaims;

/// Fraction of the budget reserved for transactional mail: one of this many parts.
const TRANSACTIONAL_PART: u32 = 4;
/// Fraction of the budget that one account may hold beyond half without counting against the others: one of this many
/// parts.
const BEYOND_HALF_PART: u32 = 4;
/// Fraction by which accounts with few units may exceed the budget: one of this many parts.
const EXTRA_PART: u32 = 8;
/// Limit for an account with few units, and for a site under contention: one of this many parts.
const SMALL_PART: u32 = 16;
/// Maximum units of large claims with which an account may still get another large claim beyond the budget, and maximum
/// units of small claims that may pass a large claim into the reserve: one of this many parts.
const FEW_PART: u32 = 32;
/// Maximum of a small claim: one of this many parts, and at least one unit.
const SMALL_CLAIM_PART: u32 = 256;
/// Minimum size of a budget that may be exceeded.
const EXTRA_FROM: u32 = 16;
/// Maximum number of an account's claims that are searched for one that fits the free units.
const LOOK_MAX: usize = 64;

/// A network of servers: an IPv4 /24 or an IPv6 /48.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network(u64);

impl Network {
    /// Returns the network of `address`.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(address.to_bits() >> 8)),
            // A bit above the 48 keeps IPv6 networks distinct from IPv4 ones.
            IpAddr::V6(address) => Self(1 << 48 | (address.to_bits() >> 80) as u64),
        }
    }
}

/// A claim to units of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The stream of the message.
    pub stream: Stream,
    /// The account of the message.
    pub account: AccountId,
    /// The destination site. `None` if the claim counts for no site, for example with a smarthost that takes mail for
    /// all sites.
    pub site: Option<u64>,
    /// The network of a server that has never answered.
    pub network: Option<Network>,
    /// Number of units.
    pub units: u32,
}

impl Claim {
    /// A claim to one unit that counts for no site.
    pub const fn single(account: AccountId, stream: Stream) -> Self {
        Self { stream, account, site: None, network: None, units: 1 }
    }
}

/// Identifier of a waiting claim.
pub type ClaimId = u64;

/// A budget with waiting claims.
#[derive(Debug)]
pub struct Budget {
    units: u32,
    marketing_units: u32,
    used: u32,
    marketing_used: u32,
    accounts: HashMap<AccountId, Held>,
    /// Sum of the units that accounts hold beyond half of the budget.
    beyond_half: u32,
    sites: HashMap<u64, u32>,
    networks: HashMap<Network, u32>,
    transactional: WaitingClaims,
    marketing: WaitingClaims,
    last_id: ClaimId,
}

/// Units of an account.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    /// All units.
    units: u32,
    /// Units of small claims.
    small: u32,
}

/// Shares of sites and networks, in the order in which claims are searched.
const SITE_SHARES: [SiteShares; 2] = [SiteShares::Enforced, SiteShares::Ignored];

/// Whether the shares of sites and networks are enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SiteShares {
    /// A site gets its share.
    Enforced,
    /// A site may exceed its share, because no claim within the shares can be served.
    Ignored,
}

impl Budget {
    /// Creates a budget of `units`, at least one.
    pub fn new(units: u32) -> Self {
        let units = units.max(1);
        let marketing_units = (units - units / TRANSACTIONAL_PART).min(units.saturating_sub(1)).max(1);
        Self {
            units,
            marketing_units,
            used: 0,
            marketing_used: 0,
            accounts: HashMap::new(),
            beyond_half: 0,
            sites: HashMap::new(),
            networks: HashMap::new(),
            transactional: WaitingClaims::default(),
            marketing: WaitingClaims::default(),
            last_id: 0,
        }
    }

    /// Queues a claim. A claim larger than the budget counts as one for the whole budget.
    pub fn request(&mut self, claim: Claim) -> ClaimId {
        self.last_id += 1;
        let claim = Claim { units: claim.units.min(self.most(claim.stream)), ..claim };
        let id = self.last_id;
        self.of(claim.stream).add(id, claim);
        id
    }

    /// Grants a claim at once, or returns false. Waiting claims of its account and stream go first. Those of others
    /// can't be granted now, otherwise they would not wait.
    pub fn take_now(&mut self, claim: Claim) -> bool {
        let is_first = !self.of(claim.stream).claims.contains_key(&claim.account);
        let is_granted = is_first && self.is_free(&claim) && self.has_account_share(&claim);
        if is_granted {
            self.count(&claim);
        }
        is_granted
    }

    /// Removes a waiting claim.
    pub fn withdraw(&mut self, id: ClaimId, claim: &Claim) {
        self.of(claim.stream).remove(id, claim.account);
    }

    /// Returns the number of units in use.
    pub const fn used(&self) -> u32 {
        self.used
    }

    /// Returns whether the units of `claim` could be granted if no other claim were waiting.
    pub fn would_fit(&self, claim: &Claim) -> bool {
        self.is_free(claim) && self.has_account_share(claim)
    }

    /// Returns whether a claim is waiting.
    pub fn has_waiters(&self) -> bool {
        !self.transactional.claims.is_empty() || !self.marketing.claims.is_empty()
    }

    /// Grants the next claim whose units are free. No marketing claim is granted while a transactional one within its
    /// account's share waits for units.
    pub fn grant(&mut self) -> Option<(ClaimId, Claim)> {
        let of = |stream| SITE_SHARES.into_iter().find_map(|shares| self.next(stream, shares));
        let marketing = || if self.is_transactional_short() { None } else { of(Stream::Marketing) };
        let (id, claim) = of(Stream::Transactional).or_else(marketing)?;
        let waiting = self.of(claim.stream);
        waiting.remove(id, claim.account);
        waiting.end_turn(claim.account);
        self.count(&claim);
        Some((id, claim))
    }

    /// Releases the units of `claim`.
    pub fn release(&mut self, claim: &Claim) {
        self.used -= claim.units;
        if claim.stream == Stream::Marketing {
            self.marketing_used -= claim.units;
        }
        self.change(claim, |held, units| held - units);
        claim.site.into_iter().for_each(|site| less(&mut self.sites, site, claim.units));
        claim.network.into_iter().for_each(|network| less(&mut self.networks, network, claim.units));
    }

    /// Transfers the units of `from` to `to`, which claims as many. Returns false, without a change, if marketing would
    /// exceed its part.
    pub fn transfer(&mut self, from: &Claim, to: &Claim) -> bool {
        let is_marketing_new = from.stream == Stream::Transactional && to.stream == Stream::Marketing;
        if is_marketing_new && self.marketing_used + from.units > self.marketing_units {
            return false;
        }
        self.release(from);
        self.count(&Claim { units: from.units, ..*to });
        true
    }

    fn count(&mut self, claim: &Claim) {
        self.used += claim.units;
        if claim.stream == Stream::Marketing {
            self.marketing_used += claim.units;
        }
        self.change(claim, |held, units| held + units);
        claim.site.into_iter().for_each(|site| *self.sites.entry(site).or_default() += claim.units);
        claim.network.into_iter().for_each(|network| *self.networks.entry(network).or_default() += claim.units);
    }

    /// Changes the units of the claim's account by those of the claim.
    fn change(&mut self, claim: &Claim, by: impl Fn(u32, u32) -> u32) {
        let (half, is_small) = (self.half(), self.is_small(claim));
        let held = self.accounts.entry(claim.account).or_default();
        let before = held.units.saturating_sub(half);
        held.units = by(held.units, claim.units);
        if is_small {
            held.small = by(held.small, claim.units);
        }
        self.beyond_half = self.beyond_half - before + held.units.saturating_sub(half);
        if held.units == 0 {
            self.accounts.remove(&claim.account);
        }
    }

    /// Returns whether a transactional claim within its account's share waits for units that are not free.
    fn is_transactional_short(&self) -> bool {
        let mut firsts = self.transactional.claims.values().filter_map(|claims| claims.first_key_value());
        firsts.any(|(_, claim)| self.has_account_share(claim) && !self.is_free(claim))
    }

    fn next(&self, stream: Stream, shares: SiteShares) -> Option<(ClaimId, Claim)> {
        let waiting = if stream == Stream::Transactional { &self.transactional } else { &self.marketing };
        waiting.turns.iter().find_map(|account| self.next_of(waiting.claims.get(account)?, shares))
    }

    /// Returns the account's next claim that can be granted. A claim that waits blocks the later ones of its account,
    /// otherwise a large one might never be granted. Small ones pass it, because other units may stay in use for
    /// minutes.
    fn next_of(&self, claims: &BTreeMap<ClaimId, Claim>, shares: SiteShares) -> Option<(ClaimId, Claim)> {
        let (mut blocking, mut looks) = (None, 0);
        for (id, claim) in claims {
            if blocking.is_some() && !self.is_small(claim) {
                continue;
            }
            let is_free = self.is_free(claim) && self.has_account_share(claim);
            let passes = blocking.is_none_or(|blocking| self.passes(claim, blocking));
            if is_free && passes && self.has_site_share(claim, shares) {
                return Some((*id, *claim));
            }
            if !is_free {
                blocking.get_or_insert(claim);
            }
            looks += 1;
            if looks == LOOK_MAX {
                return None;
            }
        }
        None
    }

    /// Returns whether a small claim passes an earlier one of its account. If the account might then never have room
    /// for the earlier one, a few small ones at a time pass: with these, it still fits beyond the budget.
    fn passes(&self, claim: &Claim, earlier: &Claim) -> bool {
        let Held { units, small } = held(&self.accounts, &claim.account);
        let leaves_room = units + claim.units + earlier.units <= self.half();
        small + claim.units <= self.units / FEW_PART || leaves_room && self.fits(claim, 0)
    }

    fn is_free(&self, claim: &Claim) -> bool {
        self.fits(claim, self.overdraft(claim))
    }

    /// Returns whether the units of `claim` are free if it may exceed the budget by `overdraft`. The part of marketing
    /// is exceeded by half of that, so that some units are always left for transactional mail.
    fn fits(&self, claim: &Claim, overdraft: u32) -> bool {
        let own = held(&self.accounts, &claim.account).units.saturating_sub(self.half());
        let beyond_half = (self.beyond_half - own).min(self.units / BEYOND_HALF_PART);
        let beyond = beyond_half + overdraft;
        let is_of_stream = claim.stream == Stream::Transactional
            || self.marketing_used + claim.units <= self.marketing_units + beyond / 2;
        is_of_stream && self.used + claim.units <= self.units + beyond
    }

    /// Returns the number of units by which `claim` may exceed the budget, because its account holds few. Large claims
    /// don't count against small ones.
    fn overdraft(&self, claim: &Claim) -> u32 {
        let Held { units, small } = held(&self.accounts, &claim.account);
        let is_small = self.is_small(claim);
        let counted = if is_small { small } else { units };
        let is_one_large = !is_small && units - small <= self.units / FEW_PART && claim.units <= self.extra();
        if units == 0 && is_small {
            2 * self.extra()
        } else if counted + claim.units <= self.units / SMALL_PART || is_one_large {
            self.extra()
        } else {
            0
        }
    }

    fn has_account_share(&self, claim: &Claim) -> bool {
        let held = held(&self.accounts, &claim.account).units;
        held == 0 || held + claim.units <= self.half() || !self.has_others(claim.account)
    }

    /// Returns whether another account holds or claims units.
    fn has_others(&self, account: AccountId) -> bool {
        let claims = |waiting: &WaitingClaims| waiting.turns.iter().take(2).any(|other| *other != account);
        self.used > held(&self.accounts, &account).units || claims(&self.transactional) || claims(&self.marketing)
    }

    fn has_site_share(&self, claim: &Claim, shares: SiteShares) -> bool {
        let site_max = (self.units / SMALL_PART).max(2);
        let fits = |held: u32| held == 0 || held + claim.units <= site_max;
        let is_ignored = shares == SiteShares::Ignored;
        // Servers that have never answered must not use what another account may need soon.
        let is_network_ignored = is_ignored && !self.has_others(claim.account);
        claim.site.is_none_or(|site| is_ignored || fits(held(&self.sites, &site)))
            && claim.network.is_none_or(|network| is_network_ignored || fits(held(&self.networks, &network)))
    }

    const fn most(&self, stream: Stream) -> u32 {
        match stream {
            Stream::Transactional => self.units,
            Stream::Marketing => self.marketing_units,
        }
    }

    const fn half(&self) -> u32 {
        self.units.div_ceil(2)
    }

    fn is_small(&self, claim: &Claim) -> bool {
        claim.units <= (self.units / SMALL_CLAIM_PART).max(1)
    }

    const fn extra(&self) -> u32 {
        if self.units < EXTRA_FROM { 0 } else { self.units / EXTRA_PART }
    }

    const fn of(&mut self, stream: Stream) -> &mut WaitingClaims {
        match stream {
            Stream::Transactional => &mut self.transactional,
            Stream::Marketing => &mut self.marketing,
        }
    }
}

fn held<K: Hash + Eq, V: Copy + Default>(by: &HashMap<K, V>, key: &K) -> V {
    by.get(key).copied().unwrap_or_default()
}

fn less<K: Hash + Eq>(by: &mut HashMap<K, u32>, key: K, units: u32) {
    if let Some(held) = by.get_mut(&key) {
        *held -= units;
        if *held == 0 {
            by.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
