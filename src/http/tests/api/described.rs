//! Compares the description with real answers: every answer in these tests, and the members that the handlers accept.

use std::sync::LazyLock;

use serde_json::json;

use super::*;
use crate::http::openapi::check::faults;
use crate::http::openapi::described;
use crate::http::router::RouteMatch;

static DOCUMENT: LazyLock<Value> = LazyLock::new(described);

/// Checks the answer to the request with this line against the description.
#[track_caller]
pub(super) fn check(line: &str, reply: &Reply) {
    let (method, target) = line.split_once(' ').unwrap();
    let path = target.split('?').next().unwrap();
    let router = Router::new(routes()).unwrap();
    let RouteMatch::Row(route, _) = router.find(&method.parse().unwrap(), path) else { return };
    let Some(operation) = DOCUMENT["paths"][route.path].get(route.method.as_str().to_lowercase()) else { return };
    let response = operation["responses"].get(reply.status.to_string());
    let response = response.unwrap_or_else(|| panic!("{line} answers {}, which is not described", reply.status));
    let response = response["$ref"].as_str().map_or(response, |target| DOCUMENT.pointer(&target[1..]).unwrap());
    for (name, header) in response["headers"].as_object().unwrap() {
        let header = DOCUMENT.pointer(&header["$ref"].as_str().unwrap()[1..]).unwrap();
        let is_sent = reply.headers.contains_key(&name.to_lowercase());
        assert!(is_sent || header["required"] == false, "{line} {}: {name} is missing", reply.status);
    }
    let Some(content) = response["content"].as_object() else { return assert_eq!(reply.body, "", "{line}") };
    let is_given = |(media, _): &(&String, &Value)| reply.header("content-type").starts_with(media.as_str());
    let given = content.iter().find(is_given);
    let (media, content) = given.unwrap_or_else(|| panic!("{line}: {}", reply.header("content-type")));
    if media == "application/json" && method != "HEAD" {
        assert_eq!(faults(&DOCUMENT, &content["schema"], &reply.json()), [""; 0], "{line}: {}", reply.body);
    }
}

#[tokio::test]
async fn the_description_needs_no_key_and_accepts_no_parameter() {
    let mut world = World::new().await;
    let reply = world.ask_as("", "GET /v1/openapi.json", "", &Value::Null).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/json"));
    assert_eq!(reply.header("ratelimit"), "");
    assert_eq!(reply.json()["openapi"], "3.1.0");
    let head = world.ask_as("", "HEAD /v1/openapi.json", "", &Value::Null).await;
    assert_eq!((head.status, head.header("content-length")), (200, reply.header("content-length")));
    world.ask_as("", "GET /v1/openapi.json?pretty=1", "", &Value::Null).await.fails_with(422, "validation_failed");
}

#[tokio::test]
async fn handlers_know_every_described_member_and_parameter() {
    let mut world = World::with(QuotaLimits::default(), 10_000).await;
    let ids = world.one_of_each().await;
    for (path, operations) in DOCUMENT["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let own = ids.iter().find(|(part, _)| path.contains(part)).map_or("", |(_, id)| id);
            let target = path.replace("{id}", own);
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            if let Some(reference) = schema["$ref"].as_str() {
                let members = DOCUMENT.pointer(&reference[1..]).unwrap()["properties"].as_object().unwrap();
                let wrong: Value = members.keys().map(|name| (name.clone(), json!({ "": [] }))).collect();
                let line = format!("{} {target}", method.to_uppercase());
                let key = world.key.clone();
                let refused = world.ask_as(&key, &line, "", &wrong).await;
                refused.fails_with(422, "validation_failed");
                assert!(!refused.body.contains("unknown field"), "{line}: {}", refused.body);
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten().filter(|p| p["in"] == "query") {
                let name = match parameter["name"].as_str().unwrap() {
                    "metadata" => "metadata[order]",
                    name => name,
                };
                // The requests also have an unknown parameter, so that no stream is opened.
                let line = format!("{} {target}?{name}=x&nonsense=1", method.to_uppercase());
                let key = world.key.clone();
                let refused = world.ask_as(&key, &line, "", &Value::Null).await;
                refused.fails_with(422, "validation_failed");
                assert_ne!(refused.json()["errors"][name], json!(["unknown parameter"]), "{line}");
            }
        }
    }
}

impl World {
    /// Returns paths, and an identifier of the account for each.
    async fn one_of_each(&mut self) -> [(&'static str, String); 3] {
        let hook = self.post("/v1/webhooks", json!({ "url": "https://app.example.com/hook" })).await;
        let first = |page: Reply| page.json()["data"][0]["id"].as_str().unwrap().to_owned();
        let (key, domain) = (first(self.get("/v1/keys").await), first(self.get("/v1/domains").await));
        [("/keys/", key), ("/domains/", domain), ("/webhooks/", hook.json()["id"].as_str().unwrap().to_owned())]
    }
}
