//! How many requests are on the wire at once, and whose: memory and sockets are bounded, and endpoints that do not
//! answer can't take all of it from those that do.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::store::row::endpoint::EndpointRow;

/// Requests of all endpoints at once.
const REQUESTS_MAX: usize = 512;
/// Those among them to endpoints whose last attempt failed. The rest is for the others alone.
const FAILING_MAX: usize = REQUESTS_MAX / 4 * 3;

/// What the last attempts say of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// The last one that counted succeeded, or there was none yet.
    Sound,
    /// It failed.
    Failing,
}

impl Standing {
    pub(super) const fn of(endpoint: &EndpointRow) -> Self {
        match endpoint.state.consecutive_failures() {
            0 => Self::Sound,
            1.. => Self::Failing,
        }
    }
}

/// The permits, given out in the order in which they were asked for.
pub(super) struct Permits {
    all: Semaphore,
    failing: Semaphore,
}

/// Leave to make one request, while it is held.
pub(super) struct Permit<'p> {
    _own: SemaphorePermit<'p>,
    _failing: Option<SemaphorePermit<'p>>,
}

impl Permits {
    pub(super) const fn new() -> Self {
        Self { all: Semaphore::const_new(REQUESTS_MAX), failing: Semaphore::const_new(FAILING_MAX) }
    }

    /// Gives out no more permits, not even to those that wait for one.
    pub(super) fn close(&self) {
        self.all.close();
        self.failing.close();
    }

    /// Waits for a permit; none once [`Permits::close`] was called.
    pub(super) async fn take(&self, standing: Standing) -> Option<Permit<'_>> {
        // Its own kind first: whoever waits for that must not stand in the others' way.
        let failing = match standing {
            Standing::Sound => None,
            Standing::Failing => Some(self.failing.acquire().await.ok()?),
        };
        Some(Permit { _own: self.all.acquire().await.ok()?, _failing: failing })
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn now(permits: &Permits, standing: Standing) -> Option<Permit<'_>> {
        match pin!(permits.take(standing)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => permit,
            Poll::Pending => None,
        }
    }

    #[test]
    fn endpoints_that_do_not_answer_leave_a_quarter_to_those_that_do() {
        let permits = Permits::new();
        let hung: Vec<_> = std::iter::from_fn(|| now(&permits, Standing::Failing)).collect();
        assert_eq!(hung.len(), FAILING_MAX);
        let sound: Vec<_> = std::iter::from_fn(|| now(&permits, Standing::Sound)).collect();
        assert_eq!(sound.len(), REQUESTS_MAX - FAILING_MAX);
        drop(hung);
        assert!(now(&permits, Standing::Failing).is_some());
    }

    #[test]
    fn closed_permits_are_given_to_nobody_not_even_to_those_that_wait() {
        let permits = Permits::new();
        let taken: Vec<_> = std::iter::from_fn(|| now(&permits, Standing::Sound)).collect();
        let mut waits = pin!(permits.take(Standing::Sound));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        permits.close();
        drop(taken);
        assert!(matches!(waits.as_mut().poll(&mut context), Poll::Ready(None)));
        assert!(now(&permits, Standing::Failing).is_none());
    }

    #[test]
    fn endpoints_that_answer_may_have_all_of_it() {
        let permits = Permits::new();
        let sound: Vec<_> = std::iter::from_fn(|| now(&permits, Standing::Sound)).collect();
        assert_eq!(sound.len(), REQUESTS_MAX);
    }
}
