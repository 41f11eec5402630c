//! The route table: every path of the API, with its access rule and handler.

use hyper::Method;

use super::handlers::{
    accounts, alerts, backup, clock, dmarc, domains, endpoints, events, explain, exports, health, keys, me, messages,
    providers, queue, replica, settings, status, submission_refusals, suppressions, users,
};
use super::openapi;
use super::route::BodyRule::Nothing;
use super::route::{Access, BodyRule, BodySize, Handler, Route};
use super::state::Api;
use crate::domain::api_key::Scope::{Manage, Read, Send};
use crate::domain::api_key::Scopes;
use crate::engine::Caller;

/// A handler as the table holds it.
macro_rules! run {
    ($handler:path) => {
        |state, call| Box::pin($handler(state, call))
    };
}

/// Returns the routes of the API. The operator's socket serves the same table.
pub fn routes() -> Vec<Route<Api>> {
    let (get, post, patch, delete) = (Method::GET, Method::POST, Method::PATCH, Method::DELETE);
    let operator =
        |method: &Method, path, name, handler| Route::new(method.clone(), path, name, Access::Operator(handler));
    // A key that can set a webhook's URL can read all events.
    let events = Scopes::of(&[Manage, Read]);
    vec![
        Route::open(get.clone(), "/healthz", "health", run!(health::lives)),
        Route::open(get.clone(), "/readyz", "ready", run!(health::ready)),
        Route::open(get.clone(), "/v1/openapi.json", "openapi", run!(openapi::show)),
        Route::key(get.clone(), "/v1/me", "me", run!(me::show)),
        scoped(&post, "/v1/messages", "messages.create", Send, run!(messages::create)).with_size(BodySize::Message),
        scoped(&get, "/v1/messages", "messages.list", Read, run!(messages::list)),
        scoped(&get, "/v1/messages/export", "messages.export", Read, run!(exports::messages)),
        scoped(&get, "/v1/messages/{id}", "messages.show", Read, run!(messages::show)),
        scoped(&get, "/v1/messages/{id}/raw", "messages.raw", Read, run!(messages::raw)),
        scoped(&get, "/v1/events", "events.list", Read, run!(events::list)),
        scoped(&get, "/v1/events/export", "events.export", Read, run!(exports::events)),
        scoped(&get, "/v1/events/stream", "events.stream", Read, run!(events::stream)),
        scoped(&post, "/v1/keys", "keys.create", Manage, run!(keys::create)),
        scoped(&get, "/v1/keys", "keys.list", Read, run!(keys::list)),
        scoped(&get, "/v1/keys/{id}", "keys.show", Read, run!(keys::show)),
        scoped(&patch, "/v1/keys/{id}", "keys.update", Manage, run!(keys::update)),
        scoped(&delete, "/v1/keys/{id}", "keys.delete", Manage, run!(keys::delete)),
        scoped(&get, "/v1/settings", "settings.show", Read, run!(settings::show)),
        scoped(&patch, "/v1/settings", "settings.update", Manage, run!(settings::update)),
        scoped(&get, "/v1/submission-refusals", "submission_refusals.show", Read, run!(submission_refusals::list)),
        scoped(&post, "/v1/domains", "domains.create", Manage, run!(domains::create)),
        scoped(&get, "/v1/domains", "domains.list", Read, run!(domains::list)),
        scoped(&get, "/v1/domains/{id}", "domains.show", Read, run!(domains::show)),
        scoped(&post, "/v1/domains/{id}/verify", "domains.verify", Manage, run!(domains::verify)).with_body(Nothing),
        scoped(&post, "/v1/webhooks", "webhooks.create", events, run!(endpoints::create)),
        scoped(&get, "/v1/webhooks", "webhooks.list", Read, run!(endpoints::list)),
        scoped(&get, "/v1/webhooks/{id}", "webhooks.show", Read, run!(endpoints::show)),
        scoped(&patch, "/v1/webhooks/{id}", "webhooks.update", events, run!(endpoints::update)),
        scoped(&post, "/v1/messages/{id}/cancel", "messages.cancel", Manage, run!(messages::cancel)).with_body(Nothing),
        scoped(&get, "/v1/domains/{id}/checklist", "domains.checklist", Read, run!(domains::checklist)),
        scoped(&patch, "/v1/domains/{id}", "domains.update", Manage, run!(domains::update)),
        scoped(&delete, "/v1/domains/{id}", "domains.delete", Manage, run!(domains::delete)),
        scoped(&post, "/v1/domains/{id}/rotate-dkim", "domains.rotate", Manage, run!(domains::rotate_dkim))
            .with_body(Nothing),
        scoped(&get, "/v1/domains/{id}/dmarc", "dmarc.show", Read, run!(dmarc::show)),
        scoped(&patch, "/v1/domains/{id}/dmarc/sources", "dmarc.sources", Manage, run!(dmarc::mark_source)),
        scoped(&patch, "/v1/domains/{id}/dmarc/reporters", "dmarc.reporters", Manage, run!(dmarc::ignore_reporter)),
        scoped(&get, "/v1/domains/{id}/dmarc/reports", "dmarc.reports", Read, run!(dmarc::reports)),
        scoped(&delete, "/v1/webhooks/{id}", "webhooks.delete", Manage, run!(endpoints::delete)),
        scoped(&post, "/v1/webhooks/{id}/rotate-secret", "webhooks.rotate", events, run!(endpoints::rotate_secret))
            .with_body(Nothing),
        scoped(&post, "/v1/webhooks/{id}/test", "webhooks.test", events, run!(endpoints::test)).with_body(Nothing),
        scoped(&post, "/v1/webhooks/{id}/replay", "webhooks.replay", events, run!(endpoints::replay)),
        scoped(
            &post,
            "/v1/webhook-deliveries/{id}/redeliver",
            "deliveries.redeliver",
            events,
            run!(endpoints::redeliver),
        )
        .with_body(Nothing),
        scoped(&get, "/v1/webhooks/{id}/deliveries", "webhooks.deliveries", Read, run!(endpoints::deliveries)),
        scoped(&get, "/v1/webhook-deliveries/{id}", "deliveries.show", Read, run!(endpoints::delivery)),
        scoped(&post, "/v1/suppressions", "suppressions.create", Manage, run!(suppressions::create)),
        scoped(&get, "/v1/suppressions", "suppressions.list", Read, run!(suppressions::list)),
        scoped(&post, "/v1/suppressions/import", "suppressions.import", Manage, run!(suppressions::import))
            .with_body(BodyRule::Of(&[suppressions::CSV, suppressions::NDJSON]))
            .with_size(BodySize::Upload),
        scoped(&get, "/v1/suppressions/export", "suppressions.export", Read, run!(suppressions::export)),
        scoped(&get, "/v1/suppressions/{name}", "suppressions.show", Read, run!(suppressions::show)),
        scoped(&delete, "/v1/suppressions/{name}", "suppressions.delete", Manage, run!(suppressions::delete)),
        scoped(&get, "/v1/providers", "providers.show", Read, run!(providers::show)),
        scoped(&post, "/v1/explain", "explain", Read, run!(explain::show)),
        scoped(&get, "/v1/alerts", "alerts.list", Read, run!(alerts::list)),
        scoped(&get, "/v1/alerts/{id}", "alerts.show", Read, run!(alerts::show)),
        operator(&get, "/v1/operator/alerts", "alerts.list_all", run!(alerts::list_all)),
        operator(&get, "/v1/operator/alerts/{id}", "alerts.show_any", run!(alerts::show_any)),
        operator(&post, "/v1/operator/alerts/check", "alerts.check", run!(alerts::check)).with_body(Nothing),
        operator(&post, "/v1/operator/alerts/test", "alerts.test", run!(alerts::test)).with_body(Nothing),
        operator(&post, "/v1/accounts", "accounts.create", run!(accounts::create)),
        operator(&get, "/v1/accounts", "accounts.list", run!(accounts::list)),
        operator(&get, "/v1/queue", "queue.list", run!(queue::list)),
        operator(&post, "/v1/queue/release", "queue.release", run!(queue::release)).with_body(Nothing),
        operator(&post, "/v1/queue/pause", "queue.pause", run!(queue::pause)),
        operator(&post, "/v1/queue/resume", "queue.resume", run!(queue::resume)),
        operator(&post, "/v1/queue/try", "queue.try", run!(queue::try_now)),
        operator(&get, "/v1/clock", "clock.show", run!(clock::show)),
        operator(&post, "/v1/clock/accept", "clock.accept", run!(clock::accept)).with_body(Nothing),
        operator(&get, "/v1/backup", "backup.take", run!(backup::take)),
        operator(&get, "/v1/replica", "replica.show", run!(replica::show)),
        operator(&post, "/v1/replica/base", "replica.base", run!(replica::base)).with_body(Nothing),
        operator(&get, "/v1/status", "status.show", run!(status::show)),
        operator(&get, "/v1/accounts/{id}", "accounts.show", run!(accounts::show)),
        operator(&patch, "/v1/accounts/{id}", "accounts.update", run!(accounts::update)),
        operator(&post, "/v1/accounts/{id}/suspend", "accounts.suspend", run!(accounts::suspend)),
        operator(&post, "/v1/accounts/{id}/resume", "accounts.resume", run!(accounts::resume)).with_body(Nothing),
        operator(&post, "/v1/users", "users.create", run!(users::create)),
        operator(&get, "/v1/users", "users.list", run!(users::list)),
        operator(&get, "/v1/users/{id}", "users.show", run!(users::show)),
        operator(&patch, "/v1/users/{id}", "users.update", run!(users::update)),
        operator(&delete, "/v1/users/{id}", "users.delete", run!(users::delete)),
    ]
}

fn scoped(
    method: &Method,
    path: &'static str,
    name: &'static str,
    scopes: impl Into<Scopes>,
    handler: Handler<Api, Caller>,
) -> Route<Api> {
    Route::scoped(method.clone(), path, name, scopes, handler)
}
