//! Slots of the log. Each contains the SHA-256 of the previous slot, so a removed, inserted or replaced slot is
//! detected at the next one.

use super::claim::{Claim, ClaimV1};
use super::head::{Head, Kind};
use super::name::ObjectName;
use super::object::{Layout, ObjectFault, Sealer};
use super::payload;
use crate::base::digest::{Digest, sha256};
use crate::base::entropy::Entropy;
use crate::store::content::compression;

/// Number of bytes between the line and the body: the row format and the digest of the previous slot.
const CLEAR: usize = 4 + 32;
/// Version of the bodies of claims.
const CLAIM_VERSION: u8 = 2;

/// A slot's place in the chain, which can be read without a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The first line. Its number is the slot's number.
    pub head: Head,
    /// Format of the rows in this epoch.
    pub row_format: u32,
    /// SHA-256 of the previous slot; zeros in the first one.
    pub previous: Digest,
}

/// The body of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotBody {
    /// Begins an epoch.
    Claim(Claim),
    /// A payload, as [`payload::pieces`] reads it.
    Batches(Vec<u8>),
    /// Only renews the lease.
    Beat,
    /// Ends the epoch in an orderly way.
    Release,
}

impl SlotBody {
    /// Returns the kind of a slot with this body.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Claim(_) => Kind::Claim,
            Self::Batches(_) => Kind::Batches,
            Self::Beat => Kind::Beat,
            Self::Release => Kind::Release,
        }
    }
}

impl Link {
    /// Reads the link of the slot `number`. The rest of the slot may be damaged.
    ///
    /// # Errors
    /// [`ObjectFault`], if the object is not a slot or has another number.
    pub fn read(number: u64, bytes: &[u8]) -> Result<Self, ObjectFault> {
        let layout = Layout::of(bytes, CLEAR)?;
        if !layout.head.kind.is_slot() || layout.head.number != number {
            return Err(ObjectFault::Misplaced);
        }
        let clear = &bytes[layout.clear_at..];
        let (row_format, clear) = clear.split_first_chunk().ok_or(ObjectFault::Damaged("it ends too early"))?;
        let (previous, _) = clear.split_first_chunk().ok_or(ObjectFault::Damaged("it ends too early"))?;
        Ok(Self { head: layout.head, row_format: u32::from_be_bytes(*row_format), previous: *previous })
    }

    /// Returns the bytes of the slot with this link and `body`, whose kind replaces the head's.
    pub fn seal(mut self, body: &SlotBody, sealer: &Sealer, entropy: &dyn Entropy) -> Vec<u8> {
        self.head.kind = body.kind();
        let name = ObjectName::Slot(self.head.number);
        let clear = [&self.row_format.to_be_bytes()[..], &self.previous].concat();
        sealer.seal(&name, &self.head, &clear, &encode(body), entropy)
    }

    /// Opens the slot `number`.
    ///
    /// # Errors
    /// [`ObjectFault`].
    pub fn open(number: u64, bytes: &[u8], sealer: &Sealer) -> Result<(Self, SlotBody), ObjectFault> {
        let link = Self::read(number, bytes)?;
        let (_, body) = sealer.open(&ObjectName::Slot(number), CLEAR, bytes)?;
        let body = decode(link.head.kind, body.expose()).ok_or(ObjectFault::Damaged("its body can't be read"))?;
        Ok((link, body))
    }
}

/// Returns the digest that the next slot contains.
pub fn digest(bytes: &[u8]) -> Digest {
    sha256(bytes)
}

fn encode(body: &SlotBody) -> Vec<u8> {
    match body {
        SlotBody::Claim(claim) => postcard::to_extend(claim, vec![CLAIM_VERSION])
            .unwrap_or_else(|_| unreachable!("postcard can encode a claim")),
        SlotBody::Batches(payload) => compression::compress(payload),
        SlotBody::Beat | SlotBody::Release => Vec::new(),
    }
}

fn decode(kind: Kind, body: &[u8]) -> Option<SlotBody> {
    Some(match kind {
        Kind::Claim => match body.split_first()? {
            (&CLAIM_VERSION, claim) => SlotBody::Claim(postcard::from_bytes(claim).ok()?),
            (1, claim) => SlotBody::Claim(postcard::from_bytes::<ClaimV1>(claim).ok()?.into()),
            _ => return None,
        },
        Kind::Batches => {
            let payload = compression::decompress(body).ok()?;
            SlotBody::Batches((payload.len() <= payload::PAYLOAD_BYTES_MAX).then_some(payload)?)
        }
        Kind::Beat => body.is_empty().then_some(SlotBody::Beat)?,
        Kind::Release => body.is_empty().then_some(SlotBody::Release)?,
        Kind::Store | Kind::Part | Kind::Manifest | Kind::Content | Kind::Key | Kind::Probe => return None,
    })
}
