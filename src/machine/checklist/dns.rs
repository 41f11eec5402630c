//! The checklist items that depend on DNS.

use std::net::IpAddr;

use super::Judgement;
use crate::domain::dmarc_walk::{Discovery, PublishedRecord};
use crate::domain::spf_record;

/// Maximum number of DNS lookups of an SPF record (RFC 7208 4.6.4).
const SPF_LOOKUPS_MAX: u32 = 10;

/// The SPF records of a domain.
#[derive(Clone, Debug)]
pub struct SpfFacts<'a> {
    /// The records found.
    pub found: &'a [String],
    /// Whether one of them includes this server.
    pub names_us: bool,
    /// Number of DNS lookups that the record needs; `None` if unknown.
    pub lookups: Option<u32>,
    /// The record to publish.
    pub wanted: &'a str,
}

/// Judges SPF.
pub fn spf(facts: Option<&SpfFacts<'_>>) -> Judgement {
    let Some(SpfFacts { found, names_us, lookups, wanted }) = facts else { return not_looked_up("The SPF record") };
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
            format!("The record takes {lookups} DNS look-ups. Receivers stop at {SPF_LOOKUPS_MAX}: {record}"),
            "Remove includes of services that no longer send for the domain, or list their addresses.",
        ),
        _ if !names_us => Judgement::warn(
            format!("The record does not name this server: {record}"),
            format!("Add {} before its last term.", wanted.split(' ').nth(1).unwrap_or_default()),
        ),
        Some(lookups) => Judgement::pass(format!("One record names this server, in {lookups} DNS look-ups: {record}")),
        None => Judgement::pass(format!("One record names this server: {record}")),
    }
}

fn not_looked_up(what: &str) -> Judgement {
    Judgement::unknown(format!("{what} was not checked yet, or the look-up failed."))
}

/// A record that a domain should publish.
#[derive(Clone, Copy, Debug)]
pub struct RecordFacts<'a> {
    /// Whether the record was found; `None` if it was not looked up, or the lookup failed.
    pub seen: Option<bool>,
    /// Its name.
    pub name: &'a str,
}

/// Judges the RSA signing key.
pub fn dkim(key: RecordFacts<'_>) -> Judgement {
    let name = key.name;
    match key.seen {
        None => not_looked_up("The DKIM record"),
        Some(true) => Judgement::pass(format!("The RSA key is at {name}.")),
        Some(false) => Judgement::fail(
            format!("The RSA key is not at {name}."),
            "Publish the DKIM record exactly as the domain's page shows it.",
        ),
    }
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
        || "Ask the operator to set [bounces] in the configuration: without it no reports are received.".to_owned(),
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
    /// Its PTR names that resolve back to it; `None` if a lookup failed.
    pub names: Option<Vec<String>>,
}

/// Judges the reverse DNS of all sources. The worst one counts.
pub fn reverse_dns(sources: &[SourceFacts]) -> Judgement {
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
        Some(source) => Judgement::unknown(format!("The reverse look-up of {} failed.", source.address)),
        None if sources.is_empty() => {
            Judgement::unknown("The address that receivers see is unknown. Set it as source of the relay.")
        }
        None => {
            let addresses: Vec<_> = sources.iter().map(|source| source.address.to_string()).collect();
            Judgement::pass(format!("Reverse DNS matches the EHLO name for {}.", addresses.join(", ")))
        }
    }
}

/// The way in which a domain receives mail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Replies<'a> {
    /// By the servers of its MX records.
    Servers(&'a [String]),
    /// At its own address, without an MX record.
    Address,
    /// Not at all: a null MX.
    NullMx,
    /// Not at all: neither an MX record nor an address.
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

/// Judges BIMI by the records of the default selector.
pub fn bimi(found: Option<&[String]>, dmarc: &Discovery) -> Judgement {
    let record = match found {
        None => return not_looked_up("The BIMI record"),
        Some([]) => return Judgement::na("There is no record at default._bimi."),
        Some([record]) => record,
        Some(several) => {
            let seen = format!("There are {} BIMI records, so receivers ignore all of them.", several.len());
            return Judgement::fail(seen, "Keep only one.");
        }
    };
    if tag(record, "l").is_none_or(|url| !is_https(url)) {
        return Judgement::fail(
            format!("The record's l= is not an https URL: {record}"),
            "Set l= to the https URL of the logo (SVG Tiny PS).",
        );
    }
    let is_enforced = match dmarc {
        Discovery::Published(published) => published.is_enforced(),
        Discovery::Unknown => return not_looked_up("The DMARC record"),
        Discovery::Absent | Discovery::Invalid(_) => false,
    };
    if !is_enforced {
        return Judgement::fail(
            "The DMARC policy is not enforced, so no receiver shows the logo.",
            "Publish p=quarantine or p=reject without t=y and pct, once the reports allow it.",
        );
    }
    match tag(record, "a") {
        Some(url) if is_https(url) => Judgement::pass(format!("The logo has a certificate: {record}")),
        None | Some("") => Judgement::warn(
            format!("The record has no certificate, which Gmail and Apple require: {record}"),
            "Set a= to the https URL of a mark certificate (VMC or CMC).",
        ),
        Some(_) => Judgement::fail(
            format!("The record's a= is not an https URL: {record}"),
            "Set a= to the https URL of the mark certificate.",
        ),
    }
}

fn tag<'a>(record: &'a str, name: &str) -> Option<&'a str> {
    let tags = record.split(';').filter_map(|tag| tag.split_once('='));
    tags.into_iter().find(|(known, _)| known.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn is_https(url: &str) -> bool {
    url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) && url.len() > 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::dmarc_record::DmarcRecord;
    use crate::machine::checklist::Status::{self, Fail, Na, Pass, Unknown, Warn};

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn published(text: &str) -> Discovery {
        let record = DmarcRecord::parse(text).unwrap();
        let policy = record.policy();
        let at = "_dmarc.example.com".to_owned();
        Discovery::Published(PublishedRecord { text: text.to_owned(), record, policy, at, is_inherited: false })
    }

    #[test]
    fn spf_passes_with_one_record_that_names_us_in_at_most_ten_lookups() {
        let judged = |found: &[&str], names_us, lookups| {
            let found = texts(found);
            spf(Some(&SpfFacts { found: &found, names_us, lookups, wanted: "v=spf1 a:mail.example.com ~all" })).status
        };
        assert_eq!(spf(None).status, Unknown);
        for (found, names_us, lookups, expected) in [
            (&["v=spf1 a:mail.example.com -all"][..], true, Some(10), Pass),
            (&["v=spf1 a:mail.example.com -all"], true, None, Pass),
            (&["v=spf1 mx -all"], false, Some(1), Warn),
            (&["v=spf1 mx foo:bar -all"], false, Some(1), Fail),
            (&["v=spf1 mx -all"], false, None, Warn),
            (&["v=spf1 a:mail.example.com -all"], true, Some(11), Fail),
            (&["v=spf1 mx -all", "v=spf1 a:mail.example.com -all"], true, None, Fail),
            (&[], false, None, Fail),
        ] {
            assert_eq!(judged(found, names_us, lookups), expected, "{found:?} {lookups:?}");
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
        assert_eq!([yes, no, None].map(|seen| dkim(record(seen)).status), [Pass, Fail, Unknown]);
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
        let judged = |other: SourceFacts| reverse_dns(&[good.clone(), other]).status;
        assert_eq!(reverse_dns(&[]).status, Unknown);
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

    #[test]
    fn bimi_needs_a_logo_a_certificate_and_an_enforced_policy() {
        let judged =
            |record: &str, policy: &str| -> Status { bimi(Some(&texts(&[record])), &published(policy)).status };
        let enforced = "v=DMARC1; p=quarantine";
        for (record, policy, expected) in [
            ("v=BIMI1; l=https://x.example/l.svg; a=https://x.example/c.pem", enforced, Pass),
            ("v=BIMI1; L=HTTPS://x.example/l.svg", enforced, Warn),
            ("v=BIMI1; l=https://x.example/l.svg; a=", enforced, Warn),
            ("v=BIMI1; l=https://x.example/l.svg; a=http://x.example/c.pem", enforced, Fail),
            ("v=BIMI1; l=http://x.example/l.svg", enforced, Fail),
            ("v=BIMI1; l=; a=;", enforced, Fail),
            ("v=BIMI1; l=https://x.example/l.svg; a=https://x.example/c.pem", "v=DMARC1; p=none", Fail),
            ("v=BIMI1; l=https://x.example/l.svg; a=https://x.example/c.pem", "v=DMARC1; p=quarantine; t=y", Fail),
            ("v=BIMI1; l=https://x.example/l.svg; a=https://x.example/c.pem", "v=DMARC1; p=quarantine; pct=0", Fail),
            ("v=BIMI1; l=https://x.example/l.svg; a=https://x.example/c.pem", "v=DMARC1; p=reject; pct=50", Pass),
        ] {
            assert_eq!(judged(record, policy), expected, "{record} {policy}");
        }
        assert_eq!(bimi(None, &Discovery::Absent).status, Unknown);
        assert_eq!(bimi(Some(&[]), &Discovery::Absent).status, Na);
        let two = texts(&["v=BIMI1; l=https://x.example/l.svg", "v=BIMI1; l=https://y.example/l.svg"]);
        assert_eq!(bimi(Some(&two), &published(enforced)).status, Fail);
    }
}
