//! Guard of the routes under `/dev`, which need no key. It accepts clients on this machine and those of `--dev-allow`,
//! under a host name that no public DNS record can have. Otherwise a web page could make its visitor's browser read
//! captured mail, with a DNS name that points to loopback (DNS rebinding) or with a cross-site request.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hyper::Uri;
use hyper::header::{HOST, HeaderMap, HeaderName, ORIGIN};

use super::error::ApiError;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Top-level domains that are never delegated (RFC 2606, RFC 6761, RFC 6762, and ICANN's choice for private use).
const LOCAL_SUFFIXES: [&str; 4] = [".localhost", ".local", ".internal", ".test"];

/// Reasons for a refused request under `/dev`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DevForbidden {
    /// The client is not on this machine, and its address is not allowed.
    Address(Option<IpAddr>),
    /// The `Host` could be a public name.
    Host,
    /// The request comes from a page of another origin.
    Origin,
}

impl DevForbidden {
    /// Returns one sentence that a person can act on.
    pub(super) fn message(self) -> Cow<'static, str> {
        match self {
            Self::Address(Some(address)) => format!(
                "/dev answers only clients on this machine, and your address is {address}. Start dev with --dev-allow \
                 {address} (or POSTRIDER_DEV_ALLOW) to let this address in."
            )
            .into(),
            Self::Address(None) => "/dev answers only clients on this machine; see --dev-allow of dev.".into(),
            Self::Host => "/dev answers only under localhost, an IP address, or a name that is not public.".into(),
            Self::Origin => "/dev does not answer pages of another origin.".into(),
        }
    }
}

/// Checks a request for a route under `/dev`. `stranger` is the address of a client that may not use them.
///
/// # Errors
/// [`ApiError::DevForbidden`] if the request is refused.
pub(super) fn check(uri: &Uri, headers: &HeaderMap, stranger: Option<Option<IpAddr>>) -> Result<(), ApiError> {
    let host = uri.authority().map_or_else(|| text(headers, &HOST), |authority| Some(authority.as_str()));
    let refused = if let Some(address) = stranger {
        DevForbidden::Address(address)
    } else if !host.is_some_and(is_local) {
        DevForbidden::Host
    } else if is_foreign(headers, host.unwrap_or_default()) {
        DevForbidden::Origin
    } else {
        return Ok(());
    };
    Err(ApiError::DevForbidden(refused))
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns whether a `Host` is an IP literal or a name that only this machine or its network can resolve.
fn is_local(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let (address, port) = rest.split_once(']').unwrap_or_default();
        return address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || port.starts_with(':'));
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    if name.is_empty() || name.starts_with('.') {
        return false;
    }
    let is_suffixed = LOCAL_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    !name.contains('.') || is_suffixed || name.parse::<Ipv4Addr>().is_ok()
}

/// Returns whether a browser reports a request from a page of another origin. Other programs send no such header.
fn is_foreign(headers: &HeaderMap, host: &str) -> bool {
    let is_cross_site =
        headers.get_all(SEC_FETCH_SITE).iter().any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"));
    let is_other = headers.get_all(ORIGIN).iter().any(|origin| {
        let named = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        !named.is_some_and(|(_, named)| named.eq_ignore_ascii_case(host))
    });
    is_cross_site || is_other
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(host: &str, others: &[(&'static str, &str)]) -> Result<(), DevForbidden> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        for (name, value) in others {
            headers.append(*name, value.parse().unwrap());
        }
        check(&Uri::from_static("/dev/mail"), &headers, None).map_err(|error| match error {
            ApiError::DevForbidden(why) => why,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn only_non_public_host_names_are_answered() {
        for host in [
            "localhost",
            "LOCALHOST:8025",
            "127.0.0.1:8025",
            "[::1]:8025",
            "[::1]",
            "192.0.2.7",
            "postrider",
            "postrider:8025",
            "mail.localhost",
            "dev.local.",
            "a.b.internal:80",
            "x.test",
        ] {
            assert_eq!(checked(host, &[]), Ok(()), "{host}");
        }
        for host in [
            "",
            ".",
            ":80",
            "evil.example",
            "evil.example:8025",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "xlocal.example",
            "127.1.example",
            "0x7f.1",
            "127.1",
            ".test",
            "[::1",
            "[::1]evil.example",
            "[evil.example]",
        ] {
            assert_eq!(checked(host, &[]), Err(DevForbidden::Host), "{host}");
        }
        assert!(check(&Uri::from_static("/dev/mail"), &HeaderMap::new(), None).is_err(), "no Host at all");
        let absolute = Uri::from_static("http://evil.example/dev/mail");
        let headers = HeaderMap::from_iter([(HOST, "localhost".parse().unwrap())]);
        assert!(check(&absolute, &headers, None).is_err(), "the target names the host before the header does");
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let host = "localhost:8025";
        for own in [
            &[][..],
            &[("origin", "http://localhost:8025")],
            &[("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "same-origin"), ("origin", "http://LOCALHOST:8025")],
        ] {
            assert_eq!(checked(host, own), Ok(()), "{own:?}");
        }
        for foreign in [
            &[("origin", "http://evil.example")][..],
            &[("origin", "http://localhost:3000")],
            &[("origin", "null")],
            &[("origin", "")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
            &[("origin", "http://localhost:8025"), ("origin", "http://evil.example")],
        ] {
            assert_eq!(checked(host, foreign), Err(DevForbidden::Origin), "{foreign:?}");
        }
    }

    #[test]
    fn a_remote_client_is_refused_whatever_headers_it_sends() {
        let headers = HeaderMap::from_iter([(HOST, "localhost".parse().unwrap())]);
        let address = "172.17.0.1".parse().ok();
        let refused = check(&Uri::from_static("/dev/mail"), &headers, Some(address)).unwrap_err();
        let message = refused.message();
        assert!(message.contains("172.17.0.1") && message.contains("--dev-allow"), "{message}");
    }
}
