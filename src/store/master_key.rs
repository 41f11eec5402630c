//! The master key: `master.key` in the data directory (mode 0600), or a systemd credential of that name. Without it
//! nothing sealed opens, so it is made once and never replaced.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use zeroize::Zeroizing;

use super::open::OpenError;
use crate::base::entropy::{self, Entropy};
use crate::base::secret::MasterKey;

const FILE: &str = "master.key";

/// Reads the master key of `directory`, or makes it where there is none yet.
///
/// # Errors
/// A key that can't be read or written, or of the wrong length.
pub fn load_or_create(directory: &Path, entropy: &dyn Entropy) -> Result<MasterKey, OpenError> {
    if let Some(credentials) = std::env::var_os("CREDENTIALS_DIRECTORY") {
        let credential = Path::new(&credentials).join(FILE);
        if credential.exists() {
            return read(&credential);
        }
    }
    let path = directory.join(FILE);
    if !path.exists() {
        create(&path, directory, entropy)?;
    }
    read(&path)
}

fn create(path: &Path, directory: &Path, entropy: &dyn Entropy) -> Result<(), OpenError> {
    let io = |error| OpenError::Io { what: format!("creating {}", path.display()), error };
    let key = Zeroizing::new(entropy::bytes::<{ MasterKey::LENGTH }>(entropy));
    // Under another name first: a crash must not leave half a key.
    let half_made = path.with_extension("key.new");
    let mut file =
        OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&half_made).map_err(io)?;
    file.write_all(&*key).and_then(|()| file.sync_all()).map_err(io)?;
    fs::rename(&half_made, path).and_then(|()| fs::File::open(directory)?.sync_all()).map_err(io)
}

fn read(path: &Path) -> Result<MasterKey, OpenError> {
    let io = |error| OpenError::Io { what: format!("reading {}", path.display()), error };
    let bytes = Zeroizing::new(fs::read(path).map_err(io)?);
    let key: &[u8; MasterKey::LENGTH] = bytes.as_slice().try_into().map_err(|_| {
        io(io::Error::new(io::ErrorKind::InvalidData, format!("a master key has {} bytes", MasterKey::LENGTH)))
    })?;
    Ok(MasterKey::new(key))
}
