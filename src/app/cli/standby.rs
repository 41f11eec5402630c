//! `postrider standby` and `postrider promote`.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::args::DaemonArgs;
use super::session::client;
use super::{Console, EarlyExit, Services, found};
use crate::app::admin_client::{AdminClient, Ask};
use crate::app::cli_error::CliError;
use crate::app::exit::Exit;
use crate::app::standby::StandbyOptions;
use crate::http::standby::ACTIVE_UNSEEN;

const PROMOTE: &str = "promote the standby";
/// Number of tries, one second apart, for a promoted standby to accept mail.
const TRIES: u32 = 300;
const BETWEEN: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(super) struct StandbyArgs {
    /// The configuration file (or POSTRIDER_CONFIG; default: /etc/postrider/postrider.toml).
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The master key of the active machine (default: master.key of the data directory).
    #[arg(long, value_name = "FILE")]
    pub(super) master_key: Option<PathBuf>,
    /// Write a newline to this file descriptor once the whole log is applied.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(super) ready_fd: Option<i32>,
    /// Set aside a directory with records that the log lacks, and start over.
    #[arg(long)]
    pub(super) discard: bool,
}

#[derive(Debug, Args)]
pub(super) struct PromoteArgs {
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
    /// Promote even if the active machine may still run; it is deposed.
    #[arg(long)]
    pub(super) force: bool,
    /// Keep the queued mail on hold until `queue release`.
    #[arg(long)]
    pub(super) hold: bool,
    /// Serve without the bucket, if it is lost.
    #[arg(long)]
    pub(super) without_bucket: bool,
}

/// `postrider standby`.
pub(super) fn standby(args: StandbyArgs, console: &Console<'_>, services: &Services<'_>) -> Result<Exit, EarlyExit> {
    let read = found::to_serve(args.config, &console.environment, Path::new(found::PACKAGED));
    let config = read.and_then(|config| config.fit_to_mail().map(|()| config));
    let config = config.map_err(|cli_error| cli_error.ending(Exit::Usage))?;
    let StandbyArgs { master_key, ready_fd, discard, .. } = args;
    Ok((services.standby)(config, StandbyOptions { master_key, ready_fd, discard }))
}

/// `postrider promote`.
pub(super) fn promote(args: PromoteArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let client = client(args.daemon, &console.environment)?;
    if let Some(refusal) = not_promotable(&client.ask(Ask::get(PROMOTE, "/v1/replica", None))?.value) {
        return Err(refusal.into());
    }
    let body = |force: bool| json!({ "force": force, "hold": args.hold, "without_bucket": args.without_bucket });
    let asked = client.ask(Ask::post(PROMOTE, "/v1/replica/promote", None, Some(body(args.force))));
    let promoted = match asked {
        Err(cli_error) if cli_error.code() == Some(ACTIVE_UNSEEN) && confirmed(console)? => {
            client.ask(Ask::post(PROMOTE, "/v1/replica/promote", None, Some(body(true))))?
        }
        asked => asked?,
    };
    accepting(&client)?;
    let value = &promoted.value;
    match json {
        true => writeln!(console.out, "{}", promoted.text)?,
        false => write!(console.out, "{}", words(value))?,
    }
    Ok(Exit::Done)
}

const WHAT: &str = "cannot promote the standby";

/// Returns the reason why the process with this status can't be promoted; `None` for a standby.
fn not_promotable(status: &Value) -> Option<CliError> {
    let (exit, why, remedy) = match (status["role"].as_str(), status["state"].as_str()) {
        (Some("standby"), _) => return None,
        // The epoch is 0 until the claim.
        (Some("active"), Some("waiting" | "forbidden")) if status["epoch"] == 0 => (
            Exit::Unreachable,
            "no standby runs here: `postrider serve` waits for the bucket of its replica and has not claimed the log",
            "It claims the log once the bucket answers. `postrider replica status` shows why it waits.",
        ),
        (Some("active"), Some("waiting")) => (
            Exit::Conflict,
            "this is the active machine: it accepts mail, and sends once the lease of the previous machine is over",
            "Wait for `postrider replica status` to show the state ok.",
        ),
        (Some("active"), _) => {
            (Exit::Conflict, "this is the active machine", "Run `postrider promote` on the standby.")
        }
        (Some("deposed"), _) => (
            Exit::Conflict,
            "another machine claimed the log, and this one stops",
            "Run `postrider standby` here to follow that machine.",
        ),
        _ => (Exit::Unreachable, "no standby runs here", "Start `postrider standby` on this machine first."),
    };
    Some(CliError::new(exit, WHAT, why, remedy))
}

/// Asks whether the active machine is stopped. No answer means no.
fn confirmed(console: &mut Console<'_>) -> Result<bool, EarlyExit> {
    write!(console.err, "An idle active machine is not visible from here. Is it stopped? [y/N] ")?;
    console.err.flush()?;
    let mut answer = String::new();
    let input: &mut dyn Read = console.input;
    BufReader::new(input.take(64)).read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Waits until the promoted machine accepts mail.
fn accepting(client: &AdminClient) -> Result<(), EarlyExit> {
    for _ in 0..TRIES {
        let shown = client.ask(Ask::get(PROMOTE, "/v1/replica", None));
        // Between standby and service the socket has no listener.
        if shown.is_ok_and(|reply| matches!(reply.value["role"].as_str(), Some("active" | "off"))) {
            return Ok(());
        }
        std::thread::sleep(BETWEEN);
    }
    let why = "the promoted machine does not accept mail yet";
    Err(CliError::new(Exit::Conflict, WHAT, why, "See its log: another machine may have claimed the replica first.")
        .into())
}

fn words(value: &Value) -> String {
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    format!(
        "This machine is the active one, in epoch {}.\nIt has accepted mail since {} and sends mail from {} on.\n\
         {} messages are queued, {} of them due.\n",
        value["epoch"],
        text("accepting_at"),
        text("mailing_from"),
        value["queued"],
        value["due"],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_standby_can_be_promoted_and_other_processes_give_the_reason() {
        let refused = |role: &str, state: &str, epoch: u64| {
            let refusal = not_promotable(&json!({ "role": role, "state": state, "epoch": epoch }))?;
            Some((refusal.exit(), refusal.reason()))
        };
        assert_eq!(refused("standby", "unreachable", 0), None);
        let (exit, why) = refused("active", "waiting", 0).unwrap();
        assert!(exit == Exit::Unreachable && why.contains("has not claimed the log"), "{why}");
        let (exit, why) = refused("active", "waiting", 3).unwrap();
        assert!(exit == Exit::Conflict && why.contains("lease of the previous machine"), "{why}");
        let (exit, why) = refused("active", "forbidden", 3).unwrap();
        assert!(exit == Exit::Conflict && why.contains("this is the active machine"), "{why}");
        let (exit, why) = refused("deposed", "ok", 3).unwrap();
        assert!(exit == Exit::Conflict && why.contains("another machine claimed"), "{why}");
        assert_eq!(refused("off", "ok", 0).unwrap().0, Exit::Unreachable);
    }
}
