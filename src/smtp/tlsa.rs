//! TLSA records (RFC 6698) as used by SMTP (RFC 7672 3.1): the usable ones, and their meaning.
//!
//! `net` checks whether a certificate matches them.

/// A record as published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsaRecord {
    /// Certificate usage.
    pub usage: u8,
    /// Selector.
    pub selector: u8,
    /// Matching type.
    pub matching: u8,
    /// Certificate association data.
    pub data: Vec<u8>,
}

/// A usable record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Association {
    /// Certificate constrained by the record.
    pub usage: Usage,
    /// Part of the certificate.
    pub selector: Selector,
    /// Form in which the part is given.
    pub matching: Matching,
    /// The certificate or key, or its digest.
    pub data: Vec<u8>,
}

/// Certificate constrained by a record. Usages 0 and 1 have no meaning for SMTP (RFC 7672 3.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// A certificate authority (DANE-TA, 2).
    Authority,
    /// The server itself (DANE-EE, 3).
    Server,
}

/// Part of a certificate described by a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selector {
    /// The whole certificate (0).
    Certificate,
    /// Public key (1).
    PublicKey,
}

/// Form in which a record gives the certificate or key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// The full certificate or key (0).
    Exact,
    /// The SHA-256 hash (1).
    Sha256,
    /// The SHA-512 hash (2).
    Sha512,
}

impl Association {
    /// Parses `record`, if it is usable.
    pub fn read(record: &TlsaRecord) -> Option<Self> {
        let usage = match record.usage {
            2 => Usage::Authority,
            3 => Usage::Server,
            _ => return None,
        };
        let selector = match record.selector {
            0 => Selector::Certificate,
            1 => Selector::PublicKey,
            _ => return None,
        };
        let (matching, is_whole) = match record.matching {
            0 => (Matching::Exact, !record.data.is_empty()),
            1 => (Matching::Sha256, record.data.len() == 32),
            2 => (Matching::Sha512, record.data.len() == 64),
            _ => return None,
        };
        is_whole.then(|| Self { usage, selector, matching, data: record.data.clone() })
    }

    /// Returns the usable records of `records`. Of two digests for one purpose only the stronger counts, so that a weak
    /// one can't admit a forged certificate (RFC 7671 9).
    pub fn usable(records: &[TlsaRecord]) -> Vec<Self> {
        let mut usable: Vec<Self> = records.iter().filter_map(Self::read).collect();
        let strong: Vec<_> = usable.iter().filter(|one| one.matching == Matching::Sha512).map(Self::purpose).collect();
        usable.retain(|one| one.matching != Matching::Sha256 || !strong.contains(&one.purpose()));
        usable
    }

    /// Formats the record as in a zone file (RFC 6698 2.2): usage, selector, matching type and data.
    pub fn to_text(&self) -> String {
        let usage = match self.usage {
            Usage::Authority => 2,
            Usage::Server => 3,
        };
        let selector = match self.selector {
            Selector::Certificate => 0,
            Selector::PublicKey => 1,
        };
        let matching = match self.matching {
            Matching::Exact => 0,
            Matching::Sha256 => 1,
            Matching::Sha512 => 2,
        };
        let data: String = self.data.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{usage} {selector} {matching} {data}")
    }

    const fn purpose(&self) -> (Usage, Selector) {
        (self.usage, self.selector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(usage: u8, selector: u8, matching: u8, bytes: usize) -> TlsaRecord {
        TlsaRecord { usage, selector, matching, data: vec![7; bytes] }
    }

    #[test]
    fn a_record_is_formatted_as_in_a_zone_file() {
        for (record, head) in
            [(record(3, 1, 1, 32), "3 1 1 "), (record(2, 0, 2, 64), "2 0 2 "), (record(3, 0, 0, 1), "3 0 0 ")]
        {
            let text = Association::read(&record).unwrap().to_text();
            assert_eq!(text, format!("{head}{}", "07".repeat(record.data.len())));
        }
    }

    #[test]
    fn only_complete_records_defined_for_smtp_are_usable() {
        let usable = [record(3, 1, 1, 32), record(2, 0, 2, 64), record(2, 0, 0, 500)];
        assert_eq!(usable.iter().filter_map(Association::read).count(), usable.len());
        for odd in [
            record(0, 1, 1, 32),
            record(1, 1, 1, 32),
            record(4, 1, 1, 32),
            record(255, 1, 1, 32),
            record(3, 2, 1, 32),
            record(3, 1, 3, 32),
            record(3, 1, 1, 31),
            record(3, 1, 2, 32),
            record(3, 0, 0, 0),
        ] {
            assert_eq!(Association::read(&odd), None, "{odd:?}");
        }
    }

    #[test]
    fn the_stronger_of_two_digests_counts() {
        let usable = Association::usable(&[record(3, 1, 1, 32), record(3, 1, 2, 64), record(3, 0, 1, 32)]);
        let left: Vec<_> = usable.iter().map(|one| (one.selector, one.matching)).collect();
        assert_eq!(left, [(Selector::PublicKey, Matching::Sha512), (Selector::Certificate, Matching::Sha256)]);
    }
}
