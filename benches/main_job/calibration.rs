//! The units of a row: one RSA-2048 signature, one durable 4 KB append, and both alternately. The latter is the minimum
//! time of an answer. It is more than the sum, because a processor woken by a disk, and a disk that was idle, are
//! slower than busy ones.
//!
//! Measured before and after each row, since both change with the load of the machine.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::RSA_PKCS1_SHA256;

use crate::Outcome;
use crate::measure::Disk;

const SIGN_BATCHES: usize = 5;
const SIGNS_PER_BATCH: u32 = 100;
const SYNCS: u32 = 200;
const APPEND_BYTES: usize = 4096;

/// One measurement of the units.
#[derive(Clone, Copy)]
pub(crate) struct Calibration {
    /// CPU time of one RSA-2048 signature with aws-lc-rs.
    pub(crate) sign: Duration,
    /// Median of a 4 KB append and fdatasync to a growing file.
    pub(crate) sync: Duration,
    /// Median of one signature followed by one such append.
    pub(crate) floor: Duration,
    /// Flushes that the device counted for each append; 0 means that it does not count.
    pub(crate) flushes_per_sync: f64,
}

impl Calibration {
    /// Measures all units, with the disk of `directory`.
    pub(crate) fn take(directory: &Path) -> Outcome<Self> {
        let key = KeyPair::generate(KeySize::Rsa2048)?;
        let (sync, flushes_per_sync) = sync(directory)?;
        Ok(Self { sign: sign(&key)?, sync, floor: floor(key, directory)?, flushes_per_sync })
    }

    /// Returns the CPU unit for a row between two measurements.
    pub(crate) fn between(self, after: Self) -> Self {
        Self {
            sign: (self.sign + after.sign) / 2,
            sync: (self.sync + after.sync) / 2,
            floor: (self.floor + after.floor) / 2,
            flushes_per_sync: (self.flushes_per_sync + after.flushes_per_sync) / 2.0,
        }
    }

    /// Returns the relative change of the CPU unit between two calibrations.
    pub(crate) fn drift(self, after: Self) -> f64 {
        (after.sign.as_secs_f64() / self.sign.as_secs_f64() - 1.0).abs()
    }

    pub(crate) fn json(&self) -> String {
        serde_json::json!({
            "row": "calibration",
            "rsa2048_sign_us": micros(self.sign),
            "append_4k_fdatasync_p50_us": micros(self.sync),
            "sign_and_append_p50_us": micros(self.floor),
            "device_flushes_per_fdatasync": self.flushes_per_sync,
        })
        .to_string()
    }
}

/// Returns microseconds, rounded to a tenth.
pub(crate) fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

/// Returns the minimum of some batches: other processes only ever add time.
fn sign(key: &KeyPair) -> Outcome<Duration> {
    let random = SystemRandom::new();
    let mut signature = vec![0; key.public_modulus_len()];
    let mut best = Duration::MAX;
    for _ in 0..SIGN_BATCHES {
        let clock = ThreadClock::start();
        for number in 0..SIGNS_PER_BATCH {
            key.sign(&RSA_PKCS1_SHA256, &random, &number.to_be_bytes(), &mut signature)?;
        }
        best = best.min(clock.elapsed() / SIGNS_PER_BATCH);
    }
    Ok(best)
}

fn sync(directory: &Path) -> Outcome<(Duration, f64)> {
    let disk = Disk::of(directory)?;
    let mut file = tempfile::tempfile_in(directory)?;
    let before = disk.read()?;
    let mut taken = Vec::with_capacity(SYNCS as usize);
    for number in 0..SYNCS {
        taken.push(append(&mut file, number)?);
    }
    let flushes = before.zip(disk.read()?).map_or(0, |(from, to)| from.until(to).flushes);
    Ok((median(taken), flushes as f64 / f64::from(SYNCS)))
}

fn floor(key: KeyPair, directory: &Path) -> Outcome<Duration> {
    let mut floor = Floor::new(key, directory)?;
    let taken = (0..SYNCS).map(|_| floor.take()).collect::<Outcome<_>>()?;
    Ok(median(taken))
}

/// One signature followed by one durable append.
pub(crate) struct Floor {
    key: KeyPair,
    random: SystemRandom,
    signature: Vec<u8>,
    file: File,
    number: u32,
}

impl Floor {
    /// Creates it with a new key, and the disk of `directory`.
    pub(crate) fn in_directory(directory: &Path) -> Outcome<Self> {
        Self::new(KeyPair::generate(KeySize::Rsa2048)?, directory)
    }

    fn new(key: KeyPair, directory: &Path) -> Outcome<Self> {
        let (random, signature) = (SystemRandom::new(), vec![0; key.public_modulus_len()]);
        Ok(Self { key, random, signature, file: tempfile::tempfile_in(directory)?, number: 0 })
    }

    /// Measures the duration of both.
    pub(crate) fn take(&mut self) -> Outcome<Duration> {
        self.number += 1;
        let start = Instant::now();
        self.key.sign(&RSA_PKCS1_SHA256, &self.random, &self.number.to_be_bytes(), &mut self.signature)?;
        append(&mut self.file, self.number)?;
        Ok(start.elapsed())
    }
}

fn median(mut taken: Vec<Duration>) -> Duration {
    taken.sort_unstable();
    taken[taken.len() / 2]
}

fn append(file: &mut File, number: u32) -> Outcome<Duration> {
    let page = [number as u8; APPEND_BYTES];
    let start = Instant::now();
    file.write_all(&page)?;
    file.sync_data()?;
    Ok(start.elapsed())
}

/// Running time of this thread, from the scheduler; wall time if the kernel does not report it.
struct ThreadClock {
    ran: Option<Duration>,
    began: Instant,
}

impl ThreadClock {
    fn start() -> Self {
        Self { ran: Self::ran(), began: Instant::now() }
    }

    fn elapsed(&self) -> Duration {
        match self.ran.zip(Self::ran()) {
            Some((from, to)) if to > from => to - from,
            _ => self.began.elapsed(),
        }
    }

    fn ran() -> Option<Duration> {
        // The scheduler updates a running thread's time at ticks and switches; a yield forces an update.
        std::thread::yield_now();
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
    }
}
