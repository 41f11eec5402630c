//! Floor 8: the program. Configuration, command line, and the wiring of everything below; no other floor imports it.

mod addresses;
pub mod admin_client;
mod alerts;
mod bounces;
#[cfg(test)]
mod canned;
mod certificate;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod dev;
mod dispatcher;
pub mod doctor;
pub mod environment;
pub mod exit;
mod ground;
pub mod init;
mod journal;
pub mod keeping;
pub mod listen;
mod lock;
mod logging;
mod metrics;
mod oidc;
mod opening;
mod recent;
mod reload;
mod replica_bucket;
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
mod store_size;
mod submission;
mod supervisor;
pub mod trouble;
mod ways;
mod web;
mod webhooks;
