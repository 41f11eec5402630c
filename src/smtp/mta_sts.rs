//! MTA-STS (RFC 8461): the record that announces a domain's policy, the policy itself, and the servers that it allows.
//!
//! The texts are untrusted: anything that does not follow the RFC exactly is ignored.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum lifetime of a policy: a year (RFC 8461 3.2).
pub const MAX_AGE_MAX: Duration = Duration::from_secs(31_557_600);
/// Maximum number of server patterns in a policy. The largest domains have about ten.
const PATTERNS_MAX: usize = 100;
/// Maximum length of a name in bytes (RFC 1035 2.3.4).
const NAME_MAX: usize = 253;
/// Maximum length of a policy's identifier in characters (RFC 8461 3.1).
const ID_MAX: usize = 32;

/// MTA-STS policy of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StsPolicy {
    /// Mode of the policy.
    pub mode: StsMode,
    /// Lifetime of the policy, at most [`MAX_AGE_MAX`].
    pub max_age: Duration,
    /// The names of its servers in lower case. Some begin with `*.`.
    pub servers: Vec<String>,
}

/// Mode of an MTA-STS policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StsMode {
    /// Mail must not be delivered against the policy.
    Enforce,
    /// Mail that violates the policy is delivered and counted.
    Testing,
    /// The domain has withdrawn its policy.
    None,
}

/// Reasons why a text is not a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    /// The policy does not begin with the version.
    #[error("it has no line \"version: STSv1\"")]
    Version,
    /// The policy's mode is unknown.
    #[error("its mode must be enforce, testing or none")]
    Mode,
    /// The policy has no lifetime.
    #[error("its max_age is not a number of seconds")]
    MaxAge,
    /// The policy's servers are missing or malformed.
    #[error("its mx lines have no servers, too many, or an invalid one")]
    Servers,
}

/// Returns the policy identifier in `texts`, the TXT records at `_mta-sts.<domain>`; `None` if they announce no policy
/// or several (RFC 8461 3.1).
pub fn announced_id(texts: &[String]) -> Option<String> {
    let mut records = texts.iter().filter_map(|text| text.strip_prefix("v=STSv1")).filter(|rest| is_separated(rest));
    let (Some(only), None) = (records.next(), records.next()) else { return None };
    let mut fields = only.split(';').filter_map(|field| field.split_once('='));
    let (_, id) = fields.find(|(name, _)| name.trim() == "id")?;
    let id = id.trim();
    let is_sound = (1..=ID_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_sound.then(|| id.to_owned())
}

/// Returns whether the version ends here: `STSv10` is another version.
fn is_separated(rest: &str) -> bool {
    rest.trim_start_matches([' ', '\t']).starts_with(';')
}

impl StsPolicy {
    /// Parses a policy (RFC 8461 3.2). If a key appears twice, the first one counts. Unknown keys are ignored.
    ///
    /// # Errors
    /// The missing or malformed part.
    pub fn read(text: &str) -> Result<Self, InvalidPolicy> {
        let pairs =
            || text.lines().filter_map(|line| line.split_once(':')).map(|(key, value)| (key.trim(), value.trim()));
        let first = |wanted: &str| pairs().find(|(key, _)| *key == wanted).map(|(_, value)| value);
        if first("version") != Some("STSv1") {
            return Err(InvalidPolicy::Version);
        }
        let mode = match first("mode") {
            Some("enforce") => StsMode::Enforce,
            Some("testing") => StsMode::Testing,
            Some("none") => StsMode::None,
            Some(_) | None => return Err(InvalidPolicy::Mode),
        };
        let max_age = first("max_age").and_then(seconds).ok_or(InvalidPolicy::MaxAge)?;
        let servers: Option<Vec<String>> =
            pairs().filter(|(key, _)| *key == "mx").take(PATTERNS_MAX + 1).map(|(_, name)| pattern(name)).collect();
        let servers = servers.filter(|all| all.len() <= PATTERNS_MAX).ok_or(InvalidPolicy::Servers)?;
        if servers.is_empty() && mode != StsMode::None {
            return Err(InvalidPolicy::Servers);
        }
        Ok(Self { mode, max_age, servers })
    }

    /// Returns whether the server `name` belongs to the domain (RFC 8461 4.1). A wildcard matches exactly one label.
    pub fn admits(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let parent = name.split_once('.').filter(|(label, _)| is_host_label(label)).map(|(_, parent)| parent);
        self.servers.iter().any(|pattern| match pattern.strip_prefix("*.") {
            Some(suffix) => parent == Some(suffix),
            None => *pattern == name,
        })
    }

    /// Returns the lines of the policy as quoted in a report (RFC 8460 4.4).
    pub fn lines(&self) -> Vec<String> {
        let mode = match self.mode {
            StsMode::Enforce => "enforce",
            StsMode::Testing => "testing",
            StsMode::None => "none",
        };
        let servers = self.servers.iter().map(|name| format!("mx: {name}"));
        let head = ["version: STSv1".to_owned(), format!("mode: {mode}")];
        head.into_iter().chain(servers).chain([format!("max_age: {}", self.max_age.as_secs())]).collect()
    }
}

/// Returns whether a label is valid in a host name (RFC 1123 2.1).
fn is_host_label(label: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !label.is_empty() && label.bytes().all(is_plain) && !label.starts_with('-') && !label.ends_with('-')
}

fn seconds(text: &str) -> Option<Duration> {
    let is_number = (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = is_number.then(|| text.parse().ok()).flatten()?;
    Some(Duration::from_secs(seconds).min(MAX_AGE_MAX))
}

fn pattern(text: &str) -> Option<String> {
    let pattern = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let name = pattern.strip_prefix("*.").unwrap_or(&pattern);
    let is_label = |label: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(is_known)
    };
    (name.len() <= NAME_MAX && name.split('.').all(is_label)).then_some(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(texts: &[&str]) -> Option<String> {
        announced_id(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn exactly_one_valid_record_announces_a_policy() {
        assert_eq!(id(&["v=STSv1; id=20160831085700Z;"]).as_deref(), Some("20160831085700Z"));
        assert_eq!(id(&["v=STSv1 ;x=y; id = a1"]).as_deref(), Some("a1"));
        assert_eq!(id(&["v=spf1 -all", "v=STSv1; id=1"]).as_deref(), Some("1"));
        let long = format!("v=STSv1; id={}", "a".repeat(33));
        for texts in [
            &["v=STSv1; id=1;", "v=STSv1; id=2;"][..],
            &["v=STSv10; id=1"],
            &["v=STSv1"],
            &["v=STSv1; id="],
            &["v=STSv1; id=a b"],
            &["v=STSv1; id=a-b"],
            &[&long],
            &["V=STSv1; id=1"],
            &[],
        ] {
            assert_eq!(id(texts), None, "{texts:?}");
        }
    }

    #[test]
    fn parses_a_policy_and_limits_it_to_a_year() {
        let text =
            "version: STSv1\r\nmode: enforce\r\nmx: mail.Example.com\r\nmx: *.example.net.\r\nmax_age: 604800\r\n";
        let policy = StsPolicy::read(text).unwrap();
        let servers = vec!["mail.example.com".to_owned(), "*.example.net".to_owned()];
        assert_eq!(policy, StsPolicy { mode: StsMode::Enforce, max_age: Duration::from_secs(604_800), servers });
        assert_eq!(StsPolicy::read(&policy.lines().join("\n")).unwrap(), policy);
        let odd = "max_age:9999999999\nodd\nx: y\nmode:testing\nmode: enforce\nversion:STSv1\nmx:a.example";
        let policy = StsPolicy::read(odd).unwrap();
        assert_eq!((policy.mode, policy.max_age), (StsMode::Testing, MAX_AGE_MAX));
        assert!(StsPolicy::read("version: STSv1\nmode: none\nmax_age: 1\n").unwrap().servers.is_empty());
    }

    #[test]
    fn rejects_other_texts_with_the_reason() {
        use InvalidPolicy as Why;
        let many = "mx: a.example\n".repeat(PATTERNS_MAX + 1);
        for (text, why) in [
            ("", Why::Version),
            ("version: STSv2\nmode: enforce\nmx: a.b\nmax_age: 1", Why::Version),
            ("<html>not found</html>", Why::Version),
            ("version: STSv1\nmx: a.b\nmax_age: 1", Why::Mode),
            ("version: STSv1\nmode: Enforce\nmx: a.b\nmax_age: 1", Why::Mode),
            ("version: STSv1\nmode: enforce\nmx: a.b", Why::MaxAge),
            ("version: STSv1\nmode: enforce\nmx: a.b\nmax_age: -1", Why::MaxAge),
            ("version: STSv1\nmode: enforce\nmx: a.b\nmax_age: 12345678901", Why::MaxAge),
            ("version: STSv1\nmode: enforce\nmax_age: 1", Why::Servers),
            ("version: STSv1\nmode: enforce\nmx: a b\nmax_age: 1", Why::Servers),
            ("version: STSv1\nmode: enforce\nmx: *.*.b\nmax_age: 1", Why::Servers),
            (&format!("version: STSv1\nmode: enforce\n{many}max_age: 1"), Why::Servers),
        ] {
            assert_eq!(StsPolicy::read(text), Err(why), "{text:?}");
        }
    }

    #[test]
    fn a_wildcard_matches_exactly_one_label() {
        let servers = vec!["mail.example.com".to_owned(), "*.example.net".to_owned()];
        let policy = StsPolicy { mode: StsMode::Enforce, max_age: MAX_AGE_MAX, servers };
        for name in ["mail.example.com", "MAIL.example.com.", "mx1.example.net", "mx2.Example.Net"] {
            assert!(policy.admits(name), "{name}");
        }
        for name in [
            "mx.example.com",
            "example.net",
            "a.mx.example.net",
            ".example.net",
            "mail.example.com.evil.example",
            "x-.example.net",
            "-x.example.net",
            "x_y.example.net",
        ] {
            assert!(!policy.admits(name), "{name}");
        }
    }
}
