//! Builder of a JSON Schema, in the 2020-12 dialect of OpenAPI 3.1. Each method adds one keyword.
//!
//! A named schema is defined in place, under [`DEFINE`]. The document moves it to its components and leaves a
//! reference, so that no registry has to be passed around.

use serde_json::{Map, Value, json};

/// Key of an in-place definition, `{"$define": {"<name>": <schema>}}`, until the document moves it.
pub(super) const DEFINE: &str = "$define";

/// A schema.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::http) struct Schema(Map<String, Value>);

impl Schema {
    fn of(kind: &str) -> Self {
        Self(Map::from_iter([("type".to_owned(), json!(kind))]))
    }

    pub(in crate::http) fn anything() -> Self {
        Self(Map::new())
    }

    pub(in crate::http) fn string() -> Self {
        Self::of("string")
    }

    /// A whole number, 0 or more.
    pub(in crate::http) fn count() -> Self {
        Self::of("integer").with("minimum", 0)
    }

    /// A fraction from 0 to 1.
    pub(in crate::http) fn share() -> Self {
        Self::of("number").with("minimum", 0)
    }

    pub(in crate::http) fn boolean() -> Self {
        Self::of("boolean")
    }

    pub(in crate::http) fn array(items: Self) -> Self {
        Self::of("array").with("items", items.into_value())
    }

    /// An object with arbitrary member names.
    pub(in crate::http) fn map(values: Self) -> Self {
        Self::of("object").with("additionalProperties", values.into_value())
    }

    /// An object; its members are added by the next calls.
    pub(in crate::http) fn object() -> Self {
        Self::of("object").with("properties", json!({})).with("required", json!([]))
    }

    /// One of these values.
    pub(in crate::http) fn words(words: impl IntoIterator<Item = Value>) -> Self {
        Self::string().with("enum", words.into_iter().collect::<Value>())
    }

    #[must_use]
    pub(super) fn with(mut self, keyword: &str, value: impl Into<Value>) -> Self {
        self.0.insert(keyword.to_owned(), value.into());
        self
    }

    /// Adds a description.
    #[must_use]
    pub(in crate::http) fn says(self, text: &str) -> Self {
        self.with("description", text)
    }

    #[must_use]
    pub(in crate::http) fn example(self, value: impl Into<Value>) -> Self {
        self.with("examples", json!([value.into()]))
    }

    #[must_use]
    pub(in crate::http) fn pattern(self, pattern: &str) -> Self {
        self.with("pattern", pattern)
    }

    #[must_use]
    pub(in crate::http) fn format(self, format: &str) -> Self {
        self.with("format", format)
    }

    /// Limits the number of characters.
    #[must_use]
    pub(in crate::http) fn length(self, least: usize, most: usize) -> Self {
        let schema = if least > 0 { self.with("minLength", least) } else { self };
        schema.with("maxLength", most)
    }

    #[must_use]
    pub(in crate::http) fn within(self, least: u64, most: u64) -> Self {
        self.with("minimum", least).with("maximum", most)
    }

    /// Adds a required member.
    #[must_use]
    pub(in crate::http) fn member(mut self, name: &str, schema: Self) -> Self {
        if let Some(Value::Array(required)) = self.0.get_mut("required") {
            required.push(json!(name));
        }
        self.optional(name, schema)
    }

    /// Adds an optional member.
    #[must_use]
    pub(in crate::http) fn optional(mut self, name: &str, schema: Self) -> Self {
        if let Some(Value::Object(properties)) = self.0.get_mut("properties") {
            properties.insert(name.to_owned(), schema.into_value());
        }
        self
    }

    /// Adds the members of `other`.
    #[must_use]
    pub(in crate::http) fn merged(mut self, other: Self) -> Self {
        let other = other.opened();
        for (name, schema) in other.0.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self = self.member(name, Self(schema.as_object().cloned().unwrap_or_default()));
        }
        self
    }

    /// Allows only the named members.
    #[must_use]
    pub(in crate::http) fn closed(self) -> Self {
        self.with("additionalProperties", false)
    }

    /// Allows null too.
    #[must_use]
    pub(in crate::http) fn or_null(mut self) -> Self {
        let Some(Value::String(kind)) = self.0.get("type") else {
            return Self(Map::from_iter([("anyOf".to_owned(), json!([self.0, {"type": "null"}]))]));
        };
        let kinds = json!([kind, "null"]);
        self.0.insert("type".to_owned(), kinds);
        self
    }

    /// Makes the schema a component with this name.
    #[must_use]
    pub(in crate::http) fn named(self, name: &str, says: &str) -> Self {
        let definition = self.says(says).into_value();
        Self(Map::from_iter([(DEFINE.to_owned(), json!({ name: definition }))]))
    }

    /// Returns the definition of a named schema, to be extended.
    #[must_use]
    pub(in crate::http) fn opened(self) -> Self {
        let definition = self.0.get(DEFINE).and_then(Value::as_object).and_then(|named| named.values().next());
        match definition.and_then(Value::as_object) {
            Some(definition) => Self(definition.clone()),
            None => self,
        }
    }

    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}
