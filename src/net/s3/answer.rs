//! Answers of an S3 service: the kinds of errors, and which of them leave the outcome of a call unknown.

use super::xml;
use crate::base::time::Timestamp;
use crate::engine::ports::BucketErrorKind;

/// Maximum number of characters of the service's message in an error.
const WORDS_MAX: usize = 300;

/// An answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// The service's error code, such as `SlowDown`; empty if there is none.
    pub(super) code: String,
    message: String,
    request: String,
}

impl Refusal {
    /// Parses the body of an error answer. `request` is the service's request ID.
    pub(super) fn read(status: u16, body: &[u8], request: &str) -> Self {
        let body = String::from_utf8_lossy(body);
        let word = |name| xml::text(&body, name).map(|text| plain(&text)).unwrap_or_default();
        Self { status, code: word("Code"), message: word("Message"), request: plain(request) }
    }

    /// Returns the kind of error, which decides what to do about it.
    pub(super) fn kind(&self) -> BucketErrorKind {
        match (self.status, self.code.as_str()) {
            (_, "SlowDown" | "Throttling" | "TooManyRequests" | "RequestLimitExceeded" | "ServiceUnavailable")
            | (429 | 503, _) => BucketErrorKind::Throttled,
            // Expired temporary credentials are a 400.
            (401 | 403, _) | (400, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
                BucketErrorKind::Forbidden
            }
            (409, _) => BucketErrorKind::Conflict,
            // The body did not arrive in time. The code distinguishes the kinds of 400.
            (408, _) | (400, "RequestTimeout" | "IncompleteBody") => BucketErrorKind::Unknown,
            (501, _) => BucketErrorKind::Unsupported,
            (500.., _) => BucketErrorKind::Unknown,
            (_, _) => BucketErrorKind::Refused,
        }
    }

    /// Formats the error for messages and the log.
    pub(super) fn words(&self) -> String {
        let mut words = format!("the bucket answered {}", self.status);
        if !self.code.is_empty() {
            words = format!("{words} {}", self.code);
        }
        if !self.message.is_empty() {
            words = format!("{words}: {}", self.message);
        }
        if !self.request.is_empty() {
            words = format!("{words} (request {})", self.request);
        }
        words
    }
}

/// Converts the service's text to one line of limited length.
fn plain(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).take(WORDS_MAX).collect()
}

/// Parses a `Date` header (RFC 9110 5.6.7, IMF-fixdate).
pub(super) fn date(header: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, rest) = header.split_once(", ")?;
    let words: Vec<_> = rest.split(' ').take(6).collect();
    let [day, month, year, time, "GMT"] = words.as_slice() else { return None };
    let month = MONTHS.iter().position(|known| known == month)? + 1;
    format!("{year}-{month:02}-{day}T{time}+00:00").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(status: u16, code: &str) -> BucketErrorKind {
        let body = format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
        Refusal::read(status, body.as_bytes(), "").kind()
    }

    #[test]
    fn the_error_kind_follows_from_status_and_code() {
        for (status, code, expected) in [
            (403, "AccessDenied", BucketErrorKind::Forbidden),
            (403, "RequestTimeTooSkewed", BucketErrorKind::Forbidden),
            (401, "", BucketErrorKind::Forbidden),
            (400, "ExpiredToken", BucketErrorKind::Forbidden),
            (409, "ConditionalRequestConflict", BucketErrorKind::Conflict),
            (409, "OperationAborted", BucketErrorKind::Conflict),
            (429, "TooManyRequests", BucketErrorKind::Throttled),
            (503, "SlowDown", BucketErrorKind::Throttled),
            (503, "", BucketErrorKind::Throttled),
            (400, "SlowDown", BucketErrorKind::Throttled),
            (500, "InternalError", BucketErrorKind::Unknown),
            (502, "", BucketErrorKind::Unknown),
            (504, "", BucketErrorKind::Unknown),
            (400, "RequestTimeout", BucketErrorKind::Unknown),
            (501, "NotImplemented", BucketErrorKind::Unsupported),
            (404, "NoSuchBucket", BucketErrorKind::Refused),
            (400, "InvalidArgument", BucketErrorKind::Refused),
            (301, "PermanentRedirect", BucketErrorKind::Refused),
        ] {
            assert_eq!(kind(status, code), expected, "{status} {code}");
        }
    }

    #[test]
    fn an_error_has_the_service_s_message_in_one_bounded_line() {
        let body = format!("<Error><Code>AccessDenied</Code><Message>No\n{}</Message></Error>", "x".repeat(1000));
        let words = Refusal::read(403, body.as_bytes(), "R1").words();
        assert!(words.starts_with("the bucket answered 403 AccessDenied: No xxx"), "{words}");
        assert!(words.ends_with("x (request R1)") && words.len() < 400 && !words.contains('\n'));
        assert_eq!(Refusal::read(502, b"<html>Bad gateway", "").words(), "the bucket answered 502");
        assert_eq!(Refusal::read(500, &[0xff, b'<'], "").words(), "the bucket answered 500");
    }

    #[test]
    fn a_date_header_is_parsed() {
        let at = date("Tue, 14 Nov 2023 22:13:20 GMT").unwrap();
        assert_eq!(at.as_millis(), 1_700_000_000_000);
        for strange in
            ["", "Tue, 14 Nov 2023 22:13:20", "Tuesday, 14-Nov-23 22:13:20 GMT", "Tue, 99 Nov 2023 22:13:20 GMT"]
        {
            assert_eq!(date(strange), None, "{strange}");
        }
    }
}
