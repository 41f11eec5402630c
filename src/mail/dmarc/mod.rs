//! DMARC aggregate reports (RFC 9990, RFC 7489 C) out of the mail that brings them.
//!
//! [`read`] is called with whatever strangers sent. It is a pure function, it never panics, and each of its costs has a
//! limit below. A report over a limit is unreadable as a whole: none of it counts. Nothing is believed for being read;
//! who wrote a report is for its signature to prove, and even that proves nothing about what it says.

mod aggregate;
mod archive;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
mod xml;

pub use aggregate::{AggregateReport, Part, Source};

use aggregate::Builder;
use archive::{Budget, Kind, kind_of};

use super::report::MESSAGE_BYTES_MAX;
use super::report::entity::Entity;
use super::report::transfer_encoding::with_crlf;
use crate::base::time::Timestamp;
use crate::domain::hostname::DomainName;

/// Maximum number of unpacked bytes of a message's report, all members of its archive together.
pub const UNPACKED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Maximum number of members of an archive.
pub const MEMBERS_MAX: usize = 4;
/// Maximum depth of elements.
pub const DEPTH_MAX: usize = 32;
/// Maximum number of rows of a report.
pub const ROWS_MAX: usize = 50_000;
/// Maximum number of messages of a row.
pub const COUNT_MAX: u64 = 1_000_000_000;
/// Maximum length of a text in bytes. Longer ones are cut.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Maximum number of networks of a report that are told apart: twice what a day counts by themselves.
pub const NETWORKS_MAX: usize = 2000;
/// Maximum number of domains of ours in one report. Rows of further ones count for the policy's domain.
pub const PARTS_MAX: usize = 256;
/// Signing domains of one network that are counted at once.
pub const SIGNERS_MAX: usize = 8;
/// Multiparts inside multiparts that are searched for the report, the message included.
const MULTIPARTS_MAX: usize = 3;
/// The root of plain XML begins within so many bytes.
const ROOT_WITHIN_BYTES: usize = 4096;
/// The longest range of a report.
const RANGE_SECS_MAX: u64 = 7 * 24 * 3600;
/// Maximum distance of a range's end from now, in the future.
const AHEAD_SECS_MAX: u64 = 24 * 3600;
/// Maximum distance of a range's end from now, in the past.
const PAST_SECS_MAX: u64 = 60 * 24 * 3600;

/// The reason why a message's report can't be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreadable {
    /// Neither the message nor a part of it is a report.
    #[error("the message contains no aggregate report")]
    NoReport,
    /// The archive is damaged, encrypted, or of a kind that is not read.
    #[error("the archive is damaged or of an unknown kind")]
    Archive,
    /// The archive has too many members.
    #[error("the archive has more than {MEMBERS_MAX} members")]
    TooManyMembers,
    /// A member is an archive.
    #[error("the archive contains an archive")]
    Nested,
    /// The report is too large once it is unpacked.
    #[error("the report has more than {UNPACKED_BYTES_MAX} bytes when unpacked")]
    TooLarge,
    /// The document declares its own type.
    #[error("the document has a DOCTYPE")]
    DocumentType,
    /// The document is no well-formed XML, or was cut off.
    #[error("the document is not well-formed XML")]
    Malformed,
    /// Elements are nested too deeply.
    #[error("elements are nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    /// There are too many rows.
    #[error("the report has more than {ROWS_MAX} rows")]
    TooManyRows,
    /// An element that is needed is missing.
    #[error("org_name, report_id, date_range or the policy's domain is missing")]
    Incomplete,
    /// The range is too long, too old, or in the future.
    #[error("the date range is too long, too old or in the future")]
    Range,
}

/// The domains whose reports count.
pub trait NamesOfOurs {
    /// The place of a domain that may be sent from, counted from 0.
    fn domain(&mut self, name: &DomainName) -> Option<usize>;
    /// Whether the domain at this place signs, or ever signed, with this selector.
    fn has_selector(&self, domain: usize, selector: &str) -> bool;
}

/// Reads the reports of a message: one for each document of its archive, as a rule a single one.
///
/// # Errors
/// The reason why nothing of it counts.
pub fn read(message: &[u8], now: Timestamp, names: &mut dyn NamesOfOurs) -> Result<Vec<AggregateReport>, Unreadable> {
    let message = with_crlf(message);
    let entity = Entity::read(&message).ok_or(Unreadable::NoReport)?;
    let mut budget = Budget(UNPACKED_BYTES_MAX);
    let mut reports = Vec::new();
    read_entity(&entity, 0, &mut budget, names, &mut reports)?;
    let is_timely = |report: &AggregateReport| is_timely(report, now.as_secs());
    if reports.is_empty() {
        return Err(Unreadable::NoReport);
    }
    if reports.iter().all(is_timely) { Ok(reports) } else { Err(Unreadable::Range) }
}

/// Reads the report of an entity: its own content, or that of the first part that is one.
fn read_entity(
    entity: &Entity<'_>,
    depth: usize,
    budget: &mut Budget,
    names: &mut dyn NamesOfOurs,
    reports: &mut Vec<AggregateReport>,
) -> Result<(), Unreadable> {
    if entity.media_type().starts_with("multipart/") {
        if depth == MULTIPARTS_MAX {
            return Ok(());
        }
        for part in entity.parts() {
            if let Some(part) = Entity::read(part) {
                read_entity(&part, depth + 1, budget, names, reports)?;
            }
            if !reports.is_empty() {
                break;
            }
        }
        return Ok(());
    }
    let content = entity.bytes(MESSAGE_BYTES_MAX);
    match kind_of(&content) {
        Kind::Gzip | Kind::Zip => read_content(&content, budget, names, reports),
        Kind::Xml if is_report(&content) => read_content(&content, budget, names, reports),
        Kind::Xml | Kind::Other => Ok(()),
    }
}

/// Reads every document of an archive.
fn read_content(
    content: &[u8],
    budget: &mut Budget,
    names: &mut dyn NamesOfOurs,
    reports: &mut Vec<AggregateReport>,
) -> Result<(), Unreadable> {
    archive::unpack(content, budget, &mut |document| {
        let mut builder = Builder::new(names);
        xml::read(document, &mut builder)?;
        reports.push(builder.finish()?);
        Ok(())
    })
}

/// Whether markup may be a report: a note in HTML often stands beside one.
fn is_report(content: &[u8]) -> bool {
    let start = &content[..content.len().min(ROOT_WITHIN_BYTES)];
    ["<feedback", ":feedback"].iter().any(|root| memchr::memmem::find(start, root.as_bytes()).is_some())
}

fn is_timely(report: &AggregateReport, now: u64) -> bool {
    let is_ordered = report.begin <= report.end && report.end - report.begin <= RANGE_SECS_MAX;
    is_ordered && report.end <= now.saturating_add(AHEAD_SECS_MAX) && report.end >= now.saturating_sub(PAST_SECS_MAX)
}
