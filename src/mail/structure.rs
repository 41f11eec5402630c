//! Nesting depth and number of a message's parts. Limited in time and memory: one pass over the lines, one open
//! boundary per level, and it stops at the limits.

use super::content_type::parameter;
use super::section::line_length;
use crate::domain::limits::{MIME_DEPTH_COUNT, MIME_PARAMETERS_COUNT, MIME_PARTS_COUNT};

/// An open level: a multipart with its boundary, or an enclosed message without one.
type Level = Option<Vec<u8>>;

/// Kind of content that a part's Content-Type opens.
enum PartContent {
    Nothing,
    Multipart(Vec<u8>),
    Message,
}

/// Position of the scan.
enum Place {
    /// A header section; the content is the part of its Content-Type read so far.
    Header {
        content_type: Vec<u8>,
        continues: bool,
        /// Number of parameters that the field has so far, if it is one of MIME's.
        parameters: Option<usize>,
    },
    Body,
}

impl Place {
    const fn header() -> Self {
        Self::Header { content_type: Vec::new(), continues: false, parameters: None }
    }
}

/// Returns the structural limit that `message` exceeds, if any. The message has only CRLF line ends.
pub(super) fn fault(message: &[u8]) -> Option<&'static str> {
    let mut parts = 0;
    let mut open: Vec<Level> = Vec::new();
    let mut place = Place::header();
    let mut rest = message;
    while !rest.is_empty() {
        let (line, after) = rest.split_at(line_length(rest));
        rest = after;
        let line = line.strip_suffix(b"\r\n").unwrap_or(line);
        if let Some(next) = delimiter(line, &mut open) {
            place = next;
            parts += 1;
            if parts > MIME_PARTS_COUNT {
                return Some("must have at most 10,000 MIME parts");
            }
            continue;
        }
        place = match place {
            Place::Body => Place::Body,
            Place::Header { content_type, .. } if line.is_empty() => descend(&content_type, &mut open),
            Place::Header { content_type, continues, parameters } => {
                let parameters = count_parameters(line, parameters);
                if parameters.is_some_and(|count| count > MIME_PARAMETERS_COUNT) {
                    return Some("must have at most 100 parameters in a Content-Type or Content-Disposition");
                }
                read_line(line, content_type, continues, parameters)
            }
        };
        if open.len() > MIME_DEPTH_COUNT {
            return Some("MIME parts must be nested at most 20 deep");
        }
    }
    None
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
        PartContent::Nothing => Place::Body,
        PartContent::Multipart(boundary) => {
            open.push(Some(boundary));
            Place::Body
        }
        PartContent::Message => {
            open.push(None);
            Place::header()
        }
    }
}

/// Returns the number of parameters of the field to which `line` belongs, up to this line; `None` if the field has no
/// parameters. Semicolons in quoted strings count too. Readers join the pieces of a parameter (RFC 2231 3) in a time
/// that grows with the square of their number.
fn count_parameters(line: &[u8], of_field: Option<usize>) -> Option<usize> {
    let begins = |name: &[u8]| line.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name));
    let before = match line.first() {
        Some(b' ' | b'\t') => of_field?,
        _ if begins(b"content-type") || begins(b"content-disposition") => 0,
        _ => return None,
    };
    Some(before + line.iter().filter(|byte| **byte == b';').count())
}

fn read_line(line: &[u8], mut content_type: Vec<u8>, continues: bool, parameters: Option<usize>) -> Place {
    const NAME: &[u8] = b"content-type:";
    if matches!(line.first(), Some(b' ' | b'\t')) {
        if continues {
            content_type.extend_from_slice(line);
        }
        return Place::Header { content_type, continues, parameters };
    }
    let continues = line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME));
    if continues {
        content_type = line[NAME.len()..].to_vec();
    }
    Place::Header { content_type, continues, parameters }
}

fn opens(content_type: &[u8]) -> PartContent {
    let value = content_type.trim_ascii();
    let is = |kind: &[u8]| value.get(..kind.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(kind));
    if is(b"message/rfc822") || is(b"message/global") {
        return PartContent::Message;
    }
    match is(b"multipart/").then(|| parameter(value, "boundary")).flatten() {
        Some(boundary) if !boundary.is_empty() => PartContent::Multipart(boundary),
        Some(_) | None => PartContent::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_of(parts: usize) -> Vec<u8> {
        let mut message = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n".to_vec();
        for _ in 0..parts {
            message.extend_from_slice(b"--b\r\n\r\n");
        }
        message
    }

    #[test]
    fn a_message_has_at_most_10_000_parts() {
        assert_eq!(fault(&message_of(MIME_PARTS_COUNT)), None);
        assert_eq!(fault(&message_of(MIME_PARTS_COUNT + 1)), Some("must have at most 10,000 MIME parts"));
        let dashes = [b"\r\n".as_slice(), &b"--b\r\n".repeat(2 * MIME_PARTS_COUNT)].concat();
        assert_eq!(fault(&dashes), None, "lines of a text are no parts");
    }

    #[test]
    fn a_field_of_a_part_has_at_most_100_parameters() {
        let of = |fold: &str, count: usize| {
            let pieces: String = (0..count).map(|number| format!(";{fold}name*{number}=a")).collect();
            let part = format!("--b\r\nContent-Disposition: attachment{pieces}\r\nX-Note: {}\r\n\r\n", ";".repeat(200));
            [b"Content-Type: multipart/mixed; boundary=b\r\n\r\n".as_slice(), part.as_bytes()].concat()
        };
        let expected = Some("must have at most 100 parameters in a Content-Type or Content-Disposition");
        for fold in ["", "\r\n "] {
            assert_eq!(fault(&of(fold, MIME_PARAMETERS_COUNT)), None);
            assert_eq!(fault(&of(fold, MIME_PARAMETERS_COUNT + 1)), expected);
        }
        let first = b"Content-Type: text/plain; a=1\r\n".repeat(60);
        assert_eq!(fault(&first), None, "each field has its own count");
    }
}
