//! Import and export formats of suppressions: CSV with a header line, or JSON lines (contract 6).
//!
//! Both forms become JSON objects, so that one check applies to both, and all errors of all lines are reported.

use csv::StringRecord;
use serde_json::{Map, Value};

use super::suppressions::{email, note};
use crate::base::time::Timestamp;
use crate::domain::fields::Fields;
use crate::domain::nearest::nearest;
use crate::domain::violation::Violations;
use crate::engine::suppressions::SuppressionBatches;
use crate::http::csv::{Records, write_record};
use crate::http::error::ApiError;
use crate::http::json;
pub(crate) use crate::http::view::suppression::FaultyLine;
use crate::store::content::compression::{compress, decompress};
use crate::store::op::suppression::{IMPORTED_MAX, Suppression};
use crate::store::row::suppression::{SuppressionReason, SuppressionRow};

/// The members of a line, and the CSV columns in the order of the export.
const COLUMNS: [&str; 4] = ["email", "reason", "created_at", "note"];
/// Maximum number of invalid lines that one answer reports. A list with more of them is the wrong list.
const FAULTY_LINES_MAX: usize = 1000;

/// Format of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Comma-separated values. The first line has the column names.
    Csv,
    /// One object per line.
    JsonLines,
}

/// Reasons for refusing a list.
#[derive(Debug)]
pub(crate) enum FaultyList {
    /// The list is not text.
    Unreadable(ApiError),
    /// Errors in these lines.
    Lines(Violations, Vec<FaultyLine>),
}

/// A list without errors. It is stored as compressed text in batches and parsed again: as objects, a million lines
/// would take ten times as much memory.
#[derive(Debug)]
pub(crate) struct CheckedList {
    form: Form,
    now: Timestamp,
    /// The columns in the first line of CSV.
    columns: Vec<&'static str>,
    /// The compressed text of each batch.
    batches: Vec<Box<[u8]>>,
    count: usize,
}

impl SuppressionBatches for CheckedList {
    fn count(&self) -> usize {
        self.count
    }

    fn batches(&self) -> usize {
        self.batches.len()
    }

    fn batch(&self, number: usize) -> Vec<Suppression> {
        let Some(compressed) = self.batches.get(number) else { return Vec::new() };
        let text = decompress(compressed).ok().and_then(|text| String::from_utf8(text).ok());
        let Some(text) = text else { unreachable!("memory gives back what was compressed") };
        let mut reading = ReadResult::new(self.now, Keep::Batch(Vec::with_capacity(IMPORTED_MAX)));
        match self.form {
            Form::Csv => reading.records(&text, Records::of(&text), &self.columns),
            Form::JsonLines => reading.json_lines(&text, &text),
        }
        match reading.keep {
            Keep::Batch(list) => list,
            Keep::Places(_) => Vec::new(),
        }
    }
}

/// Policy for the lines without errors.
enum Keep {
    /// Store the start of every batch.
    Places(Vec<usize>),
    /// Store the suppressions of one batch.
    Batch(Vec<Suppression>),
}

/// Result of reading the lines.
struct ReadResult {
    now: Timestamp,
    count: usize,
    keep: Keep,
    faulty: Vec<FaultyLine>,
    violations: Violations,
}

/// Checks the whole list in `body`. Returns all of its errors, if there are any.
pub(super) fn check(body: &[u8], form: Form, now: Timestamp) -> Result<CheckedList, FaultyList> {
    let text = std::str::from_utf8(body).map_err(|fault| {
        let sentence = format!("must be UTF-8: see byte {}", fault.valid_up_to() + 1);
        FaultyList::Unreadable(Violations::of("body", sentence).into())
    })?;
    let mut reading = ReadResult::new(now, Keep::Places(Vec::new()));
    let columns = match form {
        Form::Csv => reading.csv(text),
        Form::JsonLines => {
            reading.json_lines(text, text.strip_prefix('\u{feff}').unwrap_or(text));
            Vec::new()
        }
    };
    if reading.faulty.len() == FAULTY_LINES_MAX {
        reading.violations.hint(format!("Reading stopped after {FAULTY_LINES_MAX} invalid lines."));
    }
    match reading.keep {
        Keep::Places(batches) if reading.faulty.is_empty() => {
            let ends = batches.iter().skip(1).copied().chain([text.len()]);
            // The text is boxed, since compression reserves more than it uses.
            let pack = |(at, end): (&usize, usize)| compress(&text.as_bytes()[*at..end]).into_boxed_slice();
            let batches = batches.iter().zip(ends).map(pack).collect();
            let count = reading.count;
            Ok(CheckedList { form, now, columns, batches, count })
        }
        Keep::Places(_) | Keep::Batch(_) => Err(FaultyList::Lines(reading.violations, reading.faulty)),
    }
}

impl ReadResult {
    fn new(now: Timestamp, keep: Keep) -> Self {
        Self { now, count: 0, keep, faulty: Vec::new(), violations: Violations::new() }
    }

    fn is_over(&self) -> bool {
        let is_full = matches!(&self.keep, Keep::Batch(list) if list.len() == IMPORTED_MAX);
        is_full || self.faulty.len() == FAULTY_LINES_MAX
    }

    /// Parses a whole text, and returns its columns.
    fn csv(&mut self, text: &str) -> Vec<&'static str> {
        let mut records = Records::of(text);
        let Some((line, head)) = records.next() else {
            self.fault(1, format!("must name the columns: {}", COLUMNS.join(",")));
            return Vec::new();
        };
        match head.map_err(|fault| fault.to_string()).and_then(|names| columns(&names)) {
            Ok(columns) => {
                self.records(text, records, &columns);
                columns
            }
            Err(sentence) => {
                self.fault(line, sentence);
                Vec::new()
            }
        }
    }

    fn records(&mut self, text: &str, mut records: Records<'_>, columns: &[&'static str]) {
        while !self.is_over() {
            let at = text.len() - records.rest().len();
            let Some((line, record)) = records.next() else { return };
            match record {
                Err(fault) => self.fault(line, fault.to_string()),
                Ok(cells) if cells.len() != columns.len() => {
                    let sentence =
                        format!("must have {} fields, as the first line has, not {}", columns.len(), cells.len());
                    self.fault(line, sentence);
                }
                Ok(cells) => {
                    let members = columns.iter().zip(&cells).filter(|(_, cell)| !cell.is_empty());
                    let object = members.map(|(name, cell)| ((*name).to_owned(), cell.into())).collect();
                    self.object(line, at, object);
                }
            }
        }
    }

    /// Parses the lines of `rest`, the end of `text`.
    fn json_lines(&mut self, text: &str, rest: &str) {
        let mut at = text.len() - rest.len();
        for (line, written) in (1..).zip(rest.split_inclusive('\n')) {
            if self.is_over() {
                return;
            }
            let begins = at;
            at += written.len();
            let written = written.trim_end_matches('\n').trim_end_matches('\r');
            if written.trim().is_empty() {
                continue;
            }
            match json::parse_object(written.as_bytes()) {
                Ok(object) => self.object(line, begins, object),
                Err(_) => {
                    self.fault(line, "must be one JSON object, such as {\"email\":\"name@example.com\"}".to_owned())
                }
            }
        }
    }

    /// Stores a valid line, which starts at byte `at`.
    fn keep(&mut self, at: usize, suppression: Suppression) {
        match &mut self.keep {
            Keep::Places(places) if self.count.is_multiple_of(IMPORTED_MAX) => places.push(at),
            Keep::Places(_) => {}
            Keep::Batch(list) => list.push(suppression),
        }
        self.count += 1;
    }

    /// Records a line that can't be parsed.
    fn fault(&mut self, line: usize, message: String) {
        self.violations.add(format!("lines.{line}"), message.as_str());
        self.faulty.push(FaultyLine { line, message });
    }

    /// Checks a parsed line.
    fn object(&mut self, line: usize, at: usize, object: Map<String, Value>) {
        let mut violations = Violations::new();
        let path = format!("lines.{line}");
        let mut fields = Fields::nested(object, &path, &mut violations);
        let suppression = lift(&mut fields, self.now);
        fields.finish();
        match suppression.filter(|_| violations.is_empty()) {
            Some(suppression) => self.keep(at, suppression),
            None => {
                self.faulty.push(FaultyLine { line, message: sentence(&violations, &path) });
                self.violations.absorb(violations);
            }
        }
    }
}

fn lift(fields: &mut Fields<'_>, now: Timestamp) -> Option<Suppression> {
    let address = email(fields);
    let reason = fields.text("reason").and_then(|text| fields.check("reason", text.parse()));
    let created_at = fields.text("created_at").and_then(|text| fields.check("created_at", text.parse()));
    if created_at.is_some_and(|at| at > now) {
        fields.fault("created_at", "must not be in the future");
    }
    let note = note(fields);
    let reason = reason.unwrap_or(SuppressionReason::Import);
    Some(Suppression { created_at, note, ..Suppression::of(address?, reason) })
}

/// Formats all errors of a line as one sentence.
fn sentence(violations: &Violations, path: &str) -> String {
    let faults = violations.by_field().iter().flat_map(|(field, sentences)| {
        let name = field.strip_prefix(path).unwrap_or(field).trim_start_matches('.');
        sentences.iter().map(move |sentence| format!("{name}: {sentence}"))
    });
    faults.collect::<Vec<_>>().join("; ")
}

/// Returns the known columns of the first line, in its order.
fn columns(names: &StringRecord) -> Result<Vec<&'static str>, String> {
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        let lower = name.trim().to_lowercase();
        let Some(known) = COLUMNS.into_iter().find(|known| *known == lower) else {
            let meant = nearest(&lower, &COLUMNS).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
            let shown: String = name.chars().take(64).collect();
            return Err(format!("the column {shown:?} is unknown; known are {}{meant}", COLUMNS.join(",")));
        };
        if columns.contains(&known) {
            return Err(format!("the column {known} is named twice"));
        }
        columns.push(known);
    }
    if columns.contains(&"email") { Ok(columns) } else { Err("must name the column email".to_owned()) }
}

/// Returns the first line of an export.
pub(in crate::http) fn head() -> Vec<u8> {
    let mut text = Vec::new();
    write_record(&mut text, &COLUMNS);
    text
}

/// Appends a line of an export.
pub(in crate::http) fn write(text: &mut Vec<u8>, row: &SuppressionRow) {
    let (created_at, note) = (row.created_at.to_string(), row.note.as_deref().unwrap_or_default());
    write_record(text, &[&row.email, row.reason.as_str(), &created_at, note]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_stops_after_too_many_invalid_lines() {
        let list = format!("email\n{}", "nobody\n".repeat(FAULTY_LINES_MAX + 1));
        let Err(FaultyList::Lines(violations, lines)) = check(list.as_bytes(), Form::Csv, Timestamp::ZERO) else {
            panic!("taken");
        };
        assert_eq!((lines.len(), lines[0].line), (FAULTY_LINES_MAX, 2));
        assert_eq!(violations.hints(), ["Reading stopped after 1000 invalid lines."]);
    }

    #[test]
    fn a_checked_list_is_read_again_by_batch_in_both_formats() {
        let count = 2 * IMPORTED_MAX + 1;
        let csv: String = (0..count).map(|n| format!("\r\n\"a, \"\"{n}\"\"\",a{n}@example.net\r\n")).collect();
        let lines: String = (0..count).map(|n| format!("\n{{\"email\":\"a{n}@example.net\"}}\n")).collect();
        for (body, form) in
            [(format!("\u{feff}note,email\n{csv}"), Form::Csv), (format!("\u{feff}{lines}"), Form::JsonLines)]
        {
            let Ok(list) = check(body.as_bytes(), form, Timestamp::ZERO) else { panic!("it has no faults") };
            assert_eq!((list.count(), list.batches()), (count, 3));
            let read: Vec<_> = (0..list.batches()).flat_map(|number| list.batch(number)).collect();
            let expected = (0..count).map(|n| format!("a{n}@example.net"));
            assert!(read.iter().map(|suppression| suppression.address.as_given().to_owned()).eq(expected));
            assert!(list.batch(3).is_empty());
        }
    }

    #[test]
    fn a_list_that_is_not_utf_8_is_rejected() {
        let refused = check(b"email\n\xff", Form::Csv, Timestamp::ZERO);
        assert!(matches!(refused, Err(FaultyList::Unreadable(ApiError::Invalid(_)))));
    }
}
