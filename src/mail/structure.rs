//! Nesting depth of a message's parts. Limited in time and memory: one pass over the lines, one open boundary per
//! level, and it stops at the limit.

use super::content_type::parameter;
use super::section::line_length;

/// An open level: a multipart with its boundary, or an enclosed message without one.
type Level = Option<Vec<u8>>;

/// Kind of content that a part's Content-Type opens.
enum Opens {
    Nothing,
    Multipart(Vec<u8>),
    Message,
}

/// Position of the scan.
enum Place {
    /// In a header section; the content is the part of its Content-Type read so far.
    Header {
        content_type: Vec<u8>,
        continues: bool,
    },
    Body,
}

impl Place {
    const fn header() -> Self {
        Self::Header { content_type: Vec::new(), continues: false }
    }
}

/// Returns whether `message`, which has only CRLF line ends, has more than `limit` nested levels.
pub(super) fn is_deeper_than(message: &[u8], limit: usize) -> bool {
    let mut open: Vec<Level> = Vec::new();
    let mut place = Place::header();
    let mut rest = message;
    while !rest.is_empty() {
        let (line, after) = rest.split_at(line_length(rest));
        rest = after;
        let line = line.strip_suffix(b"\r\n").unwrap_or(line);
        if let Some(next) = delimiter(line, &mut open) {
            place = next;
            continue;
        }
        place = match place {
            Place::Body => Place::Body,
            Place::Header { content_type, .. } if line.is_empty() => descend(&content_type, &mut open),
            Place::Header { content_type, continues } => read_line(line, content_type, continues),
        };
        if open.len() > limit {
            return true;
        }
    }
    false
}

/// Closes the levels that a delimiter line ends; `None` if the line is not a delimiter (RFC 2046 5.1.1).
fn delimiter(line: &[u8], open: &mut Vec<Level>) -> Option<Place> {
    let text = line.strip_prefix(b"--")?.trim_ascii_end();
    let level = open.iter().rposition(|level| tail(text, level).is_some())?;
    if tail(text, &open[level]) == Some(b"--") {
        open.truncate(level);
        Some(Place::Body)
    } else {
        open.truncate(level + 1);
        Some(Place::header())
    }
}

/// Returns the text after the boundary of `level` on its delimiter line: nothing, or `--` on the last.
fn tail<'l>(text: &'l [u8], level: &Level) -> Option<&'l [u8]> {
    let tail = text.strip_prefix(level.as_deref()?)?;
    (tail.is_empty() || tail == b"--").then_some(tail)
}

fn descend(content_type: &[u8], open: &mut Vec<Level>) -> Place {
    match opens(content_type) {
        Opens::Nothing => Place::Body,
        Opens::Multipart(boundary) => {
            open.push(Some(boundary));
            Place::Body
        }
        Opens::Message => {
            open.push(None);
            Place::header()
        }
    }
}

fn read_line(line: &[u8], mut content_type: Vec<u8>, continues: bool) -> Place {
    const NAME: &[u8] = b"content-type:";
    if matches!(line.first(), Some(b' ' | b'\t')) {
        if continues {
            content_type.extend_from_slice(line);
        }
        return Place::Header { content_type, continues };
    }
    let continues = line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME));
    if continues {
        content_type = line[NAME.len()..].to_vec();
    }
    Place::Header { content_type, continues }
}

fn opens(content_type: &[u8]) -> Opens {
    let value = content_type.trim_ascii();
    let is = |kind: &[u8]| value.get(..kind.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(kind));
    if is(b"message/rfc822") || is(b"message/global") {
        return Opens::Message;
    }
    match is(b"multipart/").then(|| parameter(value, "boundary")).flatten() {
        Some(boundary) if !boundary.is_empty() => Opens::Multipart(boundary),
        Some(_) | None => Opens::Nothing,
    }
}
