//! Connections that nobody uses at the moment, by the host and port that they were opened to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::connection::Connection;

/// Idle connections go before common servers close them (2 s is the shortest default seen), since a request written
/// into a closing connection fails, and is not sent again.
const IDLE_MAX: Duration = Duration::from_millis(1500);
/// Contract 5: an account has at most 10 endpoints, and each at most 8 attempts at once. All of them may stand at one
/// host, and a connection that is thrown away costs four times what the delivery does.
const IDLE_PER_HOST: usize = 80;

/// The idle connections.
#[derive(Default)]
pub(super) struct Pool(Mutex<State>);

#[derive(Default)]
struct State {
    /// By host and port as they stand in the URL; the one that was used last stands last.
    idle: HashMap<Box<str>, Vec<Idle>>,
    /// Whether somebody comes by to close what has been idle for long.
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

    /// An open connection to `host`, if there is one.
    pub(super) fn take(&self, host: &str) -> Option<Connection> {
        loop {
            let mut idle = self.state().idle.get_mut(host)?.pop()?;
            if !idle.is_over() && idle.connection.is_free() {
                return Some(idle.connection);
            }
        }
    }

    /// Keeps a connection for the next request to `host`, if it can bear another.
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

    /// Closes what has been idle for long; tells whether anything is left.
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
