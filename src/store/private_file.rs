//! Files of the data directory: new ones are readable and writable only by their owner, and nothing but a regular file
//! is opened.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Mode of a new file: readable and writable only by its owner.
pub(in crate::store) const MODE: u32 = 0o600;

/// Options that open a file for writing, and give a new file [`MODE`].
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(MODE);
    options
}

/// Opens the regular file at `path`. Opening a pipe without `O_NONBLOCK` would wait for its other end.
///
/// # Errors
/// `InvalidInput` if something other than a regular file has that name, and file system errors.
pub fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

/// The error for a pipe, directory or device in place of a file.
pub fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

/// Creates an empty file. An existing file at `path` is truncated and keeps its mode.
///
/// # Errors
/// File system errors.
pub fn create(path: &Path) -> io::Result<File> {
    open(options().create(true).truncate(true), path)
}

/// Creates an empty file at an unused path.
///
/// # Errors
/// `AlreadyExists`, and file system errors.
pub fn create_new(path: &Path) -> io::Result<File> {
    options().create_new(true).open(path)
}

/// Replaces the content of the file at `path` durably. After a crash the file has either the old content or the new
/// one. Writes to a file with the extension `new` first.
///
/// # Errors
/// File system errors; the old content stays.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let half_made = path.with_extension("new");
    let mut file = create(&half_made)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&half_made, path)?;
    sync_name(path)
}

/// Sets [`MODE`] on an existing file.
///
/// # Errors
/// File system errors.
pub fn restrict(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(MODE))
}

/// Syncs the directory entry of the file at `path`.
///
/// # Errors
/// File system errors.
pub fn sync_name(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_new_file_is_accessible_only_to_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(directory.path().join(name)).unwrap().permissions().mode() & 0o777;
        create(&directory.path().join("created")).unwrap();
        create_new(&directory.path().join("new")).unwrap();
        replace(&directory.path().join("replaced"), b"1").unwrap();
        assert_eq!((mode("created"), mode("new"), mode("replaced")), (0o600, 0o600, 0o600));
        let taken = create_new(&directory.path().join("created")).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_pipe_and_a_directory_are_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let (pipe, folder) = (directory.path().join("pipe"), directory.path().join("folder"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fs::create_dir(&folder).unwrap();
        for path in [&pipe, &folder] {
            let refused = open(OpenOptions::new().read(true), path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
        assert_eq!(open(options().read(true), &pipe).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn replacing_leaves_only_the_file_with_the_new_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        replace(&path, b"a longer first content").unwrap();
        replace(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
