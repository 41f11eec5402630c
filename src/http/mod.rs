//! Floor 7: the API. One route table drives dispatch, authentication, scopes and the access log. Handlers get checked
//! requests and return an [`answer::Answer`] or an [`error::ApiError`].

pub mod answer;
mod answer_budget;
pub mod api;
mod authenticator;
pub mod body;
pub mod body_budget;
mod byte_list;
pub mod compat;
pub mod csv;
pub mod dev;
pub mod dev_guard;
pub mod error;
pub mod error_page;
pub(crate) mod event_stream;
pub(crate) mod handlers;
mod head_limit;
mod html;
pub mod json;
pub mod meters;
pub mod metrics;
pub(crate) mod openapi;
pub mod pages;
mod parts_body;
pub mod query;
mod request_context;
pub mod route;
pub mod router;
pub(crate) mod row_export;
pub mod sent_forms;
pub mod service;
pub mod standby;
pub mod state;
pub mod status;
pub(crate) mod suppression_export;
#[cfg(test)]
mod tests;
pub(crate) mod view;
