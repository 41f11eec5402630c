//! Sign-in by OpenID Connect: the provider of `[oidc]`, with the same network rules as webhooks.

use std::sync::Arc;

use super::cli_error::CliError;
use super::config::Config;
use super::daemon::broken;
use super::webhooks::Webhooks;
use crate::engine::Engine;
use crate::engine::oidc::Oidc;
use crate::net::identity_provider::{DEADLINE, HttpsIdentityProvider};
use crate::net::tls;

/// Enables sign-in at the configured provider in `engine`, if there is one.
///
/// # Errors
/// A file of the configuration can't be read.
pub(super) fn attach(config: &Config, engine: &Engine, webhooks: &Webhooks) -> Result<(), CliError> {
    let Some(oidc) = &config.oidc else { return Ok(()) };
    let settings = oidc.settings().map_err(|error| broken("oidc.client_secret_file", &error))?;
    let roots = tls::trusted_roots(config.webhooks.extra_roots.as_deref());
    let roots = roots.map_err(|fault| broken("webhooks.extra_roots", &fault))?;
    let (names, guard) = (Arc::clone(&webhooks.names), Arc::clone(&webhooks.guard));
    let http = Arc::new(HttpsIdentityProvider::new(roots, names, guard, DEADLINE));
    engine.oidc.get_or_init(|| Oidc::new(settings, http));
    Ok(())
}
