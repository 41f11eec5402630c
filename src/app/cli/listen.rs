//! `postrider webhook listen`: the service or address to use, and combinations of options that are not allowed.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::str::FromStr;

use clap::Args;
use url::Url;

use super::args::{AccountChoice, DaemonArgs};
use super::session::Session;
use super::{Console, EarlyExit};
use crate::app::cli_error::CliError;
use crate::app::exit::Exit;
use crate::app::listen::{self, End, Form, Forwarding, ListenOutput, Program, Receiving};
use crate::base::id::EventId;
use crate::base::secret::Secret;
use crate::domain::event::EventType;
use crate::net::event_source::EventSourceAddress;
use crate::net::webhook_forward::Forward;

/// Variable with the API key if no option gives it: options are visible in process lists.
const KEY_VARIABLE: &str = "POSTRIDER_API_KEY";
/// Variable with the webhook secret: options are visible in process lists.
const SECRET_VARIABLE: &str = "POSTRIDER_WEBHOOK_SECRET";

/// Options of `webhook listen`.
#[derive(Debug, Args)]
pub(super) struct ListenArgs {
    /// POST each event to this program, signed like a webhook (default: only show events).
    #[arg(long, value_name = "URL")]
    forward_to: Option<Url>,
    /// Only events of these types.
    #[arg(long, value_delimiter = ',', value_name = "TYPES", value_parser = EventType::from_str)]
    events: Option<Vec<EventType>>,
    /// Follow the service at this address by its API, with a key (default: the one on this machine).
    #[arg(long, value_name = "BASE")]
    url: Option<Url>,
    /// The API key for --url (or POSTRIDER_API_KEY).
    #[arg(long, requires = "url")]
    key: Option<String>,
    /// Start after this event; otherwise with new events.
    #[arg(long, value_name = "EVENT_ID", value_parser = EventId::from_str)]
    after: Option<EventId>,
    /// The webhook secret to sign or verify with (or POSTRIDER_WEBHOOK_SECRET); generated for --forward-to.
    #[arg(long)]
    secret: Option<String>,
    /// Receive webhooks at this address and verify them: forged ones, and those older than 300 seconds, are refused.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["forward_to", "events", "url", "key", "after"])]
    receive: Option<SocketAddr>,
}

/// Listens until it is stopped.
pub(super) fn listen(
    args: ListenArgs,
    daemon: DaemonArgs,
    account: AccountChoice,
    json: bool,
    console: &mut Console<'_>,
) -> Result<Exit, EarlyExit> {
    let form = if json { Form::Json } else { Form::Text };
    let secret = args.secret.clone().or_else(|| console.environment.text(SECRET_VARIABLE));
    let secret = secret.map(|text| listen::secret(&text)).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = match args.receive {
        Some(address) => {
            let secret = secret.ok_or_else(|| {
                usage(
                    "no secret to verify the deliveries is set",
                    "Set the endpoint's secret with --secret or POSTRIDER_WEBHOOK_SECRET.",
                )
            })?;
            let mut output = ListenOutput { out: console.out, err: console.err, form };
            runtime.block_on(Receiving { address, secret }.run(&mut output))
        }
        None => {
            let forwarding = forwarding(args, secret, daemon, account, console)?;
            let mut output = ListenOutput { out: console.out, err: console.err, form };
            runtime.block_on(forwarding.run(&mut output))
        }
    };
    ended.map_err(|end| match end {
        End::Error(cli_error) => EarlyExit::Error(cli_error),
        End::Output(error) => EarlyExit::Output(error),
    })
}

fn forwarding(
    args: ListenArgs,
    secret: Option<Secret>,
    daemon: DaemonArgs,
    account: AccountChoice,
    console: &Console<'_>,
) -> Result<Forwarding, EarlyExit> {
    let address = match args.url {
        Some(base) => {
            let key = args.key.or_else(|| console.environment.text(KEY_VARIABLE));
            let key = key.ok_or_else(|| {
                usage("no API key is set", "Set one with --key or POSTRIDER_API_KEY; it needs the scope read.")
            })?;
            EventSourceAddress::Api { base: web(base, "--url")?, key: Secret::new(key) }
        }
        None => {
            let session = Session::begin(daemon, account, console)?;
            EventSourceAddress::Socket {
                path: session.socket().to_owned(),
                account: session.account.map(|account| account.to_string()).unwrap_or_default(),
            }
        }
    };
    let program = match args.forward_to {
        Some(url) => {
            let forward = Forward::to(web(url, "--forward-to")?);
            Some(Program { forward: forward.map_err(|why| usage(&why, ""))?, secret })
        }
        None => None,
    };
    let events = args.events.map(BTreeSet::from_iter);
    Ok(Forwarding { address, events, after: args.after, program })
}

fn web(url: Url, option: &str) -> Result<Url, EarlyExit> {
    if matches!(url.scheme(), "http" | "https") && url.has_host() {
        return Ok(url);
    }
    Err(usage(&format!("{option} is not an http or https address"), "Use one such as http://127.0.0.1:3000/hook.")
        .into())
}

fn usage(why: &str, remedy: &str) -> CliError {
    CliError::new(Exit::Usage, "cannot listen for webhooks", why, remedy)
}
