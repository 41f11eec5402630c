//! A running `postrider dev`, and a client for it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A running `dev`, killed when it is dropped.
pub(crate) struct Dev {
    child: Child,
    client: reqwest::Client,
    /// The line that it printed at its start.
    pub(crate) announcement: Value,
    _directory: Option<tempfile::TempDir>,
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) async fn of(response: Response) -> Self {
        Self::try_of(response).await.unwrap()
    }

    async fn try_of(response: Response) -> reqwest::Result<Self> {
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(Self { status, headers, bytes: response.bytes().await?.to_vec() })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.bytes)))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no header {name}")).to_str().unwrap()
    }

    /// Returns the answer, which must have this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", String::from_utf8_lossy(&self.bytes));
        self
    }
}

impl Dev {
    /// Starts `dev` with a virtual clock on a temporary directory.
    pub(crate) fn start() -> Self {
        Self::with(&["--virtual-clock"])
    }

    /// Starts `dev` with these arguments on a temporary directory.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let mut dev = Self::on(&path, arguments);
        dev._directory = Some(directory);
        dev
    }

    /// Starts `dev` with these arguments on a directory that is kept.
    pub(crate) fn on(directory: &std::path::Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.args(["dev", "--json", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory).args(arguments);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let announcement = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        Self { child, client: reqwest::Client::new(), announcement, _directory: None }
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.announcement["data_dir"].as_str().unwrap().into()
    }

    /// Kills it, like a loss of power.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills it while requests are running.
    pub(crate) fn kill_now(&self) {
        kill_process(Pid::from_child(&self.child), Signal::KILL).unwrap();
    }

    /// Stops it, and waits for its end.
    pub(crate) async fn terminate(mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        tokio::task::spawn_blocking(move || self.child.wait().unwrap()).await.unwrap()
    }

    /// Waits until it has ended without being stopped.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        tokio::task::spawn_blocking(move || self.child.wait().unwrap()).await.unwrap()
    }

    /// Follows the event log, after this event if one is given.
    pub(crate) async fn follow(&self, last: Option<&str>) -> Following {
        let mut request = self.request(Method::GET, "/v1/events/stream", &[]);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Following { response, text: String::new() }
    }

    /// Sends a request with the account's key.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.call_with(method, path, body, &[]).await
    }

    /// Sends a request with the account's key and additional headers.
    pub(crate) async fn call_with(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        Answer::of(self.posted(method, path, body, headers).send().await.unwrap()).await
    }

    /// Sends a request during which the service may die.
    pub(crate) async fn try_call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        headers: &[(&str, &str)],
    ) -> Option<Answer> {
        Answer::try_of(self.posted(method, path, body, headers).send().await.ok()?).await.ok()
    }

    fn posted(&self, method: Method, path: &str, body: Option<Value>, headers: &[(&str, &str)]) -> RequestBuilder {
        let request = self.request(method, path, headers);
        match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        }
    }

    fn request(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> RequestBuilder {
        let url = format!("{}{path}", self.announcement["url"].as_str().unwrap());
        let mut request = self.client.request(method, url);
        if !headers.iter().any(|(name, _)| *name == "authorization") {
            request =
                request.header("authorization", format!("Bearer {}", self.announcement["api_key"].as_str().unwrap()));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Posts a text of another content type than JSON.
    pub(crate) async fn upload(&self, path: &str, kind: &str, text: &str) -> Answer {
        let url = format!("{}{path}", self.announcement["url"].as_str().unwrap());
        let key = self.announcement["api_key"].as_str().unwrap();
        let request = self.client.post(url).bearer_auth(key).header("content-type", kind).body(text.to_owned());
        Answer::of(request.send().await.unwrap()).await
    }

    /// Sends a plain message to `to` and returns its identifier.
    pub(crate) async fn send(&self, to: &str) -> String {
        let body = json!({"from": "hello@example.test", "to": to, "subject": "Hello", "text": "It works.\n"});
        let answer = self.post("/v1/messages", body).await.expect(202);
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// Returns the record of a message.
    pub(crate) async fn message(&self, id: &str) -> Value {
        self.get(&format!("/v1/messages/{id}")).await.expect(200).json()
    }

    /// Returns the time in that many seconds, in the API's format.
    pub(crate) async fn time_in(&self, seconds: i64) -> String {
        let now = self.get("/dev/clock").await.expect(200).json();
        let now: jiff::Timestamp = now["now"].as_str().unwrap().parse().unwrap();
        (now + jiff::SignedDuration::from_secs(seconds)).to_string()
    }

    /// Moves time, and waits until everything due is settled.
    pub(crate) async fn advance(&self, seconds: u64) -> Value {
        self.post("/dev/clock", json!({"advance_seconds": seconds})).await.expect(200).json()
    }
}

/// A stream of events.
pub(crate) struct Following {
    response: Response,
    text: String,
}

impl Following {
    /// Returns the identifier of the next event.
    pub(crate) async fn id(&mut self) -> String {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let id = event.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
                self.text = rest.to_owned();
                return id;
            }
            let chunk = self.response.chunk().await.unwrap().unwrap();
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// Reads until the stream ends, which must be complete.
    pub(crate) async fn read_to_end(mut self) {
        while self.response.chunk().await.unwrap().is_some() {}
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // The process may already have been killed by a test.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the types of a message's events, oldest first.
pub(crate) fn types(message: &Value) -> Vec<&str> {
    message["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect()
}
