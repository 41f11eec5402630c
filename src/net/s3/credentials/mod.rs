//! Credentials for the bucket: from a file in AWS format, else from the `AWS_*` environment, a systemd credential, the
//! container's endpoint, or the instance's role. Only the first configured source is used.
//!
//! Credentials are read again when their file changes, before temporary ones expire, and after the bucket refused them.

mod file;
mod role;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use rustls::RootCertStore;
use tokio::sync::Mutex;

pub use super::signature::Credentials;
use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use role::RoleEndpoints;

/// Temporary credentials are renewed this long before they expire.
const RENEWAL: Duration = Duration::from_secs(300);

/// Possible sources of credentials, determined when the process starts.
#[derive(Debug, Clone, Default)]
pub struct CredentialSources {
    /// A file in AWS format, set in the configuration. It overrides all other sources.
    pub file: Option<PathBuf>,
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`.
    pub environment: Option<(String, Secret, Option<Secret>)>,
    /// The systemd credential `replica-credentials`, if there is one.
    pub systemd: Option<PathBuf>,
    /// URL of the container's endpoint: `AWS_CONTAINER_CREDENTIALS_FULL_URI`, or the relative one made absolute.
    pub container: Option<String>,
    /// `AWS_CONTAINER_AUTHORIZATION_TOKEN`.
    pub container_token: Option<Secret>,
    /// `AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE`.
    pub container_token_file: Option<PathBuf>,
    /// URL of the instance's metadata service; `None` if `AWS_EC2_METADATA_DISABLED` is `true`.
    pub instance: Option<String>,
}

/// The reason for missing credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoCredentials(pub(super) String);

/// Modification time and size of a file when it was read.
type Stamp = Option<(SystemTime, u64)>;

struct CachedCredentials {
    credentials: Arc<Credentials>,
    stamp: Stamp,
}

/// The credentials in use.
pub(super) struct CredentialStore {
    sources: CredentialSources,
    endpoints: RoleEndpoints,
    kept: Mutex<Option<CachedCredentials>>,
    is_refused: AtomicBool,
}

impl CredentialStore {
    /// Creates a store for `sources`. TLS endpoints are verified against `roots`.
    pub(super) fn new(sources: CredentialSources, roots: RootCertStore) -> Result<Self, reqwest::Error> {
        let (kept, is_refused) = (Mutex::default(), AtomicBool::new(false));
        Ok(Self { sources, endpoints: RoleEndpoints::new(roots)?, kept, is_refused })
    }

    /// Makes the next request read the credentials again.
    pub(super) fn refuse(&self) {
        self.is_refused.store(true, Relaxed);
    }

    /// Returns the credentials for a request at `now`.
    pub(super) async fn get(&self, now: Timestamp) -> Result<Arc<Credentials>, NoCredentials> {
        let mut kept = self.kept.lock().await;
        let was_refused = self.is_refused.swap(false, Relaxed);
        let stamp = self.path().map(stamp).unwrap_or_default();
        if let Some(kept) = kept.as_ref().filter(|kept| !was_refused && kept.stamp == stamp)
            && kept.credentials.expires_at.is_none_or(|end| now + RENEWAL < end)
        {
            return Ok(Arc::clone(&kept.credentials));
        }
        match self.read().await {
            Ok(credentials) => {
                let credentials = Arc::new(credentials);
                *kept = Some(CachedCredentials { credentials: Arc::clone(&credentials), stamp });
                Ok(credentials)
            }
            // Credentials that are still valid are better than none.
            Err(error) => match kept.as_ref() {
                Some(kept) if kept.credentials.expires_at.is_some_and(|end| now < end) && !was_refused => {
                    tracing::warn!(%error, "could not renew the bucket's credentials; keeping the current ones");
                    Ok(Arc::clone(&kept.credentials))
                }
                Some(_) | None => Err(error),
            },
        }
    }

    /// Returns the path of the credentials file, if the source is a file.
    fn path(&self) -> Option<&Path> {
        let Some(file) = &self.sources.file else {
            return self.sources.systemd.as_deref().filter(|_| self.sources.environment.is_none());
        };
        Some(file)
    }

    async fn read(&self) -> Result<Credentials, NoCredentials> {
        let sources = &self.sources;
        match (self.path(), &sources.environment, &sources.container, &sources.instance) {
            (Some(path), ..) => file::read(path),
            (None, Some((access_key_id, secret, session_token)), ..) => Ok(Credentials {
                access_key_id: access_key_id.clone(),
                secret: secret.clone(),
                session_token: session_token.clone(),
                expires_at: None,
            }),
            (None, None, Some(endpoint), _) => {
                let token = container_token(sources)?;
                self.endpoints.of_container(endpoint, token.as_ref()).await
            }
            (None, None, None, Some(endpoint)) => self.endpoints.of_instance(endpoint).await,
            (None, None, None, None) => Err(NoCredentials(
                "no credentials are configured; set replica.credentials_file, or AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY"
                    .to_owned(),
            )),
        }
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Returns the container's token. Its file is renewed, so it is read each time.
fn container_token(sources: &CredentialSources) -> Result<Option<Secret>, NoCredentials> {
    let Some(path) = &sources.container_token_file else { return Ok(sources.container_token.clone()) };
    let text = fs::read_to_string(path)
        .map_err(|error| NoCredentials(format!("cannot read the container's token {}: {error}", path.display())))?;
    Ok(Some(Secret::new(text.trim())))
}

#[cfg(test)]
mod tests;
