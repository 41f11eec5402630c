//! Delivery alone, measured from outside: the cost of a queue that the real binary finds in its data directory.
//!
//! `cargo bench --bench delivery -- [options]` sets up `postrider serve` as a user would, stops it, fills its store
//! with copies of one accepted message, and starts it again. `drain` measures the rate and CPU time of delivery to many
//! sites. `queued` measures the memory of a long queue and the time until delivery begins. `timers` measures the cost
//! of timers that are not due. `dead` measures how much an unreachable site slows mail to another. `decisions` measures
//! the machine of one destination alone. Each prints a JSON line. Speed is not asserted, because a figure depends on
//! its machine and the load at that time.

#[path = "../main_job/body.rs"]
#[expect(dead_code, reason = "shared with main_job, which reports more about its letters")]
mod body;
#[path = "../main_job/bucket.rs"]
mod bucket;
mod bulk;
#[path = "../main_job/client.rs"]
#[expect(dead_code, reason = "shared with main_job, whose clients send its load")]
mod client;
mod decisions;
#[path = "../main_job/dns.rs"]
mod dns;
mod fill;
mod latency;
#[path = "../main_job/measure.rs"]
#[expect(dead_code, reason = "shared with main_job, which measures the disk too")]
mod measure;
mod scenario;
#[path = "../main_job/server.rs"]
#[expect(dead_code, reason = "shared with main_job, which reads counters and signatures")]
mod server;
#[path = "../main_job/sink.rs"]
mod sink;
#[path = "../main_job/smtp.rs"]
#[allow(dead_code, reason = "the load uses HTTP")]
mod smtp;
mod timers;
#[path = "../main_job/tls.rs"]
#[allow(dead_code, reason = "the load uses HTTP")]
mod tls;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

/// Any failure of the benchmark itself; it ends the run.
type BenchError = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T> = Result<T, BenchError>;

/// Fill the real binary's queue and report the cost of delivery.
#[derive(Parser, Clone)]
#[command(name = "delivery")]
struct Options {
    /// The binary to measure
    #[arg(long, default_value = env!("CARGO_BIN_EXE_postrider"))]
    bin: PathBuf,
    /// Parent of the data directories, and therefore the disk to measure
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    data_root: PathBuf,
    /// Scenarios to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "drain,queued,timers,dead,decisions")]
    only: Vec<Scenario>,
    /// Messages of `drain`
    #[arg(long, default_value_t = 10_000)]
    messages: usize,
    /// Receiving sites of `drain` and `queued`
    #[arg(long, default_value_t = 1000)]
    sites: usize,
    /// Size of text and html together, in KB, in `drain`
    #[arg(long, default_value_t = 10)]
    kilobytes: usize,
    /// Messages of `queued` and `takeover`
    #[arg(long, default_value_t = 1_000_000)]
    queued: usize,
    /// Size of each of their texts, in KB; with 6, a million messages make a store of 5 GB
    #[arg(long, default_value_t = 0)]
    queued_kilobytes: usize,
    /// Seconds for which `queued` records the memory
    #[arg(long, default_value_t = 20)]
    watch_seconds: u64,
    /// Timers of `timers`
    #[arg(long, default_value_t = 10_000_000)]
    timers: u64,
    /// Messages for the dead site of `dead`
    #[arg(long, default_value_t = 100_000)]
    dead: usize,
    /// Names for the dead site's messages, each a separate site
    #[arg(long, default_value_t = 1)]
    dead_sites: usize,
    /// Messages to the healthy site of `dead`, before and during
    #[arg(long, default_value_t = 200)]
    samples: usize,
    /// Postfix's smtp-sink; found automatically or fetched from Debian if absent
    #[arg(long)]
    smtp_sink: Option<PathBuf>,
    /// Passed by `cargo bench`; ignored
    #[arg(long, hide = true)]
    bench: bool,
}

/// A scenario.
#[derive(Clone, Copy, ValueEnum)]
enum Scenario {
    /// A queue for many sites is delivered to one receiver
    Drain,
    /// A start with a long queue, after a clean stop and after kill -9
    Queued,
    /// A start with timers of the coming month
    Timers,
    /// One site accepts nothing, another everything
    Dead,
    /// One destination decides about messages, without store and network
    Decisions,
    /// A standby that follows a long queue takes over
    Takeover,
}

fn main() -> ExitCode {
    match measure_all(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            note(&format!("delivery: {fault}"));
            ExitCode::FAILURE
        }
    }
}

fn measure_all(options: &Options) -> Outcome<()> {
    if options.sites == 0 || options.dead_sites == 0 || options.samples == 0 || options.kilobytes == 0 {
        return Err("sites, samples and sizes must be at least 1".into());
    }
    std::fs::create_dir_all(&options.data_root)?;
    // This process uses one thread: with two cores it must not compete with the server.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for scenario in &options.only {
        let row = match scenario {
            Scenario::Drain => runtime.block_on(scenario::drain(options))?,
            Scenario::Queued => runtime.block_on(scenario::queued(options))?,
            Scenario::Timers => runtime.block_on(scenario::timers(options))?,
            Scenario::Dead => runtime.block_on(scenario::dead(options))?,
            Scenario::Decisions => decisions::measure(),
            Scenario::Takeover => runtime.block_on(scenario::takeover(options))?,
        };
        writeln!(std::io::stdout().lock(), "{row}")?;
    }
    Ok(())
}

/// Writes progress to stderr. A closed stderr is not an error.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
