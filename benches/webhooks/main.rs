//! Webhooks, measured from outside: the real binary delivers events to https receivers on loopback.
//!
//! For every row, `cargo bench --bench webhooks -- [options]` starts `postrider dev` as a child on a fresh data
//! directory, and the receivers as another, so that their CPU times are separate. It prints a JSON line for each row.
//! Speed is not asserted, because a rate depends on its machine and the load at that time. The work itself is checked:
//! every due delivery arrived.

mod dev;
mod instance;
#[path = "../main_job/measure.rs"]
#[expect(dead_code, reason = "only the main job's rows have all columns")]
mod measure;
mod receiver;
mod rows;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

/// Any failure of the benchmark itself; it ends the run.
type BenchError = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T> = Result<T, BenchError>;

/// Load the real binary with webhooks and report the cost of a delivery.
#[derive(Parser, Clone)]
#[command(name = "webhooks")]
struct Options {
    /// The binary to measure
    #[arg(long, default_value = env!("CARGO_BIN_EXE_postrider"))]
    bin: PathBuf,
    /// Parent of the data directories, and therefore the disk to measure
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    data_root: PathBuf,
    /// Only these rows
    #[arg(long, value_delimiter = ',')]
    only: Vec<RowName>,
    /// A tenth of the work, for a quick check and a rough figure
    #[arg(long)]
    quick: bool,
    /// Run as the receivers, for a parent that sends requests on standard input
    #[arg(long, hide = true, value_name = "DIR")]
    receive: Option<PathBuf>,
    /// Passed by `cargo bench`; ignored
    #[arg(long, hide = true)]
    bench: bool,
}

/// A measured row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RowName {
    /// A backlog delivered to ten endpoints as fast as they accept it
    Throughput,
    /// The time from an event to its webhook, while fifty other endpoints hang
    Fairness,
    /// A million outstanding deliveries: memory, and the time to resume after kill -9
    Backlog,
}

impl Options {
    fn share(&self, full: usize) -> usize {
        if self.quick { full / 10 } else { full }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.receive {
        Some(folder) => receiver::run(folder),
        None => measure_all(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            note(&format!("webhooks: {fault}"));
            ExitCode::FAILURE
        }
    }
}

fn measure_all(options: &Options) -> Outcome<()> {
    std::fs::create_dir_all(&options.data_root)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for row in RowName::value_variants() {
        if !options.only.is_empty() && !options.only.contains(row) {
            continue;
        }
        note(&format!("{row:?}"));
        let figures = runtime.block_on(async {
            match row {
                RowName::Throughput => rows::throughput(options).await,
                RowName::Fairness => rows::fairness(options).await,
                RowName::Backlog => rows::backlog(options).await,
            }
        })?;
        writeln!(std::io::stdout().lock(), "{figures}")?;
    }
    Ok(())
}

/// Writes progress to stderr. A closed stderr is not an error.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
