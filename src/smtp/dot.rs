//! Encoding of the message after 354: dots at line starts are doubled, and a lone dot ends the message (RFC 5321
//! 4.5.2).

use std::io::BufRead as _;

use bytes::Bytes;

/// Number of message bytes in one block.
const BLOCK_BYTES: usize = 64 * 1024;

/// A message that is sent block by block. The last block ends with the lone dot.
#[derive(Debug)]
pub struct DotStuffer {
    message: Bytes,
    at: usize,
    at_line_start: bool,
    is_done: bool,
}

impl DotStuffer {
    /// Creates a stuffer for a message whose line ends are all CRLF.
    pub const fn new(message: Bytes) -> Self {
        Self { message, at: 0, at_line_start: true, is_done: false }
    }

    /// Returns whether the last block has been produced.
    pub const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns the size of the message in bytes.
    pub const fn len(&self) -> usize {
        self.message.len()
    }

    /// Returns whether the message is empty.
    pub const fn is_empty(&self) -> bool {
        self.message.is_empty()
    }

    /// Appends the next block to `out`; nothing after the last block.
    pub fn next_block(&mut self, out: &mut Vec<u8>) {
        if self.is_done {
            return;
        }
        let end = self.message.len().min(self.at + BLOCK_BYTES);
        let mut rest = &self.message[self.at..end];
        out.reserve(rest.len() + rest.len() / 64 + 5);
        while !rest.is_empty() {
            if self.at_line_start && rest[0] == b'.' {
                out.push(b'.');
            }
            // Reading from a slice can't fail. This is the standard library's fast search for a line end.
            let _ = rest.read_until(b'\n', out);
            self.at_line_start = out.last() == Some(&b'\n');
        }
        self.at = end;
        if end == self.message.len() {
            self.is_done = true;
            // A message that ends with CRLF must not get an extra blank line.
            let ends_a_line = self.message.is_empty() || self.message.ends_with(b"\r\n");
            out.extend_from_slice(if ends_a_line { b".\r\n" } else { b"\r\n.\r\n" });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stuffed(message: &[u8]) -> Vec<u8> {
        let mut stuffer = DotStuffer::new(Bytes::copy_from_slice(message));
        let mut out = Vec::new();
        while !stuffer.is_done() {
            stuffer.next_block(&mut out);
        }
        out
    }

    /// Implements RFC 5321 4.5.2 as a reference receiver. Returns the message, and whether anything followed the lone
    /// dot.
    fn unstuffed(wire: &[u8]) -> (Vec<u8>, bool) {
        let mut message = Vec::new();
        let mut rest = wire;
        while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
            let (line, after) = rest.split_at(end + 2);
            rest = after;
            if line == b".\r\n" {
                return (message, !rest.is_empty());
            }
            message.extend_from_slice(line.strip_prefix(b".").unwrap_or(line));
        }
        panic!("no end of data");
    }

    #[test]
    fn doubles_a_dot_at_each_line_start_and_adds_no_blank_line() {
        assert_eq!(stuffed(b".a\r\n..\r\nb.\r\n"), b"..a\r\n...\r\nb.\r\n.\r\n");
        assert_eq!(stuffed(b"no end"), b"no end\r\n.\r\n");
        assert_eq!(stuffed(b""), b".\r\n");
    }

    #[test]
    fn finds_line_starts_across_block_boundaries() {
        for shift in 0..6 {
            let mut message = vec![b'x'; BLOCK_BYTES - shift];
            message.extend_from_slice(b"\r\n.\r\n.b\r\n");
            assert_eq!(unstuffed(&stuffed(&message)), (message, false));
        }
    }

    proptest! {
        #[test]
        fn unstuffing_restores_the_message(lines in prop::collection::vec("[.a]{0,4}", 0..40)) {
            let message: Vec<u8> = lines.iter().flat_map(|line| [line.as_bytes(), b"\r\n"].concat()).collect();
            prop_assert_eq!(unstuffed(&stuffed(&message)), (message, false));
        }

        #[test]
        fn bare_line_ends_cannot_smuggle_an_end_of_data(pieces in prop::collection::vec("(\r\n|\n|\r|\\.|a)", 0..40)) {
            let wire = stuffed(pieces.concat().as_bytes());
            let (_, followed) = unstuffed(&wire);
            prop_assert!(!followed);
            // No line is a lone dot, even for a receiver that accepts a bare LF as a line end.
            let lone = wire.split(|&byte| byte == b'\n').filter(|line| *line == b"." || *line == b".\r").count();
            prop_assert_eq!(lone, 1);
        }
    }
}
