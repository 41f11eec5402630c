//! An open file of the simulated disk, as the store and as redb use it.

use std::fmt;
use std::io;

use redb::StorageBackend;

use super::SimulatedDisk;
use super::node::Change;
use super::state::Touch;
use crate::store::disk::{DiskFile, OpenMode};

/// A file that the process of one run has open.
#[derive(Clone)]
pub(super) struct SimulatedFile {
    pub(super) disk: SimulatedDisk,
    pub(super) run: u64,
    pub(super) node: usize,
    pub(super) opening: OpenMode,
}

impl SimulatedFile {
    fn change(&self, change: Change) -> io::Result<()> {
        if self.opening == OpenMode::Existing {
            return Err(io::Error::other("the file is open for reading only"));
        }
        let touch = Touch::Room { node: self.node, length: change.length() };
        self.disk.state().perform(self.run, touch, |state, part| {
            let by = state.misdirected_by;
            state.file_mut(self.node)?.change(change.cut(part).moved(by));
            Ok(())
        })
    }
}

impl DiskFile for SimulatedFile {
    fn length(&self) -> io::Result<u64> {
        let mut state = self.disk.state();
        state.check(self.run)?;
        Ok(state.file_mut(self.node)?.bytes.len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.read(self.run)?;
        let offset = usize::try_from(offset).unwrap();
        let bytes = state.file_mut(self.node)?.bytes.get(offset..offset + buffer.len());
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(Change::Write { offset: usize::try_from(offset).unwrap(), bytes: bytes.to_vec() })
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.change(Change::Length(usize::try_from(length).unwrap()))
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let length = length.max(self.length()?);
        self.set_length(length)
    }

    fn flush(&self) -> io::Result<()> {
        let touch = Touch::Sync { node: self.node };
        self.disk.state().perform(self.run, touch, |state, _| state.sync(self.node))
    }
}

/// A file that redb has open.
pub(super) struct SimulatedDatabase(pub(super) SimulatedFile);

impl fmt::Debug for SimulatedDatabase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a database on the simulated disk")
    }
}

impl StorageBackend for SimulatedDatabase {
    fn len(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        DiskFile::sync_data(&self.0)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}
