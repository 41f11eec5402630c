//! The pages: each reads what was asked, has the engine do it, and shows what came of it.

pub(super) mod appearance;
pub(super) mod error;
pub(super) mod events;
pub(super) mod login;
pub(super) mod me;
pub(super) mod message;
pub(super) mod messages;
pub(super) mod overview;
pub(super) mod proof;
pub(super) mod queue;
pub(super) mod second_factor;
pub(super) mod settings;
pub(super) mod users;
