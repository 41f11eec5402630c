//! The commands that ask the running daemon: accounts, keys, domains and the queue.
//!
//! With `--json` they print exactly what the API answered; else a form for people.

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::args::{
    AccountArgs, AccountChoice, AccountCommand, DaemonArgs, DomainArgs, DomainCommand, KeyArgs, KeyCommand, PageArgs,
    QueueArgs, QueueCommand,
};
use super::show::{self, Shape};
use super::{CONFIG_VARIABLE, Console, DATA_DIR_VARIABLE, Stop};
use crate::app::admin_client::{AdminClient, Ask, Reply};
use crate::app::config::Config;
use crate::app::environment::Environment;
use crate::app::exit::Exit;
use crate::app::trouble::Trouble;
use crate::base::id::{AccountId, DomainId};
use crate::domain::hostname::DomainName;

/// Rows of a page in a search; the most that the API gives (contract 1).
const SEARCH_ROWS: u8 = 100;

/// `postrider account ...`.
pub(super) fn account(args: AccountArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, Stop> {
    let client = client(args.daemon, &console.environment)?;
    let (reply, shape) = match args.command {
        AccountCommand::Add { name, time_zone, quota_per_hour, quota_per_day } => {
            let body = body([
                ("name", Some(json!(name))),
                ("time_zone", time_zone.map(Value::from)),
                ("quota_per_hour", quota_per_hour.map(Value::from)),
                ("quota_per_day", quota_per_day.map(Value::from)),
            ]);
            (client.ask(Ask::post("add the account", "/v1/accounts", None, Some(body)))?, Shape::Account)
        }
        AccountCommand::List(page) => {
            (client.ask(Ask::get("list the accounts", listed("/v1/accounts", &page), None))?, Shape::Accounts)
        }
        AccountCommand::Show { id } => {
            let id = account_id(&id, "show the account")?;
            (client.ask(Ask::get("show the account", format!("/v1/accounts/{id}"), None))?, Shape::Account)
        }
    };
    print(&reply, shape, json, console)
}

/// `postrider key ...`.
pub(super) fn key(args: KeyArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, Stop> {
    let client = client(args.daemon, &console.environment)?;
    let account = Some(chosen(args.account, &client)?);
    let (reply, shape) = match args.command {
        KeyCommand::Add { name, stream, scopes, expires_at } => {
            let body = body([
                ("name", Some(json!(name))),
                ("stream", stream.map(|stream| json!(stream))),
                ("scopes", scopes.map(Value::from)),
                ("expires_at", expires_at.map(Value::from)),
            ]);
            (client.ask(Ask::post("add the key", "/v1/keys", account, Some(body)))?, Shape::NewKey)
        }
        KeyCommand::List(page) => {
            (client.ask(Ask::get("list the keys", listed("/v1/keys", &page), account))?, Shape::Keys)
        }
    };
    print(&reply, shape, json, console)
}

/// `postrider domain ...`.
pub(super) fn domain(args: DomainArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, Stop> {
    let client = client(args.daemon, &console.environment)?;
    let account = chosen(args.account, &client)?;
    let (reply, shape) = match args.command {
        DomainCommand::Add { name, stream } => {
            let body = json!({ "name": name, "stream": stream });
            (client.ask(Ask::post("add the domain", "/v1/domains", Some(account), Some(body)))?, Shape::Domain)
        }
        DomainCommand::List(page) => {
            let path = listed("/v1/domains", &page);
            (client.ask(Ask::get("list the domains", path, Some(account)))?, Shape::Domains)
        }
        DomainCommand::Show { domain } => {
            let id = domain_id(&domain, "show the domain", account, &client)?;
            (client.ask(Ask::get("show the domain", format!("/v1/domains/{id}"), Some(account)))?, Shape::Domain)
        }
        DomainCommand::Verify { domain } => {
            let id = domain_id(&domain, "verify the domain", account, &client)?;
            let path = format!("/v1/domains/{id}/verify");
            (client.ask(Ask::post("verify the domain", path, Some(account), None))?, Shape::Domain)
        }
    };
    print(&reply, shape, json, console)
}

/// `postrider queue ...`.
pub(super) fn queue(args: QueueArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, Stop> {
    let client = client(args.daemon, &console.environment)?;
    match args.command {
        QueueCommand::List => {
            let reply = client.ask(Ask::get("list the queue", "/v1/queue", None))?;
            print(&reply, Shape::Queue, json, console)
        }
    }
}

fn print(reply: &Reply, shape: Shape, json: bool, console: &mut Console<'_>) -> Result<Exit, Stop> {
    if json {
        writeln!(console.out, "{}", reply.text)?;
    } else {
        write!(console.out, "{}", show::readable(&reply.value, shape))?;
    }
    Ok(Exit::Done)
}

/// The way to the daemon: by option, by variable, or at the default data directory. A directory goes before a file.
fn client(args: DaemonArgs, environment: &Environment) -> Result<AdminClient, Stop> {
    let by_variable = || environment.path(DATA_DIR_VARIABLE);
    let data_dir = match (args.data_dir, args.config) {
        (Some(directory), _) => directory,
        (None, Some(file)) => configured(file, environment)?,
        (None, None) => match (by_variable(), environment.path(CONFIG_VARIABLE)) {
            (Some(directory), _) => directory,
            (None, Some(file)) => configured(file, environment)?,
            (None, None) => Config::default().data_dir,
        },
    };
    Ok(AdminClient::new(&data_dir))
}

fn configured(file: PathBuf, environment: &Environment) -> Result<PathBuf, Stop> {
    Ok(Config::load(&file, environment).map_err(Trouble::from)?.data_dir)
}

/// The account that is named, or the only one that there is.
fn chosen(choice: AccountChoice, client: &AdminClient) -> Result<AccountId, Stop> {
    const PURPOSE: &str = "choose the account";
    if let Some(id) = choice.account {
        return account_id(&id, PURPOSE);
    }
    let page = client.ask(Ask::get(PURPOSE, "/v1/accounts?limit=2", None))?.value;
    match page["data"].as_array().map_or(&[][..], Vec::as_slice) {
        [] => Err(Trouble::new(
            Exit::NotFound,
            format!("cannot {PURPOSE}"),
            "there is no account yet",
            "Make one: postrider account add NAME",
        )
        .into()),
        [only] => account_id(only["id"].as_str().unwrap_or_default(), PURPOSE),
        [_, _, ..] => Err(Trouble::new(
            Exit::Usage,
            format!("cannot {PURPOSE}"),
            "there are several accounts, and --account names none",
            "Name one with --account ID; `postrider account list` shows them.",
        )
        .into()),
    }
}

/// A text that is no identifier is one that does not exist (contract 1).
fn account_id(text: &str, purpose: &str) -> Result<AccountId, Stop> {
    let missing = |_| {
        let why = format!("there is no account {text:?}");
        Trouble::new(Exit::NotFound, format!("cannot {purpose}"), why, "See `postrider account list`.")
    };
    Ok(text.parse().map_err(missing)?)
}

/// The domain of this identifier or name; a name is looked for in the account's list.
fn domain_id(text: &str, purpose: &str, account: AccountId, client: &AdminClient) -> Result<DomainId, Stop> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let wanted = text.parse::<DomainName>().ok();
    let mut cursor = None;
    loop {
        let path = listed("/v1/domains", &PageArgs { limit: SEARCH_ROWS, cursor });
        let page = client.ask(Ask::get(purpose, path, Some(account)))?.value;
        let mut rows = page["data"].as_array().into_iter().flatten();
        let named = |row: &&Value| {
            let name = row["name"].as_str().unwrap_or_default().parse::<DomainName>().ok();
            name.is_some() && name == wanted
        };
        if let Some(id) = rows.find(named).and_then(|row| row["id"].as_str()?.parse().ok()) {
            return Ok(id);
        }
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            let why = format!("the account {account} has no domain {text:?}");
            let remedy = "See `postrider domain list`.";
            return Err(Trouble::new(Exit::NotFound, format!("cannot {purpose}"), why, remedy).into());
        }
    }
}

/// A request's body of the members that are given.
fn body<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let given = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(given.collect::<Map<_, _>>())
}

fn listed(path: &str, page: &PageArgs) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("limit", &page.limit.to_string());
    if let Some(cursor) = &page.cursor {
        query.append_pair("cursor", cursor);
    }
    format!("{path}?{}", query.finish())
}
