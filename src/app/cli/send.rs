//! `postrider message send`: sends one message from the command line, and can wait for its outcome.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use hyper::Method;
use serde_json::{Value, json};

use super::session::{NamedObject, Session, body, print};
use super::show::Shape;
use super::{Console, EarlyExit};
use crate::app::admin_client::Reply;
use crate::app::cli_error::CliError;
use crate::app::exit::Exit;

const PURPOSE: &str = "send the message";
const MESSAGES: &str = "/v1/messages";
/// The first and the longest interval between two checks of a message without an outcome.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Options of `message send`.
#[derive(Debug, Args)]
pub(super) struct SendArgs {
    /// The sender, at a verified domain.
    #[arg(long, value_name = "ADDRESS")]
    from: String,
    /// The recipient.
    #[arg(long, value_name = "ADDRESS")]
    to: String,
    /// The subject.
    #[arg(long, conflicts_with = "raw")]
    subject: Option<String>,
    /// The text; read from standard input if it is `-`, or without --text, --html and --raw.
    #[arg(long, conflicts_with = "raw", allow_hyphen_values = true)]
    text: Option<String>,
    /// A file with the HTML.
    #[arg(long, value_name = "FILE", conflicts_with = "raw")]
    html: Option<PathBuf>,
    /// A file with a whole message (RFC 5322).
    #[arg(long, value_name = "FILE")]
    raw: Option<PathBuf>,
    /// The unsubscribe URL; required on the marketing stream.
    #[arg(long, value_name = "URL")]
    unsubscribe_url: Option<String>,
    /// Wait for the outcome: exits with 0 if the message was delivered, else with 1.
    #[arg(long)]
    wait: bool,
}

/// Sends the message and prints it.
pub(super) fn send(
    session: &Session,
    args: SendArgs,
    json: bool,
    console: &mut Console<'_>,
) -> Result<Exit, EarlyExit> {
    let wait = args.wait;
    let body = submission(args, console)?;
    let accepted = session.ask(Method::POST, PURPOSE, MESSAGES, Some(body))?;
    if !wait {
        return print(&accepted, Shape::Accepted, json, console);
    }
    let id = accepted.value["id"].as_str().unwrap_or_default();
    let settled = settled(session, &NamedObject { kind: "message", list: MESSAGES, id })?;
    print(&settled, Shape::Message, json, console)?;
    Ok(if settled.value["status"] == "delivered" { Exit::Done } else { Exit::Failed })
}

/// Returns the body of the request.
fn submission(args: SendArgs, console: &mut Console<'_>) -> Result<Value, EarlyExit> {
    let html = args.html.as_deref().map(text_of).transpose()?;
    let raw = args.raw.as_deref().map(bytes_of).transpose()?;
    let text = match args.text {
        Some(text) if text != "-" => Some(text),
        None if html.is_some() || raw.is_some() => None,
        Some(_) | None => {
            Some(io::read_to_string(&mut *console.input).map_err(|error| unread("standard input", &error))?)
        }
    };
    Ok(body([
        ("from", Some(json!(args.from))),
        ("to", Some(json!(args.to))),
        ("subject", args.subject.map(Value::from)),
        ("text", text.map(Value::from)),
        ("html", html.map(Value::from)),
        ("raw", raw.map(|raw| STANDARD.encode(raw).into())),
        ("unsubscribe_url", args.unsubscribe_url.map(Value::from)),
    ]))
}

fn text_of(path: &Path) -> Result<String, CliError> {
    fs::read_to_string(path).map_err(|error| unread(&path.display().to_string(), &error))
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, CliError> {
    fs::read(path).map_err(|error| unread(&path.display().to_string(), &error))
}

fn unread(what: &str, error: &io::Error) -> CliError {
    let why = format!("cannot read {what}: {error}");
    CliError::new(Exit::Failed, format!("cannot {PURPOSE}"), why, "Choose a file in UTF-8 that this user can read.")
}

/// Waits for the message's outcome without a time limit, and returns the message.
fn settled(session: &Session, one: &NamedObject<'_>) -> Result<Reply, EarlyExit> {
    let (mut pause, longest) = POLL_INTERVALS;
    loop {
        let reply = session.get_one(one, "read the message")?;
        if !matches!(reply.value["status"].as_str(), Some("queued" | "deferred")) {
            return Ok(reply);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(longest);
    }
}
