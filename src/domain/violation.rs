//! Errors in a caller's input: all violations of one request at once, by field (contract 1).

use std::collections::BTreeMap;

/// Maximum number of listed fields. A longer answer would not help, and would be many times the request's size.
const FIELDS_MAX: usize = 1000;

/// Maximum number of characters of a field's name and of a sentence. Names come from the caller, and may be long.
const TEXT_MAX: usize = 8192;

/// Maximum number of hints in an answer.
const HINTS_MAX: usize = 20;

/// Violations by dotted field name (`headers.X-Foo`, `events.1`). Empty means that the input is valid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations {
    faults: BTreeMap<String, Vec<String>>,
    hints: Vec<String>,
}

impl Violations {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a list with one violation of one field.
    pub fn of(field: impl Into<String>, sentence: impl Into<String>) -> Self {
        let mut violations = Self::new();
        violations.add(field, sentence);
        violations
    }

    /// Adds a violation of `field`: a sentence with the required correction.
    pub fn add(&mut self, field: impl Into<String>, sentence: impl Into<String>) {
        self.add_all(field.into(), vec![sentence.into()]);
    }

    /// Adds a hint for the answer's `message`, such as the nearest known name of an unknown field.
    pub fn hint(&mut self, hint: impl Into<String>) {
        if self.hints.len() < HINTS_MAX {
            self.hints.push(shortened(hint.into()));
        }
    }

    /// Adds the violations and hints of `other`.
    pub fn absorb(&mut self, other: Self) {
        for (field, sentences) in other.faults {
            self.add_all(field, sentences);
        }
        other.hints.into_iter().for_each(|hint| self.hint(hint));
    }

    /// Adds violations, unless the maximum number of fields is reached.
    fn add_all(&mut self, field: String, sentences: Vec<String>) {
        let field = shortened(field);
        if self.faults.len() < FIELDS_MAX || self.faults.contains_key(&field) {
            let known = self.faults.entry(field).or_default();
            if known.len() < FIELDS_MAX {
                known.extend(sentences.into_iter().map(shortened));
            }
        }
    }

    /// Returns the value of `parsed`, or adds its error under `field`.
    pub fn check<T, E: std::fmt::Display>(&mut self, field: &str, parsed: Result<T, E>) -> Option<T> {
        parsed.map_err(|fault| self.add(field, fault.to_string())).ok()
    }

    /// Returns whether there are no violations.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// Returns the violations by field, in field order.
    pub const fn by_field(&self) -> &BTreeMap<String, Vec<String>> {
        &self.faults
    }

    /// Returns the hints for the answer's `message`.
    pub fn hints(&self) -> &[String] {
        &self.hints
    }

    /// Returns `value` if there are no violations.
    ///
    /// # Errors
    /// The violations.
    pub fn or<T>(self, value: impl FnOnce() -> Option<T>) -> Result<T, Self> {
        if self.is_empty() { value().ok_or(self) } else { Err(self) }
    }
}

/// Returns the text with [`TEXT_MAX`] characters at most.
fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(TEXT_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_1000_fields_are_listed() {
        let mut violations = Violations::new();
        (0..5000).for_each(|number| violations.add(format!("unknown{number}"), "There is no such field."));
        violations.add("unknown0", "Twice.");
        assert_eq!(violations.by_field().len(), FIELDS_MAX);
        assert_eq!(violations.by_field()["unknown0"].len(), 2);
    }

    #[test]
    fn the_callers_long_names_are_not_repeated_in_full() {
        let mut violations = Violations::of("ä".repeat(1 << 20), "unknown field");
        violations.hint("ä".repeat(1 << 20));
        (0..5000).for_each(|_| violations.add("to", "x".repeat(1 << 14)));
        let size = |text: &String| text.chars().count();
        assert!(violations.by_field().keys().chain(violations.hints()).all(|text| size(text) <= TEXT_MAX + 1));
        assert!(
            violations.by_field()["to"].len() == FIELDS_MAX && size(&violations.by_field()["to"][0]) <= TEXT_MAX + 1
        );
    }
}
