//! Floor 6: sockets, names, TLS. The only floor that touches the network.

pub mod dev;
pub mod smtp_listener;
