//! The two streams of mail (contract 3): what people wait for, and what they may unsubscribe from.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The stream of a sending domain, and so of every message from it. In order of precedence: transactional mail never
/// waits behind marketing mail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Mail that one person caused and waits for.
    Transactional,
    /// Mail that needs an unsubscribe URL.
    Marketing,
}

/// The text names no stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be transactional or marketing")]
pub struct InvalidStream;

impl Stream {
    /// Both, in order of precedence.
    pub const ALL: [Self; 2] = [Self::Transactional, Self::Marketing];

    /// The name on every interface.
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
