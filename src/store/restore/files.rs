//! Files of a data directory that is being built.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use super::{CONTENT, RestoreError};
use crate::store::content::segment;
use crate::store::disk::FileSystem;
use crate::store::private_file;

pub(super) fn sync_below(directory: &Path) -> Result<(), RestoreError> {
    for entry in fs::read_dir(directory).map_err(|error| unwritten(directory, error))? {
        let path = entry.map_err(|error| unwritten(directory, error))?.path();
        if path.is_dir() {
            segment::sync_directory(&FileSystem, &path)?;
        }
    }
    Ok(segment::sync_directory(&FileSystem, directory)?)
}

pub(super) fn close(file: Option<&File>) -> Result<(), RestoreError> {
    let Some(file) = file else { return Ok(()) };
    file.sync_all().map_err(|error| unwritten(Path::new(CONTENT), error))
}

pub(super) fn make_directory(path: &Path) -> Result<(), RestoreError> {
    DirBuilder::new().mode(0o700).create(path).map_err(|error| unwritten(path, error))
}

pub(super) fn create_new(path: &Path) -> Result<File, RestoreError> {
    private_file::create_new(path).map_err(|error| unwritten(path, error))
}

pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), RestoreError> {
    let mut file = create_new(path)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|error| unwritten(path, error))
}

pub(super) fn unwritten(path: &Path, error: io::Error) -> RestoreError {
    RestoreError::Io { path: path.to_owned(), error }
}
