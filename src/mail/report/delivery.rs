//! Delivery status notifications (RFC 3464, RFC 6533): the fields of a `message/delivery-status` part, per message and
//! per recipient.

use super::super::section::{self, Field};
use super::{Diagnostic, FIELD_BYTES_MAX, RECIPIENTS_MAX, ReturnedHeader, address, text};
use crate::domain::enhanced_code::EnhancedCode;

/// Maximum number of bytes read of a status part: a hundred recipients with long diagnostics.
pub(super) const STATUS_BYTES_MAX: usize = 256 * 1024;

/// A delivery status notification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryReport {
    /// The name of the reporting server, without its type (RFC 3464 2.2.2).
    pub reporting_mta: Option<String>,
    /// One report per recipient: at least one, at most [`RECIPIENTS_MAX`].
    pub recipients: Vec<RecipientReport>,
    /// The returned part of the message.
    pub returned: ReturnedHeader,
}

impl DeliveryReport {
    /// Fills in missing fields from the human-readable text. OpenSMTPD writes a line `address: answer` per recipient
    /// there, and no Diagnostic-Code.
    pub(super) fn learn_from(&mut self, words: &str) {
        for recipient in &mut self.recipients {
            let Some(address) = &recipient.final_recipient else { continue };
            let answer = |line: &str| {
                let rest = line.trim().strip_prefix(address.as_str())?;
                Diagnostic::quoted(rest.strip_prefix(": ")?)
            };
            recipient.diagnostic = recipient.diagnostic.take().or_else(|| words.lines().find_map(answer));
        }
    }
}

/// Report for one recipient (RFC 3464 2.3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecipientReport {
    /// The address that the reporting server tried, decoded, without the type if that is `rfc822` or `utf-8`. An
    /// address of another type keeps it (`x400; /C=de/`). Absent if the report omits this required field.
    pub final_recipient: Option<String>,
    /// The address that the sender used, in the same form as `final_recipient`.
    pub original_recipient: Option<String>,
    /// Action of the server.
    pub action: Action,
    /// The reason as a code.
    pub status: Option<EnhancedCode>,
    /// The reason in the words of the refusing server.
    pub diagnostic: Option<Diagnostic>,
    /// The name of the refusing server, without its type.
    pub remote_mta: Option<String>,
    /// The end of the retries of a delayed message, as written in the report.
    pub will_retry_until: Option<String>,
}

/// Action of the reporting server (RFC 3464 2.3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The server gave up.
    Failed,
    /// The server could not deliver yet and continues to try.
    Delayed,
    /// The server delivered to the recipient's mailbox.
    Delivered,
    /// The server passed the message to a server that does not report.
    Relayed,
    /// The server delivered to several addresses that the recipient's stands for.
    Expanded,
}

/// Parses the fields of `status`, which has CRLF line ends; `None` if no recipient has an action.
pub(super) fn read(status: &[u8], returned: ReturnedHeader) -> Option<DeliveryReport> {
    let mut reporting_mta = None;
    let mut recipients = Vec::new();
    let mut rest = status;
    while !rest.is_empty() && recipients.len() < RECIPIENTS_MAX {
        if let Some(after) = rest.strip_prefix(b"\r\n") {
            rest = after;
            continue;
        }
        let (fields, after) = section::split(rest);
        rest = after;
        let server = || text::server_name(&text::value_of(&fields, "Reporting-MTA")?);
        reporting_mta = reporting_mta.or_else(server);
        recipients.extend(groups(&fields).filter_map(recipient));
    }
    recipients.truncate(RECIPIENTS_MAX);
    (!recipients.is_empty()).then_some(DeliveryReport { reporting_mta, recipients, returned })
}

/// Groups the fields by recipient. By the standard each block has one recipient (RFC 3464 2.1). If the empty lines
/// between them are missing, each Final-Recipient after the first starts a new group.
fn groups<'f, 'm>(fields: &'f [Field<'m>]) -> impl Iterator<Item = &'f [Field<'m>]> {
    let mut has_recipient = false;
    fields.chunk_by(move |_, next| {
        let is_recipient = next.is("Final-Recipient");
        let begins = is_recipient && has_recipient;
        has_recipient |= is_recipient;
        !begins
    })
}

fn recipient(fields: &[Field<'_>]) -> Option<RecipientReport> {
    let value = |name: &str| text::value_of(fields, name);
    Some(RecipientReport {
        final_recipient: value("Final-Recipient").and_then(|value| address::final_recipient(&value)),
        original_recipient: value("Original-Recipient").and_then(|value| address::original_recipient(&value)),
        action: action(fields)?,
        status: value("Status").and_then(|value| status(&value)),
        diagnostic: text::first(fields, "Diagnostic-Code").and_then(Diagnostic::read),
        remote_mta: value("Remote-MTA").and_then(|value| text::server_name(&value)),
        will_retry_until: value("Will-Retry-Until").and_then(|value| text::filled(&value, FIELD_BYTES_MAX)),
    })
}

/// Returns the action of a recipient; `None` if there are two different ones.
fn action(fields: &[Field<'_>]) -> Option<Action> {
    let mut named = fields.iter().filter(|field| field.is("Action")).map(|field| {
        let value = text::without_comments(&text::unfolded(field));
        match value.to_ascii_lowercase().as_str() {
            "failed" => Some(Action::Failed),
            "delayed" => Some(Action::Delayed),
            "delivered" => Some(Action::Delivered),
            "relayed" => Some(Action::Relayed),
            "expanded" => Some(Action::Expanded),
            _ => None,
        }
    });
    let first = named.next()??;
    named.all(|other| other == Some(first)).then_some(first)
}

fn status(value: &str) -> Option<EnhancedCode> {
    EnhancedCode::split_from(&text::without_comments(value)).map(|(code, _)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(status: &str) -> Option<DeliveryReport> {
        read(status.replace('\n', "\r\n").as_bytes(), ReturnedHeader::default())
    }

    #[test]
    fn separates_blocks_without_empty_lines_between_them() {
        let report = report(
            "Reporting-MTA: dns; a.example\nFinal-Recipient: rfc822; a@b.example\nAction: failed\nStatus: 5.1.1\n\
             Final-Recipient: rfc822; c@d.example\nAction: delayed\nStatus: 4.0.0\n",
        );
        let found: Vec<_> = report.unwrap().recipients.into_iter().map(|r| (r.final_recipient, r.action)).collect();
        let address = |text: &str| Some(text.to_owned());
        assert_eq!(found, [(address("a@b.example"), Action::Failed), (address("c@d.example"), Action::Delayed)]);
    }

    #[test]
    fn parses_actions_and_statuses_with_comments_in_any_case() {
        for (action, status, expected) in [
            ("FAILED", "5.1.1", Some((Action::Failed, Some((5, 1, 1))))),
            ("(oh) delayed (4 h)", "4.4.1 (timed out)", Some((Action::Delayed, Some((4, 4, 1))))),
            ("\n delivered", "\n 2.0.0", Some((Action::Delivered, Some((2, 0, 0))))),
            ("relayed", "2.5", Some((Action::Relayed, None))),
            ("Expanded", "", Some((Action::Expanded, None))),
            ("failed", "5.1.1 smtp; 550", Some((Action::Failed, Some((5, 1, 1))))),
            ("failed\nAction: FAILED", "5.1.1", Some((Action::Failed, Some((5, 1, 1))))),
            ("failed\nAction: delivered", "5.1.1", None),
            ("failure", "5.1.1", None),
            ("", "5.1.1", None),
        ] {
            let report = report(&format!("Final-Recipient: rfc822; a@b.example\nAction: {action}\nStatus: {status}\n"));
            let found = report.map(|report| (report.recipients[0].action, report.recipients[0].status));
            let expected =
                expected.map(|(action, status)| (action, status.map(|(a, b, c)| EnhancedCode::new(a, b, c))));
            assert_eq!(found, expected, "{action:?} {status:?}");
        }
    }

    #[test]
    fn parses_recipients_up_to_the_limit() {
        let one = "Final-Recipient: rfc822; a@b.example\nAction: failed\n";
        for many in [format!("{one}\n").repeat(150), one.repeat(150)] {
            assert_eq!(report(&many).unwrap().recipients.len(), RECIPIENTS_MAX);
        }
    }
}
