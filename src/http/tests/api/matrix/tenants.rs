//! The two tenants of the matrix: their objects, the keys that access the first one, and data that must never leak to
//! it.

use tokio::net::UnixStream;

use super::fixture::{Body, Kind};
use super::*;

/// Identifiers of one kind that do not belong to the caller.
pub(super) struct Foreign {
    /// Identifiers of another tenant.
    pub(super) others: Vec<String>,
    /// Well-formed, unused identifiers.
    pub(super) unknown: Vec<String>,
    /// Malformed identifiers.
    pub(super) malformed: Vec<String>,
}

/// Two tenants with one of everything.
pub(super) struct Matrix {
    pub(super) world: World,
    pub(super) stranger: AccountId,
    pub(super) stranger_key: String,
    /// The first tenant's objects, by kind.
    pub(super) own: BTreeMap<Kind, String>,
    /// The other tenant's objects, by kind.
    pub(super) theirs: BTreeMap<Kind, String>,
    /// The address that the other tenant has suppressed.
    pub(super) their_address: String,
    /// Values that the first tenant must never see.
    pub(super) secrets: Vec<String>,
}

/// The senders of requests.
pub(super) struct Keys {
    pub(super) whole: String,
    /// Limited to a stream other than that of the fixtures.
    pub(super) limited: String,
    pub(super) revoked: String,
    pub(super) expired: String,
    /// Keys with all scopes but this one.
    pub(super) without: Vec<(Scope, String)>,
}

impl Matrix {
    pub(super) async fn new() -> Self {
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

    /// Returns one of the first tenant's objects.
    pub(super) async fn own(&mut self, kind: Kind) -> String {
        if let Some(known) = self.own.get(&kind) {
            return known.clone();
        }
        let made = self.fresh(kind).await;
        self.own.insert(kind, made.clone());
        made
    }

    /// Creates a new object of the first tenant.
    pub(super) async fn fresh(&mut self, kind: Kind) -> String {
        let (key, account) = (self.world.key.clone(), self.world.account);
        kind.make(&mut self.world, &key, account, "example.test").await
    }

    pub(super) async fn keys(&mut self) -> Keys {
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

    /// Sends a request on a new connection (a stream never ends), over the network with a key or over the operator's
    /// socket without one. Asserts that the answer has no data of the other tenant.
    pub(super) async fn ask(&self, interface: Interface<'_>, line: &str, body: &Body) -> Reply {
        let header = match body {
            Body::None => String::new(),
            Body::Json(_) => "Content-Type: application/json\r\n".to_owned(),
            Body::Csv(_) => "Content-Type: text/csv\r\n".to_owned(),
        };
        let reply = match interface {
            Interface::Key(key) => {
                let mut client = Client::open(self.world.address).await;
                client.asked(line, key, &header, body.text()).await
            }
            Interface::Operator(account) => {
                let socket = UnixStream::connect(self.world.directory.path().join("admin.sock")).await.unwrap();
                let header = format!("{header}X-Postrider-Account: {account}\r\n");
                Client::over(socket).asked(line, "", &header, body.text()).await
            }
        };
        let all = format!("{:?} {}", reply.headers, reply.body);
        for secret in &self.secrets {
            let is_of_all = [" /v1/accounts", " /v1/operator/"].iter().any(|path| line.contains(path));
            let may_show = is_of_all && matches!(interface, Interface::Operator(_));
            assert!(may_show || !all.contains(secret.as_str()), "{line} shows {secret}: {all}");
        }
        reply
    }

    /// Returns everything that the other tenant can see of its own data.
    pub(super) async fn others_state(&self) -> Vec<String> {
        let mut state = Vec::new();
        let mut paths = ["settings", "suppressions/export", "messages/export", "events/export"]
            .map(|p| format!("/v1/{p}"))
            .to_vec();
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

    pub(super) fn foreign(&self, kind: Kind, own: &str) -> Foreign {
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

/// The interface of a request.
#[derive(Clone, Copy)]
pub(super) enum Interface<'a> {
    /// The network, with this key; an empty one means no key.
    Key(&'a str),
    /// The operator's socket, for this account.
    Operator(AccountId),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// Sends a request. Reads only the head of an endless answer.
    async fn asked(&mut self, line: &str, key: &str, headers: &str, body: &str) -> Reply {
        if !line.contains("/events/stream") {
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
