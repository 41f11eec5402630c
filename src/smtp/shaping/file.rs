//! Parser of a file of limits: its entries, their defaults, and the errors in each.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::{
    Action, CodePattern, EnhancedPattern, InvalidShaping, Limits, Provider, Rule, ServerPattern, Shaping, TextPattern,
};

/// Limits of a site without an entry.
const USUAL: Limits = Limits {
    connections: 10,
    messages_per_connection: 100,
    connection_age: Duration::from_secs(300),
    messages_per_minute: None,
    connections_per_minute: None,
};

/// The parsed file, before validation.
#[derive(Debug)]
pub(super) struct File<'t> {
    text: &'t str,
    content: Content,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    default: DefaultEntry,
    #[serde(default)]
    provider: Vec<ProviderEntry>,
    #[serde(default)]
    rule: Vec<RuleEntry>,
}

/// `[default]`.
#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct DefaultEntry {
    connections: Option<Count>,
    messages_per_connection: Option<Count>,
    connection_seconds: Option<Count>,
}

/// `[[provider]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderEntry {
    name: Spanned<String>,
    mx: Vec<String>,
    connections: Option<Count>,
    messages_per_connection: Option<Count>,
    connection_seconds: Option<Count>,
    messages_per_minute: Option<Count>,
    connections_per_minute: Option<Count>,
}

/// `[[rule]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    id: Spanned<String>,
    provider: Option<String>,
    #[serde(default)]
    code: Vec<String>,
    #[serde(default)]
    enhanced: Vec<String>,
    #[serde(default)]
    text: Vec<String>,
    pause_minutes: Option<Count>,
    messages_per_minute: Option<Count>,
    connections: Option<Count>,
    for_minutes: Option<Count>,
    #[serde(default)]
    examples: Vec<String>,
}

/// A number from 1 to a million. A limit of zero would mean a site that never gets its mail.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "u32")]
struct Count(u32);

impl TryFrom<u32> for Count {
    type Error = &'static str;
    fn try_from(number: u32) -> Result<Self, &'static str> {
        if (1..=1_000_000).contains(&number) { Ok(Self(number)) } else { Err("must be from 1 to 1000000") }
    }
}

impl Count {
    const fn as_usize(self) -> usize {
        self.0 as usize
    }

    const fn seconds(self) -> Duration {
        Duration::from_secs(self.0 as u64)
    }

    const fn minutes(self) -> Duration {
        Duration::from_secs(self.0 as u64 * 60)
    }
}

impl<'t> File<'t> {
    /// # Errors
    /// The text is not TOML that matches this schema.
    pub(super) fn parse(text: &'t str) -> Result<Self, InvalidShaping> {
        let content = toml::from_str(text).map_err(|fault| InvalidShaping::Syntax(fault.to_string()))?;
        Ok(Self { text, content })
    }

    /// Returns the limits, as an overlay of `beneath`.
    ///
    /// # Errors
    /// The first entry that can't be used.
    pub(super) fn read(self, beneath: Option<&Shaping>) -> Result<Shaping, InvalidShaping> {
        let default = self.content.default.over(beneath.map_or(USUAL, |beneath| beneath.default));
        let mut shaping = Shaping { default, providers: Vec::new(), rules: Vec::new() };
        for entry in &self.content.provider {
            let known = shaping.providers.iter().any(|known| &known.name == entry.name.get_ref());
            let provider = if known { Err("two providers have this name".to_owned()) } else { entry.read(default) };
            shaping.providers.push(provider.map_err(|fault| self.at(&entry.name, fault))?);
        }
        let below = beneath.map_or(&[][..], |beneath| &beneath.providers);
        let replaced: Vec<_> = shaping.providers.iter().map(|provider| provider.name.clone()).collect();
        shaping.providers.extend(below.iter().filter(|provider| !replaced.contains(&provider.name)).cloned());
        for entry in &self.content.rule {
            let rule = entry.read(&shaping).map_err(|fault| self.at(&entry.id, fault))?;
            shaping.rules.push(rule);
        }
        let below = beneath.map_or(&[][..], |beneath| &beneath.rules);
        let replaced: Vec<_> = shaping.rules.iter().map(|rule| rule.id.clone()).collect();
        shaping.rules.extend(below.iter().filter(|rule| !replaced.contains(&rule.id)).cloned());
        Ok(shaping)
    }

    fn at(&self, name: &Spanned<String>, fault: String) -> InvalidShaping {
        let before = &self.text[..name.span().start.min(self.text.len())];
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        InvalidShaping::Entry { line, name: name.get_ref().clone(), fault }
    }
}

impl DefaultEntry {
    fn over(&self, beneath: Limits) -> Limits {
        Limits {
            connections: self.connections.map_or(beneath.connections, Count::as_usize),
            messages_per_connection: self.messages_per_connection.map_or(beneath.messages_per_connection, |n| n.0),
            connection_age: self.connection_seconds.map_or(beneath.connection_age, Count::seconds),
            ..beneath
        }
    }
}

impl ProviderEntry {
    fn read(&self, default: Limits) -> Result<Provider, String> {
        if self.mx.is_empty() {
            return Err("mx must name at least one mail server".to_owned());
        }
        let common = DefaultEntry {
            connections: self.connections,
            messages_per_connection: self.messages_per_connection,
            connection_seconds: self.connection_seconds,
        };
        let limits = Limits {
            messages_per_minute: self.messages_per_minute.map(|count| count.0),
            connections_per_minute: self.connections_per_minute.map(|count| count.0),
            ..common.over(default)
        };
        let hosts = self.mx.iter().map(|text| ServerPattern::parse(text)).collect::<Result<_, _>>()?;
        Ok(Provider { name: self.name.get_ref().clone(), hosts, limits })
    }
}

impl ServerPattern {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.to_ascii_lowercase();
        let pattern = match text.split_once('*') {
            Some((prefix, suffix)) => Self::Between(prefix.to_owned(), suffix.to_owned()),
            None if text.starts_with('.') => Self::Between(String::new(), text.clone()),
            None => Self::Exact(text.clone()),
        };
        let is_host = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let fits = match &pattern {
            Self::Exact(name) => is_host(name) && !name.is_empty(),
            // The part after `*` must be a domain, or a provider could claim all servers.
            Self::Between(prefix, suffix) => is_host(prefix) && is_host(suffix) && suffix.trim_matches('.').len() > 1,
        };
        let shapes = "\"mx.example.net\", \".example.net\" or \"mx*.example.net\"";
        let fault = || format!("{text:?} is not a mail server such as {shapes}");
        if fits { Ok(pattern) } else { Err(fault()) }
    }
}

impl RuleEntry {
    fn read(&self, so_far: &Shaping) -> Result<Rule, String> {
        if so_far.rules.iter().any(|rule| &rule.id == self.id.get_ref()) {
            return Err("two rules have this id".to_owned());
        }
        if let Some(name) = self.provider.as_ref().filter(|name| !so_far.providers.iter().any(|p| p.name == **name)) {
            return Err(format!("unknown provider {name:?}"));
        }
        if self.code.is_empty() && self.enhanced.is_empty() && self.text.is_empty() {
            return Err("it needs at least one of code, enhanced and text".to_owned());
        }
        let shapes = "\"421\" or \"4xx\", or \"4.7.28\" or \"4.7.*\"";
        let bad = |text: &String| format!("{text:?} is not a code such as {shapes}");
        let codes = self.code.iter().map(|text| CodePattern::parse(text).ok_or_else(|| bad(text)));
        let enhanced = self.enhanced.iter().map(|text| EnhancedPattern::parse(text).ok_or_else(|| bad(text)));
        let odd = |text: &String| format!("{text:?} matches every answer or none");
        let texts = self.text.iter().map(|text| TextPattern::parse(text).ok_or_else(|| odd(text)));
        let rule = Rule {
            id: self.id.get_ref().clone(),
            provider: self.provider.clone(),
            codes: codes.collect::<Result<_, _>>()?,
            enhanced: enhanced.collect::<Result<_, _>>()?,
            texts: texts.collect::<Result<_, _>>()?,
            actions: self.actions()?,
            examples: self.examples.clone(),
        };
        if rule.meets_its_examples() { Ok(rule) } else { Err("one of its examples does not match".to_owned()) }
    }

    fn actions(&self) -> Result<Vec<Action>, String> {
        let lasting = self.messages_per_minute.is_some() || self.connections.is_some();
        let lasts = match (lasting, self.for_minutes) {
            (true, Some(minutes)) => minutes.minutes(),
            (true, None) => return Err("for_minutes must set the duration of the limit".to_owned()),
            (false, Some(_)) => return Err("for_minutes belongs to messages_per_minute or connections".to_owned()),
            (false, None) => Duration::ZERO,
        };
        let pause = self.pause_minutes.map(|minutes| Action::Pause(minutes.minutes()));
        let rate = self.messages_per_minute.map(|rate| Action::Rate { messages_per_minute: rate.0, lasts });
        let connections = self.connections.map(|most| Action::Connections { most: most.as_usize(), lasts });
        let actions: Vec<_> = [pause, rate, connections].into_iter().flatten().collect();
        let none = "it needs at least one of pause_minutes, messages_per_minute and connections";
        if actions.is_empty() { Err(none.to_owned()) } else { Ok(actions) }
    }
}
