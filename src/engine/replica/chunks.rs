//! The rows of a base, split into parts. Each part is passed on as soon as it is full.

use std::io;

use tokio::sync::mpsc;

/// Size of a part, in bytes of rows.
const PART_BYTES: usize = 16 << 20;

/// Rows that are being split into parts.
pub(super) struct Chunks {
    sender: mpsc::Sender<Vec<u8>>,
    bytes: Vec<u8>,
}

impl Chunks {
    /// Passes each part to `sender`.
    pub(super) const fn new(sender: mpsc::Sender<Vec<u8>>) -> Self {
        Self { sender, bytes: Vec::new() }
    }

    /// Passes on the last, incomplete part.
    pub(super) fn send(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        let gone = |_| io::Error::other("the base was given up");
        if bytes.is_empty() { Ok(()) } else { self.sender.blocking_send(bytes).map_err(gone) }
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
