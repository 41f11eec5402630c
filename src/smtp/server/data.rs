//! The message after DATA, byte by byte: where it ends, its stuffed dots, its size.
//!
//! It ends at CR LF `.` CR LF and at nothing else (RFC 5321 4.1.1.4). A bare CR or bare LF makes the whole message
//! refused: two servers that disagree about it would let a message be smuggled inside another. What is refused is
//! read to its true end and kept nowhere.
//!
//! Submission mends a bare LF, because many programs send text as it is: the line ends there, as CR LF. A lone dot
//! beside a bare LF is still refused, since a server that took that LF for a line end would end the message there.

use super::buffer::MessageBuffer;

#[cfg(test)]
mod tests;

/// Why the message that was read is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A LF without CR before it.
    BareLf,
    /// A line of one dot that begins or ends with a bare LF.
    LoneDot,
    /// No memory was left for it.
    NoMemory,
    /// A CR without LF after it.
    BareCr,
    /// More bytes than allowed.
    TooLarge,
}

/// The treatment of a LF without CR before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnds {
    /// The message is refused.
    Refuse,
    /// The LF ends the line and is kept as CR LF.
    Mend,
}

/// Context of the next byte.
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
    /// A bare LF.
    AfterLf,
    /// A bare LF and `.`
    LfDot,
    /// A bare LF, `.` and CR.
    LfDotCr,
}

/// Reads one message.
#[derive(Debug)]
pub(super) struct DataReader {
    line_ends: LineEnds,
    place: Place,
    message: MessageBuffer,
    fault: Option<Fault>,
    bytes: usize,
    size_max: usize,
}

impl DataReader {
    /// For a message of at most `size_max` bytes.
    pub(super) const fn new(size_max: usize, line_ends: LineEnds) -> Self {
        Self {
            line_ends,
            place: Place::LineStart,
            message: MessageBuffer::new(size_max),
            fault: None,
            bytes: 0,
            size_max,
        }
    }

    /// Reads on; says how many bytes of `input` belonged to the message where its end was among them.
    pub(super) fn read(&mut self, input: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            if self.place == Place::Line {
                let run = input[at..].iter().position(|b| matches!(b, b'\r' | b'\n')).unwrap_or(input.len() - at);
                if run > 0 {
                    self.keep(&input[at..at + run]);
                    at += run;
                    continue;
                }
            }
            at += 1;
            if self.step(byte) {
                return Some(at);
            }
        }
        None
    }

    /// Whether so much came that reading on to the end is not worth it. A submission is read to its end, within its
    /// deadline, because its session goes on.
    pub(super) fn is_hopeless(&self) -> bool {
        self.line_ends == LineEnds::Refuse && self.bytes / 2 > self.size_max
    }

    /// Drops what was read and what still comes: there is no memory for it.
    pub(super) fn drop_message(&mut self) {
        self.refuse(Fault::NoMemory);
    }

    /// The message, or why it is refused.
    pub(super) fn finish(self) -> Result<Vec<u8>, Fault> {
        match self.fault {
            None => Ok(self.message.into_bytes()),
            Some(fault) => Err(fault),
        }
    }

    /// Takes one byte; true where it ends the message.
    fn step(&mut self, byte: u8) -> bool {
        self.place = match (self.place, byte) {
            (Place::DotCr, b'\n') => return true,
            (Place::LfDotCr, b'\n') => {
                self.refuse(Fault::LoneDot);
                Place::LineStart
            }
            (Place::Cr, b'\n') => {
                self.keep(b"\r\n");
                Place::LineStart
            }
            (Place::LineStart | Place::AfterLf | Place::Line | Place::Dot | Place::LfDot, b'\n') => self.bare_lf(),
            (Place::LineStart, b'.') => Place::Dot,
            (Place::AfterLf, b'.') => Place::LfDot,
            (Place::Dot, b'\r') => Place::DotCr,
            (Place::LfDot, b'\r') => Place::LfDotCr,
            (Place::LineStart | Place::AfterLf | Place::Line, b'\r') => Place::Cr,
            (Place::Cr | Place::DotCr | Place::LfDotCr, _) => {
                self.refuse(Fault::BareCr);
                if byte == b'\r' { Place::Cr } else { Place::Line }
            }
            // After a dot, the dot was stuffing (RFC 5321 4.5.2) and is gone.
            (Place::LineStart | Place::AfterLf | Place::Line | Place::Dot | Place::LfDot, _) => {
                self.keep(&[byte]);
                Place::Line
            }
        };
        false
    }

    /// Takes a LF that no CR stands before; the place behind it.
    fn bare_lf(&mut self) -> Place {
        match (self.line_ends, self.place) {
            (LineEnds::Refuse, _) => {
                self.refuse(Fault::BareLf);
                return Place::Line;
            }
            (LineEnds::Mend, Place::Dot | Place::LfDot) => self.refuse(Fault::LoneDot),
            (LineEnds::Mend, _) => self.keep(b"\r\n"),
        }
        Place::AfterLf
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > self.size_max {
            self.refuse(Fault::TooLarge);
        }
        if self.fault.is_none() {
            self.message.extend(bytes);
        }
    }

    /// The first fault is the one that is told.
    fn refuse(&mut self, fault: Fault) {
        self.bytes = self.bytes.saturating_add(1);
        self.fault.get_or_insert(fault);
        self.message.clear();
    }
}
