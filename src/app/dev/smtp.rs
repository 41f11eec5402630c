//! `dev`'s SMTP listener: programs submit mail in the clear, with or without a login.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::app::daemon::Daemon;
use crate::app::trouble::Trouble;
use crate::base::secret::Secret;
use crate::net::submission::DevDoor;

/// Where it listens, or at a free port where this one is taken. Mail catchers listen at 1025 too.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1025);

/// Begins to listen. A session without a login sends with `key`.
///
/// # Errors
/// No port could be bound.
pub(super) async fn listen(daemon: &mut Daemon, key: &str) -> Result<SocketAddr, Trouble> {
    let door = DevDoor { key: Secret::new(key), may_skip_login: Box::new(|client| client.is_loopback()) };
    daemon.submission.listen_for_dev(ADDRESS, true, door).await
}
