//! `[submission]`: where programs submit mail over SMTP, and the limits on them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::http::Tls;
use super::section::{Section, number, path, socket, unless_empty};
use super::tree::Node;

/// Recipients of one transaction at most: one operation of the store accepts them all.
const RECIPIENTS_MAX: i64 = 1000;
/// A day, which no deadline needs to exceed.
const SECONDS_MAX: i64 = 24 * 3600;

/// `[submission]`. Without an address nothing listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// Addresses that begin in the clear and offer STARTTLS.
    pub listen: Vec<SocketAddr>,
    /// Addresses that speak TLS from the first byte.
    pub tls_listen: Vec<SocketAddr>,
    /// PEM files of a certificate and its key; none means the certificate of `[http.tls]`.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Connections in all.
    pub connections: usize,
    /// Connections of one client address.
    pub connections_per_address: usize,
    /// Connections of one API key.
    pub connections_per_key: usize,
    /// Recipients of one transaction.
    pub recipients: usize,
    /// Time from connecting to the login.
    pub login: Duration,
    /// Time between two commands.
    pub idle: Duration,
    /// Failed logins of one client address in 15 minutes.
    pub failed_logins: usize,
}

impl Default for Submission {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            tls_listen: Vec::new(),
            certificate: None,
            connections: 512,
            connections_per_address: 50,
            connections_per_key: 50,
            recipients: 100,
            login: Duration::from_secs(60),
            idle: Duration::from_secs(300),
            failed_logins: 10,
        }
    }
}

impl Submission {
    /// Whether anything listens.
    pub fn is_on(&self) -> bool {
        self.addresses().next().is_some()
    }

    /// All addresses.
    pub fn addresses(&self) -> impl Iterator<Item = &SocketAddr> {
        self.listen.iter().chain(&self.tls_listen)
    }

    /// Reads the section. Listening needs a certificate: one of its own, or that of `http`.
    pub(super) fn read(mut section: Section<'_>, base: Self, http: &Tls) -> Self {
        let count = |section: &mut Section<'_>, key, base| section.value(key, base, number(1..=65_535));
        let submission = Self {
            listen: section.list("listen", base.listen, socket),
            tls_listen: section.list("tls_listen", base.tls_listen, socket),
            certificate: certificate(&mut section),
            connections: count(&mut section, "connections", base.connections),
            connections_per_address: count(&mut section, "connections_per_address", base.connections_per_address),
            connections_per_key: count(&mut section, "connections_per_key", base.connections_per_key),
            recipients: section.value("recipients", base.recipients, number(100..=RECIPIENTS_MAX)),
            login: section.value("login_seconds", base.login, seconds),
            idle: section.value("idle_seconds", base.idle, seconds),
            failed_logins: count(&mut section, "failed_logins", base.failed_logins),
        };
        if submission.is_on() && submission.certificate.is_none() && matches!(http, Tls::Off) {
            let sentence = "must name a PEM file, and submission.key its key: http.tls.mode is \"off\", so there is no \
                            other certificate, and submission needs TLS";
            section.missing("certificate", sentence);
        }
        section.finish();
        submission
    }
}

/// The certificate and its key, where both are named.
fn certificate(section: &mut Section<'_>) -> Option<(PathBuf, PathBuf)> {
    let [certificate, key] = ["certificate", "key"].map(|name| section.value(name, None, unless_empty(path)));
    match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => {
            section.missing("key", "must name the PEM file of the certificate's private key");
            None
        }
        (None, Some(_)) => {
            section.missing("certificate", "must name the PEM file of the certificate that submission.key belongs to");
            None
        }
    }
}

fn seconds(node: &Node) -> Result<Duration, String> {
    number(1..=SECONDS_MAX)(node).map(Duration::from_secs)
}
