//! Connection limit of one or several listeners, in all and per address. It also chooses the connection that is closed
//! in favour of a new one. Each [`Place`] counts as one connection.
//!
//! A connection keeps its place while it works. If all places are in use, a connection that only waits for its client
//! loses its place to a new one. So a few hosts with silent connections can't exclude others.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::domain::network::Network;
use crate::net::address_limit::{AddressCounts, CountedAddress};

/// Minimum interval between log lines about the limit.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Value of [`Activity::evictable_at`] while the connection works.
const WORKS: u64 = u64::MAX;

/// The connection counts. Listeners with clones of one cap share them.
#[derive(Clone)]
pub struct ConnectionCap(Arc<Shared>);

struct Shared {
    max: usize,
    addresses: Arc<AddressCounts>,
    created: Instant,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, Arc<Activity>>,
    warned: Option<Instant>,
}

/// The state of an open connection that the cap reads.
struct Activity {
    client: Network,
    /// Time from which the connection may be closed for another, in microseconds since the cap was created.
    evictable_at: AtomicU64,
    evicted: Notify,
}

/// The place of one connection, released when it is dropped.
pub(in crate::net) struct Place {
    shared: Arc<Shared>,
    number: u64,
    activity: Arc<Activity>,
    _address: CountedAddress,
}

impl ConnectionCap {
    /// Allows `max` connections, `max_per_address` of one IPv4 address or one IPv6 /64, and four times as many of one
    /// IPv6 /48.
    pub fn new(max: usize, max_per_address: usize) -> Self {
        let addresses = Arc::new(AddressCounts::new(max_per_address, Vec::new()));
        Self(Arc::new(Shared { max, addresses, created: Instant::now(), open: Mutex::default() }))
    }

    /// Returns a place for a connection from `peer`, if its networks may have one more. If all places are in use, a
    /// connection that waits for its client loses its place. This is the connection that has been silent longest beyond
    /// its time. If there is none, it is one of the client with the most connections, provided that the new client
    /// would have fewer.
    pub(in crate::net) fn enter(&self, peer: SocketAddr) -> Option<Place> {
        let address = self.0.addresses.enter(Some(peer))?;
        let (now, client) = (Instant::now(), Network::of_site(peer.ip()));
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.connections.len() >= self.0.max {
            open.evict(self.0.micros(now), client)?;
            open.warn(self.0.max, now);
        }
        let (evictable_at, evicted) = (AtomicU64::new(WORKS), Notify::new());
        let activity = Arc::new(Activity { client, evictable_at, evicted });
        let number = open.next;
        open.next += 1;
        open.connections.insert(number, Arc::clone(&activity));
        Some(Place { shared: Arc::clone(&self.0), number, activity, _address: address })
    }

    /// Returns the number of places that a new connection could have: of no connection, or of one that may be closed.
    pub(in crate::net) fn free(&self) -> usize {
        let now = self.0.micros(Instant::now());
        let open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = open.connections.values().filter(|activity| activity.evictable_at.load(Relaxed) > now).count();
        self.0.max.saturating_sub(kept)
    }

    /// Returns the number of places.
    pub(in crate::net) fn max(&self) -> usize {
        self.0.max
    }
}

impl Shared {
    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.created).as_micros()).unwrap_or(WORKS - 1)
    }
}

impl Open {
    /// Takes the place of a connection for `newcomer`; `None` if no connection may lose it.
    fn evict(&mut self, now: u64, newcomer: Network) -> Option<()> {
        let number = self.silent(now).or_else(|| self.of_largest_client(newcomer))?;
        self.connections.remove(&number)?.evicted.notify_one();
        Some(())
    }

    /// Returns the waiting connections, each with the time from which it may be closed.
    fn waiting(&self) -> impl Iterator<Item = (u64, u64, Network)> {
        let all = self.connections.iter();
        let times = all.map(|(number, activity)| (activity.evictable_at.load(Relaxed), *number, activity.client));
        times.filter(|(at, ..)| *at != WORKS)
    }

    /// Returns the connection that may be closed longest.
    fn silent(&self, now: u64) -> Option<u64> {
        self.waiting().filter(|(at, ..)| *at <= now).min().map(|(_, number, _)| number)
    }

    /// Returns a connection of the client with the most connections, unless `newcomer` would have as many. So clients
    /// that reconnect all the time do not keep others out. An IPv6 client may have a whole /48.
    fn of_largest_client(&self, newcomer: Network) -> Option<u64> {
        let mut counts = HashMap::<Network, usize>::new();
        self.connections.values().for_each(|activity| *counts.entry(activity.client).or_default() += 1);
        let least = counts.get(&newcomer).map_or(1, |count| count + 1);
        let (_, client) =
            counts.into_iter().filter(|(_, count)| *count > least).map(|(client, count)| (count, client)).max()?;
        self.waiting().filter(|(_, _, of)| *of == client).min().map(|(_, number, _)| number)
    }

    fn warn(&mut self, limit: usize, now: Instant) {
        if self.warned.is_none_or(|at| now.saturating_duration_since(at) >= WARN_EVERY) {
            self.warned = Some(now);
            tracing::warn!(
                limit,
                "SMTP connection limit reached; closing connections whose clients are silent or have the most"
            );
        }
    }
}

impl Place {
    /// Notes that the connection waits for its client, and may be closed for another from `at`.
    pub(super) fn waits(&self, at: Instant) {
        self.activity.evictable_at.store(self.shared.micros(at), Relaxed);
    }

    /// Notes that the connection works, and keeps its place.
    pub(super) fn works(&self) {
        self.activity.evictable_at.store(WORKS, Relaxed);
    }

    /// Waits for `work`, unless another connection takes the place.
    pub(super) async fn unless_evicted<T>(&self, work: impl Future<Output = T>) -> io::Result<T> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.evicted() => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "closed for a new connection")),
        }
    }

    /// Resolves when another connection has taken the place.
    pub(super) async fn evicted(&self) {
        self.activity.evicted.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.open.lock().unwrap_or_else(PoisonError::into_inner).connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 1)
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_counted_in_total_and_by_network_and_released() {
        let cap = ConnectionCap::new(3, 2);
        let first = cap.enter(peer("2001:db8::1")).unwrap();
        let _second = cap.enter(peer("2001:db8::2")).unwrap();
        assert!(cap.enter(peer("2001:db8::3")).is_none());
        let _third = cap.enter(peer("::ffff:192.0.2.1")).unwrap();
        assert!(cap.enter(peer("192.0.2.2")).is_none());
        assert_eq!(cap.free(), 0);
        drop(first);
        assert!(cap.enter(peer("192.0.2.1")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_ipv6_site_has_four_times_the_limit_of_a_client() {
        let cap = ConnectionCap::new(100, 1);
        let of = |client: usize| cap.enter(peer(&format!("2001:db8:1:{client}::1")));
        let held: Vec<_> = (0..4).map(|client| of(client).unwrap()).collect();
        assert!(of(5).is_none() && cap.enter(peer("2001:db8:2::1")).is_some());
        drop(held);
        assert!(of(5).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_many_connections_loses_one_to_a_client_with_fewer() {
        let cap = ConnectionCap::new(4, 3);
        let of = |host: u8| cap.enter(peer(&format!("192.0.2.{host}")));
        let held = [1, 1, 1, 2].map(|host| of(host).unwrap());
        let later = Instant::now() + Duration::from_secs(60);
        assert!(of(3).is_none(), "all of them work");
        held.iter().for_each(|place| place.waits(later));
        let third = of(3).unwrap();
        held[0].evicted().await;
        assert!(of(2).is_none() && of(3).is_none(), "no client has more than they would have");
        drop((held, third));
        assert_eq!(cap.free(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn the_networks_of_an_ipv6_site_count_as_one_client() {
        let cap = ConnectionCap::new(4, 4);
        let site: Vec<_> = (0..4).map(|part| cap.enter(peer(&format!("2001:db8:1:{part}::1"))).unwrap()).collect();
        site.iter().for_each(|place| place.waits(Instant::now() + Duration::from_secs(20)));
        assert!(cap.enter(peer("2001:db8:1:9::1")).is_none());
        let _other = cap.enter(peer("2001:db8:2::1")).unwrap();
        site[0].evicted().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_is_silent_longest_loses_its_place() {
        let cap = ConnectionCap::new(3, 3);
        let [old, new, busy] = [1, 2, 3].map(|host| cap.enter(peer(&format!("192.0.2.{host}"))).unwrap());
        let now = Instant::now();
        let second = Duration::from_secs(1);
        old.waits(now + second);
        new.waits(now + second * 2);
        assert_eq!(cap.free(), 0);
        assert!(cap.enter(peer("192.0.2.9")).is_none(), "none has been silent for its time");
        tokio::time::advance(second * 2).await;
        assert_eq!(cap.free(), 2, "both may be closed");
        let fourth = cap.enter(peer("192.0.2.9")).unwrap();
        old.evicted().await;
        new.works();
        assert!(cap.enter(peer("192.0.2.9")).is_none(), "the others work");
        drop(old);
        assert_eq!(cap.free(), 0, "its place belongs to another");
        drop((new, busy, fourth));
        assert_eq!(cap.free(), 3);
    }
}
