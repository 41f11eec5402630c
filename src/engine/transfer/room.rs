//! Room that both streams share, of which marketing can never take all: connections, and what bodies hold in memory.

use std::sync::Arc;

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::domain::stream::Stream;

/// Of so many parts one is kept for transactional mail.
const RESERVED_PART: usize = 4;

/// Room in units.
pub(super) struct Room {
    all: Arc<Semaphore>,
    /// What marketing may take of it.
    marketing: Arc<Semaphore>,
    units: u32,
    marketing_units: u32,
    /// Woken when somebody has to wait.
    wanted: Notify,
}

/// Room taken, until it is dropped.
pub(super) struct Taken {
    _all: OwnedSemaphorePermit,
    marketing: Option<OwnedSemaphorePermit>,
}

impl Room {
    pub(super) fn new(units: u32) -> Self {
        let units = units.max(1);
        let marketing_units = (units - units / RESERVED_PART as u32).min(units.saturating_sub(1)).max(1);
        let semaphore = |units: u32| Arc::new(Semaphore::new(units as usize));
        Self {
            all: semaphore(units),
            marketing: semaphore(marketing_units),
            units,
            marketing_units,
            wanted: Notify::new(),
        }
    }

    /// Waits for `units` of room for a message of `stream`; more than there is counts as all. Nothing where the room is
    /// closed, which it never is.
    pub(super) async fn take(&self, stream: Stream, units: u32) -> Option<Taken> {
        let marketing = match stream {
            Stream::Transactional => None,
            Stream::Marketing => Some(self.get(&self.marketing, units.min(self.marketing_units)).await?),
        };
        let units = if marketing.is_some() { units.min(self.marketing_units) } else { units.min(self.units) };
        Some(Taken { _all: self.get(&self.all, units).await?, marketing })
    }

    async fn get(&self, from: &Arc<Semaphore>, units: u32) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(from).try_acquire_many_owned(units) {
            return Some(permit);
        }
        self.wanted.notify_one();
        Arc::clone(from).acquire_many_owned(units).await.ok()
    }

    /// Resolves when somebody waits for room: whoever holds some for convenience gives it back.
    pub(super) fn wanted(&self) -> Notified<'_> {
        self.wanted.notified()
    }

    /// Has what was taken for one message serve one of `stream`; false where that would be more than marketing may
    /// have.
    pub(super) fn lend(&self, taken: &mut Taken, stream: Stream) -> bool {
        match stream {
            Stream::Transactional => taken.marketing = None,
            Stream::Marketing if taken.marketing.is_none() => {
                taken.marketing = Arc::clone(&self.marketing).try_acquire_owned().ok();
                return taken.marketing.is_some();
            }
            Stream::Marketing => {}
        }
        true
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
}
