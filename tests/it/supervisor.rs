//! Tests of `serve` under a supervisor: its notifications to systemd and its log.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// A running `serve`, killed when it is dropped.
struct Serve(Child);

impl Serve {
    /// Starts `serve` with additional configuration, a supervisor at `socket`, and its log in the file `log` of
    /// `folder`.
    fn start(folder: &Path, more: &str, socket: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.args(["serve", "--config"]).arg(configure(folder, "127.0.0.1:0", more)).stdin(Stdio::null());
        Self::run(command, folder, socket)
    }

    fn run(mut command: Command, folder: &Path, socket: &Path) -> Self {
        let log = std::fs::File::create(folder.join("log")).unwrap();
        command.env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", "100000");
        Self(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Stops it, and returns the exit code.
    fn stop(mut self) -> i32 {
        self.signal("-TERM");
        self.0.wait().unwrap().code().unwrap()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // The process may already have been stopped by a test.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Writes the configuration with additional lines.
fn configure(folder: &Path, listen: &str, more: &str) -> PathBuf {
    let config = folder.join("postrider.toml");
    let data = folder.join("data").display().to_string();
    let text = format!(
        "hostname = \"mail.example.com\"\ndata_dir = {data:?}\n[http]\nlisten = [{listen:?}]\n[http.tls]\n\
         mode = \"off\"\n[metrics]\nlisten = \"\"\n[dns]\nservers = [\"127.0.0.1:1\"]\n{more}"
    );
    std::fs::write(&config, text).unwrap();
    config
}

fn supervisor(folder: &Path) -> (UnixDatagram, std::path::PathBuf) {
    let path = folder.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    (socket, path)
}

/// Reads until the process sends `wanted`; returns the earlier notifications.
fn read_until(socket: &UnixDatagram, wanted: &str) -> Vec<String> {
    let mut before = Vec::new();
    let mut bytes = [0; 512];
    loop {
        let length = socket.recv(&mut bytes).unwrap_or_else(|error| panic!("no {wanted} after {before:?}: {error}"));
        let said = String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned();
        if said == wanted {
            return before;
        }
        before.push(said);
    }
}

#[test]
fn systemd_is_notified_of_start_watchdog_and_stop() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, path) = supervisor(folder.path());
    let serve = Serve::start(folder.path(), "", &path);
    assert_eq!(read_until(&socket, "READY=1"), [""; 0]);
    assert!(folder.path().join("data/addresses.json").exists(), "ready means that the service listens");
    read_until(&socket, "WATCHDOG=1");
    read_until(&socket, "WATCHDOG=1");
    assert!(folder.path().join("data/admin.sock").exists());
    assert_eq!(serve.stop(), 0);
    assert!(!folder.path().join("data/admin.sock").exists(), "the socket is removed");
    read_until(&socket, "STOPPING=1");
}

/// Tests that a reload notifies the supervisor at its begin and end, and logs the changes.
#[test]
fn sighup_reloads_the_configuration_and_logs_the_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, path) = supervisor(folder.path());
    let serve = Serve::start(folder.path(), "[log]\nlevel = \"warn\"\n", &path);
    read_until(&socket, "READY=1");
    let log = || std::fs::read_to_string(folder.path().join("log")).unwrap();
    let hang_up = |more: &str| {
        configure(folder.path(), "127.0.0.1:0", more);
        serve.signal("-HUP");
        let before = read_until(&socket, "READY=1");
        assert!(before.iter().any(|said| said.starts_with("RELOADING=1\nMONOTONIC_USEC=")), "{before:?}");
        log()
    };
    let said = hang_up("[log]\nlevel = \"debug\"\n[quota]\nper_hour = 5\n");
    assert!(said.contains("key=\"quota\"") && said.contains("takes effect after a restart"), "{said}");
    assert!(said.contains("key=\"log.level\" level=DEBUG"), "{said}");
    let said = hang_up("[log]\nlevel = \"loud\"\n");
    assert!(
        said.contains("could not reload the configuration; keeping the current one")
            && said.contains("log.level: must be"),
        "{said}"
    );
    let said = hang_up("[log]\nlevel = \"debug\"\n");
    assert!(said.ends_with("nothing changed\n"), "{said}");
    assert_eq!(serve.stop(), 0);
}

/// Tests a socket unit: the port is taken, and only the supervisor can open it.
#[test]
fn a_socket_opened_by_systemd_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, path) = supervisor(folder.path());
    let open = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = open.local_addr().unwrap();
    let config = configure(folder.path(), &address.to_string(), "");
    let mut waiting = TcpStream::connect(address).unwrap();
    waiting.write_all(b"GET /healthz HTTP/1.1\r\nHost: mail.example.com\r\nConnection: close\r\n\r\n").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\""]);
    shell.args([env!("CARGO_BIN_EXE_postrider"), "serve", "--config"]).arg(config);
    shell.stdin(Stdio::from(OwnedFd::from(open.try_clone().unwrap())));
    let serve = Serve::run(shell, folder.path(), &path);
    read_until(&socket, "READY=1");
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "a connection from before the start is served: {answer}");
    assert_eq!(serve.stop(), 0);
}

#[test]
fn the_json_log_has_one_object_per_line() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, path) = supervisor(folder.path());
    let serve = Serve::start(folder.path(), "[log]\nformat = \"json\"\nlevel = \"debug\"\n", &path);
    read_until(&socket, "READY=1");
    let account = Command::new(env!("CARGO_BIN_EXE_postrider"))
        .args(["account", "add", "Somebody", "--json", "--data-dir"])
        .arg(folder.path().join("data"))
        .output()
        .unwrap();
    assert!(account.status.success(), "{account:?}");
    assert_eq!(serve.stop(), 0);
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let ours = |line: &&Value| line["target"].as_str().unwrap().starts_with("postrider");
    for line in lines.iter().filter(ours) {
        for member in ["timestamp", "level", "message"] {
            assert!(line[member].is_string(), "{member} is not in {line}");
        }
    }
    let request = lines.iter().find(|line| line["route"] == "accounts.create").expect(&log);
    assert_eq!((request["status"].as_u64(), request["request_id"].as_str().map(str::len)), (Some(201), Some(26)));
    assert!(!log.contains("Somebody"), "message content is not logged");
}

/// Skipped with a note if the machine has no systemd.
#[test]
fn the_unit_s_sandboxing_meets_the_security_threshold() {
    let systemd = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str| std::fs::read_to_string(systemd.join(name)).unwrap();
    // Drop-ins apply after the unit.
    let bare = folder.path().join("postrider.service");
    std::fs::write(&bare, format!("{}\n{}", read("postrider.service"), read("no-capabilities.conf"))).unwrap();
    let asked = |unit: &Path, threshold: &str| {
        let mut analysis = Command::new("systemd-analyze");
        analysis.args(["security", "--offline=true", "--no-pager", &format!("--threshold={threshold}")]).arg(unit);
        analysis.output()
    };
    // The service lowers the priority of one thread, and checks whether the clock is synchronised: 0.3 of each score.
    for (unit, threshold) in
        [(systemd.join("postrider.service"), "19"), (systemd.join("postrider-standby.service"), "19"), (bare, "15")]
    {
        let Ok(analysed) = asked(&unit, threshold) else { return eprintln!("skipped: systemd-analyze is missing") };
        assert!(analysed.status.success(), "{}", String::from_utf8_lossy(&analysed.stdout));
        assert!(!asked(&unit, "5").unwrap().status.success(), "a lower threshold fails");
    }
}

/// Tests that systemd reports no errors in the units and reads them as intended.
#[test]
fn systemd_analyze_finds_no_errors_in_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let binary = env!("CARGO_BIN_EXE_postrider");
    let names = [
        "postrider.service",
        "postrider-standby.service",
        "postrider.socket",
        "postrider-bounces.socket",
        "postrider-submission.socket",
    ];
    for name in names {
        let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name);
        let text = std::fs::read_to_string(unit).unwrap().replace("/usr/bin/postrider", binary);
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]).args(names.map(|name| folder.path().join(name)));
    let Ok(verified) = verify.output() else { return eprintln!("skipped: systemd-analyze is missing") };
    let said = String::from_utf8_lossy(&verified.stderr);
    let ours: Vec<_> = said.lines().filter(|line| line.contains("postrider")).collect();
    assert!(verified.status.success() && ours.is_empty(), "{said}");
}

/// A restart may repair a failed store, so the unit restarts without a limit. It must not restart where only a person
/// can fix the cause.
#[test]
fn the_unit_does_not_restart_on_an_unusable_configuration() {
    let unit =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/postrider.service")).unwrap();
    let never_for = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus=")).unwrap();
    assert_eq!(never_for, "2 6", "unusable configurations, and conflicts about the directory or the log");
    let folder = tempfile::tempdir().unwrap();
    let ended = |config: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.args(["serve", "--config"]).arg(config).stderr(Stdio::null()).status().unwrap().code().unwrap()
    };
    assert_eq!(ended(&configure(folder.path(), "127.0.0.1:0", "colour = \"red\"\n")), 2);
    assert_eq!(ended(&folder.path().join("missing.toml")), 2);
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let busy = ended(&configure(folder.path(), &taken.local_addr().unwrap().to_string(), ""));
    assert_eq!(busy, 1, "a port in use becomes free without intervention");
}
