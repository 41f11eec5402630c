//! The instance under measurement: `postrider dev` as a child. It captures mail, so that an event needs no mail server,
//! and can be killed and started again on its data directory.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::dev::spawn;
use crate::measure::Gauge;
use crate::receiver::ROOTS;
use crate::{Options, Outcome};

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// CPU share below which the instance counts as idle.
const IDLE_SHARE: f64 = 0.05;

/// A running instance.
pub(crate) struct Instance {
    child: Child,
    bin: PathBuf,
    folder: PathBuf,
    client: reqwest::Client,
    url: String,
    key: String,
}

/// Account and key of a request.
pub(crate) struct Account {
    pub(crate) key: String,
}

impl Instance {
    /// Starts it on `folder/data`, with the receivers' authority in `folder`.
    pub(crate) fn start(options: &Options, folder: &Path) -> Outcome<Self> {
        let config = format!(
            "[network]\nallow = [\"127.0.0.0/8\"]\n[webhooks]\nextra_roots = {:?}\n[log]\nlevel = \"error\"\n\
             [limits]\nrequests_per_minute = 100000000\n[quota]\nper_hour = 1000000000\nper_day = 1000000000\n",
            folder.join(ROOTS)
        );
        std::fs::write(folder.join("postrider.toml"), config)?;
        let (child, announcement) = spawn(&options.bin, folder)?;
        let text = |name: &str| announcement[name].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            child,
            bin: options.bin.clone(),
            folder: folder.to_owned(),
            client: reqwest::Client::builder().no_proxy().build()?,
            url: text("url"),
            key: text("api_key"),
        })
    }

    /// Kills the process with kill -9 and starts a new one. Returns the time until it accepts connections.
    pub(crate) fn crash(&mut self) -> Outcome<Duration> {
        self.child.kill()?;
        self.child.wait()?;
        let start = Instant::now();
        let (child, announcement) = spawn(&self.bin, &self.folder)?;
        self.child = child;
        self.url = announcement["url"].as_str().unwrap_or_default().to_owned();
        Ok(start.elapsed())
    }

    /// Returns a gauge of its cost.
    pub(crate) fn gauge(&self) -> Outcome<Gauge> {
        Gauge::new(self.child.id(), &self.folder)
    }

    /// Returns the account that `dev` creates.
    pub(crate) fn own(&self) -> Account {
        Account { key: self.key.clone() }
    }

    /// Creates another account.
    pub(crate) fn account(&self) -> Outcome<Account> {
        let account = self.command(&["account", "add", "bench"])?;
        let id = account["id"].as_str().ok_or("the account has no id")?;
        let key = self.command(&["key", "add", "--account", id, "--name", "bench"])?;
        Ok(Account { key: key["key"].as_str().ok_or("the key is not shown")?.to_owned() })
    }

    fn command(&self, words: &[&str]) -> Outcome<Value> {
        let data = self.folder.join("data");
        let output = Command::new(&self.bin).args(words).arg("--data-dir").arg(data).arg("--json").output()?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Sends a request that must succeed.
    pub(crate) async fn ask(&self, account: &Account, method: Method, path: &str, body: Value) -> Outcome<Value> {
        let request = self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&account.key);
        let request = request.header("content-type", "application/json").body(body.to_string());
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        if !status.is_success() {
            return Err(format!("{path} answered {status}: {text}").into());
        }
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    /// Creates an endpoint, and returns its identifier.
    pub(crate) async fn endpoint(&self, account: &Account, url: &str, events: &[&str]) -> Outcome<String> {
        let body = json!({ "url": url, "events": events });
        let made = self.ask(account, Method::POST, "/v1/webhooks", body).await?;
        Ok(made["id"].as_str().ok_or("the endpoint has no id")?.to_owned())
    }

    /// Enables or disables an endpoint.
    pub(crate) async fn enable(&self, endpoint: &str, enabled: bool) -> Outcome<()> {
        let path = format!("/v1/webhooks/{endpoint}");
        self.ask(&self.own(), Method::PATCH, &path, json!({ "enabled": enabled })).await?;
        Ok(())
    }

    /// Sends a message that must be accepted.
    pub(crate) async fn send(&self, number: usize) -> Outcome<()> {
        let message = json!({
            "from": "hello@example.test",
            "to": format!("customer{number}@example.org"),
            "subject": "Your order",
            "text": "It is on its way.",
        });
        self.ask(&self.own(), Method::POST, "/v1/messages", message).await?;
        Ok(())
    }

    /// Replays every event to an endpoint. Returns their number.
    pub(crate) async fn replay(&self, endpoint: &str) -> Outcome<usize> {
        let body = json!({ "since": "2020-01-01T00:00:00Z", "only_failed": false });
        let made = self.ask(&self.own(), Method::POST, &format!("/v1/webhooks/{endpoint}/replay"), body).await?;
        Ok(usize::try_from(made["created"].as_u64().ok_or("the replay has no count")?)?)
    }

    /// Waits until it uses almost no CPU time.
    pub(crate) async fn settle(&self) -> Outcome<()> {
        let gauge = self.gauge()?;
        loop {
            let before = gauge.read()?;
            tokio::time::sleep(LOOK_EVERY).await;
            if before.until(&gauge.read()?).server_seconds < IDLE_SHARE * LOOK_EVERY.as_secs_f64() {
                return Ok(());
            }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
