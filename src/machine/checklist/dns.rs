//! The checklist items that depend on DNS.

use std::net::IpAddr;

use super::{Judgement, NOT_LOOKED_UP};
use crate::domain::dmarc_walk::{Discovery, PublishedRecord};
use crate::domain::spf_record;

/// Maximum number of DNS lookups of an SPF record (RFC 7208 4.6.4).
const SPF_LOOKUPS_MAX: u32 = 10;

/// The SPF records of a domain.
#[derive(Clone, Debug)]
pub struct SpfFacts<'a> {
    /// The records found.
    pub found: &'a [String],
    /// Whether this server passes SPF by the records.
    pub lets_us_pass: bool,
    /// Number of DNS lookups that the record needs; `None` if unknown.
    pub lookups: Option<u32>,
    /// The source addresses that do not pass, as far as they are known.
    pub uncovered: &'a [IpAddr],
    /// The record to publish.
    pub wanted: &'a str,
}

/// Judges SPF.
pub fn spf(facts: Option<&SpfFacts<'_>>) -> Judgement {
    let Some(SpfFacts { found, lets_us_pass, lookups, uncovered, wanted }) = facts else {
        return not_looked_up("The SPF record");
    };
    let record = match found {
        [] => return Judgement::fail("There is no SPF record.", format!("Publish this TXT record: {wanted}")),
        [record] => record,
        several => {
            return Judgement::fail(
                format!("There are {} SPF records, so receivers ignore all of them.", several.len()),
                "Keep one record that lists all servers that send for the domain.",
            );
        }
    };
    if let Some(term) = spf_record::faulty_term(record) {
        let seen = format!("The term {term:?} is an error, so receivers ignore the record: {record}");
        return Judgement::fail(seen, "Correct the term, or remove it.");
    }
    match lookups {
        Some(lookups) if *lookups > SPF_LOOKUPS_MAX => Judgement::fail(
            format!("The record takes {lookups} DNS lookups. Receivers stop at {SPF_LOOKUPS_MAX}: {record}"),
            "Remove includes of services that no longer send for the domain, or list their addresses.",
        ),
        _ if !lets_us_pass => not_covered(record, uncovered, wanted.split(' ').nth(1).unwrap_or_default()),
        Some(lookups) => {
            Judgement::pass(format!("One record lets this server pass, with {lookups} DNS lookups: {record}"))
        }
        None => Judgement::pass(format!("One record lets this server pass: {record}")),
    }
}

/// Returns the judgement of a record that does not let `uncovered` addresses pass. `term` covers all of them.
fn not_covered(record: &str, uncovered: &[IpAddr], term: &str) -> Judgement {
    if uncovered.is_empty() {
        let seen = format!("The record does not let this server pass: {record}");
        return Judgement::warn(seen, format!("Add {term} as its first term."));
    }
    let addresses = uncovered.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    let terms = uncovered.iter().map(|address| match address {
        IpAddr::V4(v4) => format!("ip4:{v4}"),
        IpAddr::V6(v6) => format!("ip6:{v6}"),
    });
    Judgement::warn(
        format!("The record does not let this server pass from {addresses}: {record}"),
        format!("Add {term} as its first term, or {}.", terms.collect::<Vec<_>>().join(" ")),
    )
}

pub(super) fn not_looked_up(what: &str) -> Judgement {
    Judgement::unknown(format!("{what} {NOT_LOOKED_UP}"))
}

/// A record that a domain should publish.
#[derive(Clone, Copy, Debug)]
pub struct RecordFacts<'a> {
    /// Whether the record was found; `None` if it was not looked up, or the lookup failed.
    pub seen: Option<bool>,
    /// Name of the record in the DNS.
    pub name: &'a str,
}

/// Judges the RSA signing key by the TXT records `found` at its name.
pub fn dkim(key: RecordFacts<'_>, found: &[String]) -> Judgement {
    let name = key.name;
    let publish = "Publish the DKIM record exactly as the domain's page shows it.";
    match (key.seen, found) {
        (None, _) => not_looked_up("The DKIM record"),
        (Some(true), [record]) if is_testing_key(record) => Judgement::pass(format!(
            "The RSA key is at {name}. Its flag t=y tells receivers that signatures are only tested; remove it."
        )),
        (Some(true), _) => Judgement::pass(format!("The RSA key is at {name}.")),
        (Some(false), []) => Judgement::fail(format!("There is no TXT record at {name}."), publish),
        (Some(false), [_]) => Judgement::fail(
            format!("The TXT record at {name} has another key, or an error because of which receivers ignore it."),
            publish,
        ),
        (Some(false), several) => Judgement::fail(
            format!("There are {} TXT records at {name}, and receivers may choose the wrong one.", several.len()),
            "Keep only the DKIM record that the domain's page shows.",
        ),
    }
}

/// Returns whether a key record has the flag `y`: the domain is testing DKIM (RFC 6376 3.6.1).
fn is_testing_key(record: &str) -> bool {
    let flags = record.split(';').filter_map(|tag| tag.split_once('=')).find(|(name, _)| name.trim() == "t");
    flags.is_some_and(|(_, flags)| flags.split(':').any(|flag| flag.trim() == "y"))
}

/// Judges the applicable DMARC record; the domain itself has `own` records. `wanted` is the record to publish.
pub fn dmarc(found: &Discovery, own: usize, wanted: &str) -> Judgement {
    match found {
        Discovery::Unknown => not_looked_up("The DMARC record"),
        Discovery::Absent | Discovery::Published(PublishedRecord { is_inherited: true, .. }) if own > 1 => {
            Judgement::fail(
                format!("There are {own} DMARC records, so receivers ignore all of them."),
                "Keep only one.",
            )
        }
        Discovery::Published(PublishedRecord { text, at, is_inherited: true, .. }) => {
            Judgement::pass(format!("It inherits the record at {at}: {text}"))
        }
        Discovery::Published(PublishedRecord { text, .. }) => Judgement::pass(format!("The record is valid: {text}")),
        Discovery::Invalid(text) => Judgement::fail(
            format!("The record is invalid, so receivers ignore it: {text}"),
            format!("Replace it with: {wanted}"),
        ),
        Discovery::Absent => Judgement::fail(
            "There is no DMARC record for the domain or a parent domain.",
            format!("Publish this TXT record at _dmarc: {wanted}"),
        ),
    }
}

/// Judges whether DKIM and SPF align with the From domain. The return path is a subdomain, so it does not align if the
/// DMARC record asks for exactly the From domain.
pub fn alignment(dkim: RecordFacts<'_>, return_path: RecordFacts<'_>, dmarc: &Discovery) -> Judgement {
    let publish = |name: &str| format!("Publish the record at {name} that the domain's page shows.");
    let is_strict = matches!(dmarc, Discovery::Published(published) if published.record.is_spf_strict());
    match (dkim.seen, return_path.seen) {
        (Some(true), Some(true)) if is_strict => Judgement::warn(
            "Only DKIM aligns: the DMARC record has aspf=s, and the return path is a subdomain of this domain.",
            "Remove aspf=s from the DMARC record.",
        ),
        (Some(false), Some(true)) if is_strict => Judgement::fail(
            "The DKIM key is missing, and the return path does not align because the DMARC record has aspf=s.",
            publish(dkim.name),
        ),
        (Some(true), Some(true)) => Judgement::pass("The DKIM key and the return path are published, and both align."),
        (Some(true), Some(false)) => {
            Judgement::warn("Only DKIM aligns: the return path is not under this domain.", publish(return_path.name))
        }
        (Some(false), Some(true)) => {
            Judgement::warn("Only the return path aligns: the DKIM key was not found.", publish(dkim.name))
        }
        (Some(false), Some(false)) => {
            Judgement::fail("The DKIM key and the return path are both missing, so DMARC fails.", publish(dkim.name))
        }
        (None, _) | (_, None) => not_looked_up("The DKIM record or that of the return path"),
    }
}

/// Judges whether the applicable record requests reports to one of our addresses. `wanted` is the text to publish;
/// `None` if this service receives no reports.
pub fn dmarc_reports(found: &Discovery, names_us: bool, wanted: Option<&str>) -> Judgement {
    let remedy = wanted.map_or_else(
        || "Ask the operator of this service to turn on incoming mail: without it no reports arrive.".to_owned(),
        |wanted| format!("Publish: {wanted}"),
    );
    match found {
        Discovery::Unknown => not_looked_up("The DMARC record"),
        Discovery::Published(_) if names_us => Judgement::pass("The record's rua names an address of this service."),
        Discovery::Published(_) => {
            Judgement::warn("The record's rua does not name this service, so no reports arrive here.", remedy)
        }
        Discovery::Invalid(_) | Discovery::Absent => {
            Judgement::warn("There is no valid DMARC record that requests reports.", remedy)
        }
    }
}

/// A source address of mail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceFacts {
    /// The address.
    pub address: IpAddr,
    /// The name sent in EHLO from this address.
    pub ehlo: String,
    /// PTR names that resolve back to it; `None` if a lookup failed.
    pub names: Option<Vec<String>>,
}

/// Judges the reverse DNS of all sources. The worst one counts. `sources` is `None` if all mail goes to smarthosts.
pub fn reverse_dns(sources: Option<&[SourceFacts]>) -> Judgement {
    let Some(sources) = sources else {
        return Judgement::na("All mail goes through smarthosts, whose operators set the reverse names.");
    };
    let without = |source: &&SourceFacts| source.names.as_ref().is_some_and(Vec::is_empty);
    let elsewhere = |source: &&SourceFacts| source.names.as_ref().is_some_and(|names| !names.contains(&source.ehlo));
    let unknown = |source: &&SourceFacts| source.names.is_none();
    let set = |source: &SourceFacts| {
        let SourceFacts { address, ehlo, .. } = source;
        format!("Have the provider of {address} set its reverse name (PTR) to {ehlo}.")
    };
    if let Some(source) = sources.iter().find(without) {
        return Judgement::fail(
            format!("{} has no reverse name that resolves back to it.", source.address),
            set(source),
        );
    }
    if let Some(source) = sources.iter().find(elsewhere) {
        let names = source.names.iter().flatten().cloned().collect::<Vec<_>>().join(", ");
        let seen = format!("The reverse name of {} is {names}, but it sends {} in EHLO.", source.address, source.ehlo);
        return Judgement::warn(seen, set(source));
    }
    match sources.iter().find(unknown) {
        Some(source) => Judgement::unknown(format!("The reverse lookup of {} failed.", source.address)),
        None if sources.is_empty() => Judgement::unknown(
            "The address that receivers see is unknown. Ask the operator of this service to set it for the relay.",
        ),
        None => {
            let addresses: Vec<_> = sources.iter().map(|source| source.address.to_string()).collect();
            Judgement::pass(format!("Reverse DNS matches the EHLO name for {}.", addresses.join(", ")))
        }
    }
}

/// The way in which a domain receives mail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Replies<'a> {
    /// The servers of its MX records receive the mail.
    Servers(&'a [String]),
    /// The domain's own address receives the mail, because there is no MX record.
    Address,
    /// The domain receives no mail: it has a null MX.
    NullMx,
    /// The domain receives no mail: it has no MX record and no address.
    Nothing,
}

/// Judges whether recipients can reply.
pub fn replies(found: Option<&Replies<'_>>) -> Judgement {
    let publish = "Publish an MX record for a server that accepts mail for the domain.";
    match found {
        None => not_looked_up("The MX record"),
        Some(Replies::Servers(servers)) => Judgement::pass(format!("Mail goes to {}.", servers.join(", "))),
        Some(Replies::Address) => Judgement::warn("There is no MX record, only an address.", publish),
        Some(Replies::NullMx) => Judgement::fail("A null MX declares that the domain accepts no mail.", publish),
        Some(Replies::Nothing) => Judgement::fail("There is no MX record and no address.", publish),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::domain::dmarc_record::DmarcRecord;
    use crate::machine::checklist::Status::{Fail, Na, Pass, Unknown, Warn};

    pub(in crate::machine::checklist) fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    pub(in crate::machine::checklist) fn published(text: &str) -> Discovery {
        let record = DmarcRecord::parse(text).unwrap();
        let policy = record.policy();
        let at = "_dmarc.example.com".to_owned();
        Discovery::Published(PublishedRecord { text: text.to_owned(), record, policy, at, is_inherited: false })
    }

    #[test]
    fn spf_passes_with_one_record_that_lets_us_pass_in_at_most_ten_lookups() {
        let judged = |found: &[&str], lets_us_pass, lookups| {
            let found = texts(found);
            let wanted = "v=spf1 a:mail.example.com ~all";
            spf(Some(&SpfFacts { found: &found, lets_us_pass, lookups, uncovered: &[], wanted })).status
        };
        assert_eq!(spf(None).status, Unknown);
        for (found, lets_us_pass, lookups, expected) in [
            (&["v=spf1 a:mail.example.com -all"][..], true, Some(10), Pass),
            (&["v=spf1 a:mail.example.com -all"], true, None, Pass),
            (&["v=spf1 mx -all"], false, Some(1), Warn),
            (&["v=spf1 mx foo:bar -all"], false, Some(1), Fail),
            (&["v=spf1 mx -all"], false, None, Warn),
            (&["v=spf1 a:mail.example.com -all"], true, Some(11), Fail),
            (&["v=spf1 mx -all", "v=spf1 a:mail.example.com -all"], true, None, Fail),
            (&[], false, None, Fail),
        ] {
            assert_eq!(judged(found, lets_us_pass, lookups), expected, "{found:?} {lookups:?}");
        }
    }

    #[test]
    fn spf_names_the_addresses_that_do_not_pass_and_the_terms_to_add() {
        let found = texts(&["v=spf1 ip4:192.0.2.7 -all"]);
        for (uncovered, seen, remedy) in [
            (
                &["192.0.2.8", "2001:db8::2"][..],
                "The record does not let this server pass from 192.0.2.8 and 2001:db8::2: v=spf1 ip4:192.0.2.7 -all",
                "Add a:mail.example.com as its first term, or ip4:192.0.2.8 ip6:2001:db8::2.",
            ),
            (
                &[],
                "The record does not let this server pass: v=spf1 ip4:192.0.2.7 -all",
                "Add a:mail.example.com as its first term.",
            ),
        ] {
            let uncovered: Vec<IpAddr> = uncovered.iter().map(|text| text.parse().unwrap()).collect();
            let wanted = "v=spf1 a:mail.example.com ~all";
            let facts =
                SpfFacts { found: &found, lets_us_pass: false, lookups: Some(0), uncovered: &uncovered, wanted };
            let judgement = spf(Some(&facts));
            assert_eq!((judgement.status, &*judgement.seen), (Warn, seen));
            assert_eq!(judgement.remedy.as_deref(), Some(remedy));
        }
    }

    #[test]
    fn alignment_passes_with_both_dkim_and_return_path_and_fails_without_either() {
        let record = |seen| RecordFacts { seen, name: "x.example.com" };
        let relaxed = published("v=DMARC1; p=none; aspf=r");
        let judged = |dkim, path| alignment(record(dkim), record(path), &relaxed).status;
        let (yes, no) = (Some(true), Some(false));
        assert_eq!([judged(yes, yes), judged(yes, no), judged(no, yes), judged(no, no)], [Pass, Warn, Warn, Fail]);
        assert_eq!([judged(None, yes), judged(no, None)], [Unknown, Unknown]);
        let strict = published("v=DMARC1; p=none; aspf=s");
        let strict = |dkim, path| alignment(record(dkim), record(path), &strict).status;
        assert_eq!([strict(yes, yes), strict(yes, no), strict(no, yes), strict(no, no)], [Warn, Warn, Fail, Fail]);
    }

    #[test]
    fn dkim_names_the_reason_why_the_key_is_not_seen() {
        let judged = |seen, found: &[&str]| dkim(RecordFacts { seen, name: "x.example.com" }, &texts(found));
        for (seen, found, status, reason) in [
            (Some(true), &["k=rsa; p=AbCd"][..], Pass, "The RSA key is at x.example.com."),
            (Some(true), &["k=rsa; t=s:y; p=AbCd"], Pass, "t=y"),
            (Some(false), &[], Fail, "no TXT record at x.example.com"),
            (Some(false), &["k=rsa; p=Other"], Fail, "another key"),
            (Some(false), &["k=rsa; p=AbCd", "junk"], Fail, "2 TXT records at x.example.com"),
            (None, &[], Unknown, "not checked"),
        ] {
            let judgement = judged(seen, found);
            assert!(judgement.status == status && judgement.seen.contains(reason), "{found:?} {}", judgement.seen);
        }
    }

    #[test]
    fn dmarc_passes_if_valid_and_dmarc_reports_if_sent_here() {
        let invalid = Discovery::Invalid("v=DMARC1".to_owned());
        for (found, own, status, reports) in [
            (published("v=DMARC1; p=none"), 1, Pass, Pass),
            (invalid, 1, Fail, Warn),
            (Discovery::Absent, 0, Fail, Warn),
            (Discovery::Absent, 2, Fail, Warn),
            (Discovery::Unknown, 0, Unknown, Unknown),
        ] {
            assert_eq!(dmarc(&found, own, "w").status, status, "{found:?}");
            assert_eq!(dmarc_reports(&found, true, Some("w")).status, reports, "{found:?}");
        }
        assert_eq!(dmarc_reports(&published("v=DMARC1; p=none"), false, None).status, Warn);
        assert!(dmarc(&Discovery::Absent, 2, "w").seen.contains("2 DMARC records"));
        let Discovery::Published(of_parent) = published("v=DMARC1; p=none") else { panic!("it is published") };
        let of_parent = Discovery::Published(PublishedRecord { is_inherited: true, ..of_parent });
        assert_eq!([0, 2].map(|own| dmarc(&of_parent, own, "w").status), [Pass, Fail]);
    }

    #[test]
    fn the_worst_source_determines_reverse_dns() {
        let source = |names: Option<&[&str]>| SourceFacts {
            address: [192, 0, 2, 1].into(),
            ehlo: "mail.example.com".to_owned(),
            names: names.map(texts),
        };
        let good = source(Some(&["x.example.com", "mail.example.com"]));
        let judged = |other: SourceFacts| reverse_dns(Some(&[good.clone(), other])).status;
        assert_eq!([reverse_dns(Some(&[])).status, reverse_dns(None).status], [Unknown, Na]);
        assert_eq!(judged(good.clone()), Pass);
        assert_eq!(judged(source(Some(&["x.example.com"]))), Warn);
        assert_eq!(judged(source(Some(&[]))), Fail);
        assert_eq!(judged(source(None)), Unknown);
    }

    #[test]
    fn replies_need_an_mx_record() {
        let servers = texts(&["mx.example.com"]);
        let judged = |found| replies(Some(&found)).status;
        assert_eq!(replies(None).status, Unknown);
        assert_eq!(
            [Replies::Servers(&servers), Replies::Address, Replies::NullMx, Replies::Nothing].map(judged),
            [Pass, Warn, Fail, Fail]
        );
    }
}
