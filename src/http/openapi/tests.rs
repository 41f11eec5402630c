//! Tests of the description: it is complete, its examples match, and the committed copy is current.

use std::path::Path;

use super::check::faults;
use super::*;
use crate::http::route::BodyRule;

/// Calls `visit` with every object of the document and its position.
fn every_object(value: &Value, at: &str, visit: &mut impl FnMut(&Map<String, Value>, &str)) {
    match value {
        Value::Object(object) => {
            visit(object, at);
            object.iter().for_each(|(name, value)| every_object(value, &format!("{at}/{name}"), visit));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(place, item)| every_object(item, &format!("{at}/{place}"), visit));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_committed_copy_is_current() {
    is_committed("docs/openapi.json", &DOCUMENT);
}

#[test]
fn the_committed_copy_for_people_is_current() {
    is_committed("docs/api.md", for_people().as_bytes());
}

fn is_committed(file: &str, made: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, made).unwrap();
    }
    let committed = std::fs::read(&path).unwrap_or_default();
    assert!(
        committed == made,
        "{file} is stale: the API's description has changed. Renew it with `UPDATE_GOLDEN=1 cargo test --lib \
         the_committed_copy`, review the difference, and commit it."
    );
}

#[test]
fn every_public_route_has_a_matching_description() {
    let document = described();
    for route in api::routes().iter().filter(|route| is_public(route)) {
        let name = route.name;
        assert!(
            operation(name).is_some(),
            "{} {} has no description: add {name:?} to a file of src/http/openapi",
            route.method,
            route.path
        );
        let described = &document["paths"][route.path][route.method.as_str().to_lowercase()];
        let parameters = described["parameters"].as_array().into_iter().flatten();
        let in_path: Vec<_> = parameters.filter(|p| p["in"] == "path").map(|p| p["name"].as_str().unwrap()).collect();
        let in_row = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        assert_eq!(in_path, in_row.collect::<Vec<_>>(), "{name}");
        let media = described["requestBody"]["content"].as_object().into_iter().flat_map(Map::keys);
        let mut taken = match route.body {
            BodyRule::Of(types) => types.to_vec(),
            BodyRule::Ignored | BodyRule::Nothing | BodyRule::OfAnyType => Vec::new(),
        };
        taken.sort_unstable();
        assert_eq!(media.collect::<Vec<_>>(), taken, "{name}");
    }
}

#[test]
fn routes_that_are_not_public_are_not_described() {
    let routes = api::routes();
    let hidden = routes.iter().filter(|route| !is_public(route));
    let paths = described()["paths"].as_object().unwrap().clone();
    let names: Vec<_> = hidden
        .filter(|route| {
            paths.get(route.path).is_some_and(|path| path.get(route.method.as_str().to_lowercase()).is_some())
        })
        .map(|route| route.name)
        .collect();
    assert_eq!(names, [""; 0]);
    assert!(!String::from_utf8_lossy(&DOCUMENT).contains("/dev"));
}

#[test]
fn every_reference_resolves_and_every_example_matches() {
    let document = described();
    let mut examples = 0;
    every_object(&document, "", &mut |object, at| {
        if let Some(Value::String(target)) = object.get("$ref") {
            assert!(document.pointer(&target[1..]).is_some(), "{at}: {target}");
        }
        let Some(schema) = object.get("schema") else { return };
        for example in object.get("examples").and_then(Value::as_object).into_iter().flat_map(Map::values) {
            examples += 1;
            assert_eq!(faults(&document, schema, &example["value"]), [""; 0], "{at}");
        }
    });
    assert!(examples > 100, "{examples}");
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        for (member, schema) in schema["properties"].as_object().into_iter().flatten() {
            for example in schema["examples"].as_array().into_iter().flatten() {
                assert_eq!(faults(&document, schema, example), [""; 0], "{name}.{member}");
            }
        }
    }
}

#[test]
fn every_operation_lists_its_errors_and_common_headers() {
    let document = described();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            let at = format!("{method} {path}");
            assert!(responses.keys().any(|status| status.starts_with('2')), "{at} never succeeds");
            let keyed = operation["security"] != json!([]);
            for status in ["401", "429"] {
                assert_eq!(responses.contains_key(status), keyed, "{at} and {status}");
            }
            assert_eq!(responses.contains_key("404"), path.contains('{'), "{at}");
            // An action accepts no members, and rejects a body of another type too.
            assert_eq!(responses.contains_key("415"), matches!(&**method, "post" | "patch"), "{at}");
            for (status, response) in responses {
                let response =
                    response["$ref"].as_str().map_or(response, |target| document.pointer(&target[1..]).unwrap());
                let headers = &response["headers"];
                assert!(
                    headers.get("X-Request-Id").is_some() && headers.get("Cache-Control").is_some(),
                    "{at} {status}"
                );
                let tells_rate = headers.get("RateLimit").is_some() && headers.get("RateLimit-Policy").is_some();
                assert!(tells_rate || !keyed || status == "401", "{at} {status}");
                assert!(!matches!(&**status, "201" | "202") || headers.get("Location").is_some(), "{at} {status}");
                assert!(!matches!(&**status, "429" | "503") || headers.get("Retry-After").is_some(), "{at} {status}");
            }
        }
    }
}

#[test]
fn all_errors_of_the_contract_are_described() {
    let document = described();
    let codes = document["components"]["schemas"]["ErrorCode"]["enum"].as_array().unwrap();
    let mut answered: Vec<Value> = Vec::new();
    every_object(&document, "", &mut |object, _| {
        answered.extend(object.get("value").and_then(|value| value.get("code")).cloned());
    });
    let unused: Vec<_> = codes.iter().filter(|code| !answered.contains(code)).collect();
    assert!(unused.is_empty(), "no route answers {unused:?}");
}
