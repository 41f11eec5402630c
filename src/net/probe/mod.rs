//! Diagnostic probes of name servers, mail servers and certificates, each with a time limit. Used by `doctor` and by
//! the checks of alerts. Mail delivery has its own resolver, with caches.

pub mod certificate;
pub mod dns;
pub mod mail;
pub mod network;
pub mod policy;
pub mod submission;
