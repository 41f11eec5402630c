//! Hashing passwords with argon2id, off the async threads and few at a time. Each hash costs 19 MiB and much CPU time,
//! so a flood of sign-ins must not exhaust memory or starve mail delivery.

use argon2::{Argon2, PasswordHasher as _, PasswordVerifier as _};
use tokio::sync::OnceCell;

use super::executor::Executor;
use super::turn_permits::TurnQueue;
use super::work_slots::WorkSlots;
use crate::base::entropy::{self, Entropy};
use crate::base::id::{AccountId, UserId};
use crate::base::secret::Secret;
use crate::domain::network::Network;
use crate::domain::user::NewPassword;

/// Maximum number of concurrent hashes for strangers, and as many for known users. So strangers use one processor at
/// most, and never delay a known user.
const AT_ONCE: usize = 1;
/// Maximum number of strangers in the queue for a hash. Further ones are refused as overloaded. As many as HTTP has
/// connections by default, so that only many networks together can fill it.
const STRANGERS_MAX: usize = 1024;
/// Maximum number of strangers of one network in the queue.
const STRANGERS_OF_SITE: usize = 16;
/// Maximum number of users in the queue for a hash whose browser or session is known.
const KNOWN_MAX: usize = 256;
/// Maximum number of known users of one account in the queue.
const KNOWN_OF_ACCOUNT: usize = 16;
/// Maximum number of places of one known user in the queue.
const KNOWN_OF_USER: usize = 2;
/// Size of a salt, in bytes.
const SALT_BYTES: usize = 16;

/// Password hasher with the parameters that OWASP recommends: argon2id, 19 MiB, two passes, parallelism 1.
pub(super) struct Passwords {
    executor: Executor,
    strangers: TurnQueue<Option<Network>>,
    known: TurnQueue,
    users: WorkSlots<UserId>,
    /// Hash of an unknown password, so that an unknown user takes as long as a known one.
    nobody: OnceCell<String>,
}

/// Owner of a slot in the queue for a hash. Strangers can't block known users, and a few owners can't block all others
/// of their kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HashQueueOwner {
    /// Somebody on this network ([`Network::of_site`]), if the client has an address.
    Stranger(Option<Network>),
    /// This user of an account, who is signed in, or whose browser is known.
    Known(AccountId, UserId),
    /// A change that a user of this account makes.
    Change(AccountId),
}

impl HashQueueOwner {
    /// Returns the owner for a stranger at this address, given as text.
    pub(super) fn stranger(address: &str) -> Self {
        Self::Stranger(address.parse().ok().map(Network::of_site))
    }
}

/// Error: the queue for a hash is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many passwords wait to be checked")]
pub struct HashQueueFull;

impl Passwords {
    /// Creates a hasher that runs on `executor`.
    pub(super) fn new(executor: Executor) -> Self {
        Self {
            executor,
            strangers: TurnQueue::new(AT_ONCE, STRANGERS_MAX, STRANGERS_OF_SITE),
            known: TurnQueue::new(AT_ONCE, KNOWN_MAX, KNOWN_OF_ACCOUNT),
            users: WorkSlots::new(KNOWN_MAX, KNOWN_OF_USER),
            nobody: OnceCell::new(),
        }
    }

    /// Takes all strangers' slots in the queue until the result is dropped.
    #[cfg(test)]
    pub(super) fn occupy(&self) -> Vec<impl Sized + use<>> {
        let places = (0..STRANGERS_MAX).map(|place| u8::try_from(place / STRANGERS_OF_SITE).unwrap_or_default());
        places
            .map(|host| Some(Network::of_site([192, 0, 2, host].into())))
            .map(|network| self.strangers.occupy(network).unwrap())
            .collect()
    }

    /// Returns the hash of a new password of a user of `account`, with a random salt.
    ///
    /// # Errors
    /// [`HashQueueFull`].
    pub(super) async fn hash(
        &self,
        account: AccountId,
        password: &NewPassword,
        entropy: &dyn Entropy,
    ) -> Result<String, HashQueueFull> {
        let (password, salt) = (password.clone(), entropy::bytes::<SALT_BYTES>(entropy));
        self.run(HashQueueOwner::Change(account), move || hashed(password.expose().as_bytes(), &salt)).await
    }

    /// Returns whether `given` is the password of this hash. Without a hash it returns false after the same time.
    ///
    /// # Errors
    /// [`HashQueueFull`].
    pub(super) async fn is_right(
        &self,
        given: &Secret,
        hash: Option<&str>,
        line: HashQueueOwner,
    ) -> Result<bool, HashQueueFull> {
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

    async fn nobody(&self, line: HashQueueOwner) -> Result<String, HashQueueFull> {
        let make = || self.run(line, || hashed(b"nobody's password", &[0; SALT_BYTES]));
        self.nobody.get_or_try_init(make).await.cloned()
    }

    async fn run<T: Send + 'static>(
        &self,
        line: HashQueueOwner,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, HashQueueFull> {
        let permits: Box<dyn Send> = match line {
            HashQueueOwner::Stranger(network) => Box::new(self.strangers.take(network).await.ok_or(HashQueueFull)?),
            HashQueueOwner::Known(account, user) => {
                let of_user = self.users.take(user).ok_or(HashQueueFull)?;
                Box::new((self.known.take(account).await.ok_or(HashQueueFull)?, of_user))
            }
            HashQueueOwner::Change(account) => Box::new(self.known.take(account).await.ok_or(HashQueueFull)?),
        };
        // The hash is completed even if the request is cancelled, so it owns the permits.
        let work = move || {
            let _permits = permits;
            work()
        };
        self.executor.run(work).await.map_err(|_| HashQueueFull)
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
    use std::sync::Arc;

    use crate::base::entropy::SeededEntropy;
    use crate::base::id::Ulid;

    const ACCOUNT: AccountId = AccountId(Ulid([1; 16]));
    const KNOWN: HashQueueOwner = HashQueueOwner::Known(ACCOUNT, UserId(Ulid([1; 16])));
    const STRANGER: HashQueueOwner = HashQueueOwner::Stranger(None);

    #[tokio::test]
    async fn a_hash_contains_its_parameters_and_matches_only_its_password() {
        let (passwords, entropy) = (Passwords::new(Executor::Threads), SeededEntropy::new(1));
        let password = NewPassword::generate(&entropy);
        let hash = passwords.hash(ACCOUNT, &password, &entropy).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert_ne!(passwords.hash(ACCOUNT, &password, &entropy).await.unwrap(), hash, "each hash has its own salt");
        let right = Secret::new(password.expose());
        assert!(passwords.is_right(&right, Some(&hash), STRANGER).await.unwrap());
        assert!(!passwords.is_right(&Secret::new("wrong"), Some(&hash), STRANGER).await.unwrap());
        assert!(!passwords.is_right(&Secret::new("nobody's password"), None, STRANGER).await.unwrap());
    }

    #[tokio::test]
    async fn a_crowd_of_strangers_never_blocks_known_users() {
        let (passwords, entropy) = (Passwords::new(Executor::Threads), SeededEntropy::new(1));
        let hash = passwords.hash(ACCOUNT, &NewPassword::generate(&entropy), &entropy).await.unwrap();
        let _occupied = passwords.occupy();
        let shown = Secret::new("wrong");
        assert!(passwords.is_right(&shown, Some(&hash), STRANGER).await.is_err());
        assert!(passwords.is_right(&shown, Some(&hash), KNOWN).await.is_ok());
    }

    #[tokio::test]
    async fn strangers_take_turns_by_network_and_a_known_user_never_waits_for_them() {
        let passwords = Arc::new(Passwords::new(Executor::Threads));
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
        let run = |line, work: Box<dyn FnOnce() + Send>| {
            let (passwords, done) = (Arc::clone(&passwords), done.clone());
            // The work itself reports its end: its caller may be woken after the next work has ended.
            let work = move || {
                work();
                done.send(line).unwrap();
            };
            tokio::spawn(async move { passwords.run(line, work).await.unwrap() })
        };
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(HashQueueOwner::stranger);
        drop(run(one, Box::new(move || assert!(held.recv().is_ok()))));
        while passwords.strangers.taken() == 0 {
            tokio::task::yield_now().await;
        }
        for line in [one, one, one, other] {
            let waiting = passwords.strangers.taken();
            drop(run(line, Box::new(|| ())));
            while passwords.strangers.taken() == waiting {
                tokio::task::yield_now().await;
            }
        }
        assert!(passwords.run(KNOWN, || ()).await.is_ok());
        release.send(()).unwrap();
        let mut ended = Vec::new();
        for _ in 0..5 {
            ended.push(order.recv().await.unwrap());
        }
        assert_eq!(ended, [one, one, other, one, one]);
    }

    #[tokio::test]
    async fn a_user_an_account_and_a_network_have_a_small_part_of_the_queue_each() {
        let passwords = Passwords::new(Executor::Threads);
        let user = UserId(Ulid([1; 16]));
        let of_user: Vec<_> = (0..KNOWN_OF_USER).map(|_| passwords.users.take(user).unwrap()).collect();
        assert_eq!(passwords.run(KNOWN, || ()).await, Err(HashQueueFull));
        assert!(passwords.run(HashQueueOwner::Known(ACCOUNT, UserId(Ulid([2; 16]))), || ()).await.is_ok());
        drop(of_user);
        let _of_account: Vec<_> = (0..KNOWN_OF_ACCOUNT).map(|_| passwords.known.occupy(ACCOUNT).unwrap()).collect();
        let site = HashQueueOwner::stranger("2001:db8:1:1::1");
        let HashQueueOwner::Stranger(network) = site else { unreachable!() };
        let _of_site: Vec<_> = (0..STRANGERS_OF_SITE).map(|_| passwords.strangers.occupy(network).unwrap()).collect();
        let other = AccountId(Ulid([2; 16]));
        for (line, is_served) in [
            (KNOWN, false),
            (HashQueueOwner::Change(ACCOUNT), false),
            (HashQueueOwner::Known(other, user), true),
            (site, false),
            (HashQueueOwner::stranger("2001:db8:1:2::1"), false),
            (HashQueueOwner::stranger("2001:db8:2::1"), true),
        ] {
            assert_eq!(passwords.run(line, || ()).await.is_ok(), is_served, "{line:?}");
        }
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
                passwords.run(STRANGER, work).await
            }
        });
        starts.recv().await.unwrap();
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
        assert_eq!(passwords.strangers.taken(), 1);
        release.send(()).unwrap();
        passwords.run(STRANGER, || ()).await.unwrap();
    }
}
