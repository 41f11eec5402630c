//! Floor 8: the program. Configuration, command line, and the wiring of everything below; no other floor imports it.

mod addresses;
pub mod admin_client;
mod alerts;
mod bounces;
mod certificate;
pub mod cli;
pub mod cli_error;
pub mod config;
pub mod daemon;
pub mod dev;
mod dispatcher;
pub mod doctor;
mod egress_routes;
pub mod environment;
pub mod exit;
#[cfg(test)]
mod fake_daemon;
pub mod init;
mod journal;
pub mod keeping;
pub mod listen;
mod lock;
mod locked_store;
mod logging;
mod metrics;
mod oidc;
mod recent_warnings;
mod reload;
mod replica_bucket;
mod replica_stranded;
mod replica_verify;
mod replication;
mod resolver;
mod run_marker;
mod runtime;
pub mod serve;
mod settings;
mod signals;
#[cfg(test)]
mod simulation;
pub mod standby;
mod store_open_report;
mod store_size;
mod submission;
mod supervisor;
mod web;
mod webhooks;
