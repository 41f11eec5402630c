//! The TLS settings of a listener, which may change while they listen: a reload or a renewed certificate
//! swaps them, and connections that are open keep what they were made with.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;

/// The current [`ServerConfig`], shared between whoever renews it and the listeners.
pub struct TlsSettings(RwLock<Arc<ServerConfig>>);

impl TlsSettings {
    /// Settings that begin as `config`.
    pub fn new(config: ServerConfig) -> Self {
        Self(RwLock::new(Arc::new(config)))
    }

    /// Makes `config` what new connections get.
    pub fn swap(&self, config: ServerConfig) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// What a connection that opens now gets.
    pub fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}
