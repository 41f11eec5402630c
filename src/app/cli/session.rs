//! Shared parts of the commands about one account: the connection to the daemon, the choice of the account, and
//! requests.
//!
//! With `--json` they print exactly the API's answer, and nothing if it has no body. Otherwise they print text for
//! people.

use std::path::{Path, PathBuf};

use hyper::Method;
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::args::{AccountChoice, AccountScoped, DaemonArgs, PageArgs};
use super::show::{self, Shape};
use super::{CONFIG_VARIABLE, Console, DATA_DIR_VARIABLE, EarlyExit, found};
use crate::app::admin_client::{AdminClient, Ask, Reply};
use crate::app::cli_error::CliError;
use crate::app::config::Config;
use crate::app::environment::Environment;
use crate::app::exit::Exit;
use crate::base::id::AccountId;

/// The daemon's client and the account of a command.
pub(super) struct Session {
    client: AdminClient,
    /// Whether the account was named, so that it may not exist.
    is_named: bool,
    /// The account; `None` if the command names an object that is unique in the store.
    pub(super) account: Option<AccountId>,
}

impl Session {
    /// Opens the session of a command, and returns the command.
    pub(super) fn open<C: clap::Subcommand>(
        args: AccountScoped<C>,
        console: &Console<'_>,
    ) -> Result<(Self, C), EarlyExit> {
        Ok((Self::begin(args.daemon, args.account, console)?, args.command))
    }

    /// Opens the session of a command that needs no account.
    pub(super) fn without_account<C: clap::Subcommand>(
        args: AccountScoped<C>,
        console: &Console<'_>,
    ) -> Result<(Self, C), EarlyExit> {
        let client = client(args.daemon, &console.environment)?;
        Ok((Self { client, is_named: false, account: None }, args.command))
    }

    /// Opens the session with the named daemon and account.
    pub(super) fn begin(daemon: DaemonArgs, account: AccountChoice, console: &Console<'_>) -> Result<Self, EarlyExit> {
        let client = client(daemon, &console.environment)?;
        let is_named = account.account.is_some();
        let account = Some(chosen(account, &client)?);
        Ok(Self { client, is_named, account })
    }

    /// Returns the path of the daemon's socket.
    pub(super) fn socket(&self) -> &Path {
        self.client.socket()
    }

    /// Sends a request of the account; `purpose` follows "cannot".
    pub(super) fn ask(
        &self,
        method: Method,
        purpose: &str,
        path: impl Into<String>,
        body: Option<Value>,
    ) -> Result<Reply, EarlyExit> {
        let ask = Ask { purpose, method, path: path.into(), account: self.account, body };
        Ok(self.client.ask(ask)?)
    }

    /// Sends a request about one object; `action` follows its path.
    pub(super) fn ask_of(
        &self,
        one: &NamedObject<'_>,
        method: Method,
        purpose: &str,
        action: &str,
        body: Option<Value>,
    ) -> Result<Reply, EarlyExit> {
        let asked = self.ask(method, purpose, format!("{}{action}", object(one.list, one.id)), body);
        asked.map_err(|stop| match stop {
            EarlyExit::Error(cli_error) if cli_error.exit() == Exit::NotFound => self.missing(one, cli_error),
            other => other,
        })
    }

    /// Gets one object.
    pub(super) fn get_one(&self, one: &NamedObject<'_>, purpose: &str) -> Result<Reply, EarlyExit> {
        self.ask_of(one, Method::GET, purpose, "", None)
    }

    /// Returns the error for a missing object, or for a named account that does not exist.
    fn missing(&self, one: &NamedObject<'_>, cli_error: CliError) -> EarlyExit {
        if let Some(account) = self.account.filter(|_| self.is_named) {
            let id = account.to_string();
            let asked = self.client.ask(Ask::get("find the account", object("/v1/accounts", &id), None));
            if asked.is_err_and(|cli_error| cli_error.exit() == Exit::NotFound) {
                return EarlyExit::Error(no_such("account", &id, cli_error));
            }
        }
        EarlyExit::Error(no_such(one.kind, one.id, cli_error))
    }

    /// Sends a GET.
    pub(super) fn get(&self, purpose: &str, path: impl Into<String>) -> Result<Reply, EarlyExit> {
        self.ask(Method::GET, purpose, path, None)
    }
}

/// One object that a command names.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedObject<'a> {
    /// Kind of the object, which is also the command that lists such objects.
    pub(super) kind: &'static str,
    /// Path of the list of objects of this kind.
    pub(super) list: &'static str,
    /// Identifier as typed.
    pub(super) id: &'a str,
}

/// Returns the error for a named object that does not exist.
pub(super) fn no_such(kind: &str, id: &str, cli_error: CliError) -> CliError {
    let id = id.escape_debug();
    cli_error.because(format!("No {kind} {id}. Run: postrider {kind} list"))
}

/// Prints an answer.
pub(super) fn print(reply: &Reply, shape: Shape, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    match (json, reply.text.is_empty()) {
        (true, true) => {}
        (true, false) => writeln!(console.out, "{}", reply.text)?,
        (false, _) => write!(console.out, "{}", show::readable(&reply.value, shape))?,
    }
    Ok(Exit::Done)
}

/// Returns the client for the daemon: by option, by variable, or in the default data directory.
pub(super) fn client(args: DaemonArgs, environment: &Environment) -> Result<AdminClient, EarlyExit> {
    let data_dir = data_dir(args, environment)?.unwrap_or_else(|| Config::default().data_dir);
    Ok(AdminClient::new(&data_dir))
}

/// Returns the data directory from an option or variable. A directory takes precedence over a configuration file.
pub(super) fn data_dir(args: DaemonArgs, environment: &Environment) -> Result<Option<PathBuf>, EarlyExit> {
    Ok(match (args.data_dir, args.config) {
        (Some(directory), _) => Some(directory),
        (None, Some(file)) => Some(configured(file, environment)?),
        (None, None) => match (environment.path(DATA_DIR_VARIABLE), environment.path(CONFIG_VARIABLE)) {
            (Some(directory), _) => Some(directory),
            (None, Some(file)) => Some(configured(file, environment)?),
            (None, None) => match found::file(None, environment, Path::new(found::PACKAGED)) {
                Some(file) => Some(configured(file, environment)?),
                None => None,
            },
        },
    })
}

fn configured(file: PathBuf, environment: &Environment) -> Result<PathBuf, EarlyExit> {
    Ok(Config::load(&file, environment).map_err(CliError::from)?.data_dir)
}

/// Returns the named account, or the only one.
fn chosen(choice: AccountChoice, client: &AdminClient) -> Result<AccountId, EarlyExit> {
    const PURPOSE: &str = "choose the account";
    if let Some(id) = choice.account {
        return account_id(&id, PURPOSE);
    }
    let page = client.ask(Ask::get(PURPOSE, "/v1/accounts?limit=2", None))?.value;
    match page["data"].as_array().map_or(&[][..], Vec::as_slice) {
        [] => Err(CliError::new(
            Exit::NotFound,
            format!("cannot {PURPOSE}"),
            "no account exists yet",
            "Create one: postrider account add NAME",
        )
        .into()),
        [only] => account_id(only["id"].as_str().unwrap_or_default(), PURPOSE),
        [_, _, ..] => Err(CliError::new(
            Exit::Usage,
            format!("cannot {PURPOSE}"),
            "there are several accounts; choose one with --account",
            "Choose one with --account ID; `postrider account list` shows them.",
        )
        .into()),
    }
}

/// A malformed identifier counts as one that does not exist (contract 1).
pub(super) fn account_id(text: &str, purpose: &str) -> Result<AccountId, EarlyExit> {
    let missing = |_| no_such("account", text, CliError::new(Exit::NotFound, format!("cannot {purpose}"), "", ""));
    Ok(text.parse().map_err(missing)?)
}

/// Returns a request body with the given members.
pub(super) fn body<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let given = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(given.collect::<Map<_, _>>())
}

/// Returns the path of a page of a list, with the given filters.
pub(super) fn listed(path: &str, page: &PageArgs, filters: &[(&str, &Option<String>)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &page.limit.to_string());
    for (name, value) in filters {
        query.extend_pairs(value.as_ref().map(|value| (name, value)));
    }
    query.extend_pairs(page.cursor.as_ref().map(|cursor| ("cursor", cursor)));
    format!("{path}?{}", query.finish())
}

/// Returns the path of one object. A malformed identifier counts as one that does not exist (contract 1); the API
/// reports that.
pub(super) fn object(list: &str, id: &str) -> String {
    let segment: String = form_urlencoded::byte_serialize(id.as_bytes()).collect();
    // In a path `+` stands for itself, so a space must be `%20`.
    format!("{list}/{}", segment.replace('+', "%20"))
}
