//! Stories of `serve` under a supervisor: what it tells systemd, and what it logs for machines.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// A running `serve`, killed when it is dropped.
struct Serve(Child);

impl Serve {
    /// With this more in its configuration, a supervisor at `socket`, and its log in the file `log` of `folder`.
    fn start(folder: &Path, more: &str, socket: &Path) -> Self {
        let config = folder.join("postrider.toml");
        let data = folder.join("data").display().to_string();
        let text = format!(
            "hostname = \"mail.example.com\"\ndata_dir = {data:?}\n[http]\nlisten = [\"127.0.0.1:0\"]\n[http.tls]\n\
             mode = \"off\"\n[metrics]\nlisten = \"\"\n[dns]\nservers = [\"127.0.0.1:1\"]\n{more}"
        );
        std::fs::write(&config, text).unwrap();
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.args(["serve", "--config"]).arg(&config).env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", "100000");
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// Asks it to stop, and waits for its end.
    fn stop(mut self) -> i32 {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.0.wait().unwrap().code().unwrap()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // Already gone where a story stopped it.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn supervisor(folder: &Path) -> (UnixDatagram, std::path::PathBuf) {
    let path = folder.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    (socket, path)
}

/// Reads until the process says `wanted`; gives what it said before.
fn heard(socket: &UnixDatagram, wanted: &str) -> Vec<String> {
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
fn the_supervisor_is_told_of_the_beginning_the_life_and_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, path) = supervisor(folder.path());
    let serve = Serve::start(folder.path(), "", &path);
    assert_eq!(heard(&socket, "READY=1"), [""; 0]);
    assert!(folder.path().join("data/addresses.json").exists(), "ready means that it listens");
    heard(&socket, "WATCHDOG=1");
    heard(&socket, "WATCHDOG=1");
    assert_eq!(serve.stop(), 0);
    heard(&socket, "STOPPING=1");
}

#[test]
fn the_log_for_machines_is_an_object_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, path) = supervisor(folder.path());
    let serve = Serve::start(folder.path(), "[log]\nformat = \"json\"\nlevel = \"debug\"\n", &path);
    heard(&socket, "READY=1");
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
    assert!(!log.contains("Somebody"), "what a caller sends is not logged");
}

/// Skipped, with a word about it, where the machine has no systemd to ask.
#[test]
fn the_unit_is_as_closed_as_a_mail_service_can_be() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/postrider.service");
    let asked = |threshold: &str| {
        let mut analysis = Command::new("systemd-analyze");
        analysis.args(["security", "--offline=true", "--no-pager", &format!("--threshold={threshold}"), unit]);
        analysis.output()
    };
    let Ok(analysed) = asked("16") else { return eprintln!("skipped: there is no systemd-analyze") };
    assert!(analysed.status.success(), "{}", String::from_utf8_lossy(&analysed.stdout));
    assert!(!asked("5").unwrap().status.success(), "the threshold means something");
}
