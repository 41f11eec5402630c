//! Checks JSON against a schema of the document, for tests. It is stricter than clients, which ignore unknown members:
//! an undescribed member is an error. Patterns and formats are checked by the peers' tests.

use serde_json::Value;

/// Returns the parts of `value` that do not match `schema`, each with its position.
pub(in crate::http) fn faults(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    Check { document, faults: &mut faults }.value(schema, value, "$");
    faults
}

struct Check<'a> {
    document: &'a Value,
    faults: &'a mut Vec<String>,
}

impl Check<'_> {
    fn fault(&mut self, at: &str, what: impl std::fmt::Display) {
        self.faults.push(format!("{at}: {what}"));
    }

    fn value(&mut self, schema: &Value, value: &Value, at: &str) {
        if let Some(target) = schema["$ref"].as_str() {
            let target = self.document.pointer(&target[1..]).unwrap_or_else(|| panic!("{target} leads nowhere"));
            self.value(target, value, at);
        }
        if let Some(choices) = schema["anyOf"].as_array() {
            let fits = |choice: &&Value| faults(self.document, choice, value).is_empty();
            if choices.iter().find(fits).is_none() {
                let why: Vec<_> = choices.iter().map(|choice| faults(self.document, choice, value)).collect();
                self.fault(at, format!("fits none of the choices: {why:?}"));
            }
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            kind => kind.as_str().into_iter().collect(),
        };
        if !kinds.is_empty() && !kinds.contains(&kind(value)) {
            return self.fault(at, format!("{value} is none of {kinds:?}"));
        }
        if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
            self.fault(at, format!("{value} is not in {}", schema["enum"]));
        }
        match value {
            Value::Object(members) => self.members(schema, members, at),
            Value::Array(items) => {
                self.size(schema, ["minItems", "maxItems"], items.len() as u64, at);
                for (place, item) in items.iter().enumerate() {
                    self.value(&schema["items"], item, &format!("{at}.{place}"));
                }
            }
            Value::String(text) => self.size(schema, ["minLength", "maxLength"], text.chars().count() as u64, at),
            Value::Number(number) => {
                self.size(schema, ["minimum", "maximum"], number.as_u64().unwrap_or_default(), at);
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn members(&mut self, schema: &Value, members: &serde_json::Map<String, Value>, at: &str) {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(name) {
                self.fault(at, format!("lacks {name}"));
            }
        }
        for (name, value) in members {
            let at = format!("{at}.{name}");
            match (schema["properties"].get(name), &schema["additionalProperties"]) {
                (Some(schema), _) => self.value(schema, value, &at),
                (None, others @ Value::Object(_)) => self.value(others, value, &at),
                (None, _) if schema.get("properties").is_some() => self.fault(&at, "is not described"),
                (None, _) => {}
            }
        }
    }

    fn size(&mut self, schema: &Value, [least, most]: [&str; 2], size: u64, at: &str) {
        let fits = size >= schema[least].as_u64().unwrap_or(0) && size <= schema[most].as_u64().unwrap_or(u64::MAX);
        if !fits {
            self.fault(at, format!("{size} is out of {}", schema));
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
