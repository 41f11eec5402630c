//! `postrider health`: whether the service is ready, for container supervisors. It requests `/readyz` over the
//! operator's socket, or at a URL.

use std::io;
use std::time::Duration;

use clap::Args;
use hyper::Method;
use serde_json::Value;
use url::Url;

use super::args::DaemonArgs;
use super::session::client;
use super::{Console, EarlyExit};
use crate::app::cli_error::CliError;
use crate::app::exit::Exit;
use crate::net::admin_socket::{self, AdminReply, AdminRequest};
use crate::net::webhook_forward;

const PATH: &str = "/readyz";
/// Maximum time for the whole check.
const DEADLINE: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub(super) struct HealthArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    /// Check the service at this URL instead of the one on this machine.
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
}

/// Prints `ready`, or the reason why not.
pub(super) fn health(args: HealthArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let (whom, asked) = match args.url {
        Some(url) => {
            let url = ready_url(url);
            (url.to_string(), at_url(url))
        }
        None => {
            let socket = client(args.daemon, &console.environment)?.socket().to_owned();
            let request = AdminRequest { method: Method::GET, path: PATH.to_owned(), account: None, body: None };
            (socket.display().to_string(), admin_socket::ask(&socket, request, DEADLINE))
        }
    };
    let reply = asked.map_err(|error| unreachable(&whom, &error))?;
    match (reply.status, json) {
        (200, true) => writeln!(console.out, "{{\"status\":\"ready\"}}")?,
        (200, false) => writeln!(console.out, "ready")?,
        (_, _) => return Err(not_ready(&reply).into()),
    }
    Ok(Exit::Done)
}

/// Returns the URL of the check for a base URL or for its own.
fn ready_url(mut url: Url) -> Url {
    let base = url.path().trim_end_matches('/');
    if !base.ends_with(PATH) {
        let path = format!("{base}{PATH}");
        url.set_path(&path);
    }
    url
}

fn at_url(url: Url) -> io::Result<AdminReply> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (status, body) = runtime.block_on(webhook_forward::get(url, DEADLINE)).map_err(io::Error::other)?;
    Ok(AdminReply { status, body })
}

fn unreachable(whom: &str, error: &io::Error) -> CliError {
    let why = format!("no answer from {whom}: {error}");
    let remedy = "Start the service, or select it with --data-dir, --config or --url.";
    CliError::new(Exit::Unreachable, "not reachable", why, remedy)
}

fn not_ready(reply: &AdminReply) -> CliError {
    let answer: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let why = answer["message"].as_str().map_or_else(|| format!("it answered {}", reply.status), str::to_owned);
    CliError::new(Exit::Failed, "not ready", why, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_and_the_url_of_the_check_are_equivalent() {
        for (given, asked) in [
            ("http://127.0.0.1:8025", "http://127.0.0.1:8025/readyz"),
            ("http://127.0.0.1:8025/", "http://127.0.0.1:8025/readyz"),
            ("https://mail.example.com/readyz", "https://mail.example.com/readyz"),
            ("https://example.com/mail/", "https://example.com/mail/readyz"),
        ] {
            assert_eq!(ready_url(given.parse().unwrap()).as_str(), asked);
        }
    }
}
