//! Query of the search box: words of the subject, operators, or a pasted value whose kind is recognised. Operators have
//! the names of the API's filters, and the same function checks them.

mod range;
mod time;

use jiff::tz::TimeZone;

use crate::base::id::MessageId;
use crate::domain::hostname::DomainName;
use crate::domain::violation::Violations;
use crate::engine::messages::MessageFilter;
use crate::http::handlers::messages::{filter_of, metadata_of, named_id};
use crate::panel::status_group::StatusGroup;

pub(super) use range::{end, in_words, last, presets, with_times};
pub(super) use time::{TimeField, moment, typed};

/// Maximum number of characters read from a search.
const CHARACTERS_MAX: usize = 500;
/// Operators and their filters: first those of the API, then those of the panel alone.
const OPERATORS: [(&str, &str); 14] = [
    ("to", "to"),
    ("from", "from"),
    ("subject", "subject"),
    ("msgid", "message_id_header"),
    ("status", "status"),
    ("stream", "stream"),
    ("via", "via"),
    ("after", "after"),
    ("before", "before"),
    ("until", "until"),
    ("domain", "domain"),
    ("key", "key"),
    ("code", "code"),
    ("answer", "answer"),
];

/// Forms of addresses that can be searched.
const ADDRESSES: &str = "Search for a whole address such as ann@example.com, or for a domain as @example.com.";

/// Query parameters of a page.
type QueryParams = Vec<(&'static str, String)>;

/// One term of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Term {
    /// Identifier of a message.
    Id(MessageId),
    /// An API filter, its value, and the text as typed.
    Filter(&'static str, String, String),
    /// A metadata pair as the API's parameter and its value, and the text as typed.
    Metadata(String, String, String),
    /// A word of the subject.
    Word(String),
    /// An excluded term.
    Not(Box<Term>),
}

/// A parsed search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Search {
    /// Search text as typed.
    pub(super) text: String,
    /// Status from the status field.
    pub(super) status: String,
    /// Stream from the stream field.
    pub(super) stream: String,
    /// Terms of the search.
    pub(super) terms: Vec<Term>,
    /// Errors of terms that could not be parsed.
    pub(super) faults: Vec<String>,
    values: Vec<(&'static str, String)>,
    unwanted: Vec<(&'static str, String)>,
    metadata: Vec<(String, String)>,
    unwanted_metadata: Vec<(String, String)>,
}

impl Search {
    /// Parses a search. Days without a time are days of `zone`.
    pub(super) fn read(text: &str, status: &str, stream: &str, zone: &TimeZone) -> Self {
        let text: String = text.chars().take(CHARACTERS_MAX).collect();
        let mut search = Self {
            text: text.trim().to_owned(),
            status: status.to_owned(),
            stream: stream.to_owned(),
            terms: Vec::new(),
            faults: Vec::new(),
            values: Vec::new(),
            unwanted: Vec::new(),
            metadata: Vec::new(),
            unwanted_metadata: Vec::new(),
        };
        for part in parts(&text) {
            match part.strip_prefix('-').filter(|rest| !rest.is_empty()) {
                Some(rest) => search.leave_out(rest, zone),
                None => {
                    let term = search.term(&part, zone);
                    search.terms.extend(term);
                }
            }
        }
        search.gather();
        search
    }

    fn leave_out(&mut self, part: &str, zone: &TimeZone) {
        match self.term(part, zone) {
            Some(Term::Filter("after" | "before", _, typed)) => {
                self.faults.push(format!("-{typed} is not supported. Use after: or until: without the minus."));
            }
            Some(term) => self.terms.push(Term::Not(Box::new(term))),
            None => {}
        }
    }

    /// Parses one part; records an error and returns `None` if it can't be understood.
    fn term(&mut self, part: &str, zone: &TimeZone) -> Option<Term> {
        let operator = part.split_once(':').and_then(|(name, value)| {
            let known = OPERATORS.iter().find(|(operator, _)| name.eq_ignore_ascii_case(operator))?;
            Some((known.1, value))
        });
        let filter = |name, value: String| Term::Filter(name, value, part.to_owned());
        if let Some((name, value)) = metadata_pair(part) {
            if value.is_empty() {
                self.faults.push(format!("The filter {part} needs a value directly after the colon."));
                return None;
            }
            return Some(Term::Metadata(format!("metadata[{name}]"), value.to_owned(), part.to_owned()));
        }
        Some(match operator {
            Some((_, "")) => {
                self.faults.push(format!("The filter {part} needs a value directly after the colon."));
                return None;
            }
            Some((name @ ("after" | "before"), value)) => filter(name, moment(value, zone)),
            Some(("until", value)) => filter("before", end(value, zone)),
            Some((name, value)) => filter(name, value.to_owned()),
            None => match part.strip_prefix("id:").unwrap_or(part).parse() {
                Ok(id) => Term::Id(id),
                Err(_) if part.starts_with('<') && part.ends_with('>') && part.contains('@') => {
                    filter("message_id_header", part.to_owned())
                }
                // Our own Message-ID without its brackets, as some tools copy it.
                Err(_) if named_id(part).is_some() => filter("message_id_header", part.to_owned()),
                Err(_) => match part.split_once('@') {
                    Some(("", name)) if name.parse::<DomainName>().is_ok() => filter("domain", name.to_owned()),
                    Some(("", _) | (_, "")) => {
                        self.faults.push(format!("{part} is only a part of an address. {ADDRESSES}"));
                        return None;
                    }
                    Some(_) => filter("to", part.to_owned()),
                    None => Term::Word(part.to_lowercase()),
                },
            },
        })
    }

    /// Returns the search to try if this one finds nothing: a lone address as the sender, a lone domain as that, and
    /// any other text as a part of the subject. `None` if the text was already searched that way.
    pub(super) fn alternative(&self, zone: &TimeZone) -> Option<Self> {
        let text = match self.terms.as_slice() {
            [Term::Filter("to", value, typed)] if value == typed && self.faults.is_empty() => format!("from:{value}"),
            [Term::Word(word)] if self.faults.is_empty() && word.parse::<DomainName>().is_ok() => {
                format!("domain:{word}")
            }
            [Term::Filter("subject", ..)] => return None,
            terms if self.faults.is_empty() && terms.iter().all(|term| matches!(term, Term::Word(_))) => return None,
            _ => quoted(&format!("subject:{}", self.text)),
        };
        Some(Self::read(&text, &self.status, &self.stream, zone))
    }

    /// Returns the word or quoted words as typed, if the search is nothing else.
    pub(super) fn lone_word(&self) -> Option<String> {
        let is_lone = self.faults.is_empty() && matches!(self.terms.as_slice(), [Term::Word(_)]);
        is_lone.then(|| parts(&self.text).next()).flatten()
    }

    /// Collects the terms as filter values. The status and stream fields count in addition to the typed text.
    fn gather(&mut self) {
        let mut words = Vec::new();
        for term in &self.terms {
            match term {
                Term::Id(id) => self.values.push(("message_id_header", format!("<{id}@any>"))),
                Term::Word(word) => words.push(word.clone()),
                Term::Not(term) => match &**term {
                    Term::Id(id) => self.unwanted.push(("message_id_header", format!("<{id}@any>"))),
                    Term::Word(word) => self.unwanted.push(("subject", word.clone())),
                    Term::Filter(name, value, _) => self.unwanted.push((*name, value.clone())),
                    Term::Metadata(name, value, _) => self.unwanted_metadata.push((name.clone(), value.clone())),
                    Term::Not(_) => {}
                },
                Term::Metadata(name, value, typed) => {
                    if self.metadata.iter().any(|(known, _)| known == name) {
                        self.faults.push(format!("The filter {typed} is set twice. Remove one of them."));
                    }
                    self.metadata.push((name.clone(), value.clone()));
                }
                Term::Filter("subject", value, _) => words.push(value.to_lowercase()),
                Term::Filter(name, value, typed) => {
                    if self.values.iter().any(|(known, _)| known == name) {
                        self.faults.push(format!("The filter {typed} is set twice. Remove one of them."));
                    }
                    self.values.push((name, value.clone()));
                }
            }
        }
        if !words.is_empty() {
            self.values.push(("subject", words.join(" ")));
        }
        for (name, value) in [("status", &self.status), ("stream", &self.stream)] {
            if !value.is_empty() && self.value(name).is_none() {
                self.values.push((name, value.clone()));
            }
        }
    }

    /// Returns the value of an API filter.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the first and the last day or time of the typed range. Empty if none was typed.
    pub(super) fn range(&self, zone: &TimeZone) -> [String; 2] {
        let typed = |wanted: &str| {
            let mut terms = self.terms.iter();
            let found = terms.find_map(|term| match term {
                Term::Filter(name, _, typed) if *name == wanted => typed.split_once(':'),
                _ => None,
            });
            found.map_or_else(String::new, |(name, value)| match name.eq_ignore_ascii_case("before") {
                true => last(value, zone),
                false => value.to_owned(),
            })
        };
        [typed("after"), typed("before")]
    }

    /// Returns the filter for the engine. `violations` receives invalid values.
    pub(super) fn filter(&self, violations: &mut Violations) -> MessageFilter {
        let unwanted = self.unwanted.iter().map(|(name, value)| {
            let given = |wanted: &str| (wanted == *name).then_some(value.as_str());
            filter_by(given, violations)
        });
        let mut without: Vec<_> = unwanted.filter(MessageFilter::narrows).collect();
        for pair in &self.unwanted_metadata {
            let metadata = metadata_of(named([pair]), violations);
            without.push(MessageFilter { metadata, ..MessageFilter::default() });
        }
        let metadata = metadata_of(named(&self.metadata), violations);
        MessageFilter { without, metadata, ..filter_by(|name| self.value(name), violations) }
    }

    /// Whether the search is empty, so that all messages match.
    pub(super) fn is_empty(&self) -> bool {
        let pairs = self.metadata.len() + self.unwanted_metadata.len();
        self.values.len() + self.unwanted.len() + self.faults.len() + pairs == 0
    }

    /// Returns the query parameters of this search.
    pub(super) fn params(&self) -> QueryParams {
        vec![("q", self.text.clone()), ("status", self.status.clone()), ("stream", self.stream.clone())]
    }

    /// Returns the parameters of this search with another status. An empty status matches all messages.
    pub(super) fn with_status(&self, status: &str) -> QueryParams {
        let is_status =
            |part: &String| part.split_once(':').is_some_and(|(name, _)| name.eq_ignore_ascii_case("status"));
        let text = parts(&self.text).filter(|part| !is_status(part)).map(|part| quoted(&part)).collect::<Vec<_>>();
        vec![("q", text.join(" ")), ("status", status.to_owned()), ("stream", self.stream.clone())]
    }

    /// Returns the words that look like a metadata pair, such as `order:10482` or `order=10482`. Each has the search of
    /// the pair, and the parameters of the whole search with it.
    pub(super) fn metadata_hints(&self) -> Vec<(String, String, QueryParams)> {
        let parts: Vec<String> = parts(&self.text).collect();
        let hint = |(place, typed): (usize, &String)| {
            let (name, value) = typed.split_once([':', '='])?;
            let is_name = name.starts_with(char::is_alphabetic) && !name.contains(char::is_whitespace);
            let is_word = self.terms.contains(&Term::Word(typed.to_lowercase()));
            if !is_name || !is_word || value.is_empty() || value.starts_with('/') {
                return None;
            }
            let meant = of_metadata(name, value);
            let text =
                parts.iter().enumerate().map(|(other, part)| if other == place { meant.clone() } else { quoted(part) });
            let text = text.collect::<Vec<_>>().join(" ");
            let params = vec![("q", text), ("status", self.status.clone()), ("stream", self.stream.clone())];
            Some((typed.clone(), meant, params))
        };
        parts.iter().enumerate().filter_map(hint).collect()
    }

    /// Returns, for each filter, its words and the search parameters without it: first the range of times.
    pub(super) fn without_each(&self, zone: &TimeZone) -> Vec<(String, QueryParams)> {
        let with = |text: String| vec![("q", text), ("status", self.status.clone()), ("stream", self.stream.clone())];
        let [after, until] = self.range(zone);
        let without_range = with_times(&self.text, &[("after", Some("")), ("until", Some(""))]);
        let range = in_words(&after, &until, zone).map(|words| (format!("Accepted {words}"), with(without_range)));
        let parts: Vec<String> = parts(&self.text).collect();
        let typed = (0..parts.len()).filter(|place| range::bound(&parts[*place]).is_none()).map(|place| {
            let rest = parts.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, part)| quoted(part));
            (parts[place].clone(), with(rest.collect::<Vec<_>>().join(" ")))
        });
        let chosen = [("status", "Status", &self.status), ("stream", "Stream", &self.stream)];
        let chosen = chosen.into_iter().filter(|(_, _, value)| !value.is_empty()).map(|(name, words, value)| {
            let params = self.params().into_iter().filter(|(other, _)| *other != name).collect();
            (format!("{words}: {value}"), params)
        });
        range.into_iter().chain(typed).chain(chosen).collect()
    }
}

/// Returns the filter for these values: the API's filters with their checks, and the panel's own.
fn filter_by<'a>(given: impl Fn(&str) -> Option<&'a str>, violations: &mut Violations) -> MessageFilter {
    if let Some(group) = given("status").and_then(StatusGroup::named) {
        let others = filter_by_api(|name| given(name).filter(|_| name != "status"), violations);
        return MessageFilter { statuses: group.statuses(), ..others };
    }
    filter_by_api(given, violations)
}

/// Returns the filter for these values, without groups of statuses.
fn filter_by_api<'a>(given: impl Fn(&str) -> Option<&'a str>, violations: &mut Violations) -> MessageFilter {
    let domain = given("domain").and_then(|text| violations.check("domain", text.parse()));
    let key = given("key").and_then(|text| violations.check("key", text.parse().map_err(|_| "must be a key's ID")));
    let code = given("code").map(|text| text.parse().map_err(|_| "must be a reply code, such as 550"));
    let code = code.and_then(|parsed| violations.check("code", parsed));
    let answer = given("answer").map(str::to_lowercase);
    MessageFilter { domain, key, code, answer, ..filter_of(given, violations) }
}

/// Parses the name and value of `metadata.order:10482`. In the name, a colon is written `\:`, and a backslash `\\` or,
/// before another character, `\`.
fn metadata_pair(part: &str) -> Option<(String, &str)> {
    let (_, pair) = part.split_once('.').filter(|(operator, _)| operator.eq_ignore_ascii_case("metadata"))?;
    let mut name = String::new();
    let mut rest = pair.char_indices().peekable();
    while let Some((at, character)) = rest.next() {
        match character {
            ':' => return (!name.is_empty()).then(|| (name, &pair[at + 1..])),
            '\\' => name.push(rest.next_if(|(_, next)| matches!(next, ':' | '\\')).map_or('\\', |(_, next)| next)),
            other => name.push(other),
        }
    }
    None
}

fn named<'a>(pairs: impl IntoIterator<Item = &'a (String, String)>) -> impl Iterator<Item = (&'a str, &'a str)> {
    pairs.into_iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

/// Splits a search at white space. Double quotes keep words together; a quote of a word itself is written `\"`,
/// and a backslash `\\` or, before another character, `\`.
fn parts(text: &str) -> impl Iterator<Item = String> {
    let mut parts = vec![String::new()];
    let mut is_quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let character = match character {
            '\\' => {
                let escaped = characters.next_if(|next| matches!(next, '"' | '\\')).unwrap_or('\\');
                parts.last_mut().unwrap_or_else(|| unreachable!("there is always a last part")).push(escaped);
                continue;
            }
            other => other,
        };
        match character {
            '"' => is_quoted = !is_quoted,
            other if other.is_whitespace() && !is_quoted => parts.push(String::new()),
            other => parts.last_mut().unwrap_or_else(|| unreachable!("there is always a last part")).push(other),
        }
    }
    parts.into_iter().filter(|part| !part.trim().is_empty())
}

/// Returns the search for messages with a metadata pair.
pub(super) fn of_metadata(name: &str, value: &str) -> String {
    let name = name.replace('\\', "\\\\").replace(':', "\\:");
    quoted(&format!("metadata.{name}:{value}"))
}

fn quoted(part: &str) -> String {
    let part = &part.replace('\\', "\\\\").replace('"', "\\\"");
    if !part.contains(char::is_whitespace) {
        return part.to_owned();
    }
    match part.split_once(':') {
        Some((operator, value)) if !operator.contains(' ') => format!("{operator}:\"{value}\""),
        Some(_) | None => format!("\"{part}\""),
    }
}

#[cfg(test)]
mod tests;
