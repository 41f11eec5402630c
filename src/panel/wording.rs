//! Words for people in place of the names that the API uses: categories, alert conditions, and the errors of a form.

use std::borrow::Cow;

use super::components::grouped;
use crate::domain::alert::Condition;

pub(super) use crate::domain::provider_name::provider_name as provider;

/// Refusal of an export of a longer time.
pub(super) const EXPORT_SPAN: &str = "An export covers at most 30 days. Choose a later start or an earlier end.";

/// Returns the words of a response's category: `TLS failure` for `tls_failure`.
pub(super) fn category(name: &str) -> String {
    match name.strip_prefix("tls_") {
        Some(rest) => format!("TLS {}", rest.replace('_', " ")),
        None => capitalized(&name.replace('_', " ")),
    }
}

/// Returns the words of an alert condition, in the middle of a sentence.
pub(super) const fn condition(of: Condition) -> &'static str {
    match of {
        Condition::Port25Blocked => "blocked port 25",
        Condition::ReverseDns => "reverse DNS",
        Condition::Blocklisted => "block lists",
        Condition::CertificateExpiring => "expiring certificates",
        Condition::DiskLow => "low disk space",
        Condition::BackupOld => "old backups",
        Condition::UncleanStop => "unclean stops",
        Condition::QueueStalled => "a stalled queue",
        Condition::RelayFailing => "failing relays",
        Condition::BounceRate => "bounce rates",
        Condition::ComplaintRate => "complaint rates",
        Condition::ProviderBlocking => "providers that block",
        Condition::WebhookDisabled => "disabled webhooks",
        Condition::DomainFailing => "missing DKIM records",
        Condition::DomainRecord => "changed DNS records",
        Condition::Quota => "quotas",
        Condition::DmarcOwnFailing => "failing DMARC",
        Condition::NewSignIn => "new sign-ins",
        Condition::ClockDoubtful => "a doubtful clock",
        Condition::StoreDamaged => "a damaged store",
        Condition::Replica => "replication",
    }
}

/// Returns the errors of a form's field as sentences. An error is a sentence, or its predicate (`must be a string`).
pub(super) fn sentences<'a>(field: &str, errors: impl IntoIterator<Item = &'a String>) -> String {
    errors.into_iter().map(|error| sentence(field, error)).collect::<Vec<_>>().join(" ")
}

/// Returns the errors of a line in a list as sentences. Each error names its column: `email: is required; note: ...`.
pub(super) fn line_sentences(message: &str) -> String {
    let is_column = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let mut errors: Vec<(&str, String)> = Vec::new();
    for part in message.split("; ") {
        match (part.split_once(": ").filter(|(name, _)| is_column(name)), errors.last_mut()) {
            (Some((column, error)), _) => errors.push((column, error.to_owned())),
            (None, Some((_, error))) => *error = format!("{error}; {part}"),
            (None, None) => errors.push(("list", part.to_owned())),
        }
    }
    errors.iter().map(|(column, error)| sentence(column, error)).collect::<Vec<_>>().join(" ")
}

fn sentence(field: &str, error: &str) -> String {
    let subject = subject(field.split('.').next().unwrap_or_default());
    let end = if error.ends_with(['.', '?', '!']) { "" } else { "." };
    match error.split_once([' ', ',']) {
        Some(("is", rest)) if rest.starts_with("required") => format!("{subject} is missing; enter a value{end}"),
        Some(("must", _)) if field == "after" && error.contains("30 days before") => EXPORT_SPAN.to_owned(),
        Some(("must", _)) if matches!(field, "after" | "before") && error.contains("ISO 8601") => {
            format!("{subject} must be a day such as 2026-11-20, or a time such as 2026-11-20T15:04.")
        }
        Some(("must" | "is" | "needs" | "has" | "makes" | "repeats", _)) => format!("{subject} {error}{end}"),
        _ => format!("{}{end}", capitalized(error)),
    }
}

/// Returns the name of a field at the start of a sentence.
fn subject(field: &str) -> Cow<'static, str> {
    let known = match field {
        "after" => "The start of the range",
        "before" => "The end of the range",
        "answer" | "code" | "key" => return format!("The value after \"{field}:\"").into(),
        "message_id_header" => "The Message-ID",
        "to" | "from" | "email" => "The address",
        "body" => "The list",
        "url" => "The URL",
        "scopes" => "The permission list",
        "events" => "Each event type",
        "expires_at" => "The expiry date",
        "dkim_rotation_days" => "Rotate every (days)",
        "content_retention_days" => "The content retention",
        "quota_per_hour" => "The hourly quota",
        "quota_per_day" => "The daily quota",
        other => return format!("The {}", other.replace('_', " ")).into(),
    };
    known.into()
}

/// Returns the name of a check of `postrider doctor` for people.
pub(super) fn check(name: &str) -> String {
    match name {
        "submission" => "SMTP submission, STARTTLS".to_owned(),
        "submissions" => "SMTP submission, TLS".to_owned(),
        "doctor" => "Checks".to_owned(),
        other => capitalized(other),
    }
}

/// Returns the text with a capital at the start, unless its first word is a name such as `mail.example.com`.
pub(super) fn sentence_case(text: &str) -> String {
    let word = text.split(char::is_whitespace).next().unwrap_or_default();
    match word.trim_end_matches(',').bytes().all(|byte| byte.is_ascii_lowercase()) {
        true => capitalized(text),
        false => text.to_owned(),
    }
}

/// Returns the text with a capital at the start.
pub(super) fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// Returns a number with its noun: `1 message`, `2,000 messages`.
pub(super) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// Joins names for a sentence: `a`, `a and b`, `a and 3 other destinations`.
pub(super) fn joined(names: &[&str], others: &str) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [one, two] => format!("{one} and {two}"),
        [one, rest @ ..] => format!("{one} and {} other {others}", rest.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_are_words() {
        assert_eq!(["tls_failure", "invalid_recipient"].map(category), ["TLS failure", "Invalid recipient"]);
    }

    #[test]
    fn checks_and_their_findings_begin_with_a_capital_unless_with_a_name() {
        assert_eq!(["resolver", "DNSSEC", "submissions"].map(check), ["Resolver", "DNSSEC", "SMTP submission, TLS"]);
        for (text, shown) in [
            ("no backup was taken yet", "No backup was taken yet"),
            ("mail.example.com has no address", "mail.example.com has no address"),
            ("192.0.2.1:25 greets", "192.0.2.1:25 greets"),
        ] {
            assert_eq!(sentence_case(text), shown);
        }
    }

    #[test]
    fn errors_are_sentences_that_name_the_field() {
        let of = |field, error: &str| sentences(field, [&error.to_owned()]);
        assert_eq!(of("status", "must be one of queued, failed"), "The status must be one of queued, failed.");
        assert_eq!(of("events.1", "must be one of queued, failed"), "Each event type must be one of queued, failed.");
        assert_eq!(of("name", "is required"), "The name is missing; enter a value.");
        assert_eq!(of("url", "must have a host. Add one."), "The URL must have a host. Add one.");
        assert_eq!(of("email", "the domain is empty"), "The domain is empty.");
        assert!(of("after", "must be an ISO 8601 time").contains("a day such as 2026-11-20, or"));
        assert_eq!(of("after", "must be at most 30 days before before"), EXPORT_SPAN);
    }

    #[test]
    fn errors_of_a_line_name_their_columns() {
        let of_two = line_sentences("email: the domain is empty; reason: must be one of a, b; see the manual");
        assert_eq!(of_two, "The domain is empty. The reason must be one of a, b; see the manual.");
        assert_eq!(line_sentences("must name the columns: email,note"), "The list must name the columns: email,note.");
    }

    #[test]
    fn numbers_and_names_are_joined_with_their_nouns() {
        assert_eq!((counted(1, "day", "days"), counted(2_000, "day", "days")), ("1 day".into(), "2,000 days".into()));
        assert_eq!(joined(&["a", "b"], "sites"), "a and b");
        assert_eq!(joined(&["a", "b", "c"], "sites"), "a and 2 other sites");
    }
}
