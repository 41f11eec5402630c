//! Categories of a refusal: the values of `bounce.category`.

use serde::Deserialize;

/// The category of a bounce or deferral. The names are a public interface: they are added, never renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// The mailbox does not exist.
    InvalidRecipient,
    /// The mailbox no longer exists, or is disabled.
    InactiveMailbox,
    /// The mailbox is over its quota.
    MailboxFull,
    /// The recipient's domain does not exist or is misconfigured.
    BadDomain,
    /// The domain accepts no mail (null MX).
    NoMailHost,
    /// The domain could not be looked up.
    DnsFailure,
    /// The connection failed or was lost.
    ConnectionFailed,
    /// The connection could not be secured.
    TlsFailure,
    /// The server defers unknown senders for some time.
    Greylisted,
    /// Too many messages or connections at once.
    RateLimited,
    /// The sending address or domain has a bad reputation.
    ReputationBlock,
    /// The content looks like spam.
    SpamContent,
    /// A rule of the receiver.
    Policy,
    /// SPF, DKIM, DMARC or reverse DNS failed.
    Authentication,
    /// The server does not serve this recipient's domain.
    RelayDenied,
    /// The message is larger than the receiver accepts.
    MessageTooLarge,
    /// The content looks like malware, or has a forbidden attachment.
    Virus,
    /// The server violated SMTP, or lacks a required extension.
    ProtocolError,
    /// The message is in a routing loop.
    RoutingLoop,
    /// The message's lifetime ended before it was delivered.
    Expired,
    /// An error in the receiver's system.
    SystemError,
    /// The network guard refuses all of the destination's addresses.
    BlockedDestination,
    /// This service could not read the message's content from its disk.
    ContentUnreadable,
    /// No other category applies.
    Other,
}

impl Category {
    /// Returns the name used in every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRecipient => "invalid_recipient",
            Self::InactiveMailbox => "inactive_mailbox",
            Self::MailboxFull => "mailbox_full",
            Self::BadDomain => "bad_domain",
            Self::NoMailHost => "no_mail_host",
            Self::DnsFailure => "dns_failure",
            Self::ConnectionFailed => "connection_failed",
            Self::TlsFailure => "tls_failure",
            Self::Greylisted => "greylisted",
            Self::RateLimited => "rate_limited",
            Self::ReputationBlock => "reputation_block",
            Self::SpamContent => "spam_content",
            Self::Policy => "policy",
            Self::Authentication => "authentication",
            Self::RelayDenied => "relay_denied",
            Self::MessageTooLarge => "message_too_large",
            Self::Virus => "virus",
            Self::ProtocolError => "protocol_error",
            Self::RoutingLoop => "routing_loop",
            Self::Expired => "expired",
            Self::SystemError => "system_error",
            Self::BlockedDestination => "blocked_destination",
            Self::ContentUnreadable => "content_unreadable",
            Self::Other => "other",
        }
    }

    /// Returns whether the category concerns the recipient's address itself: only then may a rule suppress it (contract
    /// 6).
    pub const fn is_of_the_address(self) -> bool {
        matches!(self, Self::InvalidRecipient | Self::InactiveMailbox | Self::BadDomain)
    }
}
