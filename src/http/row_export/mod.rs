//! An account's messages or events as CSV or JSON lines, oldest first: the body of `/v1/messages/export` and
//! `/v1/events/export`, and of the panel's downloads.

mod columns;

use std::io;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::parts_body::{PartSource, PartsBody};
use super::view::message::MessageView;
use crate::base::time::Timestamp;
use crate::domain::violation::Violations;
use crate::engine::exports::{Export, ExportError, ExportPart};
use columns::{EVENT_COLUMNS, MESSAGE_COLUMNS, write_cells, write_head};

/// Maximum time that an export covers.
pub(crate) const SPAN_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Allowance for the transit time of a request whose span ends now.
const GRACE: Duration = Duration::from_secs(60);

/// The form of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ExportFormat {
    /// Comma-separated values. The first line has the column names.
    #[default]
    Csv,
    /// One JSON object per line.
    JsonLines,
}

/// Error: the text is not a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be csv or ndjson")]
pub(crate) struct InvalidFormat;

impl FromStr for ExportFormat {
    type Err = InvalidFormat;
    fn from_str(text: &str) -> Result<Self, InvalidFormat> {
        [Self::Csv, Self::JsonLines].into_iter().find(|format| format.as_str() == text).ok_or(InvalidFormat)
    }
}

impl ExportFormat {
    /// Returns the format's name, which is also the file extension.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::JsonLines => "ndjson",
        }
    }

    /// Returns the media type of the body.
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8",
            Self::JsonLines => "application/x-ndjson",
        }
    }
}

/// Returns the times between which an export's rows are, both exclusive. A span that ends now includes the rows of this
/// moment. A span that is too long goes to `violations`.
pub(crate) fn span(
    after: Option<Timestamp>,
    before: Option<Timestamp>,
    now: Timestamp,
    violations: &mut Violations,
) -> (Timestamp, Timestamp) {
    let end = before.unwrap_or(now);
    let grace = if before.is_none() { GRACE } else { Duration::ZERO };
    if after.is_some_and(|after| end.since(after) > SPAN_MAX + grace) {
        let end = if before.is_none() { "now; give before too" } else { "before" };
        violations.add("after", format!("must be at most 30 days before {end}"));
    }
    (after.unwrap_or(end - SPAN_MAX), before.unwrap_or_else(|| now.moved_by(1)))
}

/// Returns whether the client may still read.
type ExportAccess = Box<dyn Fn() -> bool + Send>;

/// The unread part of an export.
pub(crate) struct RowExport {
    export: Export,
    format: ExportFormat,
    still_may: ExportAccess,
    /// Time for judging whether the content of listed messages has expired.
    expiry: Timestamp,
}

impl RowExport {
    /// Starts `export`, which continues for as long as `still_may` returns true. Reads the first part.
    ///
    /// # Errors
    /// [`ExportError`].
    pub(crate) async fn begin(
        export: Export,
        format: ExportFormat,
        still_may: impl Fn() -> bool + Send + 'static,
        expiry: Timestamp,
    ) -> Result<PartsBody<Self>, ExportError> {
        let mut rows = Self { export, format, still_may: Box::new(still_may), expiry };
        let first = rows.read(true).await?.unwrap_or_default();
        Ok(PartsBody::new(first, rows))
    }

    /// Returns the next part; `None` at the end. The first part has the column names.
    async fn read(&mut self, is_first: bool) -> Result<Option<Bytes>, ExportError> {
        let (format, expiry) = (self.format, self.expiry);
        let written = self.export.next(move |part| {
            let mut text = Vec::new();
            if is_first && format == ExportFormat::Csv {
                write_head(&mut text, columns_of(part));
            }
            write(&mut text, part, format, expiry).map(|()| Bytes::from(text))
        });
        let written = written.await?.transpose();
        written.map_err(|error| {
            tracing::error!(%error, "could not write a row of an export; the export fails");
            ExportError::NotDone(crate::engine::background_thread::JobFailure::Failed)
        })
    }
}

impl PartSource for RowExport {
    async fn next(mut self) -> io::Result<Option<(Self, Bytes)>> {
        if !self.export.is_over() && !(self.still_may)() {
            return Err(io::Error::other("the client may no longer read the rows"));
        }
        let part = self.read(false).await.map_err(|error| {
            tracing::error!(%error, "could not read the rest of an export; the download is aborted");
            io::Error::other("the store failed")
        })?;
        Ok(part.map(|part| (self, part)))
    }
}

const fn columns_of(part: &ExportPart) -> &'static [&'static str] {
    match part {
        ExportPart::Messages(_) => &MESSAGE_COLUMNS,
        ExportPart::Events(_) => &EVENT_COLUMNS,
    }
}

/// Appends the rows of `part` to `text`.
fn write(text: &mut Vec<u8>, part: &ExportPart, format: ExportFormat, expiry: Timestamp) -> serde_json::Result<()> {
    let columns = columns_of(part);
    let mut line = |row: Row<'_>| {
        match (format, row) {
            (ExportFormat::Csv, row) => write_cells(text, columns, &row.value()?),
            (ExportFormat::JsonLines, Row::View(view)) => {
                serde_json::to_writer(&mut *text, view)?;
                text.push(b'\n');
            }
            (ExportFormat::JsonLines, Row::Json(json)) => {
                text.extend_from_slice(json);
                text.push(b'\n');
            }
        }
        Ok(())
    };
    match part {
        ExportPart::Messages(rows) => {
            rows.iter().try_for_each(|record| line(Row::View(&MessageView::in_list(record, expiry))))
        }
        ExportPart::Events(rows) => rows.iter().try_for_each(|json| line(Row::Json(json))),
    }
}

/// A row of an export.
enum Row<'a> {
    /// A message.
    View(&'a MessageView<'a>),
    /// The bytes of an event.
    Json(&'a [u8]),
}

impl Row<'_> {
    fn value(&self) -> serde_json::Result<Value> {
        match self {
            Self::View(view) => serde_json::to_value(view),
            Self::Json(json) => serde_json::from_slice(json),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn a_span_is_at_most_30_days_which_is_the_default() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let spanned = |after, before| {
            let mut violations = Violations::new();
            let span = span(after, before, now, &mut violations);
            violations.or(|| Some(span)).ok()
        };
        assert_eq!(spanned(None, None), Some((now - 30 * DAY, now.moved_by(1))));
        assert_eq!(spanned(None, Some(now - DAY)), Some((now - 31 * DAY, now - DAY)));
        assert_eq!(spanned(Some(now - 31 * DAY), Some(now - DAY)), Some((now - 31 * DAY, now - DAY)));
        assert_eq!(spanned(Some(now - 31 * DAY), None), None);
        assert_eq!(spanned(Some((now - 31 * DAY).moved_by(-1)), Some(now - DAY)), None);
        assert!(spanned(Some((now - 30 * DAY).moved_by(-1)), None).is_some(), "the request took a moment");
        assert!(spanned(Some(now), Some(now - DAY)).is_some(), "nothing is in it");
    }
}
