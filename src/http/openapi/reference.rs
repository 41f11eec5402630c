//! The description as a page for people: `/docs/api`, and `docs/api.md`, its committed copy, which a test compares.

use serde_json::{Map, Value};

use super::TAGS;

/// Returns `document` as Markdown.
pub(super) fn written(document: &Value) -> String {
    let mut out = format!("# The API\n\n{}\n", text(&document["info"]["description"]).trim());
    for (tag, about) in TAGS {
        out += &format!("\n## {tag}\n\n{about}\n");
        for (path, method, operation) in operations(document) {
            if operation["tags"][0] == tag {
                operation_of(&mut out, document, path, method, operation);
            }
        }
    }
    out.push_str("\n## Objects\n");
    for (name, schema) in members(&document["components"]["schemas"]) {
        object(&mut out, name, schema);
    }
    out
}

fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    const METHODS: [&str; 4] = ["post", "get", "patch", "delete"];
    members(&document["paths"]).flat_map(|(path, methods)| {
        METHODS.iter().filter_map(move |method| methods.get(*method).map(|operation| (path, *method, operation)))
    })
}

fn operation_of(out: &mut String, document: &Value, path: &str, method: &str, operation: &Value) {
    let (summary, about) = (text(&operation["summary"]), text(&operation["description"]));
    *out += &format!("\n### {summary}\n\n`{} {path}`\n\n{about}\n", method.to_uppercase());
    let parameters: Vec<_> = operation["parameters"].as_array().into_iter().flatten().collect();
    if !parameters.is_empty() {
        out.push_str("\n| parameter | in | |\n|---|---|---|\n");
        for parameter in parameters {
            let (name, place) = (text(&parameter["name"]), text(&parameter["in"]));
            *out += &format!("| `{name}` | {place} | {} |\n", cell(text(&parameter["description"])));
        }
    }
    for (media, content) in members(&operation["requestBody"]["content"]) {
        *out += &format!("\nBody, `{media}`: {}.\n", kind(&content["schema"]));
        example(out, content);
    }
    let mut errors = Vec::new();
    for (status, response) in members(&operation["responses"]) {
        let response = resolved(document, response);
        let about = text(&response["description"]);
        if status.starts_with('2') {
            *out += &format!("\n**{status}**: {about}");
            for (media, content) in members(&response["content"]) {
                *out += &format!(" `{media}`: {}.", kind(&content["schema"]));
            }
            out.push('\n');
            members(&response["content"]).for_each(|(_, content)| example(out, content));
        } else {
            errors.push(format!("{status} {}", codes(&response["content"])));
        }
    }
    if !errors.is_empty() {
        *out += &format!("\nErrors: {}.\n", errors.join("; "));
    }
}

/// Returns the codes in the examples of an error, each linked to its meaning.
fn codes(content: &Value) -> String {
    let mut codes: Vec<&str> = members(&content["application/json"]["examples"])
        .filter_map(|(_, example)| example["value"]["code"].as_str())
        .collect();
    codes.sort_unstable();
    codes.dedup();
    codes.iter().map(|code| format!("[`{code}`](errors.md#{code})")).collect::<Vec<_>>().join(", ")
}

/// Appends the first example of a request or answer, if it is JSON.
fn example(out: &mut String, content: &Value) {
    let Some((_, example)) = members(&content["examples"]).next() else { return };
    if example["value"].is_object() {
        *out += &format!("\n```json\n{:#}\n```\n", example["value"]);
    }
}

fn object(out: &mut String, name: &str, schema: &Value) {
    *out += &format!("\n### {name}\n");
    if let Some(about) = schema["description"].as_str() {
        *out += &format!("\n{about}\n");
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<_> = words.iter().map(|word| format!("`{}`", text(word))).collect();
        *out += &format!("\n{}.\n", words.join(", "));
    }
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().map(text).collect();
    let mut properties = members(&schema["properties"]).peekable();
    if properties.peek().is_some() {
        out.push_str("\n| member | type | |\n|---|---|---|\n");
    }
    for (member, schema) in properties {
        // Answers contain every member, so only requests mark required ones.
        let mark = if name.ends_with("Request") && required.contains(&member) { " (required)" } else { "" };
        *out += &format!("| `{member}`{mark} | {} | {} |\n", kind(schema), cell(text(&schema["description"])));
    }
}

/// Returns the type of a schema in a few words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(choices) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
        return choices.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    let one = |word: &str| match word {
        "array" => format!("list of {}", kind(&schema["items"])),
        "string" if schema["format"] == "date-time" => "time".to_owned(),
        other => other.to_owned(),
    };
    match &schema["type"] {
        Value::String(word) => one(word),
        Value::Array(words) => words.iter().map(|word| one(text(word))).collect::<Vec<_>>().join(" or "),
        _ => "anything".to_owned(),
    }
}

fn resolved<'d>(document: &'d Value, response: &'d Value) -> &'d Value {
    let place = response["$ref"].as_str().and_then(|path| document.pointer(path.trim_start_matches('#')));
    place.unwrap_or(response)
}

fn members(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    object.as_object().unwrap_or(&NONE).iter().map(|(name, value)| (name.as_str(), value))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
