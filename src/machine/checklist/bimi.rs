//! The checklist item about BIMI, the logo beside a message.

use super::Judgement;
use super::dns::not_looked_up;
use crate::domain::bimi_record::{has_version, repeated_tag, tag};
use crate::domain::dmarc_record::DmarcPolicy;
use crate::domain::dmarc_walk::{Discovery, PublishedRecord};

/// Judges BIMI by the records of the default selector, valid or not.
pub fn bimi(found: Option<&[String]>, dmarc: &Discovery) -> Judgement {
    let Some(found) = found else { return not_looked_up("The BIMI record") };
    let read: Vec<_> = found.iter().filter(|text| has_version(text)).collect();
    let record = match (read.as_slice(), found.first()) {
        ([], None) => return Judgement::na("There is no record at default._bimi."),
        ([], Some(record)) => {
            return Judgement::fail(
                format!("The record does not begin with v=BIMI1, so receivers ignore it: {record}"),
                "Begin the record with v=BIMI1, in capital letters.",
            );
        }
        ([record], _) => record,
        (several, _) => {
            let seen = format!("There are {} BIMI records, so receivers ignore all of them.", several.len());
            return Judgement::fail(seen, "Keep only one.");
        }
    };
    if let Some(name) = repeated_tag(record) {
        return Judgement::fail(
            format!("The record has the tag {name}= twice, so receivers ignore it: {record}"),
            "Keep each tag only once.",
        );
    }
    if tag(record, "l").is_none_or(|url| !is_https(url)) {
        return Judgement::fail(
            format!("The record's l= is not an https URL: {record}"),
            "Set l= to the https URL of the logo (SVG Tiny PS).",
        );
    }
    match dmarc {
        Discovery::Unknown => return not_looked_up("The DMARC record"),
        Discovery::Published(published) if published.is_enforced() && is_enforced_below(published) => {}
        Discovery::Published(published) if published.is_enforced() => {
            return Judgement::fail(
                format!("The DMARC record has sp=none, so no receiver shows the logo: {}", published.text),
                "Remove sp=none, once the reports allow it.",
            );
        }
        Discovery::Published(_) | Discovery::Absent | Discovery::Invalid(_) => {
            return Judgement::fail(
                "The DMARC policy is not enforced, so no receiver shows the logo.",
                "Publish p=quarantine or p=reject without t=y and pct, once the reports allow it.",
            );
        }
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

/// Returns whether the policy for subdomains is enforced too, which BIMI requires.
fn is_enforced_below(published: &PublishedRecord) -> bool {
    published.record.subdomain_policy() != DmarcPolicy::None
}

fn is_https(url: &str) -> bool {
    url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) && url.len() > 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::checklist::Status::{Fail, Na, Pass, Unknown, Warn};
    use crate::machine::checklist::dns::tests::{published, texts};

    const ENFORCED: &str = "v=DMARC1; p=quarantine";
    const WHOLE: &str = "v=BIMI1; l=https://x.example/l.svg; a=https://x.example/c.pem";

    #[test]
    fn bimi_needs_a_logo_a_certificate_and_an_enforced_policy() {
        for (record, policy, expected) in [
            (WHOLE, ENFORCED, Pass),
            ("v=BIMI1; L=HTTPS://x.example/l.svg", ENFORCED, Warn),
            ("v=BIMI1; l=https://x.example/l.svg; a=", ENFORCED, Warn),
            ("v=BIMI1; l=https://x.example/l.svg; a=http://x.example/c.pem", ENFORCED, Fail),
            ("v=BIMI1; l=http://x.example/l.svg", ENFORCED, Fail),
            ("v=BIMI1; l=; a=;", ENFORCED, Fail),
            (WHOLE, "v=DMARC1; p=none", Fail),
            (WHOLE, "v=DMARC1; p=quarantine; t=y", Fail),
            (WHOLE, "v=DMARC1; p=quarantine; pct=0", Fail),
            (WHOLE, "v=DMARC1; p=reject; pct=50", Pass),
            (WHOLE, "v=DMARC1; p=reject; sp=quarantine", Pass),
            (WHOLE, "v=DMARC1; p=reject; sp=none", Fail),
        ] {
            assert_eq!(bimi(Some(&texts(&[record])), &published(policy)).status, expected, "{record} {policy}");
        }
        assert_eq!(bimi(None, &Discovery::Absent).status, Unknown);
        assert_eq!(bimi(Some(&[]), &Discovery::Absent).status, Na);
    }

    #[test]
    fn a_bimi_record_that_receivers_ignore_fails_by_its_reason() {
        let judged = |found: &[&str]| bimi(Some(&texts(found)), &published(ENFORCED));
        for (found, reason) in [
            (&["v=bimi1; l=https://x.example/l.svg; a=https://x.example/c.pem"][..], "does not begin with v=BIMI1"),
            (&["l=https://x.example/l.svg; v=BIMI1; a=https://x.example/c.pem"], "does not begin with v=BIMI1"),
            (&["v=BIMI1; l=https://x.example/l.svg; l=https://y.example/l.svg"], "l= twice"),
            (&[WHOLE, "v=BIMI1; l=https://y.example/l.svg"], "2 BIMI records"),
        ] {
            let judgement = judged(found);
            assert!(judgement.status == Fail && judgement.seen.contains(reason), "{found:?} {}", judgement.seen);
        }
        assert_eq!(judged(&["v=BIMI2; l=https://y.example/l.svg", WHOLE]).status, Pass, "receivers discard the other");
    }
}
