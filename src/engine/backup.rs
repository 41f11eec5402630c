//! Backing up the running store, and releasing the hold of a restored one (contract 8). Only for the operator.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::blocking::OPERATOR;
use super::{Engine, virtual_clock};
use crate::base::time::Timestamp;
use crate::store::TimersOnHold;
use crate::store::backup::Extent;
use crate::store::error::StoreError;

/// Further files of the data directory that a backup includes, by their names.
pub const BESIDE: &[&str] = &[virtual_clock::FILE];
/// File with the time of the last backup.
const LAST_BACKUP: &str = "last-backup";
/// Size in bytes of a chunk of the stream.
const CHUNK: usize = 256 * 1024;
/// Maximum number of chunks in the channel.
const CHUNKS: usize = 4;

/// Error: another backup is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupUnderWay;

/// Result of `queue release`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseResult {
    /// Time of the backup whose queues were on hold until now; `None` if there was no hold.
    pub backup_at: Option<Timestamp>,
    /// The hold that was released.
    pub on_hold: TimersOnHold,
}

impl Engine {
    /// Starts a backup, which produces bytes as the receiver takes them. Dropping the receiver ends it. Only one may
    /// run, because each pins a snapshot while it reads the rows.
    ///
    /// # Errors
    /// A backup is running.
    pub fn back_up(self: &Arc<Self>, extent: Extent) -> Result<mpsc::Receiver<io::Result<Bytes>>, BackupUnderWay> {
        let turn = Arc::clone(&self.backups).try_acquire_owned().map_err(|_| BackupUnderWay)?;
        let (sender, receiver) = mpsc::channel(CHUNKS);
        let engine = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let now = engine.clock.now();
            let mut out = BufWriter::with_capacity(CHUNK, Chunks(sender.clone()));
            let taken = engine.store.back_up(now, extent, BESIDE, &mut out);
            let taken = taken.and_then(|totals| Ok(out.flush().map(|()| totals)?));
            match taken {
                Ok(totals) => {
                    tracing::info!(rows = totals.rows, content = totals.content_bytes, "backup finished");
                    engine.note_backup(now);
                }
                Err(error) => {
                    tracing::error!(%error, "backup failed; the file is incomplete");
                    // The receiver may be gone. Then the error is dropped.
                    drop(sender.blocking_send(Err(io::Error::other("the backup failed"))));
                }
            }
        });
        Ok(receiver)
    }

    /// Records in the data directory that a backup finished at `now`.
    fn note_backup(&self, now: Timestamp) {
        if let Err(error) = std::fs::write(self.store.directory().join(LAST_BACKUP), now.to_string()) {
            tracing::warn!(%error, "could not record the backup time; the status shows an earlier one");
        }
    }

    /// Returns the recorded time of the last backup. Blocks on the file system.
    pub fn last_backup(&self) -> Option<String> {
        std::fs::read_to_string(self.store.directory().join(LAST_BACKUP)).ok()
    }

    /// Releases the queues of a restored store. Idempotent.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn release_queue(self: &Arc<Self>) -> Result<ReleaseResult, StoreError> {
        let on_hold = self.restore_hold().await?.map(|(_, on_hold)| on_hold).unwrap_or_default();
        let released = self.store.release_queue().await?;
        let backup_at = released.map(|restored| restored.backup_at);
        if let Some(backup_at) = backup_at {
            let TimersOnHold { messages, deliveries } = on_hold;
            tracing::warn!(
                %backup_at,
                messages,
                deliveries,
                "restore hold released; queued mail and deliveries are sent now"
            );
        }
        Ok(ReleaseResult { backup_at, on_hold })
    }

    /// Returns the time of the backup whose queues are on hold, and their sizes; `None` without a hold.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn restore_hold(self: &Arc<Self>) -> Result<Option<(Timestamp, TimersOnHold)>, StoreError> {
        let Some(restored) = self.store.restore_hold()? else { return Ok(None) };
        let store = Arc::clone(&self.store);
        let counted = self.blocking(OPERATOR, move || store.timers_on_hold(&restored)).await??;
        Ok(Some((restored.backup_at, counted)))
    }
}

/// A writer that sends chunks to the receiver, and waits while the channel is full.
struct Chunks(mpsc::Sender<io::Result<Bytes>>);

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client closed the connection"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
