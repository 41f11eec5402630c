//! The tenancy matrix: every row of the route table x {own, another tenant's, unknown, malformed identifier} x {no key,
//! revoked, expired, without the scope, limited to the other stream, full, the operator's}.
//!
//! It is generated from the table: a route without a [`fixture`] fails it.

mod fixture;
mod tenants;

use std::collections::BTreeMap;

use self::fixture::{Body, Fixture, Kind, Own, fixture};
use self::tenants::{Interface, Matrix};
use super::*;
use crate::domain::api_key::Scopes;
use crate::http::route::{Access, Route};

/// Returns an answer without the parts that may differ between equal answers: the request ID, the second, and the
/// number of requests so far.
fn essence(reply: Reply) -> (u16, BTreeMap<String, String>, String) {
    let varying = ["x-request-id", "date", "ratelimit"];
    let headers = reply.headers.into_iter().filter(|(name, _)| !varying.contains(&name.as_str())).collect();
    (reply.status, headers, reply.body)
}

fn line(route: &Route<Api>, id: &str) -> String {
    let path = match (route.path.find('{'), route.path.find('}')) {
        (Some(begin), Some(end)) => format!("{}{id}{}", &route.path[..begin], &route.path[end + 1..]),
        (_, _) => route.path.to_owned(),
    };
    format!("{} {path}", route.method)
}

/// Returns the rows that authenticate the client, with their fixtures.
fn rows() -> Vec<(Route<Api>, Fixture)> {
    let guarded = routes().into_iter().filter(|route| match route.access {
        Access::Open(_) | Access::Page(..) => false,
        Access::Key(_) | Access::Scoped(..) | Access::Operator(_) | Access::Loopback(_) => true,
    });
    guarded.map(|route| (fixture(route.name), route)).map(|(fixture, route)| (route, fixture)).collect()
}

#[test]
fn every_route_has_a_matching_fixture_and_only_probes_are_open() {
    for (route, fixture) in rows() {
        let named = route.path.matches('{').count();
        assert_eq!(named, usize::from(fixture.of.is_some()), "{}: one identifier, one kind", route.name);
        // Contract 2: `send` allows POST /v1/messages, `read` every GET, `manage` the rest; /v1/me needs none.
        match &route.access {
            Access::Scoped(scopes, _) => {
                let is_of_events = route.path.starts_with("/v1/webhook");
                let wanted = match (&route.method, route.path) {
                    // Explaining changes nothing, though it has a body.
                    (&Method::GET, _) | (&Method::POST, "/v1/explain") => Scopes::of(&[Scope::Read]),
                    (&Method::POST, "/v1/messages") => Scopes::of(&[Scope::Send]),
                    // A key that sets a webhook's URL can read its events.
                    (&Method::POST | &Method::PATCH, _) if is_of_events => Scopes::of(&[Scope::Manage, Scope::Read]),
                    (_, _) => Scopes::of(&[Scope::Manage]),
                };
                assert_eq!(*scopes, wanted, "{}", route.name);
            }
            Access::Key(_) => assert_eq!(route.path, "/v1/me"),
            Access::Operator(_) => {
                let paths = ["accounts", "backup", "clock", "operator", "queue", "replica", "status", "users"];
                let is_operators =
                    paths.iter().map(|path| format!("/v1/{path}")).any(|path| route.path.starts_with(&path));
                assert!(is_operators, "{}", route.path);
            }
            Access::Open(_) | Access::Page(..) | Access::Loopback(_) => panic!("{} requires no key", route.name),
        }
    }
    let open = routes().into_iter().filter(|route| matches!(route.access, Access::Open(_)));
    let open: Vec<_> = open.map(|route| route.path).collect();
    let public = |path: &&str| !path.starts_with("/v1/") || *path == "/v1/openapi.json";
    assert!(open.iter().all(public), "{open:?}");
}

#[tokio::test]
async fn foreign_unknown_and_malformed_identifiers_are_answered_alike() {
    let mut matrix = Matrix::new().await;
    let keys = matrix.keys().await;
    let before = matrix.others_state().await;
    for (route, fixture) in rows() {
        let Some(kind) = fixture.of else { continue };
        let own = matrix.own(kind).await;
        let foreign = matrix.foreign(kind, &own);
        // The operator's accounts are not tenants of each other.
        let is_operators = kind == Kind::Account || route.name == "alerts.show_any";
        let others = if is_operators { &[][..] } else { &foreign.others };
        let mut interfaces = vec![Interface::Operator(matrix.world.account)];
        if !matches!(route.access, Access::Operator(_)) {
            interfaces.extend([Interface::Key(&keys.whole), Interface::Key(&keys.limited)]);
        }
        for interface in interfaces {
            // Other errors in the request must not reveal a difference either.
            for (query, body) in [("", fixture.body()), ("?nonsense=1", fixture.body()), ("", fixture.faulty_body())] {
                let ask = async |id: &String| {
                    let line = format!("{}{query}", line(&route, id));
                    essence(matrix.ask(interface, &line, &body).await)
                };
                let expected = ask(&foreign.unknown[0]).await;
                if query.is_empty() {
                    let body = r#""code":"not_found"}"#;
                    assert!(expected.0 == 404 && expected.2.ends_with(body), "{}: {expected:?}", route.name);
                }
                for id in others.iter().chain(&foreign.unknown).chain(&foreign.malformed) {
                    assert_eq!(ask(id).await, expected, "{} {query} {id}", route.name);
                }
            }
            if route.method == Method::GET {
                let head = line(&route, &foreign.unknown[0]).replace("GET", "HEAD");
                let expected = essence(matrix.ask(interface, &head, &Body::None).await);
                assert_eq!((expected.0, expected.2.as_str()), (404, ""));
                for id in others.iter().chain(&foreign.malformed) {
                    let head = line(&route, id).replace("GET", "HEAD");
                    assert_eq!(essence(matrix.ask(interface, &head, &Body::None).await), expected, "{head}");
                }
            }
        }
    }
    assert_eq!(matrix.others_state().await, before, "nothing of the other tenant's has changed");
}

#[tokio::test]
async fn unauthorized_requests_are_refused_before_any_lookup() {
    let mut matrix = Matrix::new().await;
    let keys = matrix.keys().await;
    let nowhere = essence(matrix.ask(Interface::Key(&keys.whole), "GET /v1/nowhere", &Body::None).await);
    for (route, fixture) in rows() {
        let mut ids = vec![String::new()];
        if let Some(kind) = fixture.of {
            let own = matrix.own(kind).await;
            let foreign = matrix.foreign(kind, &own);
            ids = [vec![own], foreign.others, foreign.unknown, foreign.malformed].concat();
        }
        for id in &ids {
            let line = line(&route, id);
            let ask = async |key: &str| essence(matrix.ask(Interface::Key(key), &line, &fixture.body()).await);
            let (missing, revoked) = (ask("").await, ask(&keys.revoked).await);
            assert_eq!((missing.0, revoked.0), (401, 401), "{line}");
            assert!(revoked.2.contains("unauthenticated") && revoked.1["www-authenticate"] == "Bearer", "{line}");
            assert_eq!(ask(&keys.expired).await, revoked, "{line}");
            match &route.access {
                Access::Scoped(scopes, _) => {
                    for (scope, key) in keys.without.iter().filter(|(scope, _)| scopes.contains(*scope)) {
                        let refused = ask(key).await;
                        assert_eq!(refused.0, 403, "{line}");
                        assert!(refused.2.contains("scope_forbidden") && refused.2.contains(scope.as_str()), "{line}");
                    }
                }
                // For clients of the network, the operator's paths are unknown.
                Access::Operator(_) => assert_eq!(ask(&keys.whole).await, nowhere, "{line}"),
                Access::Key(_) | Access::Open(_) | Access::Page(..) | Access::Loopback(_) => {}
            }
        }
    }
}

#[tokio::test]
async fn own_objects_are_served_to_every_key_and_to_the_operator() {
    let mut matrix = Matrix::new().await;
    let keys = matrix.keys().await;
    let before = matrix.others_state().await;
    for (route, fixture) in rows() {
        let Own { whole, limited } = fixture.own;
        let account = matrix.world.account;
        let is_operators = matches!(route.access, Access::Operator(_));
        let by_key = [(Interface::Key(&keys.whole), whole), (Interface::Key(&keys.limited), limited)];
        let asked = by_key.into_iter().filter(|_| !is_operators).chain([(Interface::Operator(account), whole)]);
        for (interface, status) in asked.collect::<Vec<_>>() {
            let id = match fixture.of {
                // A finished object can't be ended again.
                Some(kind) if route.method == Method::DELETE || route.name == "messages.cancel" => {
                    matrix.fresh(kind).await
                }
                Some(kind) => matrix.own(kind).await,
                None => String::new(),
            };
            let line = line(&route, &id);
            // The request is built again: some bodies can be used only once.
            let reply = matrix.ask(interface, &line, &self::fixture::fixture(route.name).body()).await;
            assert_eq!(reply.status, status, "{line}: {}", reply.body);
        }
    }
    assert_eq!(matrix.others_state().await, before, "nothing of the other tenant's has changed");
}

#[tokio::test]
async fn every_list_rejects_a_cursor_of_another_tenant() {
    let mut matrix = Matrix::new().await;
    let (stranger, stranger_key) = (matrix.stranger, matrix.stranger_key.clone());
    let mut lists = 0;
    for (route, fixture) in rows() {
        let is_list = route.name.ends_with(".list") || route.name.ends_with(".deliveries");
        if !is_list || matches!(route.access, Access::Operator(_)) {
            continue;
        }
        lists += 1;
        let kind = match route.name.split('.').next().unwrap() {
            "messages" | "events" => Kind::Message,
            "keys" => Kind::Key,
            "domains" => Kind::Domain,
            "suppressions" => Kind::Suppression,
            "alerts" => Kind::Alert,
            "webhooks" => {
                if fixture.of.is_some() {
                    Kind::Message
                } else {
                    Kind::Webhook
                }
            }
            other => panic!("say what {other} lists"),
        };
        let mut theirs = String::new();
        if fixture.of.is_some() {
            theirs = matrix.theirs[&Kind::Webhook].clone();
        }
        for _ in 0..2 {
            kind.make(&mut matrix.world, &stranger_key, stranger, "stranger.test").await;
        }
        let first = format!("{}?limit=1", line(&route, &theirs));
        let page = matrix.world.client.ask(&first, &stranger_key, "", "").await.json();
        let cursor = page["next_cursor"].as_str().unwrap_or_else(|| panic!("{first}: {page}")).to_owned();
        let own = match fixture.of {
            Some(kind) => matrix.own(kind).await,
            None => String::new(),
        };
        let refused = matrix.world.get(&format!("{}?cursor={cursor}", &line(&route, &own)["GET ".len()..])).await;
        refused.fails_with(422, "validation_failed");
        assert_eq!(refused.faults(), ["cursor"], "{}", route.name);
    }
    assert!(lists >= 7, "{lists}");
}

#[tokio::test]
async fn every_route_names_unknown_members_and_suggests_known_ones() {
    let mut matrix = Matrix::new().await;
    let key = matrix.world.key.clone();
    for (route, fixture) in rows() {
        let id = match fixture.of {
            Some(kind) => matrix.own(kind).await,
            None => String::new(),
        };
        let line = line(&route, &id);
        let interface = match route.access {
            Access::Operator(_) => Interface::Operator(matrix.world.account),
            Access::Key(_) | Access::Scoped(..) | Access::Open(_) | Access::Page(..) | Access::Loopback(_) => {
                Interface::Key(&key)
            }
        };
        let refused = matrix.ask(interface, &format!("{line}?nonsense=1"), &fixture.body()).await;
        refused.fails_with(422, "validation_failed");
        assert_eq!(refused.json()["errors"]["nonsense"], serde_json::json!(["unknown parameter"]), "{line}");
        let Body::Json(body) = fixture.body() else { continue };
        let mut body: serde_json::Map<_, _> = serde_json::from_str(&body).unwrap();
        let (name, value) = body.iter().next().map(|(name, value)| (name.clone(), value.clone())).unwrap();
        let misspelt = name[..name.len() - 1].to_owned();
        body.remove(&name);
        body.insert(misspelt.clone(), value);
        let refused = matrix.ask(interface, &line, &Body::Json(Value::Object(body).to_string())).await;
        refused.fails_with(422, "validation_failed");
        let refused = refused.json();
        assert_eq!(refused["errors"][&misspelt], serde_json::json!(["unknown field"]), "{line}");
        assert!(refused["message"].as_str().unwrap().contains(&format!("did you mean {name}?")), "{line}: {refused}");
    }
}
