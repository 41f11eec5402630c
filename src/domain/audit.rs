//! Lines of the audit log: the author of a change, and the changed part of the account. The store writes a line
//! together with the change. A line never contains a secret.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::id::{KeyId, UserId};

/// A signed-in panel user, with their address at that time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Person {
    /// The user.
    pub user: UserId,
    /// Address of the user at sign-in.
    pub email: String,
}

/// Author of a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Actor {
    /// A panel user.
    Person(Person),
    /// A program with an API key.
    Key(KeyId),
    /// The operator, on the server's command line.
    Operator,
    /// Postrider itself.
    Service,
    /// The user of a setup link.
    SetupLink {
        /// Creator of the link, as in the log.
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
            Self::SetupLink { maker } => write!(f, "setup link created by {maker}"),
        }
    }
}

/// A change: the action and its object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// The action.
    pub action: Action,
    /// Identifier of the changed object; empty if there is no single one.
    pub object: String,
    /// Name of the object, or its new value.
    pub name: String,
}

impl Change {
    /// Creates the change `action` of `object` with the name `name`.
    pub fn new(action: Action, object: impl ToString, name: impl Into<String>) -> Self {
        Self { action, object: object.to_string(), name: name.into() }
    }
}

macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A kind of change. Rows store its position, so new ones are added at the end.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
        pub enum Action {$($(#[$doc])* $name,)*}

        impl Action {
            /// All actions.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the action in words.
            pub const fn as_str(self) -> &'static str {
                match self {$(Self::$name => $text,)*}
            }
        }
    };
}

actions! {
    /// The account's settings were changed.
    SettingsChanged = "changed the settings";
    /// A panel user was added.
    UserAdded = "added the user";
    /// A user's role was changed.
    RoleChanged = "changed the role of";
    /// A user was disabled.
    UserDisabled = "disabled the user";
    /// A user was enabled again.
    UserEnabled = "enabled the user";
    /// A user's password was changed.
    PasswordChanged = "changed the password of";
    /// A second factor was set up.
    SecondFactorSet = "set up the second factor of";
    /// A second factor was removed.
    SecondFactorRemoved = "removed the second factor of";
    /// A user was removed.
    UserRemoved = "removed the user";
    /// Sessions of a user were ended.
    SessionsEnded = "ended the sessions of";
    /// An API key was created.
    KeyCreated = "created the API key";
    /// An API key was renamed.
    KeyRenamed = "renamed the API key";
    /// An API key was revoked.
    KeyRevoked = "revoked the API key";
    /// A sending domain was added.
    DomainAdded = "added the domain";
    /// A domain's stream or key rotation was changed.
    DomainChanged = "changed the domain";
    /// A domain got new DKIM keys.
    DomainKeysRotated = "created new DKIM keys for the domain";
    /// A domain was removed.
    DomainDeleted = "removed the domain";
    /// A webhook endpoint was created.
    WebhookCreated = "created the webhook";
    /// An endpoint's URL or event types were changed.
    WebhookChanged = "changed the webhook";
    /// An endpoint was enabled again.
    WebhookReactivated = "reactivated the webhook";
    /// An endpoint was disabled by its owner.
    WebhookPaused = "paused the webhook";
    /// An endpoint's secret was rotated.
    WebhookSecretRotated = "rotated the secret of the webhook";
    /// An event of type `test` was sent to an endpoint.
    WebhookTested = "sent a test event to the webhook";
    /// An endpoint was deleted.
    WebhookDeleted = "deleted the webhook";
    /// One delivery was sent again.
    DeliverySentAgain = "resent a webhook delivery:";
    /// Events were replayed to an endpoint.
    EventsReplayed = "replayed events to the webhook";
    /// An address was suppressed.
    AddressSuppressed = "suppressed the address";
    /// A suppression was removed.
    SuppressionLifted = "removed the suppression of";
    /// A list of suppressions was imported.
    SuppressionsImported = "imported suppressions";
    /// A queued message was canceled.
    MessageCanceled = "canceled the message";
    /// A message was retried at once.
    MessageTried = "retried the message";
    /// The queued messages of a site were retried.
    SiteTried = "retried all mail waiting for";
    /// Mail for a site was paused.
    SitePaused = "paused mail for";
    /// Mail for a site was resumed.
    SiteResumed = "resumed mail for";
    /// A setup link for a user was created.
    SetupLinkMade = "created a setup link for";
    /// An endpoint was disabled because it failed too often.
    WebhookDisabled = "disabled the repeatedly failing webhook";
    /// A bounce or complaint rate crossed a threshold.
    ThresholdCrossed = "recorded a crossed threshold:";
    /// A domain's DKIM record was found.
    DomainVerified = "verified the domain";
    /// A domain's DKIM record is missing.
    DomainFailing = "did not find the DKIM record of the domain";
    /// A domain's DKIM record was missing for too long, or never found.
    DomainUnverified = "removed the verification of the domain";
    /// The account was suspended.
    AccountSuspended = "suspended the account:";
    /// The account was resumed.
    AccountResumed = "resumed the account";
    /// A source of mail in DMARC reports was marked.
    DmarcSourceMarked = "marked a source in the DMARC reports of";
    /// A DMARC reporter was marked as trusted or ignored.
    DmarcReporterMarked = "marked a reporter in the DMARC reports of";
    /// An OpenID Connect identity was linked to a user, who can sign in with it from then on.
    IdentityBound = "linked an OpenID Connect identity to";
    /// A user became an operator, who sees the system and every account.
    OperatorNamed = "gave the operator role to";
    /// A user is no longer an operator.
    OperatorDismissed = "removed the operator role from";
    /// An operator started a view of the account.
    ViewBegun = "started a read-only view of the account:";
    /// An operator's view of the account ended.
    ViewEnded = "ended the read-only view of the account:";
    /// The operator created the account.
    AccountCreated = "created the account";
    /// A user was invited to the panel by mail.
    UserInvited = "invited the user";
}
