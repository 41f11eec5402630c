//! TLS requirements for one mail server, and their possible failures: RFC 7672 (DANE), RFC 8461 (MTA-STS), RFC 7435.
//!
//! The engine decides the requirement for each server and domain; the code that opens the session enforces it. An unmet
//! requirement ends the attempt before the message is mentioned. It is never a reason for clear text.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::tlsa::Association;
use crate::domain::event::{Authenticated, TlsFacts, TlsPolicy};

/// Required security of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TlsRequirement {
    /// No requirement: STARTTLS if it is offered, with any certificate, and clear text if it fails.
    #[default]
    Opportunistic,
    /// A certificate that verifies for the server's name (RFC 8461 4.2).
    Pkix,
    /// A certificate that matches the server's TLSA records.
    Dane(Arc<DaneTerms>),
}

/// DNSSEC-protected requirements for one server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaneTerms {
    /// The usable records. If there are none, any certificate is accepted, but TLS is required (RFC 7672 2.2).
    pub associations: Vec<Association>,
    /// Names for DANE-TA: the certificate must have one of them (RFC 7672 3.2.2).
    pub names: Vec<String>,
}

impl TlsRequirement {
    /// Returns the policy of the requirement, as shown in the timeline.
    pub const fn policy(&self) -> TlsPolicy {
        match self {
            Self::Opportunistic => TlsPolicy::Opportunistic,
            Self::Pkix => TlsPolicy::MtaSts,
            Self::Dane(_) => TlsPolicy::Dane,
        }
    }

    /// Returns whether a session opened under `opened` and secured by `tls` meets this requirement.
    pub fn is_met_by(&self, opened: &Self, tls: Option<&TlsFacts>) -> bool {
        match self {
            Self::Opportunistic => true,
            Self::Pkix => tls.is_some_and(|tls| tls.authenticated == Authenticated::Pkix),
            Self::Dane(_) => self == opened,
        }
    }
}

/// Failure of a session against its policy, or of fetching the policy: the result types of RFC 8460 4.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TlsFault {
    /// The server does not offer STARTTLS.
    StartTlsNotSupported,
    /// The certificate is for other names.
    CertificateHostMismatch,
    /// The certificate has expired.
    CertificateExpired,
    /// The certificate's issuer is not trusted.
    CertificateNotTrusted,
    /// Any other failure, such as a TLSA record that does not match.
    ValidationFailure,
    /// There are TLSA records, but none is usable.
    TlsaInvalid,
    /// The TLSA records fail DNSSEC validation, or could not be looked up.
    DnssecInvalid,
    /// The MTA-STS policy could not be fetched.
    StsPolicyFetchError,
    /// The fetched document is not an MTA-STS policy, or the policy does not include this server.
    StsPolicyInvalid,
    /// The policy host's certificate does not verify.
    StsWebPkiInvalid,
}

impl TlsFault {
    /// Returns the name used in a report.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StartTlsNotSupported => "starttls-not-supported",
            Self::CertificateHostMismatch => "certificate-host-mismatch",
            Self::CertificateExpired => "certificate-expired",
            Self::CertificateNotTrusted => "certificate-not-trusted",
            Self::ValidationFailure => "validation-failure",
            Self::TlsaInvalid => "tlsa-invalid",
            Self::DnssecInvalid => "dnssec-invalid",
            Self::StsPolicyFetchError => "sts-policy-fetch-error",
            Self::StsPolicyInvalid => "sts-policy-invalid",
            Self::StsWebPkiInvalid => "sts-webpki-invalid",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secured(authenticated: Authenticated) -> TlsFacts {
        let (version, cipher) = ("TLSv1.3".to_owned(), "TLS_AES_128_GCM_SHA256".to_owned());
        TlsFacts { version, cipher, authenticated, policy: TlsPolicy::Opportunistic }
    }

    fn dane(names: &[&str]) -> TlsRequirement {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        TlsRequirement::Dane(Arc::new(DaneTerms { associations: Vec::new(), names }))
    }

    #[test]
    fn a_session_meets_a_stricter_policy_only_if_it_was_enforced() {
        let (any, pkix) = (TlsRequirement::Opportunistic, TlsRequirement::Pkix);
        let (proven, unproven) = (secured(Authenticated::Pkix), secured(Authenticated::None));
        assert!(any.is_met_by(&any, None) && any.is_met_by(&pkix, Some(&proven)));
        assert!(pkix.is_met_by(&any, Some(&proven)), "a verified certificate meets every requirement");
        assert!(!pkix.is_met_by(&any, Some(&unproven)) && !pkix.is_met_by(&any, None));
        assert!(dane(&["a"]).is_met_by(&dane(&["a"]), Some(&unproven)));
        assert!(!dane(&["a"]).is_met_by(&dane(&["b"]), Some(&proven)) && !dane(&["a"]).is_met_by(&any, Some(&proven)));
        assert!(!pkix.is_met_by(&dane(&["a"]), Some(&secured(Authenticated::Dane))));
    }

    #[test]
    fn each_requirement_is_shown_as_its_policy() {
        assert_eq!(TlsRequirement::default().policy(), TlsPolicy::Opportunistic);
        assert_eq!(TlsRequirement::Pkix.policy(), TlsPolicy::MtaSts);
        assert_eq!(dane(&[]).policy(), TlsPolicy::Dane);
    }
}
