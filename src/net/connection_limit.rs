//! Connection limit of the listeners, and the choice of the connection that is closed in favour of a new one.
//!
//! The listeners take a place for each accepted connection. An idle connection keeps its place only while no other
//! needs it, so that holding many idle connections excludes no client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::connection_activity::{ARRIVAL, Activity, EvictionReason};

/// Time to wait for a connection that was asked to end. If it received a request meanwhile it stays, and the next one
/// is asked.
const RETRY: Duration = Duration::from_millis(50);
/// Minimum interval between log lines about the limit.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The places of a group of listeners.
#[derive(Debug)]
pub(super) struct ConnectionPlaces {
    most: usize,
    free: Arc<Semaphore>,
    open: Mutex<HashMap<u64, Arc<OpenConnection>>>,
    next: AtomicU64,
    warned: Mutex<Option<Instant>>,
}

/// One open connection, seen from its listener.
#[derive(Debug)]
struct OpenConnection {
    opened: Instant,
    /// Set once the protocol is known.
    activity: OnceLock<Arc<Activity>>,
    is_chosen: AtomicBool,
    chosen: Notify,
}

/// The place of one connection. Dropping it releases the place.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    places: Arc<ConnectionPlaces>,
    number: u64,
    holder: Arc<OpenConnection>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionPlaces {
    /// Creates a limit of `most` connections.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            free: Arc::new(Semaphore::new(most)),
            open: Mutex::default(),
            next: AtomicU64::new(0),
            warned: Mutex::default(),
        })
    }

    /// Takes a place, and waits for one if all are in use. Meanwhile the connection that has been dispensable longest
    /// is closed, if there is one.
    pub(super) async fn take(self: &Arc<Self>) -> Option<ConnectionPlace> {
        let permit = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => loop {
                self.make_space(Instant::now());
                match timeout(RETRY, Arc::clone(&self.free).acquire_owned()).await {
                    Ok(permit) => break permit.ok()?,
                    Err(_) => continue,
                }
            },
        };
        let holder = Arc::new(OpenConnection {
            opened: Instant::now(),
            activity: OnceLock::new(),
            is_chosen: AtomicBool::new(false),
            chosen: Notify::new(),
        });
        let number = self.next.fetch_add(1, Relaxed);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::clone(&holder));
        Some(ConnectionPlace { places: Arc::clone(self), number, holder, _permit: permit })
    }

    /// Returns whether places are scarce (three quarters are in use), so that idle connections must end soon.
    fn is_pressed(&self) -> bool {
        let taken = self.most.saturating_sub(self.free.available_permits());
        taken.saturating_mul(4) >= self.most.saturating_mul(3)
    }

    /// Asks a connection to end: the one that has been dispensable longest and was not asked yet.
    fn make_space(&self, now: Instant) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = open.values().filter(|holder| !holder.is_chosen.load(Relaxed));
        let ranked = waiting.filter_map(|holder| holder.dispensable(now).map(|rank| (rank, holder)));
        if let Some((_, holder)) = ranked.min_by_key(|(rank, _)| *rank) {
            holder.is_chosen.store(true, Relaxed);
            holder.chosen.notify_one();
        }
        drop(open);
        self.warn(now);
    }

    fn warn(&self, now: Instant) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|at| now.saturating_duration_since(at) >= WARN_EVERY) {
            *warned = Some(now);
            tracing::warn!(
                limit = self.most,
                "connection limit reached; closing the connections that are idle longest"
            );
        }
    }
}

impl OpenConnection {
    /// Returns the reason for which the connection may be closed, and the time since which it applies; `None` while a
    /// request is in flight.
    fn dispensable(&self, now: Instant) -> Option<(EvictionReason, Instant)> {
        match self.activity.get() {
            Some(activity) => activity.dispensable(now),
            None if now < self.opened + ARRIVAL => Some((EvictionReason::New, self.opened)),
            None => Some((EvictionReason::Idle, self.opened)),
        }
    }
}

impl ConnectionPlace {
    /// Registers the activity of the connection.
    pub(super) fn set_activity(&self, activity: &Arc<Activity>) {
        let _set = self.holder.activity.set(Arc::clone(activity));
    }

    /// Returns whether idle connections must end soon.
    pub(super) fn is_pressed(&self) -> bool {
        self.places.is_pressed()
    }

    /// Resolves when the connection must end in favour of another one. A request that arrived after the choice prevents
    /// that.
    pub(super) async fn lost(&self) {
        loop {
            self.holder.chosen.notified().await;
            if self.holder.dispensable(Instant::now()).is_some() {
                return;
            }
            self.holder.is_chosen.store(false, Relaxed);
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.places.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection_activity::Protocol;
    use super::*;

    fn busy(place: &ConnectionPlace) -> super::super::connection_activity::BusyGuard {
        let activity = Arc::new(Activity::new(Instant::now(), Protocol::Http1));
        place.set_activity(&activity);
        activity.begin()
    }

    #[tokio::test]
    async fn the_connection_that_is_idle_longest_is_closed_first() {
        let places = ConnectionPlaces::new(2);
        let first = places.take().await.unwrap();
        let second = places.take().await.unwrap();
        let leaving = tokio::spawn(async move {
            tokio::select! {
                () = first.lost() => drop(first),
                () = second.lost() => panic!("it is not the oldest"),
            }
            second
        });
        let _third = places.take().await.unwrap();
        leaving.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_is_closed_last() {
        let places = ConnectionPlaces::new(2);
        let slow = places.take().await.unwrap();
        let request = busy(&slow);
        let _answer = request.offer();
        tokio::time::advance(Duration::from_secs(6)).await;
        let new = places.take().await.unwrap();
        let (third, ()) = tokio::join!(places.take(), async {
            tokio::select! {
                () = slow.lost() => drop(slow),
                () = new.lost() => panic!("its first request may be in transit"),
            }
        });
        assert!(third.is_some());
    }

    #[tokio::test]
    async fn a_connection_with_a_request_keeps_its_place() {
        let places = ConnectionPlaces::new(1);
        let first = places.take().await.unwrap();
        let request = busy(&first);
        let mut taking = std::pin::pin!(places.take());
        assert!(timeout(3 * RETRY, &mut taking).await.is_err());
        drop(request);
        let (place, ()) = tokio::join!(taking, async move {
            first.lost().await;
            drop(first);
        });
        assert!(place.is_some());
    }

    #[tokio::test]
    async fn three_quarters_in_use_shorten_the_idle_time() {
        let places = ConnectionPlaces::new(4);
        let two = [places.take().await.unwrap(), places.take().await.unwrap()];
        assert!(!two[0].is_pressed());
        let third = places.take().await.unwrap();
        assert!(third.is_pressed());
        drop(two);
        assert!(!third.is_pressed());
        assert_eq!(places.open.lock().unwrap().len(), 1);
    }
}
