//! TLS settings of the listeners, which may change while they listen. A reload or a renewed certificate replaces them;
//! open connections keep theirs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;

use super::tls;
use crate::base::meter::Counter;
use crate::base::time::Timestamp;

/// The current [`ServerConfig`], shared by the code that renews it and the listeners.
pub struct TlsSettings(RwLock<Arc<ServerConfig>>);

impl TlsSettings {
    /// Creates settings that start with `config`.
    pub fn new(config: ServerConfig) -> Self {
        Self(RwLock::new(Arc::new(config)))
    }

    /// Uses `config` for new connections.
    pub fn swap(&self, config: ServerConfig) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// Returns the settings for a new connection.
    pub fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One certificate, as presented to browsers and to mail servers.
pub struct PresentedCertificate {
    /// Settings for HTTP.
    pub http: Arc<TlsSettings>,
    /// Settings for STARTTLS.
    pub mail: Arc<TlsSettings>,
    /// Meters of the certificate.
    pub meters: CertificateMeters,
}

/// Meters of the certificate, for monitoring.
#[derive(Debug, Default)]
pub struct CertificateMeters {
    /// Certificates that an authority issued.
    pub issued: Counter,
    /// Attempts that an authority refused.
    pub refused: Counter,
    /// Attempts that did not reach an authority.
    pub unreached: Counter,
    /// End of the certificate's validity, in milliseconds since the epoch; 0 if it is self-signed.
    until: AtomicU64,
}

impl CertificateMeters {
    /// Returns the end of the certificate's validity, unless it is self-signed.
    pub fn until(&self) -> Option<Timestamp> {
        Some(self.until.load(Relaxed)).filter(|until| *until > 0).map(Timestamp::from_millis)
    }
}

impl PresentedCertificate {
    /// Starts with the certificate of `config`, valid until `until`.
    pub fn new(config: ServerConfig, until: Option<Timestamp>) -> Self {
        let (http, mail) = (TlsSettings::new(config.clone()), TlsSettings::new(tls::for_mail(&config)));
        let presented = Self { http: Arc::new(http), mail: Arc::new(mail), meters: CertificateMeters::default() };
        presented.holds(until);
        presented
    }

    /// Presents the certificate of `config` from now on.
    pub fn present(&self, config: ServerConfig, until: Option<Timestamp>) {
        self.mail.swap(tls::for_mail(&config));
        self.http.swap(config);
        self.holds(until);
    }

    fn holds(&self, until: Option<Timestamp>) {
        self.meters.until.store(until.map_or(0, Timestamp::as_millis), Relaxed);
    }
}
