//! The object `store`: identity and format of the store in the bucket. It is unencrypted, because it is read before the
//! store is known. It contains a proof of the master key, so that a wrong key is reported as such.

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use super::head::{Head, Kind};
use super::object::ObjectFault;
use crate::base::id::Ulid;
use crate::base::secret::MasterKey;

/// Identity of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Identifier of the store.
    pub store: Ulid,
    /// Format of the rows when the bucket was first used.
    pub row_format: u32,
    /// The first line, with holder and time.
    pub head: Head,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    store: String,
    row_format: u32,
    proof: String,
}

impl Identity {
    /// Returns the bytes of the object.
    pub fn encode(&self, master: &MasterKey) -> Vec<u8> {
        let (kind, number) = (Kind::Store, 0);
        let head = Head { kind, number, ..self.head.clone() };
        let (store, row_format) = (self.store.to_string(), self.row_format);
        let proof = proof(master, &head, &store, row_format);
        let body = serde_json::to_string(&Body { store, row_format, proof })
            .unwrap_or_else(|_| unreachable!("JSON can encode an identity"));
        [head.encode(), body.into_bytes(), vec![b'\n']].concat()
    }

    /// Reads the object.
    ///
    /// # Errors
    /// [`ObjectFault::Unsealable`] if another master key wrote it; other faults if it is damaged.
    pub fn decode(bytes: &[u8], master: &MasterKey) -> Result<Self, ObjectFault> {
        let damaged = || ObjectFault::Damaged("its body can't be read");
        let (head, rest) = Head::decode(bytes)?;
        if head.kind != Kind::Store {
            return Err(ObjectFault::Misplaced);
        }
        let body: Body = serde_json::from_slice(rest).map_err(|_| damaged())?;
        let expected = proof(master, &head, &body.store, body.row_format);
        if !bool::from(expected.as_bytes().ct_eq(body.proof.as_bytes())) {
            return Err(ObjectFault::Unsealable);
        }
        let store = body.store.parse().map_err(|_| damaged())?;
        Ok(Self { store, row_format: body.row_format, head })
    }
}

fn proof(master: &MasterKey, head: &Head, store: &str, row_format: u32) -> String {
    let purpose = [b"postrider replica store ", &head.encode()[..], store.as_bytes(), &row_format.to_be_bytes()];
    hex::encode(master.derive(&purpose.concat()).expose())
}
