//! The command line: parses it, runs the command and reports its result (contract 8).
//!
//! `main` passes the process's arguments, environment and streams, and the long-running commands as functions, so that
//! everything here can be tested without a process.

mod admin;
mod alert;
mod args;
mod dev;
mod found;
mod health;
mod keep;
mod keep_args;
mod listen;
mod mail;
mod mail_args;
mod replica;
mod send;
mod session;
mod setup;
mod setup_args;
mod show;
mod standby;
mod status;
#[cfg(test)]
mod tests;
mod users;
mod verify;
mod zone;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::ErrorKind;

use self::args::{Command, CommandLine, ConfigCommand, ServeArgs};
pub use self::dev::DevOptions;
use super::admin_client::{AdminClient, Ask};
use super::cli_error::CliError;
use super::config::{Config, EXAMPLE};
use super::environment::Environment;
use super::exit::Exit;
use super::standby::StandbyOptions;
use crate::store::open::OnJournalDamage;

/// Variable that names the configuration file if no option does.
const CONFIG_VARIABLE: &str = "POSTRIDER_CONFIG";
/// Variable that names the data directory if no option does.
const DATA_DIR_VARIABLE: &str = "POSTRIDER_DATA_DIR";

/// The commands that run until they are stopped.
pub struct Services<'s> {
    /// `serve`, with the file descriptor for the ready signal and the policy for a damaged journal.
    pub serve: &'s dyn Fn(Config, Option<i32>, OnJournalDamage) -> Exit,
    /// `dev`.
    pub dev: &'s dyn Fn(DevOptions) -> Exit,
    /// `standby`.
    pub standby: &'s dyn Fn(Config, StandbyOptions) -> Exit,
}

/// Input and outputs of a command.
pub struct Console<'c> {
    /// The environment.
    pub environment: Environment,
    /// Standard input.
    pub input: &'c mut dyn Read,
    /// Standard output, for results.
    pub out: &'c mut dyn Write,
    /// Standard error, for errors and notes.
    pub err: &'c mut dyn Write,
}

/// Early end of a command.
enum EarlyExit {
    /// An error for the operator.
    Error(CliError),
    /// The output can't be written any more.
    Output(io::Error),
}

impl From<CliError> for EarlyExit {
    fn from(cli_error: CliError) -> Self {
        Self::Error(cli_error)
    }
}

impl From<io::Error> for EarlyExit {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Runs the command in `arguments`. The first argument is the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>, console: &mut Console<'_>, services: &Services<'_>) -> Exit {
    let ended = match CommandLine::try_parse_from(arguments) {
        Ok(line) => dispatch(line, console, services),
        Err(error) => answer(&error, console),
    };
    match ended {
        Ok(exit) => exit,
        Err(EarlyExit::Error(cli_error)) => {
            // Without standard error the exit code still reports the failure.
            let _ = writeln!(console.err, "{cli_error}");
            cli_error.exit()
        }
        Err(EarlyExit::Output(why)) => {
            let _ = writeln!(console.err, "postrider: cannot write to standard output\n  {why}");
            Exit::Failed
        }
    }
}

/// Prints the parser's answer: help or version on request; anything else is a usage error.
fn answer(error: &clap::Error, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let text = error.render();
    if let ErrorKind::DisplayHelp | ErrorKind::DisplayVersion = error.kind() {
        write!(console.out, "{text}")?;
        return Ok(Exit::Done);
    }
    write!(console.err, "{text}")?;
    Ok(Exit::Usage)
}

fn dispatch(line: CommandLine, console: &mut Console<'_>, services: &Services<'_>) -> Result<Exit, EarlyExit> {
    let json = line.json;
    match line.command {
        Command::Serve(args) => serve(&args, console, services),
        Command::Standby(args) => standby::standby(args, console, services),
        Command::Promote(args) => standby::promote(args, json, console),
        Command::Dev(args) => dev::dev(*args, json, console, services),
        Command::Account(args) => admin::account(args, json, console),
        Command::Key(args) => admin::key(args, json, console),
        Command::Domain(args) => admin::domain(args, json, console),
        Command::Status(args) => admin::status(args, json, console),
        Command::Health(args) => health::health(args, json, console),
        Command::Init(args) => setup::init(args, json, console),
        Command::Doctor(args) => setup::doctor(args, json, console),
        Command::Completions(args) => setup::completions(&args, console),
        Command::Man(args) => setup::man(&args, console),
        Command::Webhook(args) => mail::webhook(args, json, console),
        Command::User(args) => users::user(args, json, console),
        Command::Suppression(args) => mail::suppression(args, json, console),
        Command::Message(args) => mail::message(args, json, console),
        Command::Event(args) => mail::event(args, json, console),
        Command::Queue(args) => admin::queue(args, json, console),
        Command::Clock(args) => admin::clock(args, json, console),
        Command::Alert(args) => alert::alert(args, json, console),
        Command::Backup(args) => keep::backup(args, json, console),
        Command::Restore(args) => keep::restore(args, json, console),
        Command::Check(args) => keep::check(args, json, console),
        Command::Replica(args) => replica::replica(args, json, console),
        Command::Config(ConfigCommand::Check { config }) => check(config, json, console),
        Command::Config(ConfigCommand::Example) => {
            console.out.write_all(EXAMPLE.as_bytes())?;
            Ok(Exit::Done)
        }
        Command::Version => {
            let version = env!("CARGO_PKG_VERSION");
            match json {
                true => writeln!(console.out, "{{\"version\":\"{version}\"}}")?,
                false => writeln!(console.out, "postrider {version}")?,
            }
            Ok(Exit::Done)
        }
    }
}

/// Runs `serve`. An unusable configuration has the exit code of an unusable command line, because a restart does not
/// help in either case. The supervisor must distinguish both from failures that a restart may fix
/// (`RestartPreventExitStatus=` of the unit).
fn serve(args: &ServeArgs, console: &Console<'_>, services: &Services<'_>) -> Result<Exit, EarlyExit> {
    let read = found::to_serve(args.config.clone(), &console.environment, Path::new(found::PACKAGED));
    let config = read.and_then(|config| config.fit_to_mail().map(|()| config));
    let mut config = config.map_err(|cli_error| cli_error.ending(Exit::Usage))?;
    if args.without_replica {
        config.replica.url = None;
    }
    let on_damage = match args.accept_journal_damage {
        true => OnJournalDamage::Accept,
        false => OnJournalDamage::Refuse,
    };
    Ok((services.serve)(config, args.ready_fd, on_damage))
}

/// Returns a warning if mails of alerts are not signed, as far as the running service knows.
fn unsigned_alerts(config: &Config) -> Option<String> {
    if !config.alerts.sends_mail() {
        return None;
    }
    let ask = Ask::get("read the status", "/v1/status", None);
    let status = AdminClient::new(&config.data_dir).ask(ask).ok();
    alert::unsigned(config, status.and_then(|reply| reply.value["alerts"]["signed"].as_bool()))
}

fn check(file: Option<PathBuf>, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let packaged = Path::new(found::PACKAGED);
    let file = found::file(file, &console.environment, packaged);
    let config = found::to_serve(file.clone(), &console.environment, packaged)?;
    let name = file.map_or_else(|| "of the environment".to_owned(), |file| file.display().to_string());
    config.fit_to_mail()?;
    let unreadable = config.unreadable_files();
    if !unreadable.is_empty() {
        let what = format!("cannot use the files in the configuration {name}");
        let remedy = "Create them, or let this user read them. Run the check as the user of the service.";
        return Err(CliError::with_reasons(Exit::Failed, what, unreadable, remedy).into());
    }
    let mut warnings: Vec<_> = config.warnings().into_iter().map(str::to_owned).collect();
    warnings.extend(unsigned_alerts(&config));
    if json {
        writeln!(console.out, "{}", serde_json::json!({ "valid": true, "warnings": warnings }))?;
        return Ok(Exit::Done);
    }
    writeln!(console.out, "The configuration {name} is valid")?;
    for warning in warnings {
        writeln!(console.out, "warning: {warning}")?;
    }
    Ok(Exit::Done)
}
