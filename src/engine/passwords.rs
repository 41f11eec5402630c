//! Hashing passwords with argon2id, off the async threads and few at a time. Each hash costs 19 MiB and much CPU time,
//! so a flood of sign-ins must neither exhaust memory nor starve mail delivery.

use std::sync::{Arc, OnceLock};

use argon2::{Argon2, PasswordHasher as _, PasswordVerifier as _};
use tokio::sync::Semaphore;

use super::executor::Executor;
use crate::base::entropy::{self, Entropy};
use crate::base::secret::Secret;
use crate::domain::user::NewPassword;

/// Maximum concurrent hashes.
const AT_ONCE: usize = 2;
/// Maximum strangers in the queue for a hash; beyond that, sign-in is overloaded for them.
const STRANGERS_MAX: usize = 64;
/// Maximum users in the queue for a hash whose browser or session is known.
const KNOWN_MAX: usize = 16;
/// Size of a salt, in bytes.
const SALT_BYTES: usize = 16;

/// Password hasher with the parameters that OWASP recommends: argon2id, 19 MiB, two passes, parallelism 1.
pub(super) struct Passwords {
    executor: Executor,
    places: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    known: Arc<Semaphore>,
    /// Hash of an unknown password, so that an unknown user takes as long as a known one.
    nobody: OnceLock<String>,
}

/// Queue for a hash. Strangers can't block known users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// All other people.
    Strangers,
    /// Users who are signed in, or whose browser is known.
    Known,
}

/// Error: the queue for a hash is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many passwords wait to be checked")]
pub struct Crowded;

impl Passwords {
    /// Creates a hasher that runs on `executor`.
    pub(super) fn new(executor: Executor) -> Self {
        Self {
            executor,
            places: Arc::new(Semaphore::new(AT_ONCE)),
            strangers: Arc::new(Semaphore::new(STRANGERS_MAX)),
            known: Arc::new(Semaphore::new(KNOWN_MAX)),
            nobody: OnceLock::new(),
        }
    }

    /// Takes all strangers' slots in the queue until the result is dropped.
    #[cfg(test)]
    pub(super) fn crowd(&self) -> tokio::sync::SemaphorePermit<'_> {
        self.strangers.try_acquire_many(64).unwrap()
    }

    /// Returns the hash of a new password, with a random salt.
    ///
    /// # Errors
    /// [`Crowded`].
    pub(super) async fn hash(&self, password: &NewPassword, entropy: &dyn Entropy) -> Result<String, Crowded> {
        let (password, salt) = (password.clone(), entropy::bytes::<SALT_BYTES>(entropy));
        self.run(Line::Known, move || hashed(password.expose().as_bytes(), &salt)).await
    }

    /// Returns whether `given` is the password of this hash. Without a hash it returns false after the same time.
    ///
    /// # Errors
    /// [`Crowded`].
    pub(super) async fn is_right(&self, given: &Secret, hash: Option<&str>, line: Line) -> Result<bool, Crowded> {
        let is_known = hash.is_some();
        let hash = match hash {
            Some(hash) => hash.to_owned(),
            None => self.nobody(line).await?,
        };
        let given = given.clone();
        let verify = move || Argon2::default().verify_password(given.expose(), hash.as_str()).is_ok();
        let fits = self.run(line, verify).await?;
        Ok(fits && is_known)
    }

    async fn nobody(&self, line: Line) -> Result<String, Crowded> {
        if let Some(hash) = self.nobody.get() {
            return Ok(hash.clone());
        }
        let made = self.run(line, || hashed(b"nobody's password", &[0; SALT_BYTES])).await?;
        Ok(self.nobody.get_or_init(|| made).clone())
    }

    async fn run<T: Send + 'static>(
        &self,
        line: Line,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Crowded> {
        let line = match line {
            Line::Strangers => &self.strangers,
            Line::Known => &self.known,
        };
        let in_line = Arc::clone(line).try_acquire_owned().map_err(|_| Crowded)?;
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| Crowded)?;
        // The hash is completed even if the request is cancelled, so it owns the permits.
        let work = move || {
            let _permits = (in_line, place);
            work()
        };
        self.executor.run(work).await.map_err(|_| Crowded)
    }
}

fn hashed(password: &[u8], salt: &[u8]) -> String {
    match Argon2::default().hash_password_with_salt(password, salt) {
        Ok(hash) => hash.to_string(),
        Err(error) => unreachable!("argon2 hashes any password of bounded length: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::entropy::SeededEntropy;

    #[tokio::test]
    async fn a_hash_contains_its_parameters_and_matches_only_its_password() {
        let (passwords, entropy) = (Passwords::new(Executor::Threads), SeededEntropy::new(1));
        let password = NewPassword::generate(&entropy);
        let hash = passwords.hash(&password, &entropy).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert_ne!(passwords.hash(&password, &entropy).await.unwrap(), hash, "each hash has its own salt");
        let right = Secret::new(password.expose());
        assert!(passwords.is_right(&right, Some(&hash), Line::Strangers).await.unwrap());
        assert!(!passwords.is_right(&Secret::new("wrong"), Some(&hash), Line::Strangers).await.unwrap());
        assert!(!passwords.is_right(&Secret::new("nobody's password"), None, Line::Strangers).await.unwrap());
    }

    #[tokio::test]
    async fn a_crowd_of_strangers_never_blocks_known_users() {
        let (passwords, entropy) = (Passwords::new(Executor::Threads), SeededEntropy::new(1));
        let hash = passwords.hash(&NewPassword::generate(&entropy), &entropy).await.unwrap();
        let _crowd = passwords.crowd();
        let shown = Secret::new("wrong");
        assert!(passwords.is_right(&shown, Some(&hash), Line::Strangers).await.is_err());
        assert!(passwords.is_right(&shown, Some(&hash), Line::Known).await.is_ok());
    }

    #[tokio::test]
    async fn a_cancelled_request_keeps_its_permits_until_its_hash_is_complete() {
        let passwords = Arc::new(Passwords::new(Executor::Threads));
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
        let request = tokio::spawn({
            let passwords = Arc::clone(&passwords);
            async move {
                let work = move || {
                    started.send(()).unwrap();
                    held.recv()
                };
                passwords.run(Line::Strangers, work).await
            }
        });
        starts.recv().await.unwrap();
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
        let free = || (passwords.places.available_permits(), passwords.strangers.available_permits());
        assert_eq!(free(), (AT_ONCE - 1, STRANGERS_MAX - 1));
        release.send(()).unwrap();
        let _every_place = passwords.places.acquire_many(2).await.unwrap();
    }
}
