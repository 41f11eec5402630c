//! `[submission]`: the listeners for SMTP submission, and their limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::http::Tls;
use super::section::{Section, number, path, socket, unless_empty};
use super::tree::Node;
use crate::net::submission::SubmissionLimits;

/// Maximum number of recipients of one transaction: one operation of the store accepts them all.
const RECIPIENTS_MAX: i64 = 1000;
/// A day, the maximum of all deadlines.
const SECONDS_MAX: i64 = 24 * 3600;

/// `[submission]`. Without addresses nothing listens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Submission {
    /// Addresses without TLS that offer STARTTLS.
    pub listen: Vec<SocketAddr>,
    /// Addresses with TLS from the first byte.
    pub tls_listen: Vec<SocketAddr>,
    /// PEM files of a certificate and its key; `None` means the certificate of `[http.tls]`.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The limits of connections, transactions and logins.
    pub limits: SubmissionLimits,
}

impl Submission {
    /// Returns whether any address is configured.
    pub fn is_on(&self) -> bool {
        self.addresses().next().is_some()
    }

    /// Returns all addresses.
    pub fn addresses(&self) -> impl Iterator<Item = &SocketAddr> {
        self.listen.iter().chain(&self.tls_listen)
    }

    /// Reads the section. Listening needs a certificate: a separate one, or that of `http`.
    pub(super) fn read(mut section: Section<'_>, base: Self, http: &Tls) -> Self {
        let count = |section: &mut Section<'_>, key, base| section.value(key, base, number(1..=65_535));
        let limits = base.limits;
        let submission = Self {
            listen: section.list("listen", base.listen, socket),
            tls_listen: section.list("tls_listen", base.tls_listen, socket),
            certificate: certificate(&mut section),
            limits: SubmissionLimits {
                connections: count(&mut section, "connections", limits.connections),
                connections_per_address: count(&mut section, "connections_per_address", limits.connections_per_address),
                connections_per_key: count(&mut section, "connections_per_key", limits.connections_per_key),
                recipients: section.value("recipients", limits.recipients, number(100..=RECIPIENTS_MAX)),
                login: section.value("login_seconds", limits.login, seconds),
                idle: section.value("idle_seconds", limits.idle, seconds),
                failed_logins: count(&mut section, "failed_logins", limits.failed_logins),
            },
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

/// Takes the certificate and its key, if both are set.
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
