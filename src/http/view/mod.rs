//! The JSON of the API's records: structs whose fields are exactly the contract's, in the same order. They borrow rows
//! and are serialised at once.

pub(super) mod account;
pub(super) mod alert;
pub(super) mod checklist;
pub(super) mod clock;
pub(crate) mod dmarc;
pub(crate) mod dmarc_reporters;
pub(super) mod domain;
pub(super) mod endpoint;
pub(super) mod explain;
pub(super) mod message;
pub(crate) mod providers;
pub(super) mod queue;
pub(super) mod reputation;
pub(super) mod status;
pub(super) mod submission;
pub(super) mod suppression;
pub(super) mod user;
