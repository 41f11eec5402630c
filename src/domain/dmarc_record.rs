//! A DMARC policy record (RFC 9989 4.7): parses its tags, and changes some of them without touching the others.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::address::Address;

/// Value of the version tag at the start of every record.
const VERSION: &str = "DMARC1";

/// The policy that receivers should apply to mail that fails (RFC 9989 4.7, `p`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DmarcPolicy {
    /// No action: receivers only report.
    None,
    /// Treat the message as suspicious, for example deliver it to the spam folder.
    Quarantine,
    /// Refuse the message.
    Reject,
}

impl DmarcPolicy {
    /// All policies, the mildest first.
    pub const ALL: [Self; 3] = [Self::None, Self::Quarantine, Self::Reject];

    /// Returns the value in a record.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Quarantine => "quarantine",
            Self::Reject => "reject",
        }
    }

    /// Parses the name of a policy in any case.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| text.trim().eq_ignore_ascii_case(policy.as_str()))
    }
}

impl fmt::Display for DmarcPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Value of the tag `psd`: whether the name is a public suffix (RFC 9989 4.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublicSuffix {
    /// The name is a public suffix: other organisations register domains below it.
    Yes,
    /// The name belongs to one organisation.
    No,
    /// The record does not say.
    Undeclared,
}

/// A record that receivers apply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DmarcRecord {
    /// Tags in order, with their names as written; a tag without a value has only a name.
    tags: Vec<(String, Option<String>)>,
}

impl DmarcRecord {
    /// Returns whether `text` claims to be a DMARC record, valid or not. There may be other TXT records beside it.
    /// Receivers compare the version exactly, and ignore a record with another one.
    pub fn is_claimed_by(text: &str) -> bool {
        let Some((name, rest)) = text.split_once('=') else { return false };
        let version = rest.split(';').next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case("v") && version.trim() == VERSION
    }

    /// Parses a record. Returns `None` if receivers apply no DMARC because of it: it has no valid policy and no address
    /// for reports (RFC 9989 4.10.1), or a tag twice (RFC 6376 3.2).
    pub fn parse(text: &str) -> Option<Self> {
        if !Self::is_claimed_by(text) {
            return None;
        }
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        let tags = parts
            .map(|part| match part.split_once('=') {
                Some((name, value)) => (name.trim().to_owned(), Some(value.trim().to_owned())),
                None => (part.to_owned(), None),
            })
            .collect();
        let record = Self { tags };
        if record.has_repeated_tag() {
            return None;
        }
        (record.has_valid_policy() || record.report_uris().any(|uri| uri.contains(':'))).then_some(record)
    }

    fn has_repeated_tag(&self) -> bool {
        let is_same = |one: &str, (other, _): &(String, _)| one.eq_ignore_ascii_case(other);
        self.tags.iter().enumerate().any(|(at, (name, _))| self.tags[..at].iter().any(|before| is_same(name, before)))
    }

    /// Returns the value of a tag.
    fn tag(&self, name: &str) -> Option<&str> {
        let mut tags = self.tags.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        tags.next()?.1.as_deref()
    }

    fn has_valid_policy(&self) -> bool {
        let is_absent_or_valid = |name| self.tag(name).is_none_or(|value| DmarcPolicy::parse(value).is_some());
        self.tag("p").is_some_and(|value| DmarcPolicy::parse(value).is_some())
            && is_absent_or_valid("sp")
            && is_absent_or_valid("np")
    }

    /// Returns the policy for the name itself. An invalid policy counts as `none`.
    pub fn policy(&self) -> DmarcPolicy {
        let policy = self.tag("p").filter(|_| self.has_valid_policy()).and_then(DmarcPolicy::parse);
        policy.unwrap_or(DmarcPolicy::None)
    }

    /// Returns the policy for names below the record's domain.
    pub fn subdomain_policy(&self) -> DmarcPolicy {
        let policy = self.tag("sp").filter(|_| self.has_valid_policy()).and_then(DmarcPolicy::parse);
        policy.unwrap_or_else(|| self.policy())
    }

    /// Returns whether receivers should apply only the next milder policy (`t=y`).
    pub fn is_testing(&self) -> bool {
        self.tag("t").is_some_and(|value| value.eq_ignore_ascii_case("y"))
    }

    /// Returns whether the policy applies to a share of the mail only (`pct`, RFC 7489 6.3).
    pub fn is_partial(&self) -> bool {
        self.tag("pct").and_then(|share| share.parse::<u8>().ok()).is_some_and(|share| share < 100)
    }

    /// Returns whether SPF aligns only with exactly the From domain (`aspf=s`).
    pub fn is_spf_strict(&self) -> bool {
        self.tag("aspf").is_some_and(|mode| mode.eq_ignore_ascii_case("s"))
    }

    /// Returns whether the name is a public suffix.
    pub fn public_suffix(&self) -> PublicSuffix {
        match self.tag("psd") {
            Some(value) if value.eq_ignore_ascii_case("y") => PublicSuffix::Yes,
            Some(value) if value.eq_ignore_ascii_case("n") => PublicSuffix::No,
            Some(_) | None => PublicSuffix::Undeclared,
        }
    }

    /// Returns the URIs of `rua`, without the size limits of RFC 7489, which are ignored (RFC 9989 4.7).
    fn report_uris(&self) -> impl Iterator<Item = &str> {
        let uris = self.tag("rua").unwrap_or_default().split(',').map(str::trim);
        uris.map(|uri| uri.split('!').next().unwrap_or_default()).filter(|uri| !uri.is_empty())
    }

    /// Returns the addresses for aggregate reports.
    pub fn report_addresses(&self) -> impl Iterator<Item = Address> {
        self.report_uris().filter_map(|uri| {
            let (scheme, rest) = uri.split_once(':')?;
            let address = rest.split('?').next().filter(|_| scheme.eq_ignore_ascii_case("mailto"))?;
            address.trim().parse().ok()
        })
    }

    /// Returns the record with another policy, which applies in full. `pct` and `t` are removed, because they would
    /// weaken it.
    #[must_use]
    pub fn with_policy(mut self, policy: DmarcPolicy) -> Self {
        self.remove(&["pct", "t"]);
        self.set("p", policy.as_str().to_owned());
        self
    }

    /// Returns the record with another address in `rua`.
    #[must_use]
    pub fn with_report_address(mut self, address: &str) -> Self {
        let uri = format!("mailto:{address}");
        let theirs = self.tag("rua").unwrap_or_default().split(',').map(str::trim).filter(|uri| !uri.is_empty());
        let uris: Vec<_> = theirs.chain([uri.as_str()]).collect();
        self.set("rua", uris.join(","));
        self
    }

    /// Returns the record for a name below it, so that the same policy applies there.
    #[must_use]
    pub fn for_subdomain(mut self) -> Self {
        let policy = self.subdomain_policy();
        self.remove(&["psd", "sp", "np"]);
        self.set("p", policy.as_str().to_owned());
        self
    }

    fn remove(&mut self, names: &[&str]) {
        self.tags.retain(|(known, _)| !names.iter().any(|name| known.eq_ignore_ascii_case(name)));
    }

    /// Sets the value of a tag in its place. A new `p` follows the version, where receivers of RFC 7489 expect it.
    fn set(&mut self, name: &str, value: String) {
        match self.tags.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some(tag) => tag.1 = Some(value),
            None if name == "p" => self.tags.insert(1.min(self.tags.len()), (name.to_owned(), Some(value))),
            None => self.tags.push((name.to_owned(), Some(value))),
        }
    }
}

/// Writes the text to publish.
impl fmt::Display for DmarcRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, value)) in self.tags.iter().enumerate() {
            let separator = if place == 0 { "" } else { "; " };
            match value {
                Some(value) => write!(f, "{separator}{name}={value}")?,
                None => write!(f, "{separator}{name}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str) -> DmarcRecord {
        DmarcRecord::parse(text).unwrap()
    }

    #[test]
    fn parses_tags_in_any_case_and_spacing() {
        let read = record(
            " V = DMARC1 ;P=Reject;sp = quarantine; T=y; psd=n;; junk; rua=mailto:a@x.example!10m , MAILTO:b@y.example?x",
        );
        assert_eq!((read.policy(), read.subdomain_policy()), (DmarcPolicy::Reject, DmarcPolicy::Quarantine));
        assert_eq!((read.is_testing(), read.public_suffix()), (true, PublicSuffix::No));
        let addresses: Vec<_> = read.report_addresses().map(|address| address.to_string()).collect();
        assert_eq!(addresses, ["a@x.example", "b@y.example"]);
        assert_eq!(record("v=DMARC1; p=reject").subdomain_policy(), DmarcPolicy::Reject);
    }

    #[test]
    fn a_record_counts_only_if_receivers_apply_it() {
        for text in ["", "v=spf1 -all", "v=DMARC2; p=none", "v=dmarc1; p=none", "p=none; v=DMARC1", "v=DMARC12; p=none"]
        {
            assert!(!DmarcRecord::is_claimed_by(text), "{text}");
        }
        for text in ["v=DMARC1", "v=DMARC1; p=", "v=DMARC1; p=block", "v=DMARC1; p=none; sp=x", "v=DMARC1; rua=a"] {
            assert!(DmarcRecord::is_claimed_by(text) && DmarcRecord::parse(text).is_none(), "{text}");
        }
        for twice in ["p=none; P=reject", "p=none; rua=mailto:a@x.example; rua=mailto:b@x.example", "p=none; v=DMARC1"]
        {
            assert_eq!(DmarcRecord::parse(&format!("v=DMARC1; {twice}")), None, "{twice}");
        }
        for text in ["v=DMARC1; rua=mailto:a@x.example", "v=DMARC1; p=reject; sp=x; rua=mailto:a@x.example"] {
            assert_eq!(record(text).policy(), DmarcPolicy::None, "{text}");
        }
    }

    #[test]
    fn a_change_keeps_the_order_of_all_other_tags() {
        let theirs = "v=DMARC1; p=none; x-y=z; rua=mailto:a@x.example!5m; adkim=s; pct=20; t=y";
        assert_eq!(
            record(theirs).with_policy(DmarcPolicy::Quarantine).to_string(),
            "v=DMARC1; p=quarantine; x-y=z; rua=mailto:a@x.example!5m; adkim=s"
        );
        assert_eq!(
            record(theirs).with_report_address("dmarc@rp.x.example").to_string(),
            "v=DMARC1; p=none; x-y=z; rua=mailto:a@x.example!5m,mailto:dmarc@rp.x.example; adkim=s; pct=20; t=y"
        );
        assert_eq!(
            record("v=DMARC1; p=none; rua=mailto:a@x.example!5m ,").with_report_address("d@x.example").to_string(),
            "v=DMARC1; p=none; rua=mailto:a@x.example!5m,mailto:d@x.example"
        );
        assert_eq!(
            record("v=DMARC1;p=none").with_report_address("d@x.example").to_string(),
            "v=DMARC1; p=none; rua=mailto:d@x.example"
        );
        assert_eq!(
            record("v=DMARC1; rua=mailto:a@x.example").with_policy(DmarcPolicy::Reject).to_string(),
            "v=DMARC1; p=reject; rua=mailto:a@x.example"
        );
        assert_eq!(
            record("v=DMARC1; p=reject; sp=none; np=reject; psd=n; adkim=s").for_subdomain().to_string(),
            "v=DMARC1; p=none; adkim=s"
        );
    }
}
