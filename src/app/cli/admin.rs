//! The commands about accounts, keys and domains, and about the queue.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::args::{
    AccountArgs, AccountCommand, AccountScoped, ClockArgs, ClockCommand, DaemonArgs, DomainCommand, KeyCommand,
    PageArgs, QueueArgs, QueueCommand, SiteArgs,
};
use super::session::{NamedObject, Session, account_id, body, client, listed, no_such, print};
use super::show::Shape;
use super::{Console, EarlyExit, verify};
use crate::app::admin_client::Ask;
use crate::app::cli_error::CliError;
use crate::app::exit::Exit;
use crate::base::id::DomainId;
use crate::domain::hostname::DomainName;

/// Number of rows of a page in a search: the API's maximum (contract 1).
const SEARCH_ROWS: u8 = 100;

/// `postrider account ...`.
pub(super) fn account(args: AccountArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let client = client(args.daemon, &console.environment)?;
    let change = |name: Option<String>, time_zone: Option<String>, per_hour: Option<u64>, per_day: Option<u64>| {
        body([
            ("name", name.map(Value::from)),
            ("time_zone", time_zone.map(Value::from)),
            ("quota_per_hour", per_hour.map(Value::from)),
            ("quota_per_day", per_day.map(Value::from)),
        ])
    };
    let (reply, shape) = match args.command {
        AccountCommand::Add { name, time_zone, quota_per_hour, quota_per_day } => {
            let body = change(Some(name), time_zone, quota_per_hour, quota_per_day);
            (client.ask(Ask::post("add the account", "/v1/accounts", None, Some(body)))?, Shape::Account)
        }
        AccountCommand::List(page) => {
            (client.ask(Ask::get("list the accounts", listed("/v1/accounts", &page, &[]), None))?, Shape::Accounts)
        }
        AccountCommand::Show { id } => {
            let id = account_id(&id, "show the account")?.to_string();
            let asked = client.ask(Ask::get("show the account", format!("/v1/accounts/{id}"), None));
            (asked.map_err(|cli_error| no_account(&id, cli_error))?, Shape::Account)
        }
        AccountCommand::Suspend { id, reason } => {
            let purpose = "suspend the account";
            let path = format!("/v1/accounts/{}/suspend", account_id(&id, purpose)?);
            let asked = client.ask(Ask::post(purpose, path, None, Some(json!({ "reason": reason }))));
            (asked.map_err(|cli_error| no_account(&id, cli_error))?, Shape::Account)
        }
        AccountCommand::Resume { id } => {
            let purpose = "resume the account";
            let path = format!("/v1/accounts/{}/resume", account_id(&id, purpose)?);
            let asked = client.ask(Ask::post(purpose, path, None, None));
            (asked.map_err(|cli_error| no_account(&id, cli_error))?, Shape::Account)
        }
        AccountCommand::Set { id, name, time_zone, quota_per_hour, quota_per_day } => {
            let purpose = "change the account";
            let path = format!("/v1/accounts/{}", account_id(&id, purpose)?);
            let body = Some(change(name, time_zone, quota_per_hour, quota_per_day));
            let asked = client.ask(Ask { purpose, method: Method::PATCH, path, account: None, body });
            (asked.map_err(|cli_error| no_account(&id, cli_error))?, Shape::Account)
        }
    };
    print(&reply, shape, json, console)
}

fn no_account(id: &str, cli_error: CliError) -> CliError {
    if cli_error.exit() == Exit::NotFound { no_such("account", id, cli_error) } else { cli_error }
}

/// `postrider key ...`.
pub(super) fn key(args: AccountScoped<KeyCommand>, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    const KEYS: &str = "/v1/keys";
    let (session, command) = Session::open(args, console)?;
    let one = |id| NamedObject { kind: "key", list: KEYS, id };
    let (reply, shape) = match command {
        KeyCommand::Add { name, stream, scopes, expires_at } => {
            let body = body([
                ("name", Some(json!(name))),
                ("stream", stream.map(|stream| json!(stream))),
                ("scopes", scopes.map(Value::from)),
                ("expires_at", expires_at.map(Value::from)),
            ]);
            (session.ask(Method::POST, "add the key", KEYS, Some(body))?, Shape::NewKey)
        }
        KeyCommand::List(page) => (session.get("list the keys", listed(KEYS, &page, &[]))?, Shape::Keys),
        KeyCommand::Show { id } => (session.get_one(&one(&id), "show the key")?, Shape::Key),
        KeyCommand::Set { id, name } => {
            let body = Some(json!({ "name": name }));
            (session.ask_of(&one(&id), Method::PATCH, "change the key", "", body)?, Shape::Key)
        }
        KeyCommand::Remove { id } => {
            let reply = session.ask_of(&one(&id), Method::DELETE, "revoke the key", "", None)?;
            (reply, Shape::Nothing("Revoked."))
        }
    };
    print(&reply, shape, json, console)
}

/// `postrider domain ...`.
pub(super) fn domain(
    args: AccountScoped<DomainCommand>,
    json: bool,
    console: &mut Console<'_>,
) -> Result<Exit, EarlyExit> {
    const DOMAINS: &str = "/v1/domains";
    let (session, command) = Session::open(args, console)?;
    let found = |domain: &str, purpose: &str| {
        Ok::<_, EarlyExit>(format!("{DOMAINS}/{}", domain_id(domain, purpose, &session)?))
    };
    let (reply, shape) = match command {
        DomainCommand::Add { name, stream } => {
            let body = json!({ "name": name, "stream": stream });
            (session.ask(Method::POST, "add the domain", DOMAINS, Some(body))?, Shape::Domain)
        }
        DomainCommand::List(page) => (session.get("list the domains", listed(DOMAINS, &page, &[]))?, Shape::Domains),
        DomainCommand::Show { domain, zone } => {
            let purpose = "show the domain";
            let shape = if zone { Shape::Zone } else { Shape::Domain };
            (session.get(purpose, found(&domain, purpose)?)?, shape)
        }
        DomainCommand::Set { domain, stream, dkim_rotation_days } => {
            let purpose = "change the domain";
            let body = body([
                ("stream", stream.map(|stream| json!(stream))),
                ("dkim_rotation_days", dkim_rotation_days.map(|days| json!(days))),
            ]);
            (session.ask(Method::PATCH, purpose, found(&domain, purpose)?, Some(body))?, Shape::Domain)
        }
        DomainCommand::Verify { domain, wait } => {
            let path = format!("{}/verify", found(&domain, verify::PURPOSE)?);
            return verify::verify(&session, &path, wait.flatten().map(Duration::from_secs), json, console);
        }
        DomainCommand::RotateDkim { domain } => {
            let purpose = "rotate the domain's DKIM keys";
            let path = format!("{}/rotate-dkim", found(&domain, purpose)?);
            (session.ask(Method::POST, purpose, path, None)?, Shape::Domain)
        }
        DomainCommand::Remove { domain } => {
            let purpose = "remove the domain";
            (session.ask(Method::DELETE, purpose, found(&domain, purpose)?, None)?, Shape::Nothing("Removed."))
        }
    };
    print(&reply, shape, json, console)
}

/// `postrider queue ...`.
pub(super) fn queue(args: QueueArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let (ask, shape) = match args.command {
        QueueCommand::List { cursor } => {
            let query = |cursor: String| {
                form_urlencoded::Serializer::for_suffix("?".to_owned(), 1).append_pair("cursor", &cursor).finish()
            };
            let path = format!("/v1/queue{}", cursor.map(query).unwrap_or_default());
            (Ask::get("list the queue", path, None), Shape::Queue)
        }
        QueueCommand::Release => (Ask::post("release the queue", "/v1/queue/release", None, None), Shape::Released),
        QueueCommand::Pause(of) => return of_site(args.daemon, of, ("pause the site", "pause"), json, console),
        QueueCommand::Resume(of) => return of_site(args.daemon, of, ("resume the site", "resume"), json, console),
        QueueCommand::Try(of) => return of_site(args.daemon, of, ("try the site", "try"), json, console),
    };
    print(&client(args.daemon, &console.environment)?.ask(ask)?, shape, json, console)
}

/// `postrider status`.
pub(super) fn status(args: DaemonArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let ask = Ask::get("show the status", "/v1/status", None);
    print(&client(args, &console.environment)?.ask(ask)?, Shape::Status, json, console)
}

/// `postrider clock ...`.
pub(super) fn clock(args: ClockArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let ask = match args.command {
        ClockCommand::Show => Ask::get("show the clock", "/v1/clock", None),
        ClockCommand::Accept => Ask::post("accept the clock", "/v1/clock/accept", None, None),
    };
    print(&client(args.daemon, &console.environment)?.ask(ask)?, Shape::Clock, json, console)
}

/// Changes an account's mail for one site.
fn of_site(
    daemon: DaemonArgs,
    of: SiteArgs,
    (purpose, verb): (&str, &str),
    json: bool,
    console: &mut Console<'_>,
) -> Result<Exit, EarlyExit> {
    let session = Session::begin(daemon, of.account, console)?;
    let body = json!({ "site": of.site });
    let reply = session.ask(Method::POST, purpose, format!("/v1/queue/{verb}"), Some(body))?;
    print(&reply, Shape::OfSite, json, console)
}

/// Returns the ID of the domain with this identifier or name. A name is looked up in the account's list.
fn domain_id(text: &str, purpose: &str, session: &Session) -> Result<DomainId, EarlyExit> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let wanted = text.parse::<DomainName>().ok();
    let mut cursor = None;
    loop {
        let path = listed("/v1/domains", &PageArgs { limit: SEARCH_ROWS, cursor }, &[]);
        let page = session.get(purpose, path)?.value;
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
            let cli_error = CliError::new(Exit::NotFound, format!("cannot {purpose}"), "", "");
            return Err(no_such("domain", text, cli_error).into());
        }
    }
}
