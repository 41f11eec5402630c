//! The submission interface of a message: HTTP or SMTP.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::store::row::message::MessageRow;
use crate::store::row::message_index::Term;

/// Submission interface of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// HTTP.
    Api,
    /// SMTP.
    Smtp,
}

/// Error: the text is not `api` or `smtp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be api or smtp")]
pub struct InvalidVia;

impl Via {
    pub(super) const fn of(row: &MessageRow) -> Self {
        if row.submission.is_some() { Self::Smtp } else { Self::Api }
    }

    /// Returns the index term. Blocks from before SMTP submission existed have no such term and no such messages.
    /// Messages submitted by HTTP have no term, so every block is searched.
    pub(super) fn term(self) -> Option<Term> {
        match self {
            Self::Api => None,
            Self::Smtp => Some(Term::by_smtp()),
        }
    }
}

impl FromStr for Via {
    type Err = InvalidVia;
    fn from_str(text: &str) -> Result<Self, InvalidVia> {
        match text {
            "api" => Ok(Self::Api),
            "smtp" => Ok(Self::Smtp),
            _ => Err(InvalidVia),
        }
    }
}
