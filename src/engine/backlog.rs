//! Limit on work in memory and its rows, so that a backlog of millions stays in the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Maximum number of transfers in flight with uncommitted outcomes. The same limit applies to deliveries, waiting or in
/// flight.
const MAX: usize = 16_384;

/// Counter of work in memory.
#[derive(Clone, Default)]
pub(super) struct Backlog(Arc<Shared>);

#[derive(Default)]
struct Shared {
    held: AtomicUsize,
    freed: Notify,
}

/// One unit of work in memory. It is dropped when the work is settled.
pub(super) struct BacklogItem(Arc<Shared>);

impl Backlog {
    /// Returns the number of further units that may be taken.
    pub(super) fn free(&self) -> usize {
        MAX.saturating_sub(self.0.held.load(Ordering::Acquire))
    }

    /// Returns whether half of the limit is reached.
    pub(super) fn is_half_full(&self) -> bool {
        self.free() < MAX / 2
    }

    /// Counts one unit of work.
    pub(super) fn hold(&self) -> BacklogItem {
        self.0.held.fetch_add(1, Ordering::AcqRel);
        BacklogItem(Arc::clone(&self.0))
    }

    /// Counts one unit of work once the limit allows it.
    pub(super) async fn take(&self) -> BacklogItem {
        loop {
            // Subscribe before the check. Otherwise a release in between would be missed.
            let freed = self.freed();
            if self.free() > 0 {
                return self.hold();
            }
            freed.await;
        }
    }

    /// Resolves when the count falls below the limit again.
    pub(super) fn freed(&self) -> Notified<'_> {
        self.0.freed.notified()
    }
}

impl Drop for BacklogItem {
    fn drop(&mut self) {
        if self.0.held.fetch_sub(1, Ordering::AcqRel) == MAX {
            self.0.freed.notify_waiters();
        }
    }
}
