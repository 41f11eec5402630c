//! Limits that answers requested: for the site, or for the one account whose message was answered. Each has an end.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Moment;
use super::spacing::Spacing;
use crate::base::id::AccountId;
use crate::base::time::Timestamp;

/// Duration of the limit for an account whose message the site deferred without requesting a limit.
const SLOWED_FOR: Duration = Duration::from_secs(60);

/// The requested limits of one destination.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestedLimits {
    of_all: TemporaryLimits,
    of_accounts: BTreeMap<AccountId, TemporaryLimits>,
}

/// The limits of the site, or of one account.
#[derive(Debug, Clone, Default)]
struct TemporaryLimits {
    /// Maximum number of connections, and the end of this limit.
    fewer: Option<(usize, Timestamp)>,
    /// The rate of messages, and the end of this limit.
    slower: Option<(Spacing, Timestamp)>,
}

impl TemporaryLimits {
    fn most(&self, now: Timestamp) -> usize {
        self.fewer.filter(|(_, until)| *until > now).map_or(usize::MAX, |(most, _)| most.max(1))
    }

    fn wait(&self, moment: Moment) -> Duration {
        let slower = self.slower.filter(|(_, until)| *until > moment.wall);
        slower.map_or(Duration::ZERO, |(spacing, _)| spacing.wait(moment.machine))
    }

    fn ends(&self) -> impl Iterator<Item = Timestamp> {
        self.fewer.map(|(_, until)| until).into_iter().chain(self.slower.map(|(_, until)| until))
    }

    fn set_back(&mut self, by: Duration) {
        self.fewer = self.fewer.map(|(most, until)| (most, until - by));
        self.slower = self.slower.map(|(spacing, until)| (spacing, until - by));
    }
}

impl RequestedLimits {
    /// Limits the connections of one account or of all, in place of an earlier such limit.
    pub(super) fn limit_connections(&mut self, of: Option<AccountId>, most: usize, until: Timestamp, now: Timestamp) {
        self.limits(of, now).fewer = Some((most, until));
    }

    /// Limits the messages per minute of one account or of all, in place of an earlier such limit.
    pub(super) fn limit_rate(&mut self, of: Option<AccountId>, per_minute: u32, until: Timestamp, now: Timestamp) {
        self.limits(of, now).slower = Some((Spacing::per_minute(per_minute), until));
    }

    /// Halves the connections of one account for a while, unless a limit that lasts longer exists. An account at its
    /// limit has a started message, whose end starts the next one, so the end of this limit needs no wake-up.
    pub(super) fn slow_down(&mut self, account: AccountId, held: usize, now: Timestamp) {
        let until = now + SLOWED_FOR;
        let limits = self.limits(Some(account), now);
        limits.fewer = limits.fewer.filter(|(_, other)| *other > until).or(Some((held.div_ceil(2), until)));
    }

    /// Returns the limits of one account or of all, after removing the accounts whose limits have ended.
    fn limits(&mut self, of: Option<AccountId>, now: Timestamp) -> &mut TemporaryLimits {
        self.of_accounts.retain(|_, limits| limits.ends().any(|until| until > now));
        match of {
            Some(account) => self.of_accounts.entry(account).or_default(),
            None => &mut self.of_all,
        }
    }

    /// Returns the maximum number of connections of all accounts together.
    pub(super) fn most(&self, now: Timestamp) -> usize {
        self.of_all.most(now)
    }

    /// Returns the time for which the next message of any account must wait.
    pub(super) fn wait(&self, moment: Moment) -> Duration {
        self.of_all.wait(moment)
    }

    /// Returns the time for which the next message of this account must wait for the account's own rate.
    pub(super) fn wait_of(&self, account: &AccountId, moment: Moment) -> Duration {
        self.of_accounts.get(account).map_or(Duration::ZERO, |limits| limits.wait(moment))
    }

    /// Returns the shortest wait for an account's own rate, if any account waits.
    pub(super) fn shortest_wait(&self, moment: Moment) -> Option<Duration> {
        let waits = self.of_accounts.values().map(|limits| limits.wait(moment));
        waits.filter(|wait| !wait.is_zero()).min()
    }

    /// Returns whether the account's own limits allow one message more than the `held()` that it has.
    pub(super) fn allows(&self, account: &AccountId, held: impl FnOnce() -> usize, moment: Moment) -> bool {
        self.of_accounts
            .get(account)
            .is_none_or(|limits| held() < limits.most(moment.wall) && limits.wait(moment).is_zero())
    }

    /// Counts a started message.
    pub(super) fn count(&mut self, account: &AccountId, machine: Duration) {
        let limits = [Some(&mut self.of_all), self.of_accounts.get_mut(account)];
        let slower = limits.into_iter().flatten().filter_map(|limits| limits.slower.as_mut());
        slower.for_each(|(spacing, _)| spacing.count(machine));
    }

    /// Returns the end of the limit on connections that stops an account with `held` messages of `all`.
    pub(super) fn fewer_until(
        &self,
        account: &AccountId,
        [held, all]: [usize; 2],
        now: Timestamp,
    ) -> Option<Timestamp> {
        let own = self.of_accounts.get(account).filter(|limits| held >= limits.most(now));
        let limits = own.or_else(|| Some(&self.of_all).filter(|limits| all >= limits.most(now)))?;
        limits.fewer.map(|(_, until)| until)
    }

    /// Returns the ends of all limits.
    pub(super) fn ends(&self) -> impl Iterator<Item = Timestamp> {
        std::iter::once(&self.of_all).chain(self.of_accounts.values()).flat_map(TemporaryLimits::ends)
    }

    /// Moves all ends, because the service's time was set back.
    pub(super) fn set_back(&mut self, by: Duration) {
        self.of_all.set_back(by);
        self.of_accounts.values_mut().for_each(|limits| limits.set_back(by));
    }
}
