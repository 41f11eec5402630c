//! Permits in classes, by the trust in a site. Any number of silent servers leave permits for servers that are known to
//! answer.

use std::time::Duration;

use super::Shared;
use super::destination_queue::DestinationQueue;
use crate::engine::fair_semaphore::{FairPermit, FairSemaphore};
use crate::machine::budget::Claim;
use crate::machine::destination::Trust;

/// Time after which an attempt that waits for a server makes room for others.
const CROWDED: Duration = Duration::from_secs(2);

/// The permits.
pub(super) struct PermitClasses {
    /// All of them; of attempts, those at proven sites.
    pub(super) all: FairSemaphore,
    /// Those for sites that have not accepted a message since their last failure.
    unproven: FairSemaphore,
    /// Those for sites that were silent. They are few.
    silent: FairSemaphore,
}

/// The permits for the class of a site; none if the site is proven.
pub(super) type ClassPermits = [Option<FairPermit>; 2];

impl PermitClasses {
    /// Creates `units` permits.
    pub(super) fn new(units: u32) -> Self {
        Self {
            all: FairSemaphore::new(units),
            unproven: FairSemaphore::of_unproven(units),
            silent: FairSemaphore::of_silent(units),
        }
    }

    /// Waits for the permits of the site's class. The first attempt at a site needs none of the few for silent sites.
    pub(super) async fn class(&self, claim: Claim, trust: Trust, is_first: bool) -> ClassPermits {
        let silent = match trust {
            Trust::Proven => return [None, None],
            Trust::Silent if claim.site.is_some() && !is_first => self.silent.take(claim).await,
            Trust::New | Trust::Answers | Trust::Silent => None,
        };
        [silent, self.unproven.take(claim).await]
    }

    /// Returns whether a message waits for any of them.
    pub(super) fn has_waiters(&self) -> bool {
        [&self.all, &self.unproven, &self.silent].into_iter().any(FairSemaphore::has_waiters)
    }
}

/// The permits of an attempt.
pub(super) type AttemptPermits = (ClassPermits, Option<FairPermit>);

impl Shared {
    /// Waits for the permits of an attempt of `claim`. Before, a started message takes little memory. Attempts at
    /// proven sites have permits of their own, so they never wait for the account's attempts at other sites.
    pub(super) async fn attempt_permits(&self, queue: &DestinationQueue, claim: Claim) -> AttemptPermits {
        match queue.trust(self) {
            Trust::Proven => ([None, None], self.attempts.all.take(claim).await),
            trust => (self.attempts.class(claim, trust, trust == Trust::New).await, None),
        }
    }

    /// Resolves when an attempt has waited for a while, and others wait for permits such as it has.
    pub(super) async fn is_crowded(&self) {
        loop {
            tokio::time::sleep(CROWDED).await;
            if self.has_permit_waiters() {
                return;
            }
        }
    }
}
