//! The relaxed canonicalization of DKIM (RFC 6376 3.4.2, 3.4.4): runs of white space become one space.

use aws_lc_rs::digest::{Context, SHA256};
use memchr::memchr;

/// Returns the SHA-256 of a body in its relaxed form, in one pass and without a copy. The body has only CRLF line ends.
pub(super) fn body_hash(body: &[u8]) -> Vec<u8> {
    let mut hash = Hash::new();
    // Empty lines count only if something follows them: those at the end are ignored.
    let mut pending_lines = 0_usize;
    let mut rest = body;
    while !rest.is_empty() {
        let (line, after) = memchr(b'\n', rest).map_or((rest, &[][..]), |place| (&rest[..place], &rest[place + 1..]));
        rest = after;
        let line = trimmed_end(line.strip_suffix(b"\r").unwrap_or(line));
        if line.is_empty() {
            pending_lines += 1;
            continue;
        }
        for _ in 0..std::mem::take(&mut pending_lines) {
            hash.update(b"\r\n");
        }
        compressed(line, |piece| hash.update(piece));
        hash.update(b"\r\n");
    }
    hash.finish()
}

/// Appends the relaxed form of a field without its line end: name in lower case, value unfolded.
pub(super) fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend(trimmed_end(name).iter().map(u8::to_ascii_lowercase));
    out.push(b':');
    let unfolded: Vec<u8> = value.iter().copied().filter(|c| !matches!(c, b'\r' | b'\n')).collect();
    let start = unfolded.iter().position(|c| !is_space(*c)).unwrap_or(unfolded.len());
    compressed(trimmed_end(&unfolded[start..]), |piece| out.extend_from_slice(piece));
}

/// Passes on `line`, whose trailing white space was removed, with one space for each run of white space.
fn compressed(line: &[u8], mut take: impl FnMut(&[u8])) {
    let mut rest = line;
    // Most lines are already canonical. All pairs are checked at once, in a vectorized loop, before the position of one
    // is searched.
    if pairs(line).fold(false, |found, pair| found | begins_run(pair)) {
        while let Some(place) = pairs(rest).position(begins_run) {
            take(&rest[..place]);
            take(b" ");
            let run = rest[place..].iter().take_while(|c| is_space(**c)).count();
            rest = &rest[place + run..];
        }
    }
    take(rest);
}

fn pairs(text: &[u8]) -> impl Iterator<Item = (u8, u8)> {
    text.iter().copied().zip(text.iter().skip(1).copied())
}

/// Returns whether a run of white space other than one space begins here.
const fn begins_run((first, second): (u8, u8)) -> bool {
    first == b'\t' || first == b' ' && is_space(second)
}

fn trimmed_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|c| !is_space(*c)).map_or(0, |place| place + 1);
    &text[..end]
}

const fn is_space(c: u8) -> bool {
    matches!(c, b' ' | b'\t')
}

/// SHA-256 with a small input buffer, since words are too short to be hashed one by one.
struct Hash {
    context: Context,
    buffer: Vec<u8>,
}

impl Hash {
    const BUFFER_BYTES: usize = 4096;

    fn new() -> Self {
        Self { context: Context::new(&SHA256), buffer: Vec::with_capacity(Self::BUFFER_BYTES) }
    }

    fn update(&mut self, piece: &[u8]) {
        if self.buffer.len() + piece.len() > Self::BUFFER_BYTES {
            self.context.update(&self.buffer);
            self.buffer.clear();
        }
        if piece.len() > Self::BUFFER_BYTES {
            self.context.update(piece);
        } else {
            self.buffer.extend_from_slice(piece);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.context.update(&self.buffer);
        self.context.finish().as_ref().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relaxed(name: &str, value: &str) -> String {
        let mut out = Vec::new();
        field(&mut out, name.as_bytes(), value.as_bytes());
        String::from_utf8(out).unwrap()
    }

    fn same_body(given: &str, canonical: &str) {
        let expected = aws_lc_rs::digest::digest(&SHA256, canonical.as_bytes());
        assert_eq!(body_hash(given.as_bytes()), expected.as_ref(), "{given:?}");
    }

    #[test]
    fn a_field_is_unfolded_and_its_white_space_compressed() {
        assert_eq!(relaxed("A", " X\r\n"), "a:X");
        assert_eq!(relaxed("B ", " Y\t\r\n\tZ  \r\n"), "b:Y Z");
        assert_eq!(relaxed("Subject", "  \t \r\n"), "subject:");
        assert_eq!(relaxed("Subject", "a b  c \t d"), "subject:a b c d");
    }

    #[test]
    fn a_body_loses_trailing_white_space_and_trailing_empty_lines() {
        same_body(" C \r\nD \t E\r\n\r\n\r\n", " C\r\nD E\r\n");
        same_body("", "");
        same_body("\r\n\r\n", "");
        same_body(" \t \r\n", "");
        same_body("a", "a\r\n");
        same_body("\r\n\r\na\r\n \r\nb", "\r\n\r\na\r\n\r\nb\r\n");
        same_body("\t\ta\t\r\n", " a\r\n");
        let long = "x".repeat(10_000);
        same_body(&format!("{long}  {long}"), &format!("{long} {long}\r\n"));
        same_body("  a \tb  \t c d\te \r\n", " a b c d e\r\n");
    }
}
