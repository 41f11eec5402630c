//! The queue of a lane: timers alone, transactional ones first and accounts in turn, and the workers that serve it at a
//! moment. The lane holds it under its lock; nothing here waits.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::overflow::Left;
use super::pace::Pace;
use super::window::{Standing, Window};
use crate::base::id::{AccountId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;
use crate::machine::fair_queue::FairQueue;
use crate::smtp::shaping::Limits;
use crate::store::near::NearTimers;
use crate::store::timer::Timer;

/// Time for which an account's messages let others pass after one of them waited for a connection.
pub(super) const LETS_PASS: Duration = Duration::from_secs(5);

/// A message that is due: its row is read when its turn has come, so that a long queue is small.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket {
    pub(super) timer: Timer,
    pub(super) stream: Stream,
    pub(super) give_up_at: Timestamp,
}

impl Ticket {
    pub(super) const fn account(&self) -> AccountId {
        self.timer.account
    }

    pub(super) const fn id(&self) -> MessageId {
        MessageId(self.timer.id)
    }
}

/// Role of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duty {
    /// The lane's messages.
    Serve,
    /// The one connection that shows whether the site is back, by the prober's number.
    Probe(u64),
}

/// Messages that wait for a destination, and the workers that serve it.
pub(super) struct Queue {
    pub(super) transactional: FairQueue<Ticket>,
    pub(super) marketing: FairQueue<Ticket>,
    pub(super) workers: usize,
    /// The worker that probes the site.
    pub(super) prober: Option<u64>,
    last_prober: u64,
    /// Workers with nothing to send.
    pub(super) waiting: usize,
    /// Messages that workers have in hand.
    pub(super) in_flight: usize,
    pub(super) marketing_in_flight: usize,
    pub(super) window: Window,
    /// Whether the timers of all that waits rest.
    pub(super) is_resting: bool,
    pub(super) messages: Option<Pace>,
    pub(super) connections: Option<Pace>,
    /// Slower pace that an answer asked for, and its end.
    pub(super) slower: Option<(Pace, Timestamp)>,
    pub(super) last_answer: Option<String>,
    pub(super) is_closed: bool,
    /// Its messages that memory has no room for.
    pub(super) left: Option<Left>,
    /// Whether those are being read again.
    pub(super) is_reading: bool,
    /// Whether its relay carries both streams, so that a place is kept for transactional mail.
    pub(super) is_shared: bool,
    /// Accounts that have no connection left for this site, and until when they let others pass.
    letting_pass: HashMap<AccountId, Instant>,
}

impl Queue {
    pub(super) fn new(limits: &Limits, is_shared: bool) -> Self {
        Self {
            transactional: FairQueue::default(),
            marketing: FairQueue::default(),
            workers: 0,
            prober: None,
            last_prober: 0,
            waiting: 0,
            in_flight: 0,
            marketing_in_flight: 0,
            window: Window::new(limits.connections),
            is_resting: false,
            messages: limits.messages_per_minute.map(Pace::per_minute),
            connections: limits.connections_per_minute.map(Pace::per_minute),
            slower: None,
            last_answer: None,
            is_closed: false,
            left: None,
            is_reading: false,
            is_shared,
            letting_pass: HashMap::new(),
        }
    }

    pub(super) const fn of(&mut self, stream: Stream) -> &mut FairQueue<Ticket> {
        match stream {
            Stream::Transactional => &mut self.transactional,
            Stream::Marketing => &mut self.marketing,
        }
    }

    pub(super) fn timers(&self) -> impl Iterator<Item = Timer> {
        self.transactional.iter().chain(self.marketing.iter()).map(|ticket| ticket.timer)
    }

    /// Prepares for a message that joins; it comes back where its time ends while the site is held back.
    pub(super) fn welcome(&self, ticket: Ticket, near: &NearTimers) -> Result<(), Ticket> {
        match self.window.standing() {
            Standing::Held(until) if ticket.give_up_at <= until => return Err(ticket),
            Standing::Held(_) => near.rest([ticket.timer]),
            // Without a prober, this message will be the probe.
            Standing::Probing if self.prober.is_some() => near.rest([ticket.timer]),
            Standing::Probing | Standing::Open => {}
        }
        Ok(())
    }

    /// The messages that wait here.
    pub(super) const fn len(&self) -> usize {
        self.transactional.len() + self.marketing.len()
    }

    /// Returns how many marketing messages may begin at `now`. Where the streams share the queue, one place is
    /// reserved.
    fn marketing_room(&self, now: Timestamp) -> usize {
        // Messages that were under way before the site was held back take nothing from its probe.
        if self.window.standing() == Standing::Probing {
            return self.marketing.len();
        }
        let connections = self.window.connections(now);
        let theirs = if self.is_shared { connections.saturating_sub(1).max(1) } else { connections };
        theirs.saturating_sub(self.marketing_in_flight).min(self.marketing.len())
    }

    /// Returns how many messages a worker could begin.
    pub(super) fn takeable(&self, now: Timestamp) -> usize {
        self.transactional.len() + self.marketing_room(now)
    }

    /// The next message; the caller has seen that there is one. Accounts without a connection let others pass.
    pub(super) fn pop(&mut self, now: Timestamp, instant: Instant, near: &NearTimers) -> Option<Ticket> {
        self.letting_pass.retain(|_, until| *until > instant);
        let has_room = self.marketing_room(now) > 0;
        let Self { transactional, marketing, letting_pass, .. } = self;
        let may = |account: &AccountId| !letting_pass.contains_key(account);
        let of_marketing = |may: &dyn Fn(&AccountId) -> bool, marketing: &mut FairQueue<Ticket>| {
            if has_room { marketing.pop_of(may) } else { None }
        };
        let others = transactional.pop_of(may).or_else(|| of_marketing(&may, marketing));
        let ticket = others.or_else(|| transactional.pop()).or_else(|| of_marketing(&|_| true, marketing))?;
        if self.is_resting {
            near.rouse([ticket.timer]);
        }
        self.in_flight += 1;
        self.marketing_in_flight += usize::from(ticket.stream == Stream::Marketing);
        Some(ticket)
    }

    /// Whether a message of another account than `account` could begin instead of one that waits for a connection.
    pub(super) fn has_other(&self, account: AccountId, now: Timestamp, instant: Instant) -> bool {
        let lets_pass = |other: &AccountId| self.letting_pass.get(other).is_some_and(|until| *until > instant);
        let may = |other: &AccountId| *other != account && !lets_pass(other);
        self.transactional.has_of(may) || self.marketing_room(now) > 0 && self.marketing.has_of(may)
    }

    /// Has the account's messages let others pass for a while.
    pub(super) fn let_pass(&mut self, account: AccountId, instant: Instant) {
        self.letting_pass.insert(account, instant + LETS_PASS);
    }

    /// Returns how long the next message has to wait.
    pub(super) fn pace(&mut self, now: Timestamp, instant: Instant) -> Duration {
        if self.slower.is_some_and(|(_, until)| until <= now) {
            self.slower = None;
        }
        let of_provider = self.messages.map_or(Duration::ZERO, |pace| pace.wait(instant));
        self.slower.map_or(of_provider, |(pace, _)| pace.wait(instant).max(of_provider))
    }

    pub(super) fn count(&mut self, instant: Instant) {
        let slower = self.slower.as_mut().map(|(pace, _)| pace);
        self.messages.iter_mut().chain(slower).for_each(|pace| pace.count(instant));
    }

    /// Counts another worker where there is work for one and room. A site that is being probed has one prober, however
    /// many workers still wait for its earlier answers.
    pub(super) fn hires(&mut self, now: Timestamp) -> Option<Duty> {
        let duty = match self.window.standing() {
            _ if self.is_closed => None,
            Standing::Probing if self.prober.is_none() && self.takeable(now) > 0 => Some(self.appoint_prober()),
            Standing::Probing => None,
            Standing::Open | Standing::Held(_) => {
                let has_room = self.workers < self.window.connections(now) && self.takeable(now) > self.waiting;
                has_room.then_some(Duty::Serve)
            }
        };
        self.workers += usize::from(duty.is_some());
        duty
    }

    /// Makes a worker the prober, in place of any other.
    pub(super) const fn appoint_prober(&mut self) -> Duty {
        self.last_prober += 1;
        self.prober = Some(self.last_prober);
        Duty::Probe(self.last_prober)
    }

    /// Whether a worker may take a message now. Where nobody probes a site that is to be probed, the worker does.
    pub(super) fn admits(&mut self, duty: &mut Duty, now: Timestamp) -> bool {
        match (self.window.standing(), *duty, self.prober) {
            _ if self.is_closed => false,
            (Standing::Probing, _, None) => {
                *duty = self.appoint_prober();
                true
            }
            (Standing::Probing, Duty::Probe(own), Some(prober)) => own == prober,
            (Standing::Probing, Duty::Serve, Some(_)) => false,
            (Standing::Open | Standing::Held(_), _, _) => self.workers <= self.window.connections(now),
        }
    }

    /// A worker with this duty ends.
    pub(super) fn dismiss(&mut self, duty: Duty) {
        self.workers -= 1;
        if self.prober.map(Duty::Probe) == Some(duty) {
            self.prober = None;
        }
    }
}
