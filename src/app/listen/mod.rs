//! `postrider webhook listen`: webhooks for developers of a receiver.
//!
//! It has two modes. It follows a service's event log and forwards each event to a local program, as an endpoint would
//! get it but without public https. Or it is a receiver itself and verifies webhooks with the endpoint's secret. It
//! prints a line for each event as result, and remarks separately.

mod forwarding;
mod receiving;

use std::io::{self, Write};

use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::cli_error::CliError;
use super::exit::Exit;
use crate::base::secret::Secret;
use crate::base::signature::SECRET_PREFIX;

pub(in crate::app) use self::forwarding::End;
pub use self::forwarding::{Forwarding, Program};
pub use self::receiving::Receiving;

/// Output format of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Text for people.
    Text,
    /// An object of JSON in each line.
    Json,
}

/// Outputs for results and remarks.
pub struct ListenOutput<'t> {
    /// Results.
    pub out: &'t mut dyn Write,
    /// Remarks, for people.
    pub err: &'t mut dyn Write,
    /// Format of the results.
    pub form: Form,
}

impl ListenOutput<'_> {
    fn secret(&mut self, secret: &Secret) -> io::Result<()> {
        let secret = secret.expose_text();
        match self.form {
            Form::Text => writeln!(self.out, "secret: {secret}")?,
            Form::Json => writeln!(self.out, "{}", json!({ "secret": secret }))?,
        }
        self.out.flush()
    }

    fn print(&mut self, result: &ForwardResult) -> io::Result<()> {
        match self.form {
            Form::Text => writeln!(self.out, "{}", result.line())?,
            Form::Json => writeln!(self.out, "{}", result.object())?,
        }
        self.out.flush()
    }

    /// Prints a remark. If standard error is closed, the results are still printed.
    fn remark(&mut self, text: &str) {
        let _ = writeln!(self.err, "{text}");
    }
}

/// Result of forwarding one event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ForwardResult {
    event: String,
    kind: String,
    message: Option<String>,
    created_at: Option<String>,
    /// Status of the program's last answer, if there was a request; of a receiver, its own answer.
    status: Option<u16>,
    /// Reason why the event was not acknowledged.
    error: Option<String>,
    /// Number of requests to the program.
    attempts: u8,
}

impl ForwardResult {
    /// Creates the result for an event record.
    fn of(event: &str, kind: &str, record: &[u8]) -> Self {
        let record: Value = serde_json::from_slice(record).unwrap_or_default();
        let member = |name: &str| record[name].as_str().map(str::to_owned);
        Self {
            event: printable(event),
            kind: printable(kind),
            message: member("message_id").as_deref().map(printable),
            created_at: member("created_at").as_deref().map(printable),
            ..Self::default()
        }
    }

    fn object(&self) -> Value {
        json!({
            "event_id": self.event,
            "type": self.kind,
            "message_id": self.message,
            "created_at": self.created_at,
            "status": self.status,
            "error": self.error,
            "attempts": self.attempts,
        })
    }

    fn line(&self) -> String {
        let or_dash = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        let mut line = format!(
            "{}  {:<12}  {}  {}",
            or_dash(&self.created_at),
            self.kind,
            or_dash(&self.message),
            or_dash(&Some(self.event.clone()))
        );
        if let Some(status) = self.status {
            line.push_str(&format!("  {status}"));
        }
        if let Some(error) = &self.error {
            line.push_str(&format!("  {error}"));
        }
        if self.attempts > 1 {
            line.push_str(&format!("  ({} attempts)", self.attempts));
        }
        line
    }
}

/// Replaces control characters, so that text chosen by others can't move the cursor or recolour the terminal.
fn printable(text: &str) -> String {
    if text.chars().any(char::is_control) { text.escape_debug().to_string() } else { text.to_owned() }
}

/// Parses a webhook secret from the command line.
///
/// # Errors
/// The text is not a webhook secret.
pub fn secret(text: &str) -> Result<Secret, CliError> {
    if text.len() > SECRET_PREFIX.len() && text.starts_with(SECRET_PREFIX) {
        return Ok(Secret::new(text));
    }
    Err(CliError::new(
        Exit::Usage,
        "cannot listen for webhooks",
        format!("webhook secrets begin with {SECRET_PREFIX}"),
        "Use the complete secret, as shown when the endpoint was registered or its secret was rotated.",
    ))
}

/// Resolves at SIGINT or SIGTERM, which end the command.
async fn shutdown_requested() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        // Without handlers the signals end the process directly.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

fn cannot(exit: Exit, why: impl Into<String>, remedy: &str) -> CliError {
    CliError::new(exit, "cannot listen for webhooks", why, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_its_record_contains() {
        let record = br#"{"message_id": "msg_1\n\u001b[31m", "created_at": "2026-11-20T15:04:05.123+00:00"}"#;
        let mut result = ForwardResult::of("evt_1", "delivered", record);
        assert_eq!(result.line(), "2026-11-20T15:04:05.123+00:00  delivered     msg_1\\n\\u{1b}[31m  evt_1");
        result.status = Some(500);
        result.attempts = 3;
        assert!(result.line().ends_with("  evt_1  500  (3 attempts)"), "{}", result.line());
        let object = result.object();
        assert_eq!(
            (&object["event_id"], &object["status"], &object["attempts"]),
            (&json!("evt_1"), &json!(500), &json!(3))
        );
        assert_eq!(ForwardResult::of("evt_2", "test", b"no JSON").line(), "-  test          -  evt_2");
    }

    #[test]
    fn an_invalid_secret_is_refused() {
        assert_eq!(secret("whsec_abc").unwrap().expose(), b"whsec_abc");
        for text in ["", "whsec_", "abc"] {
            assert_eq!(secret(text).unwrap_err().exit(), Exit::Usage, "{text}");
        }
    }
}
