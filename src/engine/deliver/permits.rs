//! Permits for requests in flight. They limit memory and sockets. Endpoints that fail or answer slowly can't use all of
//! them, and accounts take turns.

use crate::base::id::AccountId;
use crate::domain::stream::Stream;
use crate::engine::fair_semaphore::{FairPermit, FairSemaphore};
use crate::engine::stop_signal::StopSignal;
use crate::machine::budget::Claim;
use crate::store::row::endpoint::EndpointRow;

/// Maximum number of requests in flight to all endpoints.
const REQUESTS_MAX: u32 = 512;
/// Maximum number of requests in flight to endpoints whose last attempt failed or that answered slowly. The rest is
/// reserved for the others.
const FAILING_MAX: u32 = REQUESTS_MAX / 4 * 3;
/// Maximum number of requests in flight to endpoints that answered slowly.
const SLOW_MAX: u32 = REQUESTS_MAX / 4;

/// Status of an endpoint by its last attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EndpointHealth {
    /// The last attempt that counted succeeded, or there has been none.
    Sound,
    /// The last attempt failed.
    Failing,
    /// An answer of the last minutes was slow.
    Slow,
}

impl EndpointHealth {
    pub(super) const fn of(endpoint: &EndpointRow) -> Self {
        match endpoint.state.consecutive_failures() {
            0 => Self::Sound,
            1.. => Self::Failing,
        }
    }
}

/// The permits.
pub(super) struct Permits {
    all: FairSemaphore,
    failing: FairSemaphore,
    slow: FairSemaphore,
    stop: StopSignal,
}

/// Permission to make one request, until it is dropped.
pub(super) struct Permit {
    _own: FairPermit,
    _class: [Option<FairPermit>; 2],
}

impl Permits {
    pub(super) fn new(stop: StopSignal) -> Self {
        Self {
            all: FairSemaphore::new(REQUESTS_MAX),
            failing: FairSemaphore::new(FAILING_MAX),
            slow: FairSemaphore::new(SLOW_MAX),
            stop,
        }
    }

    /// Waits for a permit. Returns `None` once the service stops.
    pub(super) async fn take(&self, account: AccountId, health: EndpointHealth) -> Option<Permit> {
        tokio::select! {
            biased;
            () = self.stop.wait() => None,
            permit = self.turn(account, health) => permit,
        }
    }

    async fn turn(&self, account: AccountId, health: EndpointHealth) -> Option<Permit> {
        let claim = Claim::single(account, Stream::Transactional);
        // The class's own permit comes first: a request that waits for it must not block other classes.
        let class = match health {
            EndpointHealth::Sound => [None, None],
            EndpointHealth::Failing => [None, Some(self.failing.take(claim).await?)],
            EndpointHealth::Slow => [Some(self.slow.take(claim).await?), Some(self.failing.take(claim).await?)],
        };
        Some(Permit { _own: self.all.take(claim).await?, _class: class })
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::base::id::Ulid;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn account(number: u32) -> AccountId {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        AccountId(Ulid(id))
    }

    /// Takes a permit that is available at once, for a new account.
    fn now(permits: &Permits, health: EndpointHealth) -> Option<Permit> {
        static LAST: AtomicU32 = AtomicU32::new(10);
        match pin!(permits.take(account(LAST.fetch_add(1, Ordering::Relaxed)), health))
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(permit) => permit,
            Poll::Pending => None,
        }
    }

    /// Returns the number of `permits` that many accounts, each with one request, may hold together.
    const fn of_many(permits: u32) -> usize {
        (permits + permits / 4) as usize
    }

    #[test]
    fn silent_endpoints_leave_a_quarter_of_the_permits_to_others() {
        let permits = Permits::new(StopSignal::default());
        let hung: Vec<_> = std::iter::from_fn(|| now(&permits, EndpointHealth::Failing)).collect();
        assert_eq!(hung.len(), of_many(FAILING_MAX));
        let sound: Vec<_> = std::iter::from_fn(|| now(&permits, EndpointHealth::Sound)).collect();
        assert_eq!(sound.len(), of_many(REQUESTS_MAX) - of_many(FAILING_MAX));
        drop(hung);
        assert!(now(&permits, EndpointHealth::Failing).is_some());
    }

    #[test]
    fn no_permits_are_granted_after_a_stop_even_to_waiting_requests() {
        let stop = StopSignal::default();
        let permits = Permits::new(stop.clone());
        let taken: Vec<_> = std::iter::from_fn(|| now(&permits, EndpointHealth::Sound)).collect();
        let mut waits = pin!(permits.take(account(1), EndpointHealth::Sound));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        stop.set();
        drop(taken);
        assert!(matches!(waits.as_mut().poll(&mut context), Poll::Ready(None)));
        assert!(now(&permits, EndpointHealth::Failing).is_none());
    }

    #[test]
    fn answering_endpoints_may_use_all_permits() {
        let permits = Permits::new(StopSignal::default());
        let sound: Vec<_> = std::iter::from_fn(|| now(&permits, EndpointHealth::Sound)).collect();
        assert_eq!(sound.len(), of_many(REQUESTS_MAX));
    }

    #[test]
    fn slow_endpoints_share_a_quarter_of_the_permits() {
        let permits = Permits::new(StopSignal::default());
        let slow: Vec<_> = std::iter::from_fn(|| now(&permits, EndpointHealth::Slow)).collect();
        assert_eq!(slow.len(), of_many(SLOW_MAX));
        assert!(now(&permits, EndpointHealth::Sound).is_some() && now(&permits, EndpointHealth::Failing).is_some());
    }

    #[test]
    fn one_account_may_hold_all_permits_and_another_is_served_at_once() {
        let permits = Permits::new(StopSignal::default());
        let one = || match pin!(permits.take(account(1), EndpointHealth::Sound))
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(permit) => permit,
            Poll::Pending => None,
        };
        let taken: Vec<_> = std::iter::from_fn(one).collect();
        assert_eq!(taken.len(), REQUESTS_MAX as usize);
        assert!(now(&permits, EndpointHealth::Sound).is_some());
    }
}
