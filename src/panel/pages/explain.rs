//! Explains the headers of a test message. Nothing is stored.

use askama::Template;
use hyper::StatusCode;

use crate::domain::hostname::DomainName;
use crate::http::answer::Answer;
use crate::mail::explain::{Explanation, Finding, FindingLevel, HEADERS_BYTES_MAX, explain};
use crate::panel::components::Badge;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;

#[derive(Template)]
#[template(path = "explain.html")]
struct ExplainPage {
    frame: PageFrame,
    headers: String,
    fault: &'static str,
    result: Option<AnalysisView>,
}

/// Result of the analysis, as the page shows it.
struct AnalysisView {
    receiver: String,
    from_domain: String,
    findings: Vec<(Badge, Finding)>,
}

/// `GET /explain`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    page(&visit, String::new())
}

/// `POST /explain`.
pub(in crate::panel) async fn explain_headers(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    page(&visit, form.text("headers").to_owned())
}

fn page(visit: &Visit<'_>, headers: String) -> Result<Answer, PageError> {
    let is_too_long = headers.len() > HEADERS_BYTES_MAX;
    let result = (!headers.trim().is_empty() && !is_too_long).then(|| AnalysisView::new(explain(&headers)));
    let fault = if is_too_long { "Paste only the headers: the text is larger than 64 KiB." } else { "" };
    let status = if is_too_long { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let frame = PageFrame::new(visit, "Explain headers", "/explain")?;
    html::page(status, &ExplainPage { frame, headers, fault, result })
}

impl AnalysisView {
    fn new(explanation: Explanation) -> Self {
        let badged = |finding: Finding| (badge(finding.level), finding);
        Self {
            receiver: explanation.authserv_id.unwrap_or_else(|| "not named".to_owned()),
            from_domain: explanation.from_domain.as_ref().map_or("not found", DomainName::as_str).to_owned(),
            findings: explanation.findings.into_iter().map(badged).collect(),
        }
    }
}

const fn badge(level: FindingLevel) -> Badge {
    match level {
        FindingLevel::Ok => Badge::new("ok", "good", "check"),
        FindingLevel::Warn => Badge::new("warning", "wait", "again"),
        FindingLevel::Fail => Badge::new("fails", "bad", "cross"),
    }
}
