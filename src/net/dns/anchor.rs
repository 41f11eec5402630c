//! Trust anchors of DNSSEC validation: the operator's DNSKEY and DS records (contract 8, `dns.trust_anchor`).
//!
//! A DS record names its key by digest only; [`Anchors::trusted`] selects that key from the keys that the zone
//! publishes. A name under no anchor is not validated: it is unknown whether its zone should be signed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hickory_resolver::proto::dnssec::rdata::{DNSKEY, DS};
use hickory_resolver::proto::dnssec::{Algorithm, DigestType, PublicKeyBuf, TrustAnchors};
use hickory_resolver::proto::rr::{LowerName, Name};

/// The error of an invalid trust anchor file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}; use DNSKEY or DS records in zone-file form, such as `. DS 20326 8 2 E06D...`")]
pub struct InvalidAnchor {
    why: String,
}

/// A set of trust anchors.
#[derive(Debug, Clone)]
pub struct Anchors {
    keys: Vec<(Name, DNSKEY)>,
    digests: Vec<(Name, DS)>,
}

impl Anchors {
    /// Parses the records of `text` (RFC 1035 5, RFC 4034 2.2 and 5.3). TTL and class are allowed and ignored.
    ///
    /// # Errors
    /// The text is not a zone file, contains another record type, or contains no record.
    pub fn read(text: &str) -> Result<Self, InvalidAnchor> {
        let mut anchors = Self { keys: Vec::new(), digests: Vec::new() };
        for entry in entries(text) {
            anchors.add(&entry).map_err(|why| InvalidAnchor { why: format!("{why} in \"{}\"", entry.join(" ")) })?;
        }
        if anchors.keys.is_empty() && anchors.digests.is_empty() {
            return Err(InvalidAnchor { why: "it contains no record".to_owned() });
        }
        Ok(anchors)
    }

    /// Adds the record of one entry: owner, optional TTL and class, type, and data.
    fn add(&mut self, entry: &[&str]) -> Result<(), &'static str> {
        let (owner, rest) = entry.split_first().ok_or("the entry is empty")?;
        // The only allowed directive; it has no effect.
        if owner.eq_ignore_ascii_case("$TTL") {
            return Ok(());
        }
        let mut owner = Name::from_ascii(owner).map_err(|_| "the domain name is missing")?;
        owner.set_fqdn(true);
        let is_beside =
            |word: &&&str| word.eq_ignore_ascii_case("IN") || word.bytes().all(|byte| byte.is_ascii_digit());
        let mut words = rest.iter().skip_while(is_beside).copied();
        match words.next() {
            Some(kind) if kind.eq_ignore_ascii_case("DNSKEY") => self.keys.push((owner, key(words)?)),
            Some(kind) if kind.eq_ignore_ascii_case("DS") => self.digests.push((owner, digest(words)?)),
            Some(_) | None => return Err("DNSKEY or DS is missing"),
        }
        Ok(())
    }

    /// Returns whether `name` is at or under an anchor.
    pub(super) fn covers(&self, name: &Name) -> bool {
        let zones = self.keys.iter().map(|(zone, _)| zone).chain(self.digests.iter().map(|(zone, _)| zone));
        zones.into_iter().any(|zone| zone.zone_of(name))
    }

    /// Returns the zones whose keys are named by digest. Their keys must be looked up.
    pub(super) fn digested_zones(&self) -> Vec<Name> {
        let mut zones: Vec<_> = self.digests.iter().map(|(zone, _)| zone.clone()).collect();
        zones.sort();
        zones.dedup();
        zones
    }

    /// Returns the keys to start from: the configured ones, and those of `found` that match a DS record. `found` needs
    /// no other proof than the digest. `None` if there is no key.
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

/// Splits a zone file into entries of words, without comments. Parentheses join lines.
fn entries(text: &str) -> Vec<Vec<&str>> {
    let (mut entries, mut entry, mut depth) = (Vec::new(), Vec::new(), 0_u32);
    for line in text.lines() {
        let line = line.split(';').next().unwrap_or_default();
        for part in line.split_inclusive(['(', ')']) {
            let words = part.trim_end_matches(['(', ')']);
            entry.extend(words.split_ascii_whitespace());
            match part.as_bytes().last() {
                Some(b'(') => depth += 1,
                Some(b')') => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if depth == 0 && !entry.is_empty() {
            entries.push(std::mem::take(&mut entry));
        }
    }
    entries.extend((!entry.is_empty()).then_some(entry));
    entries
}

fn key<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<DNSKEY, &'static str> {
    let flags: u16 = number(words.next()).ok_or("the flags are missing")?;
    let protocol: u8 = number(words.next()).ok_or("the protocol is missing")?;
    let algorithm = words.next().and_then(algorithm).ok_or("the algorithm is missing or unknown")?;
    let key = STANDARD.decode(words.collect::<String>()).map_err(|_| "the key is not base64")?;
    if protocol != 3 || key.is_empty() {
        return Err("the key is missing or not for DNSSEC");
    }
    Ok(DNSKEY::with_flags(flags, PublicKeyBuf::new(key, algorithm)))
}

fn digest<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<DS, &'static str> {
    let tag = number(words.next()).ok_or("the key tag is missing")?;
    let algorithm = words.next().and_then(algorithm).ok_or("the algorithm is missing or unknown")?;
    let kind: u8 = number(words.next()).ok_or("the digest type is missing")?;
    let digest = hex::decode(words.collect::<String>()).map_err(|_| "the digest is not hexadecimal")?;
    if digest.is_empty() {
        return Err("the digest is missing");
    }
    Ok(DS::new(tag, algorithm, DigestType::from(kind), digest))
}

fn number<T: std::str::FromStr>(word: Option<&str>) -> Option<T> {
    word.and_then(|word| word.parse().ok())
}

/// Parses an algorithm by number or mnemonic (RFC 8624 3.1). Algorithms that can't be validated are refused.
fn algorithm(word: &str) -> Option<Algorithm> {
    let named = match word.to_ascii_uppercase().as_str() {
        "RSASHA1" => 5,
        "RSASHA1-NSEC3-SHA1" => 7,
        "RSASHA256" => 8,
        "RSASHA512" => 10,
        "ECDSAP256SHA256" => 13,
        "ECDSAP384SHA384" => 14,
        "ED25519" => 15,
        number => number.parse().ok()?,
    };
    Some(Algorithm::from_u8(named)).filter(|algorithm| algorithm.is_supported())
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
    fn dnskey_and_ds_records_are_read_in_zone_file_form() {
        let keys = Anchors::read(&format!("; the root's\n\n{ROOT_KEY}")).unwrap();
        assert_eq!((keys.keys.len(), keys.digests.len(), keys.digested_zones().len()), (1, 0, 0));
        let both = Anchors::read(&format!("{ROOT_DIGEST}example. 3600 DS 1 8 2 ({})\n", "00".repeat(32))).unwrap();
        assert_eq!((both.keys.len(), both.digested_zones().len()), (0, 2));
    }

    #[test]
    fn a_ds_record_trusts_only_the_key_with_its_digest() {
        let keys = Anchors::read(ROOT_KEY).unwrap();
        let digests = Anchors::read(ROOT_DIGEST).unwrap();
        assert_eq!(digests.trusted(&keys.keys).unwrap().len(), 1);
        let mut other = keys.keys.clone();
        other[0].0 = Name::from_ascii("example.").unwrap();
        assert!(digests.trusted(&other).is_none() && digests.trusted(&[]).is_none());
        assert_eq!(keys.trusted(&[]).unwrap().len(), 1);
    }

    #[test]
    fn an_anchor_covers_the_names_below_it() {
        let anchors = Anchors::read(&format!("example. DS 1 8 2 {}", "00".repeat(32))).unwrap();
        for (name, covered) in [("example.", true), ("mx.Example.", true), ("test.", false), ("notexample.", false)] {
            assert_eq!(anchors.covers(&Name::from_ascii(name).unwrap()), covered, "{name}");
        }
        assert!(Anchors::read(ROOT_DIGEST).unwrap().covers(&Name::from_ascii("any.example.").unwrap()));
    }

    #[test]
    fn an_invalid_anchor_file_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "it contains no record"),
            ("; nothing\n$TTL 60\n", "it contains no record"),
            (". A 127.0.0.1\n", "DNSKEY or DS is missing in \". A 127.0.0.1\""),
            (". DS 1 8\n", "the digest type is missing"),
            (". DS 1 8 2\n", "the digest is missing"),
            (". DS 1 8 2 xy\n", "the digest is not hexadecimal"),
            (". DS 1 200 2 00\n", "the algorithm is missing or unknown"),
            (". DNSKEY 257 3 8 (\n=)\n", "the key is not base64"),
            (". DNSKEY 257 4 8 AAAA\n", "the key is missing or not for DNSSEC"),
            ("a..b DS 1 8 2 00\n", "the domain name is missing"),
        ] {
            let fault = Anchors::read(text).unwrap_err().to_string();
            assert!(fault.contains(why) && fault.contains("zone-file form"), "{fault}");
        }
    }
}
