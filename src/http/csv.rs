//! CSV (RFC 4180): reads records with their first line numbers, and writes records.
//!
//! Lines may end with LF alone. A byte order mark is skipped, and empty lines are ignored.

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
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Records<'a> {
    /// Returns the records of `text`; lines are counted from 1.
    pub fn of(text: &'a str) -> Self {
        Self { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 }
    }

    /// Returns the records of the rest of a text, which starts with a record.
    pub const fn of_rest(rest: &'a str) -> Self {
        Self { rest, line: 1 }
    }

    /// Returns the unread text.
    pub const fn rest(&self) -> &'a str {
        self.rest
    }

    /// Reads the field up to the next separator. Returns whether the record continues after it.
    fn field(&mut self) -> Result<(String, bool), InvalidCsv> {
        let field = match self.rest.strip_prefix('"') {
            Some(inside) => self.quoted(inside)?,
            None => {
                let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
                let (field, rest) = self.rest.split_at(end);
                self.rest = rest;
                // A CR belongs to the line end.
                let is_last = !rest.starts_with(',');
                if is_last { field.strip_suffix('\r').unwrap_or(field) } else { field }.to_owned()
            }
        };
        if let Some(rest) = self.rest.strip_prefix(',') {
            self.rest = rest;
            return Ok((field, true));
        }
        self.end_line()?;
        Ok((field, false))
    }

    fn quoted(&mut self, inside: &'a str) -> Result<String, InvalidCsv> {
        let (mut field, mut rest) = (String::new(), inside);
        loop {
            let (part, after) = rest.split_once('"').ok_or(InvalidCsv::Open)?;
            field.push_str(part);
            match after.strip_prefix('"') {
                Some(after) => {
                    field.push('"');
                    rest = after;
                }
                None => {
                    self.line += field.matches('\n').count();
                    self.rest = after;
                    return Ok(field);
                }
            }
        }
    }

    fn end_line(&mut self) -> Result<(), InvalidCsv> {
        if self.rest.is_empty() {
            return Ok(());
        }
        let rest = self.rest.strip_prefix('\r').unwrap_or(self.rest);
        if rest.is_empty() {
            self.rest = rest;
            return Ok(());
        }
        self.rest = rest.strip_prefix('\n').ok_or(InvalidCsv::AfterQuote)?;
        self.line += 1;
        Ok(())
    }

    fn skip_line(&mut self) {
        self.rest = self.rest.split_once('\n').map_or("", |(_, rest)| rest);
        self.line += 1;
    }
}

impl Iterator for Records<'_> {
    /// The first line of the record, and its fields.
    type Item = (usize, Result<Vec<String>, InvalidCsv>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.rest.starts_with('\n') || self.rest.starts_with("\r\n") {
            self.skip_line();
        }
        if self.rest.is_empty() {
            return None;
        }
        let (line, mut fields) = (self.line, Vec::new());
        loop {
            match self.field() {
                Ok((field, goes_on)) => {
                    fields.push(field);
                    if !goes_on {
                        return Some((line, Ok(fields)));
                    }
                }
                Err(fault) => {
                    // After an unterminated field the rest can't be parsed. After other errors parsing continues on the
                    // next line.
                    match fault {
                        InvalidCsv::Open => self.rest = "",
                        InvalidCsv::AfterQuote => self.skip_line(),
                    }
                    return Some((line, Err(fault)));
                }
            }
        }
    }
}

/// Appends a record with its line end to `text`. Quotes the fields that need it.
pub fn write_record(text: &mut String, fields: &[&str]) {
    for (place, field) in fields.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        // Some programs keep leading and trailing white space only in quotes.
        let is_plain = !field.contains(['"', ',', '\r', '\n']) && field.trim() == *field;
        if is_plain {
            text.push_str(field);
        } else {
            text.push('"');
            text.push_str(&field.replace('"', "\"\""));
            text.push('"');
        }
    }
    text.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<(usize, Result<Vec<String>, InvalidCsv>)> {
        Records::of(text).collect()
    }

    fn record(fields: &[&str]) -> Result<Vec<String>, InvalidCsv> {
        Ok(fields.iter().map(|field| (*field).to_owned()).collect())
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
            let mut text = String::new();
            for row in &rows {
                write_record(&mut text, &row.iter().map(String::as_str).collect::<Vec<_>>());
            }
            let back: Vec<_> = Records::of(&text).map(|(_, fields)| fields.unwrap()).collect();
            prop_assert_eq!(back, rows);
        }
    }
}
