//! Guard before hyper's HTTP/1 parser: stops requests that two servers could parse differently (RFC 9112 11.2).
//!
//! Hyper accepts a bare LF as a line end, lets Transfer-Encoding override Content-Length, merges equal Content-Length
//! fields, and does not require Host. [`Guard`] reads the same bytes, in pieces of any size, and returns how many of
//! them are valid. The stream then ends with [`POISON`], which hyper answers with 400 and a closed connection, after
//! the answers to earlier requests. The guard has no socket, keeps at most one line, and never changes a byte that
//! passes.

/// Bytes that hyper refuses wherever they appear: in a line of a head, in a chunk's size, extension or end, and in a
/// trailer. They end a head, because hyper does not parse a partial one.
pub(super) const POISON: &[u8] = b"\0\n\r\n\r\n";
/// Maximum number of empty lines before a request line (RFC 9112 2.2 asks to ignore at least one).
const BLANK_LINES_MAX: u8 = 4;
/// Maximum number of digits of a chunk size: more may overflow in another parser.
const CHUNK_DIGITS_MAX: usize = 16;

/// Parses the requests of one connection in parallel with hyper.
pub(super) struct Guard {
    state: State,
    /// The current line, if it arrived in pieces.
    line: Vec<u8>,
    /// Maximum number of bytes of a head, and of a line outside of one.
    most: usize,
}

enum State {
    /// Waiting for a request line, after this number of empty lines.
    Start(u8),
    /// Inside the fields of a head.
    Fields(Head),
    /// Inside a head that is too large: hyper refuses it in any case.
    Oversized,
    /// Inside a body with this number of bytes left.
    Sized(u64),
    /// Waiting for a chunk's size.
    ChunkSize,
    /// Inside a chunk with this number of bytes left.
    ChunkData(u64),
    /// Waiting for the line end of a chunk.
    ChunkEnd,
    /// Inside the trailers, after the last chunk.
    Trailers,
    /// Stopped by an invalid line: everything that follows is refused.
    Refused,
}

/// Fields of a head that decide where its body ends.
struct Head {
    bytes: usize,
    is_1_0: bool,
    has_host: bool,
    length: Option<u64>,
    is_chunked: bool,
}

/// An invalid line. It has no reason, since hyper's 400 gives none.
struct RefusedLine;

impl Guard {
    /// Creates a guard for heads of at most `most` bytes, the limit set in hyper too.
    pub(super) const fn new(most: usize) -> Self {
        Self { state: State::Start(0), line: Vec::new(), most }
    }

    /// Returns whether a head has begun and is incomplete.
    pub(super) const fn is_in_head(&self) -> bool {
        match self.state {
            State::Start(_) => !self.line.is_empty(),
            State::Fields(_) | State::Oversized => true,
            State::Sized(_) | State::ChunkSize | State::ChunkData(_) | State::ChunkEnd => false,
            State::Trailers | State::Refused => false,
        }
    }

    /// Reads the next bytes.
    ///
    /// # Errors
    /// Some of `bytes` are invalid: the number of valid ones. No byte after them may pass, now or later.
    pub(super) fn judge(&mut self, bytes: &[u8]) -> Result<(), usize> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let passed = match &mut self.state {
                State::Refused => Err(0),
                State::Oversized => Ok(rest.len()),
                State::Sized(left) => Ok(skip(left, rest)),
                State::ChunkData(left) => Ok(skip(left, rest)),
                State::Start(_) | State::Fields(_) | State::ChunkSize | State::ChunkEnd | State::Trailers => {
                    self.read_line(rest)
                }
            };
            match passed {
                Ok(passed) => at += passed,
                Err(good) => {
                    self.state = State::Refused;
                    return Err(at + good);
                }
            }
            self.end_data();
        }
        Ok(())
    }

    /// Continues after the end of a body, or of a chunk's data.
    fn end_data(&mut self) {
        match self.state {
            State::Sized(0) => self.state = State::Start(0),
            State::ChunkData(0) => self.state = State::ChunkEnd,
            State::Sized(_) | State::ChunkData(_) | State::Start(_) | State::Fields(_) | State::Oversized => {}
            State::ChunkSize | State::ChunkEnd | State::Trailers | State::Refused => {}
        }
    }

    /// Reads to the end of a line, or stores the incomplete line. Returns the number of bytes read.
    fn read_line(&mut self, rest: &[u8]) -> Result<usize, usize> {
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return self.keep(rest) };
        let kept = std::mem::take(&mut self.line);
        let judged = if kept.is_empty() {
            self.end_line(&rest[..end])
        } else {
            let mut line = kept;
            line.extend_from_slice(&rest[..end]);
            let judged = self.end_line(&line);
            line.clear();
            self.line = line;
            judged
        };
        judged.map(|()| end + 1).map_err(|RefusedLine| end)
    }

    fn keep(&mut self, rest: &[u8]) -> Result<usize, usize> {
        if self.line.len() + rest.len() <= self.most {
            self.line.extend_from_slice(rest);
            return Ok(rest.len());
        }
        self.line = Vec::new();
        if matches!(self.state, State::Start(_) | State::Fields(_)) {
            self.state = State::Oversized;
            return Ok(rest.len());
        }
        Err(0)
    }

    /// Checks a line, without its LF.
    fn end_line(&mut self, line: &[u8]) -> Result<(), RefusedLine> {
        let line = line.strip_suffix(b"\r").ok_or(RefusedLine)?;
        match &mut self.state {
            State::Start(blank) if line.is_empty() => {
                *blank += 1;
                if *blank > BLANK_LINES_MAX { Err(RefusedLine) } else { Ok(()) }
            }
            State::Start(_) => {
                self.state = State::Fields(Head::new(line));
                self.end_oversized();
                Ok(())
            }
            State::Fields(head) if line.is_empty() => {
                self.state = head.body()?;
                Ok(())
            }
            State::Fields(head) => {
                head.field(line)?;
                self.end_oversized();
                Ok(())
            }
            State::ChunkSize => {
                self.state = match chunk_size(line)? {
                    0 => State::Trailers,
                    size => State::ChunkData(size),
                };
                Ok(())
            }
            State::ChunkEnd if line.is_empty() => {
                self.state = State::ChunkSize;
                Ok(())
            }
            State::Trailers => {
                if line.is_empty() {
                    self.state = State::Start(0);
                }
                Ok(())
            }
            State::ChunkEnd | State::Oversized | State::Sized(_) | State::ChunkData(_) | State::Refused => {
                Err(RefusedLine)
            }
        }
    }

    /// Ends an oversized head. Hyper counts at least as many bytes of a head, so it refuses each one that is too large
    /// here.
    fn end_oversized(&mut self) {
        if matches!(&self.state, State::Fields(head) if head.bytes > self.most) {
            self.state = State::Oversized;
        }
    }
}

impl Head {
    fn new(request_line: &[u8]) -> Self {
        let is_1_0 = request_line.ends_with(b"HTTP/1.0");
        Self { bytes: request_line.len() + 2, is_1_0, has_host: false, length: None, is_chunked: false }
    }

    /// Reads a field line. Hyper refuses white space around names and lines without a colon.
    fn field(&mut self, line: &[u8]) -> Result<(), RefusedLine> {
        self.bytes = self.bytes.saturating_add(line.len() + 2);
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return Ok(()) };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"host") {
            // RFC 9112 3.2: exactly one Host, and a valid one.
            let is_good = !self.has_host && value.iter().all(|byte| is_of_host(*byte));
            self.has_host = true;
            return if is_good { Ok(()) } else { Err(RefusedLine) };
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            // RFC 9112 6.3 allows equal ones to be merged, but a client that sends two is not trusted.
            let length = decimal(value).filter(|_| self.length.is_none() && !self.is_chunked).ok_or(RefusedLine)?;
            self.length = Some(length);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            // RFC 9112 6.1: together with Content-Length, or in HTTP/1.0, the framing is faulty.
            let is_alone = self.length.is_none() && !self.is_chunked && !self.is_1_0;
            self.is_chunked = is_alone && value.eq_ignore_ascii_case(b"chunked");
            return if self.is_chunked { Ok(()) } else { Err(RefusedLine) };
        }
        Ok(())
    }

    /// Returns the state that follows the head.
    fn body(&self) -> Result<State, RefusedLine> {
        if !self.has_host && !self.is_1_0 {
            return Err(RefusedLine);
        }
        Ok(match (self.is_chunked, self.length) {
            (true, _) => State::ChunkSize,
            (false, Some(length)) if length > 0 => State::Sized(length),
            (false, _) => State::Start(0),
        })
    }
}

/// Skips up to `left` bytes of data.
fn skip(left: &mut u64, rest: &[u8]) -> usize {
    let taken = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
    *left -= taken as u64;
    taken
}

/// Parses a chunk size, with or without an extension; white space is refused (RFC 9112 7.1).
fn chunk_size(line: &[u8]) -> Result<u64, RefusedLine> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    if digits.is_empty() || digits.len() > CHUNK_DIGITS_MAX || line.contains(&b'\r') {
        return Err(RefusedLine);
    }
    digits.iter().try_fold(0, |size: u64, digit| {
        let value = char::from(*digit).to_digit(16).ok_or(RefusedLine)?;
        Ok(size << 4 | u64::from(value))
    })
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let value = char::from(*digit).to_digit(10)?;
        number.checked_mul(10)?.checked_add(value.into())
    })
}

/// Returns whether a byte may appear in a host and port (RFC 3986 3.2.2).
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%:[]!$&'()*+,;=".contains(&byte)
}

#[cfg(test)]
mod tests;
