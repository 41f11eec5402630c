//! The last check before MAIL. A worker reserves its message, gets its place and its connection, then makes its lease
//! exclusive and reads the rows here. A message that is canceled, suppressed, paused or expired while it waits for a
//! place is never sent. A message that another operation decides about gives up its place at once.

use std::time::Duration;

use super::Shared;
use super::settle::{LeasedRows, Unsettled};
use super::site::Site;
use crate::engine::lease::Reservation;
use crate::machine::destination::QueuedMessage;
use crate::store::error::StoreError;

/// Maximum time between two checks whether a waiting message has expired.
const EXPIRY_CHECK: Duration = Duration::from_secs(60);

/// Reason why a message is not sent.
pub(super) enum NotSentReason {
    /// The message waited for a connection, and another account's message goes first.
    LetsPass,
    /// The service is stopping.
    Stopping,
    /// Another operation has taken the lease: a cancel, a suppression or a report.
    Revoked,
    /// The rows no longer require an attempt.
    Rows(LeasedRows),
    /// The rows could not be read.
    Unreadable(StoreError),
    /// The body could not be read.
    Damaged(StoreError),
    /// The body's key is destroyed.
    Gone,
    /// The bodies of other messages use all memory.
    NoMemory,
    /// The bucket of the replica has not confirmed that this machine may send.
    Unconfirmed,
}

impl Shared {
    /// Runs `work` until the service stops or the message's reservation is revoked.
    pub(super) async fn before_mail<T>(
        &self,
        reservation: &Reservation,
        work: impl Future<Output = T>,
    ) -> Result<T, NotSentReason> {
        tokio::select! {
            biased;
            () = self.closing() => Err(NotSentReason::Stopping),
            () = reservation.revoked() => Err(NotSentReason::Revoked),
            done = work => Ok(done),
        }
    }

    /// Resolves when a message that waits has expired.
    pub(super) async fn expired(&self, queued: &QueuedMessage) {
        loop {
            let left = queued.give_up_at.since(self.expiry());
            if left.is_zero() {
                return;
            }
            // The service's time may pass faster than this wait.
            tokio::time::sleep(left.min(EXPIRY_CHECK)).await;
        }
    }

    /// Makes the lease exclusive until the outcome is committed, and checks that the message is still to be sent to
    /// `site`.
    ///
    /// # Errors
    /// The reason why MAIL must not be written.
    pub(super) async fn begin(
        &self,
        reservation: &Reservation,
        unsettled: &mut Unsettled,
        site: &Site,
    ) -> Result<(), NotSentReason> {
        let queued = unsettled.queued;
        unsettled.held = Some(self.before_mail(reservation, self.backlog.take()).await?);
        self.before_mail(reservation, self.engine.blocked_accounts.until_unblocked(queued.place.account)).await?;
        if !unsettled.begin() {
            return Err(NotSentReason::Revoked);
        }
        match self.look(&queued, Some(site)) {
            Ok(LeasedRows::Send(_)) if self.is_stopping() => Err(NotSentReason::Stopping),
            // The machine may have lost the right to send while the attempt waited for a connection.
            Ok(LeasedRows::Send(_)) if !self.engine.may_send().await => Err(NotSentReason::Unconfirmed),
            Ok(LeasedRows::Send(_)) => Ok(()),
            Ok(ready) => Err(NotSentReason::Rows(ready)),
            Err(error) => Err(NotSentReason::Unreadable(error)),
        }
    }
}
