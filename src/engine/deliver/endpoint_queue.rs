//! Queue of one endpoint: its due deliveries in memory, and its attempts in flight.
//!
//! The queue is short. Further due deliveries are parked in the store, with one timer for all of them. The queue keeps
//! that timer until it has space again. A slow endpoint with a backlog of millions therefore uses little memory and
//! delays no other endpoint.

use std::collections::VecDeque;

use super::Job;
use crate::machine::endpoint::IN_FLIGHT_MAX;
use crate::store::op::settle_delivery::UnparkTimer;
use crate::store::timer::Timer;

/// Maximum number of attempts in flight to an endpoint that is not known to answer fast.
const START: usize = 2;
/// Maximum number of deliveries waiting in one queue.
const ROOMY: usize = 512;
/// Limit of the queue while all queues together use much memory.
const TIGHT: usize = 32;

/// The due deliveries of one endpoint.
#[derive(Default)]
pub(super) struct EndpointQueue {
    pub(super) waiting: VecDeque<Job>,
    pub(super) in_flight: usize,
    pub(super) is_closed: bool,
    window: Window,
    parked: ParkedState,
}

/// Maximum number of attempts in flight. A new endpoint starts with few, until it is known to answer fast. A failing
/// one gets one at a time, so that its failures use few shared resources. Each success doubles the number.
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
    /// The receiver answered 2xx.
    Acknowledged,
    /// The receiver answered 2xx after a long time.
    Slowly,
    /// The attempt had any other result.
    Failed,
    /// No request was made.
    Unmade,
}

/// State of the deliveries that did not fit in memory.
#[derive(Default)]
enum ParkedState {
    /// No delivery is parked.
    #[default]
    None,
    /// A timer is armed for the deliveries, and is not due yet.
    Armed,
    /// The deliveries' timer is due, and is served once the queue has space.
    Held(Timer),
}

/// Memory used by all queues.
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
    /// Returns whether another attempt may be in flight.
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

    /// Returns whether a delivery that becomes due now must be parked.
    pub(super) fn is_full(&self, memory: Memory) -> bool {
        self.waiting.len() >= memory.lane_max()
    }

    fn has_room(&self, memory: Memory) -> bool {
        self.waiting.len() <= memory.lane_max() / 2
    }

    /// Records that a delivery is parked. Returns whether its operation must arm the timer.
    pub(super) fn overflow(&mut self) -> UnparkTimer {
        match self.parked {
            ParkedState::None => {
                self.parked = ParkedState::Armed;
                UnparkTimer::Arm
            }
            ParkedState::Armed | ParkedState::Held(_) => UnparkTimer::Armed,
        }
    }

    /// Takes the timer of parked deliveries that became due. Returns it if the queue has space to serve it.
    pub(super) fn unpark(&mut self, timer: Timer, memory: Memory) -> Option<Timer> {
        if !self.has_room(memory) && !matches!(self.parked, ParkedState::Held(_)) {
            self.parked = ParkedState::Held(timer);
            return None;
        }
        // Deliveries parked from here on may miss this timer's page, so they arm their own.
        if let ParkedState::Armed = self.parked {
            self.parked = ParkedState::None;
        }
        Some(timer)
    }

    /// Returns the kept timer, once the queue has space.
    pub(super) fn take_held(&mut self, memory: Memory) -> Option<Timer> {
        if self.is_closed || !self.has_room(memory) {
            return None;
        }
        match std::mem::take(&mut self.parked) {
            ParkedState::Held(timer) => Some(timer),
            other => {
                self.parked = other;
                None
            }
        }
    }

    /// Returns whether the queue has no state to keep.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.waiting.is_empty() && !matches!(self.parked, ParkedState::Held(_))
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
    use crate::store::row::delivery::{DeliveryPayload, DeliveryRow};
    use crate::store::timer::TimerKind;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn timer(kind: TimerKind) -> Timer {
        Timer::new(NOW, kind, AccountId::default(), Ulid::default())
    }

    fn queue_of(count: usize) -> EndpointQueue {
        let job = || Job {
            timer: timer(TimerKind::Delivery),
            row: DeliveryRow {
                endpoint: EndpointId::default(),
                event: EventId::default(),
                owed: DeliveryPayload::Event { message: MessageId::default(), kind: EventType::Queued },
                state: delivery::State::new(NOW),
            },
            _held: Backlog::default().hold(),
        };
        EndpointQueue { waiting: std::iter::repeat_with(job).take(count).collect(), ..EndpointQueue::default() }
    }

    #[test]
    fn the_window_starts_small_doubles_with_each_success_and_falls_to_one_at_a_failure() {
        let mut queue = queue_of(0);
        let width = |queue: &mut EndpointQueue, ended| {
            queue.in_flight = 1;
            queue.ended(ended);
            while queue.has_window() {
                queue.in_flight += 1;
            }
            queue.in_flight
        };
        let steps = [
            FinishedAttempt::Unmade,
            FinishedAttempt::Acknowledged,
            FinishedAttempt::Failed,
            FinishedAttempt::Failed,
            FinishedAttempt::Unmade,
        ];
        assert_eq!(steps.map(|ended| width(&mut queue, ended)), [2, 4, 1, 1, 1]);
        assert_eq!([FinishedAttempt::Acknowledged; 5].map(|ended| width(&mut queue, ended)), [2, 4, 8, 8, 8]);
        let slowly = [
            FinishedAttempt::Slowly,
            FinishedAttempt::Slowly,
            FinishedAttempt::Acknowledged,
            FinishedAttempt::Failed,
            FinishedAttempt::Slowly,
        ];
        assert_eq!(slowly.map(|ended| width(&mut queue, ended)), [2, 2, 4, 1, 1]);
    }

    #[test]
    fn a_queue_holds_fewer_while_all_queues_use_much_memory() {
        assert!(!queue_of(ROOMY - 1).is_full(Memory::Roomy));
        assert!(queue_of(ROOMY).is_full(Memory::Roomy));
        assert!(!queue_of(TIGHT - 1).is_full(Memory::Tight));
        assert!(queue_of(TIGHT).is_full(Memory::Tight));
    }

    #[test]
    fn parked_deliveries_have_one_timer_that_waits_for_space() {
        let mut queue = queue_of(ROOMY);
        assert_eq!([queue.overflow(), queue.overflow()], [UnparkTimer::Arm, UnparkTimer::Armed]);
        let fired = timer(TimerKind::Unpark);
        assert_eq!(queue.unpark(fired, Memory::Roomy), None);
        assert_eq!(queue.overflow(), UnparkTimer::Armed);
        assert_eq!(queue.take_held(Memory::Roomy), None);
        queue.waiting.truncate(ROOMY / 2);
        assert!(!queue.is_idle());
        assert_eq!(queue.take_held(Memory::Roomy), Some(fired));
        assert_eq!(queue.take_held(Memory::Roomy), None);
        assert_eq!(queue.overflow(), UnparkTimer::Arm);
    }

    #[test]
    fn with_space_a_timer_is_served_at_once_and_later_parked_deliveries_arm_their_own() {
        let mut queue = queue_of(0);
        queue.overflow();
        assert!(queue.unpark(timer(TimerKind::Unpark), Memory::Roomy).is_some());
        assert_eq!(queue.overflow(), UnparkTimer::Arm);
    }

    #[test]
    fn a_second_timer_is_served_without_space_and_the_first_is_kept() {
        let mut queue = queue_of(ROOMY);
        assert_eq!(queue.unpark(timer(TimerKind::Unpark), Memory::Roomy), None);
        assert!(queue.unpark(timer(TimerKind::Unpark), Memory::Roomy).is_some());
        assert_eq!(queue.overflow(), UnparkTimer::Armed);
    }
}
