//! A browser session: its lifetime, and the times at which the user must authenticate again.
//!
//! Only the hash of the cookie's token is stored, so a copy of the store can't be used to sign in.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::base::entropy::{self, Entropy};
use crate::base::id::{AccountId, UserId};
use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::domain::account::ViewReason;

/// Maximum time between two requests of a session.
const IDLE: Duration = Duration::from_secs(12 * 3600);
/// Maximum age of a session.
const WHOLE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time for entering the second factor after the password.
const CODE: Duration = Duration::from_secs(5 * 60);
/// Time for which a confirmed password reveals secrets.
const PROOF: Duration = Duration::from_secs(15 * 60);
/// Maximum time by which a stored time may be ahead of the service's time.
const AHEAD_MAX: Duration = Duration::from_secs(3600);
/// Precision of `seen_at`.
const SEEN_STAMP_EVERY: Duration = Duration::from_secs(60);
/// Maximum length of the stored browser description, in characters.
const AGENT_CHARACTERS: usize = 160;

/// Key of a session in the store: the SHA-256 of its token.
pub type SessionKey = [u8; 32];

/// Token in a cookie: 256 random bits as hex.
#[derive(Clone, Debug)]
pub struct SessionToken(Secret);

impl SessionToken {
    /// Generates a new token.
    pub fn generate(entropy: &dyn Entropy) -> Self {
        Self(Secret::new(hex::encode(entropy::bytes::<32>(entropy))))
    }

    /// Returns the token if `text` is well-formed.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        fits.then(|| Self(Secret::new(text)))
    }

    /// Returns the text, for the cookie.
    pub fn expose(&self) -> &str {
        self.0.expose_text()
    }

    /// Returns the key that finds the session in the store. The token has 256 random bits, so a plain hash is enough.
    pub fn key(&self) -> SessionKey {
        Sha256::digest(self.0.expose()).into()
    }
}

/// Progress of a sign-in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Stage {
    /// The password was correct; the second factor is missing.
    CodeAwaited,
    /// The user is signed in.
    SignedIn,
}

/// A session, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The account.
    pub account: AccountId,
    /// The signed-in user.
    pub user: UserId,
    /// Progress of the sign-in.
    pub stage: Stage,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last use, to within a minute.
    pub seen_at: Timestamp,
    /// Time at which the password was last entered.
    pub proved_at: Timestamp,
    /// Client address at the session's beginning.
    pub address: String,
    /// The browser's User-Agent, shortened.
    pub agent: String,
    /// The account that an operator is viewing in this session.
    pub view: Option<View>,
}

/// An operator's view of another account: read-only, and without message content, secrets and exports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The viewed account.
    pub account: AccountId,
    /// The address of the operator, for the account's audit log.
    pub operator: String,
    /// The operator's reason, which the account's audit log shows.
    pub reason: ViewReason,
    /// Expiry of the view.
    pub until: Timestamp,
}

impl View {
    /// Maximum duration of a view.
    pub const LASTS: Duration = Duration::from_secs(30 * 60);

    /// Returns whether the view has not ended. A view that would last longer was begun by a clock that was ahead.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.until && self.until <= now + Self::LASTS
    }
}

impl Session {
    /// Creates a session that begins at `now`.
    pub fn begin(account: AccountId, user: UserId, stage: Stage, from: Client<'_>, now: Timestamp) -> Self {
        Self {
            account,
            user,
            stage,
            created_at: now,
            seen_at: now,
            proved_at: now,
            address: from.address.to_owned(),
            agent: from.agent.chars().filter(|c| !c.is_control()).take(AGENT_CHARACTERS).collect(),
            view: None,
        }
    }

    /// Returns whether the session is still valid.
    pub fn is_live(&self, now: Timestamp) -> bool {
        let whole = match self.stage {
            Stage::CodeAwaited => CODE,
            Stage::SignedIn => WHOLE,
        };
        // A session of the future was begun by a clock that was ahead.
        self.created_at <= now + AHEAD_MAX && now.since(self.created_at) < whole && now.since(self.seen_at) < IDLE
    }

    /// Returns whether a use at `now` must be stored.
    pub fn needs_seen_stamp(&self, now: Timestamp) -> bool {
        now.since(self.seen_at) >= SEEN_STAMP_EVERY
    }

    /// Returns whether the password was entered recently enough to see secrets.
    pub fn is_proved(&self, now: Timestamp) -> bool {
        self.proved_at <= now + AHEAD_MAX && now.since(self.proved_at) < PROOF
    }
}

/// The client that begins a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct Client<'a> {
    /// The client's address.
    pub address: &'a str,
    /// Its `User-Agent`.
    pub agent: &'a str,
    /// Text of the cookie that identifies a browser ([`super::device`]); empty without one.
    pub device: &'a str,
}

/// An owned client, which can outlive the request.
#[derive(Clone, Debug)]
pub struct OwnedClient {
    address: String,
    agent: String,
    device: String,
}

impl OwnedClient {
    /// Returns the borrowed client.
    pub fn as_client(&self) -> Client<'_> {
        Client { address: &self.address, agent: &self.agent, device: &self.device }
    }
}

impl From<Client<'_>> for OwnedClient {
    fn from(client: Client<'_>) -> Self {
        let [address, agent, device] = [client.address, client.agent, client.device].map(str::to_owned);
        Self { address, agent, device }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::entropy::SeededEntropy;

    fn begun(stage: Stage) -> Session {
        Session::begin(AccountId::default(), UserId::default(), stage, Client::default(), Timestamp::ZERO)
    }

    #[test]
    fn a_session_ends_after_12_idle_hours_or_seven_days() {
        let hour = |hours: u64| Timestamp::ZERO + Duration::from_secs(hours * 3600);
        let mut session = begun(Stage::SignedIn);
        assert!(session.is_live(hour(11)) && !session.is_live(hour(12)));
        session.seen_at = hour(160);
        assert!(session.is_live(hour(167)) && !session.is_live(hour(168)));
        assert!(session.is_proved(Timestamp::ZERO) && !session.is_proved(hour(1)));
    }

    #[test]
    fn a_session_or_view_that_a_clock_that_was_ahead_began_has_ended() {
        let day = Duration::from_secs(24 * 3600);
        let ahead = Timestamp::ZERO + 5 * day;
        let stage = Stage::SignedIn;
        let session = Session::begin(AccountId::default(), UserId::default(), stage, Client::default(), ahead);
        assert!(session.is_live(ahead) && session.is_live(ahead - AHEAD_MAX));
        assert!(!session.is_live(ahead - day) && !session.is_proved(ahead - day));
        let view = View {
            account: AccountId::default(),
            operator: String::new(),
            reason: "asked to".parse().unwrap(),
            until: ahead + View::LASTS,
        };
        assert!(view.is_live(ahead) && !view.is_live(view.until) && !view.is_live(ahead - day));
    }

    #[test]
    fn the_second_factor_must_be_entered_within_five_minutes() {
        let session = begun(Stage::CodeAwaited);
        assert!(session.is_live(Timestamp::from_millis(299_999)) && !session.is_live(Timestamp::from_millis(300_000)));
    }

    #[test]
    fn a_token_parses_back_and_other_text_does_not() {
        let token = SessionToken::generate(&SeededEntropy::new(1));
        assert_eq!(SessionToken::parse(token.expose()).unwrap().key(), token.key());
        for bad in ["", "abc", &token.expose()[1..], &"g".repeat(64)] {
            assert!(SessionToken::parse(bad).is_none(), "{bad}");
        }
        let from = Client { address: "192.0.2.1", agent: &"x\n".repeat(200), device: "" };
        let session = Session::begin(AccountId::default(), UserId::default(), Stage::SignedIn, from, Timestamp::ZERO);
        assert_eq!(session.agent, "x".repeat(160));
    }
}
