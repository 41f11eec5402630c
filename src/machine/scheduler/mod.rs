//! Scheduler: all destinations in one machine. A message enters the destination of its relay and site. When memory is
//! short, the longest queue spills messages.
//!
//! The driver reports an event of one destination, and carries out the effects, each for its destination. An input for
//! a removed destination changes nothing.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use super::destination::{Destination, Effect, Input, Limits, Moment};
use crate::base::time::Timestamp;

/// Maximum number of idle destinations that are kept. A removed one only loses the learned rate of its site.
const DESTINATIONS_MAX: usize = 10_000;
/// Maximum number of messages in all queues, as timers in memory: some 15 MB. Tests use a smaller limit.
const QUEUED_MAX: usize = if cfg!(test) { 512 } else { 131_072 };
/// If no queue could spill enough, the queues are searched again after this many further messages.
const SEARCH_INTERVAL: usize = QUEUED_MAX / 64;

/// Identifies a destination. Numbers start at one and are never reused.
pub type DestinationId = u64;

/// An effect, and its destination.
pub type DestinationEffect = (DestinationId, Effect);

/// All destinations. `W` is the route of one: its relay and its site.
#[derive(Debug, Clone)]
pub struct Scheduler<W> {
    destinations: BTreeMap<DestinationId, Destination>,
    ids: HashMap<W, DestinationId>,
    last: DestinationId,
    /// Number of messages in all queues.
    queued: usize,
    /// Number of messages at which the longest queue spills.
    spill_at: usize,
    /// Number of destinations at which idle destinations are removed.
    forget_at: usize,
    is_stopped: bool,
    scratch: Vec<Effect>,
}

impl<W> Default for Scheduler<W> {
    fn default() -> Self {
        Self {
            destinations: BTreeMap::new(),
            ids: HashMap::new(),
            last: 0,
            queued: 0,
            spill_at: QUEUED_MAX,
            forget_at: DESTINATIONS_MAX,
            is_stopped: false,
            scratch: Vec::new(),
        }
    }
}

impl<W: Eq + Hash> Scheduler<W> {
    /// Returns the destination of the route `way`.
    pub fn find(&self, way: &W) -> Option<DestinationId> {
        self.ids.get(way).copied()
    }

    /// Adds the destination of the route `way`, which has none yet.
    pub fn open(&mut self, way: W, limits: &Limits) -> DestinationId {
        self.last += 1;
        let mut destination = Destination::new(limits);
        if self.is_stopped {
            destination.stop();
        }
        self.destinations.insert(self.last, destination);
        self.ids.insert(way, self.last);
        self.last
    }

    /// Removes idle destinations if there are many, and returns them.
    pub fn forget_idle(&mut self, now: Timestamp) -> Vec<DestinationId> {
        if self.destinations.len() < self.forget_at {
            return Vec::new();
        }
        let idle = |(id, destination): (&DestinationId, &Destination)| destination.is_idle(now).then_some(*id);
        let forgotten: Vec<_> = self.destinations.iter().filter_map(idle).collect();
        forgotten.iter().for_each(|id| drop(self.destinations.remove(id)));
        self.ids.retain(|_, id| self.destinations.contains_key(id));
        // Busy destinations stay, so more may remain.
        self.forget_at = DESTINATIONS_MAX.max(self.destinations.len() * 2);
        forgotten
    }

    /// Returns a destination.
    pub fn get(&self, id: DestinationId) -> Option<&Destination> {
        self.destinations.get(&id)
    }

    /// Returns a destination, to count a connection or to store an answer.
    pub fn get_mut(&mut self, id: DestinationId) -> Option<&mut Destination> {
        self.destinations.get_mut(&id)
    }

    /// Iterates over the destinations, in the order of their identifiers.
    pub fn iter(&self) -> impl Iterator<Item = (DestinationId, &Destination)> {
        self.destinations.iter().map(|(id, destination)| (*id, destination))
    }

    /// Returns the number of messages in all queues.
    pub const fn queued(&self) -> usize {
        self.queued
    }

    /// Processes an input of one destination, and adds the resulting instructions to `effects`.
    pub fn handle(&mut self, id: DestinationId, input: Input, moment: Moment, effects: &mut Vec<DestinationEffect>) {
        self.pass_on(id, input, moment, effects);
        if self.queued <= QUEUED_MAX {
            self.spill_at = QUEUED_MAX;
        } else if self.queued > self.spill_at {
            self.spill(moment, effects);
        }
    }

    /// Starts no further message, in future destinations too.
    pub fn stop(&mut self, moment: Moment, effects: &mut Vec<DestinationEffect>) {
        self.is_stopped = true;
        self.handle_all(Input::Stop, moment, effects);
    }

    /// Processes an input of all destinations.
    pub fn handle_all(&mut self, input: Input, moment: Moment, effects: &mut Vec<DestinationEffect>) {
        let ids: Vec<_> = self.destinations.keys().copied().collect();
        ids.into_iter().for_each(|id| self.pass_on(id, input, moment, effects));
    }

    fn pass_on(&mut self, id: DestinationId, input: Input, moment: Moment, effects: &mut Vec<DestinationEffect>) {
        let Some(destination) = self.destinations.get_mut(&id) else { return };
        let before = destination.len();
        destination.handle(input, moment, &mut self.scratch);
        self.queued = self.queued - before + destination.len();
        effects.extend(self.scratch.drain(..).map(|effect| (id, effect)));
    }

    /// Spills half of the messages of the longest queue.
    fn spill(&mut self, moment: Moment, effects: &mut Vec<DestinationEffect>) {
        let before = self.queued;
        let queues = self.destinations.iter().filter(|(_, destination)| destination.may_spill());
        let longest = queues.max_by_key(|(_, destination)| destination.weight()).map(|(id, _)| *id);
        longest.into_iter().for_each(|id| self.pass_on(id, Input::Spill, moment, effects));
        if self.queued == before {
            self.spill_at = self.queued + SEARCH_INTERVAL;
        }
    }
}
