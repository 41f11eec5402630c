//! Reading a backup part by part. Each part is checked before it is returned. Hostile lengths cost bounded memory.

use std::io::{self, Read};

use super::part::{Head, Part, Totals};
use super::{ArchiveError, CHECKSUM, Chain, FORMAT, Kind, MAGIC, PART_BYTES_MAX};

/// Maximum number of digits in the format number.
const DIGITS_MAX: usize = 9;

/// A backup that is being read.
pub struct Reader<R: Read> {
    source: CountingReader<R>,
    chain: Chain,
    totals: Totals,
    is_over: bool,
}

/// A reader that counts the bytes read.
struct CountingReader<R> {
    source: R,
    byte_count: u64,
}

impl<R: Read> CountingReader<R> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), ArchiveError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.source.read(&mut buffer[filled..]) {
                Ok(0) => return Err(ArchiveError::Truncated { bytes: self.byte_count }),
                Ok(read) => {
                    filled += read;
                    self.byte_count += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads the next `length` bytes. Memory grows with the bytes that arrive, not with the announced length.
    fn take(&mut self, length: u32) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = Vec::new();
        let read = self.source.by_ref().take(length.into()).read_to_end(&mut bytes)?;
        self.byte_count += read as u64;
        if read < length as usize { Err(ArchiveError::Truncated { bytes: self.byte_count }) } else { Ok(bytes) }
    }
}

impl<R: Read> Reader<R> {
    /// Opens a backup and reads its description.
    ///
    /// # Errors
    /// [`ArchiveError`], if it is not a backup that this version can read.
    pub fn open(source: R) -> Result<(Self, Head), ArchiveError> {
        let mut source = CountingReader { source, byte_count: 0 };
        let mut magic = [0; MAGIC.len()];
        match source.fill(&mut magic) {
            Ok(()) if magic == MAGIC => {}
            Ok(()) => return Err(ArchiveError::Strange),
            // A file shorter than the header may be a truncated backup.
            Err(ArchiveError::Truncated { bytes }) if magic[..bytes as usize] != MAGIC[..bytes as usize] => {
                return Err(ArchiveError::Strange);
            }
            Err(fault) => return Err(fault),
        }
        let found = format(&mut source)?;
        if found > FORMAT {
            return Err(ArchiveError::Newer { found });
        }
        let mut reader = Self { source, chain: Chain::begin(), totals: Totals::default(), is_over: false };
        let byte = reader.source.byte_count;
        let Part::Head(head) = reader.part()? else {
            return Err(ArchiveError::Damaged { byte, what: "its first part is not the header" });
        };
        Ok((reader, head))
    }

    /// Returns the number of bytes read so far.
    pub const fn byte_count(&self) -> u64 {
        self.source.byte_count
    }

    /// Returns the totals read so far. After the last part, they cover the whole backup.
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the next part, or `None` after the end part, which is not returned.
    ///
    /// # Errors
    /// [`ArchiveError`]. No later part can be trusted.
    pub fn next_part(&mut self) -> Result<Option<Part>, ArchiveError> {
        if self.is_over {
            return Ok(None);
        }
        let byte = self.source.byte_count;
        let damaged = |what| ArchiveError::Damaged { byte, what };
        let part = self.part()?;
        match &part {
            Part::Head(_) => return Err(damaged("a second header")),
            Part::Rows { rows, .. } => self.totals.rows += rows.len() as u64,
            Part::Segment { offset, bytes, .. } => {
                self.totals.segments += u64::from(*offset == 0);
                self.totals.content_bytes += bytes.len() as u64;
            }
            Part::End(totals) => {
                if *totals != self.totals {
                    return Err(damaged("its content does not match its totals"));
                }
                if self.source.source.read(&mut [0])? != 0 {
                    return Err(damaged("there is data after its end"));
                }
                self.is_over = true;
                return Ok(None);
            }
            Part::MasterKey(_) | Part::ContentAhead { .. } | Part::Keys(_) | Part::File { .. } => {}
        }
        Ok(Some(part))
    }

    fn part(&mut self) -> Result<Part, ArchiveError> {
        let byte = self.source.byte_count;
        let damaged = |what| ArchiveError::Damaged { byte, what };
        let mut head = [0; 5];
        self.source.fill(&mut head)?;
        let [number, length @ ..] = head;
        let length = u32::from_be_bytes(length);
        if length > PART_BYTES_MAX {
            return Err(damaged("a part has an impossible length"));
        }
        let payload = self.source.take(length)?;
        let mut checksum = [0; CHECKSUM];
        self.source.fill(&mut checksum)?;
        if self.chain.next(number, &payload) != checksum {
            return Err(damaged("a checksum does not match"));
        }
        let kind = Kind::of(number).ok_or_else(|| damaged("a part of an unknown kind"))?;
        Part::decode(kind, &payload).ok_or_else(|| damaged("a part does not match its kind"))
    }
}

fn format<R: Read>(source: &mut CountingReader<R>) -> Result<u32, ArchiveError> {
    let mut found = 0;
    for place in 0..=DIGITS_MAX {
        let mut digit = [0];
        source.fill(&mut digit)?;
        match digit[0] {
            b'\n' if place > 0 => return Ok(found),
            digit @ b'0'..=b'9' if place < DIGITS_MAX => found = found * 10 + u32::from(digit - b'0'),
            _ => return Err(ArchiveError::Strange),
        }
    }
    Err(ArchiveError::Strange)
}
