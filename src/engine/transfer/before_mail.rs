//! The last check before MAIL. A worker first gets its place and its connection, then leases the message and reads its
//! rows here. So a message that is cancelled, suppressed, paused or expired while it waits for a place is never sent.

use super::Shared;
use super::settle::{Ready, Unsettled};
use super::site::Site;
use crate::store::error::StoreError;

/// The reason why a message is not sent.
pub(super) enum NotBegun {
    /// It waited for a connection, and another account's message goes first.
    LetsPass,
    /// The service is stopping.
    Stopping,
    /// Another operation has the lease: a cancel, a suppression or a report.
    Leased,
    /// The rows ask for something else than an attempt.
    Rows(Ready),
    /// The rows could not be read.
    Unreadable(StoreError),
    /// The body could not be read.
    Damaged(StoreError),
    /// The body is over: its key is destroyed.
    Gone,
    /// The bodies of other messages took all memory.
    NoMemory,
    /// The bucket of the replica has not confirmed that this machine may send.
    Unconfirmed,
}

impl Shared {
    /// Runs `work` unless the service is stopping, or begins to stop before the work is done.
    pub(super) async fn unless_stopping<T>(&self, work: impl Future<Output = T>) -> Result<T, NotBegun> {
        tokio::select! {
            biased;
            () = self.closing() => Err(NotBegun::Stopping),
            done = work => Ok(done),
        }
    }

    /// Leases the message until its outcome is committed, and checks that it is still to be sent to `site`.
    ///
    /// # Errors
    /// The reason why its MAIL must not be written. The lease is given back then.
    pub(super) async fn begin(&self, unsettled: &mut Unsettled, site: &Site) -> Result<(), NotBegun> {
        let queued = unsettled.queued;
        unsettled.held = Some(self.unless_stopping(self.backlog.take()).await?);
        self.unless_stopping(self.engine.quiet.spoken(queued.place.account)).await?;
        let lease = self.unless_stopping(self.leases.take_soon(queued.place.id)).await?.ok_or(NotBegun::Leased)?;
        match self.look(&queued, Some(site)) {
            Ok(Ready::Send(_)) if self.is_stopping() => Err(NotBegun::Stopping),
            // A connection was awaited since the attempt began.
            Ok(Ready::Send(_)) if !self.engine.may_send().await => Err(NotBegun::Unconfirmed),
            Ok(Ready::Send(_)) => {
                unsettled.lease = Some(lease);
                Ok(())
            }
            Ok(ready) => Err(NotBegun::Rows(ready)),
            Err(error) => Err(NotBegun::Unreadable(error)),
        }
    }
}
