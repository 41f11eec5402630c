//! The message after DATA, octet by octet: where it ends, its stuffed dots, its size.
//!
//! It ends at CR LF `.` CR LF and at nothing else (RFC 5321 4.1.1.4). A bare CR or bare LF makes the whole message
//! refused: two servers that disagree about it would let a message be smuggled inside another. What is refused is
//! read to its true end and kept nowhere.

/// Why the message that was read is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A LF without CR before it.
    BareLf,
    /// A CR without LF after it.
    BareCr,
    /// More octets than allowed.
    TooLarge,
}

/// What stands before the next octet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// CR LF, the one that ended the DATA command included.
    LineStart,
    /// Anything else.
    Line,
    /// CR.
    Cr,
    /// CR LF `.`
    Dot,
    /// CR LF `.` CR
    DotCr,
}

/// Reads one message.
#[derive(Debug)]
pub(super) struct DataReader {
    place: Place,
    message: Vec<u8>,
    fault: Option<Fault>,
    octets: usize,
    size_max: usize,
}

impl DataReader {
    /// For a message of at most `size_max` octets.
    pub(super) fn new(size_max: usize) -> Self {
        Self { place: Place::LineStart, message: Vec::new(), fault: None, octets: 0, size_max }
    }

    /// Reads on; says how many octets of `input` belonged to the message where its end was among them.
    pub(super) fn read(&mut self, input: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(&octet) = input.get(at) {
            if self.place == Place::Line {
                let run = input[at..].iter().position(|b| matches!(b, b'\r' | b'\n')).unwrap_or(input.len() - at);
                if run > 0 {
                    self.keep(&input[at..at + run]);
                    at += run;
                    continue;
                }
            }
            at += 1;
            if self.step(octet) {
                return Some(at);
            }
        }
        None
    }

    /// Whether so much came that reading on to the end is not worth it.
    pub(super) fn is_hopeless(&self) -> bool {
        self.octets / 2 > self.size_max
    }

    /// The message, or why it is refused.
    pub(super) fn finish(self) -> Result<Vec<u8>, Fault> {
        match self.fault {
            None => Ok(self.message),
            Some(fault) => Err(fault),
        }
    }

    /// Takes one octet; true where it ends the message.
    fn step(&mut self, octet: u8) -> bool {
        self.place = match (self.place, octet) {
            (Place::DotCr, b'\n') => return true,
            (Place::Cr, b'\n') => {
                self.keep(b"\r\n");
                Place::LineStart
            }
            (Place::LineStart, b'.') => Place::Dot,
            (Place::Dot, b'\r') => Place::DotCr,
            (Place::LineStart | Place::Line, b'\r') => Place::Cr,
            (Place::Cr | Place::DotCr, _) => {
                self.refuse(Fault::BareCr);
                if octet == b'\r' { Place::Cr } else { Place::Line }
            }
            (Place::LineStart | Place::Line | Place::Dot, b'\n') => {
                self.refuse(Fault::BareLf);
                Place::Line
            }
            // In Dot, the dot before it was stuffing (RFC 5321 4.5.2) and is gone.
            (Place::LineStart | Place::Line | Place::Dot, _) => {
                self.keep(&[octet]);
                Place::Line
            }
        };
        false
    }

    fn keep(&mut self, octets: &[u8]) {
        self.octets = self.octets.saturating_add(octets.len());
        if self.octets > self.size_max {
            self.refuse(Fault::TooLarge);
        }
        if self.fault.is_none() {
            self.message.extend_from_slice(octets);
        }
    }

    /// The first fault is the one that is told.
    fn refuse(&mut self, fault: Fault) {
        self.octets = self.octets.saturating_add(1);
        self.fault.get_or_insert(fault);
        self.message = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_in_pieces(input: &[u8], piece: usize) -> (Option<usize>, Result<Vec<u8>, Fault>) {
        let mut reader = DataReader::new(100);
        let mut consumed = 0;
        for chunk in input.chunks(piece) {
            if let Some(used) = reader.read(chunk) {
                return (Some(consumed + used), reader.finish());
            }
            consumed += chunk.len();
        }
        (None, reader.finish())
    }

    #[test]
    fn only_cr_lf_dot_cr_lf_ends_a_message_and_every_other_variant_refuses_it() {
        let table: [(&[u8], Fault); 19] = [
            (b"\n.\n", Fault::BareLf),
            (b"\n.\r\n", Fault::BareLf),
            (b"\r\n.\n", Fault::BareLf),
            (b"\n.\r", Fault::BareLf),
            (b"\n\n.\n", Fault::BareLf),
            (b"\n.\n\r", Fault::BareLf),
            (b"\n\r.\r\n", Fault::BareLf),
            (b"\r.\r", Fault::BareCr),
            (b"\r.\r\n", Fault::BareCr),
            (b"\r.\n", Fault::BareCr),
            (b"\r\n.\r", Fault::BareCr),
            (b"\r\n.\r\r\n", Fault::BareCr),
            (b"\r\r\n.\r", Fault::BareCr),
            (b"\r\n\r.\r\n", Fault::BareCr),
            (b"\r\n.\r.\r\n", Fault::BareCr),
            (b"\r\n.\r\0\n", Fault::BareCr),
            (b"\r\n\n.\r\n", Fault::BareLf),
            (b"\r\0\n.\r\n", Fault::BareCr),
            (b"\r\n.\0\n", Fault::BareLf),
        ];
        for (variant, fault) in table {
            let smuggled = b"MAIL FROM:<x@y.example>\r\n.\r\n".as_slice();
            let input = [b"text".as_slice(), variant, smuggled].concat();
            for piece in [1, 2, 3, 1000] {
                let (end, message) = read_in_pieces(&input, piece);
                assert_eq!(end, Some(input.len()), "{variant:?} ended the message");
                assert_eq!(message, Err(fault), "{variant:?}");
            }
        }
    }

    #[test]
    fn the_true_end_ends_it_wherever_the_pieces_are_cut() {
        for piece in 1..12 {
            let (end, message) = read_in_pieces(b"a\r\n..\r\n.b\r\n\r\n...\r\n.\r\nNOOP\r\n", piece);
            assert_eq!((end, message), (Some(21), Ok(b"a\r\n.\r\nb\r\n\r\n..\r\n".to_vec())));
        }
        assert_eq!(read_in_pieces(b".\r\n", 1), (Some(3), Ok(Vec::new())));
    }

    #[test]
    fn a_message_too_large_is_read_to_its_end_without_being_kept() {
        let mut reader = DataReader::new(10);
        assert_eq!(reader.read(b"12345678\r\n"), None);
        assert_eq!(reader.read(b"9"), None);
        assert_eq!(reader.message.capacity(), 0);
        assert_eq!(reader.read(b"\r\n.\r\nQUIT"), Some(5));
        assert!(!reader.is_hopeless());
        assert_eq!(reader.finish(), Err(Fault::TooLarge));

        let exactly = read_in_pieces(&[[b'x'; 98].as_slice(), b"\r\n.\r\n"].concat(), 7);
        assert_eq!(exactly.1.map(|message| message.len()), Ok(100));
    }

    proptest! {
        #[test]
        fn octets_end_at_their_first_cr_lf_dot_cr_lf_and_nowhere_else(
            octets in prop::collection::vec(prop::sample::select(b"\r\n.x".to_vec()), 0..60),
            piece in 1_usize..60,
        ) {
            let input = [octets.as_slice(), b"\r\n.\r\n"].concat();
            let from_line_start = [b"\r\n", input.as_slice()].concat();
            let expected = from_line_start.windows(5).position(|window| window == b"\r\n.\r\n").map(|at| at + 3);
            let (end, message) = read_in_pieces(&input, piece);
            prop_assert_eq!(end, expected);
            if let Ok(message) = message {
                let mut stuffed = Vec::new();
                for line in message.split_inclusive(|&b| b == b'\n') {
                    stuffed.extend_from_slice(if line.starts_with(b".") { b"." } else { b"" });
                    stuffed.extend_from_slice(line);
                }
                // A client may also have put a dot before a line that needed none; then ours is the shorter one.
                prop_assert!(stuffed.len() <= input.len());
                prop_assert!(!message.windows(2).any(|pair| (pair[0] == b'\r') != (pair[1] == b'\n')));
            }
        }
    }
}
