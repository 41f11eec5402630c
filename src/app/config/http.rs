//! `[http]` and `[http.tls]`: the addresses, the public URL and the certificate of API and panel.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use url::Url;

use super::section::{Section, boolean, parsed, path, socket, text, unless_empty, word};
use super::tree::Node;
use crate::domain::address::Address;
use crate::domain::network::Network;

/// ACME directory of Let's Encrypt.
const ACME_DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// `[http]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Http {
    /// Addresses to listen on; port 0 means any free port.
    pub listen: Vec<SocketAddr>,
    /// Public URL of the service, if it is not `https://` and the host name.
    pub public_url: Option<Url>,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<Network>,
    /// `[http.tls]`.
    pub tls: Tls,
}

/// `[http.tls]`: the source of the certificate.
#[derive(Debug, Clone, PartialEq)]
pub enum Tls {
    /// Requested by ACME (RFC 8555).
    Acme(Acme),
    /// Files, which are reloaded when they change.
    Files {
        /// Certificate chain in PEM.
        certificate: PathBuf,
        /// Private key in PEM.
        key: PathBuf,
    },
    /// No certificate: plain HTTP, for loopback or behind a proxy.
    Off,
}

/// Settings for requesting certificates.
#[derive(Debug, Clone, PartialEq)]
pub struct Acme {
    /// The authority's directory.
    pub directory: Url,
    /// Contact address for the authority.
    pub contact: Option<Address>,
    /// Additional root certificates for connections to the authority.
    pub extra_roots: Option<PathBuf>,
}

/// `[compat]`: APIs for clients of other services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compat {
    /// Whether the services' paths also work without the prefix, for clients with only a host setting.
    pub root: bool,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, 443))],
            public_url: None,
            trusted_proxies: Vec::new(),
            tls: Tls::Acme(Acme::default()),
        }
    }
}

impl Default for Acme {
    fn default() -> Self {
        let directory = Url::parse(ACME_DIRECTORY).unwrap_or_else(|_| unreachable!("the constant is a URL"));
        Self { directory, contact: None, extra_roots: None }
    }
}

impl Compat {
    pub(super) fn read(mut section: Section<'_>, base: Self) -> Self {
        let compat = Self { root: section.value("root", base.root, boolean) };
        section.finish();
        compat
    }
}

impl Http {
    pub(super) fn read(mut section: Section<'_>, base: Self) -> Self {
        let listen = section.list("listen", base.listen, socket);
        if listen.is_empty() {
            section.missing("listen", "must name at least one address");
        }
        let http = Self {
            listen,
            public_url: section.value("public_url", base.public_url, unless_empty(public_url)),
            trusted_proxies: section.list("trusted_proxies", base.trusted_proxies, parsed),
            tls: Tls::read(section.section("tls"), base.tls),
        };
        section.finish();
        http
    }
}

#[derive(Clone, Copy)]
enum Mode {
    Acme,
    Files,
    Off,
}

impl Tls {
    /// Reads the section. The keys of other modes are checked but have no effect, so that one variable can switch the
    /// mode.
    fn read(mut section: Section<'_>, base: Self) -> Self {
        let (mode, acme) = match base {
            Self::Acme(acme) => (Mode::Acme, acme),
            Self::Files { .. } => (Mode::Files, Acme::default()),
            Self::Off => (Mode::Off, Acme::default()),
        };
        let words = [("acme", Mode::Acme), ("files", Mode::Files), ("off", Mode::Off)];
        let mode = section.value("mode", mode, word(words));
        let (certificate, key) = match mode {
            Mode::Files => ["certificate", "key"]
                .map(|name| section.required(name, "must name a PEM file if mode is \"files\"", path))
                .into(),
            Mode::Acme | Mode::Off => {
                ["certificate", "key"].map(|name| section.value(name, None, unless_empty(path))).into()
            }
        };
        let acme = Acme {
            directory: section.value("directory", acme.directory, directory),
            contact: section.value("contact", acme.contact, unless_empty(contact)),
            extra_roots: section.value("extra_roots", acme.extra_roots, unless_empty(path)),
        };
        let tls = match mode {
            Mode::Acme => Self::Acme(acme),
            Mode::Off => Self::Off,
            Mode::Files => Self::Files { certificate: certificate.unwrap_or_default(), key: key.unwrap_or_default() },
        };
        section.finish();
        tls
    }
}

/// Parses the public URL. Links are made by appending to it, so it must end with its path.
fn public_url(node: &Node) -> Result<Url, String> {
    let fault = || "must be an http or https URL without query, fragment or password".to_owned();
    let url = Url::parse(text(node)?).map_err(|_| fault())?;
    let bare =
        url.query().is_none() && url.fragment().is_none() && url.username().is_empty() && url.password().is_none();
    if matches!(url.scheme(), "http" | "https") && url.has_host() && bare { Ok(url) } else { Err(fault()) }
}

fn directory(node: &Node) -> Result<Url, String> {
    let url = Url::parse(text(node)?).ok().filter(|url| url.scheme() == "https" && url.has_host());
    url.ok_or_else(|| format!("must be the https URL of an ACME directory, such as {ACME_DIRECTORY}"))
}

fn contact(node: &Node) -> Result<Address, String> {
    let text = text(node)?;
    text.strip_prefix("mailto:")
        .unwrap_or(text)
        .parse()
        .map_err(|fault: crate::domain::address::InvalidAddress| fault.to_string())
}
