//! Message searches that a panel user has saved under a name. They belong to the user, and nobody else sees them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::text::is_deceptive;

/// Maximum number of saved searches of a user.
pub const SEARCHES_COUNT: usize = 20;
/// Maximum number of characters of a name.
pub const NAME_CHARACTERS: usize = 60;

/// Name of a saved search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchName(String);

/// Error: the text is not a name of a saved search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must have 1 to {NAME_CHARACTERS} characters, not all white space, and no control characters")]
pub struct InvalidSearchName;

impl SearchName {
    /// Returns the name as given, without surrounding white space.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SearchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SearchName {
    type Err = InvalidSearchName;
    fn from_str(text: &str) -> Result<Self, InvalidSearchName> {
        let name = text.trim();
        let is_readable = !name.chars().any(|character| character.is_control() || is_deceptive(character));
        let length = name.chars().count();
        if length > 0 && length <= NAME_CHARACTERS && is_readable {
            Ok(Self(name.to_owned()))
        } else {
            Err(InvalidSearchName)
        }
    }
}

/// A saved search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSearch {
    /// The name.
    pub name: SearchName,
    /// Text of the search box.
    pub text: String,
    /// Value of the status field; empty for any.
    pub status: String,
    /// Value of the stream field; empty for any.
    pub stream: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_short_readable_line() {
        assert_eq!(" Bounces at größe.test ".parse::<SearchName>().unwrap().as_str(), "Bounces at größe.test");
        assert!("ü".repeat(NAME_CHARACTERS).parse::<SearchName>().is_ok());
        for bad in ["", "  ", "a\nb", "a\u{202e}b", &"x".repeat(NAME_CHARACTERS + 1)] {
            assert!(bad.parse::<SearchName>().is_err(), "{bad:?}");
        }
    }
}
