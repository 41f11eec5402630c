//! One reply of an SMTP server (RFC 5321 4.2), stored as received, and its parser.
//!
//! The parser accepts every legal form and some others in use (571, `250` without text, no blank after the code, bare
//! LF, Latin-1, codes that differ between lines). Its limits apply before a newline arrives, so that no server can make
//! it use more memory.

use std::borrow::Cow;

pub use crate::domain::enhanced_code::EnhancedCode;

/// Maximum length of a line in bytes, without its end. RFC 5321 4.5.3.1.5 says 512; longer ones exist.
pub const LINE_BYTES_MAX: usize = 4 * 1024;
/// Maximum size of a reply in bytes, without line ends.
pub const REPLY_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of lines of a reply.
pub const LINES_MAX: usize = 100;
/// Maximum length of [`Reply::text`] in bytes (contract 4).
pub const TEXT_BYTES_MAX: usize = 4 * 1024;

/// A complete reply: the code of its last line, and every byte as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The code of the last line, 200 to 599.
    pub code: u16,
    /// The lines as received, including the code, without line ends.
    pub lines: Vec<Vec<u8>>,
}

impl Reply {
    /// Returns whether the code is 2xx: success.
    pub const fn is_positive(&self) -> bool {
        self.code / 100 == 2
    }

    /// Returns whether the code is 4xx: temporary failure.
    pub const fn is_transient(&self) -> bool {
        self.code / 100 == 4
    }

    /// Returns whether the code is 5xx: permanent failure.
    pub const fn is_permanent(&self) -> bool {
        self.code / 100 == 5
    }

    /// Returns the reply as received: all lines with their codes, joined by `\n`, invalid UTF-8 replaced, at most 4
    /// KiB.
    pub fn text(&self) -> String {
        let joined = self.lines.join(&b'\n');
        let mut text = String::from_utf8_lossy(&joined).into_owned();
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text
    }

    /// Returns the text of all lines without codes and enhanced codes, as one line in lower case, for rules to search.
    /// At most 4 KiB. Words with an `@` are removed, because an address proves nothing about the refusal. A line that
    /// is not UTF-8 is read as Latin-1, which some servers still send.
    pub fn words(&self) -> String {
        let mut words = String::new();
        for line in &self.lines {
            let text = decoded(said(line));
            push_words(EnhancedCode::split_from(&text).map_or(&*text, |(_, rest)| rest), &mut words);
        }
        words
    }

    /// Returns the enhanced code (RFC 3463) of the last line, or else of the first line that has one. Only classes 2, 4
    /// and 5 are valid.
    pub fn enhanced(&self) -> Option<EnhancedCode> {
        let of = |line: &Vec<u8>| EnhancedCode::find(&decoded(said(line)));
        self.lines.last().and_then(of).or_else(|| self.lines.iter().find_map(of))
    }

    /// Returns the first word of the first line after its code: the server's name in a greeting or an EHLO answer.
    pub fn first_word(&self) -> Option<&str> {
        let word = said(self.lines.first()?).split(|byte| byte.is_ascii_whitespace()).find(|word| !word.is_empty())?;
        std::str::from_utf8(word).ok()
    }
}

/// Returns the words of a refusal that is not an SMTP reply, such as a DSN's diagnostic, in the form of
/// [`Reply::words`].
pub fn words_of(text: &str) -> String {
    let mut words = String::new();
    push_words(text, &mut words);
    words
}

/// Returns `text` without addresses in brackets or with a quoted local part: a sender chooses their words. Other
/// addresses are single words.
fn without_addresses(text: &str) -> Cow<'_, str> {
    if !text.contains('@') {
        return Cow::Borrowed(text);
    }
    let (mut rest, mut kept) = (text, String::new());
    while let Some(begin) = rest.find(['<', '"']) {
        let (length, is_address) = opened_part(&rest[begin..]);
        kept.push_str(&rest[..if is_address { begin } else { begin + length }]);
        rest = &rest[begin + length..];
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

/// Returns the length of the bracketed or quoted part at the start of `text`, and whether that part is an address.
fn opened_part(text: &str) -> (usize, bool) {
    if text.starts_with('<') {
        let end = text.find('>').filter(|end| text[..*end].contains('@'));
        return end.map_or((1, false), |end| (end + 1, true));
    }
    let mut is_escaped = false;
    let closing = text[1..].find(|character| {
        let closes = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        closes
    });
    let Some(quoted) = closing.map(|closing| closing + 2) else { return (1, false) };
    if !text[quoted..].starts_with('@') {
        return (quoted, false);
    }
    (text[quoted..].find(char::is_whitespace).map_or(text.len(), |domain| quoted + domain), true)
}

/// Appends the words of `text` in lower case, separated by one space, up to the size limit. Addresses are removed.
fn push_words(text: &str, words: &mut String) {
    for word in without_addresses(text).split_whitespace().filter(|word| !word.contains('@')) {
        if !words.is_empty() {
            words.push(' ');
        }
        words.extend(word.chars().flat_map(char::to_lowercase));
        if words.len() >= TEXT_BYTES_MAX {
            words.truncate(words.floor_char_boundary(TEXT_BYTES_MAX));
            return;
        }
    }
}

/// Returns the text of a line after its code.
pub(super) fn said(line: &[u8]) -> &[u8] {
    let text = line.get(3..).unwrap_or_default();
    text.strip_prefix(b" ").or_else(|| text.strip_prefix(b"-")).unwrap_or(text)
}

/// Decodes a line: as UTF-8, or else as Latin-1, whose bytes are Unicode's first code points.
fn decoded(line: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(line) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(line.iter().copied().map(char::from).collect()),
    }
}

/// Error: the bytes are not an SMTP reply, or exceed its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableReply {
    /// A line exceeds its limit.
    #[error("a line of the answer is longer than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// A reply exceeds its limit.
    #[error("the answer is longer than {REPLY_BYTES_MAX} bytes")]
    TooLong,
    /// A reply has too many lines.
    #[error("the answer has more than {LINES_MAX} lines")]
    TooManyLines,
    /// The line has no code of 200 to 599, or an invalid character after it.
    #[error("a line of the answer does not begin with a reply code of 200 to 599")]
    NoCode,
}

/// Parses replies from a byte stream, in pieces of any size.
#[derive(Debug, Default)]
pub struct ReplyParser {
    lines: Vec<Vec<u8>>,
    /// The incomplete current line.
    open: Vec<u8>,
    byte_count: usize,
}

impl ReplyParser {
    /// Creates a parser at the start of a reply.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether a reply has begun and is incomplete.
    pub const fn is_amid(&self) -> bool {
        !self.lines.is_empty() || !self.open.is_empty()
    }

    /// Reads bytes up to the end of one reply. Returns the number of bytes read (all, unless the reply ended), and the
    /// reply if it is complete.
    ///
    /// # Errors
    /// The bytes are not a reply or exceed a limit. The parser can't be used afterwards.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Option<Reply>), UnreadableReply> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            self.extend_line(&rest[..end])?;
            rest = &rest[end + 1..];
            if let Some(reply) = self.end_line()? {
                return Ok((bytes.len() - rest.len(), Some(reply)));
            }
        }
        self.extend_line(rest)?;
        Ok((bytes.len(), None))
    }

    fn extend_line(&mut self, piece: &[u8]) -> Result<(), UnreadableReply> {
        // The CR of a line of exactly the maximum length does not count.
        if self.open.len() + piece.len() > LINE_BYTES_MAX + 1 {
            return Err(UnreadableReply::LineTooLong);
        }
        self.byte_count += piece.len();
        if self.byte_count > REPLY_BYTES_MAX {
            return Err(UnreadableReply::TooLong);
        }
        self.open.extend_from_slice(piece);
        Ok(())
    }

    fn end_line(&mut self) -> Result<Option<Reply>, UnreadableReply> {
        let mut line = std::mem::take(&mut self.open);
        while line.last() == Some(&b'\r') {
            line.pop();
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(UnreadableReply::LineTooLong);
        }
        let code = code_of(&line).ok_or(UnreadableReply::NoCode)?;
        let is_last = match line.get(3) {
            None | Some(b' ' | b'\t') => true,
            Some(b'-') => false,
            // `550No such user`.
            Some(byte) if byte.is_ascii_alphabetic() || !byte.is_ascii() => true,
            Some(_) => return Err(UnreadableReply::NoCode),
        };
        if self.lines.len() == LINES_MAX {
            return Err(UnreadableReply::TooManyLines);
        }
        self.lines.push(line);
        if !is_last {
            return Ok(None);
        }
        self.byte_count = 0;
        Ok(Some(Reply { code, lines: std::mem::take(&mut self.lines) }))
    }
}

/// Parses the code at the start of a line. 1xx is invalid: none of our commands has such an answer (RFC 5321 4.2.1).
fn code_of(line: &[u8]) -> Option<u16> {
    let digits = line.get(..3)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    (200..=599).contains(&code).then_some(code)
}

#[cfg(test)]
mod tests;
