//! The two streams of mail (contract 3): expected mail, and mail with the right to unsubscribe.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The stream of a sending domain, and so of every message from it. The order is that of precedence: transactional mail
/// never waits for marketing mail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Mail caused and awaited by one person.
    Transactional,
    /// Mail that needs an unsubscribe URL.
    Marketing,
}

/// Error: the text is not a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be transactional or marketing")]
pub struct InvalidStream;

impl Stream {
    /// Both streams, in order of precedence.
    pub const ALL: [Self; 2] = [Self::Transactional, Self::Marketing];

    /// Returns the name on every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transactional => "transactional",
            Self::Marketing => "marketing",
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Stream {
    type Err = InvalidStream;
    fn from_str(text: &str) -> Result<Self, InvalidStream> {
        Self::ALL.into_iter().find(|stream| stream.as_str() == text).ok_or(InvalidStream)
    }
}
