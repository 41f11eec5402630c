//! The status of replication, for `replica status`, the system page and the metrics.

use serde::Serialize;

use crate::base::time::{Timestamp, iso};
use crate::store::replica::manifest::Manifest;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $word:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$of])* $word,)*
        }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$word),*];

            /// Returns the name in JSON and in metrics.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)*
                }
            }
        }
    };
}

words! {
    /// Role of a process.
    Role {
        /// No replication is configured.
        Off = "off",
        /// The process owns the log.
        Active = "active",
        /// The process follows the log.
        Standby = "standby",
        /// Another machine claimed the log.
        Deposed = "deposed",
    }
}

words! {
    /// State of replication.
    State {
        /// The bucket has all batches, or will have them within seconds.
        Ok = "ok",
        /// The process has not reached the bucket yet, or does not send mail yet, because the previous holder's lease
        /// may still be valid.
        Waiting = "waiting",
        /// The bucket lacks batches that are 5 seconds old.
        Lagging = "lagging",
        /// The bucket does not answer.
        Unreachable = "unreachable",
        /// The bucket refuses the credentials.
        Forbidden = "forbidden",
        /// Synchronous answers no longer wait for the bucket.
        Degraded = "degraded",
        /// The log has a gap until a new base is complete.
        Resync = "resync",
        /// A standby's disk is full.
        DiskFull = "disk_full",
    }
}

/// The newest base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BaseStatus {
    /// Slot.
    pub slot: u64,
    /// Time of the last batch in the base.
    #[serde(serialize_with = "iso::serialize")]
    pub taken_at: Timestamp,
    /// Size of its parts, in bytes.
    pub bytes: u64,
}

impl BaseStatus {
    /// Returns the base of a manifest.
    pub(super) fn of(manifest: &Manifest) -> Self {
        let bytes = manifest.parts.iter().map(|part| part.bytes).sum();
        Self { slot: manifest.slot, taken_at: manifest.taken_at, bytes }
    }
}

/// The status.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplicaStatus {
    /// Role of this process.
    pub role: Role,
    /// State of replication.
    pub state: State,
    /// `async` or `sync`.
    pub mode: &'static str,
    /// `manual` or `automatic`.
    pub failover: &'static str,
    /// Identifier of the replicated store.
    pub store: Option<String>,
    /// Epoch of the last slot.
    pub epoch: u64,
    /// Holder of the log.
    pub holder: Option<String>,
    /// The last slot that this process knows.
    pub slot: u64,
    /// Sequence of the last batch committed here.
    pub sequence: u64,
    /// Sequence of the last batch in the bucket.
    pub confirmed_sequence: u64,
    /// Age of the oldest batch that the bucket lacks. For a standby that is behind, the age of its last applied batch.
    pub lag_seconds: f64,
    /// Bytes of records that the bucket lacks.
    pub backlog_bytes: u64,
    /// Time of the last confirmation.
    #[serde(serialize_with = "iso::option::serialize")]
    pub last_confirmed_at: Option<Timestamp>,
    /// Milliseconds until the lease ends; `None` if it has no end.
    pub lease_left_ms: Option<u64>,
    /// The newest base.
    pub base: Option<BaseStatus>,
    /// The earliest time that `restore --at` reaches.
    #[serde(serialize_with = "iso::option::serialize")]
    pub restorable_from: Option<Timestamp>,
    /// Current error.
    pub error: Option<String>,
}

impl ReplicaStatus {
    /// Returns the status without replication.
    pub const fn off() -> Self {
        Self {
            role: Role::Off,
            state: State::Ok,
            mode: "async",
            failover: "manual",
            store: None,
            epoch: 0,
            holder: None,
            slot: 0,
            sequence: 0,
            confirmed_sequence: 0,
            lag_seconds: 0.0,
            backlog_bytes: 0,
            last_confirmed_at: None,
            lease_left_ms: None,
            base: None,
            restorable_from: None,
            error: None,
        }
    }
}
