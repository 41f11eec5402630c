//! Evaluation of a sending domain's DNS records: compares expected with found values.

use super::domains::{ExpectedRecord, RecordType};
use super::ports::{LookupFailure, Resolve};
use crate::domain::dmarc_record::DmarcRecord;
use crate::domain::sending_domain::{RecordPurpose, RecordStatus};
use crate::store::row::domain::Finding;

/// Looks up a record without the cache, and evaluates the result. `host` is this server's name.
pub(super) async fn find(resolver: &dyn Resolve, record: ExpectedRecord, host: &str) -> Finding {
    let answer = match record.kind {
        RecordType::Txt => resolver.txt_now(&record.name).await,
        RecordType::Cname => resolver.cname_now(&record.name).await.map(|target| vec![target]),
    };
    let (status, found) = match answer {
        Ok(found) => judge(&record, found, host),
        Err(LookupFailure::Absent) => (RecordStatus::Missing, Vec::new()),
        Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => (RecordStatus::Unchecked, Vec::new()),
    };
    Finding { purpose: record.purpose, name: record.name, status, found }
}

/// Evaluates the values at a record's name. Selects those that concern the record, because a name may have unrelated
/// TXT records.
fn judge(record: &ExpectedRecord, mut found: Vec<String>, host: &str) -> (RecordStatus, Vec<String>) {
    let is_ok: Box<dyn Fn(&String) -> bool> = match record.purpose {
        RecordPurpose::Dkim => {
            let wanted = public_key(&record.value);
            Box::new(move |text| wanted.is_some() && public_key(text) == wanted)
        }
        RecordPurpose::ReturnPath => Box::new(|target| same_host(target, &record.value)),
        RecordPurpose::Spf => {
            found.retain(|text| begins_with_word(text, "v=spf1"));
            Box::new(|text| names_host(text, host))
        }
        RecordPurpose::Dmarc => {
            found.retain(|text| DmarcRecord::is_claimed_by(text));
            Box::new(|_| true)
        }
    };
    let status = match found.as_slice() {
        [] => RecordStatus::Missing,
        _ if found.iter().any(&*is_ok) => RecordStatus::Ok,
        _ => RecordStatus::Mismatch,
    };
    drop(is_ok);
    (status, found)
}

/// Returns the `p=` of a key record (RFC 6376 3.6.1), without white space.
fn public_key(record: &str) -> Option<String> {
    let tags = record.split(';').filter_map(|tag| tag.split_once('='));
    let key = tags.into_iter().find(|(name, _)| name.trim() == "p").map(|(_, value)| value)?;
    let key: String = key.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    // An empty value means that the key was revoked.
    (!key.is_empty()).then_some(key)
}

pub(super) fn begins_with_word(text: &str, word: &str) -> bool {
    let text = text.trim_start();
    let Some((head, rest)) = text.split_at_checked(word.len()) else { return false };
    head.eq_ignore_ascii_case(word) && !rest.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Returns whether an SPF record has a mechanism with our host name (RFC 7208 5).
pub(super) fn names_host(record: &str, host: &str) -> bool {
    record.split_ascii_whitespace().skip(1).any(|term| {
        let Some((mechanism, target)) = term.split_once(':') else { return false };
        let target = target.split('/').next().unwrap_or_default();
        ["a", "+a", "include", "+include"].iter().any(|name| mechanism.eq_ignore_ascii_case(name))
            && same_host(target, host)
    })
}

fn same_host(found: &str, wanted: &str) -> bool {
    let bare = |name: &str| name.trim().trim_end_matches('.').to_ascii_lowercase();
    bare(found) == bare(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(purpose: RecordPurpose, value: &str) -> ExpectedRecord {
        ExpectedRecord { purpose, kind: RecordType::Txt, name: String::new(), value: value.to_owned(), required: false }
    }

    fn status(purpose: RecordPurpose, value: &str, found: &[&str]) -> RecordStatus {
        let found = found.iter().map(|text| (*text).to_owned()).collect();
        judge(&expected(purpose, value), found, "mail.example.com").0
    }

    #[test]
    fn a_key_record_is_compared_by_its_key_regardless_of_spaces_and_order() {
        let value = "v=DKIM1; k=rsa; p=AbCd";
        let judged = |found: &[&str]| status(RecordPurpose::Dkim, value, found);
        assert_eq!(judged(&["p=Ab Cd;k=rsa ; v=DKIM1"]), RecordStatus::Ok);
        assert_eq!(judged(&["unrelated", "v=DKIM1; k=rsa; p=AbCd"]), RecordStatus::Ok);
        assert_eq!(judged(&["v=DKIM1; k=rsa; p=abcd"]), RecordStatus::Mismatch);
        assert_eq!(judged(&["v=DKIM1; p="]), RecordStatus::Mismatch);
        assert_eq!(judged(&[]), RecordStatus::Missing);
    }

    #[test]
    fn spf_must_name_our_host_and_dmarc_must_exist() {
        let spf = |found: &[&str]| status(RecordPurpose::Spf, "v=spf1 a:mail.example.com ~all", found);
        assert_eq!(spf(&["v=spf1 mx a:Mail.Example.com. -all"]), RecordStatus::Ok);
        assert_eq!(spf(&["v=spf1 include:mail.example.com -all"]), RecordStatus::Ok);
        assert_eq!(spf(&["v=spf1 -a:mail.example.com -all"]), RecordStatus::Mismatch);
        assert_eq!(spf(&["google-site-verification=x"]), RecordStatus::Missing);
        let dmarc = |found: &[&str]| status(RecordPurpose::Dmarc, "v=DMARC1; p=none", found);
        assert_eq!(dmarc(&["v=DMARC1;p=reject"]), RecordStatus::Ok);
        assert_eq!(dmarc(&["v=DMARC12"]), RecordStatus::Missing);
    }
}
