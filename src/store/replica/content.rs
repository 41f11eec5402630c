//! Pieces of content and the keys of its segments. A key object is always encrypted, regardless of the configuration.
//! When its segment has ended, it is overwritten with an empty object and removed. From then on the segment's pieces
//! can't be opened.

use super::head::{Head, Kind};
use super::name::ObjectName;
use super::object::{ObjectFault, Sealer};
use crate::base::entropy::Entropy;
use crate::base::secret::Secret;

/// Maximum number of bytes of a segment in one object.
pub const PIECE_BYTES_MAX: usize = 16 << 20;

/// Returns the bytes of a key object, which contains a slot of the key file.
pub fn seal_key(name: &ObjectName, head: Head, slot: &[u8], sealer: &Sealer, entropy: &dyn Entropy) -> Vec<u8> {
    sealer.seal_always(name, &Head { kind: Kind::Key, ..head }, slot, entropy)
}

/// Returns the slot in a key object.
///
/// # Errors
/// [`ObjectFault::Empty`] if the segment has ended; other faults if the object is damaged.
pub fn open_key(name: &ObjectName, bytes: &[u8], sealer: &Sealer) -> Result<Secret, ObjectFault> {
    open(name, Kind::Key, bytes, sealer)
}

/// Returns the bytes of a content object, which contains a piece of a segment.
pub fn seal_piece(name: &ObjectName, head: Head, piece: &[u8], sealer: &Sealer, entropy: &dyn Entropy) -> Vec<u8> {
    sealer.seal(name, &Head { kind: Kind::Content, ..head }, b"", piece, entropy)
}

/// Returns the piece in a content object.
///
/// # Errors
/// [`ObjectFault`].
pub fn open_piece(name: &ObjectName, bytes: &[u8], sealer: &Sealer) -> Result<Secret, ObjectFault> {
    open(name, Kind::Content, bytes, sealer)
}

/// Returns the bytes of an object with a part of a base.
pub fn seal_part(name: &ObjectName, head: Head, part: &[u8], sealer: &Sealer, entropy: &dyn Entropy) -> Vec<u8> {
    sealer.seal(name, &Head { kind: Kind::Part, ..head }, b"", part, entropy)
}

/// Returns the part of a base in an object.
///
/// # Errors
/// [`ObjectFault`].
pub fn open_part(name: &ObjectName, bytes: &[u8], sealer: &Sealer) -> Result<Secret, ObjectFault> {
    open(name, Kind::Part, bytes, sealer)
}

fn open(name: &ObjectName, kind: Kind, bytes: &[u8], sealer: &Sealer) -> Result<Secret, ObjectFault> {
    let (head, body) = sealer.open(name, 0, bytes)?;
    if head.kind == kind { Ok(body) } else { Err(ObjectFault::Misplaced) }
}
