//! Permits for mails of notices. A mail to a user of an account needs two: one of its domain, and one of those for
//! users. It gets both at the same time, so a mail that waits for one of them never keeps the other from a third party.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::base::id::AccountId;
use crate::domain::hostname::DomainName;
use crate::machine::fair_queue::FairQueue;

/// Maximum number of mails to users of accounts sent concurrently. No account has more than half of the permits that
/// the other accounts leave, so a few accounts whose mails wait for silent servers never have all permits.
const USERS_AT_ONCE: usize = 64;
/// Maximum number of mails to one domain sent concurrently. No payer has more than half of these permits.
const OF_DOMAIN_AT_ONCE: usize = 4;

/// The party for whom a mail is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MailOwner {
    /// The operator, whose addresses are in the configuration.
    Operator,
    /// An account, whose user gets the mail.
    Account(AccountId),
}

/// The permits. Payers take turns.
#[derive(Clone, Default)]
pub(super) struct MailPermits(Arc<Mutex<State>>);

/// The permit to send one mail, released when dropped.
pub(super) struct MailPermit {
    permits: MailPermits,
    payer: MailOwner,
    domain: DomainName,
}

#[derive(Default)]
struct State {
    held: UsedPermits,
    waiting: FairQueue<Waiter, MailOwner>,
}

/// The permits in use.
#[derive(Default)]
struct UsedPermits {
    /// Mails in flight to users of each account.
    users: HashMap<AccountId, usize>,
    /// Mails in flight to each domain, by payer.
    domains: HashMap<DomainName, HashMap<MailOwner, usize>>,
}

struct Waiter {
    domain: DomainName,
    granted: oneshot::Sender<MailPermit>,
}

impl UsedPermits {
    /// Returns whether both permits of a mail are free.
    fn has_room(&self, payer: MailOwner, domain: &DomainName) -> bool {
        let of_user = match payer {
            MailOwner::Operator => true,
            MailOwner::Account(account) => {
                let of_account = self.users.get(&account).copied().unwrap_or_default();
                let of_all: usize = self.users.values().sum();
                of_account < USERS_AT_ONCE.saturating_sub(of_all)
            }
        };
        of_user
            && self.domains.get(domain).is_none_or(|held| {
                let of_payer = held.get(&payer).copied().unwrap_or_default();
                of_payer < OF_DOMAIN_AT_ONCE / 2 && held.values().sum::<usize>() < OF_DOMAIN_AT_ONCE
            })
    }

    fn take(&mut self, payer: MailOwner, domain: &DomainName) {
        *self.domains.entry(domain.clone()).or_default().entry(payer).or_default() += 1;
        if let MailOwner::Account(account) = payer {
            *self.users.entry(account).or_default() += 1;
        }
    }

    fn release(&mut self, payer: MailOwner, domain: &DomainName) {
        let lower = |held: &mut usize| {
            *held = held.saturating_sub(1);
            *held > 0
        };
        if let Some(held) = self.domains.get_mut(domain) {
            held.retain(|of, held| *of != payer || lower(held));
            if held.is_empty() {
                self.domains.remove(domain);
            }
        }
        self.users.retain(|account, held| payer != MailOwner::Account(*account) || lower(held));
    }
}

impl State {
    /// Takes the permits of the next mail that has room: the oldest one of the payer whose turn it is.
    fn next(&mut self) -> Option<(MailOwner, Waiter)> {
        let Self { held, waiting } = self;
        let (payer, waiter) = waiting.pop_item(|payer, waiter: &Waiter| held.has_room(payer, &waiter.domain))?;
        held.take(payer, &waiter.domain);
        Some((payer, waiter))
    }
}

impl MailPermits {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the permit of a mail to `domain`. Returns `None` if the permits are gone, which never happens.
    pub(super) async fn take(&self, payer: MailOwner, domain: &DomainName) -> Option<MailPermit> {
        // The withdrawal is dropped after the receiver, and recognises a cancelled request by that.
        let mut withdrawal = Withdrawal { permits: self, is_needed: true };
        let (granted, permit) = oneshot::channel();
        {
            let mut state = self.state();
            // Waiting mail can't have room now: every release grants permits until no more mail fits.
            if state.held.has_room(payer, domain) {
                state.held.take(payer, domain);
                withdrawal.is_needed = false;
                return Some(self.permit(payer, domain.clone()));
            }
            state.waiting.push(payer, Waiter { domain: domain.clone(), granted });
        }
        let permit = permit.await.ok();
        withdrawal.is_needed = false;
        permit
    }

    fn permit(&self, payer: MailOwner, domain: DomainName) -> MailPermit {
        MailPermit { permits: self.clone(), payer, domain }
    }

    /// Grants the free permits.
    fn grant(&self) {
        loop {
            let next = self.state().next();
            let Some((payer, Waiter { domain, granted })) = next else { return };
            // If the waiter is gone, dropping the permit returns it.
            drop(granted.send(self.permit(payer, domain)));
        }
    }
}

impl Drop for MailPermit {
    fn drop(&mut self) {
        self.permits.state().held.release(self.payer, &self.domain);
        self.permits.grant();
    }
}

/// Removes the requests of cancelled waiters when dropped.
struct Withdrawal<'a> {
    permits: &'a MailPermits,
    is_needed: bool,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if self.is_needed {
            drop(self.permits.state().waiting.extract(|waiter| waiter.granted.is_closed()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    type Request<'a> = Pin<Box<dyn Future<Output = Option<MailPermit>> + 'a>>;

    fn account(number: u8) -> MailOwner {
        MailOwner::Account(AccountId(Ulid([number; 16])))
    }

    /// Requests a permit, and returns it if it is granted at once.
    fn request<'a>(
        permits: &'a MailPermits,
        payer: MailOwner,
        domain: &'a DomainName,
    ) -> (Request<'a>, Option<MailPermit>) {
        let mut waits: Request<'_> = Box::pin(permits.take(payer, domain));
        let permit = granted(&mut waits);
        (waits, permit)
    }

    fn granted(waits: &mut Request<'_>) -> Option<MailPermit> {
        match waits.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => permit,
            Poll::Pending => None,
        }
    }

    fn domain(name: &str) -> DomainName {
        name.parse().unwrap()
    }

    #[test]
    fn a_mail_that_waits_for_its_account_takes_no_permit_of_its_domain() {
        let (permits, good) = (MailPermits::default(), domain("good.test"));
        let silent: Vec<_> = (0..32).map(|number| domain(&format!("s{number}.test"))).collect();
        let mut held = Vec::new();
        let taken = [1, 2, 3, 4, 5, 6, 7].map(|number| {
            let before = held.len();
            held.extend(silent.iter().filter_map(|silent| request(&permits, account(number), silent).1));
            held.len() - before
        });
        assert_eq!(taken, [32, 16, 8, 4, 2, 1, 1]);
        let waiting: Vec<_> = [1, 2, 1, 2, 8].map(|number| request(&permits, account(number), &good)).into();
        assert!(waiting.iter().all(|(_, permit)| permit.is_none()), "all permits of users are taken");
        for _ in 0..2 {
            held.extend(request(&permits, MailOwner::Operator, &good).1);
        }
        assert_eq!(held.len(), 66, "the operator's mails to the healthy domain do not wait");
    }

    #[test]
    fn a_few_accounts_with_silent_servers_leave_permits_to_others() {
        let (permits, good) = (MailPermits::default(), domain("good.test"));
        let silent: Vec<_> = (0..64).map(|number| domain(&format!("s{number}.test"))).collect();
        let requests =
            |number| silent.iter().map(|silent| request(&permits, account(number), silent)).collect::<Vec<_>>();
        let _waiting = [1, 2, 3].map(requests);
        assert!(request(&permits, account(4), &good).1.is_some());
    }

    #[test]
    fn a_mail_that_waits_for_its_domain_takes_no_permit_of_users() {
        let (permits, silent, good) = (MailPermits::default(), domain("silent.test"), domain("good.test"));
        let requests = |number| (0..40).map(|_| request(&permits, account(number), &silent)).collect::<Vec<_>>();
        let (first, second) = (requests(1), requests(2));
        let held = first.iter().chain(&second).filter(|(_, permit)| permit.is_some()).count();
        assert_eq!(held, OF_DOMAIN_AT_ONCE);
        assert!([1, 2, 3].iter().all(|number| request(&permits, account(*number), &good).1.is_some()));
    }

    #[test]
    fn payers_take_turns_and_a_cancelled_request_leaves_the_queue() {
        let (permits, name) = (MailPermits::default(), domain("a.test"));
        let mut held: Vec<_> = [1, 1, 2, 2].map(|number| request(&permits, account(number), &name).1).into();
        let payers = [account(3), account(3), account(3), MailOwner::Operator];
        let mut waiting: Vec<_> = payers.map(|payer| request(&permits, payer, &name).0).into();
        drop(waiting.remove(0));
        let mut in_order = Vec::new();
        for _ in 0..3 {
            held.remove(0);
            let mut permit = None;
            waiting.retain_mut(|waits| {
                let is_new = granted(waits);
                let waits_on = is_new.is_none();
                permit = is_new.or(permit.take());
                waits_on
            });
            in_order.extend(permit.as_ref().map(|permit| permit.payer));
            held.push(permit);
        }
        assert_eq!(in_order, [account(3), MailOwner::Operator, account(3)]);
        held.clear();
        let state = permits.state();
        assert!(state.held.users.is_empty() && state.held.domains.is_empty() && state.waiting.is_empty());
        assert!(!state.waiting.has_of(|_| true));
    }
}
