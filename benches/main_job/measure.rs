//! Cost of the server, measured from outside: `/proc/PID` for CPU, memory and writes, `/proc/diskstats` for the disk.
//!
//! There are two figures for written bytes, because each has a flaw. `write_bytes` of `/proc/PID/io` counts dirtied
//! pages, and on ext4 with large folios charges up to 1 MiB for 4 KB written into a preallocated file. The device's
//! sectors include the writes of all other processes, so measure on an idle machine.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::Outcome;

/// USER_HZ: 100 on every Linux but Alpha (proc(5)).
const TICKS_PER_SECOND: f64 = 100.0;
/// The unit of `/proc/diskstats` for devices of any sector size.
const SECTOR_BYTES: u64 = 512;

/// Reads the counters of one server process.
pub(crate) struct Gauge {
    pid: u32,
    disk: Disk,
}

/// Values of the counters at one moment.
pub(crate) struct Reading {
    server_ticks: u64,
    client_ticks: u64,
    written: u64,
    disk: Option<DiskReading>,
}

/// Difference between two readings.
pub(crate) struct Usage {
    pub(crate) server_seconds: f64,
    /// CPU time of this process: load, name server and reading the sink's counter.
    pub(crate) client_seconds: f64,
    /// `write_bytes` of the server.
    pub(crate) written: u64,
    /// Difference for the whole device; `None` if it is not in `/proc/diskstats`.
    pub(crate) disk: Option<DiskReading>,
}

impl Gauge {
    pub(crate) fn new(pid: u32, directory: &Path) -> Outcome<Self> {
        Ok(Self { pid, disk: Disk::of(directory)? })
    }

    /// Reads the counters after flushing everything written so far to the device.
    pub(crate) fn read(&self) -> Outcome<Reading> {
        self.disk.settle()?;
        Ok(Reading {
            server_ticks: cpu_ticks(&self.pid.to_string())?,
            client_ticks: cpu_ticks("self")?,
            written: self.field("io", "write_bytes:")?,
            disk: self.disk.read()?,
        })
    }

    /// Returns the resident memory, in KB.
    pub(crate) fn resident_kb(&self) -> Outcome<u64> {
        self.field("status", "VmRSS:")
    }

    /// Returns the peak resident memory since the process began, in KB.
    pub(crate) fn peak_kb(&self) -> Outcome<u64> {
        self.field("status", "VmHWM:")
    }

    fn field(&self, file: &str, name: &str) -> Outcome<u64> {
        let path = format!("/proc/{}/{file}", self.pid);
        let text = std::fs::read_to_string(&path)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|rest| rest.split_whitespace().next());
        Ok(value.ok_or_else(|| format!("{path} has no {name}"))?.parse()?)
    }
}

impl Reading {
    /// Returns the difference to the `later` reading.
    pub(crate) fn until(&self, later: &Self) -> Usage {
        Usage {
            server_seconds: (later.server_ticks - self.server_ticks) as f64 / TICKS_PER_SECOND,
            client_seconds: (later.client_ticks - self.client_ticks) as f64 / TICKS_PER_SECOND,
            written: later.written - self.written,
            disk: self.disk.zip(later.disk).map(|(from, to)| from.until(to)),
        }
    }
}

/// The block device of a directory.
pub(crate) struct Disk {
    directory: File,
    major: u32,
    minor: u32,
}

/// Activity of a device: since the machine started, or between two readings.
#[derive(Clone, Copy)]
pub(crate) struct DiskReading {
    pub(crate) bytes: u64,
    /// Cache flushes that the device completed; 0 for a device with a write-through cache.
    pub(crate) flushes: u64,
}

impl Disk {
    pub(crate) fn of(directory: &Path) -> Outcome<Self> {
        let directory = File::open(directory)?;
        let device = directory.metadata()?.dev();
        Ok(Self { major: rustix::fs::major(device), minor: rustix::fs::minor(device), directory })
    }

    pub(crate) fn read(&self) -> Outcome<Option<DiskReading>> {
        let text = std::fs::read_to_string("/proc/diskstats")?;
        Ok(text.lines().find_map(|line| self.parse(line)))
    }

    /// Makes the file system write its pending data, so that it counts for the current period.
    fn settle(&self) -> Outcome<()> {
        Ok(rustix::fs::syncfs(&self.directory)?)
    }

    /// Parses a line of this device. The columns are documented in the kernel's
    /// `Documentation/admin-guide/iostats.rst`.
    fn parse(&self, line: &str) -> Option<DiskReading> {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| columns.get(at).and_then(|column| column.parse::<u64>().ok());
        if (number(0)?, number(1)?) != (u64::from(self.major), u64::from(self.minor)) {
            return None;
        }
        Some(DiskReading { bytes: number(9)? * SECTOR_BYTES, flushes: number(18).unwrap_or(0) })
    }
}

impl DiskReading {
    pub(crate) fn until(self, later: Self) -> Self {
        Self { bytes: later.bytes - self.bytes, flushes: later.flushes - self.flushes }
    }
}

/// Returns the ticks of user and system time of a process, including ended threads.
fn cpu_ticks(process: &str) -> Outcome<u64> {
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path)?;
    // The name is in parentheses and may contain anything; utime and stime are the 12th and 13th field after it.
    let (_, fields) = text.rsplit_once(')').ok_or_else(|| format!("{path} has no name"))?;
    let ticks = |at: usize| fields.split_whitespace().nth(at).and_then(|field| field.parse::<u64>().ok());
    Ok(ticks(11).zip(ticks(12)).map(|(user, system)| user + system).ok_or("no CPU times")?)
}

/// Returns the load average of the last minute, which is part of every row.
pub(crate) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|field| field.parse().ok()).unwrap_or(f64::NAN)
}
