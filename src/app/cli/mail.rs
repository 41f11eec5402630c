//! The commands about mail and its outcomes: webhooks, suppressions, messages, events.

use hyper::Method;
use serde_json::{Value, json};

use super::args::AccountScoped;
use super::listen::listen;
use super::mail_args::{EndpointCommand, EventCommand, MessageCommand, SuppressionCommand, WebhookCommand};
use super::send::send;
use super::session::{NamedObject, Session, body, listed, print};
use super::show::Shape;
use super::{Console, EarlyExit};
use crate::app::exit::Exit;

/// `postrider webhook ...`.
pub(super) fn webhook(
    args: AccountScoped<WebhookCommand>,
    json: bool,
    console: &mut Console<'_>,
) -> Result<Exit, EarlyExit> {
    let AccountScoped { daemon, account, command } = args;
    match command {
        WebhookCommand::Endpoint(command) => {
            endpoint(&Session::begin(daemon, account, console)?, command, json, console)
        }
        WebhookCommand::Listen(args) => listen(*args, daemon, account, json, console),
    }
}

fn endpoint(
    session: &Session,
    command: EndpointCommand,
    json: bool,
    console: &mut Console<'_>,
) -> Result<Exit, EarlyExit> {
    const WEBHOOKS: &str = "/v1/webhooks";
    let one = |id| NamedObject { kind: "webhook", list: WEBHOOKS, id };
    let (reply, shape) = match command {
        EndpointCommand::Add { url, events, description } => {
            let body = body([
                ("url", Some(json!(url))),
                ("events", events.map(Value::from)),
                ("description", description.map(Value::from)),
            ]);
            (session.ask(Method::POST, "add the webhook", WEBHOOKS, Some(body))?, Shape::NewWebhook)
        }
        EndpointCommand::List(page) => {
            (session.get("list the webhooks", listed(WEBHOOKS, &page, &[]))?, Shape::Webhooks)
        }
        EndpointCommand::Show { id } => (session.get_one(&one(&id), "show the webhook")?, Shape::Webhook),
        EndpointCommand::Set { id, url, events, all_events, description, enabled } => {
            let body = body([
                ("url", url.map(Value::from)),
                ("events", if all_events { Some(Value::Null) } else { events.map(Value::from) }),
                ("description", description.map(Value::from)),
                ("enabled", enabled.map(Value::from)),
            ]);
            (session.ask_of(&one(&id), Method::PATCH, "change the webhook", "", Some(body))?, Shape::Webhook)
        }
        EndpointCommand::RotateSecret { id } => {
            let purpose = "rotate the webhook's secret";
            (session.ask_of(&one(&id), Method::POST, purpose, "/rotate-secret", None)?, Shape::NewWebhook)
        }
        EndpointCommand::Test { id } => {
            (session.ask_of(&one(&id), Method::POST, "test the webhook", "/test", None)?, Shape::Delivery)
        }
        EndpointCommand::Remove { id } => {
            let reply = session.ask_of(&one(&id), Method::DELETE, "remove the webhook", "", None)?;
            (reply, Shape::Nothing("Removed."))
        }
    };
    print(&reply, shape, json, console)
}

/// `postrider suppression ...`.
pub(super) fn suppression(
    args: AccountScoped<SuppressionCommand>,
    json: bool,
    console: &mut Console<'_>,
) -> Result<Exit, EarlyExit> {
    const SUPPRESSIONS: &str = "/v1/suppressions";
    let (session, command) = Session::open(args, console)?;
    let one = |id| NamedObject { kind: "suppression", list: SUPPRESSIONS, id };
    let (reply, shape) = match command {
        SuppressionCommand::Add { email, note } => {
            let body = body([("email", Some(json!(email))), ("note", note.map(Value::from))]);
            (session.ask(Method::POST, "suppress the address", SUPPRESSIONS, Some(body))?, Shape::Suppression)
        }
        SuppressionCommand::List { email, reason, page } => {
            let path = listed(SUPPRESSIONS, &page, &[("email", &email), ("reason", &reason)]);
            (session.get("list the suppressions", path)?, Shape::Suppressions)
        }
        SuppressionCommand::Show { suppression } => {
            (session.get_one(&one(&suppression), "show the suppression")?, Shape::Suppression)
        }
        SuppressionCommand::Remove { suppression } => {
            let reply = session.ask_of(&one(&suppression), Method::DELETE, "remove the suppression", "", None)?;
            (reply, Shape::Nothing("Removed."))
        }
    };
    print(&reply, shape, json, console)
}

/// `postrider message ...`.
pub(super) fn message(
    args: AccountScoped<MessageCommand>,
    json: bool,
    console: &mut Console<'_>,
) -> Result<Exit, EarlyExit> {
    const MESSAGES: &str = "/v1/messages";
    let (session, command) = Session::open(args, console)?;
    let one = |id| NamedObject { kind: "message", list: MESSAGES, id };
    let (reply, shape) = match command {
        MessageCommand::List(filter) => {
            let metadata: Vec<_> = filter.metadata.into_iter().map(|(name, value)| (name, Some(value))).collect();
            let metadata = metadata.iter().map(|(name, value)| (name.as_str(), value));
            let filters = [
                ("to", &filter.to),
                ("from", &filter.from),
                ("subject", &filter.subject),
                ("message_id_header", &filter.message_id_header),
                ("status", &filter.status),
                ("stream", &filter.stream),
                ("after", &filter.after),
                ("before", &filter.before),
            ];
            let filters: Vec<_> = filters.into_iter().chain(metadata).collect();
            (session.get("list the messages", listed(MESSAGES, &filter.page, &filters))?, Shape::Messages)
        }
        MessageCommand::Show { id } => (session.get_one(&one(&id), "show the message")?, Shape::Message),
        MessageCommand::Send(args) => return send(&session, *args, json, console),
        MessageCommand::Cancel { id } => {
            (session.ask_of(&one(&id), Method::POST, "cancel the message", "/cancel", None)?, Shape::Message)
        }
    };
    print(&reply, shape, json, console)
}

/// `postrider event ...`.
pub(super) fn event(
    args: AccountScoped<EventCommand>,
    json: bool,
    console: &mut Console<'_>,
) -> Result<Exit, EarlyExit> {
    let (session, EventCommand::List { message_id, kind, after, before, page }) = Session::open(args, console)?;
    let filters = [("message_id", &message_id), ("type", &kind), ("after", &after), ("before", &before)];
    let path = listed("/v1/events", &page, &filters);
    print(&session.get("list the events", path)?, Shape::Events, json, console)
}
