//! The server under measurement: the real binary as a child on a fresh data directory, set up as a user would.
//!
//! The command line creates account, key and domain over `admin.sock`; the API verifies the domain.

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::body::SENDING_DOMAIN;
use crate::client::Connection;
use crate::dns::NameServer;
use crate::tls::{self, Tls};
use crate::{Options, Outcome};

const START_DEADLINE: Duration = Duration::from_secs(30);
/// Time limit for a standby to build its store.
const STANDBY_DEADLINE: Duration = Duration::from_secs(900);
/// Time limit of a stop. After SIGTERM, work in flight has at most 30 s to finish (contract 8).
const STOP_DEADLINE: Duration = Duration::from_secs(40);
const ACCEPTED: u16 = 202;
const CONFIG: &str = "postrider.toml";
const LOG: &str = "server.log";
const LOG_TAIL_BYTES: usize = 2000;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running server with an account that may send from [`SENDING_DOMAIN`].
pub(crate) struct Server {
    /// `None` while it is stopped.
    child: Option<Child>,
    folder: TempDir,
    bin: PathBuf,
    pub(crate) http: SocketAddr,
    /// Address of the TLS-only listener, if there is one.
    #[allow(dead_code, reason = "only the main job submits by SMTP")]
    pub(crate) smtps: Option<SocketAddr>,
    pub(crate) tls: Option<Tls>,
    metrics: Option<SocketAddr>,
    pub(crate) key: String,
    /// DKIM signatures per message.
    pub(crate) signatures: usize,
}

impl Server {
    /// Starts the server and prepares it for sending. Mail goes to `delivery_port`, DNS queries to `names`. Uses TLS if
    /// `is_secure`. `replica` is a section of the configuration, or empty.
    pub(crate) async fn start(
        options: &Options,
        names: &NameServer,
        delivery_port: u16,
        is_secure: bool,
        replica: &str,
    ) -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("postrider-bench-").tempdir_in(&options.data_root)?;
        let tls = if is_secure { Some(Tls::make(folder.path())?) } else { None };
        let configuration = configuration(folder.path(), names, delivery_port, is_secure) + replica;
        std::fs::write(folder.path().join(CONFIG), configuration)?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let (bin, key) = (options.bin.clone(), String::new());
        let mut server =
            Self { child: None, folder, bin, http: nowhere, smtps: None, tls, metrics: None, key, signatures: 0 };
        match server.set_up(names).await {
            Ok(()) => Ok(server),
            Err(fault) => Err(format!("{fault}\n{}", server.log()).into()),
        }
    }

    /// Starts the process on its data directory, and waits until it is ready.
    pub(crate) async fn resume(&mut self) -> Outcome<()> {
        self.run(&["serve"], START_DEADLINE).await?;
        self.read_addresses()
    }

    /// Starts a standby of this server, with a directory of its own, and waits until it has reached the end of the log.
    #[allow(dead_code, reason = "only the benchmark of delivery has a standby")]
    pub(crate) async fn standby(&self) -> Outcome<Self> {
        let folder = tempfile::Builder::new()
            .prefix("postrider-bench-")
            .tempdir_in(self.folder.path().parent().ok_or("the directory has no parent")?)?;
        let place = |folder: &TempDir| folder.path().display().to_string();
        let configuration = std::fs::read_to_string(self.folder.path().join(CONFIG))?;
        std::fs::write(folder.path().join(CONFIG), configuration.replace(&place(&self.folder), &place(&folder)))?;
        let (bin, key, tls) = (self.bin.clone(), self.key.clone(), self.tls.clone());
        let Self { http, signatures, .. } = *self;
        let mut standby = Self { child: None, folder, bin, http, smtps: None, tls, metrics: None, key, signatures };
        let master_key = self.data_dir().join("master.key").display().to_string();
        match standby.run(&["standby", "--master-key", &master_key], STANDBY_DEADLINE).await {
            Ok(()) => Ok(standby),
            Err(fault) => Err(format!("{fault}\n{}", standby.log()).into()),
        }
    }

    /// Promotes this standby, and returns once it serves.
    #[allow(dead_code, reason = "only the benchmark of delivery has a standby")]
    pub(crate) fn promote(&mut self) -> Outcome<()> {
        self.command(&["promote", "--force"])?;
        self.read_addresses()
    }

    async fn run(&mut self, words: &[&str], deadline: Duration) -> Outcome<()> {
        let log = File::options().create(true).append(true).open(self.folder.path().join(LOG))?;
        let child = Command::new(&self.bin)
            .args(words)
            .args(["--ready-fd", "1", "--config"])
            .arg(self.folder.path().join(CONFIG))
            .envs([("AWS_ACCESS_KEY_ID", "bench"), ("AWS_SECRET_ACCESS_KEY", "bench")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("{}: {error}", self.bin.display()))?;
        wait_until_ready(self.child.insert(child), deadline).await
    }

    /// Opens a connection to the server's API.
    pub(crate) async fn connect(&self) -> Outcome<Connection> {
        match &self.tls {
            Some(tls) => Connection::open_tls(self.http, tls).await,
            None => Connection::open(self.http).await,
        }
    }

    /// Returns the process number; 0 while the process is stopped.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Returns the end of the server's log, for an error message.
    pub(crate) fn log(&self) -> String {
        let log = std::fs::read(self.folder.path().join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned()
    }

    /// Posts a message of `text` to `recipient` and returns its identifier.
    pub(crate) async fn post(&self, recipient: &str, text: &str) -> Outcome<String> {
        let from = format!("orders@{SENDING_DOMAIN}");
        let body = json!({"from": from, "to": recipient, "subject": "Your order", "text": text}).to_string();
        let request = format!(
            "POST /v1/messages HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.key,
            body.len()
        );
        let answer = self.connect().await?.exchange(request.as_bytes()).await?;
        if answer.status != ACCEPTED {
            return Err(answer.fault("POST /v1/messages"));
        }
        let accepted: Value = serde_json::from_slice(&answer.body)?;
        Ok(accepted["id"].as_str().ok_or("the message has no id")?.to_owned())
    }

    /// Whether any message waits: queued or deferred.
    pub(crate) async fn has_waiting(&self, connection: &mut Connection) -> Outcome<bool> {
        for status in ["queued", "deferred"] {
            let target = format!("/v1/messages?status={status}&limit=1");
            let answer = connection.ask("GET", &target, &self.key).await?;
            if answer.status != 200 {
                return Err(answer.fault(&target));
            }
            let list: Value = serde_json::from_slice(&answer.body)?;
            if list["data"].as_array().is_none_or(|data| !data.is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the counter `name` from the server's metrics; `None` if it is missing.
    pub(crate) async fn counter(&self, name: &str) -> Option<f64> {
        let mut connection = Connection::open(self.metrics?).await.ok()?;
        let answer = connection.ask("GET", "/metrics", "").await.ok()?;
        let text = String::from_utf8(answer.body).ok()?;
        let sample = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        sample.split(' ').next()?.parse().ok()
    }

    async fn set_up(&mut self, names: &NameServer) -> Outcome<()> {
        self.resume().await?;
        let account = self.command(&["account", "add", "bench"])?;
        let account = account["id"].as_str().ok_or("the account has no id")?;
        let key = self.command(&["key", "add", "--account", account, "--name", "bench"])?;
        self.key = key["key"].as_str().ok_or("the key is not shown")?.to_owned();
        let domain = self.command(&["domain", "add", SENDING_DOMAIN, "--stream", "transactional"])?;
        names.publish(&domain);
        self.verify(&domain).await
    }

    fn read_addresses(&mut self) -> Outcome<()> {
        let text = std::fs::read_to_string(self.data_dir().join("addresses.json"))?;
        let addresses: Value = serde_json::from_str(&text)?;
        self.http = addresses["http"][0].as_str().ok_or("addresses.json names no http listener")?.parse()?;
        self.smtps = addresses["submissions"][0].as_str().and_then(|address| address.parse().ok());
        self.metrics = addresses["metrics"].as_str().and_then(|address| address.parse().ok());
        Ok(())
    }

    /// Runs one command against the server and parses the object that it prints.
    fn command(&self, words: &[&str]) -> Outcome<Value> {
        let output = Command::new(&self.bin)
            .args(words)
            .arg("--data-dir")
            .arg(self.data_dir())
            .arg("--json")
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(format!("postrider {} failed ({}): {why}", words.join(" "), output.status).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    async fn verify(&mut self, domain: &Value) -> Outcome<()> {
        let id = domain["id"].as_str().ok_or("the domain has no id")?;
        let mut connection = self.connect().await?;
        let answer = connection.ask("POST", &format!("/v1/domains/{id}/verify"), &self.key).await?;
        let checked: Value = serde_json::from_slice(&answer.body)?;
        if checked["status"] != "verified" {
            return Err(answer.fault("verifying the domain"));
        }
        let active = |key: &&Value| key["state"] == "active";
        self.signatures = checked["dkim"].as_array().into_iter().flatten().filter(active).count();
        Ok(())
    }

    /// Ends the process with kill -9.
    #[allow(dead_code, reason = "the main job never kills the server")]
    pub(crate) fn kill(&mut self) -> Outcome<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Stops the process as an operator would, and waits for its end.
    pub(crate) fn stop(&mut self) -> Outcome<()> {
        // A child that has ended is not signalled, because its number may be reused.
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        if let Some(pid) = rustix::process::Pid::from_raw(child.id().try_into()?) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        let start = Instant::now();
        while child.try_wait()?.is_none() {
            if start.elapsed() > STOP_DEADLINE {
                child.kill()?;
                child.wait()?;
                return Err("the server did not stop".into());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error has no receiver here.
        let _ = self.stop();
    }
}

/// Waits for the ready line. The ready descriptor is stdout, which the server does not use otherwise (contract 8). A
/// separate thread reads it, because a read from a pipe has no time limit.
async fn wait_until_ready(child: &mut Child, deadline: Duration) -> Outcome<()> {
    let mut ready = child.stdout.take().ok_or("no pipe for the ready line")?;
    let newline = tokio::task::spawn_blocking(move || ready.read_exact(&mut [0]));
    match tokio::time::timeout(deadline, newline).await {
        Ok(read) => read?.map_err(|error| format!("the server ended before it was ready: {error}").into()),
        Err(_) => {
            // Otherwise the reading thread would survive the error and block the exit.
            child.kill()?;
            Err("the server did not become ready".into())
        }
    }
}

/// Returns a configuration with everything on loopback and without limits, because the work is measured, not the
/// limits.
fn configuration(folder: &Path, names: &NameServer, delivery_port: u16, is_secure: bool) -> String {
    let security = if is_secure {
        let file = folder.join(tls::FILE);
        format!(
            "mode = \"files\"\ncertificate = {file:?}\nkey = {file:?}\n\n[submission]\ntls_listen = [\"127.0.0.1:0\"]\n\
             connections = 1024\nconnections_per_address = 1024\nconnections_per_key = 1024\n"
        )
    } else {
        "mode = \"off\"\n".to_owned()
    };
    format!(
        r#"hostname = "mail.{SENDING_DOMAIN}"
data_dir = {data_dir:?}

[http]
listen = ["127.0.0.1:0"]

[http.tls]
{security}
[metrics]
listen = "127.0.0.1:0"

[dns]
servers = ["{names}"]

[delivery]
port = {delivery_port}

[network]
allow = ["127.0.0.0/8"]

[limits]
requests_per_minute = 100000000

[quota]
per_hour = 1000000000
per_day = 1000000000

[log]
level = "warn"
"#,
        data_dir = folder.join("data"),
        names = names.address(),
    )
}
