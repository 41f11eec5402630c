//! The commands for backups: `backup`, `restore` and `check`.

use std::path::PathBuf;

use serde::Serialize;

use super::args::DaemonArgs;
use super::keep_args::{BackupArgs, CheckArgs, RestoreArgs};
use super::session::{client, data_dir};
use super::{Console, EarlyExit, found};
use crate::app::cli_error::CliError;
use crate::app::config::Config;
use crate::app::environment::Environment;
use crate::app::exit::Exit;
use crate::app::keeping::Progress;
use crate::app::keeping::backup::{self, FinishedBackup};
use crate::app::keeping::check;
use crate::app::keeping::restore::{self, FinishedRestore};
use crate::app::keeping::restore_replica::{self, ReplicaRestore};
use crate::store::backup::Extent;
use crate::store::check::Report;

const MIB: f64 = 1024.0 * 1024.0;

/// `postrider backup FILE`.
pub(super) fn backup(args: BackupArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let client = client(args.daemon, &console.environment)?;
    let extent = Extent { content: args.with_content, master_key: args.with_key };
    let taken = backup::take(&client, &args.file, extent, Progress::new("backup", console.err))?;
    print(&taken, describe_backup, json, console)
}

fn describe_backup(taken: &FinishedBackup) -> String {
    let FinishedBackup { file, taken_at, bytes, rows, .. } = taken;
    let content = match taken.with_content {
        true => "It contains message bodies.",
        false => "It does not contain message bodies: its queued mail fails when it is restored and released.",
    };
    let key = match taken.with_key {
        true => "It contains the master key: anyone who has the file can read every secret in it.",
        false => {
            "It does not contain the master key: keep master.key in another place. Nothing can be restored without it."
        }
    };
    format!(
        "Backed up {rows} rows as of {taken_at} to {} ({:.1} MiB).\n{content}\n{key}\n",
        file.display(),
        *bytes as f64 / MIB
    )
}

/// `postrider restore FILE`.
pub(super) fn restore(args: RestoreArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let config_file = args.config.clone();
    let daemon = DaemonArgs { data_dir: args.data_dir, config: args.config };
    let directory = data_dir(daemon, &console.environment)?;
    let Some(directory) = directory else {
        return Err(CliError::new(
            Exit::Usage,
            "cannot restore the backup",
            "no directory to restore into is set",
            "Set --data-dir to a directory that is empty or does not exist yet.",
        )
        .into());
    };
    if let Some(url) = args.file.to_str().filter(|file| file.starts_with("s3://")) {
        let config = replica_config(config_file, &console.environment)?;
        let options =
            ReplicaRestore { url, at: args.at.as_deref(), key: args.master_key.as_deref(), release: args.release };
        let restored = restore_replica::run(&config, &options, &directory, Progress::new("restore", console.err))?;
        return print(&restored, describe_restore, json, console);
    }
    if args.at.is_some() || args.release {
        let (why, remedy) = ("--at and --release only apply to a replica", "Write the replica as s3://bucket/prefix.");
        return Err(CliError::new(Exit::Usage, "cannot restore the backup", why, remedy).into());
    }
    let progress = Progress::new("restore", console.err);
    let restored = restore::run(&args.file, &directory, args.master_key.as_deref(), progress)?;
    print(&restored, describe_restore, json, console)
}

fn describe_restore(restored: &FinishedRestore) -> String {
    let FinishedRestore { data_dir, backup_at, rows, messages, deliveries, .. } = restored;
    format!(
        "Restored {rows} rows as of {backup_at} into {}.\n\
         {messages} messages and {deliveries} webhook deliveries are on hold: they may have been sent since.\n\
         Next:\n\
         \x20 with [replica], set replica.url to a new prefix: this directory does not continue the log\n\
         \x20 start the service; mail that it accepts from now on is sent as usual\n\
         \x20 postrider queue list        shows the queued mail\n\
         \x20 postrider queue release     sends the mail on hold\n",
        data_dir.display(),
    )
}

/// Returns the configuration for reaching the bucket; the defaults without a file.
fn replica_config(file: Option<PathBuf>, environment: &Environment) -> Result<Config, EarlyExit> {
    found::configuration(file, environment)
}

/// `postrider check`.
pub(super) fn check(args: CheckArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let progress = Progress::new("check", console.err);
    let report = match args.backup {
        Some(file) => check::backup(&file, progress)?,
        None => {
            let directory = data_dir(args.daemon, &console.environment)?;
            check::directory(&directory.unwrap_or_else(|| Config::default().data_dir), progress)?
        }
    };
    let exit = if report.failed == 0 { Exit::Done } else { Exit::ChecksFailed };
    print(&report, describe_check, json, console)?;
    Ok(exit)
}

fn describe_check(report: &Report) -> String {
    let mut text = String::new();
    for (table, rows) in report.rows.iter().filter(|(_, rows)| **rows > 0) {
        text.push_str(&format!("{table}: {rows}\n"));
    }
    let Report { segments, bodies, bodies_left_out, bodies_unread, failed, .. } = report;
    text.push_str(&format!(
        "content: {segments} segments, {bodies} bodies read, {bodies_left_out} not in the backup, \
         {bodies_unread} not read because the master key is missing\n"
    ));
    for failure in &report.failures {
        text.push_str(&format!("FAIL {}\n", failure.what));
    }
    text.push_str(&match failed {
        0 => "No errors found.\n".to_owned(),
        _ => format!("{failed} failures.\n"),
    });
    text
}

fn print<T: Serialize>(
    done: &T,
    summary: impl FnOnce(&T) -> String,
    json: bool,
    console: &mut Console<'_>,
) -> Result<Exit, EarlyExit> {
    match json {
        true => writeln!(console.out, "{}", serde_json::to_string(done).map_err(std::io::Error::from)?)?,
        false => write!(console.out, "{}", summary(done))?,
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests;
