//! Streaming reader of the elements of an XML document.
//!
//! Elements are identified by local name. A document type declaration, excessive depth, mismatched tags and a missing
//! end tag make the document unreadable. Invalid UTF-8 is replaced.

use std::io::{self, BufRead, Read};

use quick_xml::Reader;
use quick_xml::errors::Error;
use quick_xml::events::{BytesStart, Event};

use super::archive::{Member, of_archive};
use super::{DEPTH_MAX, TEXT_BYTES_MAX, Unreadable};

/// Receives the elements and texts of a document, in order.
pub(super) trait Handler {
    /// Handles the start of an element.
    fn start(&mut self, name: &str);
    /// Handles the end of the innermost element. `text` is its direct text, if it is short enough.
    ///
    /// # Errors
    /// The content makes the document unreadable.
    fn end(&mut self, text: &str) -> Result<(), Unreadable>;
}

/// Reads a document and passes its elements to `handler`.
pub(super) fn read(document: &mut Member<'_>, handler: &mut dyn Handler) -> Result<(), Unreadable> {
    let mut reader = Reader::from_reader(Utf8::new(document));
    let config = reader.config_mut();
    // End tags are compared by this module instead, because some reporters never close an element that is ignored.
    config.check_end_names = false;
    config.allow_unmatched_ends = true;
    let mut walk = Walk { handler, open: Vec::new(), text: String::new(), is_over: false };
    let mut buffer = Vec::new();
    while walk.take(reader.read_event_into(&mut buffer).map_err(of_xml)?)? {
        buffer.clear();
        reader.get_mut().event_bytes = 0;
    }
    Ok(())
}

fn of_xml(error: Error) -> Unreadable {
    match error {
        Error::Io(error) => of_archive(io::Error::new(error.kind(), "the stream failed")),
        _ => Unreadable::Malformed,
    }
}

/// The state of reading a document.
struct Walk<'h> {
    handler: &'h mut dyn Handler,
    /// The qualified names of the open elements.
    open: Vec<String>,
    /// The text since the last tag.
    text: String,
    /// Whether the root element was closed.
    is_over: bool,
}

impl Walk<'_> {
    /// Handles one event. Returns whether the document continues.
    fn take(&mut self, event: Event<'_>) -> Result<bool, Unreadable> {
        match event {
            Event::Start(tag) => {
                check(&tag)?;
                self.start(tag.name().as_ref())?;
            }
            Event::Empty(tag) => {
                check(&tag)?;
                let name = tag.name();
                self.start(name.as_ref())?;
                self.end(name.as_ref())?;
            }
            Event::End(tag) => self.end(tag.name().as_ref())?,
            Event::Text(text) => self.text(&text)?,
            Event::CData(text) => self.text(&text)?,
            Event::GeneralRef(reference) => {
                let text = resolved(&reference).ok_or(Unreadable::Malformed)?;
                self.text(text.encode_utf8(&mut [0; 4]))?;
            }
            Event::DocType(_) => return Err(Unreadable::DocumentType),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof if self.is_over => return Ok(false),
            Event::Eof => return Err(Unreadable::Malformed),
        }
        Ok(true)
    }

    fn start(&mut self, name: &str) -> Result<(), Unreadable> {
        self.text.clear();
        if is_left_out(name) {
            return Ok(());
        }
        if self.is_over || self.open.len() == DEPTH_MAX {
            return Err(if self.is_over { Unreadable::Malformed } else { Unreadable::TooDeep });
        }
        self.open.push(name.to_owned());
        self.handler.start(local(name));
        Ok(())
    }

    fn end(&mut self, name: &str) -> Result<(), Unreadable> {
        if is_left_out(name) {
            return Ok(());
        }
        if self.open.pop().is_none_or(|open| open != name) {
            return Err(Unreadable::Malformed);
        }
        self.is_over = self.open.is_empty();
        self.handler.end(self.text.trim())?;
        self.text.clear();
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), Unreadable> {
        if self.open.is_empty() {
            // Only white space is allowed next to the root element.
            return if text.trim_start_matches('\u{feff}').trim().is_empty() {
                Ok(())
            } else {
                Err(Unreadable::Malformed)
            };
        }
        let room = TEXT_BYTES_MAX.saturating_sub(self.text.len());
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
        Ok(())
    }
}

/// Checks the names and attributes of a start tag, which the reader does not check itself.
fn check(tag: &BytesStart<'_>) -> Result<(), Unreadable> {
    let mut attributes = tag.attributes().map(|attribute| {
        attribute.is_ok_and(|attribute| is_name(attribute.key.as_ref()) && !attribute.value.contains('<'))
    });
    if is_name(tag.name().as_ref()) && attributes.all(|is_sound| is_sound) {
        Ok(())
    } else {
        Err(Unreadable::Malformed)
    }
}

/// Returns whether a text may be a name (XML 1.0 2.3). Nearly all characters outside ASCII are allowed in names.
fn is_name(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-' | '.') || !c.is_ascii();
    let is_start = |c: char| is_allowed(c) && !matches!(c, '0'..='9' | '-' | '.');
    text.starts_with(is_start) && text.chars().all(is_allowed)
}

/// Returns whether the tags of an element are ignored. Some reporters never close their `xs:schema`.
fn is_left_out(name: &str) -> bool {
    local(name) == "schema"
}

/// Returns the part of a qualified name after its prefix.
fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

/// Returns the character of a reference. Without a document type there are five named ones.
fn resolved(reference: &str) -> Option<char> {
    let code = match reference {
        "amp" => return Some('&'),
        "lt" => return Some('<'),
        "gt" => return Some('>'),
        "quot" => return Some('"'),
        "apos" => return Some('\''),
        numbered => numbered.strip_prefix('#')?,
    };
    let number = match code.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => code.parse(),
    };
    char::from_u32(number.ok()?)
}

/// Read size in bytes.
const CHUNK_BYTES: usize = 16 * 1024;
/// Bytes of one text, tag or comment after which only its punctuation is kept. Padding then needs no memory.
const EVENT_BYTES: usize = 64 * 1024;
/// Maximum number of bytes that are kept of one text, tag or comment.
const EVENT_BYTES_MAX: usize = 512 * 1024;

/// A stream converted to UTF-8: each invalid sequence is replaced by U+FFFD.
struct Utf8<'m> {
    stream: &'m mut Member<'m>,
    /// Bytes that may be the start of a character.
    pending: Vec<u8>,
    text: String,
    place: usize,
    /// Number of bytes that the current text, tag or comment has used.
    event_bytes: usize,
    is_over: bool,
}

impl<'m> Utf8<'m> {
    fn new<'s: 'm>(stream: &'m mut Member<'s>) -> Self {
        // A shorter borrow of the same stream.
        let stream: &'m mut Member<'m> = shortened(stream);
        let pending = Vec::with_capacity(CHUNK_BYTES);
        Self { stream, pending, text: String::new(), place: 0, event_bytes: 0, is_over: false }
    }

    fn refill(&mut self) -> io::Result<()> {
        self.place = 0;
        self.text.clear();
        let known = self.pending.len();
        let read = (&mut *self.stream).take(CHUNK_BYTES as u64).read_to_end(&mut self.pending)?;
        let is_last = read == 0;
        debug_assert_eq!(self.pending.len(), known + read);
        let mut kept = Vec::new();
        let mut chunks = self.pending.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            let may_go_on = chunks.peek().is_none() && !is_last;
            let is_cut = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if may_go_on && is_cut {
                kept = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.pending.clear();
        self.pending.extend_from_slice(&kept);
        self.is_over = is_last;
        if self.event_bytes > EVENT_BYTES {
            self.shorten();
        }
        Ok(())
    }

    /// Removes the characters of a long text, tag or comment that can't end it.
    fn shorten(&mut self) {
        let end = self.text.find(['<', '>']).unwrap_or(self.text.len());
        let rest = self.text.split_off(end);
        self.text.retain(|c| c.is_ascii_punctuation());
        self.text.push_str(&rest);
    }
}

fn shortened<'m, 's: 'm>(stream: &'m mut Member<'s>) -> &'m mut Member<'m> {
    stream
}

impl Read for Utf8<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut available = self.fill_buf()?;
        let read = available.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Utf8<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.event_bytes > EVENT_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        while self.place == self.text.len() && !self.is_over {
            self.refill()?;
        }
        Ok(&self.text.as_bytes()[self.place..])
    }

    fn consume(&mut self, bytes: usize) {
        self.place += bytes;
        self.event_bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the calls.
    #[derive(Default)]
    struct Log(String);

    impl Handler for Log {
        fn start(&mut self, name: &str) {
            self.0 += &format!("<{name}");
        }
        fn end(&mut self, text: &str) -> Result<(), Unreadable> {
            self.0 += &format!("|{text}>");
            Ok(())
        }
    }

    fn log(document: &[u8]) -> Result<String, Unreadable> {
        let mut log = Log::default();
        let mut stream = document;
        read(&mut stream, &mut log).map(|()| log.0)
    }

    #[test]
    fn passes_local_names_and_resolved_texts() {
        let document = b"\xef\xbb\xbf<?xml version='1.0'?><!-- x --> <n:a x='1'>\n<b/><n:c> t<![CDATA[<&]]>&amp;&#x41;&#66; </n:c>\n</n:a>\r\n";
        assert_eq!(log(document).unwrap(), "<a<b|><c|t<&&AB>|>");
        assert_eq!(log(b"<a>\xff\xe4x\xc3</a>").unwrap(), "<a|\u{fffd}\u{fffd}x\u{fffd}>");
    }

    #[test]
    fn characters_may_span_chunks() {
        for before in CHUNK_BYTES - 8..CHUNK_BYTES + 2 {
            let document = format!("<a>{}<b>\u{20ac}\u{1f600}</b></a>", " ".repeat(before));
            assert_eq!(log(document.as_bytes()).unwrap(), "<a<b|\u{20ac}\u{1f600}>|>");
        }
    }

    #[test]
    fn long_texts_are_truncated() {
        let long = log(format!("<a>{}</a>", "\u{20ac}".repeat(TEXT_BYTES_MAX)).as_bytes()).unwrap();
        assert_eq!(long.len(), "<a|>".len() + TEXT_BYTES_MAX / 3 * 3);
    }

    #[test]
    fn padding_needs_no_memory_and_other_long_content_is_too_large() {
        let peak = |document: &[u8]| {
            let mut stream = document;
            let mut reader = Reader::from_reader(Utf8::new(&mut stream));
            let mut buffer = Vec::new();
            while !matches!(reader.read_event_into(&mut buffer).map_err(of_xml)?, Event::Eof) {
                reader.get_mut().event_bytes = 0;
                buffer.clear();
            }
            Ok::<_, Unreadable>(buffer.capacity())
        };
        let long = 4 << 20;
        for padding in [" ".repeat(long).into_bytes(), vec![0xff; long], "a\u{20ac}".repeat(long / 4).into_bytes()] {
            for (before, after) in
                [("<a>", "<b>1</b></a>"), ("<a><!--", "--><b>1</b></a>"), ("<a x='", "'><b>1</b></a>")]
            {
                let document = [before.as_bytes(), &padding, after.as_bytes()].concat();
                assert_eq!(log(&document).unwrap(), "<a<b|1>|>", "{before}");
                assert!(peak(&document).unwrap() <= 4 * EVENT_BYTES);
            }
        }
        for dense in ["<a>&amp;", "<a>]", "<a><!-->", "<a x='<"] {
            let (start, padding) = dense.split_at(dense.len() - 1);
            let document = format!("{start}{}", padding.repeat(long));
            assert!(log(document.as_bytes()).is_err() && peak(document.as_bytes()).is_err(), "{dense}");
        }
    }

    #[test]
    fn a_schema_is_ignored_closed_or_not() {
        assert_eq!(log(b"<a><xs:schema x='y'><b>1</b></a>").unwrap(), "<a<b|1>|>");
        assert_eq!(log(b"<a><xs:schema><xs:element/></xs:schema><b>1</b></a>").unwrap(), "<a<element|><b|1>|>");
    }

    #[test]
    fn malformed_documents_are_unreadable() {
        for malformed in [
            "",
            " ",
            "<a>",
            "<a><b></a>",
            "<a></b>",
            "<a></a></a>",
            "<a/><b/>",
            "x<a/>",
            "<a/>x",
            "<a>&undefined;</a>",
            "<a>&#xd800;</a>",
            "<a",
            "<a><!-- x",
            "<a><![CDATA[x</a>",
            "<a></a",
            "<a>&amp</a>",
            "<a x/>",
            "<a x=1/>",
            "<a x='1' x='2'/>",
            "<a x='<'/>",
            "<a 1x='1'/>",
            "<1a></1a>",
            "<a<b></a<b>",
        ] {
            assert_eq!(log(malformed.as_bytes()), Err(Unreadable::Malformed), "{malformed}");
        }
        for declared in ["<!DOCTYPE a><a/>", "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>"] {
            assert_eq!(log(declared.as_bytes()), Err(Unreadable::DocumentType), "{declared}");
        }
        let nested = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        assert!(log(nested(DEPTH_MAX).as_bytes()).is_ok());
        assert_eq!(log(nested(DEPTH_MAX + 1).as_bytes()), Err(Unreadable::TooDeep));
    }
}
