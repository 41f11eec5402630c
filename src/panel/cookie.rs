//! Cookies of the panel: session token, known-device token, OpenID Connect state, and appearance settings.

use hyper::header::{COOKIE, HeaderMap};

use crate::domain::device::{DeviceToken, LIFETIME_SECONDS};
use crate::domain::session::SessionToken;
use crate::engine::oidc::LIFETIME;
use crate::http::state::Api;

/// Lifetime of the session cookie: the maximum lifetime of a session (7 days).
const SESSION_SECONDS: u32 = 7 * 24 * 3600;
const THEME: &str = "postrider-theme";
const SHORTCUTS: &str = "postrider-shortcuts";
const CHOICE_SECONDS: u32 = 365 * 24 * 3600;

/// Colour theme of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Theme {
    /// Follows the system.
    System,
    /// Dark text on light.
    Light,
    /// Light text on dark.
    Dark,
}

impl Theme {
    /// All themes, in form order.
    pub(super) const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    /// Returns the name in the cookie, in forms and in the style sheet.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// Returns the theme with this name, or the system theme for an unknown name.
    pub(super) fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|theme| theme.as_str() == name).unwrap_or(Self::System)
    }

    /// Reads the theme from the request's cookie.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self::named(value(headers, THEME).unwrap_or_default())
    }

    /// Returns the `Set-Cookie` value that stores the theme.
    pub(super) fn cookie(self, api: &Api) -> String {
        kept(api, THEME, self.as_str())
    }
}

/// Whether single-key shortcuts are active. Users of speech input turn them off (WCAG 2.1.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortcuts {
    /// Shortcuts are active.
    On,
    /// Shortcuts are disabled.
    Off,
}

impl Shortcuts {
    /// Both settings, in form order.
    pub(super) const ALL: [Self; 2] = [Self::On, Self::Off];

    /// Returns the name in the cookie, in forms and for the script.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }

    /// Returns the setting with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.as_str() == name)
    }

    /// Reads the setting from the request's cookie. The default is on.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        value(headers, SHORTCUTS).and_then(Self::named).unwrap_or(Self::On)
    }

    /// Returns the `Set-Cookie` value that stores the setting.
    pub(super) fn cookie(self, api: &Api) -> String {
        kept(api, SHORTCUTS, self.as_str())
    }
}

/// Returns the `Set-Cookie` value of an appearance setting.
fn kept(api: &Api, name: &str, value: &str) -> String {
    set(api, name, value, CHOICE_SECONDS)
}

/// Whether the panel is reached over HTTPS.
fn is_secure(api: &Api) -> bool {
    api.engine.settings.public_url.get().is_some_and(|url| url.starts_with("https:"))
}

/// Returns the session cookie's name. Its prefix binds the cookie to this host and to HTTPS (RFC 6265bis 4.1.3.2). Over
/// plain HTTP, browsers reject the prefix.
fn session_name(api: &Api) -> &'static str {
    if is_secure(api) { "__Host-postrider" } else { "postrider" }
}

fn device_name(api: &Api) -> &'static str {
    if is_secure(api) { "__Host-postrider-device" } else { "postrider-device" }
}

/// Returns the session token from the request's cookie.
pub(super) fn session(api: &Api, headers: &HeaderMap) -> Option<SessionToken> {
    SessionToken::parse(value(headers, session_name(api))?)
}

fn oidc_name(api: &Api) -> &'static str {
    if is_secure(api) { "__Host-postrider-oidc" } else { "postrider-oidc" }
}

/// Returns the state of a pending OpenID Connect sign-in from the request's cookie, or an empty string.
pub(super) fn oidc<'h>(api: &Api, headers: &'h HeaderMap) -> &'h str {
    value(headers, oidc_name(api)).unwrap_or_default()
}

/// Returns the `Set-Cookie` value that stores a pending sign-in.
pub(super) fn with_oidc(api: &Api, text: &str) -> String {
    set(api, oidc_name(api), text, u32::try_from(LIFETIME.as_secs()).unwrap_or_default())
}

/// Returns the `Set-Cookie` value that deletes a pending sign-in.
pub(super) fn without_oidc(api: &Api) -> String {
    set(api, oidc_name(api), "", 0)
}

/// Returns the known-device token from the request's cookie, or an empty string.
pub(super) fn device<'h>(api: &Api, headers: &'h HeaderMap) -> &'h str {
    value(headers, device_name(api)).unwrap_or_default()
}

/// Returns the `Set-Cookie` value that stores a session.
pub(super) fn with_session(api: &Api, token: &SessionToken) -> String {
    set(api, session_name(api), token.expose(), SESSION_SECONDS)
}

/// Returns the `Set-Cookie` value that deletes the session.
pub(super) fn without_session(api: &Api) -> String {
    set(api, session_name(api), "", 0)
}

/// Returns the `Set-Cookie` value that marks the browser as known.
pub(super) fn with_device(api: &Api, token: &DeviceToken) -> String {
    set(api, device_name(api), token.expose(), LIFETIME_SECONDS)
}

fn set(api: &Api, name: &str, value: &str, seconds: u32) -> String {
    let secure = if is_secure(api) { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}")
}

/// Returns the value of a cookie (RFC 6265 4.2.1). If a name occurs twice, the first value counts.
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
