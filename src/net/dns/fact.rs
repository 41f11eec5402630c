//! One DNS record, reduced to the data that we use.

use std::net::IpAddr;

use hickory_resolver::proto::rr::RData;
use hickory_resolver::proto::rr::rdata::TLSA;

use super::query::normal;
use crate::smtp::tlsa::TlsaRecord;

/// One record. Names are in normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RecordData {
    /// An A or AAAA record.
    Address(IpAddr),
    /// An MX record.
    Exchange {
        /// Lower is better.
        preference: u16,
        /// The server's name; empty for the root.
        name: String,
    },
    /// A TXT record, its strings joined (RFC 6376 3.6.2.2), invalid UTF-8 replaced.
    Text(String),
    /// A CNAME record's target. Beside addresses, the name that holds them, if it differs from the requested one.
    Alias(String),
    /// A TLSA record.
    Tlsa(TlsaRecord),
}

impl RecordData {
    /// Reads a record; `None` for a type that is never requested.
    pub(super) fn read(data: &RData) -> Option<Self> {
        Some(match data {
            RData::A(a) => Self::Address(IpAddr::V4(a.0)),
            RData::AAAA(aaaa) => Self::Address(IpAddr::V6(aaaa.0)),
            RData::MX(mx) => Self::Exchange { preference: mx.preference, name: normal(&mx.exchange.to_ascii()) },
            RData::TXT(txt) => Self::Text(String::from_utf8_lossy(&txt.txt_data.concat()).into_owned()),
            RData::CNAME(target) => Self::Alias(normal(&target.0.to_ascii())),
            RData::TLSA(tlsa) => Self::Tlsa(tlsa_record(tlsa)),
            _ => return None,
        })
    }

    /// Returns the memory use in bytes.
    pub(super) fn bytes(&self) -> usize {
        let text = match self {
            Self::Address(_) => 0,
            Self::Exchange { name, .. } => name.len(),
            Self::Text(text) | Self::Alias(text) => text.len(),
            Self::Tlsa(record) => record.data.len(),
        };
        size_of::<Self>() + text
    }

    /// Returns the address of an address record.
    pub(super) const fn address(&self) -> Option<IpAddr> {
        if let Self::Address(address) = self { Some(*address) } else { None }
    }

    /// Returns the data of a TLSA record.
    pub(super) const fn tlsa(&self) -> Option<&TlsaRecord> {
        if let Self::Tlsa(record) = self { Some(record) } else { None }
    }

    /// Returns the text of a TXT record.
    pub(super) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the target of a CNAME record.
    pub(super) fn alias(&self) -> Option<&str> {
        if let Self::Alias(target) = self { Some(target) } else { None }
    }

    /// Returns the server name of an MX record.
    pub(super) fn exchange(&self) -> Option<&str> {
        if let Self::Exchange { name, .. } = self { Some(name) } else { None }
    }
}

fn tlsa_record(tlsa: &TLSA) -> TlsaRecord {
    TlsaRecord {
        usage: tlsa.cert_usage.into(),
        selector: tlsa.selector.into(),
        matching: tlsa.matching.into(),
        data: tlsa.cert_data.clone(),
    }
}
