//! `postrider alert ...`: alerts of the service and of every account, their checks and their test.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::args::{DaemonArgs, PageArgs};
use super::session::{client, listed, no_such, object, print};
use super::show::Shape;
use super::{Console, EarlyExit};
use crate::app::admin_client::Ask;
use crate::app::config::Config;
use crate::app::exit::Exit;

/// The list's path.
const ALERTS: &str = "/v1/operator/alerts";

#[derive(Debug, Args)]
pub(super) struct AlertArgs {
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
    #[command(subcommand)]
    pub(super) command: AlertCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum AlertCommand {
    /// List the alerts of the service and of every account.
    List {
        #[command(flatten)]
        page: PageArgs,
        /// Only open or resolved alerts.
        #[arg(long, value_parser = ["open", "resolved"])]
        state: Option<String>,
        /// Only alerts of this condition.
        #[arg(long)]
        condition: Option<String>,
    },
    /// Show one alert.
    Show {
        /// Alert ID.
        id: String,
    },
    /// Run every check now, and print the alerts that it opened and resolved.
    Check,
    /// Send a test to the addresses and the webhook of `[alerts]`; exits with 1 if one failed.
    Test,
}

/// Runs the command.
pub(super) fn alert(args: AlertArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let client = client(args.daemon, &console.environment)?;
    match args.command {
        AlertCommand::List { page, state, condition } => {
            let filters = [("state", &state), ("condition", &condition)];
            let path = listed(ALERTS, &page, &filters);
            print(&client.ask(Ask::get("list the alerts", path, None))?, Shape::Alerts, json, console)
        }
        AlertCommand::Show { id } => {
            let asked = client.ask(Ask::get("show the alert", object(ALERTS, &id), None));
            let reply = asked.map_err(|cli_error| match cli_error.exit() {
                Exit::NotFound => no_such("alert", &id, cli_error),
                _ => cli_error,
            })?;
            print(&reply, Shape::Alert, json, console)
        }
        AlertCommand::Check => {
            let reply = client.ask(Ask::post("run the checks", format!("{ALERTS}/check"), None, None))?;
            print(&reply, Shape::AlertChanges, json, console)
        }
        AlertCommand::Test => {
            let reply = client.ask(Ask::post("test the alerts", format!("{ALERTS}/test"), None, None))?;
            let has_failed = reply.value["results"].as_array().into_iter().flatten().any(is_failure);
            print(&reply, Shape::AlertTests, json, console)?;
            Ok(if has_failed { Exit::Failed } else { Exit::Done })
        }
    }
}

fn is_failure(result: &Value) -> bool {
    result["status"] != "sent"
}

/// Returns a warning if mails of alerts are not signed. Whether they are is known only if the service runs.
pub(super) fn unsigned(config: &Config, signed: Option<bool>) -> Option<String> {
    let domain = config.alerts_from().domain().to_string();
    match signed {
        Some(false) if config.alerts.sends_mail() => Some(format!(
            "alerts.from: the domain {domain} is not verified here, so alerts are not signed and receivers may refuse \
             them. Add it as a sending domain and verify it."
        )),
        None if !config.alerts.email.is_empty() => Some(format!(
            "alerts.from: alerts are signed only if {domain} is a verified sending domain. The service does not run, \
             so this was not checked."
        )),
        Some(_) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::environment::Environment;
    use serde_json::json;

    #[test]
    fn unsigned_mail_to_the_operator_or_to_owners_is_a_warning() {
        let warns = |alerts: &str, signed| {
            let text = format!("hostname = \"mail.example.com\"\n[alerts]\n{alerts}");
            unsigned(&Config::parse(&text, "p.toml", &Environment::default()).unwrap(), signed).is_some()
        };
        for (alerts, unsigned, unchecked) in [
            ("email = [\"ops@example.net\"]", true, true),
            ("owners = true", true, false),
            ("owners = false", false, false),
        ] {
            let found = [Some(true), Some(false), None].map(|signed| warns(alerts, signed));
            assert_eq!(found, [false, unsigned, unchecked], "{alerts}");
        }
    }

    #[test]
    fn an_unsent_test_is_a_failure() {
        assert!(!is_failure(&json!({ "status": "sent" })));
        assert!(is_failure(&json!({ "status": "failed" })) && is_failure(&json!({})));
    }
}
