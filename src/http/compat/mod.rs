//! Compatible APIs for clients of other services (contract 12.3): the paths, fields and errors of Resend and
//! Postmark, on top of this API's own submission.
//!
//! Each compatible API is a codec. It reads the foreign body into a [`client_message::MessageDraft`]. The draft
//! becomes the same [`crate::domain::submission::Submission`] as the body of `POST /v1/messages`. The codec also
//! writes the answer in the foreign form. Keys, scopes, limits, checks, records, events and webhooks are those of the
//! API. The service renders its own errors through [`service::CompatService`], so every answer under a compatible
//! prefix has the client's form.

mod client_message;
mod failure;
mod list;
mod mailbox;
mod names;
mod postmark;
mod resend;
mod send;
pub(super) mod service;
mod shown_message;

use hyper::Method;

use super::route::{BodyRule, BodySize, Handler, Route};
use super::state::Api;
use crate::domain::api_key::Scope;
use crate::domain::api_key::Scope::{Manage, Read, Send};
use crate::engine::Caller;
use service::CompatService;

/// Returns the rows of both compatible APIs. The API's own description does not include them.
///
/// With `root`, the paths also answer without the prefix, for clients that accept only a host name.
pub fn routes(root: bool) -> Vec<Route<Api>> {
    let mut rows = Vec::new();
    for row in ROWS {
        rows.push(row.route(row.path));
        if root {
            rows.push(row.route(row.path.strip_prefix(row.service.prefix()).unwrap_or(row.path)));
        }
    }
    rows
}

/// Whether a row reads a message from the request body, or ignores the body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    Message,
    Ignored,
}

/// One path of a compatible API.
struct Row {
    service: CompatService,
    method: Method,
    path: &'static str,
    name: &'static str,
    scope: Scope,
    body: Body,
    handler: Handler<Api, Caller>,
}

impl Row {
    fn route(&self, path: &'static str) -> Route<Api> {
        let route = Route::scoped(self.method.clone(), path, self.name, self.scope, self.handler);
        let route = route.of_service(self.service).with_size(BodySize::Message);
        match self.body {
            Body::Message => route.with_body(BodyRule::JSON),
            Body::Ignored => route.with_body(BodyRule::Ignored),
        }
    }
}

/// A row of the table below.
macro_rules! row {
    ($service:ident $method:ident $path:literal, $name:literal, $scope:ident, $body:ident, $handler:path) => {
        Row {
            service: CompatService::$service,
            method: Method::$method,
            path: $path,
            name: $name,
            scope: $scope,
            body: Body::$body,
            handler: |state, call| Box::pin($handler(state, call)),
        }
    };
}

/// Canceling requires the scope `manage`, as everywhere.
const ROWS: [Row; 13] = [
    row!(Resend POST "/v1/compat/resend/emails", "compat.resend.send", Send, Message, resend::send),
    row!(Resend POST "/v1/compat/resend/emails/batch", "compat.resend.batch", Send, Message, resend::batch),
    row!(Resend GET "/v1/compat/resend/emails/{id}", "compat.resend.show", Read, Ignored, resend::show),
    row!(Resend POST "/v1/compat/resend/emails/{id}/cancel", "compat.resend.cancel", Manage, Ignored, resend::cancel),
    row!(Postmark POST "/v1/compat/postmark/email", "compat.postmark.send", Send, Message, postmark::send),
    row!(Postmark POST "/v1/compat/postmark/email/batch", "compat.postmark.batch", Send, Message, postmark::batch),
    row!(Postmark GET "/v1/compat/postmark/messages/outbound/{id}/details", "compat.postmark.details", Read, Ignored,
        postmark::details),
    row!(Postmark POST "/v1/compat/postmark/email/withTemplate", "compat.postmark.template", Send, Ignored,
        postmark::template),
    row!(Postmark POST "/v1/compat/postmark/email/withTemplate/", "compat.postmark.template", Send, Ignored,
        postmark::template),
    row!(Postmark POST "/v1/compat/postmark/email/batchWithTemplates", "compat.postmark.template", Send, Ignored,
        postmark::template),
    row!(Postmark POST "/v1/compat/postmark/email/batchWithTemplates/", "compat.postmark.template", Send, Ignored,
        postmark::template),
    row!(Postmark POST "/v1/compat/postmark/email/bulk", "compat.postmark.bulk", Send, Ignored, postmark::bulk),
    row!(Postmark POST "/v1/compat/postmark/email/bulk/", "compat.postmark.bulk", Send, Ignored, postmark::bulk),
];
