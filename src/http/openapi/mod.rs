//! `GET /v1/openapi.json`: the OpenAPI 3.1 description of the API, generated from the route table, the handlers' own
//! types, and the descriptions here, by route name. Generated once, served from memory.
//!
//! Some defects fail a test or do not compile: a route without a description, a type with an undescribed member, an
//! example that does not match, and a stale committed copy (`docs/openapi.json`).

#[cfg(test)]
pub(super) mod check;
mod deliverability;
mod dmarc;
pub(super) mod errors;
mod example;
mod headers;
mod operation;
mod reference;
mod request;
mod resources;
pub(super) mod schema;
mod sending;
pub(super) mod shape;
#[cfg(test)]
mod tests;
mod webhooks;
pub(super) mod words;

use std::sync::LazyLock;

use bytes::Bytes;
use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::api;
use super::error::ApiError;
use super::route::{Access, Call, Route};
use super::state::Api;
use operation::Operation;

/// Introduction for all clients.
const INTRODUCTION: &str = include_str!("introduction.md");

/// The tags, in the order of the document.
const TAGS: [(&str, &str); 9] = [
    ("Messages", "Send messages and follow their outcomes."),
    ("Events", "Event log of the account."),
    ("Webhooks", "Events pushed to your endpoints."),
    ("Domains", "Sending domains and their DNS records."),
    ("Suppressions", "Addresses that get no mail."),
    ("Keys", "API keys and their scopes."),
    ("Deliverability", "Receivers' requirements, and the account's results."),
    ("Account", "The account, its settings and its quota."),
    ("Service", "The service itself."),
];

/// The document's bytes.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| written(&document(&api::routes())).into());

/// Returns the description as Markdown.
pub(crate) fn for_people() -> String {
    reference::written(&document(&api::routes()))
}

/// `GET /v1/openapi.json`.
pub(in crate::http) async fn show(_: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    Ok(Answer::json_bytes(StatusCode::OK, DOCUMENT.clone()))
}

/// Returns the description of a route, by its name in the table.
fn operation(name: &str) -> Option<Operation> {
    let kinds = [sending::operation, webhooks::operation, resources::domains, resources::suppressions];
    kinds
        .into_iter()
        .chain([resources::keys, resources::account, deliverability::deliverability, dmarc::operation])
        .find_map(|describe| describe(name))
}

/// Returns whether a route is public, unlike those of the operator and of `dev`.
const fn is_public(route: &Route<Api>) -> bool {
    match route.access {
        Access::Open(_) | Access::Key(_) | Access::Scoped(..) => true,
        Access::Page(..) | Access::Loopback(_) | Access::Operator(_) => false,
    }
}

/// Returns the description as it is served, for tests.
#[cfg(test)]
pub(super) fn described() -> Value {
    serde_json::from_slice(&DOCUMENT).unwrap()
}

/// Returns the description of `routes`.
fn document(routes: &[Route<Api>]) -> Value {
    let (mut paths, mut responses) = (Map::new(), Map::from_iter(errors::elsewhere().map(|(k, v)| (k.to_owned(), v))));
    for route in routes.iter().filter(|route| is_public(route)) {
        let Some(operation) = operation(route.name) else { continue };
        let rendered = operation.render(route, &mut responses);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = rendered;
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Postrider",
            "summary": "Self-hosted transactional email: API, delivery, bounces and webhooks in one binary.",
            "description": INTRODUCTION.trim_end(),
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/", "description": "The service that serves this description." }],
        "tags": TAGS.map(|(name, says)| json!({ "name": name, "description": says })),
        "paths": paths,
        "webhooks": { "event": webhooks::event() },
        "components": {
            "headers": headers::components(),
            "responses": responses,
            "securitySchemes": {
                "key": { "type": "http", "scheme": "bearer", "description": "An API key: `pr_live_…`." },
            },
        },
    });
    let mut schemas = Map::new();
    let mut document = hoisted(document, &mut schemas);
    add_examples(&mut document["paths"], &schemas);
    document["components"]["schemas"] = schemas.into();
    document
}

/// Adds an example to each success with JSON.
fn add_examples(paths: &mut Value, schemas: &Map<String, Value>) {
    let operations = paths.as_object_mut().into_iter().flatten().filter_map(|(_, path)| path.as_object_mut()).flatten();
    for (_, operation) in operations {
        for (_, response) in operation["responses"].as_object_mut().into_iter().flatten() {
            let Some(content) = response.pointer_mut("/content/application~1json") else { continue };
            if content.get("examples").is_none() {
                content["examples"] = json!({ "some": { "value": example::of(&content["schema"], schemas) } });
            }
        }
    }
}

/// Replaces the definitions in `value` by references, and moves them to `schemas`.
fn hoisted(value: Value, schemas: &mut Map<String, Value>) -> Value {
    match value {
        Value::Object(mut object) => {
            if let Some(Value::Object(definitions)) = object.remove(schema::DEFINE) {
                for (name, definition) in definitions {
                    let target = format!("#/components/schemas/{name}");
                    let definition = hoisted(definition, schemas);
                    debug_assert!(
                        schemas.get(&name).is_none_or(|other| *other == definition),
                        "two schemas are named {name}"
                    );
                    schemas.insert(name, definition);
                    object.insert("$ref".to_owned(), target.into());
                }
            }
            object.into_iter().map(|(name, value)| (name, hoisted(value, schemas))).collect()
        }
        Value::Array(items) => items.into_iter().map(|item| hoisted(item, schemas)).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}

/// Returns `document` as it is served and committed.
fn written(document: &Value) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(document)
        .unwrap_or_else(|error| unreachable!("a document of JSON values can be written: {error}"));
    bytes.push(b'\n');
    bytes
}
