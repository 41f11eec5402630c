//! Name of a receiving site in user input: a provider's name, the names of its mail servers, an address with its port,
//! or a domain of recipients.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum length in bytes. The name of a site lists all of its mail servers, unless it would be longer.
pub const BYTES_MAX: usize = 2_000;

/// The name of a site, in visible ASCII.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SiteName(String);

/// Error: the text is not a valid name of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a site name has 1 to 2,000 visible ASCII characters")]
pub struct InvalidSiteName;

impl SiteName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SiteName {
    type Err = InvalidSiteName;

    fn from_str(text: &str) -> Result<Self, InvalidSiteName> {
        let fits = !text.is_empty() && text.len() <= BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidSiteName) }
    }
}

impl fmt::Display for SiteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_name_has_a_limited_number_of_visible_characters() {
        for name in ["google", "mx1.host.example,mx2.host.example", "127.0.0.1:2525"] {
            assert_eq!(name.parse::<SiteName>().unwrap().as_str(), name);
        }
        for name in ["", "a b", "a\n", "bücher.example", &"x".repeat(BYTES_MAX + 1)] {
            assert_eq!(name.parse::<SiteName>(), Err(InvalidSiteName), "{name:?}");
        }
    }
}
