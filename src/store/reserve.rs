//! Space on the device that is reserved for outcomes. Postrider stops accepting long before the disk is full, but other
//! programs may fill it. The outcomes of messages in flight must still be recorded, or the messages would be sent
//! again.
//!
//! Before each commit the writer asks the file system for its free space. It releases the reserve when space is short,
//! and takes it again when there is plenty.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::disk::{Disk, DiskFile, OpenMode};
use super::limits::Limits;

/// Name of the reserve file in the data directory.
pub(super) const FILE: &str = "reserve";

/// The reserved space.
pub(super) struct Reserve {
    file: Option<Arc<dyn DiskFile>>,
    is_held: bool,
    free: Box<dyn Fn() -> Option<u64> + Send>,
    limits: Limits,
}

/// Releases the reserve of `directory` if space is short, before the database is opened, because opening may already
/// need it. The writer takes the reserve again once there is plenty. No file is created here, because the directory may
/// belong to another process or a later version.
pub(super) fn make_space(disk: &dyn Disk, directory: &Path, limits: &Limits) {
    let path = directory.join(FILE);
    let is_short = disk.free_bytes(directory).is_ok_and(|free| free < limits.reserve_short_bytes);
    if !is_short || !disk.exists(&path) {
        return;
    }
    if let Err(error) = disk.open(&path, OpenMode::Kept).and_then(|file| file.set_length(0)) {
        tracing::warn!(%error, "could not release the reserved disk space before the start; the start may lack space");
    }
}

impl Reserve {
    /// Opens the reserve of `directory`; `free` returns the free space of the device. If the file can't be opened, the
    /// store runs without a reserve.
    pub(super) fn open(
        disk: &dyn Disk,
        directory: &Path,
        limits: Limits,
        free: impl Fn() -> Option<u64> + Send + 'static,
    ) -> Self {
        let file = disk.open(&directory.join(FILE), OpenMode::Kept);
        let length = file.as_ref().ok().and_then(|file| file.length().ok()).unwrap_or(0);
        if let Err(error) = &file {
            tracing::warn!(%error, "could not reserve disk space; outcomes may be lost if the disk fills up");
        }
        Self { file: file.ok(), is_held: length > 0, free: Box::new(free), limits }
    }

    /// Releases the reserve if space is short, or takes it if there is plenty. Returns the free space.
    pub(super) fn before_commit(&mut self) -> Option<u64> {
        let free = (self.free)()?;
        if self.is_held && free < self.limits.reserve_short_bytes {
            self.give_back();
        } else if !self.is_held && free >= self.limits.reserve_plenty_bytes {
            self.take();
        }
        Some(free)
    }

    fn give_back(&mut self) {
        tracing::warn!("disk nearly full: using reserved space");
        self.is_held = false;
        self.change(|file| file.set_length(0));
    }

    fn take(&mut self) {
        self.is_held = true;
        let bytes = self.limits.reserve_bytes;
        self.change(|file| file.allocate(bytes));
    }

    /// Changes the reserve file. After a failure the reserve is not changed again.
    fn change(&mut self, change: impl FnOnce(&dyn DiskFile) -> io::Result<()>) {
        let Some(file) = &self.file else { return };
        if let Err(error) = change(&**file) {
            tracing::debug!(%error, "could not change the reserved disk space");
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::store::disk::FileSystem;

    #[test]
    fn space_is_reserved_while_plenty_is_free_and_released_when_it_is_short() {
        let directory = tempfile::tempdir().unwrap();
        let Limits { reserve_bytes, reserve_short_bytes: short, reserve_plenty_bytes: plenty, .. } = Limits::default();
        assert!(plenty <= 64 << 20, "the reserve is held wherever messages are accepted");
        let free = Arc::new(AtomicU64::new(plenty));
        let open = || {
            let free = Arc::clone(&free);
            Reserve::open(&FileSystem, directory.path(), Limits::default(), move || Some(free.load(Ordering::SeqCst)))
        };
        let kept = || std::fs::metadata(directory.path().join(FILE)).unwrap().len();
        let mut reserve = open();
        assert_eq!(kept(), 0);
        for (left, expected) in
            [(plenty, reserve_bytes), (short, reserve_bytes), (short - 1, 0), (plenty - 1, 0), (plenty, reserve_bytes)]
        {
            free.store(left, Ordering::SeqCst);
            reserve.before_commit();
            assert_eq!(kept(), expected, "{left} free");
        }
        // The reserve of an earlier process is found.
        let mut reserve = open();
        free.store(0, Ordering::SeqCst);
        reserve.before_commit();
        assert_eq!(kept(), 0);
    }
}
