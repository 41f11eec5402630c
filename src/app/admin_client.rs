//! Client of the commands for the running daemon: the routes of the API and of the operator, over `admin.sock` in the
//! data directory. The socket's file mode is the authentication (contract 8).
//!
//! Every failure is returned as the [`CliError`] that the operator reads, with its exit code.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use serde_json::Value;

use super::cli_error::CliError;
use super::exit::Exit;
use crate::base::id::AccountId;
use crate::net::admin_socket::{self, AdminReply, AdminRequest, Download, DownloadResponse};

/// Name of the socket in the data directory.
pub const SOCKET_NAME: &str = "admin.sock";
/// Deadline of a request, longer than any lookup that it may wait for.
const DEADLINE: Duration = Duration::from_secs(60);

/// Connection to the daemon of one data directory.
#[derive(Debug, Clone)]
pub struct AdminClient {
    socket: PathBuf,
}

/// A successful answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Exact text from the API, without a line end.
    pub text: String,
    /// The parsed text.
    pub value: Value,
}

/// One request with its purpose.
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    /// Purpose of the request, as it follows "cannot": `list the keys`.
    pub purpose: &'a str,
    /// HTTP method.
    pub method: Method,
    /// Path with the query.
    pub path: String,
    /// Account of the request, if it concerns one.
    pub account: Option<AccountId>,
    /// Body, if there is one.
    pub body: Option<Value>,
}

impl<'a> Ask<'a> {
    /// Creates a GET.
    pub fn get(purpose: &'a str, path: impl Into<String>, account: Option<AccountId>) -> Self {
        Self { purpose, method: Method::GET, path: path.into(), account, body: None }
    }

    /// Creates a POST.
    pub fn post(purpose: &'a str, path: impl Into<String>, account: Option<AccountId>, body: Option<Value>) -> Self {
        Self { purpose, method: Method::POST, path: path.into(), account, body }
    }
}

impl AdminClient {
    /// Creates the client for the daemon of this data directory.
    pub fn new(data_dir: &Path) -> Self {
        Self { socket: data_dir.join(SOCKET_NAME) }
    }

    /// Returns the path of its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// A [`CliError`] if the daemon can't be reached or does not answer with 2xx.
    pub fn ask(&self, ask: Ask<'_>) -> Result<Reply, CliError> {
        let purpose = ask.purpose;
        let request = AdminRequest {
            method: ask.method,
            path: ask.path,
            account: ask.account.map(|account| account.to_string()),
            body: ask.body.map(|body| body.to_string().into_bytes()),
        };
        let reply = admin_socket::ask(&self.socket, request, DEADLINE);
        let reply = reply.map_err(|why| self.unreached(purpose, &why))?;
        understood(purpose, &reply)
    }

    /// Requests a large answer, which is read as a stream.
    ///
    /// # Errors
    /// The errors of [`Self::ask`].
    pub fn download(&self, purpose: &str, path: &str) -> Result<Download, CliError> {
        let request = AdminRequest { method: Method::GET, path: path.to_owned(), account: None, body: None };
        match admin_socket::download(&self.socket, request, DEADLINE).map_err(|why| self.unreached(purpose, &why))? {
            DownloadResponse::Download(download) => Ok(download),
            DownloadResponse::Refused(reply) => {
                let (value, exit) = taken_apart(&text(&reply), reply.status);
                Err(refusal(purpose, exit, reply.status, &value))
            }
        }
    }

    fn unreached(&self, purpose: &str, why: &io::Error) -> CliError {
        let socket = self.socket.display();
        let (exit, remedy) = match why.kind() {
            io::ErrorKind::PermissionDenied => {
                (Exit::NotPermitted, "Run the command as the user that the service runs as, or as root.")
            }
            io::ErrorKind::TimedOut => (Exit::Failed, "See the service's log, and try again."),
            _ => (Exit::Unreachable, "Start the service, or select its directory with --data-dir or --config."),
        };
        CliError::new(
            exit,
            format!("cannot {purpose}"),
            format!("the service does not answer at {socket}: {why}"),
            remedy,
        )
    }
}

/// Returns the reply, or its error as a [`CliError`].
fn understood(purpose: &str, reply: &AdminReply) -> Result<Reply, CliError> {
    let text = text(reply);
    match taken_apart(&text, reply.status) {
        (value, Exit::Done) => Ok(Reply { text, value }),
        (value, exit) => Err(refusal(purpose, exit, reply.status, &value)),
    }
}

fn text(reply: &AdminReply) -> String {
    String::from_utf8_lossy(&reply.body).trim_end().to_owned()
}

fn taken_apart(text: &str, status: u16) -> (Value, Exit) {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let exit = Exit::of_answer(status, value["code"].as_str().unwrap_or_default());
    (value, exit)
}

fn refusal(purpose: &str, exit: Exit, status: u16, value: &Value) -> CliError {
    let refused = CliError::with_reasons(exit, format!("cannot {purpose}"), reasons(status, value), remedy(exit));
    refused.with_code(value["code"].as_str())
}

/// Returns the API's error message and the violations of each field.
fn reasons(status: u16, value: &Value) -> Vec<String> {
    let Some(message) = value["message"].as_str() else {
        return vec![format!("the service answered with status {status} without a message")];
    };
    let faults = value["errors"].as_object().into_iter().flatten().flat_map(|(field, sentences)| {
        let sentences = sentences.as_array().into_iter().flatten().filter_map(Value::as_str);
        sentences.map(move |sentence| format!("{field}: {sentence}"))
    });
    std::iter::once(message.to_owned()).chain(faults).collect()
}

const fn remedy(exit: Exit) -> &'static str {
    match exit {
        Exit::NotFound => "List the existing ones and use one of them.",
        Exit::NotPermitted => "Request only what the account and the key allow.",
        Exit::Conflict => "Check the current state and resolve the reason first.",
        Exit::Refused => "Correct the named fields and try again.",
        Exit::Unreachable => "Wait until the service runs again, and try again.",
        Exit::Done | Exit::Failed | Exit::Usage | Exit::ChecksFailed => "See the service's log, and try again.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::fake_daemon::FakeDaemon;

    fn asked(status: u16, body: &str) -> Result<Reply, CliError> {
        let daemon = FakeDaemon::answering(&[(status, body)]);
        AdminClient::new(daemon.data_dir()).ask(Ask::get("list the keys", "/v1/keys", None))
    }

    #[test]
    fn a_request_has_its_account_and_body_and_the_answer_is_returned_unchanged() {
        let daemon = FakeDaemon::answering(&[(201, "{\"id\": \"key_1\"}\n")]);
        let ask =
            Ask::post("add the key", "/v1/keys", Some(AccountId::default()), Some(serde_json::json!({"name": "n"})));
        let reply = AdminClient::new(daemon.data_dir()).ask(ask).unwrap();
        assert_eq!(reply.text, "{\"id\": \"key_1\"}");
        assert_eq!(reply.value["id"], "key_1");
        let requests = daemon.requests();
        assert!(requests[0].starts_with("POST /v1/keys HTTP/1.1\r\n"), "{requests:?}");
        assert!(requests[0].contains("x-postrider-account: acc_00000000000000000000000000\r\n"), "{requests:?}");
        assert!(requests[0].contains("content-type: application/json\r\n"), "{requests:?}");
        assert!(requests[0].ends_with("\r\n\r\n{\"name\":\"n\"}"), "{requests:?}");
    }

    #[test]
    fn a_refusal_shows_the_api_s_message_and_every_field() {
        let body = r#"{"message": "Not valid.", "code": "validation_failed", "errors": {"name": ["is required"]}}"#;
        let cli_error = asked(422, body).unwrap_err();
        assert_eq!(cli_error.exit(), Exit::Refused);
        assert_eq!(
            cli_error.to_string(),
            "postrider: cannot list the keys\n  Not valid.\n  name: is required\n  Correct the named fields and try again."
        );
        let stopping = asked(503, r#"{"message": "Restarting.", "code": "shutting_down"}"#).unwrap_err();
        assert_eq!(stopping.exit(), Exit::Unreachable);
        let strange = asked(500, "<html>").unwrap_err();
        assert_eq!(strange.exit(), Exit::Failed);
        assert!(strange.to_string().contains("status 500 without a message"), "{strange}");
    }

    #[test]
    fn without_a_listener_the_service_is_not_reachable() {
        let dir = tempfile::tempdir().unwrap();
        let ask = || AdminClient::new(dir.path()).ask(Ask::get("list the keys", "/v1/keys", None)).unwrap_err();
        assert_eq!(ask().exit(), Exit::Unreachable);
        drop(std::os::unix::net::UnixListener::bind(dir.path().join(SOCKET_NAME)).unwrap());
        let cli_error = ask();
        assert_eq!(cli_error.exit(), Exit::Unreachable);
        assert!(
            cli_error.to_string().contains(SOCKET_NAME) && cli_error.to_string().lines().count() == 3,
            "{cli_error}"
        );
    }
}
