//! Categories of a refusal: the values of `bounce.category`.

use serde::Deserialize;

/// The category of a bounce or deferral. Names are public behaviour: only added, never renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// No such mailbox.
    InvalidRecipient,
    /// The mailbox exists no more, or is disabled.
    InactiveMailbox,
    /// The mailbox is over its quota.
    MailboxFull,
    /// The recipient's domain does not exist or is misconfigured.
    BadDomain,
    /// The domain accepts no mail (null MX).
    NoMailHost,
    /// The domain could not be looked up.
    DnsFailure,
    /// No connection, or it was lost.
    ConnectionFailed,
    /// No secured connection.
    TlsFailure,
    /// Turned away because it is new.
    Greylisted,
    /// Too much at once.
    RateLimited,
    /// The sending address or domain has a bad name.
    ReputationBlock,
    /// The content looks like spam.
    SpamContent,
    /// A rule of the receiver's.
    Policy,
    /// SPF, DKIM, DMARC or reverse DNS.
    Authentication,
    /// The server does not serve this recipient's domain.
    RelayDenied,
    /// Larger than the receiver takes.
    MessageTooLarge,
    /// The content looks like malware, or has a forbidden attachment.
    Virus,
    /// The server did not speak SMTP as it should, or lacks an extension.
    ProtocolError,
    /// The message goes in circles.
    RoutingLoop,
    /// Given up after its lifetime.
    Expired,
    /// A fault of the receiver's system.
    SystemError,
    /// All of the destination's addresses are of networks that must not be reached.
    BlockedDestination,
    /// This service could not read the message's content from its disk.
    ContentUnreadable,
    /// None of the others.
    Other,
}

impl Category {
    /// The name on every interface.
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

    /// Whether it is about the recipient's address itself: only then may a rule suppress it (contract 6).
    pub const fn is_of_the_address(self) -> bool {
        matches!(self, Self::InvalidRecipient | Self::InactiveMailbox | Self::BadDomain)
    }
}
