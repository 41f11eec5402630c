//! The master key: `master.key` in the data directory (mode 0600), or a systemd credential of that name. Sealed data
//! can't be opened without it, so it is created once and never replaced.

use std::io;
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase as _, TableError};
use zeroize::Zeroizing;

use super::checksum::Values;
use super::disk::{Disk, FileSystem, OpenMode};
use super::error::StoreError;
use super::migrate;
use super::open::OpenError;
use super::schema::{Table, meta};
use crate::base::entropy::{self, Entropy};
use crate::base::secret::MasterKey;

/// Name of the key file.
pub const FILE: &str = "master.key";
/// Raw bytes of the key.
pub type Raw = Zeroizing<[u8; MasterKey::LENGTH]>;
const PROOF_CONTEXT: &[u8] = b"master key proof";

/// Reads the master key of `directory`, or creates it for a new store, which has no `proof` yet.
///
/// # Errors
/// A key that can't be read or written, has the wrong length, or did not make `proof`.
pub(super) fn of_store(
    disk: &dyn Disk,
    directory: &Path,
    proof: Option<&[u8]>,
    entropy: &dyn Entropy,
) -> Result<MasterKey, OpenError> {
    let path = place(directory);
    let Some(proof) = proof else {
        if !disk.exists(&path) {
            let key = Zeroizing::new(entropy::bytes::<{ MasterKey::LENGTH }>(entropy));
            write(disk, &path, directory, &key)?;
        }
        return read(disk, &path);
    };
    // A new key could not open an existing store's secrets, so none is created.
    let key = read(disk, &path)?;
    if is_of(&key, proof) { Ok(key) } else { Err(OpenError::WrongMasterKey) }
}

/// Refuses a key that is not the one of `database`, before anything in the store is changed. A new store has no proof
/// yet. The database may have an earlier format.
///
/// # Errors
/// A key that can't be read or is not the store's own; database errors.
pub(super) fn refuse_wrong(disk: &dyn Disk, directory: &Path, database: &Database) -> Result<(), OpenError> {
    let Some(proof) = proof_of_any_format(database)? else { return Ok(()) };
    let key = read(disk, &place(directory))?;
    if is_of(&key, &proof) { Ok(()) } else { Err(OpenError::WrongMasterKey) }
}

/// Returns the proof in a database; `None` in a new store. A damaged one is reported when the store is prepared.
fn proof_of_any_format(database: &Database) -> Result<Option<Vec<u8>>, StoreError> {
    let facts = match database.begin_read()?.open_table(Table::Meta.definition()) {
        Ok(facts) => facts,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let values = Values::of_format(migrate::format_in(&facts)?);
    let stored = facts.get(meta::MASTER_KEY_PROOF)?;
    let open = |stored: &[u8]| values.open(Table::Meta.name(), meta::MASTER_KEY_PROOF, stored).map(<[u8]>::to_vec);
    Ok(stored.and_then(|stored| open(stored.value())))
}

/// Returns the raw key of `directory`, for a backup that includes it.
///
/// # Errors
/// A key that can't be read, or did not make `proof`.
pub(super) fn raw_of_store(disk: &dyn Disk, directory: &Path, proof: &[u8]) -> Result<Raw, OpenError> {
    let raw = read_raw_on(disk, &place(directory))?;
    if is_of(&MasterKey::new(&raw), proof) { Ok(raw) } else { Err(OpenError::WrongMasterKey) }
}

/// Returns whether `key` made `proof`.
pub(super) fn is_of(key: &MasterKey, proof: &[u8]) -> bool {
    key.open(PROOF_CONTEXT, proof).is_ok()
}

/// Returns a value that only this key opens. It identifies the key later.
pub fn proof(key: &MasterKey, entropy: &dyn Entropy) -> Vec<u8> {
    key.seal(PROOF_CONTEXT, b"", entropy).0
}

/// Returns the path of the key: a systemd credential if there is one, otherwise in the data directory.
pub fn place(directory: &Path) -> PathBuf {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(|credentials| Path::new(&credentials).join(FILE));
    credentials.filter(|credential| credential.exists()).unwrap_or_else(|| directory.join(FILE))
}

/// Writes a key to `path` in `directory` atomically.
pub(super) fn write(disk: &dyn Disk, path: &Path, directory: &Path, key: &Raw) -> Result<(), OpenError> {
    let io = |error| OpenError::Io { what: format!("creating {}", path.display()), error };
    // Write under another name first: a crash must not leave a partial key.
    let half_made = path.with_extension("key.new");
    let file = disk.open(&half_made, OpenMode::Fresh).map_err(io)?;
    file.write_all_at(&**key, 0).and_then(|()| file.sync_data()).map_err(io)?;
    disk.rename(&half_made, path).and_then(|()| disk.sync_directory(directory)).map_err(io)
}

fn read(disk: &dyn Disk, path: &Path) -> Result<MasterKey, OpenError> {
    read_raw_on(disk, path).map(|raw| MasterKey::new(&raw))
}

/// Reads a file with a master key.
///
/// # Errors
/// The file can't be read or has another length.
pub fn read_raw(path: &Path) -> Result<Raw, OpenError> {
    read_raw_on(&FileSystem, path)
}

pub(super) fn read_raw_on(disk: &dyn Disk, path: &Path) -> Result<Raw, OpenError> {
    let io = |error| OpenError::Io { what: format!("reading {}", path.display()), error };
    let bytes = Zeroizing::new(disk.read(path).map_err(io)?);
    let key: &[u8; MasterKey::LENGTH] = bytes.as_slice().try_into().map_err(|_| {
        io(io::Error::new(io::ErrorKind::InvalidData, format!("a master key has {} bytes", MasterKey::LENGTH)))
    })?;
    Ok(Zeroizing::new(*key))
}
