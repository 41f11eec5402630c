//! The rows of a base, split into parts. Each part is passed on as soon as it is full.

use std::io;

use tokio::sync::mpsc;

use crate::engine::executor::Executor;

/// Size of a part, in bytes of rows.
const PART_BYTES: usize = 16 << 20;
/// Maximum number of parts that wait if nothing receives them before all rows are written.
const PARTS_INLINE: usize = 64;

/// Sender of the parts.
pub(super) struct PartSender {
    sender: mpsc::Sender<Vec<u8>>,
    executor: Executor,
}

/// Creates the channel of the parts, whose sender is used on `executor`. On a thread, the sender waits until the last
/// part is received.
pub(super) fn channel(executor: Executor) -> (PartSender, mpsc::Receiver<Vec<u8>>) {
    let (sender, parts) = mpsc::channel(if executor == Executor::Inline { PARTS_INLINE } else { 1 });
    (PartSender { sender, executor }, parts)
}

impl PartSender {
    fn send(&self, part: Vec<u8>) -> io::Result<()> {
        match self.executor {
            Executor::Threads => self.sender.blocking_send(part).map_err(|_| io::Error::other("the base was aborted")),
            Executor::Inline => self.sender.try_send(part).map_err(io::Error::other),
        }
    }
}

/// Rows that are being split into parts.
pub(super) struct Chunks {
    sender: PartSender,
    bytes: Vec<u8>,
}

impl Chunks {
    /// Passes each part to `sender`.
    pub(super) const fn new(sender: PartSender) -> Self {
        Self { sender, bytes: Vec::new() }
    }

    /// Passes on the last, incomplete part.
    pub(super) fn send(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.is_empty() { Ok(()) } else { self.sender.send(bytes) }
    }
}

impl io::Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PART_BYTES - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..taken]);
        if self.bytes.len() == PART_BYTES {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
