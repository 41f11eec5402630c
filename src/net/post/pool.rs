//! Idle connections, by host and port.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::connection::Connection;

/// Maximum idle time of a connection, below the timeouts of common servers (2 s is the shortest default seen). A
/// request written to a closing connection fails and is not sent again.
const IDLE_MAX: Duration = Duration::from_millis(1500);
/// Maximum number of idle connections to one host. Contract 5: an account has at most 10 endpoints, and each at most 8
/// attempts in flight; all of them may be on one host. A new connection costs four times as much as the delivery.
const IDLE_PER_HOST: usize = 80;

/// The idle connections.
#[derive(Default)]
pub(super) struct Pool(Mutex<State>);

#[derive(Default)]
struct State {
    /// Connections by host and port as written in the URL. The most recently used connection comes last.
    idle: HashMap<Box<str>, Vec<Idle>>,
    /// Whether a task closes connections that are idle for too long.
    is_tended: bool,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

impl Idle {
    fn is_over(&self) -> bool {
        self.since.elapsed() >= IDLE_MAX
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an open connection to `host`, if there is one.
    pub(super) fn take(&self, host: &str) -> Option<Connection> {
        loop {
            let mut idle = self.state().idle.get_mut(host)?.pop()?;
            if !idle.is_over() && idle.connection.is_free() {
                return Some(idle.connection);
            }
        }
    }

    /// Stores a connection for the next request to `host`, if it is reusable.
    pub(super) fn put(self: &Arc<Self>, host: &str, mut connection: Connection) {
        if !connection.is_free() {
            return;
        }
        let mut state = self.state();
        if !state.idle.contains_key(host) {
            state.idle.insert(host.into(), Vec::new());
        }
        if let Some(idle) = state.idle.get_mut(host).filter(|idle| idle.len() < IDLE_PER_HOST) {
            idle.push(Idle { connection, since: Instant::now() });
        }
        if !std::mem::replace(&mut state.is_tended, true) {
            tokio::spawn(tend(Arc::downgrade(self)));
        }
    }

    /// Closes connections that are idle for too long. Returns whether any are left.
    fn close_old(&self) -> bool {
        let mut state = self.state();
        state.idle.retain(|_, idle| {
            idle.retain(|idle| !idle.is_over());
            !idle.is_empty()
        });
        state.is_tended = !state.idle.is_empty();
        state.is_tended
    }
}

async fn tend(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(IDLE_MAX).await;
        if !pool.upgrade().is_some_and(|pool| pool.close_old()) {
            return;
        }
    }
}
