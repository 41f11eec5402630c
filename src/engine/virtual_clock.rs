//! The virtual clock of `dev --virtual-clock` (contract 8). Wall time changes only when it is advanced, step by step in
//! the order of due timers. An advance ends when all due work is settled.
//!
//! The clock starts at real time, is saved in the data directory, stops while the daemon is down and never steps back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};

use super::ports::{BoxFuture, Clock};
use crate::base::time::Timestamp;
use crate::store::Store;
use crate::store::error::{OpError, StoreError};
use crate::store::op::alert::RecordFindings;
use crate::store::read::{Order, Read};
use crate::store::schema::Table;
use crate::store::timer::Timer;

/// Name of the clock's file in the data directory.
pub const FILE: &str = "virtual-clock";

/// Wall time that changes only on command.
pub struct VirtualClock {
    now: AtomicU64,
    started: Timestamp,
    moved: Notify,
    file: PathBuf,
    /// Serializes advances.
    advancing: Mutex<()>,
}

/// Result of an advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advanced {
    /// The current time.
    pub now: Timestamp,
    /// Number of timers that became due.
    pub fired: u64,
}

/// Reason why an advance stopped.
#[derive(Debug, thiserror::Error)]
pub enum AdvanceError {
    /// The clock's file failed.
    #[error("the virtual clock could not be saved: {0}")]
    File(#[from] io::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the time of the virtual clock in `directory`, if it has one.
pub fn kept(directory: &Path) -> Option<Timestamp> {
    fs::read_to_string(directory.join(FILE)).ok()?.trim().parse().ok()
}

impl VirtualClock {
    /// Opens the clock of `directory` at its saved time, or at `real` if it is new.
    ///
    /// # Errors
    /// Fails if the file can't be read or contains no time.
    pub fn open(directory: &Path, real: Timestamp) -> io::Result<Self> {
        let file = directory.join(FILE);
        let now = match fs::read_to_string(&file) {
            Ok(text) => {
                text.trim().parse().map_err(|fault| io::Error::new(io::ErrorKind::InvalidData, format!("{fault}")))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => real,
            Err(error) => return Err(error),
        };
        let clock = Self {
            now: AtomicU64::new(now.as_millis()),
            started: now,
            moved: Notify::new(),
            file,
            advancing: Mutex::new(()),
        };
        clock.keep(now)?;
        Ok(clock)
    }

    /// Advances time by `by`. Stops at each moment at which a timer of `store` is due, until all its effects are
    /// settled. Timers that are due already are settled first, even if `by` is zero. The same applies to operations
    /// without a waiting caller, such as the alert of a refused message.
    ///
    /// # Errors
    /// The store or the clock's file fails. Time then stays where it stopped.
    pub async fn advance(&self, by: Duration, store: &Arc<Store>) -> Result<Advanced, AdvanceError> {
        let _turn = self.advancing.lock().await;
        let fired = store.timers().fired();
        let goal = self.now() + by;
        Self::applied(store).await?;
        self.settled(store).await?;
        while let Some(due) = next_due(store, self.now(), goal)? {
            self.set(due)?;
            self.settled(store).await?;
        }
        self.set(goal)?;
        self.settled(store).await?;
        Self::applied(store).await?;
        self.settled(store).await?;
        Ok(Advanced { now: self.now(), fired: store.timers().fired() - fired })
    }

    /// Advances time at once, even while work is running.
    #[cfg(test)]
    pub(super) fn jump(&self, by: Duration) {
        self.set(self.now() + by).unwrap();
    }

    fn set(&self, now: Timestamp) -> io::Result<()> {
        // The time is saved before it can be used in a timestamp, so that it never steps back.
        self.keep(now)?;
        self.now.store(now.as_millis(), Ordering::Release);
        self.moved.notify_waiters();
        Ok(())
    }

    fn keep(&self, now: Timestamp) -> io::Result<()> {
        let half_made = self.file.with_extension("new");
        fs::write(&half_made, now.to_string())?;
        fs::rename(&half_made, &self.file)
    }

    /// Waits until all earlier operations are applied, by an operation without changes.
    async fn applied(store: &Store) -> Result<(), StoreError> {
        match store.commit(RecordFindings { findings: Vec::new() }).await {
            Ok(_) => Ok(()),
            Err(OpError::Failed(error)) => Err(error),
            Err(OpError::Refused(never)) => match never {},
        }
    }

    async fn settled(&self, store: &Store) -> Result<(), StoreError> {
        loop {
            let changed = store.timers().changed();
            if let Some(failure) = store.health().failure() {
                return Err(failure.clone());
            }
            if store.timers().is_settled(self.now()) {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = changed => {}
                failure = store.health().failed() => return Err(failure),
            }
        }
    }
}

/// Returns the first moment after `now`, up to `goal`, at which a timer or an alarm is due.
fn next_due(store: &Store, now: Timestamp, goal: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let (from, to) = (Timer::first_after(now), Timer::first_after(goal));
    let keys = store.snapshot()?.sound_keys(Table::Timers, &from, &to, Order::Ascending, 1)?;
    let timer = keys.first().and_then(|key| Timer::decode(key)).map(|timer| timer.due);
    let alarm = store.timers().next_alarm(now).filter(|at| *at <= goal);
    Ok(timer.into_iter().chain(alarm).min())
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::Acquire))
    }

    fn monotonic(&self) -> Duration {
        self.now().since(self.started)
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            loop {
                let moved = self.moved.notified();
                if self.now() >= at {
                    return;
                }
                moved.await;
            }
        })
    }
}
