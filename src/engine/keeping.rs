//! Keeping the store: a backup of it while it runs, and letting go what stands still in one that was restored
//! (contract 8). For the operator alone.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::blocking::OPERATOR;
use super::{Engine, virtual_clock};
use crate::base::time::Timestamp;
use crate::store::Standing;
use crate::store::backup::Extent;
use crate::store::error::StoreError;

/// The files beside the store that belong with it, by their names in the data directory.
pub const BESIDE: &[&str] = &[virtual_clock::FILE];
/// The file that holds the time of the last backup.
const LAST_BACKUP: &str = "last-backup";
/// Bytes that are handed over at once.
const CHUNK: usize = 256 * 1024;
/// Chunks that wait to be taken, at most.
const CHUNKS: usize = 4;

/// A backup is being taken already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupUnderWay;

/// Result of `queue release`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// When the backup was taken whose queues stood still until now; none where nothing did.
    pub backup_at: Option<Timestamp>,
    /// The hold that was released.
    pub standing: Standing,
}

impl Engine {
    /// Begins a backup, whose bytes come as they are taken; who stops taking them ends it. One at a time: each pins a
    /// snapshot while it reads the rows.
    ///
    /// # Errors
    /// One is under way.
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
                    tracing::error!(%error, "backup failed");
                    // Where nobody takes it, nobody has to be told.
                    drop(sender.blocking_send(Err(io::Error::other("the backup failed"))));
                }
            }
        });
        Ok(receiver)
    }

    /// Notes in the data directory that backup finished at `now`.
    fn note_backup(&self, now: Timestamp) {
        if let Err(error) = std::fs::write(self.store.directory().join(LAST_BACKUP), now.to_string()) {
            tracing::warn!(%error, "could not record the time of the backup; the status shows an earlier one");
        }
    }

    /// When the last backup was taken, as it was noted. Blocks on the file system.
    pub fn last_backup(&self) -> Option<String> {
        std::fs::read_to_string(self.store.directory().join(LAST_BACKUP)).ok()
    }

    /// Has the queues of a restored store go on. May be repeated.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn release_queue(self: &Arc<Self>) -> Result<Released, StoreError> {
        let standing = self.standing().await?.map(|(_, standing)| standing).unwrap_or_default();
        let released = self.store.release_queue().await?;
        let backup_at = released.map(|restored| restored.backup_at);
        if let Some(backup_at) = backup_at {
            let Standing { messages, deliveries } = standing;
            tracing::warn!(%backup_at, messages, deliveries, "restore hold released");
        }
        Ok(Released { backup_at, standing })
    }

    /// When the backup was taken whose queues stand still, and how much does; nothing where nothing does.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn standing(self: &Arc<Self>) -> Result<Option<(Timestamp, Standing)>, StoreError> {
        let Some(restored) = self.store.standstill()? else { return Ok(None) };
        let store = Arc::clone(&self.store);
        let counted = self.blocking(OPERATOR, move || store.standing(&restored)).await??;
        Ok(Some((restored.backup_at, counted)))
    }
}

/// Writes to whoever takes the chunks, and waits for them.
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
