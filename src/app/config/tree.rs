//! The configuration as a tree in which every leaf has its place: a line and column of the file, or the environment
//! variable that overrides it. The sections interpret the values.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::environment::Environment;
use super::error::KeyError;

/// Place of a key or value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The configuration file. Line and column count from 1, columns in characters.
    File {
        /// Line number.
        line: usize,
        /// Column number.
        column: usize,
    },
    /// The environment variable of this name.
    Environment(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { line, column } => write!(f, "line {line}, column {column}"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
        }
    }
}

/// A value and its place.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    /// Start of the value.
    pub(super) place: Place,
    /// Start of its key.
    pub(super) key: Place,
}

/// A value, with the types that the configuration uses.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    /// A variable's value: text, number or comma-separated list, whichever the key needs.
    Loose(String),
    Integer(i64),
    Boolean(bool),
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
    /// A value of a type that no key has, or a number out of range.
    Other,
}

/// Reads the tree of `text`, overridden by the variables of `environment`.
pub(super) fn read(
    text: &str,
    environment: &Environment,
    faults: &mut Vec<KeyError>,
) -> Option<BTreeMap<String, Node>> {
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            let place = place(text, error.span().map_or(0, |span| span.start));
            faults.push(KeyError::new(place, "", format!("not readable as TOML: {}", error.message().trim_end())));
            return None;
        }
    };
    let mut root = members(text, table.get_ref());
    // Elements are sorted by name, so that a whole list comes before changes of its elements.
    for (name, parts, value) in environment.overrides() {
        if let Err(sentence) = lay_over(&mut root, name, &parts, value) {
            faults.push(KeyError::new(Place::Environment(name.to_owned()), &parts.join("."), sentence));
        }
    }
    Some(root)
}

fn members(text: &str, table: &DeTable<'_>) -> BTreeMap<String, Node> {
    let member = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let mut member = node(text, value);
        member.key = place(text, key.span().start);
        // A table's span depends on how it is written; readers look for its name.
        if let Value::Table(_) = member.value {
            member.place = member.key.clone();
        }
        (String::from(std::convert::AsRef::<str>::as_ref(key.get_ref())), member)
    };
    table.iter().map(member).collect()
}

fn node(text: &str, value: &Spanned<DeValue<'_>>) -> Node {
    let place = place(text, value.span().start);
    let value = match value.get_ref() {
        DeValue::String(string) => Value::Text(string.to_string()),
        DeValue::Integer(digits) => {
            i64::from_str_radix(digits.as_str(), digits.radix()).map_or(Value::Other, Value::Integer)
        }
        DeValue::Array(items) => Value::List(items.iter().map(|item| node(text, item)).collect()),
        DeValue::Table(table) => Value::Table(members(text, table)),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Float(_) | DeValue::Datetime(_) => Value::Other,
    };
    Node { value, key: place.clone(), place }
}

fn place(text: &str, offset: usize) -> Place {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    Place::File { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
}

/// Parses a list in TOML syntax from a variable. An address in brackets is not a list.
fn list(value: &str, place: &Place) -> Option<Value> {
    if !value.trim_start().starts_with('[') {
        return None;
    }
    let text = format!("list = {value}");
    let table = DeTable::parse(&text).ok()?;
    let list = members(&text, table.get_ref()).remove("list")?;
    matches!(list.value, Value::List(_)).then(|| moved(list, place).value)
}

/// Returns a value with everything in it moved to `place`.
fn moved(node: Node, place: &Place) -> Node {
    let value = match node.value {
        Value::List(items) => Value::List(items.into_iter().map(|item| moved(item, place)).collect()),
        Value::Table(inner) => {
            Value::Table(inner.into_iter().map(|(name, member)| (name, moved(member, place))).collect())
        }
        other @ (Value::Text(_) | Value::Loose(_) | Value::Integer(_) | Value::Boolean(_) | Value::Other) => other,
    };
    Node { value, place: place.clone(), key: place.clone() }
}

/// Puts a variable's value at its path, and creates missing sections. A relay is found by its name.
fn lay_over(table: &mut BTreeMap<String, Node>, name: &str, parts: &[String], value: &str) -> Result<(), String> {
    let Some((first, rest)) = parts.split_first() else { return Ok(()) };
    let place = Place::Environment(name.to_owned());
    let made = |value| Node { value, place: place.clone(), key: place.clone() };
    if rest.is_empty() {
        table.insert(first.clone(), made(list(value, &place).unwrap_or_else(|| Value::Loose(value.to_owned()))));
        return Ok(());
    }
    let node = match table.entry(first.clone()) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => entry.insert(made(Value::Table(BTreeMap::new()))),
    };
    match &mut node.value {
        Value::Table(inner) => lay_over(inner, name, rest, value),
        Value::List(items) => {
            let (wanted, rest) = rest.split_first().ok_or("must contain the name of an element")?;
            let named = items.iter_mut().find_map(|item| match &mut item.value {
                Value::Table(inner) if variable_part(inner).is_some_and(|part| part == *wanted) => Some(inner),
                Value::Table(_)
                | Value::Text(_)
                | Value::Loose(_)
                | Value::Integer(_)
                | Value::List(_)
                | Value::Boolean(_)
                | Value::Other => None,
            });
            lay_over(named.ok_or_else(|| format!("the file has no [[{first}]] of that name"))?, name, rest, value)
        }
        Value::Text(_) | Value::Loose(_) | Value::Integer(_) | Value::Boolean(_) | Value::Other => {
            Err(format!("{first} is a value, not a section"))
        }
    }
}

/// Returns an element's `name` as part of a variable's name: all characters except letters and digits become `_`.
fn variable_part(element: &BTreeMap<String, Node>) -> Option<String> {
    let Value::Text(name) = &element.get("name")?.value else { return None };
    Some(name.to_ascii_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect())
}
