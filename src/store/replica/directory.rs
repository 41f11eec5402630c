//! Replication files in the data directory: the directory's name as holder of the log, its last claim, and the marks of
//! a directory that was restored or that continues without the bucket.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::backlog::DIRECTORY;
use super::head::Holder;
use crate::base::entropy::{self, Entropy};
use crate::store::disk::{Disk, FileSystem, OpenMode};
use crate::store::limits::Limits;
use crate::store::open::FILE;

/// Path of the mark of a restored directory, in the data directory.
pub(in crate::store) const FORK: &str = "replica/fork";
/// Path of the mark of a directory that continues without the bucket, in the data directory.
const WITHOUT_BUCKET: &str = "replica/without-bucket";
const HOLDER: &str = "holder";
const CLAIMED: &str = "claimed";
/// Maximum length of the host name in the name of a directory, in bytes.
const HOST_BYTES_MAX: usize = 64;

/// The disk that contains the data directory of a replica.
#[derive(Clone)]
pub struct ReplicaDisk(pub(in crate::store) Arc<dyn Disk>);

impl Default for ReplicaDisk {
    /// Returns the file system.
    fn default() -> Self {
        Self(Arc::new(FileSystem))
    }
}

impl ReplicaDisk {
    /// Returns the number of bytes that the device of `directory` lacks for a service, or `None` if it has room. A
    /// service with less would use the space that is reserved for outcomes.
    pub fn lacks_room(&self, directory: &Path) -> Option<u64> {
        let needed = Limits::default().reserve_short_bytes;
        let free = self.0.free_bytes(directory).ok()?;
        (free < needed).then(|| needed - free)
    }

    /// Returns whether there is a store in `directory`.
    pub fn has_store(&self, directory: &Path) -> bool {
        self.0.exists(&directory.join(FILE))
    }
}

/// Reason why the name of a data directory in the log is not known.
#[derive(Debug, thiserror::Error)]
pub enum HolderError {
    /// The file does not contain a name.
    #[error("the file replica/holder is damaged")]
    Damaged,
    /// The file system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Returns the name of the data directory in the log, if it has one.
///
/// # Errors
/// File system errors; a file without a name.
pub(in crate::store) fn existing_holder(disk: &dyn Disk, data: &Path) -> Result<Option<Holder>, HolderError> {
    match disk.read(&data.join(DIRECTORY).join(HOLDER)) {
        Ok(name) => String::from_utf8_lossy(&name).trim().parse().map(Some).map_err(|_| HolderError::Damaged),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the name of the data directory in the log: the host's name and a random part, drawn once. A copy of the
/// directory has the same name, a restored directory a different one.
///
/// # Errors
/// File system errors; a file without a name.
pub fn holder(disk: &ReplicaDisk, data: &Path, host: &str, entropy: &dyn Entropy) -> Result<Holder, HolderError> {
    let disk = &*disk.0;
    if let Some(holder) = existing_holder(disk, data)? {
        return Ok(holder);
    }
    let directory = data.join(DIRECTORY);
    let is_plain = |character: &char| character.is_ascii_alphanumeric() || *character == '-';
    let host: String = host.chars().filter(is_plain).take(HOST_BYTES_MAX).collect();
    let name = format!("{}-{}", if host.is_empty() { "host" } else { &host }, random(entropy));
    disk.create_directory(&directory)?;
    replace(disk, &directory, HOLDER, &name)?;
    disk.sync_directory(data)?;
    name.parse().map_err(|_| HolderError::Damaged)
}

/// The last epoch that a data directory has claimed, the place where it did, and the end of the wait that followed. The
/// log's claims contain the first two, unless the bucket is emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnClaim {
    /// The epoch.
    pub epoch: u64,
    /// The place of the directory; 0 if it was not known.
    pub place: u64,
    /// Time on the continuous clock, since the boot that `place` identifies, at which the leases of earlier holders are
    /// over. [`Duration::MAX`] if it is not known.
    pub waits_until: Duration,
}

impl OwnClaim {
    /// Returns the claim that was recorded in `data`. An unreadable record counts as none.
    pub fn read(disk: &ReplicaDisk, data: &Path) -> Option<Self> {
        let text = String::from_utf8(disk.0.read(&data.join(DIRECTORY).join(CLAIMED)).ok()?).ok()?;
        let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().ok());
        let (epoch, place) = (numbers.next()??, numbers.next()??);
        // Earlier versions did not record the end of the wait.
        let waits_until = numbers.next().flatten().map_or(Duration::MAX, Duration::from_millis);
        Some(Self { epoch, place, waits_until })
    }

    /// Records the claim in `data`.
    ///
    /// # Errors
    /// File system errors.
    pub fn write(&self, disk: &ReplicaDisk, data: &Path) -> io::Result<()> {
        let text = format!("{} {} {}\n", self.epoch, self.place, self.waits_until.as_millis());
        disk.0.create_directory(&data.join(DIRECTORY))?;
        replace(&*disk.0, &data.join(DIRECTORY), CLAIMED, &text)
    }

    /// Returns whether this is the claim of `epoch`, made at `place`. An unknown place is never the same.
    pub const fn is_of(&self, epoch: u64, place: u64) -> bool {
        self.epoch == epoch && self.place == place && place != 0
    }
}

/// Writes a file of the replication directory durably. A crash leaves the old file or the new one.
fn replace(disk: &dyn Disk, directory: &Path, name: &str, text: &str) -> io::Result<()> {
    let path = directory.join(name);
    let half_made = path.with_extension("new");
    let file = disk.open(&half_made, OpenMode::Fresh)?;
    file.write_all_at(text.as_bytes(), 0)?;
    file.sync_data()?;
    disk.rename(&half_made, &path)?;
    disk.sync_directory(directory)
}

fn random(entropy: &dyn Entropy) -> String {
    entropy::bytes::<4>(entropy).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether the directory was restored and has not claimed a log since.
pub fn is_fork(disk: &ReplicaDisk, data: &Path) -> bool {
    disk.0.exists(&data.join(FORK))
}

/// Returns whether the directory was promoted without the bucket and has not claimed the log since.
pub fn continues_without_bucket(disk: &ReplicaDisk, data: &Path) -> bool {
    disk.0.exists(&data.join(WITHOUT_BUCKET))
}

/// Marks a directory that was promoted without the bucket, so that later starts serve too.
///
/// # Errors
/// File system errors.
pub fn continue_without_bucket(disk: &ReplicaDisk, data: &Path) -> io::Result<()> {
    let directory = data.join(DIRECTORY);
    disk.0.create_directory(&directory)?;
    disk.0.open(&data.join(WITHOUT_BUCKET), OpenMode::Fresh)?.sync_data()?;
    disk.0.sync_directory(&directory)?;
    disk.0.sync_directory(data)
}

/// Removes the marks of a directory that was restored or promoted without the bucket, after it has claimed the log.
///
/// # Errors
/// File system errors.
pub fn clear_marks(disk: &ReplicaDisk, data: &Path) -> io::Result<()> {
    for mark in [FORK, WITHOUT_BUCKET] {
        match disk.0.remove_file(&data.join(mark)) {
            Ok(()) => disk.0.sync_directory(&data.join(DIRECTORY))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
