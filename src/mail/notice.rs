//! A mail of the service itself, such as an alert: its header and text. It does not belong to an account.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::field::{self, EncodedWordMeaning};
use crate::base::time::Timestamp;
use crate::domain::address::Address;

/// Number of base64 bytes per line.
const LINE_BYTES: usize = 76;
/// Maximum length of a line of text in bytes (RFC 5322 2.1.1).
const TEXT_LINE_BYTES_MAX: usize = 900;

/// A mail of the service.
#[derive(Debug, Clone, Copy)]
pub struct Notice<'a> {
    /// The sender.
    pub from: &'a Address,
    /// The recipient.
    pub to: &'a Address,
    /// The subject.
    pub subject: &'a str,
    /// The Message-ID, without angle brackets.
    pub message_id: &'a str,
    /// The time of the Date header.
    pub at: Timestamp,
    /// Identifiers of the reported alerts.
    pub alerts: &'a [String],
    /// The text, with LF line ends.
    pub text: &'a str,
}

impl Notice<'_> {
    /// Returns the message without a signature.
    pub fn message(&self) -> Vec<u8> {
        let mut out = Vec::new();
        field::mailbox(&mut out, "From", Some("Postrider"), &self.from.to_wire());
        field::mailbox(&mut out, "To", None, &self.to.to_wire());
        field::unstructured(&mut out, "Subject", self.subject, EncodedWordMeaning::Literal);
        field::plain(&mut out, "Date", &self.at.to_rfc5322());
        field::plain(&mut out, "Message-ID", &format!("<{}>", self.message_id));
        // RFC 3834 5: vacation programs do not answer a message with this field.
        field::plain(&mut out, "Auto-Submitted", "auto-generated");
        if !self.alerts.is_empty() {
            field::unstructured(&mut out, "X-Postrider-Alert", &self.alerts.join(", "), EncodedWordMeaning::Callers);
        }
        field::plain(&mut out, "MIME-Version", "1.0");
        field::plain(&mut out, "Content-Type", "text/plain; charset=utf-8");
        let is_plain = self.text.is_ascii() && self.text.lines().all(|line| line.len() <= TEXT_LINE_BYTES_MAX);
        let encoding = if is_plain { "7bit" } else { "base64" };
        field::plain(&mut out, "Content-Transfer-Encoding", encoding);
        out.extend_from_slice(b"\r\n");
        let text = self.text.lines().fold(String::new(), |text, line| text + line + "\r\n");
        if is_plain {
            out.extend_from_slice(text.as_bytes());
        } else {
            for line in STANDARD.encode(text).as_bytes().chunks(LINE_BYTES) {
                out.extend_from_slice(line);
                out.extend_from_slice(b"\r\n");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(subject: &str, text: &str, alerts: &[String]) -> String {
        let (from, to) = ("alerts@bounces.example.com".parse().unwrap(), "ops@example.net".parse().unwrap());
        let at = Timestamp::from_millis(1_700_000_000_000);
        let notice = Notice { from: &from, to: &to, subject, message_id: "ntc_1@x.example", at, alerts, text };
        String::from_utf8(notice.message()).unwrap()
    }

    #[test]
    fn a_notice_is_a_plain_mail_that_suppresses_automatic_replies() {
        let alerts: Vec<_> = (0..40).map(|number| format!("alr_{number:026}")).collect();
        let message = message("[mail.example.com] CRITICAL: a relay fails", "One.\n.Two.\n", &alerts);
        let (head, body) = message.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "One.\r\n.Two.\r\n");
        for line in [
            "From: \"Postrider\" <alerts@bounces.example.com>",
            "To: ops@example.net",
            "Subject: [mail.example.com] CRITICAL: a relay fails",
            "Auto-Submitted: auto-generated",
            "Message-ID: <ntc_1@x.example>",
            "Content-Transfer-Encoding: 7bit",
        ] {
            assert!(head.lines().any(|known| known == line), "{line} in {head}");
        }
        assert!(head.lines().all(|line| line.len() < 80), "{head}");
        assert!(head.replace("\r\n ", " ").contains(&format!("X-Postrider-Alert: {}", alerts.join(", "))));
    }

    #[test]
    fn non_ascii_text_is_encoded() {
        let message = message("Grüße", "Grüße\n", &[]);
        assert!(message.contains("Subject: =?") && message.is_ascii(), "{message}");
        assert!(message.ends_with("Content-Transfer-Encoding: base64\r\n\r\nR3LDvMOfZQ0K\r\n"), "{message}");
        assert!(!message.contains("X-Postrider-Alert"));
    }
}
