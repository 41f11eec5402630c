//! CSV (RFC 4180): reads records with their first line numbers, and writes records.
//!
//! Lines may end with CR or LF alone. A byte order mark is skipped, and empty lines are ignored.

use csv::{Reader, ReaderBuilder, StringRecord, Terminator, WriterBuilder};

/// Error: the text is not valid CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCsv {
    /// A quoted field has no end.
    #[error("a quoted field is never closed")]
    Open,
    /// There is text between a closing quote and the next comma.
    #[error("only a comma or line end may follow a closing quote; double the quotes inside a field")]
    AfterQuote,
}

/// Iterator over the records of a text.
#[derive(Debug)]
pub struct Records<'a> {
    text: &'a str,
    reader: Reader<&'a [u8]>,
}

impl<'a> Records<'a> {
    /// Returns the records of `text`; lines are counted from 1.
    pub fn of(text: &'a str) -> Self {
        let reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
        Self { text, reader }
    }

    /// Returns the unread text.
    pub fn rest(&self) -> &'a str {
        let read = usize::try_from(self.reader.position().byte()).unwrap_or(usize::MAX);
        self.text.get(read..).unwrap_or_default()
    }
}

impl Iterator for Records<'_> {
    /// The first line of the record, and its fields.
    type Item = (usize, Result<StringRecord, InvalidCsv>);

    fn next(&mut self) -> Option<Self::Item> {
        let (rest, line) = (self.rest(), self.reader.position().line());
        let mut record = StringRecord::new();
        // Reading from memory does not fail.
        if !self.reader.read_record(&mut record).is_ok_and(|is_read| is_read) {
            return None;
        }
        // The text that the reader consumed includes the empty lines before the record, and the LF of the previous
        // line.
        let read = &rest[..rest.len() - self.rest().len()];
        let written = read.trim_start_matches(['\u{feff}', '\r', '\n']);
        let skipped = read[..read.len() - written.len()].matches('\n').count();
        Some((usize::try_from(line).unwrap_or(usize::MAX) + skipped, check_quotes(written).map(|()| record)))
    }
}

/// Checks the quotes of a record. The reader accepts any, but a missing one would turn many lines into one field.
fn check_quotes(record: &str) -> Result<(), InvalidCsv> {
    let mut rest = Some(record);
    while let Some(field) = rest {
        let end = field.strip_prefix('"').map_or(Ok(field), after_quoted)?;
        rest = end.split_once(',').map(|(_, next)| next);
    }
    Ok(())
}

/// Returns the text after the closing quote of a field.
fn after_quoted(field: &str) -> Result<&str, InvalidCsv> {
    let mut rest = field;
    loop {
        let (_, after) = rest.split_once('"').ok_or(InvalidCsv::Open)?;
        match after.strip_prefix('"') {
            Some(after) => rest = after,
            None if after.is_empty() || after.starts_with([',', '\r', '\n']) => return Ok(after),
            None => return Err(InvalidCsv::AfterQuote),
        }
    }
}

/// Appends a record with its line end to `text`. Quotes the fields that need it.
pub fn write_record(text: &mut Vec<u8>, fields: &[&str]) {
    // Writing to memory does not fail, and the writer is flushed when it is dropped.
    let _ = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(text).write_record(fields);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<(usize, Result<StringRecord, InvalidCsv>)> {
        Records::of(text).collect()
    }

    fn record(fields: &[&str]) -> Result<StringRecord, InvalidCsv> {
        Ok(fields.to_vec().into())
    }

    #[test]
    fn records_have_the_number_of_their_first_line() {
        let text = "\u{feff}a,b\r\n\r\n\"1\n2\",\"say \"\"hi\"\"\"\n,\nlast,\"\"";
        let expected = [
            (1, record(&["a", "b"])),
            (3, record(&["1\n2", "say \"hi\""])),
            (5, record(&["", ""])),
            (6, record(&["last", ""])),
        ];
        assert_eq!(read(text), expected);
        assert_eq!(read("a\r\n"), [(1, record(&["a"]))]);
        assert_eq!(read("\"a\"\r"), [(1, record(&["a"]))]);
        assert_eq!(read("a\r\nb\r\n\r\nc"), [(1, record(&["a"])), (2, record(&["b"])), (4, record(&["c"]))]);
        assert_eq!(read(""), []);
    }

    #[test]
    fn an_error_has_its_line_and_the_next_record_is_read() {
        assert_eq!(read("\"a\"b,c\nd\n"), [(1, Err(InvalidCsv::AfterQuote)), (2, record(&["d"]))]);
        assert_eq!(read("a\n\"b\nc\n"), [(1, record(&["a"])), (2, Err(InvalidCsv::Open))]);
    }

    proptest! {
        #[test]
        fn written_records_are_read_back(rows in proptest::collection::vec(
            proptest::collection::vec("[a-z,\"\r\n é]{0,6}", 2..4), 0..5
        )) {
            let mut text = Vec::new();
            for row in &rows {
                write_record(&mut text, &row.iter().map(String::as_str).collect::<Vec<_>>());
            }
            let text = String::from_utf8(text).unwrap();
            let back: Vec<_> = Records::of(&text).map(|(_, fields)| fields.unwrap()).collect();
            prop_assert_eq!(back, rows.into_iter().map(StringRecord::from).collect::<Vec<_>>());
        }
    }
}
