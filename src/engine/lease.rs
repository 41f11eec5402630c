//! In-memory leases on messages, as the machine decides about them. A worker reserves the message that it is about to
//! send; an operation that withdraws or changes the message revokes the reservation. A crash releases all leases; the
//! rows show the remaining work.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::base::id::MessageId;
use crate::machine::lease_table::{LeaseNumber, LeaseState, LeaseTable};

/// Time for which [`Leases::take_soon`] waits: an attempt's outcome is visible a moment before its lease is released.
const SOON: Duration = Duration::from_millis(200);

/// All leases.
#[derive(Clone, Default)]
pub struct Leases(Arc<Shared>);

#[derive(Default)]
struct Shared {
    table: Mutex<LeaseTable<Reservation>>,
    /// Notified when a lease has ended, or is a reservation again.
    freed: Notify,
}

/// The exclusive right to change one message. The right ends when the lease is dropped or revoked.
pub struct Lease {
    leases: Leases,
    message: MessageId,
    number: LeaseNumber,
}

/// The step of a worker with the message that it has reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Looks up the servers and their policies.
    Lookup,
    /// Waits until the site takes another connection in this minute.
    Pace,
    /// Waits until its account may have another connection to the server.
    Server,
    /// Waits for a connection that it may use.
    Permit,
    /// Opens the connection.
    Connecting,
    /// Sends the message.
    Sending,
    /// Waits for memory for the body, which the server has requested.
    Memory,
}

impl Step {
    const ALL: [Self; 7] =
        [Self::Lookup, Self::Pace, Self::Server, Self::Permit, Self::Connecting, Self::Sending, Self::Memory];
}

/// A worker's handle on its lease: the step that it shows, and the notice that its reservation is revoked.
#[derive(Clone, Default)]
pub struct Reservation(Arc<Reserved>);

#[derive(Default)]
struct Reserved {
    revoked: Notify,
    /// Index in [`Step::ALL`].
    step: AtomicU8,
}

impl Reservation {
    /// Resolves once the reservation is revoked. One call resolves, not each.
    pub async fn revoked(&self) {
        self.0.revoked.notified().await;
    }

    /// Shows that the worker begins `step`.
    pub fn begins(&self, step: Step) {
        self.0.step.store(step as u8, Ordering::Relaxed);
    }

    fn step(&self) -> Step {
        Step::ALL[usize::from(self.0.step.load(Ordering::Relaxed))]
    }
}

impl Leases {
    fn table(&self) -> MutexGuard<'_, LeaseTable<Reservation>> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves `message` for a worker, unless there is a lease on it. The reservation may be revoked.
    pub fn reserve(&self, message: MessageId) -> Option<(Lease, Reservation)> {
        let reservation = Reservation::default();
        let number = self.table().reserve(message, reservation.clone())?;
        Some((Lease { leases: self.clone(), message, number }, reservation))
    }

    /// Takes the exclusive lease of `message`, unless it is taken. A reservation is revoked.
    pub fn take(&self, message: MessageId) -> Option<Lease> {
        let taken = self.table().take(message)?;
        taken.revoked.into_iter().for_each(|reservation| reservation.0.revoked.notify_one());
        Some(Lease { leases: self.clone(), message, number: taken.number })
    }

    /// Takes the exclusive lease of `message`, unless it is taken or reserved.
    pub fn take_unreserved(&self, message: MessageId) -> Option<Lease> {
        let mut table = self.table();
        let is_free = table.state(message).is_none();
        let taken = is_free.then(|| table.take(message)).flatten()?;
        drop(table);
        Some(Lease { leases: self.clone(), message, number: taken.number })
    }

    /// Returns whether the exclusive lease of `message` is taken.
    pub fn is_taken(&self, message: MessageId) -> bool {
        self.table().state(message) == Some(LeaseState::Exclusive)
    }

    /// Returns the step of the worker with the lease of `message`, if a worker has it.
    pub fn step(&self, message: MessageId) -> Option<Step> {
        self.table().handle(message).map(Reservation::step)
    }

    /// Returns the messages with a lease of any kind.
    pub fn leased(&self) -> Vec<MessageId> {
        self.table().messages().collect()
    }

    /// Takes the exclusive lease of `message`. Waits briefly for a holder that is about to release it.
    pub async fn take_soon(&self, message: MessageId) -> Option<Lease> {
        self.take_within(message, SOON).await
    }

    /// Takes the exclusive lease of `message`. Waits at most `max_wait` of the machine's own time.
    pub async fn take_within(&self, message: MessageId, max_wait: Duration) -> Option<Lease> {
        tokio::time::timeout(max_wait, self.once_freed(|| self.take(message))).await.ok()
    }

    /// Resolves once there is no lease on `message`, so that it can be reserved.
    pub async fn is_free(&self, message: MessageId) {
        self.once_freed(|| self.table().state(message).is_none().then_some(())).await;
    }

    /// Resolves with the first result of `get`, which is called again whenever a lease has ended.
    async fn once_freed<T>(&self, get: impl Fn() -> Option<T>) -> T {
        loop {
            // Subscribe before the check. Otherwise a release in between would be missed.
            let freed = self.0.freed.notified();
            if let Some(got) = get() {
                return got;
            }
            freed.await;
        }
    }
}

impl Lease {
    /// Makes a reservation exclusive, right before MAIL. Returns false if it was revoked.
    pub fn begin(&self) -> bool {
        self.leases.table().begin(self.message, self.number)
    }

    /// Makes a worker's lease a reservation again, which may be revoked.
    pub fn step_back(&self) {
        self.leases.table().step_back(self.message, self.number);
        self.leases.0.freed.notify_waiters();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.table().release(self.message, self.number);
        self.leases.0.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Poll;

    const MESSAGE: MessageId = MessageId(crate::base::id::Ulid([0; 16]));

    #[test]
    fn a_message_has_at_most_one_lease() {
        let leases = Leases::default();
        let lease = leases.take(MESSAGE).unwrap();
        assert!(leases.take(MESSAGE).is_none() && leases.reserve(MESSAGE).is_none());
        drop(lease);
        assert!(leases.take(MESSAGE).is_some());
    }

    #[tokio::test]
    async fn a_waiting_operation_gets_the_lease_that_is_released_meanwhile() {
        let leases = Leases::default();
        let lease = leases.take(MESSAGE).unwrap();
        let (taken, ()) = tokio::join!(leases.take_soon(MESSAGE), async { drop(lease) });
        assert!(taken.is_some());
        assert!(leases.take_soon(MESSAGE).await.is_none());
    }

    #[tokio::test]
    async fn an_operation_revokes_a_reservation_and_the_worker_is_notified() {
        let leases = Leases::default();
        let (reserved, reservation) = leases.reserve(MESSAGE).unwrap();
        assert!(!leases.is_taken(MESSAGE) && leases.take_unreserved(MESSAGE).is_none());
        let taken = leases.take(MESSAGE).unwrap();
        reservation.revoked().await;
        assert!(!reserved.begin());
        drop(reserved);
        assert!(leases.is_taken(MESSAGE));
        let (lease, ()) = tokio::join!(
            async {
                leases.is_free(MESSAGE).await;
                leases.reserve(MESSAGE)
            },
            async { drop(taken) }
        );
        assert!(lease.is_some());
    }

    #[tokio::test]
    async fn a_reserved_message_is_free_when_its_worker_has_released_it() {
        let leases = Leases::default();
        let (reserved, _revocation) = leases.reserve(MESSAGE).unwrap();
        let mut is_free = std::pin::pin!(leases.is_free(MESSAGE));
        let is_waiting = std::future::poll_fn(|context| Poll::Ready(is_free.as_mut().poll(context).is_pending())).await;
        assert!(is_waiting, "no other worker could reserve it");
        drop(reserved);
        is_free.await;
        assert!(leases.reserve(MESSAGE).is_some());
    }

    #[tokio::test]
    async fn a_worker_that_postpones_its_mail_lets_an_operation_take_the_lease() {
        let leases = Leases::default();
        let (lease, _revocation) = leases.reserve(MESSAGE).unwrap();
        assert!(lease.begin() && leases.take(MESSAGE).is_none());
        let (taken, ()) = tokio::join!(leases.take_soon(MESSAGE), async { lease.step_back() });
        assert!(taken.is_some() && !lease.begin());
    }
}
