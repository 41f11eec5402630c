//! Floor 6: the outside world. Sockets, DNS, TLS, the real clock and entropy; it implements the ports that the
//! engine asks through. Nothing above or below opens a socket.

pub mod clock;
pub mod dns;
pub mod entropy;
pub mod guard;
pub mod post;
pub mod tls;
//! Floor 6: sockets, names, TLS. The only floor that touches the network.

pub mod dev;
pub mod smtp_listener;
//! Floor 6: sockets, DNS, TLS, the real clock and entropy: the engine's ports made real.

mod broken_tls;
mod mail_tls;
mod smtp_session;
pub mod transmit;
