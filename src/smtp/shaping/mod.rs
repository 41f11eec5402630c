//! Rate limits per receiver, and actions requested by its answers: `data/shaping.toml`, with an operator's file on top.
//! `app` reads it once at start, and the engine's destination queues follow it.
//!
//! It only sets limits. Whether a message is delivered, deferred or bounced is decided by the rules in `bounces.toml`.

use std::sync::LazyLock;
use std::time::Duration;

use super::pattern::{CodePattern, EnhancedPattern, TextPattern};
use super::reply::{Reply, ReplyParser};

mod file;

use file::File;

const BUILT_IN: &str = include_str!("../../../data/shaping.toml");

/// Errors in a file of limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidShaping {
    /// The file is not valid TOML, or does not match the schema. The text has line and column.
    #[error("{0}")]
    Syntax(String),
    /// An entry can't be used.
    #[error("line {line}: {name}: {fault}")]
    Entry {
        /// The line of its name.
        line: usize,
        /// Name of the provider.
        name: String,
        /// The error in its entry.
        fault: String,
    },
}

/// Limits on serving a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of concurrent connections.
    pub connections: usize,
    /// Maximum number of messages per connection.
    pub messages_per_connection: u32,
    /// Maximum age of a connection.
    pub connection_age: Duration,
    /// Maximum number of messages per minute. Only known providers have such a limit.
    pub messages_per_minute: Option<u32>,
    /// Maximum number of new connections per minute. Only known providers have such a limit.
    pub connections_per_minute: Option<u32>,
}

/// An action requested by an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Send nothing for this time.
    Pause(Duration),
    /// Limit the number of messages per minute for some time.
    Rate {
        /// Messages per minute.
        messages_per_minute: u32,
        /// Duration of the action.
        lasts: Duration,
    },
    /// Limit the number of connections for some time.
    Connections {
        /// Maximum number of connections.
        most: usize,
        /// Duration of the action.
        lasts: Duration,
    },
}

/// A known receiving provider.
#[derive(Debug, Clone)]
struct Provider {
    name: String,
    hosts: Vec<ServerPattern>,
    limits: Limits,
}

impl Provider {
    fn runs(&self, server: &str) -> bool {
        self.hosts.iter().any(|pattern| pattern.fits(server))
    }
}

/// The names of some mail servers, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ServerPattern {
    Exact(String),
    Between(String, String),
}

/// A rule: actions to take for an answer.
#[derive(Debug, Clone)]
struct Rule {
    id: String,
    provider: Option<String>,
    codes: Vec<CodePattern>,
    enhanced: Vec<EnhancedPattern>,
    texts: Vec<TextPattern>,
    actions: Vec<Action>,
    examples: Vec<String>,
}

/// All limits and rules.
#[derive(Debug, Clone)]
pub struct Shaping {
    default: Limits,
    providers: Vec<Provider>,
    rules: Vec<Rule>,
}

impl ServerPattern {
    fn fits(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => host == name,
            Self::Between(prefix, suffix) => {
                host.len() > prefix.len() + suffix.len() && host.starts_with(prefix) && host.ends_with(suffix)
            }
        }
    }
}

impl Rule {
    fn fits(&self, provider: Option<&str>, reply: &Reply, words: &str) -> bool {
        let enhanced = reply.enhanced();
        let has_enhanced = |pattern: &EnhancedPattern| enhanced.is_some_and(|code| pattern.fits(code));
        self.provider.as_deref().is_none_or(|wanted| provider == Some(wanted))
            && (self.codes.is_empty() || self.codes.iter().any(|pattern| pattern.fits(Some(reply.code), enhanced)))
            && (self.enhanced.is_empty() || self.enhanced.iter().any(has_enhanced))
            && (self.texts.is_empty() || self.texts.iter().any(|text| text.fits(words)))
    }

    /// Returns whether the rule matches its own examples.
    fn meets_its_examples(&self) -> bool {
        self.examples.iter().all(|example| {
            let reply = ReplyParser::new().feed(format!("{example}\n").as_bytes()).ok().and_then(|(_, reply)| reply);
            reply.is_some_and(|reply| self.fits(self.provider.as_deref(), &reply, &words_of(&reply)))
        })
    }
}

/// Returns the text of an answer for searching, with a blank at either end.
fn words_of(reply: &Reply) -> String {
    format!(" {} ", reply.words())
}

impl Shaping {
    /// Returns the built-in limits.
    pub fn built_in() -> &'static Self {
        static SHAPING: LazyLock<Shaping> = LazyLock::new(|| {
            let read = File::parse(BUILT_IN).and_then(|file| file.read(None));
            read.unwrap_or_else(|_| unreachable!("a test parses the built-in limits"))
        });
        &SHAPING
    }

    /// Parses `text` as an overlay of the built-in limits.
    ///
    /// # Errors
    /// The first error and its line.
    pub fn with_overlay(text: &str) -> Result<Self, InvalidShaping> {
        File::parse(text)?.read(Some(Self::built_in()))
    }

    /// Returns the provider that runs all of these servers, if there is one. Names are in lower case, without trailing
    /// dot.
    pub fn provider_of(&self, servers: &[String]) -> Option<&str> {
        let runs_all = |provider: &&Provider| servers.iter().all(|server| provider.runs(server));
        let found = self.providers.iter().find(runs_all).filter(|_| !servers.is_empty());
        found.map(|provider| provider.name.as_str())
    }

    /// Iterates over the names of all providers.
    #[cfg(test)]
    pub(crate) fn provider_names(&self) -> impl Iterator<Item = &str> {
        self.providers.iter().map(|provider| provider.name.as_str())
    }

    /// Returns the limits of a provider, or the default ones.
    pub fn limits(&self, provider: Option<&str>) -> Limits {
        let known = |name| self.providers.iter().find(|known| known.name == name);
        provider.and_then(known).map_or(self.default, |provider| provider.limits)
    }

    /// Returns the actions requested by an answer of `provider`; empty if none.
    pub fn actions(&self, provider: Option<&str>, reply: &Reply) -> &[Action] {
        if reply.code < 400 {
            return &[];
        }
        let words = words_of(reply);
        let rule = self.rules.iter().find(|rule| rule.fits(provider, reply, &words));
        rule.map_or(&[], |rule| &rule.actions)
    }
}

#[cfg(test)]
mod tests;
