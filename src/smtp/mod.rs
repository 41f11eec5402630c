//! Floor 3: the SMTP protocol without a socket: client, server, replies, and what a reply means.

pub mod outcome;
pub mod reply;
pub mod server;
