//! Metrics of the process, if the system provides them.

use std::fs;

use super::exposition::Exposition;
use crate::base::time::Timestamp;

/// The process and its program.
#[derive(Debug, Clone)]
pub struct Process {
    /// Start time.
    pub started_at: Timestamp,
    /// The program's version.
    pub version: &'static str,
}

impl Process {
    pub(super) fn write(&self, text: &mut Exposition) {
        text.info("postrider_build", "Version of the running program.", &[("version", self.version)]);
        #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit 53 bits")]
        let started_at = self.started_at.as_millis() as f64 / 1e3;
        text.gauges(
            "process_start_time_seconds",
            "Start time of the process, in seconds since 1970.",
            [(vec![], started_at)],
        );
        text.gauges(
            "process_resident_memory_bytes",
            "Resident memory of the process.",
            resident_bytes().map(|bytes| (vec![], bytes)),
        );
        text.gauges(
            "process_open_fds",
            "Open files and sockets of the process.",
            open_files().map(|open| (vec![], open)),
        );
    }
}

/// Returns `VmRSS` of proc(5), if available.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

fn open_files() -> Option<usize> {
    // Reading the directory opens one more file.
    fs::read_dir("/proc/self/fd").ok().map(|open| open.count().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_files_of_this_process_are_reported() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(open_files().is_some_and(|open| open > 2));
    }
}
