//! Floor 3: the SMTP protocol without a socket: client, server, replies, and the meaning of replies.

pub mod capabilities;
pub mod category;
pub mod client;
pub mod deadlines;
pub mod dot;
pub mod finding;
pub mod mta_sts;
pub mod outcome;
mod pattern;
pub mod provider_guide;
pub mod reply;
pub mod rules;
pub mod server;
pub mod shaping;
pub mod tls_policy;
pub mod tls_rpt;
pub mod tlsa;
mod transaction;
pub mod transcript;
pub mod verdict;
