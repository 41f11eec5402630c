//! Requests of the matrix for each route: an exhaustive match on the route's name.

use super::*;
use crate::domain::alert::{Condition, Severity, Sighting, Subject, SubjectKind};
use crate::domain::user::Role;
use crate::store::op::alert::RaiseAlert;

/// A kind of object in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Account,
    Key,
    Domain,
    Message,
    Webhook,
    Delivery,
    Suppression,
    User,
    Alert,
}

/// A request's body.
#[derive(Debug, Clone)]
pub(super) enum Body {
    None,
    Json(String),
    Csv(String),
}

/// The status that answers a valid request for one's own object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    /// Status for a key that has all permissions.
    pub(super) whole: u16,
    /// Status for a key limited to a stream other than the fixture's.
    pub(super) limited: u16,
}

/// Requests for one route.
#[derive(Debug, Clone)]
pub(super) struct Fixture {
    /// The kind of object in its path.
    pub(super) of: Option<Kind>,
    pub(super) own: Own,
    body: Option<Value>,
    csv: Option<&'static str>,
}

impl Fixture {
    pub(super) fn body(&self) -> Body {
        match (&self.body, self.csv) {
            (Some(body), _) => Body::Json(body.to_string()),
            (None, Some(text)) => Body::Csv(text.to_owned()),
            (None, None) => Body::None,
        }
    }

    /// Returns an invalid body, if the route reads one.
    pub(super) fn faulty_body(&self) -> Body {
        match self.body() {
            Body::None => Body::None,
            Body::Json(_) => Body::Json("{\"nonsense\":1".to_owned()),
            Body::Csv(_) => Body::Csv("\"".to_owned()),
        }
    }

    fn with(self, body: Value) -> Self {
        Self { body: Some(body), ..self }
    }
}

impl Body {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::None => "",
            Self::Json(text) | Self::Csv(text) => text,
        }
    }
}

fn plain(status: u16) -> Fixture {
    Fixture { of: None, own: Own { whole: status, limited: status }, body: None, csv: None }
}

fn of(kind: Kind, status: u16) -> Fixture {
    Fixture { of: Some(kind), ..plain(status) }
}

/// Marks a route as forbidden to a key that is limited to the other stream.
fn not_limited(fixture: Fixture) -> Fixture {
    Fixture { own: Own { limited: 403, ..fixture.own }, ..fixture }
}

/// Returns the fixture of the route with this name.
pub(super) fn fixture(route: &str) -> Fixture {
    use serde_json::json;
    match route {
        "me" | "settings.show" | "events.list" | "events.stream" | "providers.show" => plain(200),
        "keys.list"
        | "messages.list"
        | "domains.list"
        | "webhooks.list"
        | "suppressions.list"
        | "submission_refusals.show" => plain(200),
        "messages.export" | "events.export" => plain(200),
        "suppressions.export" | "accounts.list" | "queue.list" | "queue.release" | "backup.take" => plain(200),
        "clock.show" | "status.show" | "clock.accept" | "replica.show" | "replica.base" => plain(200),
        "alerts.list" | "alerts.list_all" | "alerts.check" | "alerts.test" => plain(200),
        "alerts.show" => of(Kind::Alert, 200),
        "alerts.show_any" => of(Kind::Alert, 200),
        "queue.pause" | "queue.resume" | "queue.try" => plain(200).with(json!({ "site": "google" })),
        "settings.update" => plain(200).with(json!({ "content_retention_days": 30 })),
        "explain" => plain(200).with(json!({ "headers": "From: a@example.test" })),
        "messages.create" => {
            let body = letter("a@example.net");
            Fixture { own: Own { whole: 202, limited: 403 }, ..plain(202).with(body) }
        }
        "messages.show" | "messages.raw" | "messages.cancel" => of(Kind::Message, 200),
        // A limited key can only create limited keys.
        "keys.create" => Fixture { own: Own { whole: 201, limited: 403 }, ..plain(201).with(json!({ "name": "k" })) },
        "keys.show" => of(Kind::Key, 200),
        "keys.update" => of(Kind::Key, 200).with(json!({ "name": "renamed" })),
        "keys.delete" => of(Kind::Key, 204),
        "domains.create" => {
            // The name is new each time: an account has a domain only once.
            let name = format!("new{}.test", Kind::number());
            not_limited(plain(201).with(json!({ "name": name, "stream": "transactional" })))
        }
        "domains.show" | "domains.checklist" => of(Kind::Domain, 200),
        "domains.verify" | "domains.rotate" => not_limited(of(Kind::Domain, 200)),
        "domains.update" => not_limited(of(Kind::Domain, 200).with(json!({ "stream": "transactional" }))),
        "dmarc.show" | "dmarc.reports" => of(Kind::Domain, 200),
        // No report has a source or a reporter yet.
        "dmarc.sources" => not_limited(of(Kind::Domain, 404).with(json!({ "network": "192.0.2.0/24", "mine": true }))),
        "dmarc.reporters" => not_limited(of(Kind::Domain, 404).with(json!({ "name": "r", "ignored": true }))),
        "domains.delete" => not_limited(of(Kind::Domain, 204)),
        "webhooks.create" => plain(201).with(json!({ "url": "https://hooks.example.com/new" })),
        "webhooks.show" | "webhooks.rotate" | "webhooks.deliveries" => of(Kind::Webhook, 200),
        "webhooks.update" => of(Kind::Webhook, 200).with(json!({ "description": "changed" })),
        "webhooks.replay" => of(Kind::Webhook, 200).with(json!({ "since": "2023-11-14T00:00:00Z" })),
        "webhooks.test" => of(Kind::Webhook, 201),
        "webhooks.delete" => of(Kind::Webhook, 204),
        "deliveries.show" => of(Kind::Delivery, 200),
        "deliveries.redeliver" => of(Kind::Delivery, 201),
        "suppressions.create" => plain(201).with(json!({ "email": format!("s{}@example.org", Kind::number()) })),
        "suppressions.import" => Fixture { csv: Some("email\nimported@example.org\n"), ..plain(200) },
        "suppressions.show" => of(Kind::Suppression, 200),
        "suppressions.delete" => of(Kind::Suppression, 204),
        "accounts.create" => plain(201).with(json!({ "name": "Third" })),
        "users.list" => plain(200),
        "users.create" => {
            plain(201).with(json!({ "email": format!("u{}@example.org", Kind::number()), "role": "viewer" }))
        }
        "users.show" => of(Kind::User, 200),
        "users.update" => of(Kind::User, 200).with(json!({ "role": "viewer" })),
        "users.delete" => of(Kind::User, 204),
        "accounts.show" => of(Kind::Account, 200),
        "accounts.suspend" => of(Kind::Account, 200).with(json!({ "reason": "unpaid" })),
        "accounts.resume" => of(Kind::Account, 200),
        "accounts.update" => of(Kind::Account, 200).with(json!({ "quota_per_hour": 10_000 })),
        unknown => panic!("give the route {unknown} a fixture in the tenancy matrix"),
    }
}

/// Makes the names of this test's objects unique.
static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Kind {
    pub(super) const ALL: [Self; 9] = [
        Self::Account,
        Self::Key,
        Self::Domain,
        Self::Message,
        Self::Webhook,
        Self::Delivery,
        Self::Suppression,
        Self::User,
        Self::Alert,
    ];

    fn number() -> u64 {
        NUMBER.fetch_add(1, Relaxed)
    }

    /// Returns the path at which an object of the kind is read. Accounts and users have none, because keys can't read
    /// them.
    pub(super) const fn path(self) -> Option<&'static str> {
        match self {
            Self::Account | Self::User => None,
            Self::Key => Some("/v1/keys"),
            Self::Domain => Some("/v1/domains"),
            Self::Message => Some("/v1/messages"),
            Self::Webhook => Some("/v1/webhooks"),
            Self::Delivery => Some("/v1/webhook-deliveries"),
            Self::Suppression => Some("/v1/suppressions"),
            Self::Alert => Some("/v1/alerts"),
        }
    }

    /// Creates an object for the account of `key`, which may send from `domain`, and returns its identifier.
    pub(super) async fn make(self, world: &mut World, key: &str, account: AccountId, domain: &str) -> String {
        let number = Self::number();
        let host = domain.split('.').next().unwrap();
        match self {
            Self::Account => account.to_string(),
            Self::Key => world.made(key, "/v1/keys", serde_json::json!({ "name": host })).await,
            Self::Domain => {
                let body = serde_json::json!({ "name": format!("d{number}.{domain}"), "stream": "transactional" });
                world.made(key, "/v1/domains", body).await
            }
            Self::Message => {
                let mut body = letter(&format!("m{number}@{host}.example"));
                body["from"] = format!("shop@{domain}").into();
                world.made(key, "/v1/messages", body).await
            }
            Self::User => {
                let email = format!("u{number}@{host}.example").parse().unwrap();
                world.engine.create_user(account, email, Role::Viewer).await.unwrap().0.id.to_string()
            }
            Self::Webhook => world.endpoint(key, host).await,
            Self::Delivery => {
                let endpoint = world.endpoint(key, host).await;
                world.made(key, &format!("/v1/webhooks/{endpoint}/test"), Value::Null).await
            }
            Self::Alert => {
                // Only events open and end the alert: a check, which the operator runs for all accounts, leaves it
                // open.
                let subject = Subject::named(SubjectKind::Webhook, format!("w{number}"));
                let sighting =
                    Sighting::new(Condition::WebhookDisabled, Severity::Critical, "disabled", "ten failures");
                let raise = RaiseAlert { account, sighting: sighting.of(subject), is_over: false };
                let raised = world.engine.store.commit(raise).await;
                raised.unwrap_or_else(|_| panic!("the store failed")).opened[0].to_string()
            }
            Self::Suppression => {
                let body = serde_json::json!({ "email": format!("s{number}@{host}.example") });
                world.made(key, "/v1/suppressions", body).await
            }
        }
    }
}

impl World {
    async fn endpoint(&mut self, key: &str, host: &str) -> String {
        let body = serde_json::json!({ "url": format!("https://hooks.{host}.example/in") });
        self.made(key, "/v1/webhooks", body).await
    }

    /// Posts `body` and returns the identifier of the created object.
    async fn made(&mut self, key: &str, path: &str, body: Value) -> String {
        let reply = self.ask_as(key, &format!("POST {path}"), "", &body).await;
        assert!([201, 202].contains(&reply.status), "{path}: {}", reply.body);
        reply.json()["id"].as_str().unwrap().to_owned()
    }
}
