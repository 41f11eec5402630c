//! The grammar of the commands about mail and what became of it: webhooks, suppressions, messages, events (contract 8).
//!
//! What a value may be is the API's to say; here stand the names.

use clap::{Args, Subcommand};

use super::args::PageArgs;
use super::listen::ListenArgs;
use super::send::SendArgs;

#[derive(Debug, Subcommand)]
pub(super) enum WebhookCommand {
    #[command(flatten)]
    Endpoint(EndpointCommand),
    /// Pass each event on to a program under development, or receive and verify webhooks, until Ctrl-C.
    Listen(Box<ListenArgs>),
}

#[derive(Debug, Subcommand)]
pub(super) enum EndpointCommand {
    /// Register an endpoint and print its secret, this once.
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
    /// Change what is named of an endpoint.
    #[command(group(clap::ArgGroup::new("change").required(true).multiple(true)))]
    Set {
        /// Its identifier.
        id: String,
        /// Its https URL.
        #[arg(long, group = "change")]
        url: Option<String>,
        /// The event types that it takes.
        #[arg(long, value_delimiter = ',', group = "change")]
        events: Option<Vec<String>>,
        /// Take every event type.
        #[arg(long, conflicts_with = "events", group = "change")]
        all_events: bool,
        /// Description of its purpose
        #[arg(long, group = "change")]
        description: Option<String>,
        /// Whether it is sent to; true enables one that was disabled.
        #[arg(long, value_name = "true|false", group = "change")]
        enabled: Option<bool>,
    },
    /// Make a new secret and print it, this once.
    RotateSecret {
        /// Its identifier.
        id: String,
    },
    /// Send it an event of type test.
    Test {
        /// Its identifier.
        id: String,
    },
    /// Remove an endpoint: what it is owed is not sent.
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
    /// Let an address be sent to again.
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
    List(MessageFilterArgs),
    /// Show one message with its content and everything that happened to it.
    Show {
        /// Its identifier.
        id: String,
    },
    /// Withdraw a message that was not sent yet.
    Cancel {
        /// Its identifier.
        id: String,
    },
}

/// Which messages.
#[derive(Debug, Args)]
pub(super) struct MessageFilterArgs {
    /// Only those to this address.
    #[arg(long)]
    pub(super) to: Option<String>,
    /// Only those from this address.
    #[arg(long)]
    pub(super) from: Option<String>,
    /// Only those with these words in their subject.
    #[arg(long)]
    pub(super) subject: Option<String>,
    /// Only the one with this Message-ID.
    #[arg(long)]
    pub(super) message_id_header: Option<String>,
    /// Only those of this status.
    #[arg(long)]
    pub(super) status: Option<String>,
    /// Only those of this stream.
    #[arg(long)]
    pub(super) stream: Option<String>,
    /// Only those with this metadata pair; may be given three times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = metadata_pair)]
    pub(super) metadata: Vec<(String, String)>,
    /// Only those accepted after this time.
    #[arg(long, value_name = "TIME")]
    pub(super) after: Option<String>,
    /// Only those accepted before this time.
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
