//! `GET /v1/backup`, for the operator only (contract 8 `backup`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

use crate::domain::violation::Violations;
use crate::engine::backup::BackupUnderWay;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::store::backup::Extent;

/// Streams a backup while it is taken. An interrupted download is detected by its format.
pub(in crate::http) async fn take(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let mut violations = Violations::new();
    let query = call.query(&["content", "master_key"], &mut violations);
    let content = query.parsed("content", &mut violations);
    let master_key = query.parsed("master_key", &mut violations);
    violations.or(|| Some(()))?;
    let extent = Extent { content: content.unwrap_or(false), master_key: master_key.unwrap_or(false) };
    let chunks = api.engine.back_up(extent).map_err(|BackupUnderWay| {
        ApiError::Conflict("A backup is already running. Try again when it has finished.".to_owned())
    })?;
    Ok(Answer::stream(StatusCode::OK, "application/octet-stream", Box::pin(Chunks(chunks))))
}

/// The response body: chunks of the backup, read from the store as the client takes them.
struct Chunks(mpsc::Receiver<io::Result<Bytes>>);

impl Body for Chunks {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(cx).map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}
