//! The command-line grammar for mail and its outcomes: webhooks, suppressions, messages, events (contract 8).
//!
//! The API checks the values; this module only has the names.

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
        /// The https URL of the endpoint.
        url: String,
        /// Event types to send (default: all).
        #[arg(long, value_delimiter = ',')]
        events: Option<Vec<String>>,
        /// Description of its purpose.
        #[arg(long)]
        description: Option<String>,
    },
    /// List the endpoints.
    List(PageArgs),
    /// Show one endpoint.
    Show {
        /// Webhook ID.
        id: String,
    },
    /// Change an endpoint's URL, events or state.
    #[command(group(clap::ArgGroup::new("change").required(true).multiple(true)))]
    Set {
        /// Webhook ID.
        id: String,
        /// The https URL of the endpoint.
        #[arg(long, group = "change")]
        url: Option<String>,
        /// Event types to send.
        #[arg(long, value_delimiter = ',', group = "change")]
        events: Option<Vec<String>>,
        /// Send all event types.
        #[arg(long, conflicts_with = "events", group = "change")]
        all_events: bool,
        /// Description of its purpose.
        #[arg(long, group = "change")]
        description: Option<String>,
        /// Whether events are sent; true enables a disabled endpoint.
        #[arg(long, value_name = "true|false", group = "change")]
        enabled: Option<bool>,
    },
    /// Create a new secret and print it; it won't be shown again.
    RotateSecret {
        /// Webhook ID.
        id: String,
    },
    /// Send the endpoint an event of type test.
    Test {
        /// Webhook ID.
        id: String,
    },
    /// Remove an endpoint; its outstanding deliveries are not sent.
    Remove {
        /// Webhook ID.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum SuppressionCommand {
    /// Suppress an address.
    Add {
        /// The address.
        email: String,
        /// The reason.
        #[arg(long)]
        note: Option<String>,
    },
    /// List the suppressions.
    List {
        /// Only the suppression of this address.
        #[arg(long)]
        email: Option<String>,
        /// Only suppressions for this reason: bounce, complaint, unsubscribe, manual, import.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one suppression.
    Show {
        /// The address or ID.
        suppression: String,
    },
    /// Remove a suppression, so that the address gets mail again.
    Remove {
        /// The address or ID.
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
        /// Message ID.
        id: String,
    },
    /// Cancel a message that has not been sent yet.
    Cancel {
        /// Message ID.
        id: String,
    },
}

/// Filters for messages.
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
        /// Only events of this message.
        #[arg(long, value_name = "ID")]
        message_id: Option<String>,
        /// Only events of this type.
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Only events recorded after this time.
        #[arg(long, value_name = "TIME")]
        after: Option<String>,
        /// Only events recorded before this time.
        #[arg(long, value_name = "TIME")]
        before: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
}
