//! Floor 1: what the program talks about, as parsed types and limits. Whoever holds one of these holds proof
//! that its text was checked; nothing below the edges passes raw strings on.

pub mod address;
pub mod event;
pub mod hostname;
pub mod network;
pub mod stream;
pub mod violation;
pub mod webhook_url;
