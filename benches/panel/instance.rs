//! The instance under measurement: `postrider dev` as a child, on a directory that is kept between its runs, and a
//! signed-in user.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use reqwest::{Client, Method, header, redirect};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::Outcome;
use crate::dev::spawn;
use crate::fill::Pattern;

/// Maximum time until an accepted message is delivered.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A running instance.
pub(crate) struct Instance {
    child: Child,
    client: Client,
    url: String,
    info: Value,
    session: String,
}

/// An answer's body.
pub(crate) struct Seen {
    pub(crate) text: String,
    pub(crate) took: Duration,
}

impl Instance {
    /// Starts it on `folder/data`, and signs in.
    pub(crate) async fn start(bin: &Path, folder: &Path) -> Outcome<Self> {
        let config = "[log]\nlevel = \"error\"\n[quota]\nper_hour = 1000000000\nper_day = 1000000000\n";
        std::fs::write(folder.join("postrider.toml"), config)?;
        let (child, info) = spawn(bin, folder)?;
        let client = Client::builder().no_proxy().redirect(redirect::Policy::none()).build()?;
        let url = info["url"].as_str().unwrap_or_default().to_owned();
        let mut instance = Self { child, client, url, info, session: String::new() };
        instance.sign_in().await?;
        Ok(instance)
    }

    async fn sign_in(&mut self) -> Outcome<()> {
        let text = |name: &str| self.info[name].as_str().unwrap_or_default();
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("email", text("panel_user")).append_pair("password", text("panel_password"));
        let login = self.client.post(format!("{}/login", self.url)).header("Sec-Fetch-Site", "same-origin");
        let login = login.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(form.finish());
        let answer = login.send().await?;
        let cookie = answer.headers().get(header::SET_COOKIE).and_then(|cookie| cookie.to_str().ok());
        let cookie = cookie.ok_or_else(|| format!("the sign-in failed: {}", answer.status()))?;
        self.session = cookie.split(';').next().unwrap_or_default().to_owned();
        Ok(())
    }

    /// Waits until the pages of the database are verified. A large database is verified while the service runs, and
    /// that CPU time would count for the pages of the panel.
    pub(crate) async fn is_verified(&self) -> Outcome<()> {
        let tasks = format!("/proc/{}/task", self.pid());
        loop {
            let names = std::fs::read_dir(&tasks)?.flatten().map(|task| task.path().join("comm"));
            if !names.filter_map(|name| std::fs::read_to_string(name).ok()).any(|name| name.trim() == "verifier") {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Requests a page, which must exist.
    pub(crate) async fn page(&self, path: &str) -> Outcome<Seen> {
        let begun = Instant::now();
        let asked = self.client.get(format!("{}{path}", self.url)).header(header::COOKIE, &self.session);
        let answer = asked.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        if !status.is_success() && !status.is_redirection() {
            return Err(format!("{path} answered {status}").into());
        }
        Ok(Seen { text, took: begun.elapsed() })
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Outcome<Value> {
        let key = self.info["api_key"].as_str().unwrap_or_default();
        let asked = self.client.request(method, format!("{}{path}", self.url)).bearer_auth(key);
        let asked = asked.header(header::CONTENT_TYPE, "application/json").body(body.to_string());
        let answer = asked.send().await?.error_for_status()?;
        Ok(serde_json::from_str(&answer.text().await?)?)
    }

    /// Creates one delivered message and a webhook.
    pub(crate) async fn furnish(&self) -> Outcome<Pattern> {
        let hook = json!({ "url": "https://hooks.example.com/postrider", "events": ["complained"] });
        let endpoint = self.ask(Method::POST, "/v1/webhooks", hook).await?;
        let message = json!({
            "from": "shop@example.test", "to": "ann@example.org", "subject": "Your order", "text": "On its way.",
            "metadata": { "order": "10482" },
        });
        let message = self.ask(Method::POST, "/v1/messages", message).await?;
        let id = |value: &Value| value["id"].as_str().unwrap_or_default().to_owned();
        let begun = Instant::now();
        let path = format!("/v1/messages/{}", id(&message));
        while self.ask(Method::GET, &path, json!(null)).await?["status"] != "delivered" {
            if begun.elapsed() > PATIENCE {
                return Err("the message was not delivered".into());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let account = self.info["account_id"].as_str().unwrap_or_default();
        Ok(Pattern { account: account.parse()?, message: id(&message).parse()?, endpoint: id(&endpoint).parse()? })
    }

    /// Stops it, and waits for its end.
    pub(crate) async fn stop(mut self) -> Outcome<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or("no process")?;
        kill_process(pid, Signal::TERM)?;
        while self.child.try_wait()?.is_none() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
