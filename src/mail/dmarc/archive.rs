//! The container of an aggregate report: plain XML, gzip or zip, detected by its first bytes and unpacked in pieces.
//!
//! One [`Budget`] limits the bytes of all members together. Sizes stated in the archive are ignored, and a wrong
//! checksum ends the stream with an error.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::{DeflateDecoder, GzDecoder};
use flate2::{Crc, CrcReader};

use super::{MEMBERS_MAX, Unreadable};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZIP: [u8; 4] = *b"PK\x03\x04";
/// A zip archive without members.
const EMPTY_ZIP: [u8; 4] = *b"PK\x05\x06";
/// Number of leading bytes of a member used to detect its kind.
const PEEKED_BYTES: u64 = 512;

/// Kind of data, detected by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A gzip file (RFC 1952).
    Gzip,
    /// A zip archive.
    Zip,
    /// Markup.
    Xml,
    /// Any other data.
    Other,
}

/// Detects the kind of data from its first `bytes`.
pub(super) fn kind_of(bytes: &[u8]) -> Kind {
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes).trim_ascii_start();
    if bytes.starts_with(&GZIP) {
        Kind::Gzip
    } else if bytes.starts_with(&ZIP) || bytes.starts_with(&EMPTY_ZIP) {
        Kind::Zip
    } else if text.starts_with(b"<") {
        Kind::Xml
    } else {
        Kind::Other
    }
}

/// Number of bytes that may still be unpacked, for all members of a message's report together.
pub(super) struct Budget(pub(super) u64);

/// The unpacked bytes of a member.
pub(super) type Member<'m> = dyn BufRead + 'm;

/// Unpacks `bytes`, and calls `each` with every XML member. Other members are read to their end, because their
/// checksums and bytes count too.
pub(super) fn unpack(
    bytes: &[u8],
    budget: &mut Budget,
    each: &mut dyn FnMut(&mut Member<'_>) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    match kind_of(bytes) {
        Kind::Gzip => member(&mut Gzip { decoder: Some(GzDecoder::new(bytes)), members: 1 }, budget, each),
        Kind::Zip => {
            for entry in entries(bytes)? {
                match entry.method {
                    Method::Stored => {
                        let stored = &entry.data[..entry.data.len().min(entry.stored_bytes)];
                        member(&mut ChecksummedReader::new(stored, entry.crc), budget, each)?;
                    }
                    Method::Deflated => {
                        member(&mut ChecksummedReader::new(DeflateDecoder::new(entry.data), entry.crc), budget, each)?;
                    }
                }
            }
            Ok(())
        }
        Kind::Xml => member(&mut &*bytes, budget, each),
        Kind::Other => Err(Unreadable::NoReport),
    }
}

fn member(
    stream: &mut dyn Read,
    budget: &mut Budget,
    each: &mut dyn FnMut(&mut Member<'_>) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    let mut bounded = BoundedStream { stream, budget };
    let mut first = Vec::new();
    bounded.by_ref().take(PEEKED_BYTES).read_to_end(&mut first).map_err(of_archive)?;
    let kind = kind_of(&first);
    let mut whole = Cursor::new(first).chain(bounded);
    match kind {
        Kind::Gzip | Kind::Zip => Err(Unreadable::Nested),
        Kind::Xml => each(&mut BufReader::with_capacity(16 * 1024, whole)),
        Kind::Other => io::copy(&mut whole, &mut io::sink()).map(drop).map_err(of_archive),
    }
}

/// Returns the reason for an error of a stream.
pub(super) fn of_archive(error: io::Error) -> Unreadable {
    if error.kind() == io::ErrorKind::FileTooLarge { Unreadable::TooLarge } else { Unreadable::Archive }
}

/// A stream that fails once the budget is used up.
struct BoundedStream<'m> {
    stream: &'m mut dyn Read,
    budget: &'m mut Budget,
}

impl Read for BoundedStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        match self.budget.0.checked_sub(read as u64) {
            Some(left) => self.budget.0 = left,
            None => return Err(io::ErrorKind::FileTooLarge.into()),
        }
        Ok(read)
    }
}

/// The concatenated members of a gzip file (RFC 1952 2.2). Trailing bytes that are not a member end it: mail systems
/// append line ends.
struct Gzip<'m> {
    decoder: Option<GzDecoder<&'m [u8]>>,
    members: usize,
}

impl Read for Gzip<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let read = decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let rest = self.decoder.take().map(GzDecoder::into_inner).unwrap_or_default();
            if rest.starts_with(&GZIP) {
                self.members += 1;
                if self.members > MEMBERS_MAX {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                self.decoder = Some(GzDecoder::new(rest));
            }
        }
        Ok(0)
    }
}

/// A stream whose checksum is verified at its end.
struct ChecksummedReader<R: Read> {
    stream: CrcReader<R>,
    crc: u32,
}

impl<R: Read> ChecksummedReader<R> {
    fn new(stream: R, crc: u32) -> Self {
        Self { stream: CrcReader::new(stream), crc }
    }
}

impl<R: Read> Read for ChecksummedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        let sum: &Crc = self.stream.crc();
        if read == 0 && !buffer.is_empty() && sum.sum() != self.crc {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(read)
    }
}

/// Compression method of a member of a zip archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    Stored,
    Deflated,
}

/// A member of a zip archive.
struct Entry<'m> {
    method: Method,
    crc: u32,
    /// Number of bytes of the member's data, if it is stored uncompressed.
    stored_bytes: usize,
    /// The archive from the member's first byte on. The end of compressed data is part of its format.
    data: &'m [u8],
}

/// Size in bytes of the record at the end of a zip archive, without its comment.
const END_BYTES: usize = 22;
/// Size in bytes of an entry of the central directory, without name, extra fields and comment.
const CENTRAL_BYTES: usize = 46;
/// Size in bytes of a member's own header, without name and extra fields.
const LOCAL_BYTES: usize = 30;

/// Returns the members of a zip archive, from its central directory.
fn entries(archive: &[u8]) -> Result<Vec<Entry<'_>>, Unreadable> {
    let end = end_record(archive).ok_or(Unreadable::Archive)?;
    let count = usize::from(u16_at(end, 10).ok_or(Unreadable::Archive)?);
    if count > MEMBERS_MAX {
        return Err(Unreadable::TooManyMembers);
    }
    let mut place = u32_at(end, 16).ok_or(Unreadable::Archive)? as usize;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let central = archive.get(place..).ok_or(Unreadable::Archive)?;
        let (entry, length) = entry(archive, central).ok_or(Unreadable::Archive)?;
        entries.push(entry);
        place += length;
    }
    Ok(entries)
}

/// Finds the end record: the last position with its signature and enough bytes.
fn end_record(archive: &[u8]) -> Option<&[u8]> {
    let earliest = archive.len().saturating_sub(END_BYTES + usize::from(u16::MAX));
    let last = archive.len().checked_sub(END_BYTES)?;
    (earliest..=last).rev().map(|place| &archive[place..]).find(|record| record.starts_with(&EMPTY_ZIP))
}

/// Parses an entry of the central directory. Returns its member and the entry's length.
fn entry<'m>(archive: &'m [u8], central: &[u8]) -> Option<(Entry<'m>, usize)> {
    if !central.starts_with(b"PK\x01\x02") {
        return None;
    }
    let is_encrypted = u16_at(central, 8)? & 1 == 1;
    let method = match u16_at(central, 10)? {
        0 => Method::Stored,
        8 => Method::Deflated,
        _ => return None,
    };
    let lengths = [28, 30, 32].map(|place| u16_at(central, place).map(usize::from));
    let length = lengths.into_iter().try_fold(CENTRAL_BYTES, |sum, length| Some(sum + length?))?;
    let local = archive.get(u32_at(central, 42)? as usize..)?;
    if is_encrypted || !local.starts_with(&ZIP) {
        return None;
    }
    let name_and_extra = usize::from(u16_at(local, 26)?) + usize::from(u16_at(local, 28)?);
    let data = local.get(LOCAL_BYTES + name_and_extra..)?;
    let (crc, stored_bytes) = (u32_at(central, 16)?, u32_at(central, 20)? as usize);
    (method == Method::Deflated || stored_bytes <= data.len())
        .then_some((Entry { method, crc, stored_bytes, data }, length))
}

fn u16_at(bytes: &[u8], place: usize) -> Option<u16> {
    bytes.get(place..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], place: usize) -> Option<u32> {
    bytes.get(place..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{gzip, zip};
    use super::*;

    /// Returns the XML members of `bytes`.
    fn unpacked(bytes: &[u8], budget: u64) -> Result<Vec<String>, Unreadable> {
        let mut members = Vec::new();
        unpack(bytes, &mut Budget(budget), &mut |member| {
            let mut text = String::new();
            member.read_to_string(&mut text).map_err(of_archive)?;
            members.push(text);
            Ok(())
        })?;
        Ok(members)
    }

    #[test]
    fn every_container_is_detected_by_its_first_bytes() {
        assert_eq!(unpacked(b"<a/>", 100).unwrap(), ["<a/>"]);
        assert_eq!(unpacked("\u{feff} \r\n<a/>".as_bytes(), 100).unwrap().len(), 1);
        assert_eq!(unpacked(&gzip(b"<a/>"), 100).unwrap(), ["<a/>"]);
        assert_eq!(unpacked(&zip(&[("x", b"<a/>", true), ("y", b"<b/>", false)]), 100).unwrap(), ["<a/>", "<b/>"]);
        assert_eq!(unpacked(b"PDF", 100), Err(Unreadable::NoReport));
        assert_eq!(unpacked(b"", 100), Err(Unreadable::NoReport));
    }

    #[test]
    fn reads_consecutive_gzip_members_and_ignores_trailing_line_ends() {
        let two = [gzip(b"<a>"), gzip(b"</a>"), b"\r\n".to_vec()].concat();
        assert_eq!(unpacked(&two, 100).unwrap(), ["<a></a>"]);
        let five = [gzip(b"<a>"), gzip(b""), gzip(b""), gzip(b""), gzip(b"</a>")].concat();
        assert_eq!(unpacked(&five, 100), Err(Unreadable::Archive));
    }

    #[test]
    fn skips_members_that_are_not_markup() {
        let archive = zip(&[("folder/", b"", false), ("notes.txt", b"hello", true), ("x.xml", b"<a/>", true)]);
        assert_eq!(unpacked(&archive, 100).unwrap(), ["<a/>"]);
        let many = zip(&[("1", b"<a/>".as_slice(), true); MEMBERS_MAX + 1]);
        assert_eq!(unpacked(&many, 100), Err(Unreadable::TooManyMembers));
    }

    #[test]
    fn the_budget_covers_all_members_together() {
        let archive = zip(&[("1", &[b'x'; 60], true), ("2", b"<a>0123456789</a>", true)]);
        assert_eq!(unpacked(&archive, 77).unwrap().len(), 1);
        assert_eq!(unpacked(&archive, 76), Err(Unreadable::TooLarge));
        let bomb = gzip(&[b"<a>".as_slice(), &[b' '; 1_000_000]].concat());
        assert!(bomb.len() < 2000);
        assert_eq!(unpacked(&bomb, 10_000), Err(Unreadable::TooLarge));
    }

    #[test]
    fn rejects_damaged_and_nested_archives() {
        let (packed, archive) = (gzip(b"<a>text</a>"), zip(&[("x", b"<a>text</a>", false)]));
        let mut flipped = packed.clone();
        let crc = packed.len() - 8;
        flipped[crc] ^= 1;
        assert_eq!(unpacked(&flipped, 100), Err(Unreadable::Archive));
        assert_eq!(unpacked(&packed[..packed.len() - 9], 100), Err(Unreadable::Archive));
        let text = archive.windows(4).position(|four| four == b"text").unwrap();
        let mut changed = archive.clone();
        changed[text] = b'T';
        assert_eq!(unpacked(&changed, 100), Err(Unreadable::Archive));
        for cut in 0..archive.len() {
            assert!(unpacked(&archive[..cut], 100).is_err(), "cut at {cut}");
        }
        assert_eq!(unpacked(&gzip(&packed), 1000), Err(Unreadable::Nested));
        assert_eq!(unpacked(&zip(&[("x", &packed, true)]), 1000), Err(Unreadable::Nested));
        assert_eq!(unpacked(&gzip(&archive), 1000), Err(Unreadable::Nested));
    }
}
