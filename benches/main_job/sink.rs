//! The receiver: Postfix's `smtp-sink`, which accepts, discards and counts every message.
//!
//! It is widely used for measurements. It is written in C and runs in another process, so it is not the bottleneck, and
//! its CPU time does not count for this process.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Outcome;

const START_DEADLINE: Duration = Duration::from_secs(10);
/// The sink writes its counter for every message. Reading it at this interval saves CPU time.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// More than the server's `max_connections`, so that the sink never refuses one.
const SESSIONS_MAX: &str = "1024";
const BACKLOG: &str = "1024";

/// A running smtp-sink. It ends on drop.
pub(crate) struct Sink {
    child: Child,
    port: u16,
    taken: Arc<AtomicU64>,
}

impl Sink {
    /// Starts it on a free loopback port and waits until it listens.
    pub(crate) fn start(given: Option<&Path>) -> Outcome<Self> {
        let program = match given {
            Some(path) => path.to_owned(),
            None => installed().map_or_else(fetched, Ok)?,
        };
        let port = free_port()?;
        let mut command = Command::new(&program);
        command.args(["-c", "-m", SESSIONS_MAX]);
        if rustix::process::geteuid().is_root() {
            // As root it requires a user name to switch to.
            command.args(["-u", "nobody"]);
        }
        command.args([&format!("127.0.0.1:{port}"), BACKLOG]).stdin(Stdio::null()).stdout(Stdio::piped());
        command.env("LD_LIBRARY_PATH", libraries(&program));
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let taken = Arc::new(AtomicU64::new(0));
        if let Some(output) = child.stdout.take() {
            let taken = Arc::clone(&taken);
            std::thread::Builder::new().name("sink".to_owned()).spawn(move || follow(output, &taken))?;
        }
        let mut sink = Self { child, port, taken };
        sink.wait_until_listening()?;
        Ok(sink)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of messages accepted since the start.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn wait_until_listening(&mut self) -> Outcome<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("smtp-sink ended at once: {status}").into());
            }
            if start.elapsed() > START_DEADLINE {
                return Err("smtp-sink does not listen".into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads `sess=1 quit=1 mesg=7\r` repeatedly and keeps the last `mesg`.
fn follow(mut output: ChildStdout, taken: &AtomicU64) {
    let mut buffer = [0; 64 * 1024];
    let mut rest = String::new();
    while let Ok(length) = output.read(&mut buffer) {
        if length == 0 {
            return;
        }
        rest.push_str(&String::from_utf8_lossy(&buffer[..length]));
        if let Some(complete) = rest.rfind('\r') {
            let count = rest[..complete].rsplit_once("mesg=").and_then(|(_, count)| count.trim().parse().ok());
            taken.store(count.unwrap_or_else(|| taken.load(Ordering::Relaxed)), Ordering::Relaxed);
            rest.drain(..=complete);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|folder| folder.join("smtp-sink")).find(|program| program.is_file())
}

/// Fetches Debian's package and unpacks it below the target directory. Nothing is installed.
fn fetched() -> Outcome<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("postfix");
    let program = folder.join("root/usr/sbin/smtp-sink");
    if !program.is_file() {
        std::fs::create_dir_all(&folder)?;
        run(Command::new("apt-get").args(["download", "postfix"]).current_dir(&folder))?;
        let is_package = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
        let package = std::fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path())).find(is_package);
        run(Command::new("dpkg").arg("-x").arg(package.ok_or("no package was downloaded")?).arg(folder.join("root")))?;
    }
    Ok(program)
}

fn run(command: &mut Command) -> Outcome<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!("no smtp-sink: install postfix or give --smtp-sink ({command:?}: {why})").into())
}

/// Returns the directory of Postfix's own libraries in an unpacked package; an installed one finds them itself.
fn libraries(program: &Path) -> PathBuf {
    program.ancestors().nth(2).unwrap_or(Path::new("/usr")).join("lib/postfix")
}

/// Returns a port that was free a moment ago, because smtp-sink can't report a port that it chose.
fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
