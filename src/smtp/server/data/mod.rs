//! Reads the message after DATA: its end, its stuffed dots, its size.
//!
//! It ends at CR LF `.` CR LF and nowhere else (RFC 5321 4.1.1.4). A bare CR or bare LF makes the whole message
//! refused: two servers that disagree about it would allow message smuggling. A refused message is read to its true end
//! and not stored.
//!
//! Submission repairs a bare LF, because many programs send text with LF line ends: the line ends there, as CR LF. A
//! lone dot next to a bare LF is still refused, since a server that accepts that LF as a line end would end the message
//! there.

use super::buffer::MessageBuffer;

#[cfg(test)]
mod tests;

/// Reasons for refusing the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataRefusal {
    /// A LF without CR before it.
    BareLf,
    /// A line with only a dot that begins or ends with a bare LF.
    LoneDot,
    /// There was no memory left for the message.
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
    Repair,
}

/// The characters before the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// CR LF, including the one at the end of the DATA command.
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
    fault: Option<DataRefusal>,
    bytes: usize,
    size_max: usize,
}

impl DataReader {
    /// Creates a reader for a message of at most `size_max` bytes.
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

    /// Reads the next bytes. If the message ends among them, returns how many bytes of `input` belong to it.
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

    /// Returns whether too many bytes have arrived to read on to the end. A submission is always read to its end,
    /// within its deadline, because its session continues.
    pub(super) fn is_over_read_limit(&self) -> bool {
        self.line_ends == LineEnds::Refuse && self.bytes / 2 > self.size_max
    }

    /// Discards the received bytes and all further ones, since there is no memory for them.
    pub(super) fn drop_message(&mut self) {
        self.refuse(DataRefusal::NoMemory);
    }

    /// Returns the message, or the reason for which it is refused.
    pub(super) fn finish(self) -> Result<Vec<u8>, DataRefusal> {
        match self.fault {
            None => Ok(self.message.into_bytes()),
            Some(fault) => Err(fault),
        }
    }

    /// Reads one byte. Returns true if it ends the message.
    fn step(&mut self, byte: u8) -> bool {
        self.place = match (self.place, byte) {
            (Place::DotCr, b'\n') => return true,
            (Place::LfDotCr, b'\n') => {
                self.refuse(DataRefusal::LoneDot);
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
                self.refuse(DataRefusal::BareCr);
                if byte == b'\r' { Place::Cr } else { Place::Line }
            }
            // A dot before this byte was stuffing (RFC 5321 4.5.2) and was removed.
            (Place::LineStart | Place::AfterLf | Place::Line | Place::Dot | Place::LfDot, _) => {
                self.keep(&[byte]);
                Place::Line
            }
        };
        false
    }

    /// Reads a LF without a CR before it. Returns the next state.
    fn bare_lf(&mut self) -> Place {
        match (self.line_ends, self.place) {
            (LineEnds::Refuse, _) => {
                self.refuse(DataRefusal::BareLf);
                return Place::Line;
            }
            (LineEnds::Repair, Place::Dot | Place::LfDot) => self.refuse(DataRefusal::LoneDot),
            (LineEnds::Repair, _) => self.keep(b"\r\n"),
        }
        Place::AfterLf
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > self.size_max {
            self.refuse(DataRefusal::TooLarge);
        }
        if self.fault.is_none() {
            self.message.extend(bytes);
        }
    }

    /// Refuses the message. The first reason is reported.
    fn refuse(&mut self, fault: DataRefusal) {
        self.bytes = self.bytes.saturating_add(1);
        self.fault.get_or_insert(fault);
        self.message.clear();
    }
}
