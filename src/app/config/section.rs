//! One section of the configuration. Its keys are taken one by one: an absent key has its default, an invalid one is
//! recorded with its place, and the keys that remain at the end are unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use super::error::KeyError;
use super::tree::{Node, Place, Value};
use crate::domain::nearest::nearest;

/// Errors and set keys, collected while a configuration is read.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Errors.
    pub(super) faults: Vec<KeyError>,
    /// The dotted keys that are set.
    pub(super) set: BTreeSet<String>,
}

/// A section whose keys are being taken.
pub(super) struct Section<'n> {
    path: String,
    place: Place,
    members: BTreeMap<String, Node>,
    known: Vec<&'static str>,
    notes: &'n mut Notes,
}

impl<'n> Section<'n> {
    /// Returns the keys outside all sections.
    pub(super) const fn root(members: BTreeMap<String, Node>, notes: &'n mut Notes) -> Self {
        let place = Place::File { line: 1, column: 1 };
        Self { path: String::new(), place, members, known: Vec::new(), notes }
    }

    fn dotted(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Records an error of `key` at `place`.
    pub(super) fn fault(&mut self, place: Place, key: &str, sentence: impl Into<String>) {
        let dotted = self.dotted(key);
        self.notes.faults.push(KeyError::new(place, &dotted, sentence));
    }

    /// Records that `key` is missing although the section needs it.
    pub(super) fn missing(&mut self, key: &str, sentence: impl Into<String>) {
        let place = self.place.clone();
        self.fault(place, key, sentence);
    }

    /// Records that the value of `key` conflicts with the rest of the configuration, or is not supported by this
    /// version.
    pub(super) fn unusable(&mut self, key: &str, sentence: impl Into<String>) {
        let dotted = self.dotted(key);
        let fault = KeyError::new(self.place.clone(), &dotted, sentence);
        self.notes.faults.push(KeyError { is_usage: true, ..fault });
    }

    /// Returns whether an error of `key` is recorded.
    pub(super) fn has_faults_of(&self, key: &str) -> bool {
        let dotted = self.dotted(key);
        self.notes.faults.iter().any(|fault| fault.is_of(&dotted))
    }

    /// Takes a key without parsing it.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Node> {
        self.known.push(key);
        let node = self.members.remove(key)?;
        self.notes.set.insert(self.dotted(key));
        Some(node)
    }

    /// Takes one value; the default is `default`.
    pub(super) fn value<T>(&mut self, key: &'static str, default: T, read: impl Fn(&Node) -> Result<T, String>) -> T {
        let Some(node) = self.take(key) else { return default };
        read(&node).unwrap_or_else(|sentence| {
            self.fault(node.place, key, sentence);
            default
        })
    }

    /// Takes a list; the default is `default`. Every invalid item is recorded at its own place.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        default: Vec<T>,
        read: impl Fn(&Node) -> Result<T, String>,
    ) -> Vec<T> {
        let Some(node) = self.take(key) else { return default };
        let items = match node.value {
            Value::List(items) => items,
            Value::Loose(text) => separated(&text, &node.place),
            Value::Text(_) | Value::Integer(_) | Value::Boolean(_) | Value::Table(_) | Value::Other => {
                self.fault(node.place, key, "must be a list, in [ ]");
                return default;
            }
        };
        let (count, mut taken) = (items.len(), Vec::with_capacity(items.len()));
        for item in items {
            match read(&item) {
                Ok(value) => taken.push(value),
                Err(sentence) => self.fault(item.place, key, sentence),
            }
        }
        if taken.len() == count { taken } else { default }
    }

    /// Takes one required value; an empty string counts as absent. `sentence` says what the value must be.
    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        sentence: &str,
        read: impl Fn(&Node) -> Result<T, String>,
    ) -> Option<T> {
        let Some(node) = self.take(key) else {
            self.missing(key, sentence);
            return None;
        };
        match unless_empty(read)(&node) {
            Ok(Some(value)) => return Some(value),
            Ok(None) => self.fault(node.place, key, sentence),
            Err(fault) => self.fault(node.place, key, fault),
        }
        None
    }

    /// Takes a section inside this one; an absent one counts as empty.
    pub(super) fn section(&mut self, key: &'static str) -> Section<'_> {
        let path = self.dotted(key);
        let (members, place) = match self.take(key) {
            Some(Node { value: Value::Table(members), place, .. }) => (members, place),
            Some(node) => {
                self.fault(node.place.clone(), key, format!("must be a section, [{path}]"));
                (BTreeMap::new(), node.place)
            }
            None => (BTreeMap::new(), self.place.clone()),
        };
        Section { path, place, members, known: Vec::new(), notes: self.notes }
    }

    /// Takes the elements of a repeated section (`[[key]]`), each read by `read`; `None` if the key is absent.
    pub(super) fn repeated<T>(&mut self, key: &'static str, read: impl Fn(Section<'_>) -> T) -> Option<Vec<T>> {
        let path = self.dotted(key);
        let node = self.take(key)?;
        let Value::List(items) = node.value else {
            self.fault(node.place, key, format!("must be written as [[{path}]]"));
            return None;
        };
        let mut taken = Vec::with_capacity(items.len());
        for item in items {
            let Value::Table(members) = item.value else {
                self.fault(item.place, key, format!("must be written as [[{path}]]"));
                continue;
            };
            let section =
                Section { path: path.clone(), place: item.place, members, known: Vec::new(), notes: self.notes };
            taken.push(read(section));
        }
        Some(taken)
    }

    /// Returns whether a key is set in the file or by a variable.
    pub(super) fn has(&self, key: &str) -> bool {
        self.members.contains_key(key)
    }

    /// Ends the reading. Remaining keys are unknown, so that a misspelt key is always reported.
    pub(super) fn finish(mut self) {
        for (key, node) in std::mem::take(&mut self.members) {
            let meant = nearest(&key, &self.known).map(|meant| format!("; did you mean {}?", self.dotted(meant)));
            self.fault(node.key, &key, format!("unknown key{}", meant.unwrap_or_default()));
        }
    }
}

/// Returns the items of a comma-separated list.
fn separated(text: &str, place: &Place) -> Vec<Node> {
    let item = |item: &str| Node { value: Value::Loose(item.to_owned()), place: place.clone(), key: place.clone() };
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(item).collect()
}

/// Parses a string.
pub(super) fn text(node: &Node) -> Result<&str, String> {
    match &node.value {
        Value::Text(text) | Value::Loose(text) => Ok(text),
        Value::Integer(_) | Value::Boolean(_) | Value::List(_) | Value::Table(_) | Value::Other => {
            Err("must be a string, in quotes".to_owned())
        }
    }
}

/// Parses a string into a type whose error says what is allowed.
pub(super) fn parsed<T: FromStr<Err: Display>>(node: &Node) -> Result<T, String> {
    text(node)?.parse().map_err(|fault: T::Err| fault.to_string())
}

/// Parses true or false.
pub(super) fn boolean(node: &Node) -> Result<bool, String> {
    match &node.value {
        Value::Boolean(value) => Ok(*value),
        Value::Loose(text) => text.parse().map_err(|_| "must be true or false".to_owned()),
        Value::Text(_) | Value::Integer(_) | Value::List(_) | Value::Table(_) | Value::Other => {
            Err("must be true or false, without quotes".to_owned())
        }
    }
}

/// Returns a parser for a whole number within `range`.
pub(super) fn number<T: TryFrom<i64>>(range: RangeInclusive<i64>) -> impl Fn(&Node) -> Result<T, String> {
    move |node| {
        let given = match &node.value {
            Value::Integer(number) => Some(*number),
            Value::Loose(text) => text.parse().ok(),
            Value::Text(_) | Value::Boolean(_) | Value::List(_) | Value::Table(_) | Value::Other => None,
        };
        let fits = given.filter(|number| range.contains(number)).and_then(|number| T::try_from(number).ok());
        fits.ok_or_else(|| match *range.end() {
            i64::MAX => format!("must be a whole number of at least {}", range.start()),
            most => format!("must be a whole number from {} to {most}", range.start()),
        })
    }
}

/// Returns `None` for an empty string, otherwise the result of `read`.
pub(super) fn unless_empty<T>(
    read: impl Fn(&Node) -> Result<T, String>,
) -> impl Fn(&Node) -> Result<Option<T>, String> {
    move |node| if text(node)?.is_empty() { Ok(None) } else { read(node).map(Some) }
}

/// Parses the path of a file or directory.
pub(super) fn path(node: &Node) -> Result<PathBuf, String> {
    match text(node)? {
        "" => Err("must name a path".to_owned()),
        path => Ok(PathBuf::from(path)),
    }
}

/// Parses an address with a port.
pub(super) fn socket(node: &Node) -> Result<SocketAddr, String> {
    let text = text(node)?;
    text.parse().map_err(|_| format!("`{text}` is not an address with a port, such as 127.0.0.1:8025 or [::]:443"))
}

/// Returns a parser for one of a few words.
pub(super) fn word<T: Copy, const N: usize>(words: [(&'static str, T); N]) -> impl Fn(&Node) -> Result<T, String> {
    move |node| {
        let given = text(node)?;
        words.iter().find(|(word, _)| *word == given).map(|(_, value)| *value).ok_or_else(|| {
            let known = words.map(|(word, _)| word);
            let listed = known.map(|word| format!("\"{word}\"")).join(", ");
            let meant = nearest(given, &known).map(|meant| format!("; did you mean \"{meant}\"?"));
            format!("must be one of {listed}{}", meant.unwrap_or_default())
        })
    }
}
