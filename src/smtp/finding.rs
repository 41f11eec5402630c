//! Failures found without a server's answer: from DNS, from a server's capabilities, or from the connection. They never
//! suppress an address (contract 6).

use super::category::Category;
use crate::domain::event::{Bounce, BounceKind, BounceSource};

/// Returns the failure for NXDOMAIN.
pub fn no_such_domain() -> Bounce {
    let advice = "Correct the address: its domain does not exist.";
    found(BounceKind::Hard, Category::BadDomain, "5.1.2", BounceSource::Dns, "dns-no-such-domain", advice)
}

/// Returns the failure for a null MX (RFC 7505).
pub fn null_mx() -> Bounce {
    let advice = "Correct the address: its domain accepts no mail.";
    found(BounceKind::Hard, Category::NoMailHost, "5.1.10", BounceSource::Dns, "dns-null-mx", advice)
}

/// Returns the failure for a domain whose mail servers have no address.
pub fn no_host() -> Bounce {
    let advice = "Correct the address, or contact the domain's owner: none of its mail servers has an address.";
    found(BounceKind::Hard, Category::DnsFailure, "5.4.4", BounceSource::Dns, "dns-no-host", advice)
}

/// Returns the failure for a destination whose addresses are all refused by the network guard.
pub fn blocked_destination() -> Bounce {
    let advice = "If the destination is yours, list its network in [network] allow: it is not a public address.";
    let category = Category::BlockedDestination;
    found(BounceKind::Undetermined, category, "5.4.4", BounceSource::Dns, "dns-blocked-destination", advice)
}

/// Returns the failure for a temporary error of the DNS lookup.
pub fn lookup_failed() -> Bounce {
    let advice = "The lookup of the domain failed. Nothing to do: Postrider retries the message.";
    found(BounceKind::Soft, Category::DnsFailure, "4.4.3", BounceSource::Dns, "dns-temporary", advice)
}

/// Returns the failure for mail that would come back to this service.
pub fn loops_back() -> Bounce {
    let advice = "Check the domain's records in DNS: its mail would come back to this server.";
    found(BounceKind::Undetermined, Category::RoutingLoop, "5.4.6", BounceSource::Local, "local-loop", advice)
}

/// Returns the failure for a message larger than the server's SIZE.
pub fn too_large(limit: u64) -> Bounce {
    let advice = format!("Send a smaller message: the receiver accepts at most {limit} bytes.");
    found(BounceKind::Soft, Category::MessageTooLarge, "5.3.4", BounceSource::Local, "local-size", advice)
}

/// Returns the failure for a server without SMTPUTF8.
pub fn needs_smtputf8() -> Bounce {
    let advice = "Use an ASCII address: the receiver's server does not accept international ones.";
    found(BounceKind::Undetermined, Category::ProtocolError, "5.6.7", BounceSource::Local, "local-smtputf8", advice)
}

/// Returns the failure for an expired message: its queue lifetime, its `expires_at`, or the retention of its content.
pub fn expired() -> Bounce {
    let advice = "Send it again if it still matters: it expired before the receiver accepted it.";
    found(BounceKind::Soft, Category::Expired, "4.4.7", BounceSource::Local, "local-expired", advice)
}

/// Returns the failure for content that can't be read from our own disk at the moment.
pub fn content_unreadable() -> Bounce {
    let advice = "The message's content could not be read from this service's disk. Nothing to do: Postrider \
                  retries for an hour.";
    soft(Category::ContentUnreadable, "4.3.0", "local-content-unreadable", advice.to_owned())
}

/// Returns the failure for content that could not be read from our own disk for an hour.
pub fn content_lost() -> Bounce {
    let advice = "Send it again, and have the operator run `postrider check`: the message's content could not be read \
                  from this service's disk.";
    soft(Category::ContentUnreadable, "5.3.0", "local-content-lost", advice.to_owned())
}

/// Returns the failure for a connection that ended or timed out after the final dot: the server may have accepted the
/// message or not.
pub fn outcome_unknown() -> Bounce {
    let advice = "The receiver did not confirm the message. Nothing to do: it is retried and may arrive twice.";
    soft(Category::ConnectionFailed, "4.4.2", "local-outcome-unknown", advice.to_owned())
}

/// Returns the failure for a connection that was not established.
pub fn unreachable(why: &str) -> Bounce {
    soft(Category::ConnectionFailed, "4.4.1", "local-unreachable", tried_again("No connection to the server", why))
}

/// Returns the failure for a missing answer within a phase's deadline.
pub fn timed_out() -> Bounce {
    soft(Category::ConnectionFailed, "4.4.1", "local-timed-out", tried_again("The server did not answer in time", ""))
}

/// Returns the failure for a lost connection.
pub fn closed(why: &str) -> Bounce {
    soft(Category::ConnectionFailed, "4.4.2", "local-closed", tried_again("The connection was lost", why))
}

/// Returns the failure for bytes that are not SMTP.
pub fn unreadable(why: &str) -> Bounce {
    soft(Category::ProtocolError, "4.5.0", "local-unreadable", tried_again("The server's answer can't be read", why))
}

/// Returns the failure for TLS that could not be set up.
pub fn tls_failed(why: &str) -> Bounce {
    soft(Category::TlsFailure, "4.7.5", "local-tls-failed", tried_again("No secured connection to the server", why))
}

/// Returns the failure for a server that does not meet the receiver's policy.
pub fn policy_failed(why: &str) -> Bounce {
    let what = "The receiver's policy requires a secured connection, which its server did not provide";
    soft(Category::TlsFailure, "4.7.5", "local-tls-policy", tried_again(what, why))
}

fn soft(category: Category, status: &str, rule: &str, advice: String) -> Bounce {
    found(BounceKind::Soft, category, status, BounceSource::Local, rule, advice)
}

fn tried_again(what: &str, why: &str) -> String {
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    format!("{what}{why}. Nothing to do: Postrider retries the message.")
}

fn found(
    kind: BounceKind,
    category: Category,
    status: &str,
    source: BounceSource,
    rule: &str,
    advice: impl Into<String>,
) -> Bounce {
    Bounce {
        kind,
        category: category.as_str().to_owned(),
        status: Some(status.to_owned()),
        source,
        rule: rule.to_owned(),
        advice: advice.into(),
        suppressed: false,
    }
}
