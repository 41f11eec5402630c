//! Floor 7: the panel, the browser interface (contract 9). Its pages are rows of the one route table. They call the
//! same engine as the API and check forms with the same functions.
//!
//! **To add a page**: write `pages/<noun>.rs` with a struct that derives `askama::Template` over
//! `data/templates/<noun>.html`. The template extends `frame.html` and holds a [`layout::PageFrame`]. Add an `async
//! fn(Visit<'_>) -> Result<Answer, PageError>` and its row in [`routes`], which names the right that a visitor
//! [needs](page_guard::Need). Add a line to [`layout`]'s rail if the page belongs there. The page guard has then
//! checked the session, the role and the form's origin, and a [`page_error::PageError`] becomes a page automatically. A
//! form that changes something ends in a redirect, so that a reload repeats nothing.

mod assets;
mod attempts;
mod chart;
mod components;
mod cookie;
mod delivery_problems;
mod delivery_time;
mod dns;
mod endpoint_form;
mod endpoint_name;
mod event;
mod first_steps;
mod form;
mod html;
mod invitation;
mod kept_form;
mod layout;
mod notice;
mod page_error;
mod page_guard;
mod pages;
mod paging;
mod preview;
mod prose;
mod record_card;
mod same_origin;
mod search;
mod sender_reputation;
mod sent_once;
mod status_group;
#[cfg(test)]
mod tests;
mod timeline;
mod timestamp;
mod trend;
mod upload;
mod webhook_figures;
mod wording;

use hyper::Method;

use crate::http::route::{Access, BodyRule, BodySize, Handler, PageCheck, Route};
use crate::http::state::Api;
use page_guard::Need::{Change, Handle, Leave, Look, Operate, Own, OwnSecret, OwnStored, Private, Secret};
use pages::{
    account, accounts, alerts, appearance, audit, captured, checklist, delivery, dmarc, docs, domain, domains, events,
    explain, key, keys, login, me, message, messages, oidc, open, overview, proof, providers, queue, queue_changes,
    saved_searches, second_factor, settings, setup, shortcuts, smtp, suppression, suppression_import, suppressions,
    system, test_message, user, users, webhook, webhook_changes, webhooks,
};

pub use pages::error::page as error_page;

/// Content type of a form.
const FORM: BodyRule = BodyRule::Of(&["application/x-www-form-urlencoded"]);
/// Content type of a form that can carry a file.
const UPLOAD: BodyRule = BodyRule::Of(&["multipart/form-data"]);

/// A page for signed-in visitors.
macro_rules! page {
    ($method:ident, $path:literal, $name:literal, $need:expr, $handler:path) => {
        row(
            Method::$method,
            $path,
            $name,
            |api, call| page_guard::check(api, call, $need),
            |api, call| Box::pin(page_guard::enter(api, call, $need, |visit| Box::pin($handler(visit)))),
        )
    };
}

/// A page that needs no session.
macro_rules! open {
    ($method:ident, $path:literal, $name:literal, $handler:path) => {
        row(Method::$method, $path, $name, page_guard::check_open, |api, call| {
            Box::pin(page_guard::welcome(api, call, |api, call| Box::pin($handler(api, call))))
        })
    };
}

fn row(
    method: Method,
    path: &'static str,
    name: &'static str,
    check: PageCheck<Api>,
    handler: Handler<Api, ()>,
) -> Route<Api> {
    let route = Route::new(method, path, name, Access::Page(check, handler)).with_size(BodySize::Form);
    if route.method == Method::POST { route.with_body(FORM) } else { route }
}

/// Returns a row for the address of each form that has no page of its own. It leads to the page that has the form, for
/// visitors who press Enter in the address bar after they sent the form.
fn addresses_of_forms(rows: &[Route<Api>]) -> Vec<Route<Api>> {
    let has_page = |form: &Route<Api>| rows.iter().any(|page| page.method == Method::GET && page.path == form.path);
    let forms = rows.iter().filter(|form| form.method == Method::POST && !has_page(form));
    let address = |form: &Route<Api>| {
        row(Method::GET, form.path, "panel.form", page_guard::check_open, |api, call| {
            Box::pin(page_guard::welcome(api, call, |_, call| {
                Box::pin(async move { Ok(html::redirect(&page_guard::page_above(call.path()))) })
            }))
        })
    };
    forms.map(address).collect()
}

/// Returns the routes of the panel.
pub fn routes() -> Vec<Route<Api>> {
    let mut rows = vec![
        open!(GET, "/assets/{name}", "panel.assets", assets::show),
        open!(GET, "/docs", "panel.docs", docs::front),
        open!(GET, "/docs/{name}", "panel.docs.page", docs::page),
        open!(GET, "/login", "panel.login", login::show),
        open!(POST, "/login", "panel.login.try", login::attempt),
        open!(GET, "/setup", "panel.setup", setup::show),
        open!(POST, "/setup", "panel.setup.try", setup::choose),
        open!(GET, "/login/code", "panel.code", login::ask_code),
        open!(POST, "/login/code", "panel.code.try", login::attempt_code),
        open!(GET, "/login/oidc", "panel.oidc", oidc::begin),
        open!(GET, "/login/oidc/callback", "panel.oidc.callback", oidc::finish),
        open!(POST, "/appearance", "panel.appearance", appearance::choose),
        page!(POST, "/logout", "panel.logout", Leave, login::leave),
        page!(GET, "/login/confirm", "panel.proof", Own, proof::show),
        page!(POST, "/login/confirm", "panel.proof.try", Own, proof::attempt),
        page!(GET, "/login/confirm/form", "panel.proof.form", Own, proof::resume),
        page!(GET, "/", "panel.overview", Look, overview::show),
        page!(GET, "/open", "panel.open", Look, open::show),
        page!(GET, "/shortcuts", "panel.shortcuts", Look, shortcuts::show),
        page!(POST, "/test-message", "panel.test_message", Change, test_message::send),
        page!(POST, "/view/end", "panel.view.end", Leave, account::end_view),
        page!(GET, "/system", "panel.system", Operate, system::show),
        page!(POST, "/system/doctor", "panel.system.doctor", Operate, system::examine),
        page!(GET, "/accounts", "panel.accounts", Operate, accounts::list),
        page!(POST, "/accounts", "panel.accounts.create", Operate, accounts::create),
        page!(GET, "/accounts/{id}", "panel.account", Operate, account::show),
        page!(POST, "/accounts/{id}", "panel.account.change", Operate, account::change),
        page!(POST, "/accounts/{id}/suspend", "panel.account.suspend", Operate, account::suspend),
        page!(POST, "/accounts/{id}/resume", "panel.account.resume", Operate, account::resume),
        page!(POST, "/accounts/{id}/view", "panel.account.view", Operate, account::begin_view),
        page!(GET, "/messages", "panel.messages", Look, messages::list),
        page!(POST, "/messages", "panel.messages.save", OwnStored, saved_searches::save),
        page!(POST, "/messages/remove-search", "panel.messages.remove_search", OwnStored, saved_searches::remove),
        page!(GET, "/messages/export", "panel.messages.export", Private, messages::export),
        page!(GET, "/messages/{id}", "panel.message", Look, message::show),
        page!(GET, "/messages/{id}/preview", "panel.message.preview", Private, message::preview),
        page!(GET, "/messages/{id}/source", "panel.message.source", Private, message::source),
        page!(GET, "/messages/{id}/download", "panel.message.download", Private, message::download),
        page!(GET, "/messages/{id}/json", "panel.message.json", Private, message::json),
        page!(GET, "/messages/{id}/cancel", "panel.message.ask.cancel", Handle, message::ask_to_cancel),
        page!(POST, "/messages/{id}/cancel", "panel.message.cancel", Handle, message::cancel),
        page!(POST, "/messages/{id}/try", "panel.message.try", Handle, message::try_now),
        page!(GET, "/captured", "panel.captured", Private, captured::list),
        page!(GET, "/captured/{id}", "panel.captured.mail", Private, captured::show),
        page!(GET, "/captured/{id}/preview", "panel.captured.preview", Private, captured::preview),
        page!(GET, "/captured/{id}/source", "panel.captured.source", Private, captured::source),
        page!(GET, "/events", "panel.events", Look, events::list),
        page!(GET, "/events/export", "panel.events.export", Private, events::export),
        page!(GET, "/events/stream", "panel.events.stream", Look, events::stream),
        page!(GET, "/queue", "panel.queue", Look, queue::show),
        page!(POST, "/queue/pause", "panel.queue.pause", Change, queue_changes::pause),
        page!(POST, "/queue/resume", "panel.queue.resume", Change, queue_changes::resume),
        page!(POST, "/queue/try", "panel.queue.try", Handle, queue_changes::try_now),
        page!(GET, "/webhooks", "panel.webhooks", Look, webhooks::list),
        page!(POST, "/webhooks", "panel.webhooks.create", Secret, webhooks::create),
        page!(GET, "/webhooks/{id}", "panel.webhook", Look, webhook::show),
        page!(GET, "/webhooks/{id}/json", "panel.webhook.json", Private, webhook::json),
        page!(POST, "/webhooks/{id}", "panel.webhook.change", Secret, webhook_changes::change),
        page!(POST, "/webhooks/{id}/reactivate", "panel.webhook.reactivate", Change, webhook_changes::reactivate),
        page!(POST, "/webhooks/{id}/pause", "panel.webhook.pause", Change, webhook_changes::pause),
        page!(POST, "/webhooks/{id}/rotate-secret", "panel.webhook.rotate", Secret, webhook_changes::rotate_secret),
        page!(POST, "/webhooks/{id}/test", "panel.webhook.test", Change, webhook_changes::test),
        page!(POST, "/webhooks/{id}/replay", "panel.webhook.replay", Change, webhook_changes::replay),
        page!(GET, "/webhooks/{id}/delete", "panel.webhook.ask.delete", Change, webhook::ask_to_delete),
        page!(POST, "/webhooks/{id}/delete", "panel.webhook.delete", Change, webhook_changes::delete),
        page!(GET, "/webhooks/{id}/deliveries/{delivery}", "panel.delivery", Look, delivery::show),
        page!(GET, "/webhooks/{id}/deliveries/{delivery}/json", "panel.delivery.json", Private, delivery::json),
        page!(
            POST,
            "/webhooks/{id}/deliveries/{delivery}/redeliver",
            "panel.delivery.again",
            Handle,
            delivery::redeliver
        ),
        page!(GET, "/domains", "panel.domains", Look, domains::list),
        page!(POST, "/domains", "panel.domains.add", Change, domains::add),
        page!(GET, "/domains/{id}", "panel.domain", Look, domain::show),
        page!(GET, "/domains/{id}/checklist", "panel.domain.checklist", Look, checklist::show),
        page!(GET, "/domains/{id}/json", "panel.domain.json", Private, domain::json),
        page!(POST, "/domains/{id}", "panel.domain.change", Change, domain::change),
        page!(POST, "/domains/{id}/verify", "panel.domain.verify", Handle, domain::verify),
        page!(POST, "/domains/{id}/rotate-dkim", "panel.domain.rotate", Change, domain::rotate_dkim),
        page!(GET, "/domains/{id}/delete", "panel.domain.ask.delete", Change, domain::ask_to_delete),
        page!(POST, "/domains/{id}/delete", "panel.domain.delete", Change, domain::delete),
        page!(GET, "/domains/{id}/dmarc", "panel.dmarc", Look, dmarc::show),
        page!(GET, "/domains/{id}/dmarc/json", "panel.dmarc.json", Private, dmarc::json),
        page!(POST, "/domains/{id}/dmarc/sources", "panel.dmarc.sources", Change, dmarc::mark),
        page!(POST, "/domains/{id}/dmarc/reporters", "panel.dmarc.reporters", Change, dmarc::ignore),
        page!(GET, "/providers", "panel.providers", Look, providers::show),
        page!(GET, "/explain", "panel.explain", Look, explain::show),
        page!(POST, "/explain", "panel.explain.try", Look, explain::explain_headers),
        page!(GET, "/suppressions", "panel.suppressions", Look, suppressions::list),
        page!(POST, "/suppressions", "panel.suppressions.add", Handle, suppressions::add),
        page!(GET, "/suppressions/import", "panel.suppressions.import", Look, suppression_import::show),
        page!(POST, "/suppressions/import", "panel.suppressions.import.try", Handle, suppression_import::import)
            .with_body(UPLOAD)
            .with_size(BodySize::Upload),
        page!(GET, "/suppressions/export", "panel.suppressions.export", Private, suppression_import::export),
        page!(GET, "/suppressions/{id}", "panel.suppression", Look, suppression::show),
        page!(GET, "/suppressions/{id}/json", "panel.suppression.json", Private, suppression::json),
        page!(POST, "/suppressions/{id}/remove", "panel.suppression.remove", Handle, suppression::remove),
        page!(GET, "/keys", "panel.keys", Look, keys::list),
        page!(POST, "/keys", "panel.keys.create", Secret, keys::create),
        page!(GET, "/keys/{id}", "panel.key", Look, key::show),
        page!(GET, "/keys/{id}/json", "panel.key.json", Private, key::json),
        page!(POST, "/keys/{id}", "panel.key.rename", Change, key::rename),
        page!(GET, "/keys/{id}/delete", "panel.key.ask.delete", Change, key::ask_to_revoke),
        page!(POST, "/keys/{id}/revoke", "panel.key.revoke", Change, key::revoke),
        page!(GET, "/smtp", "panel.smtp", Look, smtp::show),
        page!(GET, "/alerts", "panel.alerts", Look, alerts::list),
        page!(GET, "/audit", "panel.audit", Look, audit::list),
        page!(GET, "/settings", "panel.settings", Look, settings::show),
        page!(POST, "/settings", "panel.settings.change", Change, settings::change),
        page!(POST, "/settings/password", "panel.password", Own, me::change_password),
        page!(POST, "/settings/sessions", "panel.sessions.end", Own, me::end_sessions),
        page!(GET, "/settings/totp", "panel.totp", OwnSecret, second_factor::show),
        page!(POST, "/settings/totp", "panel.totp.set", OwnSecret, second_factor::set_up),
        page!(POST, "/settings/totp/remove", "panel.totp.remove", OwnSecret, second_factor::remove),
        page!(GET, "/users", "panel.users", Look, users::list),
        page!(POST, "/users", "panel.users.add", Secret, users::add),
        page!(GET, "/users/{id}", "panel.user", Look, user::show),
        page!(POST, "/users/{id}", "panel.users.change", Secret, user::change),
        page!(GET, "/users/{id}/delete", "panel.user.ask.delete", Change, user::ask_to_remove),
        page!(POST, "/users/{id}/remove", "panel.users.remove", Secret, user::remove),
    ];
    rows.extend(addresses_of_forms(&rows));
    rows
}
