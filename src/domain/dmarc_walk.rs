//! The walk up the DNS tree that finds the DMARC record of a domain (RFC 9989 4.10): the names to query, and the answer
//! that applies.

use super::dmarc_record::{DmarcPolicy, DmarcRecord, PublicSuffix};
use super::hostname::DomainName;

/// Maximum number of lookups of one walk.
pub const LOOKUPS_MAX: usize = 8;

/// Returns the names to query for a domain's record, in order: its own, then those above it. A domain of eight labels
/// or more continues at the last seven.
pub fn names(domain: &DomainName) -> Vec<String> {
    let labels: Vec<_> = domain.as_str().split('.').collect();
    let above = 1.max(labels.len().saturating_sub(LOOKUPS_MAX - 1));
    let parents = (above..labels.len()).map(|first| labels[first..].join("."));
    let all = std::iter::once(domain.as_str().to_owned()).chain(parents);
    all.map(|name| format!("_dmarc.{name}")).collect()
}

/// Answer to one query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<'a> {
    /// The queried name.
    pub name: &'a str,
    /// The TXT records found; `None` if the query failed. Only those that claim to be DMARC records count.
    pub records: Option<&'a [String]>,
}

/// The record that receivers apply to a domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedRecord {
    /// Text.
    pub text: String,
    /// Tags.
    pub record: DmarcRecord,
    /// The record's policy for this domain.
    pub policy: DmarcPolicy,
    /// Name at which the record is published.
    pub at: String,
    /// Whether that name is above the domain.
    pub is_inherited: bool,
}

impl PublishedRecord {
    /// Returns the policy that receivers apply. In test mode it is the next milder one (RFC 9989 4.7, `t`).
    pub fn effective_policy(&self) -> DmarcPolicy {
        match self.policy {
            DmarcPolicy::Reject if self.record.is_testing() => DmarcPolicy::Quarantine,
            DmarcPolicy::Quarantine if self.record.is_testing() => DmarcPolicy::None,
            policy => policy,
        }
    }

    /// Returns whether receivers act on all mail that fails. Some still honour `pct` (RFC 7489 6.3), which RFC 9989
    /// removed: mail that it spares gets the next milder policy.
    pub fn is_enforced(&self) -> bool {
        match self.effective_policy() {
            DmarcPolicy::None => false,
            DmarcPolicy::Quarantine => !self.record.is_partial(),
            DmarcPolicy::Reject => true,
        }
    }

    /// Returns the record for the domain's own name. A record above it is never changed for the domain: other names
    /// may depend on it.
    pub fn at_own_name(&self) -> DmarcRecord {
        let record = self.record.clone();
        if self.is_inherited { record.for_subdomain() } else { record }
    }
}

/// Result of a walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Discovery {
    /// A record applies.
    Published(PublishedRecord),
    /// No record applies: none exists, or each name with any record has several.
    Absent,
    /// The domain's own record has no policy that receivers understand, so they apply none.
    Invalid(String),
    /// The DNS was not queried or did not answer.
    Unknown,
}

/// Returns whether the walk ends after `answers`, of which the last is new.
pub fn is_over(answers: &[Answer<'_>]) -> bool {
    let Some(last) = answers.last() else { return false };
    let is_of_suffix = |record: &str| {
        DmarcRecord::parse(record).is_some_and(|record| record.public_suffix() != PublicSuffix::Undeclared)
    };
    // The domain's own record applies in any case.
    last.records.is_none() || only(last).is_some_and(|record| answers.len() == 1 || is_of_suffix(record))
}

/// Returns the record that applies to a domain, from the answers of its walk in order.
pub fn discover(answers: &[Answer<'_>]) -> Discovery {
    let Some((own, above)) = answers.split_first() else { return Discovery::Unknown };
    if answers.iter().any(|answer| answer.records.is_none()) {
        return Discovery::Unknown;
    }
    if let Some(text) = only(own) {
        let Some(record) = DmarcRecord::parse(text) else { return Discovery::Invalid(text.to_owned()) };
        let policy = record.policy();
        return Discovery::Published(published(own, text, record, policy, false));
    }
    let valid = |place: usize| {
        let answer = above.get(place)?;
        let text = only(answer)?;
        DmarcRecord::parse(text).map(|record| (answer, text, record))
    };
    let all: Vec<usize> = (0..above.len()).filter(|place| valid(*place).is_some()).collect();
    // The organisation's record is the topmost one, or the one below a public suffix. The suffix's own record comes
    // last.
    let Some(&top) = all.last() else { return Discovery::Absent };
    let is_suffix = valid(top).is_some_and(|(.., record)| record.public_suffix() == PublicSuffix::Yes);
    let below = top.checked_sub(1).filter(|place| is_suffix && all.contains(place));
    match valid(below.unwrap_or(top)) {
        Some((answer, text, record)) => {
            let policy = record.subdomain_policy();
            Discovery::Published(published(answer, text, record, policy, true))
        }
        None => Discovery::Absent,
    }
}

fn published(
    answer: &Answer<'_>,
    text: &str,
    record: DmarcRecord,
    policy: DmarcPolicy,
    is_inherited: bool,
) -> PublishedRecord {
    PublishedRecord { text: text.to_owned(), record, policy, at: answer.name.to_owned(), is_inherited }
}

/// Returns the DMARC record of an answer; `None` if there are several, which receivers discard.
fn only<'a>(answer: &Answer<'a>) -> Option<&'a str> {
    let mut records = answer.records?.iter().filter(|text| DmarcRecord::is_claimed_by(text));
    match (records.next(), records.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result for `a.b.example.com` if its walk finds these records, one name after the other.
    fn walk(found: &[&[&str]]) -> (Discovery, usize) {
        let names = names(&"a.b.example.com".parse().unwrap());
        let records: Vec<Vec<String>> =
            found.iter().map(|texts| texts.iter().map(|text| (*text).to_owned()).collect()).collect();
        let mut answers = Vec::new();
        for (name, records) in names.iter().zip(&records) {
            answers.push(Answer { name, records: Some(records) });
            if is_over(&answers) {
                break;
            }
        }
        (discover(&answers), answers.len())
    }

    /// Returns the name of the record that applies, and its policy.
    fn applies(found: &[&[&str]]) -> Option<(String, DmarcPolicy)> {
        match walk(found).0 {
            Discovery::Published(found) => Some((found.at, found.policy)),
            _ => None,
        }
    }

    #[test]
    fn a_walk_queries_at_most_eight_names() {
        let of = |name: &str| names(&name.parse().unwrap());
        assert_eq!(of("example.com"), ["_dmarc.example.com", "_dmarc.com"]);
        let deep = of("a.b.c.d.e.f.g.h.i.j.example.com");
        assert_eq!(deep.len(), LOOKUPS_MAX);
        assert_eq!(deep[..2], ["_dmarc.a.b.c.d.e.f.g.h.i.j.example.com", "_dmarc.f.g.h.i.j.example.com"]);
        assert_eq!(of("b.c.d.e.f.g.h.com").len(), LOOKUPS_MAX);
    }

    #[test]
    fn the_domains_own_record_takes_precedence() {
        assert_eq!(
            applies(&[&["v=DMARC1; p=none"]]).unwrap(),
            ("_dmarc.a.b.example.com".to_owned(), DmarcPolicy::None)
        );
        assert_eq!(walk(&[&["x", "v=DMARC1; p=none"], &["v=DMARC1; p=reject"]]).1, 1);
        assert_eq!(walk(&[&["v=DMARC1"]]).0, Discovery::Invalid("v=DMARC1".to_owned()));
    }

    #[test]
    fn the_organisations_record_applies_to_a_subdomain_without_one() {
        let top: &[&str] = &["v=DMARC1; p=reject; sp=quarantine"];
        let organisation = Some(("_dmarc.example.com".to_owned(), DmarcPolicy::Quarantine));
        assert_eq!(applies(&[&[], &[], top, &[]]), organisation);
        assert_eq!(applies(&[&[], &["v=DMARC1; p=none"], top, &[]]), organisation, "not the nearest");
        let several: &[&str] = &["v=DMARC1; p=none", "v=DMARC1; p=reject"];
        assert_eq!(applies(&[several, several, top, &[]]), organisation, "several are discarded");
        assert_eq!(walk(&[several, &[], several, &[]]).0, Discovery::Absent);
        assert_eq!(walk(&[&[], &[], &[], &[]]), (Discovery::Absent, 4));
    }

    #[test]
    fn a_record_with_psd_ends_the_walk() {
        let department: &[&str] = &["v=DMARC1; p=none; psd=n"];
        assert_eq!(applies(&[&[], department, &["v=DMARC1; p=reject"]]).unwrap().0, "_dmarc.b.example.com");
        let suffix: &[&str] = &["v=DMARC1; p=reject; psd=y"];
        assert_eq!(applies(&[&[], &[], &["v=DMARC1; p=none"], suffix]).unwrap().0, "_dmarc.example.com");
        assert_eq!(applies(&[&[], &[], &[], suffix]).unwrap().0, "_dmarc.com");
        assert_eq!(applies(&[&[], &["v=DMARC1; p=none"], &[], suffix]).unwrap().0, "_dmarc.com");
    }

    #[test]
    fn a_failed_look_up_leaves_the_policy_unknown() {
        let records = vec!["v=DMARC1; p=none".to_owned()];
        let failed = Answer { name: "_dmarc.example.com", records: None };
        assert!(is_over(&[failed]));
        assert_eq!(discover(&[failed]), Discovery::Unknown);
        let above = Answer { name: "_dmarc.com", records: Some(&records) };
        assert_eq!(discover(&[failed, above]), Discovery::Unknown);
        assert_eq!(discover(&[]), Discovery::Unknown);
    }
}
