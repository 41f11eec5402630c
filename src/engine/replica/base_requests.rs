//! Reasons to wake the base maker: requests of a base, a gap in the log, and a log that reaches the bucket again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

/// Reason for which the base maker wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    /// A base is requested.
    Request,
    /// The regular check, or the log has a gap: a base may be due.
    Check,
    /// The log reaches the bucket again.
    Recovery,
}

#[derive(Default)]
struct Requests {
    is_wanted: bool,
    /// Callers that wait for a base that has not begun.
    waiting: Vec<oneshot::Sender<()>>,
    /// Callers that wait for the base that has begun, or that is tried again after a failure.
    begun: Vec<oneshot::Sender<()>>,
}

/// Requests of a base, and the other reasons to wake the base maker.
#[derive(Default)]
pub(super) struct BaseRequests {
    requests: Mutex<Requests>,
    wanted: Notify,
    /// Notified when the log has a gap, which only a new base closes.
    pub(super) gap_begun: Notify,
    /// Notified when the log reaches the bucket again.
    pub(super) recovered: Notify,
}

impl BaseRequests {
    /// Requests a base now. The receiver is notified when a base is finished that began after the request: an earlier
    /// one may lack the caller's latest commit.
    pub(super) fn ask(&self) -> oneshot::Receiver<()> {
        let (finished, base) = oneshot::channel();
        let mut requests = self.requests();
        // While the bucket is unavailable, callers give up and others come.
        requests.waiting.retain(|request| !request.is_closed());
        requests.waiting.push(finished);
        drop(requests);
        self.want();
        base
    }

    /// Requests a base now, without a waiting caller.
    pub(super) fn want(&self) {
        self.requests().is_wanted = true;
        self.wanted.notify_one();
    }

    /// Waits, at most for `tick`, for a reason to wake.
    pub(super) async fn wake(&self, tick: Duration) -> Wake {
        tokio::select! {
            biased;
            () = self.wanted.notified() => {}
            () = self.gap_begun.notified() => {}
            () = self.recovered.notified() => return Wake::Recovery,
            () = sleep(tick) => {}
        }
        if self.requests().is_wanted { Wake::Request } else { Wake::Check }
    }

    /// Records that a base begins, which fulfils the requests so far.
    pub(super) fn begin(&self) {
        let requests = &mut *self.requests();
        requests.is_wanted = false;
        requests.begun.append(&mut requests.waiting);
        requests.begun.retain(|request| !request.is_closed());
    }

    /// Notifies those whose base is finished.
    pub(super) fn finish(&self) {
        for request in self.requests().begun.drain(..) {
            // A caller who no longer waits needs no notice.
            let _ = request.send(());
        }
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_base_fulfils_only_requests_made_before_it_began() {
        let requests = BaseRequests::default();
        let mut before = requests.ask();
        assert_eq!(requests.wake(TICK).await, Wake::Request);
        requests.begin();
        let mut during = requests.ask();
        requests.finish();
        assert!(before.try_recv().is_ok() && during.try_recv().is_err());
        assert_eq!(requests.wake(TICK).await, Wake::Request, "the later request gets a base of its own");
        requests.begin();
        requests.finish();
        assert!(during.try_recv().is_ok());
        assert_eq!(requests.wake(TICK).await, Wake::Check, "nothing is requested any more");
    }
}
