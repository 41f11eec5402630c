//! Builds complete examples from those of the members, so that an example always matches its schema.

use serde_json::{Map, Value, json};

/// Returns an example for `schema`, whose references point into `schemas`.
pub(super) fn of(schema: &Value, schemas: &Map<String, Value>) -> Value {
    if let Some(example) = schema["examples"].get(0).or_else(|| schema["enum"].get(0)) {
        return example.clone();
    }
    if let Some(target) = schema["$ref"].as_str() {
        let name = target.rsplit('/').next().unwrap_or_default();
        return schemas.get(name).map_or(Value::Null, |schema| of(schema, schemas));
    }
    if let Some(first) = schema["anyOf"].get(0) {
        return of(first, schemas);
    }
    let kind = schema["type"].get(0).unwrap_or(&schema["type"]).as_str();
    match kind.unwrap_or_default() {
        "object" => {
            let members = schema["properties"].as_object().into_iter().flatten();
            members.map(|(name, schema)| (name.clone(), of(schema, schemas))).collect()
        }
        "array" => json!([of(&schema["items"], schemas)]),
        "integer" => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
        "boolean" => json!(false),
        _ => json!("…"),
    }
}
