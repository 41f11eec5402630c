//! Origin check of forms, against cross-site request forgery.
//!
//! Browsers report the origin in a header that no page can set: `Sec-Fetch-Site` (Fetch Metadata). Older browsers, and
//! all of them over plain HTTP, send `Origin`. Forms therefore need no token, so no form can lack one.

use hyper::header::{HeaderName, ORIGIN};
use url::Url;

use crate::http::route::Call;
use crate::http::state::Api;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether the request comes from a page of the panel or was entered by the user.
pub(super) fn is_same_origin(api: &Api, call: &Call<()>) -> bool {
    if call.headers.contains_key(SEC_FETCH_SITE) {
        return matches!(call.header(&SEC_FETCH_SITE), Some("same-origin" | "none"));
    }
    // All known browsers send one of the two headers, so a request without either is rejected.
    let Some(origin) = call.header(&ORIGIN) else { return false };
    let Some((_, origin_host)) = origin.split_once("://") else { return false };
    // Behind a proxy, the requested host can differ from the one in the browser.
    let public = api.engine.settings.public_url.get().and_then(|url| Url::parse(url).ok());
    let is_public = public.is_some_and(|url| url.origin().ascii_serialization() == origin);
    is_public || call.host().is_some_and(|host| host.eq_ignore_ascii_case(origin_host))
}
