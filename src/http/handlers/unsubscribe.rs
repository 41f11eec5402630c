//! The pages of hosted unsubscribe links (RFC 8058). Mail programs and scanners follow links automatically, so GET
//! changes nothing. Only POST unsubscribes, sent by a mail program's one-click or by the page's button.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY};

use crate::engine::unsubscribe::Link;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::html::escape;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::store::error::OpError;

const STYLE: &[u8] = include_bytes!("../../../data/pages/unsubscribe.css");
/// No scripts, no frames, and no resources of other hosts.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
const ROBOTS: HeaderName = HeaderName::from_static("x-robots-tag");

/// `GET /unsubscribe/{token}`.
pub(in crate::http) async fn show(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let Some(link) = api.engine.unsubscribe_link(call.param("token"))? else { return Ok(unknown()) };
    let asks = format!(
        "<h1>Unsubscribe</h1>\n<p>{} will no longer receive mail from {}.</p>\n<form method=\"post\"><input \
         type=\"hidden\" name=\"List-Unsubscribe\" value=\"One-Click\"><button>Unsubscribe</button></form>\n{}",
        recipient(&link),
        sender(&link),
        senders_own(&link)
    );
    Ok(page(StatusCode::OK, "Unsubscribe", &asks))
}

/// `POST /unsubscribe/{token}`. The body is ignored, since RFC 8058 defines only one.
pub(in crate::http) async fn click(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let Some(link) = api.engine.unsubscribe_link(call.param("token"))? else { return Ok(unknown()) };
    match api.engine.unsubscribe(&link).await {
        Ok(()) => {
            let done = format!(
                "<h1>You are unsubscribed</h1>\n<p>{} no longer receives mail from {}.</p>\n{}",
                recipient(&link),
                sender(&link),
                senders_own(&link)
            );
            Ok(page(StatusCode::OK, "Unsubscribed", &done))
        }
        Err(OpError::Refused(_)) => Ok(unknown()),
        Err(OpError::Failed(error)) => Err(error.into()),
    }
}

/// `GET /unsubscribe.css`.
pub(in crate::http) async fn style(_: &Api, _: Call<()>) -> Result<Answer, ApiError> {
    Ok(Answer::bytes(StatusCode::OK, "text/css; charset=utf-8", Bytes::from_static(STYLE)))
}

fn recipient(link: &Link) -> String {
    format!("<strong>{}</strong>", escape(link.message.to.as_given()))
}

fn sender(link: &Link) -> String {
    let name = link.message.from_name.as_deref().filter(|name| !name.trim().is_empty());
    format!("<strong>{}</strong>", escape(name.unwrap_or(link.message.from.domain().as_str())))
}

/// Returns a link to the sender's own page, if one was given.
fn senders_own(link: &Link) -> String {
    let url = link.message.unsubscribe_url.as_deref().unwrap_or_default();
    format!(
        "<p><a href=\"{}\" rel=\"noreferrer\">Choose what you receive on the sender's own page</a></p>",
        escape(url)
    )
}

fn unknown() -> Answer {
    let says = "<h1>This link does not work</h1>\n<p>It may be incomplete. Open it from the message again, or reply \
                to the message.</p>";
    page(StatusCode::NOT_FOUND, "Unknown link", says)
}

fn page(status: StatusCode, title: &str, main: &str) -> Answer {
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <link rel=\"stylesheet\" href=\"/unsubscribe.css\">\n</head>\n\
         <body>\n<main>\n{main}\n</main>\n</body>\n</html>\n"
    );
    Answer::bytes(status, "text/html; charset=utf-8", html)
        .with_header(CONTENT_SECURITY_POLICY, POLICY)
        .with_header(REFERRER_POLICY, "no-referrer")
        .with_header(ROBOTS, "noindex")
}
