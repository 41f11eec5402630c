//! What DNSSEC validation starts from: the operator's DNSKEY and DS records (contract 8, `dns.trust_anchor`).
//!
//! A DS record names its key by digest only; [`Anchors::trusted`] picks the key out of whatever the zone publishes. A
//! name under no anchor is not validated at all: nobody can say whether its zone ought to be signed.

use hickory_resolver::proto::dnssec::TrustAnchors;
use hickory_resolver::proto::dnssec::rdata::{DNSKEY, DNSSECRData, DS};
use hickory_resolver::proto::rr::{LowerName, Name, RData};
use hickory_resolver::proto::serialize::txt::Parser;

/// The file is no trust anchor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}; give DNSKEY or DS records in zone-file form, such as `. DS 20326 8 2 E06D...`")]
pub struct InvalidAnchor {
    why: String,
}

/// The anchors.
#[derive(Debug, Clone)]
pub struct Anchors {
    keys: Vec<(Name, DNSKEY)>,
    digests: Vec<(Name, DS)>,
}

impl Anchors {
    /// Reads the records of `text`. A TTL may stand in them and means nothing.
    ///
    /// # Errors
    /// Where it is no zone file, holds another record, or none.
    pub fn read(text: &str) -> Result<Self, InvalidAnchor> {
        let invalid = |why: &dyn std::fmt::Display| InvalidAnchor { why: why.to_string() };
        // The parser insists on a TTL and an origin.
        let zone = Parser::new(format!("$TTL 1\n{text}\n"), None, Some(Name::root()));
        let (_, sets) = zone.parse().map_err(|why| invalid(&why))?;
        let mut anchors = Self { keys: Vec::new(), digests: Vec::new() };
        for record in sets.values().flat_map(|set| set.records_without_rrsigs()) {
            match &record.data {
                RData::DNSSEC(DNSSECRData::DNSKEY(key)) => anchors.keys.push((record.name.clone(), key.clone())),
                RData::DNSSEC(DNSSECRData::DS(digest)) => anchors.digests.push((record.name.clone(), digest.clone())),
                other => return Err(invalid(&format!("it holds a record of type {}", other.record_type()))),
            }
        }
        if anchors.keys.is_empty() && anchors.digests.is_empty() {
            return Err(invalid(&"it holds no record"));
        }
        Ok(anchors)
    }

    /// Whether `name` is at or under an anchor.
    pub(super) fn covers(&self, name: &Name) -> bool {
        let zones = self.keys.iter().map(|(zone, _)| zone).chain(self.digests.iter().map(|(zone, _)| zone));
        zones.into_iter().any(|zone| zone.zone_of(name))
    }

    /// The zones whose keys are named by digest, and must be asked for.
    pub(super) fn digested_zones(&self) -> Vec<Name> {
        let mut zones: Vec<_> = self.digests.iter().map(|(zone, _)| zone.clone()).collect();
        zones.sort();
        zones.dedup();
        zones
    }

    /// The keys to start from: those given, and those of `found` that a DS record names. Whoever gave them, the digest
    /// vouches for them. None where there is no key at all.
    pub(super) fn trusted(&self, found: &[(Name, DNSKEY)]) -> Option<TrustAnchors> {
        let named = found.iter().filter(|(zone, key)| {
            self.digests.iter().any(|(anchor, digest)| anchor == zone && digest.covers(zone, key).unwrap_or(false))
        });
        let mut trusted = None;
        for (zone, key) in self.keys.iter().chain(named) {
            let trusted = trusted.get_or_insert_with(TrustAnchors::empty);
            trusted.insert_with_name(key.public_key(), LowerName::new(zone));
        }
        trusted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT_KEY: &str = ". 172800 IN DNSKEY 257 3 8 ( AwEAAaz/tAm8yTn4Mfeh5eyI96WSVexTBAvkMgJzkKTOiW1vkIbzxeF3\n\
        +/4RgWOq7HrxRixHlFlExOLAJr5emLvN7SWXgnLh4+B5xQlNVz8Og8kvArMtNROxVQuCaSnIDdD5LKyWbRd2n9WGe2R8PzgCmr3EgVLr\n\
        jyBxWezF0jLHwVN8efS3rCj/EWgvIWgb9tarpVUDK/b58Da+sqqls3eNbuv7pr+eoZG+SrDK6nWeL3c6H5Apxz7LjVc1uTIdsIXxuOLY\n\
        A4/ilBmSVIzuDWfdRUfhHdY6+cn8HFRm+2hM8AnXGXws9555KrUB5qihylGa8subX2Nn6UwNR1AkUTV74bU= ) ; KSK 20326\n";
    const ROOT_DIGEST: &str = ". IN DS 20326 8 2 E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D\n";

    #[test]
    fn keys_and_digests_are_read_in_zone_file_form() {
        let keys = Anchors::read(&format!("; the root's\n\n{ROOT_KEY}")).unwrap();
        assert_eq!((keys.keys.len(), keys.digests.len(), keys.digested_zones().len()), (1, 0, 0));
        let both = Anchors::read(&format!("{ROOT_DIGEST}example. 3600 DS 1 8 2 ({})\n", "00".repeat(32))).unwrap();
        assert_eq!((both.keys.len(), both.digested_zones().len()), (0, 2));
    }

    #[test]
    fn a_digest_stands_for_the_key_that_it_names_and_for_no_other() {
        let keys = Anchors::read(ROOT_KEY).unwrap();
        let digests = Anchors::read(ROOT_DIGEST).unwrap();
        assert_eq!(digests.trusted(&keys.keys).unwrap().len(), 1);
        let mut other = keys.keys.clone();
        other[0].0 = Name::from_ascii("example.").unwrap();
        assert!(digests.trusted(&other).is_none() && digests.trusted(&[]).is_none());
        assert_eq!(keys.trusted(&[]).unwrap().len(), 1);
    }

    #[test]
    fn an_anchor_speaks_for_what_is_under_it() {
        let anchors = Anchors::read(&format!("example. DS 1 8 2 {}", "00".repeat(32))).unwrap();
        for (name, covered) in [("example.", true), ("mx.Example.", true), ("test.", false), ("notexample.", false)] {
            assert_eq!(anchors.covers(&Name::from_ascii(name).unwrap()), covered, "{name}");
        }
        assert!(Anchors::read(ROOT_DIGEST).unwrap().covers(&Name::from_ascii("any.example.").unwrap()));
    }

    #[test]
    fn what_is_no_anchor_is_told_why() {
        for (text, why) in [
            ("", "it holds no record"),
            ("; nothing\n", "it holds no record"),
            (". A 127.0.0.1\n", "it holds a record of type A"),
            (". DS 1 8\n", "digest type not present"),
        ] {
            let fault = Anchors::read(text).unwrap_err().to_string();
            assert!(fault.contains(why) && fault.contains("zone-file form"), "{fault}");
        }
    }
}
