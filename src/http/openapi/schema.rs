//! A JSON Schema in the making, in the 2020-12 dialect that OpenAPI 3.1 speaks. Each method is one keyword.
//!
//! A named schema is written in place, behind [`DEFINE`]; the document hoists it to its components and leaves a
//! reference, so nobody has to hand a registry around.

use serde_json::{Map, Value, json};

/// Stands where a definition is, as `{"$define": {"<name>": <schema>}}`, until the document hoists it.
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

    /// A number from 0 on, of which 1 is the whole.
    pub(in crate::http) fn share() -> Self {
        Self::of("number").with("minimum", 0)
    }

    pub(in crate::http) fn boolean() -> Self {
        Self::of("boolean")
    }

    pub(in crate::http) fn array(items: Self) -> Self {
        Self::of("array").with("items", items.into_value())
    }

    /// An object whose members are not known by name.
    pub(in crate::http) fn map(values: Self) -> Self {
        Self::of("object").with("additionalProperties", values.into_value())
    }

    /// An object whose members follow.
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

    /// So many characters.
    #[must_use]
    pub(in crate::http) fn length(self, least: usize, most: usize) -> Self {
        let schema = if least > 0 { self.with("minLength", least) } else { self };
        schema.with("maxLength", most)
    }

    #[must_use]
    pub(in crate::http) fn within(self, least: u64, most: u64) -> Self {
        self.with("minimum", least).with("maximum", most)
    }

    /// A member that is always there.
    #[must_use]
    pub(in crate::http) fn member(mut self, name: &str, schema: Self) -> Self {
        if let Some(Value::Array(required)) = self.0.get_mut("required") {
            required.push(json!(name));
        }
        self.optional(name, schema)
    }

    /// A member that may be left out.
    #[must_use]
    pub(in crate::http) fn optional(mut self, name: &str, schema: Self) -> Self {
        if let Some(Value::Object(properties)) = self.0.get_mut("properties") {
            properties.insert(name.to_owned(), schema.into_value());
        }
        self
    }

    /// The members of `other` beside its own.
    #[must_use]
    pub(in crate::http) fn merged(mut self, other: Self) -> Self {
        let other = other.opened();
        for (name, schema) in other.0.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self = self.member(name, Self(schema.as_object().cloned().unwrap_or_default()));
        }
        self
    }

    /// Nothing but the members named.
    #[must_use]
    pub(in crate::http) fn closed(self) -> Self {
        self.with("additionalProperties", false)
    }

    /// The schema or null.
    #[must_use]
    pub(in crate::http) fn or_null(mut self) -> Self {
        let Some(Value::String(kind)) = self.0.get("type") else {
            return Self(Map::from_iter([("anyOf".to_owned(), json!([self.0, {"type": "null"}]))]));
        };
        let kinds = json!([kind, "null"]);
        self.0.insert("type".to_owned(), kinds);
        self
    }

    /// The schema as a component of this name.
    #[must_use]
    pub(in crate::http) fn named(self, name: &str, says: &str) -> Self {
        let definition = self.says(says).into_value();
        Self(Map::from_iter([(DEFINE.to_owned(), json!({ name: definition }))]))
    }

    /// A named schema's own definition, to be built on.
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
