//! An account's suppressions as CSV: the body of `GET /v1/suppressions/export`, and of the panel's download.
//!
//! The next part is read when the client has taken the one before, so that a list of a million costs the memory of one
//! part. Each part has a snapshot of its own: a long download doesn't keep old pages of the database from reuse.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};

use super::handlers::suppression_list;
use crate::base::id::AccountId;
use crate::engine::Engine;
use crate::engine::suppressions::SuppressionsAfter;
use crate::store::error::StoreError;

/// Suppressions that are read at once.
const STEP: usize = 250;

/// Returns whether the client may still read the list.
type StillMay = Box<dyn Fn() -> bool + Send>;

/// The result of one step: the bytes to send, and the next step; nothing at the end.
type Stepped = io::Result<Option<(Export, Bytes)>>;

/// An export that is not at its end.
struct Export {
    engine: Arc<Engine>,
    account: AccountId,
    still_may: StillMay,
    /// Where the list goes on; none after its last part.
    after: Option<SuppressionsAfter>,
}

/// The body.
pub(crate) struct SuppressionExport {
    step: Pin<Box<dyn Future<Output = Stepped> + Send>>,
}

impl SuppressionExport {
    /// The list of `account`, for as long as `still_may` allows it. Reads the first part.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn begin(
        engine: Arc<Engine>,
        account: AccountId,
        still_may: impl Fn() -> bool + Send + 'static,
    ) -> Result<Self, StoreError> {
        let still_may = Box::new(still_may);
        let mut export = Export { engine, account, still_may, after: Some(SuppressionsAfter::default()) };
        let mut text = suppression_list::head();
        export.read(&mut text).await?;
        Ok(Self { step: Box::pin(async { Ok(Some((export, Bytes::from(text)))) }) })
    }
}

impl Export {
    /// Appends the next part to `text`.
    async fn read(&mut self, text: &mut String) -> Result<(), StoreError> {
        let Some(after) = self.after.take() else { return Ok(()) };
        let (rows, after) = self.engine.suppressions_after(self.account, after, STEP).await?;
        rows.iter().for_each(|row| suppression_list::write(text, row));
        self.after = after;
        Ok(())
    }
}

async fn step(mut export: Export) -> Stepped {
    if export.after.is_none() {
        return Ok(None);
    }
    if !(export.still_may)() {
        // An error, so that the client doesn't take the part that it has for the whole list.
        return Err(io::Error::other("the client may no longer read the list"));
    }
    let mut text = String::new();
    export.read(&mut text).await.map_err(|error| {
        tracing::error!(%error, "could not read the rest of an export of suppressions; the download is aborted");
        io::Error::other("the store failed")
    })?;
    Ok(Some((export, text.into())))
}

impl Body for SuppressionExport {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let (next, part) = match ready!(self.step.as_mut().poll(cx)) {
            Ok(Some((export, bytes))) => (Some(export), Some(Ok(Frame::data(bytes)))),
            Ok(None) => (None, None),
            Err(error) => (None, Some(Err(error))),
        };
        self.step = match next {
            Some(export) => Box::pin(step(export)),
            None => Box::pin(async { Ok(None) }),
        };
        Poll::Ready(part)
    }
}
