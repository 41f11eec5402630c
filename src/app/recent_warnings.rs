//! The latest warnings and errors of the log, kept in memory for `postrider status`.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::engine::ports::Clock as _;
use crate::http::status::LogLine;
use crate::net::clock::SystemClock;

/// Number of lines that are kept.
const LINES: usize = 10;
/// Maximum length of a message or a field in characters.
const CHARACTERS: usize = 500;

/// The log belongs to the process, so this is static.
static LATEST: Mutex<VecDeque<LogLine>> = Mutex::new(VecDeque::new());

/// Returns the lines, newest first.
pub(super) fn latest() -> Vec<LogLine> {
    LATEST.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
}

/// The tracing layer that keeps the latest lines.
pub(super) struct Recent;

impl<S: Subscriber> Layer<S> for Recent {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        if level > Level::WARN {
            return;
        }
        let mut words = LogFields::default();
        event.record(&mut words);
        let LogFields { message, fields } = words;
        let level = if level == Level::ERROR { "error" } else { "warn" };
        let line = LogLine { at: SystemClock::new().now(), level, message, fields };
        let mut lines = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

/// Message and fields of a log event.
#[derive(Default)]
struct LogFields {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}").chars().take(CHARACTERS).collect();
        match field.name() {
            "message" => self.message = text,
            name => self.fields.push((name, text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn the_latest_warnings_and_errors_are_kept() {
        let subscriber = tracing_subscriber::registry().with(Recent);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!("nothing to remember");
            for number in 0..20 {
                tracing::warn!(number, "a test warns");
            }
            tracing::error!(why = "x", "a test failed");
        });
        let lines = latest();
        assert_eq!(lines.len(), LINES);
        assert_eq!((lines[0].level, lines[0].message.as_str()), ("error", "a test failed"));
        assert_eq!(lines[0].fields, [("why", "\"x\"".to_owned())]);
        assert_eq!([lines[0].text(), lines[1].text()], ["a test failed why=\"x\"", "a test warns number=19"]);
    }
}
