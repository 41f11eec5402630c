//! The table at the end, and the notes that explain its columns.

use std::fmt::Write as _;
use std::time::Duration;

use crate::body::MessageBodies;
use crate::calibration::{Calibration, micros};
use crate::row::Row;

const COLUMNS: usize = 20;

const HEADINGS: [&str; COLUMNS] = [
    "row",
    "msgs",
    "accept/s",
    "deliv/s",
    "p50 ms",
    "p99 ms",
    "p99.9 ms",
    "max ms",
    "ckpts",
    "CPU ms",
    "SU",
    "client ms",
    "write KB",
    "device KB",
    "flush",
    "sync",
    "DKIM",
    "idle MB",
    "peak MB",
    "load",
];

const NOTES: &str = "\
accept rows: the recipients' domains do not resolve, so nothing is delivered; the row ends with the last 202.
deliver rows: CPU and bytes run until smtp-sink has every message and no message is queued or deferred.
CPU ms, client ms, write KB, device KB, flush, sync: per message. SU: CPU over the CPU of one RSA-2048 signature.
write KB: write_bytes of the process, far too high for preallocated files. device KB: the whole device, others' writes
included. flush: the device's cache flushes. sync: the server's own counter. `-`: not measured. ckpts: checkpoints of
the store within the row. A row of 16 clients with several of them shows whether they hold up answers.
`!` after a row: the CPU's unit moved by more than 15 % meanwhile; measure it again.
";

/// Returns the whole report.
pub(crate) fn render(first: &Calibration, bodies: &[(usize, &MessageBodies)], rows: &[Row]) -> String {
    let mut out = String::from("\n");
    let _ = writeln!(
        out,
        "RSA-2048 sign {} us CPU; 4 KB append + fdatasync p50 {} us, {:.2} device flushes each",
        micros(first.sign),
        micros(first.sync),
        first.flushes_per_sync
    );
    for (kilobytes, bodies) in bodies {
        let _ = writeln!(out, "{kilobytes} KB: {} bytes of text and html, zstd {:.1}:1", bodies.bytes, bodies.ratio);
    }
    out.push('\n');
    let lines: Vec<[String; COLUMNS]> =
        std::iter::once(HEADINGS.map(str::to_owned)).chain(rows.iter().map(cells)).collect();
    put_aligned(&mut out, &lines);
    out.push('\n');
    out.push_str(NOTES);
    for row in rows {
        if let (Some(requests), Some(lag)) = (row.bucket_requests, row.lag) {
            let (label, each) = (row.point.label(), requests as f64 / row.messages as f64);
            let _ = writeln!(out, "{label}: {each:.3} requests to the bucket a message, at most {lag:.2} s behind");
        }
        if let Some(extra @ 1..) = row.extra_at_sink {
            let _ = writeln!(out, "{}: {extra} more messages at the sink than were sent", row.point.label());
        }
    }
    out
}

fn cells(row: &Row) -> [String; COLUMNS] {
    let mark = if row.is_steady() { "" } else { " !" };
    [
        format!("{}{mark}", row.point.label()),
        row.messages.to_string(),
        format!("{:.0}", row.accept_rate()),
        cell(row.delivery_rate(), 0),
        millis(row.answers.at(0.50)),
        millis(row.answers.at(0.99)),
        millis(row.answers.at(0.999)),
        millis(row.answers.at(1.0)),
        cell(row.checkpoints, 0),
        format!("{:.3}", row.cpu_ms()),
        format!("{:.2}", row.sign_units()),
        format!("{:.3}", row.client_ms()),
        format!("{:.1}", row.written_kb()),
        cell(row.device_kb(), 1),
        cell(row.flushes(), 2),
        cell(row.syncs(), 2),
        row.signatures.to_string(),
        megabytes(row.idle_kb),
        megabytes(row.peak_kb),
        format!("{:.1}", row.load_average),
    ]
}

fn cell(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

fn millis(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}

fn megabytes(kilobytes: u64) -> String {
    format!("{:.1}", kilobytes as f64 / 1024.0)
}

/// Aligns the first column left, the others right.
fn put_aligned(out: &mut String, lines: &[[String; COLUMNS]]) {
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    for line in lines {
        let _ = write!(out, "{:<width$}", line[0], width = widths[0]);
        for (cell, width) in line.iter().zip(widths).skip(1) {
            let _ = write!(out, "  {cell:>width$}");
        }
        out.push('\n');
    }
}
