//! Errors of a configuration: all at once, each with its place.

use std::fmt;

use super::super::cli_error::CliError;
use super::super::exit::Exit;
use super::tree::Place;

/// One error: its place, its key, and a sentence that says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyError {
    /// Place of the error.
    pub place: Place,
    /// Dotted key; empty for the file as a whole.
    pub key: String,
    /// Description of the error.
    pub sentence: String,
    /// Whether the program exits as after a wrong command line.
    pub is_usage: bool,
}

impl KeyError {
    pub(super) fn new(place: Place, key: &str, sentence: impl Into<String>) -> Self {
        Self { place, key: key.to_owned(), sentence: sentence.into(), is_usage: false }
    }
}

impl KeyError {
    /// Returns whether this is an error of the dotted key `key`.
    pub(super) fn is_of(&self, key: &str) -> bool {
        self.key == key
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, key, sentence, .. } = self;
        if key.is_empty() { write!(f, "{place}: {sentence}") } else { write!(f, "{place}: {key}: {sentence}") }
    }
}

/// Reason why a configuration can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// The file can't be read: its path and the system's error.
    Unreadable(String, String),
    /// The file has these errors, ordered by place.
    Faulty(String, Vec<KeyError>),
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Unreadable(origin, why) => Self::new(
                Exit::Failed,
                format!("cannot read the configuration {origin}"),
                why,
                "Choose an existing file that this user can read; `postrider config example` prints one.",
            ),
            ConfigError::Faulty(origin, faults) => Self::with_reasons(
                if faults.iter().any(|fault| fault.is_usage) { Exit::Usage } else { Exit::Failed },
                format!("cannot use the configuration {origin}"),
                faults.iter().map(ToString::to_string),
                "Correct it and run `postrider config check`; `postrider config example` explains every key.",
            ),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        CliError::from(self.clone()).fmt(f)
    }
}

impl std::error::Error for ConfigError {}
