//! Building a data directory from a base of a replica. Its rows have the form of a backup without content; its content
//! comes as pieces of segments.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::{DirectoryBuilder, Lineage, Restoration, RestoreError, SegmentId, Target};
use crate::store::archive::{Head, Part, Reader, Totals};
use crate::store::master_key::Raw;
use crate::store::replica::ReplicaDisk;
use crate::store::schema::FORMAT;

/// Content of a base.
pub struct BaseContent<I> {
    /// Pieces of segments: bucket, number, offset and bytes, in ascending order and without gaps in a segment.
    pub pieces: I,
    /// The key slots of the segments.
    pub keys: Vec<u8>,
}

/// A piece of a segment, or the reason why it can't be read.
type Piece = Result<(SegmentId, u64, Vec<u8>), RestoreError>;

/// Builds a data directory from the `rows` of a base and its `content`, which is read after the rows. `key` is the
/// store's master key. The store keeps the format of the base, in which the log continues, until it is opened.
///
/// # Errors
/// The reason why the directory was not built. It then contains no files.
pub fn restore_base<I: Iterator<Item = Piece>>(
    rows: impl Read,
    (disk, directory): (&ReplicaDisk, &Path),
    key: &Raw,
    (beside, lineage): (&[&str], Lineage),
    content: impl FnOnce() -> Result<BaseContent<I>, RestoreError>,
    progress: &mut dyn FnMut(&Head, Totals),
) -> Result<Restoration, RestoreError> {
    let (mut reader, head) = Reader::open(rows)?;
    if head.store_format > FORMAT {
        return Err(RestoreError::NewerStore { found: head.store_format });
    }
    let target = Target { disk: Arc::clone(&disk.0), directory };
    let mut building = DirectoryBuilder::begin(target, Some(key.clone()), (head.store_format, head.store_format))?;
    while let Some(part) = reader.next_part()? {
        building.take(part, beside)?;
        progress(&head, reader.totals());
    }
    let BaseContent { pieces, keys } = content()?;
    let mut totals = reader.totals();
    for piece in pieces {
        let (segment, offset, bytes) = piece?;
        building.append(segment, offset, &bytes)?;
        totals.content_bytes += bytes.len() as u64;
        progress(&head, totals);
    }
    building.take(Part::Keys(keys), beside)?;
    // The content was read separately from the rows.
    let head = Head { has_content: true, ..head };
    let on_hold = building.finish(&head, lineage)?;
    Ok(Restoration { head, totals, on_hold })
}
