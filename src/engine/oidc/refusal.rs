//! Why somebody is not signed in by OpenID Connect.

use super::provider::ProviderFault;
use crate::domain::id_token::InvalidIdToken;
use crate::machine::throttle::Throttled;

/// Why somebody is not signed in. None of these has an address in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OidcRefusal {
    /// The answer belongs to no sign-in of this browser, or came too late.
    #[error("the answer belongs to no sign-in of this browser, or came after more than 10 minutes")]
    NotStarted,
    /// The provider has let nobody in.
    #[error("the provider refused the sign-in: {0}")]
    Denied(String),
    /// The answer is another provider's.
    #[error("the answer comes from another issuer")]
    Issuer,
    /// The provider can't be asked.
    #[error(transparent)]
    Provider(#[from] ProviderFault),
    /// The provider did not answer in time.
    #[error("the provider did not answer within 10 seconds")]
    Slow,
    /// Its token is not taken.
    #[error(transparent)]
    Token(#[from] InvalidIdToken),
    /// The userinfo endpoint speaks of somebody else.
    #[error("the userinfo endpoint names another subject than the ID token")]
    OtherSubject,
    /// There is no address, or one that the provider has not verified.
    #[error("the provider does not confirm an address")]
    Unverified,
    /// Nobody has this address, and none may be made.
    #[error("no user has the verified address, and none is made for it")]
    Nobody,
    /// The address is that of a user with another identity.
    #[error("the user of the verified address has another identity at the provider")]
    Taken,
    /// The user is kept from signing in.
    #[error("the user is disabled")]
    Disabled,
    /// The account takes no new user.
    #[error("the account takes no new user")]
    Closed,
    /// Too many have failed from this address.
    #[error("too many attempts have failed")]
    Throttled(Throttled),
    /// Too many sign in at once.
    #[error("too many sign in at once")]
    Crowded,
}

impl From<Throttled> for OidcRefusal {
    fn from(throttled: Throttled) -> Self {
        Self::Throttled(throttled)
    }
}

impl OidcRefusal {
    /// Whether whoever asks has shown something wrong. A provider in trouble is nobody's failure.
    pub(super) const fn is_failure(&self) -> bool {
        match self {
            Self::NotStarted | Self::Denied(_) | Self::Issuer | Self::Token(_) | Self::OtherSubject => true,
            Self::Provider(fault) => matches!(fault, ProviderFault::Status(_, 400..=499)),
            Self::Unverified | Self::Nobody | Self::Taken | Self::Disabled | Self::Closed => true,
            Self::Slow | Self::Throttled(_) | Self::Crowded => false,
        }
    }
}
