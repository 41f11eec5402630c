//! Operations: every change of the store, as plain data with a deterministic `apply`.
//!
//! An operation loads rows, asks a pure machine, saves rows, appends events, creates deliveries and arms timers. It
//! checks everything before it writes, so a refusal leaves its batch unchanged. It contains all data that the tables do
//! not have: sealed secrets, random bytes, the outcome to record.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::OpError;
use super::tables::Tables;

pub mod accept;
pub mod accept_all;
pub mod accept_each;
pub mod account;
pub mod admission;
pub mod alert;
mod alert_domain;
pub mod alert_quota;
pub mod alert_time;
pub mod audit;
pub mod bind_answer;
pub mod cancel;
pub mod clock_doubt;
pub mod dkim;
pub mod dmarc;
pub mod domain;
pub mod domain_change;
pub mod endpoint;
pub mod endpoint_end;
pub mod erase;
pub mod event;
pub mod identity;
pub mod invitation;
pub mod message_index;
pub mod notice;
pub mod outcomes;
pub mod outstanding;
pub mod pause;
pub mod redeliver;
pub mod release_queue;
pub mod replica_position;
pub mod report;
pub mod reputation;
pub mod saved_search;
pub mod session;
pub mod settle_delivery;
pub mod settle_tls_report;
pub mod settle_transfer;
pub mod stored_content;
pub mod suppression;
pub mod suppression_count;
pub mod suppression_import;
pub mod suspension;
pub mod sweep;
pub mod sweep_deliveries;
pub mod tls_policy;
pub mod tls_report;
pub mod unsubscribe;
pub mod user;
pub mod view;
pub mod waiting;
pub mod warm_up;

/// A change of the store.
pub trait Op: Serialize + DeserializeOwned + Send + 'static {
    /// Result that the caller receives after the commit.
    type Reply: Send + 'static;
    /// Business reason for a refusal.
    type Refusal: Send + 'static;

    /// Changes `tables`, or returns the reason for a refusal. Depends only on the operation, the tables and their
    /// moment.
    ///
    /// # Errors
    /// The refusal or a store failure.
    fn apply(&self, tables: &mut Tables<'_>) -> Result<Self::Reply, OpError<Self::Refusal>>;
}

/// Refusal type of operations that are never refused.
pub use std::convert::Infallible;

/// Error: the object does not exist, or belongs to another account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotFound;
