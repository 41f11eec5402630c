//! Open ACME challenges: the answer to http-01 (RFC 8555 8.3) and the certificate of tls-alpn-01 (RFC 8737), which
//! prove to an authority that a name is ours.
//!
//! Orders put it here; the listeners give it to whoever asks, for it is no secret.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;

/// The protocol of tls-alpn-01 (RFC 8737 6.2).
pub const ALPN: &[u8] = b"acme-tls/1";

/// Challenges that are open now; empty except for some seconds before each certificate.
#[derive(Default)]
pub struct Challenges(Mutex<Open>);

#[derive(Default)]
struct Open {
    answers: BTreeMap<String, String>,
    certificates: BTreeMap<String, Arc<CertifiedKey>>,
}

/// One proof.
pub(in crate::net) enum Proof {
    /// The answer to a token.
    Answer {
        /// The last part of the path.
        token: String,
        /// The body.
        answer: String,
    },
    /// The certificate for a name.
    Certificate {
        /// In lower-case A-labels.
        name: String,
        /// The certificate that says so.
        certificate: Arc<CertifiedKey>,
    },
}

/// A proof that is given as long as this lives.
pub(in crate::net) struct Given {
    challenges: Arc<Challenges>,
    key: Key,
}

enum Key {
    Token(String),
    Name(String),
}

impl Challenges {
    /// The answer to http-01 for `token`.
    pub fn answer(&self, token: &str) -> Option<String> {
        self.open().answers.get(token).cloned()
    }

    /// The certificate for a handshake that asks for nothing but tls-alpn-01.
    pub fn certificate(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name()?.to_ascii_lowercase();
        self.open().certificates.get(&name).cloned()
    }

    /// Gives `proof` until what is returned is dropped.
    pub(in crate::net) fn give(self: &Arc<Self>, proof: Proof) -> Given {
        let mut open = self.open();
        let key = match proof {
            Proof::Answer { token, answer } => {
                open.answers.insert(token.clone(), answer);
                Key::Token(token)
            }
            Proof::Certificate { name, certificate } => {
                open.certificates.insert(name.clone(), certificate);
                Key::Name(name)
            }
        };
        Given { challenges: Arc::clone(self), key }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Given {
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

/// Whether a handshake is an authority's: it offers tls-alpn-01 and nothing else (RFC 8737 3).
pub fn is_asked_in(hello: &ClientHello<'_>) -> bool {
    hello.alpn().is_some_and(|mut offered| offered.next() == Some(ALPN) && offered.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_given_as_long_as_it_is_held() {
        let challenges = Arc::new(Challenges::default());
        let given = challenges.give(Proof::Answer { token: "t".to_owned(), answer: "t.key".to_owned() });
        assert_eq!(challenges.answer("t").as_deref(), Some("t.key"));
        assert_eq!(challenges.answer("u"), None);
        drop(given);
        assert_eq!(challenges.answer("t"), None);
    }
}
