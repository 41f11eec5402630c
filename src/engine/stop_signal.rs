//! The signal to begin no new work, because the service stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// The signal. Clones share it, and it is set once.
#[derive(Clone, Default)]
pub(super) struct StopSignal(Arc<Shared>);

#[derive(Default)]
struct Shared {
    is_set: AtomicBool,
    /// Wakes its waiters in the order in which they began to wait.
    set: Notify,
}

impl StopSignal {
    /// Sets the signal.
    pub(super) fn set(&self) {
        self.0.is_set.store(true, Ordering::Release);
        self.0.set.notify_waiters();
    }

    /// Returns whether the signal is set.
    pub(super) fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Acquire)
    }

    /// Resolves once the signal is set.
    pub(super) async fn wait(&self) {
        // Subscribe before the check, so that no signal in between is missed.
        let set = self.0.set.notified();
        if !self.is_set() {
            set.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn early_and_late_waiters_see_the_signal() {
        let signal = StopSignal::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut early = pin!(signal.wait());
        assert!(early.as_mut().poll(&mut context).is_pending() && !signal.is_set());
        signal.clone().set();
        assert!(early.as_mut().poll(&mut context).is_ready() && signal.is_set());
        assert!(pin!(signal.wait()).poll(&mut context).is_ready());
    }
}
