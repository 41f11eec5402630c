//! The source of the `[http.tls]` certificate and its renewal: files, an ACME authority, or none.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use url::Host;

use super::cli_error::CliError;
use super::config::{self, Config, Tls};
use super::exit::Exit;
use crate::net::acme::challenges::Challenges;
use crate::net::acme::{Acme, AcmeSettings, ProofMethod};
use crate::net::certificate_files::CertificateFiles;
use crate::net::dns::HostAddresses;
use crate::net::http_listener::HttpTls;
use crate::net::https_redirect::HttpsRedirect;
use crate::net::tls;
use crate::net::tls_settings::PresentedCertificate;

/// The certificate of a service.
pub(super) struct Certificate {
    /// The certificate that listeners present.
    pub(super) presented: Arc<PresentedCertificate>,
    challenges: Arc<Challenges>,
    keeper: CertificateSource,
    at_once: Arc<Notify>,
}

enum CertificateSource {
    Files(CertificateFiles),
    Authority(Box<Acme>),
}

/// The certificate with its running renewal.
pub(super) struct RenewalTask {
    at_once: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Certificate {
    /// Returns the certificate source of the configuration; `None` if TLS is left to a proxy.
    ///
    /// # Errors
    /// Files that can't be used. An unreachable authority is not an error: it is retried.
    pub(super) fn of(config: &Config, names: Arc<dyn HostAddresses>) -> Result<Option<Self>, CliError> {
        let cli_error =
            |why: &dyn std::fmt::Display| CliError::new(Exit::Failed, "cannot set up TLS", why.to_string(), "");
        let (presented, challenges, keeper) = match &config.http.tls {
            Tls::Off => return Ok(None),
            Tls::Files { certificate, key } => return Self::of_files(certificate, key).map(Some),
            Tls::Acme(acme) => {
                let roots = tls::trusted_roots(acme.extra_roots.as_deref()).map_err(|fault| cli_error(&fault))?;
                let acme = Acme::new(settings(config, acme), &config.data_dir, roots, names);
                let acme = acme.map_err(|why| cli_error(&why))?;
                (
                    Arc::clone(acme.presented()),
                    Arc::clone(acme.challenges()),
                    CertificateSource::Authority(Box::new(acme)),
                )
            }
        };
        Ok(Some(Self { presented, challenges, keeper, at_once: Arc::default() }))
    }

    /// Returns the certificate from two PEM files.
    ///
    /// # Errors
    /// Files that can't be used.
    pub(super) fn of_files(certificate: &Path, key: &Path) -> Result<Self, CliError> {
        let (files, presented) = CertificateFiles::open(certificate, key)
            .map_err(|fault| CliError::new(Exit::Failed, "cannot set up TLS", fault.to_string(), ""))?;
        let (presented, keeper) = (Arc::new(presented), CertificateSource::Files(files));
        Ok(Self { presented, challenges: Arc::default(), keeper, at_once: Arc::default() })
    }

    /// Returns the TLS settings for the HTTP listeners.
    pub(super) fn http_tls(&self, config: &Config) -> HttpTls {
        let public = Some(config.public_url()).filter(|url| url.scheme() == "https");
        let public = public.map_or_else(|| format!("https://{}", config.hostname), String::from);
        let clear = HttpsRedirect::new(Arc::clone(&self.challenges), &public);
        HttpTls { settings: Arc::clone(&self.presented.http), clear: Arc::new(clear) }
    }

    /// Starts the renewal. The listeners must be running, because an authority connects to them.
    pub(super) fn keep(self) -> RenewalTask {
        let (presented, at_once) = (self.presented, Arc::clone(&self.at_once));
        let task = match self.keeper {
            CertificateSource::Files(files) => tokio::spawn(files.run(presented, at_once)),
            CertificateSource::Authority(acme) => tokio::spawn(acme.run(at_once)),
        };
        RenewalTask { at_once: self.at_once, task }
    }
}

impl RenewalTask {
    /// Checks immediately, because the operator has asked for it.
    pub(super) fn look(&self) {
        self.at_once.notify_one();
    }

    /// Stops the renewal. The next start continues a pending order.
    pub(super) fn stop(&self) {
        self.task.abort();
    }
}

/// Returns the names that a certificate must have: the host name, the host of the public address, and the bounce host.
pub(super) fn names(config: &Config) -> Vec<String> {
    let public = match config.public_url().host() {
        Some(Host::Domain(name)) => Some(name.to_owned()),
        Some(Host::Ipv4(_) | Host::Ipv6(_)) | None => None,
    };
    let bounces = config.bounces.iter().filter(|bounces| !bounces.listen.is_empty());
    let mut seen = BTreeSet::new();
    let all = [config.hostname.to_string()].into_iter().chain(public);
    let all = all.chain(bounces.map(|bounces| bounces.host.to_string()));
    all.filter(|name| seen.insert(name.clone())).collect()
}

fn settings(config: &Config, acme: &config::Acme) -> AcmeSettings {
    let listens_on = |port: u16| config.http.listen.iter().any(|address| address.port() == port);
    AcmeSettings {
        directory: acme.directory.clone(),
        contact: acme.contact.clone(),
        names: names(config),
        // An authority connects to these two ports; outside, other ports may be forwarded to them.
        way: if listens_on(80) && !listens_on(443) { ProofMethod::Http } else { ProofMethod::TlsAlpn },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::environment::Environment;

    fn config(more: &str) -> Config {
        let text = format!("hostname = \"mail.example.com\"\n{more}");
        Config::parse(&text, "p.toml", &Environment::default()).unwrap()
    }

    #[test]
    fn a_certificate_has_every_public_name_of_the_service_once() {
        assert_eq!(names(&config("")), ["mail.example.com"]);
        let elsewhere = "[http]\npublic_url = \"https://panel.example.com\"\n";
        assert_eq!(names(&config(elsewhere)), ["mail.example.com", "panel.example.com"]);
        let literal = "[http]\npublic_url = \"https://192.0.2.1:8443\"\n[bounces]\nhost = \"mail.example.com\"\n";
        assert_eq!(names(&config(literal)), ["mail.example.com"]);
        let bounces = format!("{elsewhere}[bounces]\nhost = \"bounces.example.com\"\n");
        assert_eq!(names(&config(&bounces)), ["mail.example.com", "panel.example.com", "bounces.example.com"]);
    }

    #[test]
    fn the_challenge_type_follows_from_the_listening_port() {
        let way = |listen: &str| {
            let config = config(&format!("[http]\nlisten = {listen}\n"));
            let Tls::Acme(acme) = &config.http.tls else { panic!("acme is the default") };
            settings(&config, acme).way
        };
        assert_eq!(way("[\"[::]:443\"]"), ProofMethod::TlsAlpn);
        assert_eq!(way("[\"[::]:443\", \"[::]:80\"]"), ProofMethod::TlsAlpn);
        assert_eq!(way("[\"[::]:80\"]"), ProofMethod::Http);
        assert_eq!(way("[\"127.0.0.1:8443\"]"), ProofMethod::TlsAlpn);
    }
}
