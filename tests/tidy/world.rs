//! Access to the outside world: only floor net reads clocks and opens sockets. On lower floors, threads start and files
//! are used behind a port, and `select!` is biased, so that a simulation repeats.

use super::Finding;
use super::floors::folder;
use super::lexer::Kind;
use super::source::SourceFile;

/// Kind of access to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    /// A clock is read.
    Clock,
    /// A socket is opened or listened on.
    Socket,
    /// A thread is started.
    Thread,
    /// The first of several ready futures is chosen at random.
    Race,
    /// A file is used.
    Files,
}

/// Files that may use something that their floor may not.
const EXCEPTIONS: &[(&str, Touch, &str)] = &[
    (
        "src/engine/transfer/connecting.rs",
        Touch::Clock,
        "paces and timestamps new connections, in the machine's time like every network deadline",
    ),
    (
        "src/engine/transfer/attempt.rs",
        Touch::Clock,
        "limits and measures the time of an attempt, in the machine's time like every network deadline",
    ),
    (
        "src/engine/transfer/mod.rs",
        Touch::Clock,
        "spaces messages and connections in the machine's time, as spacing stays in real time",
    ),
    (
        "src/store/batcher.rs",
        Touch::Clock,
        "waits some milliseconds to fill a batch, in the machine's time: no row depends on it",
    ),
    (
        "src/store/open/database.rs",
        Touch::Clock,
        "waits for a dead process's lock, in the machine's time: the program's clock does not exist yet",
    ),
    ("src/store/open/options.rs", Touch::Clock, "the default monotonic clock, which tests replace with a virtual one"),
    ("src/engine/imports.rs", Touch::Clock, "pauses an import for as long as its batch took, in the machine's time"),
    (
        "src/engine/replica/retried_bucket.rs",
        Touch::Clock,
        "limits the time for which a read is repeated, in the machine's time",
    ),
    (
        "src/engine/replica/shipper.rs",
        Touch::Clock,
        "paces slots, in the machine's time: the interval stays in real time",
    ),
    (
        "src/engine/replica/standby.rs",
        Touch::Clock,
        "spaces checkpoints and sweeps of a standby, in the machine's time",
    ),
    ("src/engine/transfer/destination_queue.rs", Touch::Clock, "closes old connections, in the machine's time"),
    (
        "src/store/writer/mod.rs",
        Touch::Clock,
        "times a commit for monitoring, in the machine's time: no row depends on it",
    ),
    ("src/store/content/appender.rs", Touch::Clock, "times a sync for monitoring, in the machine's time"),
    ("src/engine/signing.rs", Touch::Clock, "times a signature for monitoring, in the machine's time"),
    ("src/engine/executor.rs", Touch::Thread, "implements the port: work runs on threads, or inline in a simulation"),
    ("src/store/open/mod.rs", Touch::Thread, "starts the store's workers: a simulation opens a store without them"),
    ("src/engine/backup.rs", Touch::Thread, "a backup fills a bounded channel while it is read, so it needs a thread"),
    (
        "src/http/body.rs",
        Touch::Clock,
        "enforces the minimum rate of a body, in the machine's time like every network deadline",
    ),
    ("src/http/service.rs", Touch::Clock, "measures the duration of an answer for the access log"),
    ("src/store/disk/file_system.rs", Touch::Files, "implements the port: a simulation has a disk of its own"),
    ("src/store/private_file.rs", Touch::Files, "writes small files beside the store, which no row depends on"),
    ("src/store/restore/mod.rs", Touch::Files, "looks for files of any name in the directory of a restore"),
    ("src/engine/backup.rs", Touch::Files, "remembers the time of the last backup for doctor"),
    ("src/engine/store_size.rs", Touch::Files, "remembers the store's size of each day for alerts"),
    ("src/engine/virtual_clock.rs", Touch::Files, "keeps the virtual time of `dev`, where no store is open yet"),
    ("src/http/metrics/process.rs", Touch::Files, "reads the process's figures in /proc"),
    ("src/http/dev/initial_accounts.rs", Touch::Files, "keeps the keys that `dev` prints, beside a temporary store"),
];

impl Touch {
    const fn remedy(self) -> &'static str {
        match self {
            Self::Clock => "reads a clock: take `now` as an argument, or ask `engine::ports::Clock`",
            Self::Socket => "opens a socket: only net does; ask through a port of engine",
            Self::Thread => "starts a thread: use `engine::executor::Executor`, which a simulation runs inline",
            Self::Files => "uses a file: use `store::disk::Disk`, which a simulation replaces",
            Self::Race => "chooses at random: begin `select!` with `biased;`, so that a simulation repeats",
        }
    }
}

/// Returns the places where `source` uses the outside world without permission.
pub(crate) fn touches_of_the_world(source: &SourceFile) -> Vec<Finding> {
    let touches = touches(source).into_iter();
    // main.rs has no folder.
    let is_edge = folder(&source.name).is_none_or(|folder| ["net", "app"].contains(&folder));
    let wrong = touches.filter(|(_, touch)| !is_edge && !is_excepted(source, *touch));
    wrong.map(|(line, touch)| Finding::new(&source.name, line, touch.remedy())).collect()
}

/// Returns the exceptions that no file needs any more.
pub(crate) fn exceptions_without_use(sources: &[SourceFile]) -> Vec<Finding> {
    let is_needed = |file: &str, touch: Touch| {
        let source = sources.iter().find(|source| source.name == file);
        source.is_some_and(|source| touches(source).iter().any(|(_, seen)| *seen == touch))
    };
    let unneeded = EXCEPTIONS.iter().filter(|(file, touch, _)| !is_needed(file, *touch));
    unneeded.map(|(file, ..)| Finding::new(file, 1, "remove its exception from tests/tidy/world.rs")).collect()
}

fn is_excepted(source: &SourceFile, touch: Touch) -> bool {
    EXCEPTIONS.iter().any(|(file, excepted, _)| *file == source.name && *excepted == touch)
}

/// Returns every access outside of tests, with its line. Tests may open sockets on loopback and read real clocks.
fn touches(source: &SourceFile) -> Vec<(usize, Touch)> {
    let paths = source.paths.iter().filter(|path| !source.is_test_at(path.token));
    let mut found: Vec<_> = paths.filter_map(|path| Some((path.line, touch_of(path)?))).collect();
    for (at, pair) in source.tokens.windows(2).enumerate() {
        let is_macro = pair[1].kind == Kind::Mark('!') && !source.is_test_at(at);
        if is_macro && source.word(at) == Some("select") && source.word(at + 3) != Some("biased") {
            found.push((pair[0].line, Touch::Race));
        }
    }
    found
}

fn touch_of(path: &super::paths::SourcePath) -> Option<Touch> {
    const SOCKETS: [&str; 4] = ["TcpStream", "TcpListener", "UdpSocket", "*"];
    let clocks = [&["Instant", "now"], &["SystemTime", "now"], &["thread", "sleep"]];
    if clocks.iter().any(|clock| path.ends_with(*clock)) {
        return Some(Touch::Clock);
    }
    if path.begins_with(&["std", "fs"]) {
        return Some(Touch::Files);
    }
    let starts =
        [&["task", "spawn_blocking"][..], &["thread", "spawn"], &["thread", "Builder", "new"], &["thread", "scope"]];
    if starts.iter().any(|start| path.ends_with(start)) {
        return Some(Touch::Thread);
    }
    let is_std = path.begins_with(&["std", "net"]);
    let is_std_socket = path.segments.get(2).is_none_or(|name| SOCKETS.contains(&name.as_str()));
    let is_socket = (is_std && is_std_socket)
        || path.begins_with(&["std", "os", "unix", "net"])
        || path.begins_with(&["tokio", "net"]);
    is_socket.then_some(Touch::Socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> usize {
        touches_of_the_world(&SourceFile::new(file, text)).len()
    }

    #[test]
    fn a_clock_is_read_only_at_the_edge() {
        assert_eq!(found("src/engine/dispatcher.rs", "use std::time::Instant; fn a() { Instant::now() }"), 1);
        assert_eq!(found("src/engine/dispatcher.rs", "let a = std::time::SystemTime::now(); // Instant::now()"), 1);
        assert_eq!(found("src/net/clock.rs", "let a = std::time::SystemTime::now();"), 0);
        assert_eq!(found("src/store/x.rs", "std::thread::sleep(a);"), 1);
        assert_eq!(found("src/engine/dispatcher.rs", "#[cfg(test)] mod tests { fn a() { Instant::now() } }"), 0);
    }

    #[test]
    fn a_socket_is_opened_only_at_the_edge_and_address_types_are_free() {
        assert_eq!(found("src/engine/x.rs", "use std::net::{IpAddr, TcpStream};"), 1);
        assert_eq!(found("src/engine/x.rs", "use std::net::{IpAddr, SocketAddr};"), 0);
        assert_eq!(found("src/engine/x.rs", "use std::net;"), 1);
        assert_eq!(found("src/http/x.rs", "tokio::net::TcpListener::bind(a).await"), 1);
        assert_eq!(found("src/app/x.rs", "std::os::unix::net::UnixStream::connect(a)"), 0);
    }

    #[test]
    fn threads_start_only_behind_their_port() {
        assert_eq!(found("src/engine/x.rs", "tokio::task::spawn_blocking(work); std::thread::spawn(work);"), 2);
        assert_eq!(found("src/store/x.rs", "use std::thread; fn a() { thread::Builder::new() }"), 1);
        assert_eq!(found("src/net/x.rs", "thread::spawn(work);"), 0);
        assert_eq!(found("src/engine/x.rs", "#[cfg(test)] mod tests { fn a() { thread::spawn(work); } }"), 0);
    }

    #[test]
    fn files_are_used_only_behind_their_port() {
        assert_eq!(found("src/store/x.rs", "use std::fs; fn a() { fs::read(b) }"), 1);
        assert_eq!(found("src/engine/x.rs", "let a = std::fs::read(b);"), 1);
        assert_eq!(found("src/app/x.rs", "let a = std::fs::read(b);"), 0);
        assert_eq!(found("src/store/x.rs", "#[cfg(test)] mod tests { fn a() { std::fs::read(b); } }"), 0);
    }

    #[test]
    fn a_select_below_the_edge_is_biased() {
        assert_eq!(found("src/engine/x.rs", "tokio::select! { () = a => {} () = b => {} }"), 1);
        assert_eq!(found("src/engine/x.rs", "tokio::select! { biased; () = a => {} () = b => {} }"), 0);
        assert_eq!(found("src/net/x.rs", "tokio::select! { () = a => {} }"), 0);
    }

    #[test]
    fn an_unused_exception_is_found() {
        assert_eq!(exceptions_without_use(&[]).len(), EXCEPTIONS.len());
        let source = SourceFile::new(EXCEPTIONS[0].0, "Instant::now()");
        assert_eq!(exceptions_without_use(&[source]).len(), EXCEPTIONS.len() - 1);
    }
}
