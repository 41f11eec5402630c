//! The queue of a lane: timers alone, transactional ones first and accounts in turn, and the workers that serve it at a
//! moment. The lane holds it under its lock; nothing here waits.

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

    /// The next message; the caller has seen that there is one.
    pub(super) fn pop(&mut self, near: &NearTimers) -> Option<Ticket> {
        let ticket = self.transactional.pop().or_else(|| self.marketing.pop())?;
        if self.is_resting {
            near.rouse([ticket.timer]);
        }
        self.in_flight += 1;
        self.marketing_in_flight += usize::from(ticket.stream == Stream::Marketing);
        Some(ticket)
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
