//! The output of `dev` when it is ready: a line for programs, or instructions for the first message.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;

use serde::Serialize;

use super::furnish::Credentials;
use crate::app::addresses::reachable;
use crate::app::cli::DevOptions;
use crate::app::daemon::Daemon;

/// The line that `--json` prints.
#[derive(Debug, Serialize)]
struct ReadyLine<'a> {
    url: &'a str,
    api_key: &'a str,
    marketing_api_key: &'a str,
    account_id: &'a str,
    panel_url: &'a str,
    panel_user: &'a str,
    panel_password: &'a str,
    smtp_url: &'a str,
    data_dir: &'a Path,
    webhook_secret: Option<&'a str>,
    domains: &'a [String],
}

#[expect(clippy::print_stdout, reason = "dev prints only its result")]
pub(super) fn announce(
    options: &DevOptions,
    daemon: &Daemon,
    made: &Credentials,
    smtp: SocketAddr,
    directory: &Path,
) -> io::Result<()> {
    let smtp_url = format!("smtp://{}", reachable(smtp));
    let address = daemon.http_addresses.first().copied().unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    let scheme = if daemon.serves_tls() { "https" } else { "http" };
    let url = format!("{scheme}://{}", reachable(address));
    let panel_url = format!("{url}/login");
    if options.json {
        let line = ReadyLine {
            url: &url,
            api_key: &made.api_key,
            marketing_api_key: &made.marketing_api_key,
            account_id: &made.account_id,
            panel_url: &panel_url,
            panel_user: &made.panel_user,
            panel_password: &made.panel_password,
            smtp_url: &smtp_url,
            data_dir: directory,
            webhook_secret: made.webhook_secret.as_deref(),
            domains: &made.domains,
        };
        println!("{}", serde_json::to_string(&line)?);
    } else {
        println!("{}", words(&url, &smtp_url, made, directory, options.deliver));
    }
    io::stdout().flush()
}

/// Returns a path in shell syntax.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

fn words(url: &str, smtp_url: &str, made: &Credentials, directory: &Path, deliver: bool) -> String {
    let mail = if deliver { "really sent" } else { "captured" };
    let (user, password) = (&made.panel_user, &made.panel_password);
    format!(
        "Postrider is ready at {url}\n\
         \n\
         Panel              {url}/login?email={user}\n\
         password           {password}   (of {user})\n\
         SMTP               {smtp_url}   (with or without a login)\n\
         API key            {}\n\
         marketing API key  {}\n\
         data directory     {}\n\
         \n\
         Send a message (it is {mail}):\n\
         \n\
         curl {url}/v1/messages -H 'Authorization: Bearer {}' -H 'Content-Type: application/json' \\\n  \
         -d '{{\"from\": \"hello@example.test\", \"to\": \"you@example.org\", \"subject\": \"Hello\", \
         \"text\": \"It works.\"}}'\n\
         \n\
         Captured mail: curl {url}/dev/mail\n\
         \n\
         To use other commands (postrider message list, ...) with it, first run:\n\
         \n\
         export POSTRIDER_DATA_DIR={}",
        made.api_key,
        made.marketing_api_key,
        directory.display(),
        made.api_key,
        quoted(directory),
    )
}
