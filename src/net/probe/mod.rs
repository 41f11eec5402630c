//! Looking at the world for an operator: what name servers, mail servers and certificates say, each as it is and each
//! within a bounded time. Used by `doctor` alone; the service has its own ways, with caches and policies.

pub mod certificate;
pub mod dns;
pub mod mail;
pub mod policy;
pub mod submission;
