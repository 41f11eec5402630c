//! DNS records of a sending domain as its page shows them: purpose, expected value, published value, and the remedy for
//! a difference.

use super::components::Badge;
use crate::domain::dmarc_record::DmarcPolicy;
use crate::domain::dmarc_walk::Discovery;
use crate::domain::sending_domain::{DkimAlgorithm, DkimState, RecordPurpose, RecordStatus};
use crate::domain::spf_record::faulty_term;
use crate::engine::dmarc::report_address;
use crate::engine::domains::{ExpectedRecord, RecordType, dmarc_record_of, expected_records, finding_of};
use crate::engine::settings::Settings;
use crate::store::op::domain::dkim_name;
use crate::store::row::domain::{DkimKeyRow, DomainRow};

/// Maximum number of bytes in one character-string of a TXT record (RFC 1035 3.3).
const STRING_BYTES: usize = 255;

/// A DNS record as the page shows it.
#[derive(Debug)]
pub(super) struct RecordLine {
    /// Status badge.
    pub(super) badge: Badge,
    /// Whether the record is published correctly.
    pub(super) is_ok: bool,
    /// Whether sending requires the record.
    pub(super) is_required: bool,
    /// Name of the record's purpose.
    pub(super) purpose: &'static str,
    /// Benefit of the record.
    pub(super) why: &'static str,
    /// Record type.
    pub(super) kind: &'static str,
    /// Full name of the record.
    pub(super) name: String,
    /// Name relative to the registrant's domain, as the forms of most DNS providers expect it.
    pub(super) relative: String,
    /// Value of the record.
    pub(super) value: String,
    /// Consequence of publishing the record, or an empty string if it only has benefits.
    pub(super) remark: String,
    /// Text to show if no value was found.
    pub(super) none: &'static str,
    /// Published values.
    pub(super) found: Vec<FoundValue>,
    /// Remedy, or an empty string if there is nothing to do.
    pub(super) advice: String,
}

/// A published value, split at the first difference from the expected value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoundValue {
    /// Part that matches the expected value.
    pub(super) same: String,
    /// Rest from the first difference on. Empty if no difference matters.
    pub(super) different: String,
}

/// Returns the records that a domain should publish.
pub(super) fn lines(row: &DomainRow, settings: &Settings) -> Vec<RecordLine> {
    expected_records(row, settings).into_iter().map(|record| line(row, settings, record)).collect()
}

/// Returns the number of records that are published correctly: `3 of 5`. `None` before the first check.
pub(super) fn found(row: &DomainRow, lines: &[RecordLine]) -> Option<String> {
    row.last_checked_at?;
    let found = lines.iter().filter(|line| line.is_ok).count();
    Some(format!("{found} of {}", lines.len()))
}

/// Returns the records as lines of a zone file (RFC 1035 5.1).
pub(super) fn zone_file(lines: &[RecordLine]) -> String {
    let line = |line: &RecordLine| {
        let value = match line.kind {
            kind if kind == RecordType::Txt.as_str() => strings(&line.value),
            _ => format!("{}.", line.value),
        };
        let remark = if line.remark.is_empty() { String::new() } else { format!("; {}\n", line.remark) };
        format!("{remark}{}. 3600 IN {} {value}\n", line.name, line.kind)
    };
    lines.iter().map(line).collect()
}

/// Formats a text as the quoted strings of a TXT record.
fn strings(value: &str) -> String {
    let pieces: Vec<_> = value.as_bytes().chunks(STRING_BYTES).map(String::from_utf8_lossy).collect();
    pieces.iter().map(|piece| format!("\"{}\"", piece.replace('"', "\\\""))).collect::<Vec<_>>().join(" ")
}

fn line(row: &DomainRow, settings: &Settings, record: ExpectedRecord) -> RecordLine {
    let finding = finding_of(row, &record);
    let status = finding.map_or(RecordStatus::Unchecked, |finding| finding.status);
    let found: &[String] = finding.map_or(&[], |finding| &finding.found);
    let (purpose, why) = words(row, &record);
    let badge = match status {
        RecordStatus::Ok => Badge::new("found", "good", "check"),
        RecordStatus::Missing => Badge::new("missing", if record.required { "bad" } else { "wait" }, "cross"),
        RecordStatus::Mismatch => Badge::new("different", if record.required { "bad" } else { "wait" }, "warn"),
        RecordStatus::Unchecked => Badge::new("not checked", "calm", "clock"),
    };
    let none = match (status, finding) {
        (RecordStatus::Unchecked, None) => "Not checked",
        (RecordStatus::Unchecked, Some(_)) => "Lookup failed",
        (RecordStatus::Ok | RecordStatus::Missing | RecordStatus::Mismatch, _) => "Nothing found",
    };
    RecordLine {
        badge,
        is_ok: status == RecordStatus::Ok,
        none,
        is_required: record.required,
        purpose,
        why,
        kind: record.kind.as_str(),
        relative: relative(&record.name, row.name.registrant_domain()),
        remark: match record.purpose {
            RecordPurpose::Dmarc => weakened_policy(row, settings),
            RecordPurpose::Dkim | RecordPurpose::ReturnPath | RecordPurpose::Spf => String::new(),
        },
        advice: advice(&record, status, found),
        found: found.iter().map(|text| compared(text, &record.value, status)).collect(),
        name: record.name,
        value: record.value,
    }
}

/// Returns a warning if our DMARC record would weaken the policy that the domain inherits from a parent domain.
fn weakened_policy(row: &DomainRow, settings: &Settings) -> String {
    match dmarc_record_of(row) {
        Discovery::Published(found) if found.is_inherited && found.policy > DmarcPolicy::None => {
            let kept = found.at_own_name();
            let kept = match settings.receives_mail {
                true => kept.with_report_address(&report_address(&row.name)),
                false => kept,
            };
            format!(
                "The record at {} protects this domain with p={}, and this record would weaken that to p=none. \
                 To keep the policy, publish: {kept}",
                found.at, found.policy
            )
        }
        Discovery::Published(_) | Discovery::Absent | Discovery::Invalid(_) | Discovery::Unknown => String::new(),
    }
}

fn words(row: &DomainRow, record: &ExpectedRecord) -> (&'static str, &'static str) {
    match record.purpose {
        RecordPurpose::Dkim => {
            let of = |key: &&DkimKeyRow| dkim_name(row, &key.selector) == record.name;
            match row.dkim.iter().find(of).map(|key| (key.algorithm, key.state)) {
                Some((_, DkimState::Retiring)) => ("DKIM, retiring", "For mail in transit; delete after 7 days."),
                Some((_, DkimState::Standby)) => {
                    ("DKIM, standby", "Used after the next rotation, or if the active key's record is lost.")
                }
                Some((DkimAlgorithm::Ed25519Sha256, _)) => {
                    ("DKIM, Ed25519", "A second signature, with a newer algorithm.")
                }
                Some((DkimAlgorithm::RsaSha256, _)) | None => ("DKIM, RSA", "Proves the mail is yours and unchanged."),
            }
        }
        RecordPurpose::ReturnPath => {
            ("Return path", "Bounces come back to this server, and SPF passes for your domain.")
        }
        RecordPurpose::Spf => ("SPF", "Servers allowed to send."),
        RecordPurpose::Dmarc => ("DMARC", "Policy for unauthenticated mail."),
    }
}

/// Returns a record name without the domain of its zone.
fn relative(name: &str, domain: &str) -> String {
    match name.strip_suffix(domain) {
        Some("") => "@".to_owned(),
        Some(before) => before.strip_suffix('.').unwrap_or(name).to_owned(),
        None => name.to_owned(),
    }
}

/// Splits a published value at its first difference from the expected value.
fn compared(found: &str, value: &str, status: RecordStatus) -> FoundValue {
    let same = match status {
        RecordStatus::Mismatch => {
            let both = found.char_indices().zip(value.chars());
            both.into_iter()
                .find(|((_, ours), theirs)| ours != theirs)
                .map_or(value.len().min(found.len()), |((at, _), _)| at)
        }
        RecordStatus::Ok | RecordStatus::Missing | RecordStatus::Unchecked => found.len(),
    };
    let (same, different) = found.split_at(found.floor_char_boundary(same));
    FoundValue { same: same.to_owned(), different: different.to_owned() }
}

fn advice(record: &ExpectedRecord, status: RecordStatus, found: &[String]) -> String {
    match (status, record.purpose) {
        (RecordStatus::Ok | RecordStatus::Unchecked, _) => String::new(),
        (RecordStatus::Missing, _) => "Not published or not propagated (up to an hour).".to_owned(),
        (RecordStatus::Mismatch, RecordPurpose::Spf) => match found {
            [one] => match faulty_term(one) {
                Some(term) => format!("Receivers ignore the record, because the term {term} is an error."),
                None => format!("Merge into one SPF record: {}", joined_spf(one, &record.value)),
            },
            _ => "Several SPF records: keep one.".to_owned(),
        },
        (RecordStatus::Mismatch, RecordPurpose::Dkim) if found.len() > 1 => {
            "Several records: keep this one.".to_owned()
        }
        (RecordStatus::Mismatch, RecordPurpose::Dkim) => "Different key; maybe cut off. Replace it.".to_owned(),
        (RecordStatus::Mismatch, RecordPurpose::ReturnPath) => {
            "Points elsewhere; set the value shown, no proxy.".to_owned()
        }
        (RecordStatus::Mismatch, RecordPurpose::Dmarc) if found.len() > 1 => "Several records: keep one.".to_owned(),
        (RecordStatus::Mismatch, RecordPurpose::Dmarc) => "Invalid; replace it.".to_owned(),
    }
}

/// Adds our mechanism to the published SPF record, before its final `all` or `redirect` (RFC 7208 5.1).
fn joined_spf(found: &str, ours: &str) -> String {
    let mechanism = ours.split_ascii_whitespace().nth(1).unwrap_or_default();
    let mut terms: Vec<_> = found.split_ascii_whitespace().collect();
    let is_all = |term: &&str| term.trim_start_matches(['+', '-', '~', '?']).eq_ignore_ascii_case("all");
    let place = terms.iter().position(is_all).unwrap_or(terms.len());
    terms.insert(place, mechanism);
    terms.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_marked_from_its_first_character() {
        let parts = |found: &str, value: &str| {
            let FoundValue { same, different } = compared(found, value, RecordStatus::Mismatch);
            (same, different)
        };
        assert_eq!(parts("v=DKIM1; p=abX", "v=DKIM1; p=abc"), ("v=DKIM1; p=ab".to_owned(), "X".to_owned()));
        assert_eq!(parts("short", "shorter"), ("short".to_owned(), String::new()));
        assert_eq!(parts("longer é", "longer"), ("longer".to_owned(), " é".to_owned()));
        assert_eq!(parts("é", "e"), (String::new(), "é".to_owned()));
    }

    #[test]
    fn our_mechanism_is_added_to_an_existing_spf_record() {
        let ours = "v=spf1 a:mail.example.com ~all";
        assert_eq!(joined_spf("v=spf1 mx -all", ours), "v=spf1 mx a:mail.example.com -all");
        assert_eq!(joined_spf("v=spf1 mx redirect=x.test", ours), "v=spf1 mx redirect=x.test a:mail.example.com");
    }

    #[test]
    fn record_names_are_shown_without_the_domain_too() {
        assert_eq!(relative("s._domainkey.example.com", "example.com"), "s._domainkey");
        assert_eq!(relative("example.com", "example.com"), "@");
        assert_eq!(relative("bounces.example.net", "example.com"), "bounces.example.net");
        assert_eq!(relative("bounces.an-example.com", "example.com"), "bounces.an-example.com");
    }

    #[test]
    fn a_long_text_is_split_into_strings() {
        let text = strings(&"a".repeat(300));
        assert_eq!(text, format!("\"{}\" \"{}\"", "a".repeat(255), "a".repeat(45)));
    }
}
