//! Errors as pages: a browser that requested a page gets an HTML error page, not JSON.
//!
//! The service asks here for the form of an error. The panel renders the page.

use hyper::Method;
use hyper::header::{ACCEPT, HeaderMap};
use hyper::http::request::Parts;

use super::answer::Answer;
use super::error::ApiError;
use super::route::Access;
use super::service::Authenticator;

/// Renders the page of an error from the request's headers and its ID.
pub type ErrorPage<S> = fn(&S, &ApiError, &HeaderMap, &str) -> Answer;

/// Path prefixes whose answers are always for programs, whether a route exists or not.
const FOR_PROGRAMS: [&str; 6] = ["/v1", "/dev", "/healthz", "/readyz", "/unsubscribe", "/metrics"];

/// Returns whether an error of this request should be a page: the route is a page, or the path is unknown and the
/// client is a browser.
pub(super) fn is_wanted<S: Authenticator>(known: Option<&Access<S>>, head: &Parts) -> bool {
    match known {
        Some(Access::Page(..)) => true,
        Some(Access::Open(_) | Access::Loopback(_) | Access::Operator(_) | Access::Key(_) | Access::Scoped(..)) => {
            false
        }
        None => is_look(head) && !is_for_programs(head.uri.path()) && takes_html(&head.headers),
    }
}

fn is_look(head: &Parts) -> bool {
    head.method == Method::GET || head.method == Method::HEAD
}

fn is_for_programs(path: &str) -> bool {
    FOR_PROGRAMS.iter().any(|own| path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Returns whether `text/html` is accepted explicitly, as browsers do and programs that accept anything do not.
fn takes_html(headers: &HeaderMap) -> bool {
    let given = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    given.flat_map(|value| value.split(',')).any(|kind| {
        let essence = kind.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("text/html")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_paths_are_recognised_by_whole_segments() {
        for path in ["/v1", "/v1/nowhere", "/dev/mail", "/healthz", "/unsubscribe/x"] {
            assert!(is_for_programs(path), "{path}");
        }
        for path in ["/", "/v10", "/messages", "/developers", "/healthzz"] {
            assert!(!is_for_programs(path), "{path}");
        }
    }

    #[test]
    fn only_clients_that_accept_html_explicitly_get_a_page() {
        let takes = |value: &'static str| takes_html(&HeaderMap::from_iter([(ACCEPT, value.parse().unwrap())]));
        assert!(takes("text/html,application/xhtml+xml,*/*;q=0.8") && takes("application/json, TEXT/HTML;q=0.5"));
        assert!(!takes("*/*") && !takes("application/json") && !takes_html(&HeaderMap::new()));
    }
}
