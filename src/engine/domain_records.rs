//! Evaluation of a sending domain's DNS records: compares expected with found values.

use super::domains::{ExpectedRecord, RecordType};
use super::ports::{LookupFailure, Resolve};
use crate::domain::dmarc_record::DmarcRecord;
use crate::domain::sending_domain::{DkimAlgorithm, RecordPurpose, RecordStatus};
use crate::domain::spf_record;
use crate::mail::dkim_verify::PublishedKey;
use crate::store::row::domain::Finding;

/// Looks up a record without the cache, and evaluates the result. An SPF record is a mismatch until its terms are
/// evaluated.
pub(super) async fn find(resolver: &dyn Resolve, record: ExpectedRecord) -> Finding {
    let answer = match record.kind {
        RecordType::Txt => resolver.txt_now(&record.name).await,
        RecordType::Cname => resolver.cname_now(&record.name).await.map(|target| vec![target]),
    };
    let (status, found) = match answer {
        Ok(found) => judge(&record, found),
        Err(LookupFailure::Absent) => (RecordStatus::Missing, Vec::new()),
        Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => (RecordStatus::Unchecked, Vec::new()),
    };
    Finding { purpose: record.purpose, name: record.name, status, found }
}

/// Evaluates the values at a record's name. Selects those that concern the record, because a name may have unrelated
/// TXT records.
fn judge(record: &ExpectedRecord, mut found: Vec<String>) -> (RecordStatus, Vec<String>) {
    let is_ok: Box<dyn Fn(&String) -> bool> = match record.purpose {
        RecordPurpose::Dkim => {
            // Receivers choose any of several records (RFC 6376 3.6.2.2).
            let is_only = found.len() == 1;
            Box::new(move |text| is_only && has_key_of(text, &record.value))
        }
        RecordPurpose::ReturnPath => Box::new(|target| same_host(target, &record.value)),
        RecordPurpose::Spf => {
            found.retain(|text| spf_record::is_claimed_by(text));
            Box::new(|_| false)
        }
        RecordPurpose::Dmarc => {
            found.retain(|text| DmarcRecord::is_claimed_by(text));
            // Receivers ignore several DMARC records, too (RFC 9989 4.10).
            let is_only = found.len() == 1;
            Box::new(move |text| is_only && DmarcRecord::parse(text).is_some())
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

/// Returns whether receivers find the key of the record `wanted` in a key record, and may use it. The flag `t=y` does
/// not stop them: a valid signature counts (RFC 6376 3.6.1).
fn has_key_of(record: &str, wanted: &str) -> bool {
    [DkimAlgorithm::RsaSha256, DkimAlgorithm::Ed25519Sha256].into_iter().any(|algorithm| {
        let key = |record| PublishedKey::read(record, algorithm).map(|key| key.bytes);
        key(wanted).is_some_and(|wanted| key(record) == Some(wanted))
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
        judge(&expected(purpose, value), found).0
    }

    #[test]
    fn a_key_record_is_compared_by_its_key_regardless_of_spaces_and_order() {
        let value = "v=DKIM1; k=rsa; p=AbCd";
        let judged = |found: &[&str]| status(RecordPurpose::Dkim, value, found);
        for same in [
            " v = DKIM1;p=Ab Cd;k=rsa ; ",
            "p=AbCd",
            "v=DKIM1; p=AbCd; t=s; n=note; s=email; h=sha1:sha256",
            "p=AbCd; t=y",
        ] {
            assert_eq!(judged(&[same]), RecordStatus::Ok, "{same}");
        }
        assert_eq!(judged(&["unrelated", "v=DKIM1; k=rsa; p=AbCd"]), RecordStatus::Mismatch, "receivers choose one");
        assert_eq!(judged(&["v=DKIM1; k=rsa; p=abcd"]), RecordStatus::Mismatch);
        assert_eq!(judged(&["v=DKIM1; p="]), RecordStatus::Mismatch);
        assert_eq!(judged(&[]), RecordStatus::Missing);
    }

    #[test]
    fn a_key_record_that_receivers_refuse_is_a_mismatch() {
        for (value, refused) in [
            ("v=DKIM1; k=rsa; p=AbCd", "v=DKIM1\\; k=rsa\\; p=AbCd"),
            ("v=DKIM1; k=rsa; p=AbCd", "v=DKIM2; k=rsa; p=AbCd"),
            ("v=DKIM1; k=rsa; p=AbCd", "v=dkim1; k=rsa; p=AbCd"),
            ("v=DKIM1; k=rsa; p=AbCd", "k=rsa; p=AbCd; v=DKIM1"),
            ("v=DKIM1; k=rsa; p=AbCd", "v=DKIM1; k=ed25519; p=AbCd"),
            ("v=DKIM1; k=ed25519; p=AbCd", "v=DKIM1; p=AbCd"),
            ("v=DKIM1; k=rsa; p=AbCd", "v=DKIM1; k=rsa; s=tlsrpt; p=AbCd"),
            ("v=DKIM1; k=rsa; p=AbCd", "v=DKIM1; k=rsa; h=sha1; p=AbCd"),
            ("v=DKIM1; k=rsa; p=AbCd", "v=DKIM1; k=rsa; p=AbCd; p=AbCd"),
            ("v=DKIM1; k=rsa; p=AbCd", "v=DKIM1 k=rsa p=AbCd"),
        ] {
            assert_eq!(status(RecordPurpose::Dkim, value, &[refused]), RecordStatus::Mismatch, "{refused}");
        }
        assert_eq!(status(RecordPurpose::Dkim, "v=DKIM1; k=ed25519; p=AbCd", &["k=ed25519; p=AbCd"]), RecordStatus::Ok);
    }

    #[test]
    fn dmarc_must_exist() {
        let dmarc = |found: &[&str]| status(RecordPurpose::Dmarc, "v=DMARC1; p=none", found);
        assert_eq!(dmarc(&["v=DMARC1;p=reject"]), RecordStatus::Ok);
        for discarded in ["v=DMARC12", "v=dmarc1; p=none"] {
            assert_eq!(dmarc(&[discarded]), RecordStatus::Missing, "{discarded}");
        }
        for ignored in [&["v=DMARC1; p=none", "v=DMARC1; p=reject"][..], &["v=DMARC1; p=none; p=reject"]] {
            assert_eq!(dmarc(ignored), RecordStatus::Mismatch, "{ignored:?}");
        }
    }
}
