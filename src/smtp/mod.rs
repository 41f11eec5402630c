//! Floor 3: the SMTP protocol without a socket: client, server, replies, and what a reply means.

pub mod capabilities;
pub mod client;
pub mod deadlines;
pub mod dot;
pub mod outcome;
pub mod reply;
mod transaction;
