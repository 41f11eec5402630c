//! Floor 7: the panel, what people see in a browser (contract 9). Its pages are rows of the one route table, call the
//! same engine as the API, and check their forms with the same functions.
//!
//! **To add a page**: write `pages/<noun>.rs` with a struct that derives `askama::Template` over
//! `data/templates/<noun>.html` (which extends `frame.html` and holds a [`frame::Frame`]) and an
//! `async fn(Visit<'_>) -> Result<Answer, Fault>`; give it a row in [`routes`], which says what a visitor
//! [needs](door::Need) to come in; and a line in [`frame`]'s rail where people should find it. The door has then
//! checked the session, the role and where the form came from, and a [`fault::Fault`] becomes a page by itself. What a
//! form changes ends in a redirect, so that a reload repeats nothing.

mod assets;
mod chart;
mod cookie;
mod door;
mod event;
mod fault;
mod form;
mod frame;
mod html;
mod moment;
mod pages;
mod parts;
mod same_origin;
mod search;
mod standing;
#[cfg(test)]
mod stories;
mod timeline;
mod trend;

use hyper::Method;

use crate::http::route::{Access, BodyRule, Route};
use crate::http::state::Api;
use door::Need::{Change, Look, Own, OwnSecret, Secret};
use pages::{appearance, events, login, me, message, messages, overview, proof, queue, second_factor, settings, users};

pub use pages::error::page as error_page;

/// The type of a form's body.
const FORM: BodyRule = BodyRule::Of(&["application/x-www-form-urlencoded"]);

/// A page for whoever has a session.
macro_rules! page {
    ($method:ident, $path:literal, $name:literal, $need:expr, $handler:path) => {
        row(Method::$method, $path, $name, |api, call| {
            Box::pin(door::enter(api, call, $need, |visit| Box::pin($handler(visit))))
        })
    };
}

/// A page for anyone.
macro_rules! open {
    ($method:ident, $path:literal, $name:literal, $handler:path) => {
        row(Method::$method, $path, $name, |api, call| {
            Box::pin(door::welcome(api, call, |api, call| Box::pin($handler(api, call))))
        })
    };
}

fn row(
    method: Method,
    path: &'static str,
    name: &'static str,
    handler: crate::http::route::Handler<Api, ()>,
) -> Route<Api> {
    let route = Route::new(method, path, name, Access::Page(handler));
    if route.method == Method::POST { route.with_body(FORM) } else { route }
}

/// The rows of the panel.
pub fn routes() -> Vec<Route<Api>> {
    vec![
        open!(GET, "/assets/{name}", "panel.assets", assets::show),
        open!(GET, "/login", "panel.login", login::show),
        open!(POST, "/login", "panel.login.try", login::attempt),
        open!(GET, "/login/code", "panel.code", login::ask_code),
        open!(POST, "/login/code", "panel.code.try", login::attempt_code),
        open!(POST, "/appearance", "panel.appearance", appearance::choose),
        page!(POST, "/logout", "panel.logout", Own, login::leave),
        page!(GET, "/login/confirm", "panel.proof", Look, proof::show),
        page!(POST, "/login/confirm", "panel.proof.try", Own, proof::attempt),
        page!(GET, "/", "panel.overview", Look, overview::show),
        page!(GET, "/messages", "panel.messages", Look, messages::list),
        page!(GET, "/messages/{id}", "panel.message", Look, message::show),
        page!(GET, "/messages/{id}/preview", "panel.message.preview", Look, message::preview),
        page!(GET, "/messages/{id}/source", "panel.message.source", Look, message::source),
        page!(GET, "/messages/{id}/json", "panel.message.json", Look, message::json),
        page!(POST, "/messages/{id}/cancel", "panel.message.cancel", Change, message::cancel),
        page!(GET, "/events", "panel.events", Look, events::list),
        page!(GET, "/events/stream", "panel.events.stream", Look, events::stream),
        page!(GET, "/queue", "panel.queue", Look, queue::show),
        page!(GET, "/settings", "panel.settings", Look, settings::show),
        page!(POST, "/settings", "panel.settings.change", Change, settings::change),
        page!(POST, "/settings/password", "panel.password", Own, me::change_password),
        page!(POST, "/settings/sessions", "panel.sessions.end", Own, me::end_sessions),
        page!(GET, "/settings/totp", "panel.totp", OwnSecret, second_factor::show),
        page!(POST, "/settings/totp", "panel.totp.set", OwnSecret, second_factor::set_up),
        page!(POST, "/settings/totp/remove", "panel.totp.remove", OwnSecret, second_factor::remove),
        page!(GET, "/users", "panel.users", Look, users::list),
        page!(POST, "/users", "panel.users.add", Secret, users::add),
        page!(POST, "/users/{id}", "panel.users.change", Secret, users::change),
        page!(POST, "/users/{id}/remove", "panel.users.remove", Secret, users::remove),
    ]
}
