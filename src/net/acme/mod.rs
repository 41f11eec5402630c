//! Automatic certificates (ACME, RFC 8555): requested, stored, renewed and presented.
//!
//! `app` starts one worker, which runs in parallel with the listeners and never blocks them. Failures are reported in
//! the log, in the metrics and by `doctor`. Until a certificate is issued, the listeners present a self-signed one.
//! [`crate::machine::renewal`] decides when to request; the worker requests no sooner.

pub mod challenges;
mod client;
mod keys;
mod order;
pub mod vault;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::{RootCertStore, ServerConfig};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use url::Url;

use self::challenges::Challenges;
use self::client::AcmeHttp;
use self::order::{IssuedCertificate, OrderError};
use self::vault::{Status, Vault};
use super::clock::SystemClock;
use super::dns::HostAddresses;
use super::probe::certificate::Certificate;
use super::tls;
use super::tls_settings::PresentedCertificate;
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::engine::ports::Clock as _;
use crate::machine::renewal::{self, RenewalFailure, RenewalFailures, Validity};

/// Time limit of a whole attempt, however slow the authority is.
const ATTEMPT: Duration = Duration::from_secs(600);
/// Interval between checks of the clock, which may be set or may stop while the machine sleeps.
const LOOK: Duration = Duration::from_secs(60);

/// Challenge type by which a name is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProofMethod {
    /// tls-alpn-01: a handshake on port 443 (RFC 8737).
    TlsAlpn,
    /// http-01: a request to port 80 (RFC 8555 8.3).
    Http,
}

impl ProofMethod {
    /// Returns the name of the challenge type.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TlsAlpn => "tls-alpn-01",
            Self::Http => "http-01",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::TlsAlpn => Self::Http,
            Self::Http => Self::TlsAlpn,
        }
    }
}

/// Names to request a certificate for, and the authority.
#[derive(Debug, Clone)]
pub struct AcmeSettings {
    /// URL of the authority's directory.
    pub directory: Url,
    /// Contact address for the authority.
    pub contact: Option<Address>,
    /// The names; the host name comes first.
    pub names: Vec<String>,
    /// Challenge type to use, unless another one worked last.
    pub way: ProofMethod,
}

/// The certificate worker.
pub struct Acme {
    settings: AcmeSettings,
    vault: Vault,
    http: AcmeHttp,
    challenges: Arc<Challenges>,
    presented: Arc<PresentedCertificate>,
    clock: SystemClock,
}

impl Acme {
    /// Creates a worker that stores its files under `data_dir`, trusts `roots`, and resolves the authority through
    /// `names`. Until it has run, it presents the stored certificate, or else a self-signed one.
    ///
    /// # Errors
    /// The cryptographic library fails. The error is a sentence.
    pub fn new(
        settings: AcmeSettings,
        data_dir: &Path,
        roots: RootCertStore,
        names: Arc<dyn HostAddresses>,
    ) -> Result<Self, String> {
        let challenges = Arc::new(Challenges::default());
        let vault = Vault::within(data_dir);
        let http = AcmeHttp::new(roots, names).map_err(|error| error.to_string())?;
        let presented = match kept(&vault, &challenges) {
            Some((config, validity)) => PresentedCertificate::new(config, Some(validity.until)),
            None => {
                let own = tls::self_signed_pair(&settings.names).map_err(|fault| fault.to_string())?;
                PresentedCertificate::new(tls::presenting(own, &challenges), None)
            }
        };
        let presented = Arc::new(presented);
        Ok(Self { settings, vault, http, challenges, presented, clock: SystemClock::new() })
    }

    /// Returns the certificate that listeners present.
    pub const fn presented(&self) -> &Arc<PresentedCertificate> {
        &self.presented
    }

    /// Returns the open challenges that listeners answer.
    pub const fn challenges(&self) -> &Arc<Challenges> {
        &self.challenges
    }

    /// Requests a certificate whenever one is due, and at once when `at_once` is notified. Never returns.
    pub async fn run(self, at_once: Arc<Notify>) {
        loop {
            let now = self.clock.now();
            let due = self.due();
            if due <= now {
                self.attempt().await;
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(due.since(now).min(LOOK)) => {}
                () = at_once.notified() => {
                    let (now, no_failures) = (self.clock.now(), RenewalFailures::default());
                    match renewal::due(self.held(), no_failures, now) {
                        wanted if wanted <= now => self.attempt().await,
                        wanted => tracing::info!(renewal = %wanted, "certificate is current"),
                    }
                }
            }
        }
    }

    /// Returns the validity of the stored certificate, if it has all configured names and comes from the configured
    /// authority.
    fn held(&self) -> Option<Validity> {
        self.covers(&self.settings.names)
    }

    fn covers(&self, names: &[String]) -> Option<Validity> {
        self.vault.issued_by().filter(|directory| directory == self.settings.directory.as_str())?;
        let certificate = Certificate::read(&self.vault.certificate()).ok()?;
        names.iter().all(|name| certificate.is_for(name)).then(|| certificate.validity())?
    }

    /// Returns the recorded status, as far as it concerns the same names and authority.
    fn status(&self) -> Status {
        let (directory, names) = (self.settings.directory.to_string(), self.settings.names.clone());
        let same = self.vault.status().filter(|kept| kept.directory == directory && kept.names == names);
        same.unwrap_or_else(|| Status { directory, names, ..Status::default() })
    }

    fn due(&self) -> Timestamp {
        renewal::due(self.held(), self.status().setbacks, self.clock.now())
    }

    /// Makes one attempt and records its outcome.
    async fn attempt(&self) {
        let mut status = self.status();
        let way = status.way.unwrap_or(self.settings.way);
        match self.issue(&self.settings.names, way).await {
            Ok(()) => {
                let (directory, names) = (status.directory, status.names);
                status = Status { directory, names, way: Some(way), ..Status::default() };
            }
            Err(fault) => {
                let left_out = self.issue_without(&fault, way).await;
                // A challenge type that proved one name is usable for the others.
                let is_wrong = fault.setback == RenewalFailure::Refused && left_out.is_none();
                status.way = Some(if is_wrong { way.other() } else { way });
                let asked = self.http.take_retry_after().max(fault.retry_after);
                let now = self.clock.now();
                status.setbacks = status.setbacks.and(fault.setback, now, asked);
                match fault.setback {
                    RenewalFailure::Refused => self.presented.meters.refused.count(),
                    RenewalFailure::Unreached => self.presented.meters.unreached.count(),
                }
                self.log_failure(&fault, left_out, &status);
                status.fault = Some(fault.why);
            }
        }
        if let Err(error) = self.vault.make().and_then(|()| self.vault.keep_status(&status)) {
            tracing::error!(%error, "could not write the folder acme of the data directory; retrying later");
            // An order that was not saved can't be resumed.
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Requests a certificate for the names that could be proven, if no stored one covers them for long enough. Returns
    /// the names left out, if such a certificate exists now. One name whose DNS points elsewhere must not leave the
    /// others without a certificate.
    async fn issue_without(&self, fault: &OrderError, way: ProofMethod) -> Option<Vec<String>> {
        let mut left_out = fault.unproven.clone();
        loop {
            let proven: Vec<_> = self.settings.names.iter().filter(|name| !left_out.contains(name)).cloned().collect();
            if left_out.is_empty() || proven.is_empty() {
                return None;
            }
            if self.covers(&proven).is_some_and(|validity| validity.renew_at() > self.clock.now()) {
                return Some(left_out);
            }
            let Err(fault) = self.issue(&proven, way).await else { return Some(left_out) };
            tracing::warn!(
                why = fault.why,
                ?proven,
                "ACME order for the remaining names also failed; trying fewer names, or all later"
            );
            // An authority may end an order at the first name that fails, without checking the next.
            let before = left_out.len();
            left_out.extend(fault.unproven.into_iter().filter(|name| proven.contains(name)));
            if left_out.len() == before {
                return None;
            }
        }
    }

    /// Logs the failure. A name that stays left out for the same reason is logged only once.
    fn log_failure(&self, fault: &OrderError, left_out: Option<Vec<String>>, status: &Status) {
        let (authority, next) = (&self.settings.directory, status.setbacks.wait_until());
        match left_out {
            Some(_) if status.fault.as_ref() == Some(&fault.why) => {
                tracing::debug!(%authority, why = fault.why, %next, "the certificate still lacks names");
            }
            Some(left_out) => tracing::warn!(
                %authority,
                ?left_out,
                why = fault.why,
                %next,
                "the certificate lacks names that could not be validated; they are requested again automatically"
            ),
            None => tracing::warn!(
                %authority,
                why = fault.why,
                %next,
                "no certificate was issued; run `postrider doctor` for advice"
            ),
        }
    }

    /// Requests a certificate once, stores it and presents it.
    async fn issue(&self, names: &[String], way: ProofMethod) -> Result<(), OrderError> {
        self.vault.make().map_err(|error| order::not_saved(&error))?;
        let late =
            |_| Err(OrderError::new(RenewalFailure::Unreached, "the authority did not finish within ten minutes"));
        let IssuedCertificate { chain, key } =
            tokio::time::timeout(ATTEMPT, self.order(names, way)).await.unwrap_or_else(late)?;
        self.vault
            .keep_certificate(self.settings.directory.as_str(), &chain, &key)
            .map_err(|error| order::not_saved(&error))?;
        self.vault.forget_order();
        let Some((config, validity)) = kept(&self.vault, &self.challenges) else {
            return Err(OrderError::new(
                RenewalFailure::Refused,
                "the authority's certificate does not match the order",
            ));
        };
        self.presented.present(config, Some(validity.until));
        self.presented.meters.issued.count();
        tracing::info!(?names, way = way.as_str(), until = %validity.until, "certificate issued");
        Ok(())
    }
}

/// Returns the stored certificate as a listener's configuration.
fn kept(vault: &Vault, challenges: &Arc<Challenges>) -> Option<(ServerConfig, Validity)> {
    let path = vault.certificate();
    let validity = Certificate::read(&path).ok()?.validity()?;
    let pair = tls::pair(&path, &path).ok()?;
    Some((tls::presenting(pair, challenges), validity))
}
