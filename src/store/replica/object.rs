//! Sealing and opening objects under keys that are derived from the master key.

use std::sync::Arc;

use subtle::ConstantTimeEq as _;

use super::head::{Head, HeadFault};
use super::name::ObjectName;
use crate::base::entropy::Entropy;
use crate::base::id::Ulid;
use crate::base::secret::{MasterKey, Secret};
use crate::base::signature::hmac_sha256;

/// The body is sealed with AES-256-GCM.
const SEALED: u8 = 1;
/// The body is unencrypted and ends with an HMAC.
const CLEAR: u8 = 2;
const MAC: usize = 32;

/// Reason why an object can't be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectFault {
    /// The object's first line is malformed.
    #[error(transparent)]
    Head(#[from] HeadFault),
    /// The object's first line belongs to another object.
    #[error("its first line belongs to another object")]
    Misplaced,
    /// The object ends too early, or its content does not match its kind.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// The key does not open the object.
    #[error("it does not open: it is damaged, belongs to another store, or was sealed with another master key")]
    Unsealable,
    /// The object is empty: the key of a segment that has ended.
    #[error("it is empty")]
    Empty,
}

/// Seals and opens the objects of one store.
#[derive(Clone)]
pub struct Sealer {
    master: Arc<MasterKey>,
    store: Ulid,
    encrypts: bool,
}

impl Sealer {
    /// Creates a sealer for the objects of `store`, with the key `master`. Without `encrypts` bodies are written
    /// unencrypted, but still authenticated. Both forms are opened.
    pub const fn new(master: Arc<MasterKey>, store: Ulid, encrypts: bool) -> Self {
        Self { master, store, encrypts }
    }

    /// Returns the store's master key.
    pub fn master_key(&self) -> &MasterKey {
        &self.master
    }

    /// Returns the store whose objects it opens.
    pub const fn store(&self) -> Ulid {
        self.store
    }

    /// Returns the bytes of an object. `clear` are the fields between the line and the body.
    pub fn seal(&self, name: &ObjectName, head: &Head, clear: &[u8], body: &[u8], entropy: &dyn Entropy) -> Vec<u8> {
        self.seal_in(if self.encrypts { SEALED } else { CLEAR }, name, head, clear, body, entropy)
    }

    /// Returns the bytes of an object that is always encrypted, regardless of the configuration. Used for keys.
    pub fn seal_always(&self, name: &ObjectName, head: &Head, body: &[u8], entropy: &dyn Entropy) -> Vec<u8> {
        self.seal_in(SEALED, name, head, b"", body, entropy)
    }

    fn seal_in(
        &self,
        mode: u8,
        name: &ObjectName,
        head: &Head,
        clear: &[u8],
        body: &[u8],
        entropy: &dyn Entropy,
    ) -> Vec<u8> {
        let mut bytes = head.encode();
        bytes.push(mode);
        bytes.extend_from_slice(clear);
        let key = self.key(name, mode);
        if mode == SEALED {
            let mut sealed = encryption(&key).seal(&bytes, body, entropy).0;
            bytes.append(&mut sealed);
        } else {
            bytes.extend_from_slice(body);
            let mac = hmac_sha256(key.expose(), &[&bytes]);
            bytes.extend_from_slice(&mac);
        }
        bytes
    }

    /// Opens the object `name`, which has `clear` bytes between line and body.
    ///
    /// # Errors
    /// [`ObjectFault`]. Such an object can't be trusted.
    pub fn open(&self, name: &ObjectName, clear: usize, bytes: &[u8]) -> Result<(Head, Secret), ObjectFault> {
        let layout = Layout::of(bytes, clear)?;
        let (front, body) = bytes.split_at(layout.body_at);
        let key = self.key(name, layout.mode);
        if layout.mode == SEALED {
            let body = encryption(&key).open(front, body).map_err(|_| ObjectFault::Unsealable)?;
            return Ok((layout.head, body));
        }
        let at = bytes.len().checked_sub(MAC).filter(|at| *at >= front.len());
        let (covered, mac) = bytes.split_at(at.ok_or(ObjectFault::Damaged("it ends too early"))?);
        if !bool::from(hmac_sha256(key.expose(), &[covered]).ct_eq(mac)) {
            return Err(ObjectFault::Unsealable);
        }
        Ok((layout.head, Secret::new(&covered[front.len()..])))
    }

    /// Returns the first block of HKDF-Expand (RFC 5869 2.3), with the master key's derivation key as the pseudorandom
    /// key.
    fn key(&self, name: &ObjectName, mode: u8) -> Secret {
        let (name, purpose) = (name.to_string(), &b"postrider replica object "[..]);
        self.master.derive(&[purpose, &[mode], &self.store.0, name.as_bytes(), &[1]].concat())
    }
}

fn encryption(key: &Secret) -> MasterKey {
    let bytes = key.expose().try_into().unwrap_or_else(|_| unreachable!("a derived key has 32 bytes"));
    MasterKey::new(bytes)
}

/// Places of an object's parts, found without a key.
pub(super) struct Layout {
    pub(super) head: Head,
    mode: u8,
    /// Start of the unencrypted fields.
    pub(super) clear_at: usize,
    body_at: usize,
}

impl Layout {
    /// Returns the layout of an object with `clear` bytes between line and body.
    pub(super) fn of(bytes: &[u8], clear: usize) -> Result<Self, ObjectFault> {
        if bytes.is_empty() {
            return Err(ObjectFault::Empty);
        }
        let (head, rest) = Head::decode(bytes)?;
        let mode = match rest.first() {
            Some(&mode @ (SEALED | CLEAR)) => mode,
            Some(_) => return Err(ObjectFault::Damaged("its encryption mode is unknown")),
            None => return Err(ObjectFault::Damaged("it ends too early")),
        };
        let clear_at = bytes.len() - rest.len() + 1;
        let body_at = clear_at + clear;
        if body_at > bytes.len() {
            return Err(ObjectFault::Damaged("it ends too early"));
        }
        Ok(Self { head, mode, clear_at, body_at })
    }
}
