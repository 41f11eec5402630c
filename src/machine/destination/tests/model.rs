//! A driver of a destination that checks its invariants after every step.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

pub(super) const START: Moment =
    Moment { wall: Timestamp::from_millis(1_700_000_000_000), machine: Duration::from_secs(1_000) };

/// Location of a message. It has exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    Waits,
    Started(Slot),
    PutOff,
    Spilled,
    Rerouted,
    Ended,
}

#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) destination: Destination,
    pub(super) now: Moment,
    pub(super) is_suspended: bool,
    pub(super) kept: usize,
    pub(super) reading: Option<Spill>,
    messages: BTreeMap<u8, (QueuedMessage, Where)>,
    wakes: BTreeSet<Timestamp>,
    is_stopped: bool,
}

/// Returns message `n`, of one of three accounts.
pub(super) fn message(n: u8, give_up_at: Timestamp) -> QueuedMessage {
    let (account, id) = (AccountId(Ulid([n % 3; 16])), MessageId(Ulid([n; 16])));
    QueuedMessage { place: Place { due: START.wall, account, id }, stream: Stream::Transactional, give_up_at }
}

const fn number(message: &QueuedMessage) -> u8 {
    message.place.id.0.0[0]
}

impl Model {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            destination: Destination::new(limits),
            now: START,
            is_suspended: false,
            kept: 0,
            reading: None,
            messages: BTreeMap::new(),
            wakes: BTreeSet::new(),
            is_stopped: false,
        }
    }

    pub(super) fn due(&mut self, n: u8) {
        self.take(n, message(n, Timestamp::MAX));
    }

    pub(super) fn due_until(&mut self, n: u8, give_up_at: Timestamp) {
        self.take(n, message(n, give_up_at));
    }

    pub(super) fn take(&mut self, n: u8, message: QueuedMessage) {
        self.messages.insert(n, (message, Where::Ended));
        self.step(Input::Due(message));
    }

    fn slot(&self, n: u8) -> Slot {
        match self.messages[&n].1 {
            Where::Started(slot) => slot,
            other => panic!("message {n} is {other:?}"),
        }
    }

    pub(super) fn end(&mut self, n: u8, signal: Signal) {
        let slot = self.slot(n);
        self.put(n, Where::Ended);
        self.step(Input::Ended(slot, signal));
    }

    pub(super) fn let_pass(&mut self, n: u8) {
        let slot = self.slot(n);
        self.put(n, Where::Ended);
        self.step(Input::LetPass(slot));
    }

    pub(super) fn connect(&mut self, n: u8) {
        let reuses = self.kept > 0;
        self.kept -= usize::from(reuses);
        self.step(if reuses { Input::Reuse(self.slot(n)) } else { Input::Connecting(self.slot(n)) });
    }

    pub(super) fn keep(&mut self, n: u8) {
        self.kept += 1;
        self.step(Input::Keep(self.slot(n)));
    }

    /// Reads the spilled messages.
    pub(super) fn refill(&mut self) {
        assert!(self.reading.is_some());
        let spilled = self.messages.values().filter(|(_, place)| *place == Where::Spilled);
        let spilled: Vec<_> = spilled.map(|(message, _)| *message).collect();
        for message in spilled {
            // The message is in memory now, and is queued again or deferred.
            self.put(number(&message), Where::Ended);
            self.step(Input::Due(message));
        }
        self.reading = None;
        self.step(Input::Refilled(None));
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = Moment { wall: self.now.wall + time, machine: self.now.machine + time };
    }

    /// Advances time to the next wake-up.
    pub(super) fn wake(&mut self) {
        if let Some(at) = self.wakes.first().copied() {
            self.pass(at.since(self.now.wall));
            self.step(Input::Woken);
        }
    }

    /// Returns the started messages, in the order of their starts.
    pub(super) fn started(&self) -> Vec<u8> {
        let mut started: Vec<_> = self
            .messages
            .iter()
            .filter_map(|(n, (_, place))| if let Where::Started(slot) = place { Some((*slot, *n)) } else { None })
            .collect();
        started.sort_unstable();
        started.into_iter().map(|(_, n)| n).collect()
    }

    /// Returns whether a message beyond the window runs.
    pub(super) const fn has_extra(&self) -> bool {
        !self.destination.special.extra.is_empty()
    }

    pub(super) fn is_put_off(&self, n: u8) -> bool {
        self.messages[&n].1 == Where::PutOff
    }

    fn count(&self, place: Where) -> usize {
        self.messages.values().filter(|(_, other)| *other == place).count()
    }

    pub(super) fn spilled(&self) -> usize {
        self.count(Where::Spilled)
    }

    fn put(&mut self, n: u8, place: Where) {
        if let Some(entry) = self.messages.get_mut(&n) {
            entry.1 = place;
        }
    }

    fn move_all(&mut self, messages: &[QueuedMessage], place: Where) {
        for message in messages {
            let n = number(message);
            assert!(matches!(self.messages[&n].1, Where::Waits | Where::Ended), "{n} is in one place");
            self.put(n, place);
        }
    }

    pub(super) fn step(&mut self, input: Input) {
        self.is_stopped |= input == Input::Stop;
        if input == Input::Woken {
            self.wakes = self.wakes.split_off(&(self.now.wall + Duration::from_millis(1)));
        }
        let mut effects = Vec::new();
        self.destination.handle(input, self.now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Wait(message) => {
                    assert_eq!(self.messages[&number(&message)].1, Where::Ended);
                    self.put(number(&message), Where::Waits);
                }
                Effect::Start(slot, message) => {
                    assert!(!self.is_stopped, "nothing starts after the stop");
                    assert_eq!(self.messages[&number(&message)].1, Where::Waits);
                    self.put(number(&message), Where::Started(slot));
                }
                Effect::Suspend => assert!(!std::mem::replace(&mut self.is_suspended, true)),
                Effect::Resume => assert!(std::mem::replace(&mut self.is_suspended, false)),
                Effect::WakeAt(at) => drop(self.wakes.insert(at)),
                Effect::PutOff(messages) => self.move_all(&messages, Where::PutOff),
                Effect::Leave(messages) => self.move_all(&messages, Where::Spilled),
                Effect::Reroute(messages) => self.move_all(&messages, Where::Rerouted),
                Effect::Refill(spill) => assert!(self.reading.replace(spill).is_none()),
                Effect::Quit(count) => self.kept -= count,
            }
        }
        self.check();
    }

    fn check(&mut self) {
        let (now, waiting) = (self.now, self.count(Where::Waits));
        let destination = &self.destination;
        let state = destination.window.state();
        let connections = destination.connections(now.wall);
        assert_eq!(destination.len(), waiting, "every message is in one place");
        assert_eq!(destination.slots.len(), self.started().len(), "every started message has a slot");
        assert_eq!(destination.kept, self.kept);
        assert!(self.kept + destination.slots.connected() <= connections.max(destination.slots.connected()));
        assert_eq!(self.is_suspended, state != WindowState::Open);
        if self.is_stopped {
            return;
        }
        let is_awaited = destination.next_wake().is_some() || !self.wakes.is_empty();
        assert!(waiting == 0 || !self.started().is_empty() || is_awaited, "messages wait for something");
        assert!(self.spilled() == 0 || self.reading.is_some() || !self.wakes.is_empty(), "the store is read again");
        match state {
            WindowState::BackedOff(until) => {
                assert!(self.wakes.first().is_some_and(|at| *at <= until), "it is probed later")
            }
            WindowState::Probing => {
                let prober = destination.special.prober.is_some_and(|slot| destination.slots.has(slot));
                assert!(prober || waiting == 0, "a site that is to be probed has a prober");
            }
            WindowState::Open => {
                let is_free = destination.slots.len() < connections && destination.next_wake().is_none();
                let may = |account: &AccountId| destination.allows(account, now);
                let has_startable = destination.queue.has_of(may, destination.marketing_slots(now.wall) > 0);
                assert!(!is_free || !has_startable, "work goes on while it can");
            }
        }
    }

    /// Lets the site accept everything from now on, and checks that every message ends.
    pub(super) fn ends_well(mut self) {
        for _ in 0..2_000 {
            if let Some(n) = self.started().first() {
                self.end(*n, Signal::Took);
            } else if self.reading.is_some() {
                self.refill();
            } else if let Some(at) = self.destination.next_wake() {
                self.pass(at.saturating_sub(self.now.machine));
                self.step(Input::TurnCame);
            } else if self.wakes.is_empty() {
                break;
            } else {
                self.wake();
            }
        }
        let is_over = |place: &Where| matches!(place, Where::Ended | Where::PutOff | Where::Rerouted);
        assert!(self.messages.values().all(|(_, place)| is_over(place)), "{:?}", self.messages);
    }
}
