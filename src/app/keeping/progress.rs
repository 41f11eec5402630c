//! How far a long command is, on standard error: a line at its beginning, one a second, and one at its end.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::store::archive::Totals;

/// How often a line is written.
const STEP: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

/// What is told of a command's progress.
pub struct Progress<'a> {
    out: &'a mut dyn Write,
    what: &'static str,
    told: Instant,
    rows: u64,
    content: u64,
}

impl<'a> Progress<'a> {
    /// The progress of `what`, which begins now.
    pub fn new(what: &'static str, out: &'a mut dyn Write) -> Self {
        Self { out, what, told: Instant::now(), rows: 0, content: 0 }
    }

    /// There are so many rows.
    pub fn expect_rows(&mut self, rows: u64) {
        self.rows = rows;
        self.line(&format!("{rows} rows"));
    }

    /// There is so much content.
    pub const fn expect_content(&mut self, octets: u64) {
        self.content = octets;
    }

    /// So much is done.
    pub fn done(&mut self, totals: Totals) {
        if self.told.elapsed() < STEP {
            return;
        }
        self.told = Instant::now();
        let rows = format!("{} of {} rows", totals.rows, self.rows);
        match totals.content_octets {
            0 => self.line(&rows),
            octets => self.line(&format!("{rows}, {} of {} MiB of content", octets / MIB, self.content / MIB)),
        }
    }

    /// So many rows of an unknown number were looked at.
    pub fn looked_at(&mut self, rows: u64) {
        if self.told.elapsed() >= STEP {
            self.told = Instant::now();
            self.line(&format!("{rows} rows"));
        }
    }

    /// A line that says something else.
    pub fn line(&mut self, text: &str) {
        // Progress that nobody reads is no reason to stop.
        let _ = writeln!(self.out, "{}: {text}", self.what);
    }
}
