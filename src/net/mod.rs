//! Floor 6: the outside world. Sockets, DNS, TLS, the real clock and entropy; it implements the ports that the
//! engine asks through. Nothing above or below opens a socket.

pub mod admin_socket;
mod broken_tls;
pub mod clock;
pub mod dev;
pub mod dns;
pub mod entropy;
pub mod guard;
mod http_activity;
pub mod http_body;
mod http_connection;
pub mod http_listener;
mod mail_tls;
pub mod post;
pub mod probe;
pub mod smtp_listener;
mod smtp_session;
pub mod source;
pub mod tls;
pub mod tls_settings;
pub mod transmit;
