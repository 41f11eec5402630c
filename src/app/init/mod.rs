//! `postrider init`: creates a configuration, a store with an account, its key and its panel user, and prints the DNS
//! records to publish (contract 8). The daemon does not run yet, so the store is opened here, under its lock.
//!
//! An existing configuration is kept and used; an existing store is never changed.

mod records;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

pub use self::records::Record;
use super::cli_error::CliError;
use super::config::{Config, EXAMPLE};
use super::environment::Environment;
use super::exit::Exit;
use super::lock::DirectoryLock;
use super::locked_store::LockedStore;
use super::runtime;
use super::store_open_report::Start;
use crate::base::id::AccountId;
use crate::domain::account::AccountName;
use crate::domain::address::Address;
use crate::domain::api_key::Scopes;
use crate::domain::hostname::DomainName;
use crate::domain::user::Role;
use crate::engine::accounts::NewKey;
use crate::engine::audit::Behalf;
use crate::engine::{Caller, Engine};
use crate::net::clock::service_clock;
use crate::net::source_address;
use crate::store::Store;
use crate::store::open::OnJournalDamage;

/// Initial name of the account.
const ACCOUNT: &str = "Main";
/// Name of the key in lists.
const KEY: &str = "first key";
const PURPOSE: &str = "cannot set up";

/// Options of `init`.
#[derive(Debug, Clone)]
pub struct InitOptions {
    /// This server's DNS name; by default the system's name.
    pub hostname: Option<DomainName>,
    /// Configuration file to use or write; `None` if the environment contains the configuration.
    pub config: Option<PathBuf>,
    /// Data directory for a new configuration; `None` for the default.
    pub data_dir: Option<PathBuf>,
    /// Address of the panel user; by default `postmaster` of this server (RFC 2142 section 5).
    pub user: Option<Address>,
}

/// Results of `init`.
#[derive(Debug, Clone, Serialize)]
pub struct InitResult {
    /// The configuration file; `None` if the environment contains the configuration.
    pub config: Option<PathBuf>,
    /// Whether the configuration is new.
    pub config_is_new: bool,
    /// The data directory.
    pub data_dir: PathBuf,
    /// This server's name.
    pub hostname: String,
    /// The account.
    pub account_id: String,
    /// Secret of its key, which is only shown now.
    pub api_key: String,
    /// URL of the panel's login page.
    pub panel_url: String,
    /// Sign-in address of its user.
    pub panel_user: String,
    /// Password of the panel's user, which is only shown now.
    pub panel_password: String,
    /// Records to publish for this server. Each sending domain has its own.
    pub records: Vec<Record>,
}

/// Runs `init`.
///
/// # Errors
/// The error for the operator; exit 6 if a store exists.
pub fn run(options: &InitOptions, environment: &Environment) -> Result<InitResult, CliError> {
    let Configuration { config, text, is_new } = configuration(options, environment)?;
    let directory = &config.data_dir;
    if Store::exists(directory) {
        return Err(CliError::new(
            Exit::Conflict,
            PURPOSE,
            format!("{} already contains a store, which was not changed", directory.display()),
            "Add accounts with `postrider account add`, or choose another directory with --data-dir.",
        ));
    }
    let user = options.user.clone().map_or_else(|| postmaster(&config.hostname), Ok)?;
    if let (Some(file), Some(text)) = (&options.config, &text) {
        let written = if is_new { write_new(file, text) } else { rewrite(file, text) };
        written.map_err(|error| unwritable(file, &error))?;
    }
    let lock = DirectoryLock::take(directory)?;
    let furnished = runtime::build()?.block_on(furnish(&config, user, lock));
    let NewAccount { account, key, user, password } = furnished.inspect_err(|_| clear(directory))?;
    hand_over(directory).map_err(|error| unwritable(directory, &error))?;
    Ok(InitResult {
        config: options.config.clone(),
        config_is_new: is_new,
        data_dir: directory.clone(),
        hostname: config.hostname.to_string(),
        account_id: account.to_string(),
        api_key: key,
        panel_url: config.public_url().join("login").map_err(|error| failed(&error))?.to_string(),
        panel_user: user,
        panel_password: password,
        records: records::of_server(&config, &source_address::sources()),
    })
}

/// Configuration that `init` uses.
struct Configuration {
    config: Config,
    /// New content of the file, if it changes.
    text: Option<String>,
    is_new: bool,
}

/// Returns the existing configuration, with the server's name added if it is missing, or a new one.
fn configuration(options: &InitOptions, environment: &Environment) -> Result<Configuration, CliError> {
    let Some(file) = &options.config else { return of_environment(options, environment) };
    let origin = file.display().to_string();
    if file.exists() {
        let mut config = Config::load(file, environment)?;
        let mut text = None;
        if !config.is_set("hostname") {
            let held = fs::read_to_string(file).map_err(|error| unwritable(file, &error))?;
            let named = with_hostname(&held, &wanted_hostname(options, environment)?);
            config = Config::parse(&named, &origin, environment)?;
            text = Some(named);
        }
        agrees(options, &config, &origin)?;
        if let Some(directory) = &options.data_dir {
            config.data_dir.clone_from(directory);
        }
        return Ok(Configuration { config, text, is_new: false });
    }
    let directory = options.data_dir.clone().unwrap_or_else(|| Config::default().data_dir);
    let text = new_text(&wanted_hostname(options, environment)?, &directory);
    let config = Config::parse(&text, &origin, environment)?;
    Ok(Configuration { config, text: Some(text), is_new: true })
}

/// Returns the configuration from the variables, which is not written to a file.
fn of_environment(options: &InitOptions, environment: &Environment) -> Result<Configuration, CliError> {
    let mut config = Config::of_environment(environment)?;
    agrees(options, &config, "the environment")?;
    if let Some(directory) = &options.data_dir {
        config.data_dir.clone_from(directory);
    }
    Ok(Configuration { config, text: None, is_new: false })
}

/// Checks that the requested name is the one in `origin`.
fn agrees(options: &InitOptions, config: &Config, origin: &str) -> Result<(), CliError> {
    let Some(hostname) = options.hostname.as_ref().filter(|hostname| **hostname != config.hostname) else {
        return Ok(());
    };
    let why = format!("{origin} says hostname = \"{}\", not {hostname}", config.hostname);
    let remedy = "Correct hostname there, or omit --hostname.";
    Err(CliError::new(Exit::Conflict, PURPOSE, why, remedy))
}

/// Returns the name from the option, else from the environment, else that of the system.
fn wanted_hostname(options: &InitOptions, environment: &Environment) -> Result<DomainName, CliError> {
    if let Some(hostname) = &options.hostname {
        return Ok(hostname.clone());
    }
    let config = Config::of_environment(environment)?;
    if config.is_set("hostname") { Ok(config.hostname) } else { system_hostname() }
}

/// Sets this server's name in a configuration file from a package: at the commented-out key, or at the beginning if
/// there is none.
fn with_hostname(text: &str, hostname: &DomainName) -> String {
    let line = format!("hostname = \"{hostname}\"");
    match text.lines().find(|line| line.starts_with("#hostname = ")) {
        Some(comment) => text.replacen(comment, &line, 1),
        None => format!("{line}\n{text}"),
    }
}

/// Returns the commented example with this server's name and directory.
fn new_text(hostname: &DomainName, directory: &Path) -> String {
    let lines = EXAMPLE.lines().map(|line| match line.split_once(" = ") {
        Some(("hostname", _)) => format!("hostname = \"{hostname}\"\n"),
        Some(("data_dir", _)) => format!("data_dir = {:?}\n", directory.display().to_string()),
        Some(_) | None => format!("{line}\n"),
    });
    lines.collect()
}

/// Returns the system's name, if it can be looked up from outside.
fn system_hostname() -> Result<DomainName, CliError> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    name.parse().ok().filter(|_| name.contains('.')).ok_or_else(|| {
        let why = format!("the system's host name is {name:?}, which receivers can't look up");
        CliError::new(Exit::Usage, PURPOSE, why, "Set this server's name with --hostname, such as mail.example.com.")
    })
}

/// Writes a new file atomically.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let half_made = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o644).open(&half_made)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    // A hard link fails if the name exists; a rename would overwrite the file.
    let linked = written.and_then(|()| fs::hard_link(&half_made, path));
    fs::remove_file(&half_made)?;
    linked.and_then(|()| fs::File::open(folder)?.sync_all())
}

/// Replaces a file atomically and keeps its owner and mode.
fn rewrite(path: &Path, text: &str) -> io::Result<()> {
    let found = fs::metadata(path)?;
    let half_made = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = OpenOptions::new().create_new(true).write(true).mode(found.mode()).open(&half_made)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all())?;
    chown(&half_made, Some(found.uid()), Some(found.gid()))?;
    fs::rename(&half_made, path)
}

fn unwritable(path: &Path, error: &io::Error) -> CliError {
    let exit = if error.kind() == io::ErrorKind::PermissionDenied { Exit::NotPermitted } else { Exit::Failed };
    let why = format!("{}: {error}", path.display());
    CliError::new(exit, PURPOSE, why, "Run it as root, or choose other paths with --config and --data-dir.")
}

/// Returns the default address of the panel user.
fn postmaster(hostname: &DomainName) -> Result<Address, CliError> {
    format!("postmaster@{hostname}").parse().map_err(|error| failed(&error))
}

struct NewAccount {
    account: AccountId,
    key: String,
    user: String,
    password: String,
}

/// Creates the store, an account, its key, and the panel user.
async fn furnish(config: &Config, user: Address, lock: DirectoryLock) -> Result<NewAccount, CliError> {
    let ground =
        LockedStore::open(&config.data_dir, lock, Arc::new(service_clock()), Start::Service(OnJournalDamage::Refuse))?;
    let engine = ground.engine(config)?;
    let furnished = first_account(&engine, user).await;
    let store = Arc::clone(&engine.store);
    drop(engine);
    let closed = tokio::task::spawn_blocking(move || store.close()).await;
    closed.map_err(|error| failed(&error))?;
    furnished
}

async fn first_account(engine: &Arc<Engine>, user: Address) -> Result<NewAccount, CliError> {
    let name: AccountName = ACCOUNT.parse().map_err(|error| failed(&error))?;
    let account = engine.create_account(name, None, engine.settings.quota).await.map_err(|error| failed(&error))?.id;
    let new = NewKey { name: KEY.to_owned(), stream: None, scopes: Scopes::ALL, expires_at: None };
    let made = engine.create_key(&Caller { account, key: None }, new).await;
    let (_, secret) = made.map_err(|stop| failed(&format!("{stop:?}")))?;
    let made = engine.create_user(Behalf::operator(account), user, Role::Owner).await;
    let (user, password) = made.map_err(|stop| failed(&format!("{stop:?}")))?;
    Ok(NewAccount {
        account,
        key: secret.expose().to_owned(),
        user: user.email.to_string(),
        password: password.expose().to_owned(),
    })
}

fn failed(error: &dyn std::fmt::Display) -> CliError {
    CliError::new(Exit::Failed, PURPOSE, error.to_string(), "Correct it and run init again.")
}

/// Removes an unfinished store, so that `init` can be run again.
fn clear(directory: &Path) {
    for what in Store::remove_unfinished(directory) {
        tracing::warn!(
            error = %what,
            "could not remove a part of the unfinished store; remove it before the next init"
        );
    }
}

/// Gives new files to the owner of the data directory. Packages create it for the service's user, and `init` is run by
/// root.
pub(in crate::app) fn hand_over(directory: &Path) -> io::Result<()> {
    let owner = fs::metadata(directory)?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let own = entry.metadata()?;
        if (own.uid(), own.gid()) != (owner.uid(), owner.gid()) {
            chown(entry.path(), Some(owner.uid()), Some(owner.gid()))?;
        }
        if own.is_dir() {
            hand_over(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
