//! One reply of an SMTP server (RFC 5321 4.2), kept as received, and the parser that reads it off the wire.
//!
//! The parser takes every legal shape and those that merely exist (571, `250` without text, bare LF, Latin-1, codes
//! that differ from line to line); its caps hold before a newline arrives, so no server can make it grow.

pub use crate::domain::enhanced_code::EnhancedCode;

/// The longest line read, without its end. RFC 5321 4.5.3.1.5 says 512; longer ones exist.
pub const LINE_OCTETS_MAX: usize = 4 * 1024;
/// The largest reply read, line ends not counted.
pub const REPLY_OCTETS_MAX: usize = 64 * 1024;
/// The most lines of one reply.
pub const LINES_MAX: usize = 100;
/// The most that [`Reply::text`] returns (contract 4).
pub const TEXT_OCTETS_MAX: usize = 4 * 1024;

/// A whole reply: the code of its last line, and every byte as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The three digits of the last line, 200 to 599.
    pub code: u16,
    /// The lines as received, code included, without their line ends.
    pub lines: Vec<Vec<u8>>,
}

impl Reply {
    /// 2xx: done.
    pub const fn is_positive(&self) -> bool {
        self.code / 100 == 2
    }

    /// 4xx: not now.
    pub const fn is_transient(&self) -> bool {
        self.code / 100 == 4
    }

    /// 5xx: not at all.
    pub const fn is_permanent(&self) -> bool {
        self.code / 100 == 5
    }

    /// The answer as received: all lines, code included, joined by `\n`, invalid UTF-8 replaced, at most 4 KiB.
    pub fn text(&self) -> String {
        let joined = self.lines.join(&b'\n');
        let mut text = String::from_utf8_lossy(&joined).into_owned();
        text.truncate(text.floor_char_boundary(TEXT_OCTETS_MAX));
        text
    }

    /// What the lines say after their codes, and after their enhanced codes, in one line and in lower case: what rules
    /// look for phrases in. Words that hold an `@` are left out, for an address proves nothing about the refusal.
    pub fn words(&self) -> String {
        let mut words = String::new();
        for line in &self.lines {
            let text = String::from_utf8_lossy(line.get(4..).unwrap_or_default());
            let text = EnhancedCode::split_from(&text).map_or(&*text, |(_, rest)| rest);
            push_words(text, &mut words);
        }
        words
    }

    /// The enhanced code (RFC 3463): the last line's, else the first that any line has; a class other than 2, 4 and 5
    /// is none.
    pub fn enhanced(&self) -> Option<EnhancedCode> {
        let of = |line: &Vec<u8>| EnhancedCode::find(&String::from_utf8_lossy(line.get(4..)?));
        self.lines.last().and_then(of).or_else(|| self.lines.iter().find_map(of))
    }

    /// The first word of the first line after its code: a greeting's or an EHLO answer's name for the server.
    pub fn first_word(&self) -> Option<&str> {
        let line = self.lines.first()?.get(4..)?;
        let word = line.split(|byte| byte.is_ascii_whitespace()).find(|word| !word.is_empty())?;
        std::str::from_utf8(word).ok()
    }
}

/// The words of a refusal that came by other ways than a reply, such as a DSN's diagnostic, as [`Reply::words`] has
/// them.
pub fn words_of(text: &str) -> String {
    let mut words = String::new();
    push_words(text, &mut words);
    words
}

/// Appends the words of `text` in lower case, each with one space before the next; addresses are left out.
fn push_words(text: &str, words: &mut String) {
    for word in text.split_whitespace().filter(|word| !word.contains('@')) {
        if !words.is_empty() {
            words.push(' ');
        }
        words.extend(word.chars().flat_map(char::to_lowercase));
    }
}

/// What came is no SMTP reply, or too much of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableReply {
    /// A line that goes on past its cap.
    #[error("a line of the answer is longer than {LINE_OCTETS_MAX} octets")]
    LineTooLong,
    /// A reply that goes on past its cap.
    #[error("the answer is longer than {REPLY_OCTETS_MAX} octets")]
    TooLong,
    /// Continuation lines without end.
    #[error("the answer has more than {LINES_MAX} lines")]
    TooManyLines,
    /// No code of 200 to 599, or something odd behind it.
    #[error("a line of the answer does not begin with a reply code of 200 to 599")]
    NoCode,
}

/// Reads replies off a stream of bytes, in whatever pieces they come.
#[derive(Debug, Default)]
pub struct ReplyParser {
    lines: Vec<Vec<u8>>,
    /// The line that has begun and not yet ended.
    open: Vec<u8>,
    octets: usize,
}

impl ReplyParser {
    /// A parser at the start of a reply.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a reply has begun that is not yet whole.
    pub const fn is_amid(&self) -> bool {
        !self.lines.is_empty() || !self.open.is_empty()
    }

    /// Takes bytes up to the end of one reply: how many it took (all, unless the reply ended), and the reply if whole.
    ///
    /// # Errors
    /// Where the bytes are no reply or pass a cap; the parser is of no further use then.
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
        // The CR of a line of just the permitted length counts for nothing.
        if self.open.len() + piece.len() > LINE_OCTETS_MAX + 1 {
            return Err(UnreadableReply::LineTooLong);
        }
        self.octets += piece.len();
        if self.octets > REPLY_OCTETS_MAX {
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
        if line.len() > LINE_OCTETS_MAX {
            return Err(UnreadableReply::LineTooLong);
        }
        let code = code_of(&line).ok_or(UnreadableReply::NoCode)?;
        let is_last = match line.get(3) {
            None | Some(b' ' | b'\t') => true,
            Some(b'-') => false,
            Some(_) => return Err(UnreadableReply::NoCode),
        };
        if self.lines.len() == LINES_MAX {
            return Err(UnreadableReply::TooManyLines);
        }
        self.lines.push(line);
        if !is_last {
            return Ok(None);
        }
        self.octets = 0;
        Ok(Some(Reply { code, lines: std::mem::take(&mut self.lines) }))
    }
}

/// The code at the start of a line. 1xx is none: no command of ours has such an answer (RFC 5321 4.2.1).
fn code_of(line: &[u8]) -> Option<u16> {
    let digits = line.get(..3)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    (200..=599).contains(&code).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Reply, UnreadableReply> {
        let (used, reply) = ReplyParser::new().feed(bytes)?;
        assert_eq!(used, bytes.len(), "a test's reply is whole");
        Ok(reply.unwrap())
    }

    #[test]
    fn every_shape_that_servers_really_send_is_read() {
        for (bytes, code, text) in [
            (&b"250 ok\r\n"[..], 250, "250 ok"),
            (b"250\r\n", 250, "250"),
            (b"250 \r\n", 250, "250 "),
            (b"250 ok\n", 250, "250 ok"),
            (b"571 5.7.1 no\r\n", 571, "571 5.7.1 no"),
            (b"599 odd\r\n", 599, "599 odd"),
            (b"550 bo\xeete pleine\r\n", 550, "550 bo\u{fffd}te pleine"),
            (b"250-a\r\n250-\r\n250 b\r\n", 250, "250-a\n250-\n250 b"),
            (b"250-a\r\n550 b\r\n", 550, "250-a\n550 b"),
            (b"550-a\n550\n", 550, "550-a\n550"),
        ] {
            let reply = parse(bytes).unwrap();
            assert_eq!((reply.code, reply.text().as_str()), (code, text));
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bytes in [
            &b"100 go on\r\n"[..],
            b"\r\n",
            b"25\r\n",
            b"600 no\r\n",
            b"2500 no\r\n",
            b"HTTP/1.1 400\r\n",
            b"250_x\r\n",
        ] {
            assert_eq!(parse(bytes), Err(UnreadableReply::NoCode), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_reply_in_single_bytes_is_the_same_reply() {
        let bytes = b"250-one\r\n250-two\n250 three\r\n";
        let mut parser = ReplyParser::new();
        let replies: Vec<_> = bytes.iter().filter_map(|byte| parser.feed(&[*byte]).unwrap().1).collect();
        assert_eq!(replies, [parse(bytes).unwrap()]);
        assert!(!parser.is_amid());
    }

    #[test]
    fn the_caps_hold_before_a_newline_arrives() {
        let mut parser = ReplyParser::new();
        let fed = std::iter::repeat_with(|| parser.feed(&[b'2'; 512])).take(10).find_map(Result::err);
        assert_eq!(fed, Some(UnreadableReply::LineTooLong));

        let mut parser = ReplyParser::new();
        let fed = std::iter::repeat_with(|| parser.feed(b"250-on and on\r\n")).take(101).find_map(Result::err);
        assert_eq!(fed, Some(UnreadableReply::TooManyLines));

        let long = [b"250-", &[b'x'; 4000][..], b"\r\n"].concat();
        let mut parser = ReplyParser::new();
        let fed = std::iter::repeat_with(|| parser.feed(&long)).take(20).find_map(Result::err);
        assert_eq!(fed, Some(UnreadableReply::TooLong));
    }

    #[test]
    fn the_cap_on_a_line_does_not_count_its_end() {
        let exact = [b"250 ", &[b'x'; LINE_OCTETS_MAX - 4][..], b"\r\n"].concat();
        assert!(parse(&exact).is_ok());
        let over = [b"250 ", &[b'x'; LINE_OCTETS_MAX - 3][..], b"\n"].concat();
        assert_eq!(parse(&over), Err(UnreadableReply::LineTooLong));
    }

    #[test]
    fn the_text_is_cut_at_4_kib_between_characters() {
        let line = "é".repeat(2000);
        let reply = parse(format!("550-{line}\r\n550 {line}\r\n").as_bytes()).unwrap();
        assert!(reply.text().len() <= TEXT_OCTETS_MAX && reply.text().len() > TEXT_OCTETS_MAX - 4);
    }

    #[test]
    fn enhanced_codes_are_found_where_servers_put_them() {
        for (text, code) in [
            ("550 5.7.509 Access denied", Some("5.7.509")),
            ("550-5.1.1 a\r\n550 5.1.1 b", Some("5.1.1")),
            ("550-5.1.1 a\r\n550 see our page", Some("5.1.1")),
            ("550 #5.1.0 Address rejected", Some("5.1.0")),
            ("550 sorry, no mailbox here by that name. (#5.1.1)", Some("5.1.1")),
            ("554 5.7.1: blocked", Some("5.7.1")),
            ("554 5.7.1", Some("5.7.1")),
            ("554 5.6.7.8 is blocked", None),
            ("554 3.1.1 no such class", None),
            ("554 5.1234.1 no", None),
            ("550 no such user", None),
            ("550", None),
        ] {
            let reply = parse(format!("{text}\r\n").as_bytes()).unwrap();
            assert_eq!(reply.enhanced().map(|code| code.to_string()).as_deref(), code, "{text}");
        }
    }

    #[test]
    fn the_words_join_the_lines_and_leave_addresses_out() {
        let reply = parse(b"550-5.1.1 The account does\r\n550 5.1.1 NOT exist <spam@b.example>\r\n").unwrap();
        assert_eq!(reply.words(), "the account does not exist");
        assert_eq!(words_of("smtp; 550 No such\n user <a@b.example>"), "smtp; 550 no such user");
    }
}
