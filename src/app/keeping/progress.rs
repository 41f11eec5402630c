//! Progress of a long command, on standard error: a line at the beginning, one a second, and one at the end.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::store::archive::{Head, Totals};

/// Interval between lines.
const STEP: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

/// Progress of a command.
pub struct Progress<'a> {
    out: &'a mut dyn Write,
    what: &'static str,
    reported: Instant,
    is_begun: bool,
    rows: u64,
    content: u64,
}

impl<'a> Progress<'a> {
    /// Starts the progress output of `what`.
    pub fn new(what: &'static str, out: &'a mut dyn Write) -> Self {
        Self { out, what, reported: Instant::now(), is_begun: false, rows: 0, content: 0 }
    }

    /// Sets the total number of rows.
    pub fn expect_rows(&mut self, rows: u64) {
        self.is_begun = true;
        self.rows = rows;
        self.line(&format!("{rows} rows"));
    }

    /// Sets the total size of the content.
    pub const fn expect_content(&mut self, bytes: u64) {
        self.content = bytes;
    }

    /// Reports the part of a backup that was read, whose totals come from `head`.
    pub fn read(&mut self, head: &Head, totals: Totals) {
        if !self.is_begun {
            self.expect_rows(head.rows);
        }
        self.done(totals);
    }

    /// Reports the part that is done.
    pub fn done(&mut self, totals: Totals) {
        if self.reported.elapsed() < STEP {
            return;
        }
        self.reported = Instant::now();
        let rows = format!("{} of {} rows", totals.rows, self.rows);
        match totals.content_bytes {
            0 => self.line(&rows),
            bytes if self.content == 0 => self.line(&format!("{rows}, {} MiB of content", bytes / MIB)),
            bytes => self.line(&format!("{rows}, {} of {} MiB of content", bytes / MIB, self.content / MIB)),
        }
    }

    /// Reports the number of checked rows, of an unknown total.
    pub fn looked_at(&mut self, rows: u64) {
        if self.reported.elapsed() >= STEP {
            self.reported = Instant::now();
            self.line(&format!("{rows} rows"));
        }
    }

    /// Prints another line.
    pub fn line(&mut self, text: &str) {
        // An output that can't be written must not stop the command.
        let _ = writeln!(self.out, "{}: {text}", self.what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;

    #[test]
    fn progress_is_shown_at_once_and_then_every_second() {
        let mut output = Vec::new();
        let mut progress = Progress::new("restore", &mut output);
        let head = Head {
            store_format: 1,
            taken_at: Timestamp::ZERO,
            program: String::new(),
            has_content: false,
            has_master_key: false,
            rows: 70,
        };
        for rows in [10, 20] {
            progress.read(&head, Totals { rows, ..Totals::default() });
        }
        progress.reported = Instant::now() - STEP;
        progress.read(&head, Totals { rows: 30, segments: 1, content_bytes: 5 * MIB });
        assert_eq!(String::from_utf8(output).unwrap(), "restore: 70 rows\nrestore: 30 of 70 rows, 5 MiB of content\n");
    }
}
