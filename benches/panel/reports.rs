//! DMARC reports of 400 days, written by the operation that records them, while no server runs.

use std::path::Path;
use std::time::Duration;

use postrider::base::id::{AccountId, DomainId};
use postrider::domain::dmarc_record::DmarcPolicy;
use postrider::domain::dmarc_source::{DmarcCounts, Evaluation, SourceNetwork};
use postrider::domain::hostname::DomainName;
use postrider::store::op::dmarc::{RecordDmarcReport, SourceCounts, day_of, start_of};
use postrider::store::read::Read as _;
use postrider::store::row::dmarc::DmarcReportRow;
use postrider::store::row::message::MessageRow;
use postrider::store::schema;

use crate::fill::Pattern;
use crate::{Outcome, bulk};

/// Days with a report.
const DAYS: u32 = 400;
/// Networks that every report names.
const STEADY: u32 = 300;
/// Networks that only the report of one day names, and a few later ones.
const CHANGING: u32 = 100;

/// Writes a report of each day about the domain of the pattern's message.
pub(crate) async fn fill(directory: &Path, pattern: &Pattern) -> Outcome<()> {
    let store = bulk::open(directory)?;
    let key = schema::message(pattern.account, pattern.message);
    let row: MessageRow = store.snapshot()?.row(&key)?.ok_or("the pattern is gone")?;
    let today = day_of(bulk::now());
    for day in today - DAYS + 1..=today {
        let report = report(pattern.account, row.domain, day)?;
        store.commit(report).await.map_err(|stop| format!("the report of day {day}: {stop:?}"))?;
    }
    bulk::close(&store, directory)
}

fn report(account: AccountId, domain: DomainId, day: u32) -> Outcome<RecordDmarcReport> {
    let signer: DomainName = "reporter.example".parse()?;
    let changing = (0..CHANGING).map(|number| STEADY + (day * CHANGING + number) % 20_000);
    let sources = (0..STEADY).chain(changing).map(source).collect::<Outcome<Vec<_>>>()?;
    let begin = start_of(day);
    let report = DmarcReportRow {
        reporter: "Reporter".to_owned(),
        from_domain: Some(signer.clone()),
        report_id: day.to_string(),
        policy_domain: "example.test".parse()?,
        begin,
        end: begin + Duration::from_secs(86_399),
        messages: sources.iter().map(|source| source.counts.messages()).sum(),
        passed: sources.iter().map(|source| source.counts.passed()).sum(),
        skipped_rows: 0,
        is_authentic: true,
    };
    let (signer, policy, own) = (Some(signer), DmarcPolicy::None, Vec::new());
    Ok(RecordDmarcReport { account, domain, report, signer, policy, own, sources })
}

fn source(number: u32) -> Outcome<SourceCounts> {
    let mut counts = DmarcCounts::default();
    let passes = !number.is_multiple_of(7);
    counts.add(Evaluation { disposition: DmarcPolicy::None, dkim: passes, spf: passes }, u64::from(number % 50 + 1));
    let [_, a, b, c] = number.to_be_bytes();
    let domain: DomainName = "example.test".parse()?;
    Ok(SourceCounts {
        network: SourceNetwork::V4([20 + a, b, c]),
        counts,
        has_own_signature: false,
        dkim_domains: vec![(domain.clone(), 1)],
        spf_domains: vec![(domain, 1)],
    })
}
