//! A TLS report (RFC 8460): the TLS results of a day's sessions with one domain, as JSON (4) and as a message (5.3).
//!
//! The engine fills it from its counts. The same report always gives the same bytes, so that receivers can recognise a
//! repeated one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::field;
use crate::base::time::{Timestamp, iso};
use crate::domain::address::Address;
use crate::domain::hostname::DomainName;

/// The media type of the JSON (RFC 8460 6.4).
pub const MEDIA_TYPE: &str = "application/tlsrpt+json";
/// Number of base64 bytes per line.
const LINE_BYTES: usize = 76;

/// A report.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TlsReport {
    /// Name of the reporting organization.
    pub organization_name: String,
    /// The day.
    pub date_range: DateRange,
    /// Contact for questions.
    pub contact_info: String,
    /// Unique identifier of the report.
    pub report_id: String,
    /// Counts by policy.
    pub policies: Vec<PolicyReport>,
}

/// Range of time in which sessions were counted.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct DateRange {
    /// The first second.
    #[serde(serialize_with = "iso::serialize")]
    pub start_datetime: Timestamp,
    /// The last second.
    #[serde(serialize_with = "iso::serialize")]
    pub end_datetime: Timestamp,
}

/// Counts under one policy.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PolicyReport {
    /// The policy.
    pub policy: Policy,
    /// Number of sessions.
    pub summary: Summary,
    /// Reasons of failed sessions.
    pub failure_details: Vec<Failure>,
}

/// An applied policy.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Policy {
    /// `tlsa`, `sts` or `no-policy-found`.
    pub policy_type: &'static str,
    /// The policy's text, line by line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policy_string: Vec<String>,
    /// Domain of the policy.
    pub policy_domain: String,
    /// The server names in the policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mx_host: Vec<String>,
}

/// Number of sessions by result.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    /// Number of sessions that met the policy.
    pub total_successful_session_count: u64,
    /// Number of sessions that did not meet the policy.
    pub total_failure_session_count: u64,
}

/// Failures of one kind with one server.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Failure {
    /// Result type (RFC 8460 4.3).
    pub result_type: &'static str,
    /// The server; `None` if the policy itself failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiving_mx_hostname: Option<String>,
    /// Number of failed sessions.
    pub failed_session_count: u64,
}

/// Sender, recipient and subject of a report.
#[derive(Debug, Clone, Copy)]
pub struct Route<'a> {
    /// The sender.
    pub from: &'a Address,
    /// The recipient, as requested by the domain.
    pub to: &'a Address,
    /// The domain of the report.
    pub domain: &'a DomainName,
    /// Domain of the reporter.
    pub submitter: &'a str,
}

impl TlsReport {
    /// Returns the JSON.
    pub fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_else(|error| unreachable!("a report is plain JSON: {error}"))
    }

    /// Returns the message with the report, without the fields common to all messages. A report about broken TLS must
    /// arrive despite broken TLS (RFC 8460 3). Its `TLS-Required` field asks every server on the way for that (RFC 8689
    /// 5).
    pub fn message(&self, route: Route<'_>) -> Vec<u8> {
        let Route { from, to, domain, submitter } = route;
        let id = &self.report_id;
        let mut out = Vec::new();
        field::mailbox(&mut out, "From", None, &from.to_wire());
        field::mailbox(&mut out, "To", None, &to.to_wire());
        let head = format!(
            "Subject: Report Domain: {domain}\r\n Submitter: {submitter}\r\n Report-ID: <{id}>\r\n\
             TLS-Report-Domain: {domain}\r\nTLS-Report-Submitter: {submitter}\r\nTLS-Required: No\r\n\
             Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n\
             Content-Type: multipart/report; report-type=\"tlsrpt\"; boundary=\"=_tlsrpt\"\r\n\r\n\
             --=_tlsrpt\r\nContent-Type: text/plain; charset=us-ascii\r\n\r\n\
             This is an aggregate TLS report from {submitter}\r\nabout its connections to {domain}.\r\n\r\n"
        );
        out.extend_from_slice(head.as_bytes());
        let DateRange { start_datetime, end_datetime } = self.date_range;
        let (start, end) = (start_datetime.as_secs(), end_datetime.as_secs());
        let file = format!(
            "--=_tlsrpt\r\nContent-Type: {MEDIA_TYPE}\r\nContent-Transfer-Encoding: base64\r\n\
             Content-Disposition: attachment;\r\n filename=\"{submitter}!{domain}!{start}!{end}.json\"\r\n\r\n"
        );
        out.extend_from_slice(file.as_bytes());
        for line in STANDARD.encode(self.json()).as_bytes().chunks(LINE_BYTES) {
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"--=_tlsrpt--\r\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail_parser::{MessageParser, MimeHeaders, PartType};
    use serde_json::{Value, json};

    fn report() -> TlsReport {
        let (start_datetime, end_datetime) =
            (Timestamp::from_millis(1_700_006_400_000), Timestamp::from_millis(1_700_092_799_000));
        let policy = Policy {
            policy_type: "sts",
            policy_string: vec!["version: STSv1".to_owned(), "mx: *.example.net".to_owned()],
            policy_domain: "example.net".to_owned(),
            mx_host: vec!["*.example.net".to_owned()],
        };
        let failure = Failure {
            result_type: "certificate-expired",
            receiving_mx_hostname: Some("mx.example.net".to_owned()),
            failed_session_count: 2,
        };
        let summary = Summary { total_successful_session_count: 5, total_failure_session_count: 2 };
        TlsReport {
            organization_name: "mail.example.com".to_owned(),
            date_range: DateRange { start_datetime, end_datetime },
            contact_info: "tls@example.com".to_owned(),
            report_id: "2023-11-15.00@mail.example.com".to_owned(),
            policies: vec![PolicyReport { policy, summary, failure_details: vec![failure] }],
        }
    }

    fn message(domain: &str, submitter: &str) -> Vec<u8> {
        let (from, to) = ("tls@example.com".parse().unwrap(), "reports@example.net".parse().unwrap());
        let domain = domain.parse().unwrap();
        report().message(Route { from: &from, to: &to, domain: &domain, submitter })
    }

    #[test]
    fn the_json_matches_the_rfc() {
        let expected = json!({
            "organization-name": "mail.example.com",
            "date-range": {
                "start-datetime": "2023-11-15T00:00:00.000+00:00", "end-datetime": "2023-11-15T23:59:59.000+00:00",
            },
            "contact-info": "tls@example.com",
            "report-id": "2023-11-15.00@mail.example.com",
            "policies": [{
                "policy": {
                    "policy-type": "sts", "policy-string": ["version: STSv1", "mx: *.example.net"],
                    "policy-domain": "example.net", "mx-host": ["*.example.net"],
                },
                "summary": {"total-successful-session-count": 5, "total-failure-session-count": 2},
                "failure-details": [{
                    "result-type": "certificate-expired", "receiving-mx-hostname": "mx.example.net",
                    "failed-session-count": 2,
                }],
            }],
        });
        assert_eq!(serde_json::from_slice::<Value>(&report().json()).unwrap(), expected);
    }

    #[test]
    fn the_second_part_of_the_message_is_the_json() {
        let bytes = message("example.net", "mail.example.com");
        let parsed = MessageParser::default().parse(&bytes).unwrap();
        let kind = parsed.content_type().unwrap();
        assert_eq!(
            (kind.ctype(), kind.subtype(), kind.attribute("report-type")),
            ("multipart", Some("report"), Some("tlsrpt"))
        );
        let subject =
            "Report Domain: example.net Submitter: mail.example.com Report-ID: <2023-11-15.00@mail.example.com>";
        assert_eq!(parsed.subject(), Some(subject));
        for (name, value) in
            [("TLS-Report-Domain", "example.net"), ("TLS-Report-Submitter", "mail.example.com"), ("TLS-Required", "No")]
        {
            assert_eq!(parsed.header(name).unwrap().as_text(), Some(value));
        }
        let part = parsed.parts.last().unwrap();
        assert_eq!(part.content_type().unwrap().subtype(), Some("tlsrpt+json"));
        assert_eq!(part.attachment_name(), Some("mail.example.com!example.net!1700006400!1700092799.json"));
        let (PartType::Binary(content) | PartType::InlineBinary(content)) = &part.body else { panic!("{part:?}") };
        assert_eq!(content.as_ref(), report().json());
    }

    #[test]
    fn another_library_parses_the_report_from_the_message() {
        let read = mail_auth::report::tlsrpt::TlsReport::parse_rfc5322(&message("example.net", "x.example"), 1 << 20);
        let read = read.unwrap();
        assert_eq!(read.report_id, "2023-11-15.00@mail.example.com");
        assert_eq!(read.date_range.end_datetime.to_rfc3339(), "2023-11-15T23:59:59Z");
        let [policy] = &read.policies[..] else { panic!("{read:?}") };
        assert_eq!(policy.policy.policy_string, ["version: STSv1", "mx: *.example.net"]);
        assert_eq!((policy.summary.total_success, policy.summary.total_failure), (5, 2));
        assert_eq!(policy.failure_details[0].failed_session_count, 2);
    }

    #[test]
    fn long_names_do_not_exceed_the_line_length() {
        let long = [["x".repeat(63).as_str(); 3].join("."), "y".repeat(57)].join(".");
        let bytes = message(&long, &long);
        assert!(
            bytes.split(|byte| *byte == b'\n').all(|line| line.len() <= 998),
            "{}",
            String::from_utf8_lossy(&bytes)
        );
    }
}
