//! Where a form came from: another site must not be able to send one in a visitor's name.
//!
//! Browsers say it themselves, in a header that no page can set (`Sec-Fetch-Site`, Fetch Metadata), and older ones, or
//! any over plain HTTP, in `Origin`. So no form needs a token, and none can be forgotten.

use hyper::header::{HeaderName, ORIGIN};
use url::Url;

use crate::http::route::Call;
use crate::http::state::Api;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether the request was made by one of our own pages, or by the person themselves.
pub(super) fn is_same_origin(api: &Api, call: &Call<()>) -> bool {
    if call.headers.contains_key(SEC_FETCH_SITE) {
        return matches!(call.header(&SEC_FETCH_SITE), Some("same-origin" | "none"));
    }
    // All known browsers send one of them, so a request without either is refused.
    let Some(origin) = call.header(&ORIGIN) else { return false };
    let Some((_, origin_host)) = origin.split_once("://") else { return false };
    // Behind a proxy the host that we are asked for may be another than the one in the browser.
    let public = api.engine.settings.public_url.get().and_then(|url| Url::parse(url).ok());
    let is_public = public.is_some_and(|url| url.origin().ascii_serialization() == origin);
    is_public || call.host().is_some_and(|host| host.eq_ignore_ascii_case(origin_host))
}
