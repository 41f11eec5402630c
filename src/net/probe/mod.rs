//! Looking at the world for an operator: what name servers, mail servers and certificates say, each as it is and each
//! within a bounded time. Used by `doctor` and by the checks of alerts; mail has its own resolver, with caches.

pub mod certificate;
pub mod dns;
pub mod mail;
pub mod network;
pub mod policy;
pub mod submission;
