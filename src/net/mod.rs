//! Floor 6: sockets, names, TLS, the real clock and chance. It implements the engine's ports, and opens every socket.

mod http_activity;
pub mod http_body;
mod http_connection;
pub mod http_listener;
pub mod tls_settings;
