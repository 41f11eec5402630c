//! The findings of a receiver about a test mail, as `POST /v1/explain` returns them.

use serde::Serialize;

use crate::domain::hostname::DomainName;
use crate::http::openapi::shape::describe;
use crate::mail::explain::{Dkim, Explanation, Finding, FindingLevel, Spf};

/// An explained header section.
#[derive(Serialize)]
pub(in crate::http) struct ExplanationView<'a> {
    authserv_id: Option<&'a str>,
    from_domain: Option<&'a str>,
    spf: Option<SpfResultView<'a>>,
    dkim: Vec<DkimResultView<'a>>,
    dmarc: Option<DmarcResultView<'a>>,
    findings: Vec<FindingView<'a>>,
}

#[derive(Serialize)]
struct SpfResultView<'a> {
    result: &'a str,
    domain: Option<&'a str>,
    aligned: bool,
}

#[derive(Serialize)]
struct DkimResultView<'a> {
    result: &'a str,
    domain: Option<&'a str>,
    selector: Option<&'a str>,
    aligned: bool,
}

#[derive(Serialize)]
struct DmarcResultView<'a> {
    result: &'a str,
}

#[derive(Serialize)]
struct FindingView<'a> {
    level: FindingLevel,
    text: &'a str,
    remedy: Option<&'a str>,
}

impl<'a> ExplanationView<'a> {
    pub(in crate::http) fn new(of: &'a Explanation) -> Self {
        let spf = |Spf { result, domain, aligned }: &'a Spf| SpfResultView {
            result,
            domain: domain.as_ref().map(DomainName::as_str),
            aligned: *aligned,
        };
        let dkim = |Dkim { result, domain, selector, aligned }: &'a Dkim| DkimResultView {
            result,
            domain: domain.as_ref().map(DomainName::as_str),
            selector: selector.as_deref(),
            aligned: *aligned,
        };
        let finding = |Finding { level, text, remedy }: &'a Finding| FindingView {
            level: *level,
            text,
            remedy: remedy.as_deref(),
        };
        Self {
            authserv_id: of.authserv_id.as_deref(),
            from_domain: of.from_domain.as_ref().map(DomainName::as_str),
            spf: of.spf.as_ref().map(spf),
            dkim: of.dkim.iter().map(dkim).collect(),
            dmarc: of.dmarc.as_deref().map(|result| DmarcResultView { result }),
            findings: of.findings.iter().map(finding).collect(),
        }
    }
}

describe! {
    ExplanationView<'_> as "Explanation", "A receiver's checks of a test message, from its topmost \
                                           Authentication-Results."
    {
        authserv_id: "The receiver's name; null without such a header, or if it has no name.",
        from_domain: "The domain of the From header; null without one address.",
        spf: "The result of SPF; null if it was not checked.",
        dkim: "One result for each signature.",
        dmarc: "The result of DMARC; null if it was not checked.",
        findings: "Findings, with advice.",
    }
}

describe! {
    SpfResultView<'_> as "SpfResult", "The result of SPF."
    {
        result: "The result, such as `pass` or `softfail` (RFC 8601).",
        domain: "The checked domain, which is that of the return path.",
        aligned: "Whether it has the same registrable domain as the From domain.",
    }
}

describe! {
    DkimResultView<'_> as "DkimResult", "The result of one DKIM signature."
    {
        result: "The result, such as `pass` or `fail` (RFC 8601).",
        domain: "The signing domain.",
        selector: "The selector of its key, if the receiver names it.",
        aligned: "Whether the signing domain has the same registrable domain as the From domain.",
    }
}

describe! {
    DmarcResultView<'_> as "DmarcResult", "The result of DMARC."
    {
        result: "The result, such as `pass` or `fail` (RFC 8601).",
    }
}

describe! {
    FindingView<'_> as "Finding", "One finding."
    {
        level: "The severity.",
        text: "The finding in words.",
        remedy: "Advice; null if there is nothing to do.",
    }
}
