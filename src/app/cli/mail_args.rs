//! The command-line grammar for mail and its outcomes: webhooks, suppressions, messages, events (contract 8).
//!
//! The API checks the values; only the names are here.

use clap::{Args, Subcommand};

use super::args::PageArgs;
use super::listen::ListenArgs;
use super::send::SendArgs;

#[derive(Debug, Subcommand)]
pub(super) enum WebhookCommand {
    #[command(flatten)]
    Endpoint(EndpointCommand),
    /// Forward events to a program under development, or receive and verify webhooks, until Ctrl-C.
    Listen(Box<ListenArgs>),
}

#[derive(Debug, Subcommand)]
pub(super) enum EndpointCommand {
    /// Register an endpoint and print its secret; it won't be shown again.
    Add {
        /// Its https URL.
        url: String,
        /// The event types that it takes; all of them unless given.
        #[arg(long, value_delimiter = ',')]
        events: Option<Vec<String>>,
        /// Description of its purpose
        #[arg(long)]
        description: Option<String>,
    },
    /// List the endpoints.
    List(PageArgs),
    /// Show one endpoint.
    Show {
        /// Its identifier.
        id: String,
    },
    /// Change an endpoint's URL, events or state.
    #[command(group(clap::ArgGroup::new("change").required(true).multiple(true)))]
    Set {
        /// Its identifier.
        id: String,
        /// Its https URL.
        #[arg(long, group = "change")]
        url: Option<String>,
        /// The event types that it gets.
        #[arg(long, value_delimiter = ',', group = "change")]
        events: Option<Vec<String>>,
        /// Get all event types.
        #[arg(long, conflicts_with = "events", group = "change")]
        all_events: bool,
        /// Description of its purpose
        #[arg(long, group = "change")]
        description: Option<String>,
        /// Whether it gets events; true enables a disabled endpoint.
        #[arg(long, value_name = "true|false", group = "change")]
        enabled: Option<bool>,
    },
    /// Create a new secret and print it; it won't be shown again.
    RotateSecret {
        /// Its identifier.
        id: String,
    },
    /// Send it an event of type test.
    Test {
        /// Its identifier.
        id: String,
    },
    /// Remove an endpoint; its outstanding deliveries are not sent.
    Remove {
        /// Its identifier.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum SuppressionCommand {
    /// Suppress an address.
    Add {
        /// The address.
        email: String,
        /// Why.
        #[arg(long)]
        note: Option<String>,
    },
    /// List the suppressions.
    List {
        /// Only that of this address.
        #[arg(long)]
        email: Option<String>,
        /// Only those for this reason: bounce, complaint, unsubscribe, manual, import.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one suppression.
    Show {
        /// Its address or identifier.
        suppression: String,
    },
    /// Remove a suppression, so that the address gets mail again.
    Remove {
        /// Its address or identifier.
        suppression: String,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum MessageCommand {
    /// Send a message and print it.
    Send(Box<SendArgs>),
    /// List the messages.
    List(Box<MessageFilterArgs>),
    /// Show one message with its content and timeline.
    Show {
        /// Its identifier.
        id: String,
    },
    /// Cancel a message that was not sent yet.
    Cancel {
        /// Its identifier.
        id: String,
    },
}

/// Which messages.
#[derive(Debug, Args)]
pub(super) struct MessageFilterArgs {
    /// Only messages to this address.
    #[arg(long)]
    pub(super) to: Option<String>,
    /// Only messages from this address.
    #[arg(long)]
    pub(super) from: Option<String>,
    /// Only messages with these words in their subject.
    #[arg(long)]
    pub(super) subject: Option<String>,
    /// Only the message with this Message-ID.
    #[arg(long)]
    pub(super) message_id_header: Option<String>,
    /// Only messages with this status.
    #[arg(long)]
    pub(super) status: Option<String>,
    /// Only messages of this stream.
    #[arg(long)]
    pub(super) stream: Option<String>,
    /// Only messages with this metadata pair; up to three times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = metadata_pair)]
    pub(super) metadata: Vec<(String, String)>,
    /// Only messages accepted after this time.
    #[arg(long, value_name = "TIME")]
    pub(super) after: Option<String>,
    /// Only messages accepted before this time.
    #[arg(long, value_name = "TIME")]
    pub(super) before: Option<String>,
    #[command(flatten)]
    pub(super) page: PageArgs,
}

fn metadata_pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = pair.ok_or("must be a name, = and a value, such as order=10482")?;
    Ok((format!("metadata[{name}]"), value.to_owned()))
}

#[derive(Debug, Subcommand)]
pub(super) enum EventCommand {
    /// List the events of the last 30 days.
    List {
        /// Only those of this message.
        #[arg(long, value_name = "ID")]
        message_id: Option<String>,
        /// Only those of this type.
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Only those recorded after this time.
        #[arg(long, value_name = "TIME")]
        after: Option<String>,
        /// Only those recorded before this time.
        #[arg(long, value_name = "TIME")]
        before: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
}
