//! Properties of the parser of DMARC reports for arbitrary bytes: it does not panic, its results are bounded, and it is
//! deterministic.

use postrider::base::time::Timestamp;
use postrider::domain::dmarc_source::SourceNetwork;
use postrider::domain::hostname::DomainName;
use postrider::mail::dmarc::{
    AggregateReport, COUNT_MAX, NETWORKS_MAX, OwnDomains, PARTS_MAX, ROWS_MAX, SIGNERS_MAX, TEXT_BYTES_MAX, Unreadable,
    read,
};

/// Name table in which every other domain is ours.
struct Names(Vec<DomainName>);

impl OwnDomains for Names {
    fn domain(&mut self, name: &DomainName) -> Option<usize> {
        if name.as_str().len() % 2 == 1 {
            return None;
        }
        let known = self.0.iter().position(|known| known == name);
        Some(known.unwrap_or_else(|| {
            self.0.push(name.clone());
            self.0.len() - 1
        }))
    }

    fn has_selector(&self, _: usize, selector: &str) -> bool {
        selector.starts_with("pr-")
    }

    fn is_own_network(&mut self, _: usize, _: SourceNetwork) -> bool {
        false
    }
}

/// Parses `message` as it is, then as a plain document, and checks the properties of every report.
pub(crate) fn check(message: &[u8]) {
    check_one(message);
    check_one(&[b"Content-Type: text/xml\r\n\r\n", message].concat());
}

fn check_one(message: &[u8]) {
    // A time within the range of the corpus.
    let now = Timestamp::from_millis(1_700_000_000_000);
    let once = || -> Result<Vec<AggregateReport>, Unreadable> { read(message, now, &mut Names(Vec::new())) };
    let Ok(reports) = once() else { return };
    for report in &reports {
        for text in [&report.reporter, &report.report_id] {
            assert!((1..=TEXT_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control), "{text:?}");
        }
        assert!(report.begin <= report.end && report.parts.len() <= PARTS_MAX + 2);
        // The rows of the policy's domain and those of unknown domains have a limit each.
        assert!(report.parts.iter().all(|part| part.sources.len() <= 2 * NETWORKS_MAX + 1));
        for (_, source) in report.parts.iter().flat_map(|part| &part.sources) {
            let counts = source.counts;
            assert!(counts.messages() >= 1 && counts.messages() <= COUNT_MAX * ROWS_MAX as u64);
            assert_eq!(counts.passed() + counts.failed(), counts.messages());
            assert!(source.dkim_domains.len() <= SIGNERS_MAX && source.spf_domains.len() <= SIGNERS_MAX);
        }
    }
    assert_eq!(once(), Ok(reports), "the same bytes give the same reports");
}
