//! Reasons why a sign-in by OpenID Connect is refused.

use super::provider::ProviderFault;
use crate::domain::id_token::InvalidIdToken;
use crate::machine::throttle::TooManyFailures;

/// Reason why a sign-in is refused. The reasons never contain an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OidcRefusal {
    /// The answer belongs to no sign-in of this browser, or came too late.
    #[error("the answer does not belong to a sign-in of this browser, or came after more than 10 minutes")]
    NotStarted,
    /// The provider refused the sign-in.
    #[error("the provider refused the sign-in: {0}")]
    Denied(String),
    /// The answer is from another provider.
    #[error("the answer comes from another issuer")]
    Issuer,
    /// The provider can't be queried.
    #[error(transparent)]
    Provider(#[from] ProviderFault),
    /// The provider did not answer in time.
    #[error("the provider did not answer within 10 seconds")]
    Slow,
    /// The provider's token is invalid.
    #[error(transparent)]
    Token(#[from] InvalidIdToken),
    /// The userinfo endpoint describes another person.
    #[error("the userinfo endpoint names another subject than the ID token")]
    OtherSubject,
    /// The provider has no address, or has not verified it.
    #[error("the provider does not confirm an address")]
    Unverified,
    /// No user has this address, and none may be created.
    #[error("no user has the verified address, and no user may be created for it")]
    Nobody,
    /// The person opened an invitation, but no user has their address.
    #[error("the invitation is for another address")]
    OtherAddress,
    /// The address is that of a user with another identity.
    #[error("the user of the verified address has another identity at the provider")]
    Taken,
    /// The user is disabled.
    #[error("the user is disabled")]
    Disabled,
    /// The account accepts no new users.
    #[error("the account accepts no new users")]
    Closed,
    /// Too many attempts from this address have failed.
    #[error("too many attempts have failed")]
    Throttled(TooManyFailures),
    /// Too many sign-ins are in progress.
    #[error("too many sign-ins at once")]
    Crowded,
}

impl From<TooManyFailures> for OidcRefusal {
    fn from(throttled: TooManyFailures) -> Self {
        Self::Throttled(throttled)
    }
}

impl OidcRefusal {
    /// Returns whether the person presented something wrong. A failure of the provider and an answer without a code are
    /// not counted: nothing was tried, and a stranger can produce such answers freely.
    pub(super) const fn is_failure(&self) -> bool {
        match self {
            Self::Token(_) | Self::OtherSubject => true,
            Self::Provider(fault) => matches!(fault, ProviderFault::Status(_, 400..=499)),
            Self::Unverified | Self::Nobody | Self::OtherAddress | Self::Taken | Self::Disabled | Self::Closed => true,
            Self::NotStarted | Self::Denied(_) | Self::Issuer => false,
            Self::Slow | Self::Throttled(_) | Self::Crowded => false,
        }
    }
}
