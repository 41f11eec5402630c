//! Read-only view of a database file. Pages that redb would write, for example after a crash, go to memory.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use redb::StorageBackend;

use super::disk::DiskFile;

const PAGE: usize = 4096;
/// Maximum memory for a repair: 512 MiB.
const PAGES_MAX: usize = 131_072;

/// Growth that is always allowed for a file that is verified while the service runs: 256 MiB.
const GROWTH_MIN: u64 = 256 << 20;

/// Pages of a file with changes kept in memory.
pub(super) struct Overlay {
    file: Arc<dyn DiskFile>,
    changed: RwLock<ChangedPages>,
    /// Whether reads fail from now on.
    is_stopped: Arc<AtomicBool>,
    /// Length of the file above which reads fail.
    length_max: u64,
}

struct ChangedPages {
    length: u64,
    /// Number of bytes of the file that are still in use. Bytes that were truncated and added again are zeros.
    of_file: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
}

impl Overlay {
    /// Creates a view of `file` as it is.
    pub(super) fn over(file: Arc<dyn DiskFile>) -> io::Result<Self> {
        let length = file.length()?;
        let changed = ChangedPages { length, of_file: length, pages: BTreeMap::new() };
        Ok(Self { file, changed: RwLock::new(changed), is_stopped: Arc::default(), length_max: u64::MAX })
    }

    /// Creates a view of a file while its service runs: with the header as it is now, until `is_stopped` is set or the
    /// file has grown by a quarter. The service can't reuse pages that the view needs.
    pub(super) fn beside_service(file: Arc<dyn DiskFile>, is_stopped: Arc<AtomicBool>) -> io::Result<Self> {
        let length = file.length()?;
        let length_max = length.saturating_add((length / 4).max(GROWTH_MIN));
        let view = Self { is_stopped, length_max, ..Self::over(file)? };
        let mut header = [0; PAGE];
        view.read(0, &mut header)?;
        view.write(0, &header)?;
        Ok(view)
    }

    /// Reads the file's own bytes at `offset`; bytes after the first `of_file` are zeros.
    fn fill(&self, of_file: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = of_file.saturating_sub(offset).min(out.len() as u64);
        let (there, behind) = out.split_at_mut(usize::try_from(there).unwrap_or_default());
        behind.fill(0);
        self.file.read_exact_at(there, offset)
    }
}

/// Splits a range into pages: the page, the start within it, and the part's place in the whole range.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done as u64;
        let within = usize::try_from(at % PAGE as u64).unwrap_or_default();
        let part = done..length.min(done + PAGE - within);
        done = part.end;
        Some((at / PAGE as u64, within, part))
    })
}

impl fmt::Debug for Overlay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a read-only view of a database")
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changed.read().unwrap_or_else(PoisonError::into_inner).length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if self.is_stopped.load(Ordering::Acquire) {
            return Err(io::Error::other("the service is stopping"));
        }
        if self.length_max < u64::MAX && self.file.length()? > self.length_max {
            return Err(io::Error::other("the file grew too much during the verification"));
        }
        let changed = self.changed.read().unwrap_or_else(PoisonError::into_inner);
        if offset + out.len() as u64 > changed.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (page, within, part) in parts(offset, out.len()) {
            match changed.pages.get(&page) {
                Some(bytes) => out[part.clone()].copy_from_slice(&bytes[within..within + part.len()]),
                None => self.fill(changed.of_file, offset + part.start as u64, &mut out[part])?,
            }
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut changed = self.changed.write().unwrap_or_else(PoisonError::into_inner);
        changed.length = length;
        changed.of_file = changed.of_file.min(length);
        // The database's length is a whole number of pages.
        drop(changed.pages.split_off(&length.div_ceil(PAGE as u64)));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changed = self.changed.write().unwrap_or_else(PoisonError::into_inner);
        for (page, within, part) in parts(offset, data.len()) {
            if !changed.pages.contains_key(&page) {
                if changed.pages.len() == PAGES_MAX {
                    return Err(io::Error::other("repairing the database needs too much memory: start the service"));
                }
                let mut bytes = Box::new([0; PAGE]);
                self.fill(changed.of_file, page * PAGE as u64, &mut *bytes)?;
                changed.pages.insert(page, bytes);
            }
            if let Some(bytes) = changed.pages.get_mut(&page) {
                bytes[within..within + part.len()].copy_from_slice(&data[part]);
            }
        }
        Ok(())
    }
}
