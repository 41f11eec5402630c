//! The certificate that an authority issues by itself (ACME, RFC 8555): asked for, kept, renewed and presented.
//!
//! `app` makes one worker, which runs beside the listeners. It never stands in their way: what can't be had is told, in
//! the log, in the metrics and by `doctor`, and until there is a certificate the listeners present one of their own.
//! When to ask is [`crate::machine::renewal`]'s to say; this asks no sooner.

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
use self::order::{Fault, Issued};
use self::vault::{Status, Vault};
use super::clock::SystemClock;
use super::dns::HostAddresses;
use super::probe::certificate::Certificate;
use super::tls;
use super::tls_settings::Presented;
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::engine::ports::Clock as _;
use crate::machine::renewal::{self, Setback, Setbacks, Validity};

/// A whole attempt, however slow the authority is.
const ATTEMPT: Duration = Duration::from_secs(600);
/// The clock is looked at so often: it may be set, and a machine may sleep.
const LOOK: Duration = Duration::from_secs(60);

/// Challenge type by which a name is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// By a handshake with port 443 (RFC 8737).
    TlsAlpn,
    /// By a request to port 80 (RFC 8555 8.3).
    Http,
}

impl Way {
    /// The challenge's name.
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
    /// The authority's directory.
    pub directory: Url,
    /// Whom it writes to.
    pub contact: Option<Address>,
    /// The names, the host name first.
    pub names: Vec<String>,
    /// Challenge type, unless another one worked last.
    pub way: Way,
}

/// The worker.
pub struct Acme {
    settings: AcmeSettings,
    vault: Vault,
    http: AcmeHttp,
    challenges: Arc<Challenges>,
    presented: Arc<Presented>,
    clock: SystemClock,
}

impl Acme {
    /// A worker that keeps what it has under `data_dir`, trusts `roots`, and finds the authority through `names`. What
    /// is presented until it has run is the certificate that is kept, or one that vouches for itself.
    ///
    /// # Errors
    /// Where the cryptographic library fails: a sentence.
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
            Some((config, validity)) => Presented::new(config, Some(validity.until)),
            None => {
                let own = tls::self_signed_pair(&settings.names).map_err(|fault| fault.to_string())?;
                Presented::new(tls::presenting(own, &challenges), None)
            }
        };
        let presented = Arc::new(presented);
        Ok(Self { settings, vault, http, challenges, presented, clock: SystemClock::new() })
    }

    /// Returns the certificate that listeners present.
    pub const fn presented(&self) -> &Arc<Presented> {
        &self.presented
    }

    /// Returns the open challenges that listeners answer.
    pub const fn challenges(&self) -> &Arc<Challenges> {
        &self.challenges
    }

    /// Asks whenever it is time, and at once when told so; never ends.
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
                () = at_once.notified() => match renewal::due(self.held(), Setbacks::default()) {
                    wanted if wanted <= self.clock.now() => self.attempt().await,
                    wanted => tracing::info!(renewal = %wanted, "certificate is current"),
                },
            }
        }
    }

    /// The certificate that covers all that is wanted, by the authority that is wanted.
    fn held(&self) -> Option<Validity> {
        self.covers(&self.settings.names)
    }

    fn covers(&self, names: &[String]) -> Option<Validity> {
        self.vault.issued_by().filter(|directory| directory == self.settings.directory.as_str())?;
        let certificate = Certificate::read(&self.vault.certificate()).ok()?;
        names.iter().all(|name| certificate.is_for(name)).then(|| certificate.validity())?
    }

    /// Returns the recorded status, as far as it is about the same names and authority.
    fn status(&self) -> Status {
        let (directory, names) = (self.settings.directory.to_string(), self.settings.names.clone());
        let same = self.vault.status().filter(|kept| kept.directory == directory && kept.names == names);
        same.unwrap_or_else(|| Status { directory, names, ..Status::default() })
    }

    fn due(&self) -> Timestamp {
        renewal::due(self.held(), self.status().setbacks)
    }

    /// One attempt, and what becomes of it.
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
                // A challenge that proves one name is usable for the others.
                let is_wrong = fault.setback == Setback::Refused && left_out.is_none();
                status.way = Some(if is_wrong { way.other() } else { way });
                let asked = self.http.take_retry_after().max(fault.retry_after);
                let now = self.clock.now();
                status.setbacks = status.setbacks.and(fault.setback, now, asked);
                match fault.setback {
                    Setback::Refused => self.presented.meters.refused.count(),
                    Setback::Unreached => self.presented.meters.unreached.count(),
                }
                self.tell(&fault, left_out, &status);
                status.fault = Some(fault.why);
            }
        }
        if let Err(error) = self.vault.make().and_then(|()| self.vault.keep_status(&status)) {
            tracing::error!(%error, "could not write the folder acme of the data directory");
            // An order that was not saved can't be resumed.
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A certificate for the names that could be proven, where there is none that covers them for long enough; answers
    /// which it lacks, where there is one now. One name whose DNS leads elsewhere must not leave the others without.
    async fn issue_without(&self, fault: &Fault, way: Way) -> Option<Vec<String>> {
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
            tracing::warn!(why = fault.why, ?proven, "ACME order for the remaining names also failed");
            // An authority may end an order at the first name that it does not believe, and not look at the next.
            let before = left_out.len();
            left_out.extend(fault.unproven.into_iter().filter(|name| proven.contains(name)));
            if left_out.len() == before {
                return None;
            }
        }
    }

    /// Says in the log what went wrong, and of a name that stays left out for the same reason no more than once.
    fn tell(&self, fault: &Fault, left_out: Option<Vec<String>>, status: &Status) {
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

    /// Asks once, keeps what is issued and presents it.
    async fn issue(&self, names: &[String], way: Way) -> Result<(), Fault> {
        self.vault.make().map_err(|error| order::unkept(&error))?;
        let late = |_| Err(Fault::new(Setback::Unreached, "the authority did not finish within ten minutes"));
        let Issued { chain, key } = tokio::time::timeout(ATTEMPT, self.order(names, way)).await.unwrap_or_else(late)?;
        self.vault
            .keep_certificate(self.settings.directory.as_str(), &chain, &key)
            .map_err(|error| order::unkept(&error))?;
        self.vault.forget_order();
        let Some((config, validity)) = kept(&self.vault, &self.challenges) else {
            return Err(Fault::new(Setback::Refused, "the authority's certificate does not match the order"));
        };
        self.presented.present(config, Some(validity.until));
        self.presented.meters.issued.count();
        tracing::info!(?names, way = way.as_str(), until = %validity.until, "certificate issued");
        Ok(())
    }
}

/// The certificate that is kept, for listeners.
fn kept(vault: &Vault, challenges: &Arc<Challenges>) -> Option<(ServerConfig, Validity)> {
    let path = vault.certificate();
    let validity = Certificate::read(&path).ok()?.validity()?;
    let pair = tls::pair(&path, &path).ok()?;
    Some((tls::presenting(pair, challenges), validity))
}
