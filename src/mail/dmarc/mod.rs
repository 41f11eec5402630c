//! DMARC aggregate reports (RFC 9990, RFC 7489 C), read from mail.
//!
//! [`read`] is called with untrusted mail. It is a pure function and never panics, and each of its costs has a limit
//! below. A report over a limit is unreadable as a whole: none of it counts. The content is never trusted: a signature
//! proves the author of a report, not the truth of its content.

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
use crate::domain::dmarc_source::SourceNetwork;
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
/// Maximum number of networks counted separately in a report for one domain, besides the domain's own: twice what a day
/// counts separately.
pub const NETWORKS_MAX: usize = 2000;
/// Maximum number of our domains in one report. Rows of further ones count for the policy's domain.
pub const PARTS_MAX: usize = 256;
/// Maximum number of signing domains of one network that are counted.
pub const SIGNERS_MAX: usize = 8;
/// Maximum depth of multiparts that are searched for the report, including the message.
const MULTIPARTS_MAX: usize = 3;
/// Number of leading bytes that must contain the name of the root element of plain XML.
const ROOT_WITHIN_BYTES: usize = 4096;
/// Maximum length of a report's range in seconds.
const RANGE_SECS_MAX: u64 = 7 * 24 * 3600;
/// Maximum number of seconds by which a range may end in the future.
const AHEAD_SECS_MAX: u64 = 24 * 3600;
/// Maximum number of seconds by which a range may have ended in the past.
const PAST_SECS_MAX: u64 = 60 * 24 * 3600;

/// Reasons for an unreadable report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreadable {
    /// The message and its parts contain no report.
    #[error("the message contains no aggregate report")]
    NoReport,
    /// The archive is damaged, encrypted, or of an unsupported kind.
    #[error("the archive is damaged or of an unknown kind")]
    Archive,
    /// The archive has too many members.
    #[error("the archive has more than {MEMBERS_MAX} members")]
    TooManyMembers,
    /// A member is an archive.
    #[error("the archive contains an archive")]
    Nested,
    /// The unpacked report is too large.
    #[error("the report has more than {UNPACKED_BYTES_MAX} bytes when unpacked")]
    TooLarge,
    /// The document has a document type declaration.
    #[error("the document has a DOCTYPE")]
    DocumentType,
    /// The document is not well-formed XML, or incomplete.
    #[error("the document is not well-formed XML")]
    Malformed,
    /// Elements are nested too deeply.
    #[error("elements are nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    /// The report has too many rows.
    #[error("the report has more than {ROWS_MAX} rows")]
    TooManyRows,
    /// A required element is missing.
    #[error("org_name, report_id, date_range or the policy's domain is missing")]
    Incomplete,
    /// The range is too long, too old, or in the future.
    #[error("the date range is too long, too old or in the future")]
    Range,
}

/// Our domains. Only reports about them count.
pub trait OwnDomains {
    /// Returns the index of a sending domain, counted from 0.
    fn domain(&mut self, name: &DomainName) -> Option<usize>;
    /// Returns whether the domain at this index signs, or ever signed, with this selector.
    fn has_selector(&self, domain: usize, selector: &str) -> bool;
    /// Returns whether the domain at this index sends from a network. Its messages are always counted separately.
    fn is_own_network(&mut self, domain: usize, network: SourceNetwork) -> bool;
}

/// Reads the reports of a message: one for each document of its archive, usually a single one.
///
/// # Errors
/// The reason why the whole message does not count.
pub fn read(message: &[u8], now: Timestamp, names: &mut dyn OwnDomains) -> Result<Vec<AggregateReport>, Unreadable> {
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

/// Reads the report of an entity: its own content, or the first part that is a report.
fn read_entity(
    entity: &Entity<'_>,
    depth: usize,
    budget: &mut Budget,
    names: &mut dyn OwnDomains,
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
    names: &mut dyn OwnDomains,
    reports: &mut Vec<AggregateReport>,
) -> Result<(), Unreadable> {
    archive::unpack(content, budget, &mut |document| {
        let mut builder = Builder::new(names);
        xml::read(document, &mut builder)?;
        reports.push(builder.finish()?);
        Ok(())
    })
}

/// Returns whether the root element is that of a report. A mail often has an HTML note beside its report.
fn is_report(content: &[u8]) -> bool {
    let mut rest = &content[..content.len().min(ROOT_WITHIN_BYTES)];
    while let Some(open) = memchr::memchr(b'<', rest) {
        let tag = &rest[open + 1..];
        let end: &[u8] = if tag.starts_with(b"!--") { b"-->" } else { b">" };
        if !tag.starts_with(b"?") && !tag.starts_with(b"!") {
            let name = tag.split(|byte| byte.is_ascii_whitespace() || b"/>".contains(byte)).next().unwrap_or_default();
            return name.rsplit(|byte| *byte == b':').next() == Some(b"feedback");
        }
        let Some(after) = memchr::memmem::find(tag, end) else { return false };
        rest = &tag[after + end.len()..];
    }
    false
}

fn is_timely(report: &AggregateReport, now: u64) -> bool {
    let is_ordered = report.begin <= report.end && report.end - report.begin <= RANGE_SECS_MAX;
    is_ordered && report.end <= now.saturating_add(AHEAD_SECS_MAX) && report.end >= now.saturating_sub(PAST_SECS_MAX)
}
