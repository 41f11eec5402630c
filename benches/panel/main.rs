//! The panel with a million messages, measured from outside: the cost of each page and each kind of search.
//!
//! `cargo bench --bench panel -- [options]` sets up `postrider dev` on a fresh data directory, stops it, writes a month
//! of messages into its store in bulk, starts it again, signs in, and requests every page. It prints a JSON line for
//! each: the HTTP response time and the server's CPU time, of the first request and of the rest. Nothing
//! is asserted about speed: a figure belongs to its machine. The check is that each page is complete.

#[path = "../delivery/bulk.rs"]
mod bulk;
#[path = "../webhooks/dev.rs"]
mod dev;
mod fill;
mod instance;
mod letters;
#[path = "../main_job/measure.rs"]
#[expect(dead_code, reason = "only the main job's rows have all columns")]
mod measure;
mod pages;
mod reports;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use crate::instance::Instance;

/// Any failure of the benchmark itself; it ends the run.
type BenchError = Box<dyn std::error::Error + Send + Sync>;
type Outcome<T> = Result<T, BenchError>;

/// Fill a store and report the cost of the panel's pages.
#[derive(Parser, Clone)]
#[command(name = "panel")]
struct Options {
    /// The binary to measure
    #[arg(long, default_value = env!("CARGO_BIN_EXE_postrider"))]
    bin: PathBuf,
    /// Parent of the data directory, and therefore the disk to measure
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    data_root: PathBuf,
    /// Keep the filled directory here, and reuse it if it exists
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Messages in the store
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,
    /// Number of requests for each page
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Only pages whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Passed by `cargo bench`; ignored
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    match measure_all(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            note(&format!("panel: {fault}"));
            ExitCode::FAILURE
        }
    }
}

fn measure_all(options: &Options) -> Outcome<()> {
    if options.messages < letters::LEAST || options.rounds == 0 {
        return Err(format!("messages must be at least {}, rounds at least 1", letters::LEAST).into());
    }
    let temporary = tempfile::Builder::new().prefix("postrider-panel-").tempdir_in(&options.data_root)?;
    let folder = options.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if !folder.join("data").exists() {
            std::fs::create_dir_all(&folder)?;
            furnish(options, &folder).await?;
        }
        let instance = Instance::start(&options.bin, &folder).await?;
        instance.is_verified().await?;
        for row in pages::measure(&instance, options).await? {
            writeln!(std::io::stdout().lock(), "{row}")?;
        }
        Ok(())
    })
}

/// Creates the data with `dev` and the API, then the month of mail.
async fn furnish(options: &Options, folder: &std::path::Path) -> Outcome<()> {
    let instance = Instance::start(&options.bin, folder).await?;
    let pattern = instance.furnish().await?;
    instance.stop().await?;
    let begun = Instant::now();
    fill::fill(&folder.join("data"), &pattern, options.messages).await?;
    reports::fill(&folder.join("data"), &pattern).await?;
    note(&format!("{} messages written in {:.1} s", options.messages, begun.elapsed().as_secs_f64()));
    Ok(())
}

/// Writes progress to stderr. A closed stderr is not an error.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
