#![doc = include_str!("ARCHITECTURE.md")]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used))]

pub mod app;
pub mod base;
pub mod domain;
pub mod engine;
pub mod http;
pub mod machine;
pub mod mail;
pub mod net;
pub mod panel;
pub mod smtp;
pub mod store;
