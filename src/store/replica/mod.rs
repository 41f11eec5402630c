//! The objects of a replica as bytes: their names, their first line, their encryption, and the content of the log's
//! slots. This part is pure: it reads no bucket, disk or clock. Objects from a bucket count as hostile: decoding takes
//! memory in proportion to the object's own size, and at most [`payload::PAYLOAD_BYTES_MAX`] for a slot.
//!
//! ```text
//! "postrider replica 1 <kind> <number> <epoch> <holder> <time>\n"  mode(1)  [row format(4)  previous(32)]  body
//! ```
//!
//! Only slots of the log contain the row format and the SHA-256 of the previous slot. Both are unencrypted, so that the
//! chain can be checked without the master key. In mode 1 the body is sealed with AES-256-GCM, and everything before it
//! is its associated data. In mode 2 the body is unencrypted and ends with an HMAC over everything before it. Both keys
//! are derived from the master key for the store and the object's name, so no object can replace another.
//!
//! Other files do the store's own work for replication. It numbers its batches ([`Sequence`]), keeps their records
//! until the bucket has them ([`Outbox`]), and follows the log of another machine ([`Follower`]).

pub mod aside;
mod backlog;
mod base;
pub mod claim;
mod collect;
pub mod content;
mod directory;
mod follower;
mod follower_content;
pub mod head;
pub mod identity;
pub mod manifest;
pub mod name;
pub mod object;
mod outbox;
mod own_records;
pub mod payload;
mod position;
pub mod record;
pub mod slot;
mod source;
mod start;
pub mod stranded;
#[cfg(test)]
mod stream_tests;
pub mod swap;
#[cfg(test)]
mod tests;

pub use base::BaseSnapshot;
pub(in crate::store) use collect::collect;
pub(in crate::store) use directory::{FORK, existing_holder};
pub use directory::{
    HolderError, OwnClaim, ReplicaDisk, clear_marks, continue_without_bucket, continues_without_bucket, holder, is_fork,
};
pub use follower::{FollowError, Follower};
pub use head::{Head, Holder, Kind};
pub use name::ObjectName;
pub use object::{ObjectFault, Sealer};
pub(in crate::store) use outbox::BatchState;
pub use outbox::{BatchRecord, Outbox, Unconfirmed};
pub use position::{Position, Sequence};
pub(in crate::store) use start::open_outbox;
