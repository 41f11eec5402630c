//! Tests of the scheduler: invariants under any inputs, and all short runs of two destinations.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::base::id::{AccountId, MessageId, Ulid};
use crate::domain::stream::Stream;
use crate::machine::destination::{Place, QueuedMessage, Signal, Slot};

const NOW: Moment = Moment { wall: Timestamp::from_millis(1_700_000_000_000), machine: Duration::from_secs(1_000) };
const LIMITS: Limits = Limits {
    connections: 1,
    messages_per_minute: None,
    connections_per_minute: None,
    is_shared: false,
    may_spill: true,
};

fn message(n: u16) -> QueuedMessage {
    let [high, low] = n.to_be_bytes();
    let mut id = [0; 16];
    id[14..].copy_from_slice(&[high, low]);
    let place = Place { due: NOW.wall, account: AccountId(Ulid([low % 3; 16])), id: MessageId(Ulid(id)) };
    QueuedMessage { place, stream: Stream::Transactional, give_up_at: Timestamp::MAX }
}

/// A driver that tracks the location of each message.
#[derive(Debug, Clone, Default)]
struct Model {
    scheduler: Scheduler<u8>,
    now: Option<Moment>,
    waiting: BTreeMap<DestinationId, BTreeSet<MessageId>>,
    started: BTreeMap<(DestinationId, Slot), MessageId>,
    left: Vec<(DestinationId, MessageId)>,
    wakes: BTreeSet<(Timestamp, DestinationId)>,
    is_stopped: bool,
}

impl Model {
    fn now(&self) -> Moment {
        self.now.unwrap_or(NOW)
    }

    fn open(&mut self, way: u8) -> DestinationId {
        self.scheduler.find(&way).unwrap_or_else(|| self.scheduler.open(way, &LIMITS))
    }

    fn due(&mut self, way: u8, n: u16) {
        let id = self.open(way);
        self.step(id, Input::Due(message(n)));
    }

    fn end(&mut self, at: usize, signal: Signal) {
        let Some((id, slot)) = self.started.keys().nth(at).copied() else { return };
        self.started.remove(&(id, slot));
        self.step(id, Input::Ended(slot, signal));
    }

    /// Advances time to the next wake-up.
    fn wake(&mut self) {
        let Some((at, id)) = self.wakes.pop_first() else { return };
        let Moment { wall, machine } = self.now();
        let passed = at.since(wall);
        self.now = Some(Moment { wall: wall + passed, machine: machine + passed });
        self.step(id, Input::Woken);
    }

    fn stop(&mut self) {
        let mut effects = Vec::new();
        self.is_stopped = true;
        self.scheduler.stop(self.now(), &mut effects);
        self.carry_out(effects);
    }

    fn step(&mut self, id: DestinationId, input: Input) {
        let mut effects = Vec::new();
        self.scheduler.handle(id, input, self.now(), &mut effects);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<DestinationEffect>) {
        for (id, effect) in effects {
            let waiting = self.waiting.entry(id).or_default();
            match effect {
                Effect::Wait(message) => assert!(waiting.insert(message.place.id)),
                Effect::Start(slot, message) => {
                    assert!(!self.is_stopped && waiting.remove(&message.place.id));
                    assert_eq!(self.started.insert((id, slot), message.place.id), None);
                }
                Effect::PutOff(messages) | Effect::Reroute(messages) => {
                    assert!(messages.iter().all(|message| waiting.remove(&message.place.id)));
                }
                Effect::Leave(messages) => {
                    assert!(messages.iter().all(|message| waiting.remove(&message.place.id)));
                    self.left.extend(messages.iter().map(|message| (id, message.place.id)));
                }
                Effect::WakeAt(at) => drop(self.wakes.insert((at, id))),
                Effect::Suspend | Effect::Resume | Effect::Refill(_) | Effect::Quit(_) => {}
            }
        }
        self.check();
    }

    fn check(&self) {
        let waiting: usize = self.waiting.values().map(BTreeSet::len).sum();
        assert_eq!(self.scheduler.queued(), waiting, "every message is in one place");
        for (id, own) in &self.waiting {
            let is_started = self.started.keys().any(|(other, _)| other == id);
            let is_woken = self.wakes.iter().any(|(_, other)| other == id);
            assert!(own.is_empty() || is_started || is_woken || self.is_stopped, "{id} waits for nothing");
        }
    }

    /// Lets every site accept everything from now on, and checks that every message ends.
    fn ends_well(mut self) {
        for _ in 0..1_000 {
            if self.started.is_empty() {
                self.wake();
            }
            self.end(0, Signal::Took);
        }
        assert!(self.waiting.values().all(BTreeSet::is_empty) && self.started.is_empty());
    }
}

#[test]
fn the_longest_queue_spills_when_memory_is_short_and_others_do_not() {
    let mut model = Model::default();
    (0..100).for_each(|n| model.due(1, n));
    (100..=612).for_each(|n| model.due(2, n));
    assert_eq!((model.scheduler.queued(), model.left.len()), (404, 207));
    let long = model.open(2);
    assert!(model.left.iter().all(|(id, _)| *id == long));
}

#[test]
fn queues_that_cannot_spill_are_searched_only_at_intervals() {
    let mut scheduler = Scheduler::default();
    let mut effects = Vec::new();
    let ids: Vec<_> = (0..2_u8).map(|way| scheduler.open(way, &Limits { may_spill: way == 1, ..LIMITS })).collect();
    for n in 0..600 {
        scheduler.handle(ids[0], Input::Due(message(n)), NOW, &mut effects);
    }
    let left = |effects: &[DestinationEffect]| effects.iter().any(|(_, effect)| matches!(effect, Effect::Leave(_)));
    assert!(scheduler.queued() == 599 && !left(&effects));
    (600..640).for_each(|n| scheduler.handle(ids[1], Input::Due(message(n)), NOW, &mut effects));
    assert!(left(&effects));
}

#[test]
fn many_idle_destinations_are_removed_and_busy_ones_stay() {
    let (mut scheduler, mut effects) = (Scheduler::default(), Vec::new());
    let ids: Vec<_> = (0..DESTINATIONS_MAX).map(|way| scheduler.open(way, &LIMITS)).collect();
    scheduler.handle(ids[3], Input::Due(message(1)), NOW, &mut effects);
    let forgotten = scheduler.forget_idle(NOW.wall);
    assert_eq!(forgotten.len(), DESTINATIONS_MAX - 1);
    assert_eq!((scheduler.find(&3), scheduler.find(&4)), (Some(ids[3]), None));
    assert!(scheduler.forget_idle(NOW.wall).is_empty() && scheduler.open(4, &LIMITS) > ids[DESTINATIONS_MAX - 1]);
    effects.clear();
    scheduler.handle(forgotten[0], Input::Due(message(9)), NOW, &mut effects);
    assert!(effects.is_empty() && scheduler.queued() == 0, "an input about a forgotten destination");
}

#[test]
fn all_runs_of_two_destinations_with_three_messages_and_one_connection_each_keep_the_invariants_and_end() {
    let (mut present, mut seen) = (vec![(Model::default(), 0_u16)], HashSet::new());
    for _ in 0..12 {
        let mut next = Vec::new();
        for (model, due) in &present {
            for step in 0..8 {
                let (mut model, mut due) = (model.clone(), *due);
                match step {
                    0 | 1 if due < 3 => {
                        due += 1;
                        model.due(step, due);
                    }
                    2 => model.end(0, Signal::Took),
                    3 => model.end(1, Signal::Took),
                    4 => model.end(0, Signal::PushedBack),
                    5 => model.end(1, Signal::PushedBack),
                    6 if model.now().wall.since(NOW.wall) < Duration::from_secs(400) => model.wake(),
                    _ => continue,
                }
                if seen.insert(format!("{model:?}")) {
                    model.clone().ends_well();
                    next.push((model, due));
                }
            }
        }
        present = next;
    }
    assert!(seen.len() > 100, "{}", seen.len());
}

proptest! {
    #[test]
    fn every_message_is_in_one_place_and_nothing_starts_after_the_stop(
        steps in prop::collection::vec((0u8..10, any::<u8>()), 0..150),
        stops in any::<bool>(),
    ) {
        let mut model = Model::default();
        for (n, (kind, pick)) in (0_u16..).zip(&steps) {
            match *kind {
                0..=4 => model.due(pick % 3, n),
                5 | 6 => model.end(usize::from(*pick) % 3, Signal::Took),
                7 => model.end(usize::from(*pick) % 3, Signal::PushedBack),
                8 => model.wake(),
                _ => {
                    let id = model.open(pick % 3);
                    model.step(id, Input::TryNow);
                }
            }
            if stops && usize::from(n) == steps.len() / 2 {
                model.stop();
            }
        }
        if !stops {
            model.ends_well();
        }
    }
}
