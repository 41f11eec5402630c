//! An account's suppressions as CSV: the body of `GET /v1/suppressions/export`, and of the panel's download.
//!
//! The next part is read when the client has taken the previous one, so that a list of a million needs the memory of
//! one part. Each part uses its own snapshot, so that a long download does not keep old database pages alive.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::handlers::suppression_list;
use super::parts_body::{PartSource, PartsBody};
use crate::base::id::AccountId;
use crate::engine::Engine;
use crate::engine::exports::{ExportError, ExportSlot};
use crate::engine::suppressions::SuppressionsAfter;
use crate::store::row::suppression::SuppressionRow;

/// Number of suppressions read at once.
const STEP: usize = 250;

/// Returns whether the client may still read the list.
type ListAccess = Box<dyn Fn() -> bool + Send>;

/// An unfinished export.
pub(crate) struct SuppressionExport {
    engine: Arc<Engine>,
    account: AccountId,
    still_may: ListAccess,
    /// Position after which the list continues; `None` after its last part.
    after: Option<SuppressionsAfter>,
    _slot: ExportSlot,
}

impl SuppressionExport {
    /// Starts the list of `account`, which continues for as long as `still_may` returns true. Reads the first part.
    ///
    /// # Errors
    /// [`ExportError`].
    pub(crate) async fn begin(
        engine: Arc<Engine>,
        (account, slot): (AccountId, ExportSlot),
        still_may: impl Fn() -> bool + Send + 'static,
    ) -> Result<PartsBody<Self>, ExportError> {
        let (still_may, after) = (Box::new(still_may), Some(SuppressionsAfter::default()));
        let mut export = Self { engine, account, still_may, after, _slot: slot };
        let text = export.read(suppression_list::head()).await?;
        Ok(PartsBody::new(text.into(), export))
    }

    /// Returns `text` with the next part.
    async fn read(&mut self, mut text: Vec<u8>) -> Result<Vec<u8>, ExportError> {
        let Some(after) = self.after.take() else { return Ok(text) };
        let write = move |rows: &[SuppressionRow]| {
            rows.iter().for_each(|row| suppression_list::write(&mut text, row));
            text
        };
        let (text, after) = self.engine.export_suppressions(self.account, after, STEP, write).await?;
        self.after = after;
        Ok(text)
    }
}

impl PartSource for SuppressionExport {
    async fn next(mut self) -> io::Result<Option<(Self, Bytes)>> {
        if self.after.is_none() {
            return Ok(None);
        }
        if !(self.still_may)() {
            return Err(io::Error::other("the client may no longer read the list"));
        }
        let text = self.read(Vec::new()).await.map_err(|error| {
            tracing::error!(%error, "could not read the rest of an export of suppressions; the download is aborted");
            io::Error::other("the export failed")
        })?;
        Ok(Some((self, text.into())))
    }
}
