//! The lines of the audit log: who changed what of an account. The store writes a line beside the change itself. No
//! secret is ever part of one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::id::{KeyId, UserId};

/// Somebody who is signed in to the panel, as they were called at that moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Person {
    /// The user.
    pub user: UserId,
    /// The address that they signed in with.
    pub email: String,
}

/// Author of a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Actor {
    /// Somebody of the panel.
    Person(Person),
    /// A program with this API key.
    Key(KeyId),
    /// The operator, by a command on the server.
    Operator,
    /// The service itself.
    Service,
    /// The user of a setup link.
    SetupLink {
        /// Author of the link, as the log shows them.
        maker: String,
    },
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person(person) => f.write_str(&person.email),
            Self::Key(key) => write!(f, "API key {key}"),
            Self::Operator => f.write_str("operator"),
            Self::Service => f.write_str("service"),
            Self::SetupLink { maker } => write!(f, "setup link made by {maker}"),
        }
    }
}

/// A change: the action and its object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// The action.
    pub action: Action,
    /// The identifier of what it was done to; empty where it was no one thing.
    pub object: String,
    /// Name of the object, or the value that it was set to.
    pub name: String,
}

impl Change {
    /// `action` was done to `object`, which people call `name`.
    pub fn new(action: Action, object: impl ToString, name: impl Into<String>) -> Self {
        Self { action, object: object.to_string(), name: name.into() }
    }
}

macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A kind of change. Stored by its position: new ones come last.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
        pub enum Action {$($(#[$doc])* $name,)*}

        impl Action {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The action in words.
            pub const fn as_str(self) -> &'static str {
                match self {$(Self::$name => $text,)*}
            }
        }
    };
}

actions! {
    /// The account's settings.
    SettingsChanged = "changed the settings";
    /// A user of the panel.
    UserAdded = "added the user";
    /// Their role.
    RoleChanged = "changed the role of";
    /// They may not sign in.
    UserDisabled = "kept from signing in";
    /// They may again.
    UserEnabled = "let sign in again";
    /// Their password.
    PasswordChanged = "changed the password of";
    /// Their second factor.
    SecondFactorSet = "set up the second factor of";
    /// It is gone.
    SecondFactorRemoved = "removed the second factor of";
    /// They are gone.
    UserRemoved = "removed the user";
    /// Sessions of their own.
    SessionsEnded = "ended sessions of";
    /// An API key.
    KeyCreated = "created the API key";
    /// Its name.
    KeyRenamed = "renamed the API key";
    /// It opens nothing more.
    KeyRevoked = "revoked the API key";
    /// A sending domain.
    DomainAdded = "added the domain";
    /// Its stream.
    DomainChanged = "changed the stream of the domain";
    /// Its DKIM keys.
    DomainKeysRotated = "made new DKIM keys for the domain";
    /// It is gone.
    DomainDeleted = "removed the domain";
    /// A webhook endpoint.
    WebhookCreated = "created the webhook";
    /// Where it goes, or what it takes.
    WebhookChanged = "changed the webhook";
    /// It is attempted again.
    WebhookReactivated = "reactivated the webhook";
    /// It is not attempted.
    WebhookPaused = "paused the webhook";
    /// Its secret.
    WebhookSecretRotated = "rotated the secret of the webhook";
    /// An event of type `test`.
    WebhookTested = "sent a test to the webhook";
    /// It is gone.
    WebhookDeleted = "deleted the webhook";
    /// One delivery once more.
    DeliverySentAgain = "sent a delivery again, as";
    /// Many of them.
    EventsReplayed = "replayed events to the webhook";
    /// An address.
    AddressSuppressed = "suppressed the address";
    /// It is sent to again.
    SuppressionLifted = "lifted the suppression of";
    /// A list of addresses.
    SuppressionsImported = "imported suppressions";
    /// A message that waited.
    MessageCanceled = "withdrew the message";
    /// One that waited for a later attempt.
    MessageTried = "had tried at once the message";
    /// Waiting messages of a site.
    SiteTried = "retried all mail waiting for";
    /// Mail for a site.
    SitePaused = "paused mail for";
    /// It goes on.
    SiteResumed = "resumed mail for";
    /// A link by which a user chooses a password.
    SetupLinkMade = "made a setup link for";
    /// An endpoint that failed too often.
    WebhookDisabled = "disabled after repeated failures the webhook";
    /// A bounce or complaint rate.
    ThresholdCrossed = "measured a rate across a threshold:";
    /// A domain's DKIM record was seen.
    DomainVerified = "verified the domain";
    /// It was not seen any more.
    DomainFailing = "missed the DKIM record of the domain";
    /// It was missing for too long, or was never seen.
    DomainUnverified = "took the verification from the domain";
    /// The account may send and change nothing.
    AccountSuspended = "suspended the account:";
    /// It may again.
    AccountResumed = "resumed the account";
    /// A source of mail in DMARC reports.
    DmarcSourceMarked = "marked a source in the DMARC reports of";
    /// A reporter of DMARC data was marked as believed or ignored.
    DmarcReporterMarked = "marked a reporter in the DMARC reports of";
    /// An identity at a provider of OpenID Connect, by which the user signs in from then on.
    IdentityBound = "bound an identity of OpenID Connect to";
    /// They may see the system and every account.
    OperatorNamed = "made an operator of the service";
    /// They may not any more.
    OperatorDismissed = "took the operator's right from";
    /// An operator looks at the account.
    ViewBegun = "began a read-only view of the account:";
    /// They look no more.
    ViewEnded = "ended the read-only view of the account:";
    /// The operator made it.
    AccountCreated = "created the account";
    /// Somebody was invited to the panel by mail.
    UserInvited = "invited the user";
}
