//! The rows of a base: a backup of one snapshot without content, with the places of the content that its rows name.

use std::io::{self, Write};

use crate::base::time::Timestamp;
use crate::store::Store;
use crate::store::archive::Totals;
use crate::store::backup::{BackupError, Extent, NamedSegments};
use crate::store::error::StoreError;
use crate::store::open::sequence;
use crate::store::snapshot::Snapshot;

use super::Sequence;

/// A snapshot of a store after one batch. While it is held, it pins pages of the database.
pub struct BaseSnapshot {
    snapshot: Snapshot,
    sequence: Sequence,
}

impl BaseSnapshot {
    /// Returns the sequence of its last batch.
    pub const fn sequence(&self) -> Sequence {
        self.sequence
    }
}

impl Store {
    /// Takes the snapshot of a base.
    ///
    /// # Errors
    /// Database errors.
    pub fn base_snapshot(&self) -> Result<BaseSnapshot, StoreError> {
        let snapshot = self.snapshot()?;
        let sequence = sequence(&snapshot)?;
        Ok(BaseSnapshot { snapshot, sequence })
    }

    /// Writes the rows of a base to `out`, with the existing files in `beside`. Returns the segments that the rows
    /// name, each with the end of the last named body. Blocks.
    ///
    /// # Errors
    /// The reason why the base is incomplete.
    pub fn write_base(
        &self,
        base: BaseSnapshot,
        beside: &[&str],
        out: impl Write,
    ) -> Result<(Totals, NamedSegments), BackupError> {
        let extent = Extent { content: false, master_key: false };
        let BaseSnapshot { snapshot, sequence } = base;
        let (mut writer, mut named) = Self::write_rows(&snapshot, sequence.committed_at, (extent, None), out)?;
        drop(snapshot);
        named.retain(|segment, end| *end > 0 && self.content.has(*segment));
        for name in beside {
            match self.disk.read(&self.directory.join(name)) {
                Ok(bytes) => writer.file(name, &bytes)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok((writer.end()?, named))
    }

    /// Returns whether a content segment still has its key.
    pub fn has_content(&self, bucket: Timestamp, segment: u32) -> bool {
        self.content.has((bucket, segment))
    }
}
