//! Memory budget for bodies: one supply for accounts, and a small one for unauthenticated requests.
//! [`super::body::read`] charges each request's body to its holder as it arrives, [`super::answer_budget`] each
//! answer's.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::error::ApiError;
use crate::base::id::AccountId;
use crate::domain::network::Network;
use crate::machine::shares::Shares;

/// Divisor of the shared supply: the part that one account may hold.
const ACCOUNT_PART: usize = 4;
/// Maximum number of one account's requests that wait for a body: a quarter of the listener's connections
/// ([`crate::net::http_listener::HttpLimits::connections`]).
const AWAITED_MAX: usize = 256;
/// Maximum size in bytes of an unauthenticated body that is not charged at first
/// ([`super::body::BodyLimits::uncharged`]). So a small form is read even if others use up that supply.
pub(super) const UNCHARGED_BYTES: usize = 4 * 1024;

/// Holder to which a request's body is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BudgetHolder {
    /// An unauthenticated client, by its network; `None` on a Unix socket.
    Unauthenticated(Option<Network>),
    /// An account, identified by its key or a session.
    Account(AccountId),
    /// Commands on the operator's socket.
    Operator,
}

/// Maximum numbers of bytes that bodies may hold.
#[derive(Debug, Clone)]
pub struct BudgetSizes {
    /// All authenticated requests. One account may hold a quarter.
    pub shared: usize,
    /// All unauthenticated requests.
    pub strangers: usize,
    /// The unauthenticated requests of one client.
    pub stranger: usize,
}

impl Default for BudgetSizes {
    fn default() -> Self {
        Self { shared: 256 * 1024 * 1024, strangers: 4 * 1024 * 1024, stranger: 256 * 1024 }
    }
}

impl BudgetSizes {
    /// Returns the usual sizes, or larger ones if an account's quarter is too small for one message of `bytes`.
    pub fn for_messages_of(bytes: usize) -> Self {
        let usual = Self::default();
        Self { shared: usual.shared.max(bytes.saturating_mul(ACCOUNT_PART)), ..usual }
    }
}

/// The supplies of one service.
#[derive(Debug)]
pub struct BodyBudgets {
    shared: Mutex<Shares<BudgetHolder>>,
    strangers: Mutex<Shares<BudgetHolder>>,
    /// Requests of accounts that wait for a body.
    awaited: Arc<Mutex<Shares<BudgetHolder>>>,
}

impl BodyBudgets {
    /// Creates supplies of these sizes.
    pub fn new(sizes: &BudgetSizes) -> Self {
        Self {
            shared: Mutex::new(Shares::with_reserve(sizes.shared, sizes.shared / ACCOUNT_PART)),
            strangers: Mutex::new(Shares::new(sizes.strangers, sizes.stranger)),
            awaited: Arc::new(Mutex::new(Shares::new(usize::MAX, AWAITED_MAX))),
        }
    }

    /// Counts a request that waits for its body until the result is dropped. Only those of accounts are limited.
    ///
    /// # Errors
    /// [`ApiError::Overloaded`] if the account has [`AWAITED_MAX`] of them.
    pub(super) fn await_body(&self, holder: &BudgetHolder) -> Result<Option<AwaitedBody>, ApiError> {
        if !matches!(holder, BudgetHolder::Account(_)) {
            return Ok(None);
        }
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.take(holder, 1).map_err(|_| ApiError::Overloaded)?;
        Ok(Some(AwaitedBody { awaited: Arc::clone(&self.awaited), holder: *holder }))
    }

    const fn of(&self, holder: &BudgetHolder) -> &Mutex<Shares<BudgetHolder>> {
        match holder {
            BudgetHolder::Unauthenticated(_) => &self.strangers,
            BudgetHolder::Account(_) | BudgetHolder::Operator => &self.shared,
        }
    }

    fn take(&self, holder: &BudgetHolder, bytes: usize) -> Result<(), ApiError> {
        let mut shares = self.of(holder).lock().unwrap_or_else(PoisonError::into_inner);
        shares.take(holder, bytes).map_err(|_| ApiError::Overloaded)
    }

    /// Charges `bytes` at once, but at most the holder's whole share, so that one large answer is possible while the
    /// holder holds nothing else. Returns the charged number.
    fn take_some(&self, holder: &BudgetHolder, bytes: usize, excess: ExcessPolicy) -> Result<usize, ApiError> {
        let mut shares = self.of(holder).lock().unwrap_or_else(PoisonError::into_inner);
        let units = bytes.min(shares.each());
        match (shares.take(holder, units), excess) {
            (Ok(()), _) => {}
            (Err(_), ExcessPolicy::Refuse) => return Err(ApiError::Overloaded),
            (Err(_), ExcessPolicy::Overdraw) => shares.take_beyond_limit(holder, units),
        }
        drop(shares);
        Ok(units)
    }

    fn give_back(&self, holder: &BudgetHolder, bytes: usize) {
        self.of(holder).lock().unwrap_or_else(PoisonError::into_inner).give_back(holder, bytes);
    }
}

/// Treatment of an answer that exceeds its holder's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum ExcessPolicy {
    /// The answer is refused.
    Refuse,
    /// The answer is charged nevertheless, and the holder's next bodies are refused.
    Overdraw,
}

/// A counted request that waits for its body. Dropping it removes it from the count.
#[derive(Debug)]
pub(super) struct AwaitedBody {
    awaited: Arc<Mutex<Shares<BudgetHolder>>>,
    holder: BudgetHolder,
}

impl Drop for AwaitedBody {
    fn drop(&mut self) {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner).give_back(&self.holder, 1);
    }
}

/// Memory charged for one body, released when it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    budgets: Arc<BodyBudgets>,
    holder: BudgetHolder,
    received: usize,
    charged: usize,
    /// Whether a small body is still uncharged.
    is_free: bool,
}

impl Charge {
    /// Creates the charge of a body before its first byte.
    pub(super) fn new(budgets: &Arc<BodyBudgets>, holder: BudgetHolder) -> Self {
        let is_free = matches!(holder, BudgetHolder::Unauthenticated(_));
        Self { budgets: Arc::clone(budgets), holder, received: 0, charged: 0, is_free }
    }

    /// Charges an answer of `bytes`.
    ///
    /// # Errors
    /// [`ApiError::Overloaded`] if the holder, or all together, hold too much.
    pub(in crate::http) fn of_answer(
        budgets: &Arc<BodyBudgets>,
        holder: BudgetHolder,
        bytes: usize,
        excess: ExcessPolicy,
    ) -> Result<Self, ApiError> {
        let charged = budgets.take_some(&holder, bytes, excess)?;
        Ok(Self { budgets: Arc::clone(budgets), holder, received: bytes, charged, is_free: false })
    }

    /// Returns the number of received bytes.
    pub(super) const fn received(&self) -> usize {
        self.received
    }

    /// Returns whether the body is still uncharged.
    pub(super) const fn is_free(&self) -> bool {
        self.is_free
    }

    /// Adds `bytes` that arrived.
    ///
    /// # Errors
    /// [`ApiError::Overloaded`] if the holder, or all together, hold too much.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.received += bytes;
        if self.is_free && self.received <= UNCHARGED_BYTES { Ok(()) } else { self.settle() }
    }

    /// Charges everything that has arrived.
    ///
    /// # Errors
    /// The errors of [`Self::grow`].
    pub(super) fn settle(&mut self) -> Result<(), ApiError> {
        self.is_free = false;
        self.budgets.take(&self.holder, self.received - self.charged)?;
        self.charged = self.received;
        Ok(())
    }

    /// Ties the charge to its bytes: it ends with the last clone or slice of them. Work that continues after its
    /// request, such as an import, still holds them.
    pub(super) fn hold(self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() { bytes } else { Bytes::from_owner(ChargedBytes { bytes, _charge: self }) }
    }
}

/// Bytes of a body with their charge.
struct ChargedBytes {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budgets.give_back(&self.holder, self.charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    fn budgets() -> Arc<BodyBudgets> {
        Arc::new(BodyBudgets::new(&BudgetSizes { shared: 40_000, strangers: 20_000, stranger: 10_000 }))
    }

    fn stranger(address: &str) -> BudgetHolder {
        BudgetHolder::Unauthenticated(address.parse().ok().map(Network::of_client))
    }

    fn account(id: u8) -> BudgetHolder {
        BudgetHolder::Account(AccountId(Ulid([id; 16])))
    }

    #[test]
    fn one_account_uses_at_most_a_quarter_and_releases_it() {
        let budgets = budgets();
        let mut one = Charge::new(&budgets, account(1));
        assert_eq!(one.grow(10_000), Ok(()));
        assert_eq!(Charge::new(&budgets, account(1)).grow(1), Err(ApiError::Overloaded));
        assert_eq!(Charge::new(&budgets, account(2)).grow(10_000), Ok(()));
        drop(one);
        assert_eq!(Charge::new(&budgets, account(1)).grow(10_000), Ok(()));
    }

    #[test]
    fn one_account_waits_for_a_limited_number_of_bodies() {
        let budgets = budgets();
        let mut awaited: Vec<_> = (0..AWAITED_MAX).map(|_| budgets.await_body(&account(1)).unwrap()).collect();
        assert!(matches!(budgets.await_body(&account(1)), Err(ApiError::Overloaded)));
        assert!(budgets.await_body(&account(2)).unwrap().is_some());
        awaited.pop();
        assert!(budgets.await_body(&account(1)).is_ok());
    }

    #[test]
    fn a_body_is_charged_until_its_last_slice_is_dropped() {
        let budgets = budgets();
        let mut charge = Charge::new(&budgets, account(1));
        assert_eq!(charge.grow(10_000), Ok(()));
        let body = charge.hold(Bytes::from(vec![b'x'; 10_000]));
        let slice = body.slice(..5);
        drop(body);
        assert_eq!(Charge::new(&budgets, account(1)).grow(1), Err(ApiError::Overloaded));
        drop(slice);
        assert_eq!(Charge::new(&budgets, account(1)).grow(10_000), Ok(()));
    }

    #[test]
    fn unauthenticated_bodies_never_use_the_shared_budget() {
        let budgets = budgets();
        let mut held: Vec<_> = ["192.0.2.1", "192.0.2.2"].map(|from| Charge::new(&budgets, stranger(from))).into();
        assert!(held.iter_mut().all(|charge| charge.grow(10_000).is_ok()));
        assert_eq!(Charge::new(&budgets, stranger("192.0.2.3")).grow(5000), Err(ApiError::Overloaded));
        for (id, bytes) in [(0, 10_000), (1, 10_000), (2, 10_000), (3, 2500)] {
            let mut charge = Charge::new(&budgets, account(id));
            assert_eq!(charge.grow(bytes), Ok(()));
            held.push(charge);
        }
    }

    #[test]
    fn clients_are_counted_per_address_and_ipv6_clients_per_64() {
        let budgets = budgets();
        let mut one = Charge::new(&budgets, stranger("2001:db8::1"));
        assert_eq!(one.grow(10_000), Ok(()));
        assert_eq!(Charge::new(&budgets, stranger("2001:db8::2")).grow(5000), Err(ApiError::Overloaded));
        assert_eq!(Charge::new(&budgets, stranger("2001:db8:0:1::1")).grow(5000), Ok(()));
    }

    #[test]
    fn a_small_unauthenticated_body_is_charged_once_it_is_slow_or_grows() {
        let budgets = budgets();
        let mut full = Charge::new(&budgets, stranger("192.0.2.1"));
        assert_eq!(full.grow(10_000), Ok(()));
        let mut small = Charge::new(&budgets, stranger("192.0.2.1"));
        assert_eq!(small.grow(UNCHARGED_BYTES), Ok(()));
        assert!(small.is_free());
        assert_eq!(small.settle(), Err(ApiError::Overloaded));
        assert_eq!(Charge::new(&budgets, stranger("192.0.2.1")).grow(UNCHARGED_BYTES + 1), Err(ApiError::Overloaded));
    }
}
