//! Parsing the members of a JSON object one by one, with a violation for each member of a wrong type or value.
//!
//! Values are moved out, so that a body of several megabytes is never copied. `null` counts as absent.

use serde_json::{Map, Value};

use super::nearest::nearest;
use super::violation::Violations;

/// Maximum number of unknown members of one object that get a hint: finding the nearest name is slow.
const HINTS_COUNT: usize = 8;

/// Prefix of the name of a member that represents an unknown query parameter. So one answer names the errors of both
/// query and body. No member of a sensible body begins with it.
pub const PARAMETER: &str = "\0?";

/// An object whose members are being taken.
pub struct Fields<'a> {
    members: Map<String, Value>,
    prefix: String,
    known: Vec<&'static str>,
    violations: &'a mut Violations,
}

impl<'a> Fields<'a> {
    /// Begins with the members of `object`. Violations are added under the members' names.
    pub const fn new(object: Map<String, Value>, violations: &'a mut Violations) -> Self {
        Self { members: object, prefix: String::new(), known: Vec::new(), violations }
    }

    /// Begins with the members of an object inside the body; `path` is its dotted name.
    pub fn nested(object: Map<String, Value>, path: &str, violations: &'a mut Violations) -> Self {
        Self { members: object, prefix: format!("{path}."), known: Vec::new(), violations }
    }

    /// Returns the dotted name of a member.
    pub fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Adds a violation of a member.
    pub fn fault(&mut self, name: &str, sentence: impl Into<String>) {
        let path = self.path(name);
        self.violations.add(path, sentence);
    }

    /// Returns the value of `parsed`, or adds its error under the member's name.
    pub fn check<T, E: std::fmt::Display>(&mut self, name: &str, parsed: Result<T, E>) -> Option<T> {
        parsed.map_err(|fault| self.fault(name, fault.to_string())).ok()
    }

    /// Returns the violations.
    pub const fn violations(&mut self) -> &mut Violations {
        self.violations
    }

    /// Adds a violation for each of these members that is null: setting it to null must not count as no change.
    pub fn refuse_null(&mut self, names: &[&'static str]) {
        for name in names {
            if self.members.get(*name).is_some_and(Value::is_null) {
                self.fault(name, "must not be null; leave it out to keep the current value");
            }
        }
    }

    /// Takes a member of any type.
    pub fn value(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.members.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a string.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        match self.value(name)? {
            Value::String(text) => Some(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                self.fault(name, "must be a string");
                None
            }
        }
    }

    /// Takes a required string.
    pub fn required_text(&mut self, name: &'static str) -> Option<String> {
        if self.members.get(name).is_none_or(Value::is_null) {
            self.fault(name, "is required");
        }
        self.text(name)
    }

    /// Returns whether a member is a list.
    pub fn is_list(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(Value::is_array)
    }

    /// Takes a boolean.
    pub fn boolean(&mut self, name: &'static str) -> Option<bool> {
        match self.value(name)? {
            Value::Bool(value) => Some(value),
            Value::Null | Value::String(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                self.fault(name, "must be true or false");
                None
            }
        }
    }

    /// Takes an object.
    pub fn object(&mut self, name: &'static str) -> Option<Map<String, Value>> {
        match self.value(name)? {
            Value::Object(object) => Some(object),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::String(_) => {
                self.fault(name, "must be an object");
                None
            }
        }
    }

    /// Takes an array.
    pub fn array(&mut self, name: &'static str) -> Option<Vec<Value>> {
        match self.value(name)? {
            Value::Array(array) => Some(array),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) | Value::String(_) => {
                self.fault(name, "must be an array");
                None
            }
        }
    }

    /// Ends the parsing. Every remaining member is an unknown field, so that a misspelt name is always reported
    /// (contract 1).
    pub fn finish(self) {
        self.finish_with(|_| None);
    }

    /// Ends the parsing like [`Self::finish`]. `instead_of` returns advice about an unknown field, which takes
    /// precedence over the nearest name.
    pub fn finish_with(self, instead_of: impl Fn(&str) -> Option<&'static str>) {
        for (place, name) in self.members.keys().enumerate() {
            if let Some(parameter) = name.strip_prefix(PARAMETER) {
                self.violations.add(parameter, "unknown parameter");
                continue;
            }
            let path = format!("{}{name}", self.prefix);
            if place >= HINTS_COUNT {
                self.violations.add(path, "unknown field");
                continue;
            }
            if let Some(instead) = instead_of(name) {
                self.violations.hint(format!("{path} is unknown: {instead}."));
            } else if let Some(nearest) = nearest(name, &self.known) {
                self.violations.hint(format!("{path} is unknown; did you mean {}{nearest}?", self.prefix));
            }
            self.violations.add(path, "unknown field");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_a_violation_with_the_nearest_name_as_hint() {
        let Value::Object(object) = serde_json::json!({"unsubscribeurl": "x", "zzz": 1, "to": null}) else { panic!() };
        let mut violations = Violations::new();
        let mut fields = Fields::new(object, &mut violations);
        assert_eq!(fields.text("unsubscribe_url"), None);
        assert_eq!(fields.text("to"), None);
        fields.finish();
        assert_eq!(violations.by_field()["unsubscribeurl"], ["unknown field"]);
        assert_eq!(violations.by_field()["zzz"], ["unknown field"]);
        assert_eq!(violations.hints(), ["unsubscribeurl is unknown; did you mean unsubscribe_url?"]);
    }
}
