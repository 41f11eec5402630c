//! Floor 6: the outside world. Sockets, DNS, TLS, the real clock and entropy; it implements the ports that the
//! engine asks through. Nothing above or below opens a socket.

pub mod acme;
pub mod admin_socket;
pub mod bounce_receiver;
mod broken_tls;
pub mod certificate_files;
pub mod clear_http;
pub mod clock;
mod dane;
pub mod dev;
pub mod dns;
pub mod entropy;
pub mod event_source;
pub mod forward;
pub mod guard;
pub mod handed_over;
pub mod hook_listener;
mod http_activity;
pub mod http_body;
pub mod http_client;
mod http_connection;
mod http_crowd;
mod http_guard;
pub mod http_listener;
mod http_places;
mod http_stream;
mod mail_tls;
pub mod mta_sts;
pub mod post;
pub mod probe;
pub mod smtp_listener;
mod smtp_session;
pub mod source;
pub mod submission;
pub mod tls;
pub mod tls_settings;
pub mod transmit;
