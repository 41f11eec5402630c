//! The panel's cookies: the session's token, what makes a browser known, and what somebody chose of how the pages are.

use hyper::header::{COOKIE, HeaderMap};

use crate::domain::device::{DeviceToken, LIFETIME_SECONDS};
use crate::domain::session::SessionToken;
use crate::engine::oidc::LIFETIME;
use crate::http::state::Api;

/// Lifetime of the session's cookie: as long as a session may last (7 days).
const SESSION_SECONDS: u32 = 7 * 24 * 3600;
const THEME: &str = "postrider-theme";
const SHORTCUTS: &str = "postrider-shortcuts";
const CHOICE_SECONDS: u32 = 365 * 24 * 3600;

/// Which colours the pages have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Theme {
    /// Those of the system.
    System,
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

impl Theme {
    /// All, in the order of the form.
    pub(super) const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    /// The name in the cookie, in forms and in the style.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// The theme of this name; the system's where it is none.
    pub(super) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|theme| theme.as_str() == name).unwrap_or(Self::System)
    }

    /// The theme that the browser brings.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self::named(value(headers, THEME).unwrap_or_default())
    }

    /// `Set-Cookie` that keeps it.
    pub(super) fn cookie(self, api: &Api) -> String {
        kept(api, THEME, self.as_str())
    }
}

/// Whether single keys do something: those who speak to their machine turn them off (WCAG 2.1.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortcuts {
    /// They do.
    On,
    /// They do nothing.
    Off,
}

impl Shortcuts {
    /// Both, in the order of the form.
    pub(super) const ALL: [Self; 2] = [Self::On, Self::Off];

    /// The name in the cookie, in forms and for the script.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }

    /// The choice of this name, if it is one.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.as_str() == name)
    }

    /// The choice that the browser brings; on, where none was made.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        value(headers, SHORTCUTS).and_then(Self::named).unwrap_or(Self::On)
    }

    /// `Set-Cookie` that keeps it.
    pub(super) fn cookie(self, api: &Api) -> String {
        kept(api, SHORTCUTS, self.as_str())
    }
}

/// `Set-Cookie` that keeps a choice of how pages are.
fn kept(api: &Api, name: &str, value: &str) -> String {
    set(api, name, value, CHOICE_SECONDS)
}

/// Whether the panel is reached by https.
fn is_secure(api: &Api) -> bool {
    api.engine.settings.public_url.get().is_some_and(|url| url.starts_with("https:"))
}

/// The prefix binds a cookie to this host and to https (RFC 6265bis 4.1.3.2); over plain HTTP browsers refuse it.
fn session_name(api: &Api) -> &'static str {
    if is_secure(api) { "__Host-postrider" } else { "postrider" }
}

fn device_name(api: &Api) -> &'static str {
    if is_secure(api) { "__Host-postrider-device" } else { "postrider-device" }
}

/// The session's token that the browser brings.
pub(super) fn session(api: &Api, headers: &HeaderMap) -> Option<SessionToken> {
    SessionToken::parse(value(headers, session_name(api))?)
}

fn oidc_name(api: &Api) -> &'static str {
    if is_secure(api) { "__Host-postrider-oidc" } else { "postrider-oidc" }
}

/// The text of a sign-in that has begun at an identity provider; empty where the browser brings none.
pub(super) fn oidc<'h>(api: &Api, headers: &'h HeaderMap) -> &'h str {
    value(headers, oidc_name(api)).unwrap_or_default()
}

/// `Set-Cookie` that keeps such a sign-in.
pub(super) fn with_oidc(api: &Api, text: &str) -> String {
    set(api, oidc_name(api), text, u32::try_from(LIFETIME.as_secs()).unwrap_or_default())
}

/// `Set-Cookie` that ends it.
pub(super) fn without_oidc(api: &Api) -> String {
    set(api, oidc_name(api), "", 0)
}

/// The text that makes the browser known; empty where it brings none.
pub(super) fn device<'h>(api: &Api, headers: &'h HeaderMap) -> &'h str {
    value(headers, device_name(api)).unwrap_or_default()
}

/// `Set-Cookie` that keeps a session.
pub(super) fn with_session(api: &Api, token: &SessionToken) -> String {
    set(api, session_name(api), token.expose(), SESSION_SECONDS)
}

/// `Set-Cookie` that ends it.
pub(super) fn without_session(api: &Api) -> String {
    set(api, session_name(api), "", 0)
}

/// `Set-Cookie` that makes the browser known.
pub(super) fn with_device(api: &Api, token: &DeviceToken) -> String {
    set(api, device_name(api), token.expose(), LIFETIME_SECONDS)
}

fn set(api: &Api, name: &str, value: &str, seconds: u32) -> String {
    let secure = if is_secure(api) { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}")
}

/// The value of a cookie (RFC 6265 4.2.1); of a name that is given twice, the first.
fn value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let headers = HeaderMap::from_iter([(COOKIE, "a=1; postrider-theme=dark;xpostrider=2".parse().unwrap())]);
        assert_eq!(value(&headers, "postrider-theme"), Some("dark"));
        assert_eq!(value(&headers, "postrider"), None);
        assert_eq!(Theme::of(&headers), Theme::Dark);
        assert_eq!(Theme::of(&HeaderMap::new()), Theme::System);
        assert_eq!(Theme::named("\"><script>"), Theme::System);
    }
}
