//! The tenancy matrix: every row of the route table x {own, another tenant's, unknown, malformed identifier} x {no key,
//! revoked, expired, without the scope, limited to the other stream, whole, the operator's}.
//!
//! It is generated from the table: a route that has no [`fixture`] fails it.

mod fixture;

use std::collections::BTreeMap;

use tokio::net::UnixStream;

use self::fixture::{Body, Fixture, Kind, Own, fixture};
use super::*;
use crate::http::route::{Access, Route};

/// How the identifiers of one kind that are not the caller's look.
struct Foreign {
    /// Another tenant's.
    others: Vec<String>,
    /// Of a shape that is right, and nobody's.
    unknown: Vec<String>,
    /// Of a shape that is wrong.
    malformed: Vec<String>,
}

/// Two tenants with one of everything.
struct Matrix {
    world: World,
    stranger: AccountId,
    stranger_key: String,
    /// The first tenant's objects, by kind, as they are asked for.
    own: BTreeMap<Kind, String>,
    /// The other tenant's objects, by kind.
    theirs: BTreeMap<Kind, String>,
    /// The address that the other tenant has suppressed.
    their_address: String,
    /// What must never be seen by the first tenant.
    secrets: Vec<String>,
}

/// Whom a request is from.
struct Keys {
    whole: String,
    /// Limited to the stream that the fixtures do not send on.
    limited: String,
    revoked: String,
    expired: String,
    /// With all scopes but this one.
    without: Vec<(Scope, String)>,
}

impl Matrix {
    async fn new() -> Self {
        let mut world = World::with(QuotaLimits::default(), 1_000_000).await;
        let (stranger, stranger_key) = world.stranger().await;
        let name: DomainName = "stranger.test".parse().unwrap();
        world.engine.create_verified_domain(stranger, name, Stream::Transactional).await.unwrap();
        let mut theirs = BTreeMap::new();
        let mut secrets = vec![stranger.to_string(), "stranger".to_owned()];
        for kind in Kind::ALL {
            let id = kind.make(&mut world, &stranger_key, stranger, "stranger.test").await;
            secrets.push(id.clone());
            theirs.insert(kind, id);
        }
        let suppressed = format!("/v1/suppressions/{}", theirs[&Kind::Suppression]);
        let suppressed = world.client.get(&suppressed, &stranger_key).await.json();
        let their_address = suppressed["email"].as_str().unwrap().to_owned();
        let events = world.client.get("/v1/events", &stranger_key).await.json();
        secrets.push(events["data"][0]["id"].as_str().unwrap().to_owned());
        Self { world, stranger, stranger_key, own: BTreeMap::new(), theirs, their_address, secrets }
    }

    /// One of the first tenant's objects.
    async fn own(&mut self, kind: Kind) -> String {
        if let Some(known) = self.own.get(&kind) {
            return known.clone();
        }
        let made = self.fresh(kind).await;
        self.own.insert(kind, made.clone());
        made
    }

    /// A new one.
    async fn fresh(&mut self, kind: Kind) -> String {
        let (key, account) = (self.world.key.clone(), self.world.account);
        kind.make(&mut self.world, &key, account, "example.test").await
    }

    async fn keys(&mut self) -> Keys {
        let world = &mut self.world;
        let account = world.account;
        let mut without = Vec::new();
        for lacking in Scope::ALL {
            let names: Vec<_> = Scope::ALL.into_iter().filter(|scope| *scope != lacking).map(Scope::as_str).collect();
            without.push((lacking, world.new_key(account, None, Scopes::parse("scopes", &names).unwrap()).await));
        }
        let operator = Caller { account, key: None };
        let at = world.clock.now() + Duration::from_secs(1);
        let new = NewKey { name: "short".to_owned(), stream: None, scopes: Scopes::ALL, expires_at: Some(at) };
        let expired = world.engine.create_key(&operator, new).await.unwrap().1.expose().to_owned();
        world.advance(Duration::from_secs(1));
        let revoked = world.new_key(account, None, Scopes::ALL).await;
        let id = world.engine.authenticate(&revoked).unwrap().unwrap().key.unwrap().id;
        world.engine.revoke_key(account, id).await.unwrap();
        let limited = world.new_key(account, Some(Stream::Marketing), Scopes::ALL).await;
        Keys { whole: world.key.clone(), limited, revoked, expired, without }
    }

    /// Asks on a connection of its own (a stream never ends), by the network with a key or by the operator's socket
    /// without one; nothing of the other tenant may show in the answer.
    async fn ask(&self, door: Door<'_>, line: &str, body: &Body) -> Reply {
        let header = match body {
            Body::None => String::new(),
            Body::Json(_) => "Content-Type: application/json\r\n".to_owned(),
            Body::Csv(_) => "Content-Type: text/csv\r\n".to_owned(),
        };
        let streams = line.contains("/events/stream");
        let reply = match door {
            Door::Key(key) => {
                let mut client = Client::open(self.world.address).await;
                client.told(line, key, &header, body.text(), streams).await
            }
            Door::Operator(account) => {
                let socket = UnixStream::connect(self.world.directory.path().join("admin.sock")).await.unwrap();
                let header = format!("{header}X-Postrider-Account: {account}\r\n");
                Client::over(socket).told(line, "", &header, body.text(), streams).await
            }
        };
        let all = format!("{:?} {}", reply.headers, reply.body);
        for secret in &self.secrets {
            let is_listed_account = line.contains(" /v1/accounts") && matches!(door, Door::Operator(_));
            assert!(is_listed_account || !all.contains(secret.as_str()), "{line} shows {secret}: {all}");
        }
        reply
    }

    /// Everything that the other tenant can see of its own.
    async fn others_state(&self) -> Vec<String> {
        let mut state = Vec::new();
        let mut paths = vec!["/v1/settings".to_owned(), "/v1/suppressions/export".to_owned()];
        paths.extend(["keys", "messages", "events", "domains", "webhooks", "suppressions"].map(|l| format!("/v1/{l}")));
        for (kind, id) in &self.theirs {
            paths.extend(kind.path().map(|path| format!("{path}/{id}")));
        }
        paths.push(format!("/v1/webhooks/{}/deliveries", self.theirs[&Kind::Webhook]));
        for path in paths {
            let mut client = Client::open(self.world.address).await;
            let reply = client.get(&path, &self.stranger_key).await;
            assert_eq!(reply.status, 200, "{path}");
            state.push(reply.body);
        }
        state
    }

    fn foreign(&self, kind: Kind, own: &str) -> Foreign {
        let (prefix, ulid) = own.split_once('_').unwrap();
        let mut others = vec![self.theirs[&kind].clone()];
        let mut unknown = vec![format!("{prefix}_00000000000000000000000000")];
        if kind == Kind::Suppression {
            others.push(self.their_address.clone());
            unknown.push("nobody@example.net".to_owned());
        }
        let wrong = if prefix == "evt" { "att" } else { "evt" };
        let malformed = vec![
            "x".to_owned(),
            own.to_lowercase(),
            format!("{wrong}_{ulid}"),
            ulid.to_owned(),
            format!("{own}0"),
            format!("%20{own}"),
            format!("{prefix}_8{}", &ulid[1..]),
            format!("{prefix}_{}", "0".repeat(1000)),
            "%00".to_owned(),
            "..%2F..%2Fv1%2Fme".to_owned(),
        ];
        Foreign { others, unknown, malformed }
    }
}

/// How a request comes in.
#[derive(Clone, Copy)]
enum Door<'a> {
    /// By the network, with this key; an empty one is none.
    Key(&'a str),
    /// By the operator's socket, for this account.
    Operator(AccountId),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    async fn told(&mut self, line: &str, key: &str, headers: &str, body: &str, streams: bool) -> Reply {
        if !streams {
            return self.ask(line, key, headers, body).await;
        }
        let key = if key.is_empty() { String::new() } else { format!("Authorization: Bearer {key}\r\n") };
        self.write(format!("{line} HTTP/1.1\r\nHost: test\r\n{key}{headers}\r\n")).await;
        let mut reply = self.read_head().await;
        if reply.status != 200 {
            let length: usize = reply.header("content-length").parse().unwrap();
            while self.unread.len() < length {
                assert!(self.fill().await);
            }
            reply.body = String::from_utf8(self.unread.drain(..length).collect()).unwrap();
        }
        reply
    }
}

/// What of an answer may differ between two that are the same: the request's identifier, the second, and the count of
/// the requests so far.
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

/// The rows that ask who comes, with their fixtures.
fn rows() -> Vec<(Route<Api>, Fixture)> {
    let guarded = routes().into_iter().filter(|route| match route.access {
        Access::Open(_) => false,
        Access::Key(_) | Access::Scoped(..) | Access::Operator(_) | Access::Loopback(_) => true,
    });
    guarded.map(|route| (fixture(route.name), route)).map(|(fixture, route)| (route, fixture)).collect()
}

#[test]
fn every_route_has_a_fixture_that_fits_its_path_and_only_the_probes_are_open() {
    for (route, fixture) in rows() {
        let named = route.path.matches('{').count();
        assert_eq!(named, usize::from(fixture.of.is_some()), "{}: one identifier, one kind", route.name);
        // Contract 2: `send` allows POST /v1/messages, `read` every GET, `manage` the rest; /v1/me needs none.
        match &route.access {
            Access::Scoped(scope, _) => {
                let wanted = match (&route.method, route.path) {
                    (&Method::GET, _) => Scope::Read,
                    (&Method::POST, "/v1/messages") => Scope::Send,
                    (_, _) => Scope::Manage,
                };
                assert_eq!(*scope, wanted, "{}", route.name);
            }
            Access::Key(_) => assert_eq!(route.path, "/v1/me"),
            Access::Operator(_) => assert!(route.path.starts_with("/v1/accounts"), "{}", route.path),
            Access::Open(_) | Access::Loopback(_) => panic!("{} asks for no key", route.name),
        }
    }
    let open = routes().into_iter().filter(|route| matches!(route.access, Access::Open(_)));
    let open: Vec<_> = open.map(|route| route.path).collect();
    let public = |path: &&str| !path.starts_with("/v1/") || *path == "/v1/openapi.json";
    assert!(open.iter().all(public), "{open:?}");
}

#[tokio::test]
async fn an_object_of_another_tenant_an_unknown_and_a_malformed_one_are_answered_alike() {
    let mut matrix = Matrix::new().await;
    let keys = matrix.keys().await;
    let before = matrix.others_state().await;
    for (route, fixture) in rows() {
        let Some(kind) = fixture.of else { continue };
        let own = matrix.own(kind).await;
        let foreign = matrix.foreign(kind, &own);
        // An operator's accounts are not tenants of each other.
        let others = if kind == Kind::Account { &[][..] } else { &foreign.others };
        let mut doors = vec![Door::Operator(matrix.world.account)];
        if !matches!(route.access, Access::Operator(_)) {
            doors.extend([Door::Key(&keys.whole), Door::Key(&keys.limited)]);
        }
        for door in doors {
            // Whatever else is wrong with the request must not tell them apart either.
            for (query, body) in [("", fixture.body()), ("?nonsense=1", fixture.body()), ("", fixture.faulty_body())] {
                let ask = async |id: &String| {
                    let line = format!("{}{query}", line(&route, id));
                    essence(matrix.ask(door, &line, &body).await)
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
                let expected = essence(matrix.ask(door, &head, &Body::None).await);
                assert_eq!((expected.0, expected.2.as_str()), (404, ""));
                for id in others.iter().chain(&foreign.malformed) {
                    let head = line(&route, id).replace("GET", "HEAD");
                    assert_eq!(essence(matrix.ask(door, &head, &Body::None).await), expected, "{head}");
                }
            }
        }
    }
    assert_eq!(matrix.others_state().await, before, "nothing of the other tenant's has changed");
}

#[tokio::test]
async fn who_may_not_come_is_told_so_before_anything_is_looked_for() {
    let mut matrix = Matrix::new().await;
    let keys = matrix.keys().await;
    let nowhere = essence(matrix.ask(Door::Key(&keys.whole), "GET /v1/nowhere", &Body::None).await);
    for (route, fixture) in rows() {
        let mut ids = vec![String::new()];
        if let Some(kind) = fixture.of {
            let own = matrix.own(kind).await;
            let foreign = matrix.foreign(kind, &own);
            ids = [vec![own], foreign.others, foreign.unknown, foreign.malformed].concat();
        }
        for id in &ids {
            let line = line(&route, id);
            let ask = async |key: &str| essence(matrix.ask(Door::Key(key), &line, &fixture.body()).await);
            let (missing, revoked) = (ask("").await, ask(&keys.revoked).await);
            assert_eq!((missing.0, revoked.0), (401, 401), "{line}");
            assert!(revoked.2.contains("unauthenticated") && revoked.1["www-authenticate"] == "Bearer", "{line}");
            assert_eq!(ask(&keys.expired).await, revoked, "{line}");
            match &route.access {
                Access::Scoped(scope, _) => {
                    let (_, key) = keys.without.iter().find(|(lacking, _)| lacking == scope).unwrap();
                    let refused = ask(key).await;
                    assert_eq!(refused.0, 403, "{line}");
                    assert!(refused.2.contains("scope_forbidden") && refused.2.contains(scope.as_str()), "{line}");
                }
                // To whoever comes by the network, the operator's paths are unknown ones.
                Access::Operator(_) => assert_eq!(ask(&keys.whole).await, nowhere, "{line}"),
                Access::Key(_) | Access::Open(_) | Access::Loopback(_) => {}
            }
        }
    }
}

#[tokio::test]
async fn what_is_ones_own_is_served_to_every_key_and_to_the_operator() {
    let mut matrix = Matrix::new().await;
    let keys = matrix.keys().await;
    let before = matrix.others_state().await;
    for (route, fixture) in rows() {
        let Own { whole, limited } = fixture.own;
        let account = matrix.world.account;
        let is_operators = matches!(route.access, Access::Operator(_));
        let by_key = [(Door::Key(&*keys.whole), whole), (Door::Key(&*keys.limited), limited)];
        let asked = by_key.into_iter().filter(|_| !is_operators).chain([(Door::Operator(account), whole)]);
        for (door, status) in asked.collect::<Vec<_>>() {
            let id = match fixture.of {
                // What is ended can't be ended again.
                Some(kind) if route.method == Method::DELETE || route.name == "messages.cancel" => {
                    matrix.fresh(kind).await
                }
                Some(kind) => matrix.own(kind).await,
                None => String::new(),
            };
            let line = line(&route, &id);
            // Looked up again: some bodies are good once.
            let reply = matrix.ask(door, &line, &self::fixture::fixture(route.name).body()).await;
            assert_eq!(reply.status, status, "{line}: {}", reply.body);
        }
    }
    assert_eq!(matrix.others_state().await, before, "nothing of the other tenant's has changed");
}

#[tokio::test]
async fn a_cursor_of_another_tenants_list_is_refused_by_every_list() {
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
