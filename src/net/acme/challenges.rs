//! Open ACME challenges, which prove to the authority that we control a name: the response to http-01 (RFC 8555 8.3)
//! and the certificate of tls-alpn-01 (RFC 8737).
//!
//! Orders add challenges here, and the listeners answer any client from them: challenges are not secret.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;

/// The ALPN protocol of tls-alpn-01 (RFC 8737 6.2).
pub const ALPN: &[u8] = b"acme-tls/1";

/// The challenges that are open now. Empty except for some seconds before each certificate is issued.
#[derive(Default)]
pub struct Challenges(Mutex<Open>);

#[derive(Default)]
struct Open {
    answers: BTreeMap<String, String>,
    certificates: BTreeMap<String, Arc<CertifiedKey>>,
}

/// One challenge response.
pub(in crate::net) enum ChallengeProof {
    /// The response to a token (http-01).
    Answer {
        /// The last part of the request path.
        token: String,
        /// The response body.
        answer: String,
    },
    /// The certificate for a name (tls-alpn-01).
    Certificate {
        /// The name, as lower-case A-labels.
        name: String,
        /// The certificate that carries the proof.
        certificate: Arc<CertifiedKey>,
    },
}

/// A published challenge response. Dropping this guard withdraws it.
pub(in crate::net) struct PublishedProof {
    challenges: Arc<Challenges>,
    key: Key,
}

enum Key {
    Token(String),
    Name(String),
}

impl Challenges {
    /// Returns the response to http-01 for `token`.
    pub fn answer(&self, token: &str) -> Option<String> {
        self.open().answers.get(token).cloned()
    }

    /// Returns the certificate for a handshake that offers only tls-alpn-01.
    pub fn certificate(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name()?.to_ascii_lowercase();
        self.open().certificates.get(&name).cloned()
    }

    /// Publishes `proof` until the returned guard is dropped.
    pub(in crate::net) fn give(self: &Arc<Self>, proof: ChallengeProof) -> PublishedProof {
        let mut open = self.open();
        let key = match proof {
            ChallengeProof::Answer { token, answer } => {
                open.answers.insert(token.clone(), answer);
                Key::Token(token)
            }
            ChallengeProof::Certificate { name, certificate } => {
                open.certificates.insert(name.clone(), certificate);
                Key::Name(name)
            }
        };
        PublishedProof { challenges: Arc::clone(self), key }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PublishedProof {
    fn drop(&mut self) {
        let mut open = self.challenges.open();
        match &self.key {
            Key::Token(token) => drop(open.answers.remove(token)),
            Key::Name(name) => drop(open.certificates.remove(name)),
        }
    }
}

impl fmt::Debug for Challenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Challenges").finish_non_exhaustive()
    }
}

/// Returns whether the handshake comes from an authority: it offers tls-alpn-01 and nothing else (RFC 8737 3).
pub fn is_asked_in(hello: &ClientHello<'_>) -> bool {
    hello.alpn().is_some_and(|mut offered| offered.next() == Some(ALPN) && offered.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_published_until_its_guard_is_dropped() {
        let challenges = Arc::new(Challenges::default());
        let given = challenges.give(ChallengeProof::Answer { token: "t".to_owned(), answer: "t.key".to_owned() });
        assert_eq!(challenges.answer("t").as_deref(), Some("t.key"));
        assert_eq!(challenges.answer("u"), None);
        drop(given);
        assert_eq!(challenges.answer("t"), None);
    }
}
