//! Room that both streams share, of which marketing can never take all: connections, and what bodies hold in memory.
//!
//! Who waits for room waits in the queue of its stream, and no marketing message is served while a transactional one
//! waits. A large one at the head of its queue lets nobody of its stream past, or its turn would never come.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::domain::stream::Stream;

/// Of so many parts one is kept: for transactional mail, and for sites that are known to answer.
const RESERVED_PART: u32 = 4;

/// Room in units.
pub(super) struct Room(Arc<Shared>);

struct Shared {
    units: u32,
    /// What marketing may take of it.
    marketing_units: u32,
    state: Mutex<State>,
    /// Woken when somebody has to wait.
    wanted: Notify,
}

struct State {
    free: u32,
    marketing_free: u32,
    transactional: VecDeque<Waiter>,
    marketing: VecDeque<Waiter>,
}

struct Waiter {
    units: u32,
    tell: oneshot::Sender<Taken>,
}

/// Room taken, until it is dropped.
pub(super) struct Taken {
    room: Arc<Shared>,
    units: u32,
    /// The stream that it counts for.
    stream: Stream,
}

impl Room {
    pub(super) fn new(units: u32) -> Self {
        let units = units.max(1);
        let marketing_units = (units - units / RESERVED_PART).min(units.saturating_sub(1)).max(1);
        let state = State {
            free: units,
            marketing_free: marketing_units,
            transactional: VecDeque::new(),
            marketing: VecDeque::new(),
        };
        Self(Arc::new(Shared { units, marketing_units, state: Mutex::new(state), wanted: Notify::new() }))
    }

    /// Of `units` of room, what is left when the part that is kept is taken from it; never nothing.
    pub(super) fn part_of(units: u32) -> Self {
        Self::new(units - units / RESERVED_PART)
    }

    /// Waits for `units` of room for a message of `stream`; more than there is counts as all. Nothing where the room is
    /// closed, which it never is.
    pub(super) async fn take(&self, stream: Stream, units: u32) -> Option<Taken> {
        let room = &self.0;
        // Whoever stops waiting may have kept others from their turn. Dropped after what it waits by.
        let _passes_on = PassesOn(room);
        let (tell, mut told) = oneshot::channel();
        room.state().of(stream).push_back(Waiter { units: units.min(room.most(stream)), tell });
        room.serve();
        if let Ok(taken) = told.try_recv() {
            return Some(taken);
        }
        room.wanted.notify_one();
        told.await.ok()
    }

    /// Whether somebody waits for room.
    fn is_wanted(&self) -> bool {
        let state = self.0.state();
        let mut waiting = state.transactional.iter().chain(&state.marketing);
        waiting.any(|waiter| !waiter.tell.is_closed())
    }

    /// Resolves as long as somebody waits for room: whoever holds some for convenience gives it back.
    pub(super) async fn wanted(&self) {
        loop {
            // Listens before it looks, so that nobody who comes in between goes unheard.
            let told = self.0.wanted.notified();
            if self.is_wanted() {
                return;
            }
            told.await;
        }
    }

    /// Has what was taken for one message serve one of `stream`; false where that would be more than marketing may
    /// have.
    pub(super) fn lend(&self, taken: &mut Taken, stream: Stream) -> bool {
        if taken.stream == stream {
            return true;
        }
        let mut state = self.0.state();
        match stream {
            Stream::Transactional => state.marketing_free += taken.units,
            Stream::Marketing if state.marketing_free < taken.units => return false,
            Stream::Marketing => state.marketing_free -= taken.units,
        }
        drop(state);
        taken.stream = stream;
        self.0.serve();
        true
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    const fn most(&self, stream: Stream) -> u32 {
        match stream {
            Stream::Transactional => self.units,
            Stream::Marketing => self.marketing_units,
        }
    }

    /// Gives room to those whose turn it is.
    fn serve(self: &Arc<Self>) {
        let mut state = self.state();
        let mut served = Vec::new();
        while let Some((stream, waiter)) = state.next() {
            let taken = Taken { room: Arc::clone(self), units: waiter.units, stream };
            served.push((waiter.tell, taken));
        }
        // Told without the lock: what somebody who has gone was given comes back through it.
        drop(state);
        for (tell, taken) in served {
            drop(tell.send(taken));
        }
    }
}

impl State {
    const fn of(&mut self, stream: Stream) -> &mut VecDeque<Waiter> {
        match stream {
            Stream::Transactional => &mut self.transactional,
            Stream::Marketing => &mut self.marketing,
        }
    }

    /// The next who waits, its room counted, where there is room for it.
    fn next(&mut self) -> Option<(Stream, Waiter)> {
        // Whoever has gone from the head holds up nobody.
        while self.transactional.pop_front_if(|waiter| waiter.tell.is_closed()).is_some() {}
        while self.marketing.pop_front_if(|waiter| waiter.tell.is_closed()).is_some() {}
        let stream = if self.transactional.is_empty() { Stream::Marketing } else { Stream::Transactional };
        let room = match stream {
            Stream::Transactional => self.free,
            Stream::Marketing => self.free.min(self.marketing_free),
        };
        let waiter = self.of(stream).pop_front_if(|waiter| waiter.units <= room)?;
        self.count(stream, waiter.units);
        Some((stream, waiter))
    }

    const fn count(&mut self, stream: Stream, units: u32) {
        self.free -= units;
        if matches!(stream, Stream::Marketing) {
            self.marketing_free -= units;
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut state = self.room.state();
        state.free += self.units;
        if self.stream == Stream::Marketing {
            state.marketing_free += self.units;
        }
        drop(state);
        self.room.serve();
    }
}

/// Serves whoever comes next when it is dropped.
struct PassesOn<'a>(&'a Arc<Shared>);

impl Drop for PassesOn<'_> {
    fn drop(&mut self) {
        self.0.serve();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// What is there to be had at once.
    fn now(room: &Room, stream: Stream, units: u32) -> Option<Taken> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(room.take(stream, units)).poll(&mut context) {
            Poll::Ready(taken) => taken,
            Poll::Pending => None,
        }
    }

    #[test]
    fn marketing_leaves_a_quarter_to_transactional_mail() {
        let room = Room::new(8);
        let marketing: Vec<_> = std::iter::from_fn(|| now(&room, Stream::Marketing, 1)).collect();
        assert_eq!(marketing.len(), 6);
        let transactional: Vec<_> = std::iter::from_fn(|| now(&room, Stream::Transactional, 1)).collect();
        assert_eq!(transactional.len(), 2);
        drop(marketing);
        let again: Vec<_> = std::iter::from_fn(|| now(&room, Stream::Transactional, 1)).collect();
        assert_eq!(again.len(), 6);
    }

    #[test]
    fn the_smallest_rooms_still_serve_both() {
        for units in [0, 1, 2, 3] {
            let room = Room::new(units);
            assert!(now(&room, Stream::Marketing, 1).is_some(), "{units}");
            assert!(now(&room, Stream::Transactional, 1).is_some(), "{units}");
        }
        let room = Room::new(2);
        let _marketing = now(&room, Stream::Marketing, 1).unwrap();
        assert!(now(&room, Stream::Marketing, 1).is_none() && now(&room, Stream::Transactional, 1).is_some());
    }

    #[test]
    fn more_than_there_is_counts_as_all_there_may_be() {
        let room = Room::new(8);
        let large = now(&room, Stream::Marketing, 100).unwrap();
        assert!(now(&room, Stream::Transactional, 2).is_some() && now(&room, Stream::Transactional, 3).is_none());
        drop(large);
        assert!(now(&room, Stream::Transactional, 100).is_some());
    }

    #[test]
    fn a_connection_serves_the_other_stream_where_its_share_allows() {
        let room = Room::new(2);
        let mut first = now(&room, Stream::Transactional, 1).unwrap();
        let mut second = now(&room, Stream::Transactional, 1).unwrap();
        assert!(room.lend(&mut first, Stream::Marketing) && !room.lend(&mut second, Stream::Marketing));
        assert!(room.lend(&mut first, Stream::Transactional) && room.lend(&mut second, Stream::Marketing));
    }

    #[test]
    fn no_marketing_message_stands_before_a_transactional_one() {
        let room = Room::new(8);
        let mut context = Context::from_waker(Waker::noop());
        let mut taken: Vec<_> = std::iter::from_fn(|| now(&room, Stream::Transactional, 1)).collect();
        assert_eq!(taken.len(), 8);
        let mut large = pin!(room.take(Stream::Marketing, 6));
        let mut small = pin!(room.take(Stream::Marketing, 1));
        let mut transactional = pin!(room.take(Stream::Transactional, 1));
        assert!(large.as_mut().poll(&mut context).is_pending() && small.as_mut().poll(&mut context).is_pending());
        assert!(transactional.as_mut().poll(&mut context).is_pending());
        taken.pop();
        let Poll::Ready(Some(first)) = transactional.as_mut().poll(&mut context) else { panic!("it waits") };
        taken.truncate(2);
        assert!(large.as_mut().poll(&mut context).is_pending() && small.as_mut().poll(&mut context).is_pending());
        let second = now(&room, Stream::Transactional, 2).unwrap();
        drop((first, taken));
        assert!(large.as_mut().poll(&mut context).is_ready(), "and it has its turn");
        drop(second);
    }

    #[test]
    fn whoever_stops_waiting_holds_up_nobody() {
        let room = Room::new(8);
        let mut context = Context::from_waker(Waker::noop());
        let taken = now(&room, Stream::Transactional, 4).unwrap();
        let mut large = Box::pin(room.take(Stream::Transactional, 8));
        let mut small = pin!(room.take(Stream::Transactional, 1));
        assert!(large.as_mut().poll(&mut context).is_pending() && small.as_mut().poll(&mut context).is_pending());
        drop(large);
        assert!(small.as_mut().poll(&mut context).is_ready());
        drop(taken);
        assert!(now(&room, Stream::Transactional, 7).is_some());
    }

    #[tokio::test]
    async fn whoever_holds_room_for_convenience_hears_that_it_is_wanted() {
        let room = Room::new(1);
        let taken = now(&room, Stream::Transactional, 1).unwrap();
        let giver = async {
            room.wanted().await;
            drop(taken);
        };
        let (second, ()) = tokio::join!(room.take(Stream::Transactional, 1), giver);
        assert!(second.is_some());
    }

    #[test]
    fn room_is_wanted_as_long_as_somebody_waits_however_many_were_told() {
        let room = Room::new(1);
        let taken = now(&room, Stream::Transactional, 1).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut first = Box::pin(room.take(Stream::Transactional, 1));
        let mut second = Box::pin(room.take(Stream::Marketing, 1));
        assert!(!room.is_wanted());
        assert!(first.as_mut().poll(&mut context).is_pending() && second.as_mut().poll(&mut context).is_pending());
        assert!(room.is_wanted());
        drop(taken);
        let Poll::Ready(given) = first.as_mut().poll(&mut context) else { panic!("it was the first") };
        assert!(room.is_wanted(), "the second waits still");
        drop(second);
        assert!(!room.is_wanted());
        drop(given);
    }
}
