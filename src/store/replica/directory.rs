//! Replication files in the data directory: the directory's name as holder of the log, and the mark of a restored
//! directory.

use std::fs;
use std::io;
use std::path::Path;

use super::backlog::DIRECTORY;
use super::head::Holder;
use crate::base::entropy::{self, Entropy};
use crate::store::disk::{Disk as _, FileSystem, Opening};

/// Path of the mark of a restored directory, in the data directory.
pub(in crate::store) const FORK: &str = "replica/fork";
const HOLDER: &str = "holder";
/// Maximum length of the host name in the name of a directory, in bytes.
const HOST_BYTES_MAX: usize = 64;

/// Returns the name of the data directory in the log: the host's name and a random part, drawn once. A copy of the
/// directory has the same name, a restored directory a different one.
///
/// # Errors
/// File system errors; a file without a name.
pub fn holder(data: &Path, host: &str, entropy: &dyn Entropy) -> io::Result<Holder> {
    let directory = data.join(DIRECTORY);
    let path = directory.join(HOLDER);
    match fs::read_to_string(&path) {
        Ok(name) => return name.trim().parse().map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let is_plain = |character: &char| character.is_ascii_alphanumeric() || *character == '-';
    let host: String = host.chars().filter(is_plain).take(HOST_BYTES_MAX).collect();
    let name = format!("{}-{}", if host.is_empty() { "host" } else { &host }, random(entropy));
    FileSystem.create_directory(&directory)?;
    let half_made = path.with_extension("new");
    let file = FileSystem.open(&half_made, Opening::Fresh)?;
    file.write_all_at(name.as_bytes(), 0)?;
    file.sync_data()?;
    FileSystem.rename(&half_made, &path)?;
    FileSystem.sync_directory(&directory)?;
    FileSystem.sync_directory(data)?;
    name.parse().map_err(io::Error::other)
}

fn random(entropy: &dyn Entropy) -> String {
    entropy::bytes::<4>(entropy).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether the directory was restored and has not claimed a log since.
pub fn is_fork(data: &Path) -> bool {
    data.join(FORK).exists()
}

/// Removes the mark of a restored directory, after it has claimed its own log.
///
/// # Errors
/// File system errors.
pub fn clear_fork(data: &Path) -> io::Result<()> {
    match FileSystem.remove_file(&data.join(FORK)) {
        Ok(()) => FileSystem.sync_directory(&data.join(DIRECTORY)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
