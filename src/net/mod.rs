//! Floor 6: sockets, DNS, TLS, the real clock and entropy: the engine's ports made real.

mod broken_tls;
mod mail_tls;
mod smtp_session;
pub mod transmit;
