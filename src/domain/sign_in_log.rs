//! The latest sign-ins of a user, also those whose sessions have ended. They are stored with the user and removed with
//! it.

use serde::{Deserialize, Serialize};

use super::session::Session;
use super::user_agent::browser_name;
use crate::base::time::Timestamp;

/// Maximum number of sign-ins of one user; the oldest is dropped.
const SIGN_INS_MAX: usize = 10;
/// Maximum length of the name of an unknown browser, in characters.
const BROWSER_CHARACTERS: usize = 60;

/// A sign-in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignIn {
    /// Time of the sign-in.
    pub at: Timestamp,
    /// Address of the client.
    pub address: String,
    /// Browser and system, such as `Firefox on Linux`, or the beginning of an unknown `User-Agent`.
    pub browser: String,
}

/// The latest sign-ins of one user, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInLog(Vec<SignIn>);

impl SignInLog {
    /// Returns the sign-ins, newest first.
    pub fn newest_first(&self) -> &[SignIn] {
        &self.0
    }

    /// Returns the log after the sign-in that began `session` at `now`.
    #[must_use]
    pub fn with(mut self, session: &Session, now: Timestamp) -> Self {
        let browser =
            browser_name(&session.agent).unwrap_or_else(|| session.agent.chars().take(BROWSER_CHARACTERS).collect());
        self.0.insert(0, SignIn { at: now, address: session.address.clone(), browser });
        self.0.truncate(SIGN_INS_MAX);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::{AccountId, UserId};
    use crate::domain::session::{Client, Stage};

    #[test]
    fn the_ten_newest_sign_ins_are_kept_with_short_names() {
        let mut log = SignInLog::default();
        for millis in 0..12 {
            let (address, agent) = (format!("192.0.2.{millis}"), "x".repeat(160));
            let from = Client { address: &address, agent: &agent, device: "" };
            let now = Timestamp::from_millis(millis);
            let session = Session::begin(AccountId::default(), UserId::default(), Stage::SignedIn, from, now);
            log = log.with(&session, now);
        }
        let kept = log.newest_first();
        assert_eq!((kept.len(), kept[0].address.as_str(), kept[9].address.as_str()), (10, "192.0.2.11", "192.0.2.2"));
        assert_eq!((kept[0].at, kept[0].browser.as_str()), (Timestamp::from_millis(11), "x".repeat(60).as_str()));
    }
}
