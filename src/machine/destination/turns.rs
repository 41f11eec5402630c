//! The next message of a destination. Transactional mail goes first, and accounts take turns: while another account
//! waits, none gets more than half of the connections.
//!
//! Connections become free when their messages end, which may take minutes. Two seconds after their start, messages of
//! an account beyond half of the window therefore don't count against other accounts. If no message of the site starts
//! for two seconds, an account without any started message may use one connection more than the window has. At most
//! eight messages at a time exceed the window.

use std::time::Duration;

use super::window::WindowState;
use super::{Destination, Moment, QueuedMessage, Slot};
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;

/// Time without a start after which an account without a started message may exceed the window. After the same time,
/// messages beyond half of the window don't count against other accounts.
pub(super) const STUCK: Duration = Duration::from_secs(2);
/// Maximum number of messages beyond the window.
pub const EXTRA_MAX: usize = 8;
/// Maximum time of a probe before the next message probes too.
pub(super) const PROBE_MAX: Duration = Duration::from_secs(60);

/// The message that may start next.
struct Turn {
    stream: Stream,
    account: AccountId,
    /// Whether the message exceeds the window.
    is_extra: bool,
}

/// The messages that start outside of the turns: the probe, and those beyond the window.
#[derive(Debug, Clone, Default)]
pub(super) struct Special {
    /// The message that probes the site.
    pub(super) prober: Option<Slot>,
    /// The messages beyond the window.
    pub(super) extra: Vec<Slot>,
}

impl Special {
    pub(super) fn ended(&mut self, slot: Slot) {
        self.prober = self.prober.filter(|other| *other != slot);
        self.extra.retain(|other| *other != slot);
    }
}

impl Destination {
    /// Starts the next message, if one may start now.
    pub(super) fn start_next(&mut self, moment: Moment) -> Option<(Slot, QueuedMessage)> {
        self.turn_at = None;
        let is_probe = self.window.state() == WindowState::Probing;
        let Some(turn) = self.turn(moment) else {
            let wait = self.requested.shortest_wait(moment).filter(|_| self.queue.len() > 0 && !self.is_stopped);
            let turns = [self.turn_at, wait.map(|wait| moment.machine + wait)];
            self.turn_at = turns.into_iter().flatten().min();
            return None;
        };
        let wait = self.spacing_wait(moment);
        // A probe does not wait for the rate limit.
        if !wait.is_zero() && !is_probe {
            self.turn_at = Some(moment.machine + wait);
            return None;
        }
        self.messages.iter_mut().for_each(|spacing| spacing.count(moment.machine));
        self.requested.count(&turn.account, moment.machine);
        let message = self.queue.pop(turn.stream, turn.account)?;
        let slot = self.slots.add(message, moment.machine);
        if is_probe {
            self.special.prober = Some(slot);
        }
        if turn.is_extra {
            self.special.extra.push(slot);
        }
        Some((slot, message))
    }

    fn turn(&mut self, moment: Moment) -> Option<Turn> {
        if self.is_stopped || self.queue.len() == 0 {
            return None;
        }
        match self.window.state() {
            WindowState::BackedOff(_) => None,
            WindowState::Probing => self.probe_turn(moment),
            WindowState::Open => self.regular_turn(moment).or_else(|| self.extra_turn(moment)),
        }
    }

    fn probe_turn(&mut self, moment: Moment) -> Option<Turn> {
        // An account that may be the only one that the site refuses shows little about the site.
        let blamed = self.blamed;
        let is_other = |account: &AccountId| Some(*account) != blamed;
        let other = blamed.and_then(|_| {
            let next = |stream: &Stream| Some((*stream, self.queue.next(*stream, is_other)?));
            Stream::ALL.iter().find_map(next)
        });
        let prober = self.special.prober.and_then(|prober| self.slots.get(prober));
        let until = prober.filter(|(account, _)| other.is_none() || is_other(account)).map(|(_, at)| at + PROBE_MAX);
        if let Some(until) = until.filter(|until| *until > moment.machine) {
            self.turn_at = Some(until);
            return None;
        }
        match other {
            Some((stream, account)) => Some(Turn { stream, account, is_extra: false }),
            None => self.next_of(&Stream::ALL, moment, |_| true, |_| true),
        }
    }

    /// Returns the next turn within the window, or within the part of it that another account holds beyond its share.
    fn regular_turn(&self, moment: Moment) -> Option<Turn> {
        let connections = self.connections(moment.wall);
        let share = connections.div_ceil(2);
        let is_extra = self.slots.len() >= connections;
        if is_extra && (!self.may_exceed(moment.wall) || self.slots.len() - self.beyond(share, moment) >= connections) {
            return None;
        }
        let has_marketing_slots = self.marketing_slots(moment.wall) > 0;
        let streams = if has_marketing_slots { &Stream::ALL[..] } else { &[Stream::Transactional] };
        let has_share = |account: &AccountId| self.slots.of(account) < share;
        let may = |account: &AccountId| self.allows(account, moment) && (!is_extra || has_share(account));
        Some(Turn { is_extra, ..self.next_of(streams, moment, has_share, may)? })
    }

    /// Returns the number of messages beyond the share of their accounts that don't count against other accounts.
    fn beyond(&self, share: usize, moment: Moment) -> usize {
        moment.machine.checked_sub(STUCK).map_or(0, |at| self.slots.beyond(share, at).min(EXTRA_MAX))
    }

    /// Returns whether one message more may exceed the window. A limit that the site has requested is never exceeded.
    fn may_exceed(&self, now: Timestamp) -> bool {
        self.special.extra.len() < EXTRA_MAX && self.requested.most(now) >= self.window.connections()
    }

    /// Returns whether the limits that answers requested for this account alone allow its next message.
    pub(super) fn allows(&self, account: &AccountId, moment: Moment) -> bool {
        self.requested.allows(account, || self.slots.of(account), moment)
    }

    /// Returns the next turn beyond the window.
    fn extra_turn(&mut self, moment: Moment) -> Option<Turn> {
        if !self.may_exceed(moment.wall) {
            return None;
        }
        let passes = |account: &AccountId| !self.queue.lets_pass(account, moment.machine);
        let is_new =
            |account: &AccountId| passes(account) && !self.slots.has_of(account) && self.allows(account, moment);
        let found = Stream::ALL.iter().find_map(|stream| Some((*stream, self.queue.next(*stream, is_new)?)));
        let (stream, account) = found?;
        let until = self.slots.last_start()? + STUCK;
        if until > moment.machine {
            self.turn_at = Some(until);
            return None;
        }
        Some(Turn { stream, account, is_extra: true })
    }

    /// Returns the next turn of these streams, in their order, of an account for which `may` returns true. Accounts for
    /// which `has_share` returns true go first within a stream, and accounts that let others pass go last.
    fn next_of(
        &self,
        streams: &[Stream],
        moment: Moment,
        has_share: impl Fn(&AccountId) -> bool,
        may: impl Fn(&AccountId) -> bool,
    ) -> Option<Turn> {
        let passes = |account: &AccountId| !self.queue.lets_pass(account, moment.machine) && may(account);
        let first = |stream| {
            let is_contended = self.queue.accounts(stream) > 1;
            let within = |account: &AccountId| passes(account) && has_share(account);
            let fair = if is_contended { self.queue.next(stream, within) } else { None };
            fair.or_else(|| self.queue.next(stream, passes))
        };
        let of = |find: &dyn Fn(Stream) -> Option<AccountId>| {
            streams.iter().find_map(|stream| Some(Turn { stream: *stream, account: find(*stream)?, is_extra: false }))
        };
        of(&first).or_else(|| of(&|stream| self.queue.next(stream, &may)))
    }

    /// Returns the number of marketing messages that may start. If the streams share the destination, one connection is
    /// reserved.
    pub(super) fn marketing_slots(&self, now: Timestamp) -> usize {
        let waiting = self.queue.marketing_len();
        // Messages in flight since before the throttling do not count against the probe.
        if self.window.state() == WindowState::Probing {
            return waiting;
        }
        let connections = self.connections(now);
        let theirs = if self.is_shared { connections.saturating_sub(1).max(1) } else { connections };
        theirs.saturating_sub(self.slots.marketing()).min(waiting)
    }
}
