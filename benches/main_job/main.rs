//! The main job, measured from outside: the real binary accepts messages over HTTP or SMTP and delivers them to a
//! receiver.
//!
//! For every row, `cargo bench --bench main_job -- [options]` starts `postrider serve` as a child on a fresh data
//! directory, generates load from this process, and reads the cost from `/proc`. It prints a JSON line for each row and
//! one table at the end. Speed is not asserted, because a rate depends on its machine and the load at that time. The
//! work itself is checked: every request is answered 202, and every message is delivered.
//!
//! To compare two builds, use `SU` (CPU of a message over CPU of one RSA-2048 signature, both measured in the same
//! minute) and the counts. Run the builds alternately and take the median of the pairs.

mod body;
mod bucket;
#[path = "../delivery/bulk.rs"]
mod bulk;
mod calibration;
mod client;
mod dns;
#[path = "../delivery/fill.rs"]
mod fill;
mod measure;
mod row;
mod scenario;
mod server;
mod sink;
mod smtp;
mod table;
mod tls;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use calibration::Calibration;
use scenario::{Bench, Point, Work};

/// Any failure of the benchmark itself; it ends the run.
type BenchError = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T> = Result<T, BenchError>;

/// Load the real binary over HTTP and report the cost of a message.
#[derive(Parser, Clone)]
#[command(name = "main_job")]
struct Options {
    /// The binary to measure
    #[arg(long, default_value = env!("CARGO_BIN_EXE_postrider"))]
    bin: PathBuf,
    /// Parent of the data directories, and therefore the disk to measure
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    data_root: PathBuf,
    /// Messages of a row; rows of one client send a fifth
    #[arg(long, default_value_t = 5000)]
    messages: usize,
    /// Messages sent before each row is measured
    #[arg(long, default_value_t = 500)]
    warm_up: usize,
    /// Numbers of clients, each with one kept connection
    #[arg(long, value_delimiter = ',', default_value = "1,64")]
    clients: Vec<usize>,
    /// Sizes of text and html together, in KB
    #[arg(long, value_delimiter = ',', default_value = "2,10,50")]
    kilobytes: Vec<usize>,
    /// Protocols of the submissions
    #[arg(long, value_enum, value_delimiter = ',', default_value = "http")]
    doors: Vec<Door>,
    /// Recipients per transaction in SMTP rows; each number makes a separate row
    #[arg(long, value_delimiter = ',', default_value = "1,50", value_parser = clap::value_parser!(u16).range(1..=100))]
    recipients: Vec<u16>,
    /// Replication to a bucket in this process: off, async, sync
    #[arg(long, value_enum, value_delimiter = ',', default_value = "off")]
    replica: Vec<Replica>,
    /// Time by which the bucket's answers are delayed, in ms
    #[arg(long, default_value_t = 0)]
    bucket_ms: u64,
    /// Only the rows with all of these tags, e.g. `10k/64/deliver`
    #[arg(long)]
    only: Option<String>,
    /// Receiving sites over which the recipients are spread
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    sites: u16,
    /// Delivered messages stored before a row begins; each number makes a separate row
    #[arg(long, value_delimiter = ',', default_value = "0")]
    stored: Vec<usize>,
    /// Behaviour of the recipients' name server in the accept rows, so that nothing is delivered
    #[arg(long, value_enum, default_value_t = Unreachable::Servfail)]
    unreachable: Unreachable,
    /// Postfix's smtp-sink; found automatically or fetched from Debian if absent
    #[arg(long)]
    smtp_sink: Option<PathBuf>,
    /// The counter of syncs in the server's /metrics
    #[arg(long, default_value = "postrider_store_syncs_total")]
    sync_metric: String,
    /// Sign and append between the first client's requests, for `p50_over_beside`; client ms, device KB and flush
    /// include this work
    #[arg(long)]
    beside: bool,
    /// A fifth of the messages, for a quick check and a rough figure
    #[arg(long)]
    quick: bool,
    /// Passed by `cargo bench`; ignored
    #[arg(long, hide = true)]
    bench: bool,
}

/// The protocol of the submissions.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Door {
    /// HTTP without TLS
    Http,
    /// HTTP with TLS
    Https,
    /// SMTP with TLS from the start
    Smtps,
}

impl Door {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Smtps => "smtps",
        }
    }
}

/// The replication of a row.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Replica {
    /// None
    Off,
    /// A 202 waits for the disk alone
    Async,
    /// A 202 also waits for the bucket
    Sync,
}

impl Replica {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Async => "async",
            Self::Sync => "sync",
        }
    }
}

/// Failure of the name server in an accept row.
#[derive(Clone, Copy, ValueEnum)]
enum Unreachable {
    /// SERVFAIL at once: the row includes writing each deferral
    Servfail,
    /// No answer at all: lookups hang while the row runs
    Silent,
}

impl Options {
    fn messages_at(&self, clients: usize) -> usize {
        let full = if self.quick { self.messages / 5 } else { self.messages };
        let count = if clients == 1 { full / 5 } else { full };
        count.max(clients)
    }

    fn warm_up(&self) -> usize {
        if self.quick { self.warm_up / 5 } else { self.warm_up }
    }

    /// Returns the protocols, with the number of recipients of a request.
    fn routes(&self) -> Vec<(Door, usize)> {
        let mut routes = Vec::new();
        for &door in &self.doors {
            match door {
                Door::Http | Door::Https => routes.push((door, 1)),
                Door::Smtps => routes.extend(self.recipients.iter().map(|&recipients| (door, usize::from(recipients)))),
            }
        }
        routes
    }

    /// Returns the rows to run, cheapest scenario first.
    fn plan(&self) -> Vec<Point> {
        let mut plan = Vec::new();
        for work in [Work::Accept, Work::Deliver] {
            for &kilobytes in &self.kilobytes {
                for (&clients, &stored) in self.clients.iter().flat_map(|c| self.stored.iter().map(move |s| (c, s))) {
                    for (door, recipients) in self.routes() {
                        let row = Point { work, kilobytes, clients, door, recipients, stored, replica: Replica::Off };
                        plan.extend(self.replica.iter().map(|&replica| Point { replica, ..row }));
                    }
                }
            }
        }
        plan.retain(|point| self.only.as_deref().is_none_or(|tags| point.has(tags)));
        plan
    }
}

fn main() -> ExitCode {
    match measure_all(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            note(&format!("main_job: {fault}"));
            ExitCode::FAILURE
        }
    }
}

fn measure_all(options: &Options) -> Outcome<()> {
    if options.clients.contains(&0) || options.kilobytes.contains(&0) || options.messages == 0 {
        return Err("clients, sizes and messages must be at least 1".into());
    }
    let plan = options.plan();
    if plan.is_empty() {
        return Err(
            "no row has these tags; tags are accept, deliver, 2k, 10k, 50k, 1, 64, http, https, smtps, x50, async, sync"
                .into()
        );
    }
    std::fs::create_dir_all(&options.data_root)?;
    // All connections use one thread: with two cores the client must not compete with the server.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let first = Calibration::take(&options.data_root)?;
    print(&first.json())?;
    let bench = Bench::prepare(options, &plan)?;
    let mut rows = Vec::new();
    for point in plan {
        note(&format!("{}: {} messages", point.label(), options.messages_at(point.clients)));
        let row = runtime.block_on(bench.run(point))?;
        print(&row.json())?;
        rows.push(row);
    }
    print(&table::render(&first, &bench.bodies(), &rows))
}

/// Writes results to stdout, so that they can be saved.
fn print(text: &str) -> Outcome<()> {
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}

/// Writes progress to stderr. A closed stderr is not an error.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
