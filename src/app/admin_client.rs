//! What the commands ask the running daemon: the API's routes and the operator's, over `admin.sock` in the data
//! directory, whose file mode is the authentication (contract 8).
//!
//! Every failure comes back as the [`Trouble`] that the operator reads, with its exit code.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use serde_json::Value;

use super::exit::Exit;
use super::trouble::Trouble;
use crate::base::id::AccountId;
use crate::net::admin_socket::{self, AdminReply, AdminRequest};

/// The socket's name in the data directory.
pub const SOCKET_NAME: &str = "admin.sock";
/// Longer than any look-up that a request may wait for.
const DEADLINE: Duration = Duration::from_secs(60);

/// The way to the daemon of one data directory.
#[derive(Debug, Clone)]
pub struct AdminClient {
    socket: PathBuf,
}

/// A positive answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Exactly what the API sent, without a line end.
    pub text: String,
    /// The same, taken apart.
    pub value: Value,
}

/// One request, and what it is for.
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    /// What is to be done, as it follows "cannot": `list the keys`.
    pub purpose: &'a str,
    /// GET or POST.
    pub method: Method,
    /// The path, with the query.
    pub path: String,
    /// The account, where it concerns one.
    pub account: Option<AccountId>,
    /// The body, where it has one.
    pub body: Option<Value>,
}

impl<'a> Ask<'a> {
    /// A GET.
    pub fn get(purpose: &'a str, path: impl Into<String>, account: Option<AccountId>) -> Self {
        Self { purpose, method: Method::GET, path: path.into(), account, body: None }
    }

    /// A POST.
    pub fn post(purpose: &'a str, path: impl Into<String>, account: Option<AccountId>, body: Option<Value>) -> Self {
        Self { purpose, method: Method::POST, path: path.into(), account, body }
    }
}

impl AdminClient {
    /// The way to the daemon whose data directory this is.
    pub fn new(data_dir: &Path) -> Self {
        Self { socket: data_dir.join(SOCKET_NAME) }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// A [`Trouble`] where the daemon is not reached, or answers anything but 2xx.
    pub fn ask(&self, ask: Ask<'_>) -> Result<Reply, Trouble> {
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

    fn unreached(&self, purpose: &str, why: &io::Error) -> Trouble {
        let socket = self.socket.display();
        let (exit, remedy) = match why.kind() {
            io::ErrorKind::PermissionDenied => {
                (Exit::NotPermitted, "Run the command as the user that the service runs as, or as root.")
            }
            io::ErrorKind::TimedOut => (Exit::Failed, "See the service's log, and try again."),
            _ => (Exit::Unreachable, "Start the service, or name its directory with --data-dir or --config."),
        };
        Trouble::new(
            exit,
            format!("cannot {purpose}"),
            format!("the service does not answer at {socket}: {why}"),
            remedy,
        )
    }
}

/// The reply, or the trouble that its error is.
fn understood(purpose: &str, reply: &AdminReply) -> Result<Reply, Trouble> {
    let text = String::from_utf8_lossy(&reply.body).trim_end().to_owned();
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    let code = value["code"].as_str().unwrap_or_default();
    match Exit::of_answer(reply.status, code) {
        Exit::Done => Ok(Reply { text, value }),
        exit => {
            Err(Trouble::with_reasons(exit, format!("cannot {purpose}"), reasons(reply.status, &value), remedy(exit)))
        }
    }
}

/// The API's sentence, and each field's faults.
fn reasons(status: u16, value: &Value) -> Vec<String> {
    let Some(message) = value["message"].as_str() else {
        return vec![format!("the service answered with status {status} and no reason")];
    };
    let faults = value["errors"].as_object().into_iter().flatten().flat_map(|(field, sentences)| {
        let sentences = sentences.as_array().into_iter().flatten().filter_map(Value::as_str);
        sentences.map(move |sentence| format!("{field}: {sentence}"))
    });
    std::iter::once(message.to_owned()).chain(faults).collect()
}

const fn remedy(exit: Exit) -> &'static str {
    match exit {
        Exit::NotFound => "List what there is, and name one of it.",
        Exit::NotPermitted => "Ask for no more than the account and the key allow.",
        Exit::Conflict => "See what is there already, and choose another.",
        Exit::Refused => "Correct what is named and try again.",
        Exit::Unreachable => "Wait until the service runs again, and try again.",
        Exit::Done | Exit::Failed | Exit::Usage | Exit::ChecksFailed => "See the service's log, and try again.",
    }
}
