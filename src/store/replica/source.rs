//! Reads for the shipper from an open store beside its records: sealed bodies and the keys of their segments.

use crate::base::time::Timestamp;
use crate::store::Store;
use crate::store::content::{Place, Unreadable};
use crate::store::error::StoreError;

impl Store {
    /// Returns the sealed bytes of the body at `place`; `None` after its deadline.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn sealed_body(&self, place: &Place) -> Result<Option<Vec<u8>>, StoreError> {
        self.sealed_bytes((place.bucket, place.segment), place.offset, place.length)
    }

    /// Returns bytes of a content segment from `offset` on; `None` after its deadline.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn sealed_bytes(
        &self,
        segment: (Timestamp, u32),
        offset: u64,
        length: u32,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let mut bytes = vec![0; length as usize];
        match self.content.read_sealed(segment, offset, &mut bytes) {
            Ok(()) => Ok(Some(bytes)),
            Err(Unreadable::Gone) => Ok(None),
            Err(Unreadable::Failed(error)) => Err(error),
        }
    }

    /// Returns the key of a content segment, sealed under the master key; `None` after its deadline.
    pub fn sealed_key(&self, bucket: Timestamp, segment: u32) -> Option<Vec<u8>> {
        let key = self.content.sealed_keys(std::iter::once((bucket, segment)));
        (!key.is_empty()).then_some(key)
    }
}
