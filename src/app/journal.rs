//! The log in the protocol of systemd's journal ("Native Journal Protocol"): an entry for each line, with its level,
//! and with each of its fields, so that `journalctl POSTRIDER_MESSAGE_ID=msg_…` finds everything about a message.
//!
//! [`super::logging`] uses it instead of standard error. It never waits: a journal that does not accept an entry must
//! not delay mail. The entry is lost, and the next accepted one contains the number of lost ones.

use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Path of the journal's socket.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";
/// Prefix of the names of our fields: `MESSAGE_ID` alone belongs to the journal.
const PREFIX: &str = "POSTRIDER_";

/// Connection to the journal.
pub(super) struct Journal {
    socket: UnixDatagram,
    lost: AtomicU64,
}

impl Journal {
    /// Connects to the journal at `path`.
    ///
    /// # Errors
    /// No journal listens there, or access is denied.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, lost: AtomicU64::new(0) })
    }

    fn send(&self, entry: &[u8]) {
        if self.socket.send(entry).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let mut entry = Entry::of(Level::WARN, module_path!());
            entry.text = format!("{lost} log lines were lost: the journal did not accept them");
            if self.socket.send(&entry.finish()).is_err() {
                self.lost.fetch_add(lost, Ordering::Relaxed);
            }
        }
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata: &Metadata<'_> = event.metadata();
        let mut entry = Entry::of(*metadata.level(), metadata.target());
        event.record(&mut entry);
        self.send(&entry.finish());
    }
}

/// An entry that is being built.
struct Entry {
    /// Text for people: the sentence, followed by the fields.
    text: String,
    facts: String,
    fields: Vec<u8>,
}

impl Entry {
    fn of(level: Level, target: &str) -> Self {
        let mut entry = Self { text: String::new(), facts: String::new(), fields: Vec::new() };
        entry.field("PRIORITY", priority(level));
        entry.field("SYSLOG_IDENTIFIER", "postrider");
        entry.field("TARGET", target);
        entry
    }

    /// Adds a field. A value with several lines is preceded by its length; others end with their line.
    fn field(&mut self, name: &str, value: &str) {
        self.fields.extend_from_slice(name.as_bytes());
        if value.contains('\n') {
            self.fields.push(b'\n');
            self.fields.extend_from_slice(&(value.len() as u64).to_le_bytes());
        } else {
            self.fields.push(b'=');
        }
        self.fields.extend_from_slice(value.as_bytes());
        self.fields.push(b'\n');
    }

    fn fact(&mut self, name: &str, value: &str, shown: &dyn fmt::Debug) {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric();
        let upper = name.chars().map(|letter| if is_plain(letter) { letter.to_ascii_uppercase() } else { '_' });
        self.field(&PREFIX.chars().chain(upper).collect::<String>(), value);
        // Writing to a string does not fail.
        let _ = write!(self.facts, " {name}={shown:?}");
    }

    fn finish(mut self) -> Vec<u8> {
        let text = format!("{}{}", self.text, self.facts);
        self.field("MESSAGE", text.trim_start());
        self.fields
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fact(field.name(), value, &value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" if self.text.is_empty() => self.text = format!("{value:?}"),
            name => self.fact(name, &format!("{value:?}"), value),
        }
    }
}

/// Returns the priority by syslog's numbers (RFC 5424 6.2.1).
const fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;

    struct Journald {
        folder: tempfile::TempDir,
        socket: UnixDatagram,
    }

    impl Journald {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let socket = UnixDatagram::bind(folder.path().join("socket")).unwrap();
            socket.set_nonblocking(true).unwrap();
            Self { folder, socket }
        }

        fn journal(&self) -> Journal {
            Journal::at(&self.folder.path().join("socket")).unwrap()
        }

        fn entry(&self) -> Option<String> {
            let mut bytes = [0; 4096];
            let length = self.socket.recv(&mut bytes).ok()?;
            Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
        }
    }

    #[test]
    fn a_log_line_is_an_entry_with_its_level_and_fields() {
        let journald = Journald::new();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(journald.journal()), || {
            tracing::warn!(message_id = "msg_1", attempt = 3, site = %"mx.example", "it was deferred");
        });
        let entry = journald.entry().unwrap();
        let lines: Vec<_> = entry.lines().collect();
        for line in [
            "PRIORITY=4",
            "SYSLOG_IDENTIFIER=postrider",
            "TARGET=postrider::app::journal::tests",
            "POSTRIDER_MESSAGE_ID=msg_1",
            "POSTRIDER_ATTEMPT=3",
            "POSTRIDER_SITE=mx.example",
            "MESSAGE=it was deferred message_id=\"msg_1\" attempt=3 site=mx.example",
        ] {
            assert!(lines.contains(&line), "{line} is not in {lines:#?}");
        }
        assert!(entry.ends_with('\n') && journald.entry().is_none());
    }

    #[test]
    fn a_multi_line_value_cannot_inject_other_fields() {
        let journald = Journald::new();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(journald.journal()), || {
            tracing::info!(answer = "550 no\nPRIORITY=0", "refused");
        });
        let entry = journald.entry().unwrap();
        let field = format!("POSTRIDER_ANSWER\n{}550 no\nPRIORITY=0\n", "\u{11}\0\0\0\0\0\0\0");
        assert!(entry.contains(&field), "{entry:?}");
        assert!(entry.contains("MESSAGE=refused answer=\"550 no\\nPRIORITY=0\"\n"), "{entry:?}");
    }

    #[test]
    fn a_full_journal_blocks_nothing_and_the_number_of_lost_entries_is_logged_later() {
        let journald = Journald::new();
        let journal = journald.journal();
        let entry = |text: &str| {
            let mut entry = Entry::of(Level::INFO, "here");
            entry.text = text.to_owned();
            entry.finish()
        };
        let mut sent = 0;
        while journal.lost.load(Ordering::Relaxed) < 2 {
            journal.send(&entry("one more"));
            sent += 1;
            assert!(sent < 100_000, "the journal never fills up");
        }
        while journald.entry().is_some() {}
        journal.send(&entry("the next"));
        assert!(journald.entry().unwrap().contains("MESSAGE=the next"));
        assert!(journald.entry().unwrap().contains("MESSAGE=2 log lines were lost"));
        assert!(Journal::at(&journald.folder.path().join("elsewhere")).is_err());
    }
}
