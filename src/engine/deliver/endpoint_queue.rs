//! The queue of one endpoint: its due deliveries in memory, and its attempts in flight.
//!
//! The queue is short. Further due deliveries are parked in the store, with one timer for all of them; the queue keeps
//! that timer until it has room again. A slow endpoint with a backlog of millions therefore costs other endpoints
//! nothing, and no memory.

use std::collections::VecDeque;

use super::Job;
use crate::machine::endpoint::IN_FLIGHT_MAX;
use crate::store::op::settle_delivery::Unparking;
use crate::store::timer::Timer;

/// Maximum attempts in flight to an endpoint that is not known to answer fast.
const START: usize = 2;
/// Maximum deliveries waiting in one queue.
const ROOMY: usize = 512;
/// The same limit, while all queues together use much memory.
const TIGHT: usize = 32;

/// The due deliveries of one endpoint.
#[derive(Default)]
pub(super) struct EndpointQueue {
    pub(super) waiting: VecDeque<Job>,
    pub(super) in_flight: usize,
    pub(super) is_closed: bool,
    window: Window,
    parked: Parked,
}

/// Maximum number of attempts in flight. A new endpoint begins with few, until it is known to answer fast. A failing
/// one gets one at a time, so that its failures cost the shared resources little. Each success doubles the number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Window(usize);

impl Default for Window {
    fn default() -> Self {
        Self(START)
    }
}

/// Result of an attempt that has returned its permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FinishedAttempt {
    /// With a 2xx.
    Acknowledged,
    /// With a 2xx that took long.
    Slowly,
    /// With any other result.
    Failed,
    /// No request was made.
    Unmade,
}

/// State of the deliveries that did not fit in memory.
#[derive(Default)]
enum Parked {
    /// No delivery is parked.
    #[default]
    None,
    /// A timer is armed for them, and is not due yet.
    Armed,
    /// Their timer is due, and is served once there is room.
    Held(Timer),
}

/// Memory that all queues use together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Memory {
    /// Little.
    Roomy,
    /// More than half of the maximum.
    Tight,
}

impl Memory {
    const fn lane_max(self) -> usize {
        match self {
            Self::Roomy => ROOMY,
            Self::Tight => TIGHT,
        }
    }
}

impl EndpointQueue {
    /// Whether another attempt may be in flight.
    pub(super) const fn has_window(&self) -> bool {
        self.in_flight < self.window.0
    }

    /// Records the end of an attempt in flight.
    pub(super) fn ended(&mut self, ended: FinishedAttempt) {
        self.in_flight -= 1;
        match ended {
            FinishedAttempt::Acknowledged => self.window.0 = (self.window.0 * 2).min(IN_FLIGHT_MAX),
            FinishedAttempt::Slowly => self.window.0 = self.window.0.min(START),
            FinishedAttempt::Failed => self.window.0 = 1,
            FinishedAttempt::Unmade => {}
        }
    }

    /// Whether what comes due now must be parked.
    pub(super) fn is_full(&self, memory: Memory) -> bool {
        self.waiting.len() >= memory.lane_max()
    }

    fn has_room(&self, memory: Memory) -> bool {
        self.waiting.len() <= memory.lane_max() / 2
    }

    /// Records that a delivery is parked. Returns whether its operation must arm the timer.
    pub(super) fn overflow(&mut self) -> Unparking {
        match self.parked {
            Parked::None => {
                self.parked = Parked::Armed;
                Unparking::Arm
            }
            Parked::Armed | Parked::Held(_) => Unparking::Armed,
        }
    }

    /// Takes the timer of parked deliveries that became due. Returns it if there is room to serve it.
    pub(super) fn unpark(&mut self, timer: Timer, memory: Memory) -> Option<Timer> {
        if !self.has_room(memory) && !matches!(self.parked, Parked::Held(_)) {
            self.parked = Parked::Held(timer);
            return None;
        }
        // Deliveries that overflow from here on may miss this timer's page, so they arm their own.
        if let Parked::Armed = self.parked {
            self.parked = Parked::None;
        }
        Some(timer)
    }

    /// Returns the kept timer, once there is room.
    pub(super) fn take_held(&mut self, memory: Memory) -> Option<Timer> {
        if self.is_closed || !self.has_room(memory) {
            return None;
        }
        match std::mem::take(&mut self.parked) {
            Parked::Held(timer) => Some(timer),
            other => {
                self.parked = other;
                None
            }
        }
    }

    /// Whether the queue has no state that is worth keeping.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.waiting.is_empty() && !matches!(self.parked, Parked::Held(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{AccountId, EndpointId, EventId, MessageId, Ulid};
    use crate::base::time::Timestamp;
    use crate::domain::event::EventType;
    use crate::engine::backlog::Backlog;
    use crate::machine::delivery;
    use crate::store::row::delivery::{DeliveryRow, Owed};
    use crate::store::timer::TimerKind;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn timer(kind: TimerKind) -> Timer {
        Timer::new(NOW, kind, AccountId::default(), Ulid::default())
    }

    fn lane_of(count: usize) -> EndpointQueue {
        let job = || Job {
            timer: timer(TimerKind::Delivery),
            row: DeliveryRow {
                endpoint: EndpointId::default(),
                event: EventId::default(),
                owed: Owed::Event { message: MessageId::default(), kind: EventType::Queued },
                state: delivery::State::new(NOW),
            },
            _held: Backlog::default().hold(),
        };
        EndpointQueue { waiting: std::iter::repeat_with(job).take(count).collect(), ..EndpointQueue::default() }
    }

    #[test]
    fn the_window_begins_small_doubles_with_each_success_and_falls_to_one_at_a_failure() {
        let mut lane = lane_of(0);
        let width = |lane: &mut EndpointQueue, ended| {
            lane.in_flight = 1;
            lane.ended(ended);
            while lane.has_window() {
                lane.in_flight += 1;
            }
            lane.in_flight
        };
        let steps = [
            FinishedAttempt::Unmade,
            FinishedAttempt::Acknowledged,
            FinishedAttempt::Failed,
            FinishedAttempt::Failed,
            FinishedAttempt::Unmade,
        ];
        assert_eq!(steps.map(|ended| width(&mut lane, ended)), [2, 4, 1, 1, 1]);
        assert_eq!([FinishedAttempt::Acknowledged; 5].map(|ended| width(&mut lane, ended)), [2, 4, 8, 8, 8]);
        let slowly = [
            FinishedAttempt::Slowly,
            FinishedAttempt::Slowly,
            FinishedAttempt::Acknowledged,
            FinishedAttempt::Failed,
            FinishedAttempt::Slowly,
        ];
        assert_eq!(slowly.map(|ended| width(&mut lane, ended)), [2, 2, 4, 1, 1]);
    }

    #[test]
    fn a_lane_holds_fewer_while_all_of_them_hold_much() {
        assert!(!lane_of(ROOMY - 1).is_full(Memory::Roomy));
        assert!(lane_of(ROOMY).is_full(Memory::Roomy));
        assert!(!lane_of(TIGHT - 1).is_full(Memory::Tight));
        assert!(lane_of(TIGHT).is_full(Memory::Tight));
    }

    #[test]
    fn what_overflows_has_one_timer_which_waits_for_room() {
        let mut lane = lane_of(ROOMY);
        assert_eq!([lane.overflow(), lane.overflow()], [Unparking::Arm, Unparking::Armed]);
        let fired = timer(TimerKind::Unpark);
        assert_eq!(lane.unpark(fired, Memory::Roomy), None);
        assert_eq!(lane.overflow(), Unparking::Armed);
        assert_eq!(lane.take_held(Memory::Roomy), None);
        lane.waiting.truncate(ROOMY / 2);
        assert!(!lane.is_idle());
        assert_eq!(lane.take_held(Memory::Roomy), Some(fired));
        assert_eq!(lane.take_held(Memory::Roomy), None);
        assert_eq!(lane.overflow(), Unparking::Arm);
    }

    #[test]
    fn with_room_a_timer_is_served_at_once_and_what_overflows_after_it_arms_its_own() {
        let mut lane = lane_of(0);
        lane.overflow();
        assert!(lane.unpark(timer(TimerKind::Unpark), Memory::Roomy).is_some());
        assert_eq!(lane.overflow(), Unparking::Arm);
    }

    #[test]
    fn a_second_timer_is_served_though_there_is_no_room_and_the_first_is_kept() {
        let mut lane = lane_of(ROOMY);
        assert_eq!(lane.unpark(timer(TimerKind::Unpark), Memory::Roomy), None);
        assert!(lane.unpark(timer(TimerKind::Unpark), Memory::Roomy).is_some());
        assert_eq!(lane.overflow(), Unparking::Armed);
    }
}
