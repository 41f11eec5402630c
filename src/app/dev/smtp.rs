//! The SMTP listener of `dev`: programs submit mail without TLS, with or without a login.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::app::cli::DevOptions;
use crate::app::cli_error::CliError;
use crate::app::daemon::Daemon;
use crate::base::secret::Secret;
use crate::net::submission::DevAccess;

/// Default address. If its port is taken, a free one is used: other mail catchers also listen on 1025.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1025);

/// Listens where the options say, or on a free port. Sessions without a login send with `key`. They are allowed for
/// this machine, and for the networks that may use `/dev` unless real mail is sent.
///
/// # Errors
/// No port could be bound, or not the one in the options.
pub(super) async fn listen(daemon: &mut Daemon, key: &str, options: &DevOptions) -> Result<SocketAddr, CliError> {
    let allow = if options.deliver { Vec::new() } else { options.allow.clone() };
    let may_skip_login =
        move |client: IpAddr| client.is_loopback() || allow.iter().any(|network| network.contains(client));
    let access = DevAccess { key: Secret::new(key), may_skip_login: Box::new(may_skip_login) };
    let (wanted, may_move) = (options.smtp_listen.unwrap_or(ADDRESS), options.smtp_listen.is_none());
    daemon.submission.listen_for_dev(wanted, may_move, access).await
}
