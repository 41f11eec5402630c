//! Tests of a day's counts of reports, and of their expiry.

mod marks;
mod networks;
mod sweep;

use super::reporter::{NAMES_OF_SIGNER_MAX, REPORTERS_MAX};
use super::*;
use crate::base::id::Ulid;
use crate::domain::account::QuotaLimits;
use crate::domain::dmarc_source::Evaluation;
use crate::domain::sending_domain::DomainStatus;
use crate::domain::stream::Stream;
use crate::store::op::domain_change::DeleteDomain;
use crate::store::op::sweep::SweepEvents;
use crate::store::row::dmarc::{DmarcReporterRow, DmarcSumsRow};
use crate::store::testing::TestStore;
use crate::store::timer::TimerKind;

const DAY: Duration = Duration::from_secs(DAY_SECS);

/// A store with one verified domain.
struct World {
    test: TestStore,
    account: AccountId,
    domain: DomainId,
}

impl World {
    fn new() -> Self {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let domain = test.domain(account, "example.com", Stream::Transactional, DomainStatus::Verified);
        Self { test, account, domain }
    }

    /// Returns the sums of yesterday.
    fn sums(&self) -> KeepDmarcSums {
        let from = day_of(self.test.now()) - 1;
        let row = DmarcSumsRow { to: from, version: 1, sources: Vec::new(), days: Vec::new() };
        KeepDmarcSums { account: self.account, domain: self.domain, from, row }
    }

    /// Returns a report of yesterday with one message from each of these networks.
    fn report(&self, reporter: &str, report_id: &str, networks: &[SourceNetwork]) -> RecordDmarcReport {
        let begin = start_of(day_of(self.test.now()) - 1);
        let mut counts = DmarcCounts::default();
        counts.add(Evaluation { disposition: DmarcPolicy::None, dkim: true, spf: false }, 1);
        let source = |network: &SourceNetwork| SourceCounts {
            network: *network,
            counts,
            has_own_signature: false,
            dkim_domains: vec![("example.com".parse().unwrap(), 1)],
            spf_domains: Vec::new(),
        };
        let from_domain: DomainName = format!("{reporter}.example").parse().unwrap();
        RecordDmarcReport {
            account: self.account,
            domain: self.domain,
            report: DmarcReportRow {
                reporter: reporter.to_owned(),
                from_domain: Some(from_domain.clone()),
                report_id: report_id.to_owned(),
                policy_domain: "example.com".parse().unwrap(),
                begin,
                end: begin + DAY - Duration::from_secs(1),
                messages: networks.len() as u64,
                passed: networks.len() as u64,
                skipped_rows: 0,
                is_authentic: true,
            },
            signer: Some(from_domain),
            policy: DmarcPolicy::None,
            own: Vec::new(),
            sources: networks.iter().map(source).collect(),
        }
    }

    fn unauthentic(&self, reporter: &str, report_id: &str) -> RecordDmarcReport {
        let mut op = self.report(reporter, report_id, &[]);
        (op.signer, op.report.is_authentic) = (None, false);
        op
    }

    fn counted(&self) -> Vec<(u32, SourceNetwork, u64)> {
        let mut counted = Vec::new();
        let of = (self.account, self.domain);
        scan(&self.test.snapshot(), of, (0, u32::MAX), &mut |source| {
            counted.push((source.day, source.network, source.row.counts.messages()));
        })
        .unwrap();
        counted
    }

    /// Returns the number of messages from a network.
    fn messages_of(&self, wanted: SourceNetwork) -> u64 {
        self.counted().into_iter().filter(|(_, network, _)| *network == wanted).map(|(.., messages)| messages).sum()
    }

    fn rows(&self, table: Table) -> usize {
        self.test.count(table, &keys::dmarc_domain(self.account, self.domain))
    }

    /// Returns the names of the ignored reporters.
    fn ignored(&self) -> Vec<String> {
        let all = reporters(&self.test.snapshot(), self.account, self.domain).unwrap();
        all.into_iter().filter(|(_, row)| row.is_ignored).map(|(_, row)| row.name).collect()
    }

    fn ignore(&self, name: &str, signer: Option<&str>) -> IgnoreDmarcReporter {
        let (name, signer) = (name.to_owned(), signer.map(ToOwned::to_owned));
        IgnoreDmarcReporter { account: self.account, domain: self.domain, name, signer, is_ignored: true, limit: None }
    }

    fn sweep(&self) {
        for _ in 0..100 {
            let due = self.test.timers(TimerKind::EventLog)[0].due;
            self.test.done(SweepEvents { due });
            if self.test.timers(TimerKind::EventLog)[0].due > self.test.now() {
                return;
            }
        }
        panic!("the sweep does not end");
    }
}

fn network(number: u32) -> SourceNetwork {
    let [_, a, b, c] = number.to_be_bytes();
    SourceNetwork::V4([a, b, c])
}

#[test]
fn a_report_is_counted_once_and_repeated_for_400_days() {
    let world = World::new();
    let report = || world.report("one", "1", &[network(1), network(2)]);
    assert_eq!(world.test.done(report()), RecordOutcome::Counted);
    assert_eq!(world.test.done(report()), RecordOutcome::Repeated);
    let yesterday = day_of(world.test.now()) - 1;
    assert_eq!(world.counted(), [(yesterday, network(1), 1), (yesterday, network(2), 1)]);
    assert_eq!(world.test.done(world.report("one", "2", &[network(1)])), RecordOutcome::Counted);
    assert_eq!(world.test.done(world.report("two", "1", &[network(1)])), RecordOutcome::Counted, "another From domain");
    let mut other_begin = report();
    other_begin.report.begin = other_begin.report.begin + Duration::from_secs(1);
    assert_eq!(world.test.done(other_begin), RecordOutcome::Counted);
    assert_eq!(world.rows(Table::DmarcReports), 4);
}

#[test]
fn an_unauthentic_report_is_listed_but_does_not_count_or_replace_the_authentic_one() {
    let world = World::new();
    assert_eq!(world.test.done(world.unauthentic("one", "1")), RecordOutcome::Unauthentic);
    assert_eq!((world.counted(), world.rows(Table::DmarcReports), world.rows(Table::DmarcSeen)), (vec![], 1, 0));
    assert_eq!(world.test.done(world.report("one", "1", &[network(1)])), RecordOutcome::Counted);
    assert_eq!(world.test.done(world.unauthentic("one", "1")), RecordOutcome::Repeated);
    for n in 1..UNAUTHENTIC_MAX {
        assert_eq!(world.test.done(world.unauthentic("one", &format!("x{n}"))), RecordOutcome::Unauthentic);
    }
    assert_eq!(world.test.done(world.unauthentic("one", "last")), RecordOutcome::OverLimit);
}

#[test]
fn a_day_limits_its_reports_in_total_and_for_each_signing_domain() {
    let world = World::new();
    for signer in 0..REPORTS_MAX / REPORTS_OF_SIGNER_MAX {
        let reporter = format!("r{signer}");
        for n in 0..REPORTS_OF_SIGNER_MAX {
            assert_eq!(world.test.done(world.report(&reporter, &n.to_string(), &[])), RecordOutcome::Counted);
        }
        assert_eq!(world.test.done(world.report(&reporter, "more", &[])), RecordOutcome::OverLimit);
    }
    assert_eq!(world.test.done(world.report("another", "1", &[])), RecordOutcome::OverLimit);
    world.test.pass(DAY);
    assert_eq!(world.test.done(world.report("another", "1", &[])), RecordOutcome::Counted, "another day");
}

#[test]
fn subdomains_of_a_signing_domain_share_its_daily_limit() {
    let world = World::new();
    let signed_by = |signer: &str| {
        let op = world.report("one", signer, &[]);
        world.test.done(RecordDmarcReport { signer: Some(signer.parse().unwrap()), ..op })
    };
    for n in 0..REPORTS_OF_SIGNER_MAX {
        assert_eq!(signed_by(&format!("s{n}.deep.reporter.example")), RecordOutcome::Counted);
    }
    for signer in ["another.reporter.example", "reporter.example", "x.y.reporter.example"] {
        assert_eq!(signed_by(signer), RecordOutcome::OverLimit, "{signer}");
    }
    assert_eq!(signed_by("other.example"), RecordOutcome::Counted);
    assert_eq!([signed_by("one.co.uk"), signed_by("two.co.uk")], [RecordOutcome::Counted; 2]);
    // Names below a private suffix are free.
    for n in 0..REPORTS_OF_SIGNER_MAX {
        assert_eq!(signed_by(&format!("a{n}.duckdns.org")), RecordOutcome::Counted);
    }
    assert_eq!(signed_by("b.duckdns.org"), RecordOutcome::OverLimit);
}

#[test]
fn a_reporter_is_its_signing_domain_with_its_name() {
    let world = World::new();
    let signed_by = |signer: &str, name: &str, id: &str| {
        let mut op = world.report(name, id, &[network(1)]);
        op.signer = Some(signer.parse().unwrap());
        world.test.done(op)
    };
    signed_by("mail.genuine.example", "google.com", "1");
    signed_by("forger.example", "google.com", "2");
    assert!(world.test.commit(world.ignore("google.com", Some("forger.example"))).is_ok());
    let shown = || {
        let all = reporters(&world.test.snapshot(), world.account, world.domain).unwrap();
        let mut all: Vec<_> = all.into_iter().map(|(_, row)| (row.signer, row.name, row.is_ignored)).collect();
        all.sort();
        all
    };
    let row = |signer: &str, name: &str, is_ignored| (Some(signer.to_owned()), name.to_owned(), is_ignored);
    let google = [row("forger.example", "google.com", true), row("genuine.example", "google.com", false)];
    assert_eq!(shown(), google);
    assert!(world.test.commit(world.ignore("google.com", None)).is_ok());
    assert_eq!(world.ignored().len(), 2);
    // Further names of a domain are one reporter, so that they can be ignored.
    for n in 0..10 {
        signed_by("forger.example", &format!("name-{n}"), &format!("x{n}"));
    }
    assert_eq!(shown().len(), 2 + NAMES_OF_SIGNER_MAX);
    assert!(world.test.commit(world.ignore("forger.example", None)).is_ok());
    signed_by("forger.example", "new", "y");
    assert_eq!(shown().len(), 2 + NAMES_OF_SIGNER_MAX);
}

#[test]
fn a_reporter_that_an_earlier_version_ignored_stays_ignored() {
    let world = World::new();
    let key = keys::dmarc_reporter(world.account, world.domain, keys::dmarc_reporter_key("one"));
    let earlier = DmarcReporterRow { name: "one".to_owned(), last_day: 1, is_ignored: true, signer: None };
    // Version 1 lacks the last field.
    let mut bytes = earlier.encode();
    (bytes[0], _) = (1, bytes.pop());
    assert_eq!(DmarcReporterRow::decode(&bytes).unwrap(), earlier);
    world.test.write(&key, &earlier);
    world.test.done(world.report("one", "1", &[network(1)]));
    assert_eq!(world.ignored(), ["one", "one"]);
}

#[test]
fn a_reporter_stays_ignored_if_its_signer_was_a_parent_in_another_list_of_public_suffixes() {
    let world = World::new();
    let signer = Some("me.uk".to_owned());
    let earlier = DmarcReporterRow { name: "one".to_owned(), last_day: 1, is_ignored: true, signer };
    let key = keys::dmarc_signed_reporter_key("me.uk", "one");
    world.test.write(&keys::dmarc_reporter(world.account, world.domain, key), &earlier);
    for (signer, id) in [("mail.example.me.uk", "1"), ("other.example", "2")] {
        let op = world.report("one", id, &[network(1)]);
        world.test.done(RecordDmarcReport { signer: Some(signer.parse().unwrap()), ..op });
    }
    assert_eq!(world.ignored(), ["one", "one"], "those of me.uk and example.me.uk");
}

#[test]
fn reporters_above_the_maximum_share_a_row() {
    let world = World::new();
    for n in 0..REPORTERS_MAX {
        let key = keys::dmarc_reporter(world.account, world.domain, keys::dmarc_reporter_key(&n.to_string()));
        let signer = Some(format!("s{n}.example"));
        let row = DmarcReporterRow { name: n.to_string(), last_day: 1, is_ignored: false, signer };
        world.test.write(&key, &row);
    }
    for name in ["one", "two"] {
        world.test.done(world.report(name, "1", &[network(1)]));
    }
    assert_eq!(world.rows(Table::DmarcReporters), REPORTERS_MAX + 1);
    assert!(world.test.commit(world.ignore(SHARED_NAME, None)).is_ok());
}

#[test]
fn the_most_frequent_signing_domains_of_a_row_are_kept() {
    let world = World::new();
    for (n, domain) in ["a", "b", "c", "d", "d", "c", "d"].into_iter().enumerate() {
        let mut report = world.report("one", &n.to_string(), &[network(1)]);
        report.sources[0].dkim_domains = vec![(format!("{domain}.example").parse().unwrap(), 1)];
        world.test.done(report);
    }
    let mut names = Vec::new();
    scan(&world.test.snapshot(), (world.account, world.domain), (0, u32::MAX), &mut |source| {
        names = source.row.dkim_domains.iter().map(|(name, n)| format!("{name} {n}")).collect();
    })
    .unwrap();
    assert_eq!(names, ["d.example 3", "c.example 2", "a.example 1", "b.example 1"]);
}

#[test]
fn a_domain_that_may_not_send_gets_no_reports() {
    let world = World::new();
    let pending = world.test.domain(world.account, "pending.example", Stream::Transactional, DomainStatus::Pending);
    for domain in [pending, DomainId(Ulid([9; 16]))] {
        let op = RecordDmarcReport { domain, ..world.report("one", "1", &[]) };
        assert!(matches!(world.test.commit(op), Err(OpError::Refused(NotFound))));
    }
}

const TABLES: [Table; 7] = [
    Table::DmarcReports,
    Table::DmarcSeen,
    Table::DmarcDays,
    Table::DmarcCounts,
    Table::DmarcSources,
    Table::DmarcReporters,
    Table::DmarcSums,
];
