//! Whether a domain's SPF lets this server pass: its record names this server, or one that it includes or redirects to
//! does.

use super::domains::ExpectedRecord;
use super::ports::{BoxFuture, LookupFailure, Resolve};
use crate::domain::sending_domain::RecordPurpose;
use crate::domain::spf_record::{Step, is_claimed_by, steps};

/// Maximum number of lookups, as for receivers (RFC 7208 4.6.4).
const LOOKUPS_MAX: u32 = 10;

/// A lookup failed, so the result is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unknown;

/// Returns whether the TXT records `found` for `record` are those of a domain whose SPF lets `host` pass. Other records
/// than SPF's do not.
pub(super) async fn passes(
    resolver: &dyn Resolve,
    record: &ExpectedRecord,
    found: &[String],
    host: &str,
) -> Result<bool, Unknown> {
    match only_record(found) {
        Some(text) if record.purpose == RecordPurpose::Spf => {
            Evaluation { resolver, host, lookups: 0 }.passes(text.to_owned()).await
        }
        _ => Ok(false),
    }
}

/// Returns the SPF record among TXT records. Receivers ignore several (RFC 7208 4.5).
fn only_record(found: &[String]) -> Option<&str> {
    let mut records = found.iter().filter(|text| is_claimed_by(text));
    records.next().filter(|_| records.next().is_none()).map(String::as_str)
}

struct Evaluation<'e> {
    resolver: &'e dyn Resolve,
    host: &'e str,
    lookups: u32,
}

impl Evaluation<'_> {
    fn passes(&mut self, record: String) -> BoxFuture<'_, Result<bool, Unknown>> {
        Box::pin(async move {
            for step in steps(&record, self.host) {
                match step {
                    Step::Decided(passes) => return Ok(passes),
                    Step::Redirect(name) => return self.passes_at(name).await,
                    // The first failed lookup decides, as for receivers (RFC 7208 5.2).
                    Step::Include { name, passes } if self.passes_at(name).await? => return Ok(passes),
                    Step::Include { .. } => {}
                }
            }
            Ok(false)
        })
    }

    /// Evaluates the record at another name. A name with a macro depends on the message.
    async fn passes_at(&mut self, name: &str) -> Result<bool, Unknown> {
        if self.lookups == LOOKUPS_MAX || name.contains('%') {
            return Ok(false);
        }
        self.lookups += 1;
        match self.resolver.txt_now(name).await {
            Ok(found) => match only_record(&found) {
                Some(record) => self.passes(record.to_owned()).await,
                None => Ok(false),
            },
            Err(LookupFailure::Absent) => Ok(false),
            Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => Err(Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::dns_facts::tests::Names;
    use crate::engine::domains::RecordType;

    #[tokio::test]
    async fn a_host_passes_by_the_record_itself_an_included_one_or_a_redirection() {
        let names = Names::new([
            ("spf.example", "v=spf1 a:mail.example.com -all"),
            ("outer.example", "v=spf1 include:spf.example -all"),
            ("other.example", "v=spf1 a:other.example.com -all"),
            ("loop.example", "v=spf1 include:loop.example redirect=loop.example"),
            ("bad.example", "!"),
        ]);
        for (record, expected) in [
            ("v=spf1 mx a:Mail.Example.com. -all", Ok(true)),
            ("v=spf1 include:mail.example.com -all", Ok(true)),
            ("v=spf1 -a:mail.example.com -all", Ok(false)),
            ("v=spf1 redirect=spf.example", Ok(true)),
            ("v=spf1 redirect=outer.example", Ok(true)),
            ("v=spf1 include:other.example include:outer.example ~all", Ok(true)),
            ("v=spf1 -include:spf.example -all", Ok(false)),
            ("v=spf1 redirect=other.example", Ok(false)),
            ("v=spf1 redirect=nowhere.example", Ok(false)),
            ("v=spf1 include:loop.example -all", Ok(false)),
            ("v=spf1 redirect=bad.example", Err(Unknown)),
            ("v=spf1 include:bad.example -all", Err(Unknown)),
            ("v=spf1 include:bad.example a:mail.example.com -all", Ok(true)),
            ("v=spf1 include:bad.example include:spf.example -all", Err(Unknown)),
            ("google-site-verification=x", Ok(false)),
        ] {
            let expecting = |purpose| {
                let (kind, name, value) = (RecordType::Txt, String::new(), String::new());
                ExpectedRecord { purpose, kind, name, value, required: false }
            };
            let found = [record.to_owned(), "unrelated".to_owned()];
            let passes = passes(&names, &expecting(RecordPurpose::Spf), &found, "mail.example.com").await;
            assert_eq!(passes, expected, "{record}");
        }
        let two = ["v=spf1 a:mail.example.com -all".to_owned(), "v=spf1 -all".to_owned()];
        assert_eq!(only_record(&two), None);
    }
}
