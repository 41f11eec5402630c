//! Explains a receiver's Authentication-Results field in words.

use serde::Serialize;

use super::authentication_results::{AuthenticationResults, MethodResult, parse};
use super::{mailbox, section};
use crate::domain::address::Address;
use crate::domain::hostname::DomainName;

/// Maximum length of an explained header section, in bytes.
pub const HEADERS_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of DKIM results that are explained. A relayed message has a handful.
const SIGNATURES_MAX: usize = 20;

/// The results of a receiver, with findings.
#[derive(Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The receiver's name for itself; `None` if it wrote no results, or no name.
    pub authserv_id: Option<String>,
    /// The domain of the From header.
    pub from_domain: Option<DomainName>,
    /// The result of SPF.
    pub spf: Option<Spf>,
    /// One result per DKIM signature.
    pub dkim: Vec<Dkim>,
    /// The result of DMARC, such as `pass`.
    pub dmarc: Option<String>,
    /// Findings, each with its remedy.
    pub findings: Vec<Finding>,
}

/// The result of SPF.
#[derive(Debug, PartialEq, Eq)]
pub struct Spf {
    /// The result, such as `pass`.
    pub result: String,
    /// The checked domain: that of the return path.
    pub domain: Option<DomainName>,
    /// Whether the domain aligns with the From domain.
    pub aligned: bool,
}

/// The result of one signature.
#[derive(Debug, PartialEq, Eq)]
pub struct Dkim {
    /// The result, such as `pass`.
    pub result: String,
    /// The signing domain.
    pub domain: Option<DomainName>,
    /// The selector of the key.
    pub selector: Option<String>,
    /// Whether the signing domain aligns with the From domain.
    pub aligned: bool,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    /// No problem.
    Ok,
    /// The mail arrives, but may be treated worse.
    Warn,
    /// Large receivers refuse the mail.
    Fail,
}

/// One finding.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub level: FindingLevel,
    /// The observation.
    pub text: String,
    /// The remedy; `None` if there is nothing to do.
    pub remedy: Option<String>,
}

impl Finding {
    fn ok(text: impl Into<String>) -> Self {
        Self { level: FindingLevel::Ok, text: text.into(), remedy: None }
    }

    fn warn(text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: FindingLevel::Warn, text: text.into(), remedy: Some(remedy.into()) }
    }

    fn fail(text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: FindingLevel::Fail, text: text.into(), remedy: Some(remedy.into()) }
    }
}

/// Explains a header section. Only the topmost Authentication-Results field counts: the last receiver wrote it, and
/// fields below may have come with the mail.
pub fn explain(headers: &str) -> Explanation {
    let headers = headers.trim_start().replace("\r\n", "\n").replace('\n', "\r\n");
    let (fields, _) = section::split(headers.as_bytes());
    let value = |name: &str| fields.iter().find(|field| field.is(name)).map(section::Field::unfolded);
    let from = value("From").and_then(|from| mailbox::list(&from)).and_then(|mut list| list.pop());
    let from_domain = from.map(|mailbox| mailbox.address.domain().clone());
    let results = value("Authentication-Results").and_then(|value| parse(&value));
    let mut explanation = Explanation {
        authserv_id: results.as_ref().and_then(|results| results.authserv_id.clone()),
        spf: results.as_ref().and_then(|results| spf(results, from_domain.as_ref())),
        dkim: results.as_ref().map_or_else(Vec::new, |results| dkim(results, from_domain.as_ref())),
        dmarc: results
            .as_ref()
            .and_then(|results| of_method(results, "dmarc").next())
            .map(|found| found.result.clone()),
        from_domain,
        findings: Vec::new(),
    };
    explanation.findings = match (&explanation.from_domain, results) {
        (None, _) => vec![Finding::fail(
            "There is no From header with one address.",
            "Paste the whole header section of the mail, as shown by the receiver under \"show original\".",
        )],
        (Some(_), None) => vec![Finding::warn(
            "There is no Authentication-Results header.",
            "Paste the header section of a mail from the receiving mailbox. A receiver that writes no such header \
             does not report its checks. Send the test mail to another one.",
        )],
        (Some(from), Some(_)) => findings(&explanation, from),
    };
    explanation
}

fn of_method<'r>(results: &'r AuthenticationResults, method: &'r str) -> impl Iterator<Item = &'r MethodResult> {
    results.methods.iter().filter(move |found| found.method == method)
}

fn spf(results: &AuthenticationResults, from: Option<&DomainName>) -> Option<Spf> {
    let found = of_method(results, "spf").next()?;
    let sender = found.property("smtp.mailfrom").or_else(|| found.property("smtp.helo"));
    let domain = sender.and_then(domain_of);
    let aligned = is_aligned(domain.as_ref(), from);
    Some(Spf { result: found.result.clone(), domain, aligned })
}

fn dkim(results: &AuthenticationResults, from: Option<&DomainName>) -> Vec<Dkim> {
    let read = |found: &MethodResult| {
        let domain = found.property("header.d").or_else(|| found.property("header.i")).and_then(domain_of);
        let aligned = is_aligned(domain.as_ref(), from);
        let selector = found.property("header.s").map(str::to_owned);
        Dkim { result: found.result.clone(), domain, selector, aligned }
    };
    of_method(results, "dkim").take(SIGNATURES_MAX).map(read).collect()
}

/// Returns the domain of an address, of `@example.com`, or of a bare name.
fn domain_of(text: &str) -> Option<DomainName> {
    let text = text.trim_matches(['<', '>']);
    match text.parse::<Address>() {
        Ok(address) => Some(address.domain().clone()),
        Err(_) => text.rsplit('@').next()?.parse().ok(),
    }
}

fn is_aligned(domain: Option<&DomainName>, from: Option<&DomainName>) -> bool {
    domain.zip(from).is_some_and(|(domain, from)| domain.is_aligned_with(from))
}

fn findings(of: &Explanation, from: &DomainName) -> Vec<Finding> {
    let mut findings = vec![of_spf(of.spf.as_ref(), from)];
    findings.extend(of_dkim(&of.dkim, from));
    findings.push(of_dmarc(of, from));
    findings
}

fn of_spf(spf: Option<&Spf>, from: &DomainName) -> Finding {
    let Some(Spf { result, domain, aligned }) = spf else {
        return Finding::warn("The receiver did not check SPF.", "Publish the SPF record shown on the domain's page.");
    };
    let of = domain.as_ref().map_or_else(String::new, |domain| format!(" for {}", domain.as_str()));
    match (result.as_str(), aligned) {
        ("pass", true) => Finding::ok(format!("SPF passed{of}, which aligns with the From domain.")),
        ("pass", false) => Finding::warn(
            format!("SPF passed{of}, which does not align with {}.", from.as_str()),
            "Publish the return path record shown on the domain's page, so that bounces use a name of your domain.",
        ),
        _ => Finding::fail(
            format!("SPF result{of}: {result}."),
            "Publish the SPF record shown on the domain's page, and make sure that no other server forwards this mail.",
        ),
    }
}

fn of_dkim(signatures: &[Dkim], from: &DomainName) -> Vec<Finding> {
    let remedy =
        "Publish the DKIM records shown on the domain's page, and make sure that nothing changes the mail in transit.";
    if signatures.is_empty() {
        return vec![Finding::fail("The receiver found no DKIM signature.", remedy)];
    }
    let is_good = |dkim: &Dkim| dkim.result == "pass" && dkim.aligned;
    let covered = signatures.iter().any(is_good);
    let finding = |dkim: &Dkim| {
        let domain = dkim.domain.as_ref().map_or("an unnamed domain", DomainName::as_str);
        let name = dkim.selector.as_ref().map_or_else(String::new, |selector| format!(" with selector {selector}"));
        let result = &dkim.result;
        match (dkim.result.as_str(), dkim.aligned) {
            ("pass", true) => Finding::ok(format!("The DKIM signature of {domain}{name} is valid and aligns.")),
            ("pass", false) if covered => Finding::ok(format!("The DKIM signature of {domain}{name} is valid.")),
            ("pass", false) => Finding::fail(
                format!("The DKIM signature of {domain}{name} is valid, but does not align with {}.", from.as_str()),
                "Send from a domain that is verified here, so that the mail is signed with its own keys.",
            ),
            // Receivers that don't support Ed25519 report that for the second signature (RFC 8463 3).
            _ if covered => Finding::warn(
                format!("The DKIM signature of {domain}{name} is {result}. Another one is valid and aligns."),
                "If the receiver does not support Ed25519, do nothing. Otherwise publish this selector's record again.",
            ),
            _ => Finding::fail(format!("The DKIM signature of {domain}{name} is {result}."), remedy),
        }
    };
    signatures.iter().map(finding).collect()
}

fn of_dmarc(of: &Explanation, from: &DomainName) -> Finding {
    let is_covered = of.spf.as_ref().is_some_and(|spf| spf.result == "pass" && spf.aligned)
        || of.dkim.iter().any(|dkim| dkim.result == "pass" && dkim.aligned);
    match of.dmarc.as_deref() {
        Some("pass") => Finding::ok("DMARC passed."),
        Some("none" | "bestguesspass") | None if is_covered => Finding::warn(
            format!("The receiver found no DMARC policy of {}.", from.as_str()),
            "Publish the DMARC record shown on the domain's page. Large receivers require one.",
        ),
        Some("temperror") => Finding::warn(
            "DMARC could not be checked: a DNS lookup failed temporarily.",
            "Send another test mail. If the error persists, check that the domain's name servers answer.",
        ),
        Some("permerror") => {
            Finding::fail("The DMARC record is invalid.", "Publish the DMARC record shown on the domain's page.")
        }
        Some(_) | None => Finding::fail(
            "DMARC failed: neither SPF nor DKIM passed for a name that aligns with the From domain.",
            "Follow the advice on SPF and DKIM above.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use FindingLevel::{Fail, Ok, Warn};

    fn levels(explanation: &Explanation) -> Vec<FindingLevel> {
        explanation.findings.iter().map(|finding| finding.level).collect()
    }

    fn explained(results: &str) -> Explanation {
        explain(&format!(
            "Authentication-Results: mx.example; {results}\r\nAuthentication-Results: evil; dmarc=pass\r\n\
             From: Shop <a@shop.example>\r\n"
        ))
    }

    #[test]
    fn explains_a_mail_that_passes_all_checks() {
        let found = explained(
            "dkim=pass header.i=@shop.example header.s=pr1; dkim=neutral (no key) header.d=shop.example;\r\n \
             spf=pass smtp.mailfrom=b@rp.shop.example; dmarc=pass",
        );
        assert_eq!(found.authserv_id.as_deref(), Some("mx.example"));
        assert_eq!(found.from_domain.as_ref().unwrap().as_str(), "shop.example");
        let spf = found.spf.as_ref().unwrap();
        assert_eq!(
            (&*spf.result, spf.domain.as_ref().unwrap().as_str(), spf.aligned),
            ("pass", "rp.shop.example", true)
        );
        assert_eq!((found.dkim.len(), found.dkim[0].selector.as_deref()), (2, Some("pr1")));
        assert_eq!((found.dmarc.as_deref(), levels(&found)), (Some("pass"), vec![Ok, Ok, Warn, Ok]));
        assert!(found.findings.iter().all(|finding| (finding.level == Ok) == finding.remedy.is_none()));
    }

    #[test]
    fn explains_results_without_the_name_of_a_receiver() {
        let found = explain(
            "Authentication-Results: spf=pass (sender IP is 192.0.2.1)\n smtp.mailfrom=rp.shop.example; dkim=pass \
             (signature was verified)\n header.d=shop.example;dmarc=pass action=none\n \
             header.from=shop.example;compauth=pass reason=100\nFrom: a@shop.example\n",
        );
        assert_eq!((found.authserv_id.as_deref(), levels(&found)), (None, vec![Ok; 3]));
        assert!(found.spf.unwrap().aligned);
    }

    #[test]
    fn explains_failed_checks() {
        for (results, expected) in [
            ("spf=pass smtp.mailfrom=x@other.example; dkim=pass header.d=shop.example; dmarc=pass", [Warn, Ok, Ok]),
            ("spf=fail smtp.mailfrom=shop.example; dkim=pass header.d=example; dmarc=fail", [Fail, Fail, Fail]),
            ("spf=softfail smtp.mailfrom=shop.example; dkim=fail header.d=shop.example", [Fail, Fail, Fail]),
            ("spf=pass smtp.mailfrom=shop.example; dkim=pass header.d=shop.example; dmarc=none", [Ok, Ok, Warn]),
            ("spf=pass smtp.mailfrom=shop.example; dmarc=temperror", [Ok, Fail, Warn]),
            ("none", [Warn, Fail, Fail]),
        ] {
            assert_eq!(levels(&explained(results)), expected, "{results}");
        }
    }

    #[test]
    fn reports_missing_headers() {
        assert_eq!(levels(&explain("")), [Fail]);
        assert_eq!(levels(&explain("From: a@shop.example\nSubject: x\n\nbody")), [Warn]);
        let lines =
            "\nAuthentication-Results: mx.example;\n\tspf=pass smtp.mailfrom=a@shop.example\nFrom: a@shop.example";
        assert!(explain(lines).spf.unwrap().aligned, "line ends of any kind");
    }
}
