//! Pages for recipients, such as the unsubscribe page, in addition to the API.

use hyper::Method;

use super::handlers::unsubscribe;
use super::route::{BodyRule, Route};
use super::state::Api;

/// Returns the routes of the pages.
pub fn routes() -> Vec<Route<Api>> {
    let link = "/unsubscribe/{token}";
    vec![
        Route::open(Method::GET, "/unsubscribe.css", "unsubscribe.style", |api, call| {
            Box::pin(unsubscribe::style(api, call))
        }),
        Route::open(Method::GET, link, "unsubscribe.show", |api, call| Box::pin(unsubscribe::show(api, call))),
        Route::open(Method::POST, link, "unsubscribe.click", |api, call| Box::pin(unsubscribe::click(api, call)))
            .with_body(BodyRule::Ignored),
    ]
}
