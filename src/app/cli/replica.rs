//! `postrider replica`: commands about the replica in the bucket.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use serde_json::Value;

use super::args::DaemonArgs;
use super::session::client;
use super::{Console, DATA_DIR_VARIABLE, EarlyExit, found};
use crate::app::admin_client::{Ask, Reply};
use crate::app::cli_error::CliError;
use crate::app::config::Config;
use crate::app::exit::Exit;
use crate::app::{replica_stranded, replica_verify};
use crate::engine::bucket::verify::Report;
use crate::store::replica::stranded::{DroppedBatches, Stranded, StrandedMessage};

#[derive(Debug, Args)]
pub(super) struct ReplicaArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(subcommand)]
    command: ReplicaCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum ReplicaCommand {
    /// Show the state of replication; exits with 0 (ok), 7 (not ok) or 4 (not reachable).
    Status,
    /// Create a base now, and remove the objects that it replaces.
    Base,
    /// List messages and outcomes that this deposed directory has and the log lacks; exits with 3 if there are none,
    /// and with 1 if some can't be listed.
    Stranded,
    /// Check names, order, sizes and hashes of the objects in the bucket; exits with 7 if there are findings.
    Verify {
        /// Also open every object with the master key.
        #[arg(long)]
        deep: bool,
        /// The master key (default: master.key of the data directory).
        #[arg(long, value_name = "FILE")]
        master_key: Option<PathBuf>,
    },
}

/// `postrider replica COMMAND`.
pub(super) fn replica(args: ReplicaArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let ReplicaArgs { daemon, command } = args;
    match command {
        ReplicaCommand::Status => status(daemon, json, console),
        ReplicaCommand::Base => base(daemon, json, console),
        ReplicaCommand::Stranded => stranded(daemon, json, console),
        ReplicaCommand::Verify { deep, master_key } => verify(daemon, deep, master_key, json, console),
    }
}

fn status(daemon: DaemonArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let reply = client(daemon, &console.environment)?.ask(Ask::get("show the replica", "/v1/replica", None))?;
    show_status(&reply, json, console)?;
    // The contract fixes both words.
    Ok(if reply.value["state"] == "ok" { Exit::Done } else { Exit::ChecksFailed })
}

fn base(daemon: DaemonArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let purpose = "create a base";
    let client = client(daemon, &console.environment)?;
    let reply = client.ask(Ask::post(purpose, "/v1/replica/base", None, None))?;
    if reply.value["role"] != "active" {
        let remedy = "Set replica.url, or run the command on the active machine.";
        let why = "this service does not write a replica";
        return Err(CliError::new(Exit::Unreachable, format!("cannot {purpose}"), why, remedy).into());
    }
    show_status(&reply, json, console)?;
    Ok(Exit::Done)
}

fn show_status(reply: &Reply, json: bool, console: &mut Console<'_>) -> Result<(), EarlyExit> {
    if json {
        writeln!(console.out, "{}", reply.text)?;
        return Ok(());
    }
    for (name, value) in reply.value.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::String(text) => writeln!(console.out, "{name}: {text}")?,
            Value::Object(members) => {
                let words: Vec<_> = members.iter().map(|(name, value)| format!("{name} {value}")).collect();
                writeln!(console.out, "{name}: {}", words.join(", "))?;
            }
            value => writeln!(console.out, "{name}: {value}")?,
        }
    }
    Ok(())
}

fn verify(
    daemon: DaemonArgs,
    deep: bool,
    master_key: Option<PathBuf>,
    json: bool,
    console: &mut Console<'_>,
) -> Result<Exit, EarlyExit> {
    let config = offline(daemon, console)?;
    let report = replica_verify::run(&config, master_key.as_deref(), &console.environment, deep)?;
    match json {
        true => writeln!(console.out, "{}", serde_json::to_string(&report).map_err(std::io::Error::from)?)?,
        false => write!(console.out, "{}", words(&report))?,
    }
    Ok(if report.ok { Exit::Done } else { Exit::ChecksFailed })
}

/// Returns the configuration of a command that needs no running service.
fn offline(daemon: DaemonArgs, console: &Console<'_>) -> Result<Config, EarlyExit> {
    let mut config = found::configuration(daemon.config, &console.environment)?;
    if let Some(directory) = daemon.data_dir.or_else(|| console.environment.path(DATA_DIR_VARIABLE)) {
        config.data_dir = directory;
    }
    Ok(config)
}

fn stranded(daemon: DaemonArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let found = replica_stranded::run(&offline(daemon, console)?)?;
    if let Some(dropped) = &found.dropped {
        writeln!(console.err, "{}", dropped_words(dropped))?;
    }
    match json {
        true => writeln!(console.out, "{}", page(&found))?,
        false => write!(console.out, "{}", stranded_words(&found))?,
    }
    Ok(match &found.dropped {
        // The list lacks the messages of these batches.
        Some(DroppedBatches { after: None, .. }) => Exit::Failed,
        None if found.messages.is_empty() => Exit::NotFound,
        Some(_) | None => Exit::Done,
    })
}

/// Describes batches whose records are gone.
fn dropped_words(dropped: &DroppedBatches) -> String {
    let DroppedBatches { from, to, count, after, until } = dropped;
    let what = format!("The records of {count} of the batches {from} to {to} are not kept any more.");
    match after {
        Some(after) => format!(
            "{what} The list contains all messages that were created or changed their status from {after} to {until}, \
             and those of the minute before, which the log may have."
        ),
        None => format!(
            "{what} Their messages are not listed, because the log does not show when batch {from} was committed. The \
             last one was committed at {until}."
        ),
    }
}

fn page(found: &Stranded) -> Value {
    let row = |message: &StrandedMessage| {
        serde_json::json!({
            "id": message.id.to_string(),
            "kind": message.kind.as_str(),
            "to": message.to.to_string(),
            "status": message.status.as_str(),
            "created_at": message.created_at.to_string(),
        })
    };
    let dropped = found.dropped.map(|DroppedBatches { from, to, count, after, until }| {
        let after = after.map(|after| after.to_string());
        serde_json::json!({ "from": from, "to": to, "count": count, "after": after, "until": until.to_string() })
    });
    let data: Vec<_> = found.messages.iter().map(row).collect();
    serde_json::json!({ "data": data, "next_cursor": null, "dropped_batches": dropped })
}

fn stranded_words(found: &Stranded) -> String {
    let mut text = String::new();
    for StrandedMessage { id, kind, to, status, created_at } in &found.messages {
        text.push_str(&format!("{} {id} {} {to} {created_at}\n", kind.as_str(), status.as_str()));
    }
    if *found == Stranded::default() { "The log has everything.\n".to_owned() } else { text }
}

fn words(report: &Report) -> String {
    let mut text = format!("{} slots, {} bases\n", report.slots, report.bases);
    for finding in &report.findings {
        // Names come from the bucket: escape control characters, which could move the cursor.
        let object: String = finding.object.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        text.push_str(&format!("FAIL {object}: {}\n", finding.problem));
    }
    text.push_str(&match report.findings.len() {
        0 => "No errors found.\n".to_owned(),
        count => format!("{count} problems.\n"),
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::bucket::verify::Finding;

    #[test]
    fn a_report_lists_its_findings_and_their_count() {
        let finding = Finding { object: "log/\u{1b}1".to_owned(), problem: "is missing".to_owned() };
        let report = Report { ok: false, slots: 3, bases: 1, findings: vec![finding] };
        assert_eq!(words(&report), "3 slots, 1 bases\nFAIL log/?1: is missing\n1 problems.\n");
        let whole = Report { ok: true, slots: 3, bases: 1, findings: Vec::new() };
        assert_eq!(words(&whole), "3 slots, 1 bases\nNo errors found.\n");
    }
}
