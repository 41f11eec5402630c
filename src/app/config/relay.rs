//! `[[relay]]`: the named relays, and the streams that use them (contract 6).

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use jiff::civil::Date;
use url::Host;

use super::section::{Section, number, parsed, path, text, unless_empty, word};
use super::tree::Node;
use crate::base::secret::Secret;
use crate::domain::hostname::DomainName;
use crate::domain::stream::Stream;

/// The port for submission (RFC 6409).
const SUBMISSION_PORT: u16 = 587;
/// Maximum length of a relay's name in characters; every event contains it.
const NAME_CHARACTERS_MAX: usize = 64;

/// A relay.
#[derive(Debug, Clone, PartialEq)]
pub struct Relay {
    /// Name, unique among the relays.
    pub name: String,
    /// Destination of its mail.
    pub kind: RelayKind,
    /// Source addresses; empty lets the system choose.
    pub source: Vec<IpAddr>,
    /// Name in EHLO, if it is not the host name.
    pub ehlo: Option<DomainName>,
    /// The streams of the relay.
    pub streams: Vec<Stream>,
    /// Daily limit while the relay's addresses are new to receivers.
    pub warm_up: Option<WarmUp>,
}

/// A relay's daily limit for each site, which grows every day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmUp {
    /// Messages that a site may get on the first day.
    pub per_day: u32,
    /// Growth of the limit from one day to the next, in percent.
    pub growth_percent: u32,
    /// The first day, in UTC.
    pub since: Option<Date>,
}

/// Destination of a relay's mail.
#[derive(Debug, Clone, PartialEq)]
pub enum RelayKind {
    /// The receiver's own servers, by MX.
    Mx,
    /// One server for all mail.
    Smarthost(Smarthost),
}

/// A server that accepts all mail.
#[derive(Debug, Clone, PartialEq)]
pub struct Smarthost {
    /// Name or address.
    pub host: Host,
    /// Port.
    pub port: u16,
    /// Security of the connection.
    pub tls: SmarthostTls,
    /// Login, if needed.
    pub login: Option<Login>,
}

/// TLS of the connection to a smarthost. Its certificate is always verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmarthostTls {
    /// STARTTLS (RFC 3207), which must succeed.
    StartTls,
    /// TLS from the first byte (RFC 8314 3.3).
    Implicit,
    /// No TLS.
    Off,
}

/// User name and password.
#[derive(Debug, Clone, PartialEq)]
pub struct Login {
    /// The user name.
    pub username: String,
    /// File with the password.
    pub password: SecretFile,
}

/// A secret in a separate file. It is read when needed, so that commands that do not use it need no right to read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFile(PathBuf);

impl SecretFile {
    /// Returns the path `given`. If it is only a name and the service has systemd credentials, this is the credential
    /// of that name.
    pub(super) fn new(given: PathBuf, credentials: Option<&Path>) -> Self {
        let is_bare = given.components().count() == 1 && given.is_relative();
        match credentials {
            Some(directory) if is_bare => Self(directory.join(given)),
            Some(_) | None => Self(given),
        }
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the secret, without the line end that editors add.
    ///
    /// # Errors
    /// Errors of reading the file.
    pub fn read(&self) -> io::Result<Secret> {
        let mut bytes = fs::read(&self.0)?;
        while matches!(bytes.last(), Some(b'\n' | b'\r')) {
            bytes.pop();
        }
        Ok(Secret::new(bytes))
    }
}

impl Relay {
    /// Returns the relay that is used if none is configured.
    pub fn direct() -> Self {
        let streams = Stream::ALL.to_vec();
        let (name, kind) = ("direct".to_owned(), RelayKind::Mx);
        Self { name, kind, source: Vec::new(), ehlo: None, streams, warm_up: None }
    }

    pub(super) fn read(mut section: Section<'_>, credentials: Option<&Path>) -> Self {
        let name = section.required("name", "must be set", name);
        let words = [("mx", Kind::Mx), ("smarthost", Kind::Smarthost)];
        let kind = section.value("kind", Kind::Mx, word(words));
        let smarthost = Smarthost::read(&mut section, kind, credentials);
        let relay = Self {
            name: name.unwrap_or_default(),
            kind: smarthost.map_or(RelayKind::Mx, RelayKind::Smarthost),
            source: section.list("source", Vec::new(), source),
            ehlo: section.value("ehlo", None, unless_empty(parsed)),
            streams: section.list("streams", Stream::ALL.to_vec(), parsed),
            warm_up: WarmUp::read(&mut section),
        };
        section.finish();
        relay
    }
}

impl WarmUp {
    fn read(relay: &mut Section<'_>) -> Option<Self> {
        if !relay.has("warm_up") {
            return None;
        }
        let mut section = relay.section("warm_up");
        if !section.has("per_day") {
            section.missing("per_day", "must say how many messages a site may get on the first day");
        }
        let per_day = section.value("per_day", 0, number(1..=1_000_000_000));
        let growth_percent = section.value("growth_percent", 0, number(0..=1000));
        let since = section.value("since", None, |node| date(node).map(Some));
        if growth_percent > 0 && since.is_none() {
            section.missing("since", "must name the first day if growth_percent is set");
        }
        section.finish();
        Some(Self { per_day, growth_percent, since })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mx,
    Smarthost,
}

impl Smarthost {
    /// Takes the keys of a smarthost, which are only allowed for one.
    fn read(section: &mut Section<'_>, kind: Kind, credentials: Option<&Path>) -> Option<Self> {
        if kind == Kind::Mx {
            for key in ["host", "port", "tls", "username", "password_file"] {
                if let Some(node) = section.take(key) {
                    section.fault(node.key, key, "belongs to a relay of kind \"smarthost\"");
                }
            }
            return None;
        }
        let host = section.required("host", "must name the server if kind is \"smarthost\"", host);
        let port = section.value("port", SUBMISSION_PORT, number(1..=65_535));
        let words =
            [("starttls", SmarthostTls::StartTls), ("implicit", SmarthostTls::Implicit), ("off", SmarthostTls::Off)];
        let tls = section.value("tls", SmarthostTls::StartTls, word(words));
        let username = section.value("username", None, unless_empty(|node| text(node).map(str::to_owned)));
        let password = section.value("password_file", None, unless_empty(path));
        let login = match (username, password) {
            (Some(username), Some(file)) => Some(Login { username, password: SecretFile::new(file, credentials) }),
            (Some(_), None) => {
                section.missing("password_file", "must name the file with the password of username");
                None
            }
            (None, Some(_)) => {
                section.missing("username", "must be set if password_file is set");
                None
            }
            (None, None) => None,
        };
        let host = host?;
        if tls == SmarthostTls::Off && login.is_some() && !is_this_machine(&host) {
            section.missing("tls", "must not be \"off\" if username is set: a password is never sent unencrypted");
        }
        Some(Self { host, port, tls, login })
    }
}

fn name(node: &Node) -> Result<String, String> {
    let text = text(node)?;
    let fits = (1..=NAME_CHARACTERS_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if fits { Ok(text.to_owned()) } else { Err("must have 1 to 64 letters, digits, `-`, `_` or `.`".to_owned()) }
}

/// Returns whether the connection to `host` stays on this machine.
fn is_this_machine(host: &Host) -> bool {
    match host {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

fn date(node: &Node) -> Result<Date, String> {
    let text = text(node)?;
    text.parse().map_err(|_| format!("`{text}` is not a day, such as \"2026-12-31\""))
}

fn source(node: &Node) -> Result<IpAddr, String> {
    let text = text(node)?;
    text.parse().map_err(|_| format!("`{text}` is not an IP address"))
}

fn host(node: &Node) -> Result<Host, String> {
    let text = text(node)?;
    match text.parse() {
        Ok(IpAddr::V4(v4)) => Ok(Host::Ipv4(v4)),
        Ok(IpAddr::V6(v6)) => Ok(Host::Ipv6(v6)),
        Err(_) => Host::parse(text).map_err(|_| format!("`{text}` is not a host name or an IP address")),
    }
}
