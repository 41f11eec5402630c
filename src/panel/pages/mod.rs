//! The pages: each reads what was asked, has the engine do it, and shows what came of it.

pub(super) mod appearance;
pub(super) mod audit;
pub(super) mod delivery;
pub(super) mod docs;
pub(super) mod domain;
pub(super) mod domains;
pub(super) mod error;
pub(super) mod key;
pub(super) mod keys;
pub(super) mod login;
pub(super) mod me;
pub(super) mod message;
pub(super) mod messages;
pub(super) mod overview;
pub(super) mod proof;
pub(super) mod second_factor;
pub(super) mod settings;
pub(super) mod suppression;
pub(super) mod suppression_import;
pub(super) mod suppressions;
pub(super) mod users;
pub(super) mod webhook;
pub(super) mod webhook_changes;
pub(super) mod webhooks;
