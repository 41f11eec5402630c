//! The objects of a replica as bytes: their names, their clear first line, how they are sealed, and what the slots of
//! the log hold. Pure: nothing here reads a bucket, a disk or a clock. What a bucket returns is hostile: decoding takes
//! memory in proportion to the object's own size, and at most [`payload::PAYLOAD_BYTES_MAX`] for a slot.
//!
//! ```text
//! "postrider replica 1 <kind> <number> <epoch> <holder> <time>\n"  mode(1)  [row format(4)  previous(32)]  body
//! ```
//!
//! Row format and SHA-256 of the slot before are in the slots of the log alone, in clear, so that the chain can be
//! checked without the master key. In mode 1 the body is sealed with AES-256-GCM and everything before it is its
//! associated data; in mode 2 the body is in clear and ends with an HMAC over all that precedes. Both keys are derived
//! from the master key for the store and the object's name, so no object can take the place of another.

pub mod claim;
pub mod content;
pub mod head;
pub mod identity;
pub mod manifest;
pub mod name;
pub mod object;
pub mod payload;
pub mod slot;
#[cfg(test)]
mod tests;

pub use head::{Head, Holder, Kind};
pub use name::ObjectName;
pub use object::{ObjectFault, Sealer};
