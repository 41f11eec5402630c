//! Tests of DMARC reports: whether they are counted, their domain, and their sums.

use super::*;
use crate::domain::dmarc_source::{SourceKind, SourceNetwork};
use crate::engine::alerts::listing::AlertsOf;
use crate::engine::dmarc::{Overview, Source};
use crate::machine::checklist::{self, ItemId};
use crate::machine::dmarc_advice::Action;
use crate::store::op::dmarc::DmarcRefusal;
use crate::store::row::dmarc::DmarcReportRow;

/// Start of the day before [`NOW`].
const YESTERDAY: u64 = 1_699_833_600;

/// Returns a row with this number of messages and result.
fn row(address: &str, count: u32, pass: bool, header_from: &str, selector: &str) -> String {
    let result = if pass { "pass" } else { "fail" };
    format!(
        "<record><row><source_ip>{address}</source_ip><count>{count}</count><policy_evaluated>\
         <disposition>none</disposition><dkim>{result}</dkim><spf>fail</spf></policy_evaluated></row>\
         <identifiers><header_from>{header_from}</header_from></identifiers><auth_results>\
         <dkim><domain>example.com</domain><selector>{selector}</selector><result>{result}</result></dkim>\
         </auth_results></record>"
    )
}

/// Returns a mail with a report by this reporter.
fn report_of(reporter: &str, id: &str, policy_domain: &str, begin: u64, rows: &str) -> String {
    format!(
        "From: DMARC <reports@{reporter}>\nSubject: Report Domain: {policy_domain}\nContent-Type: text/xml\n\n\
         <feedback><report_metadata><org_name>{reporter}</org_name><report_id>{id}</report_id><date_range>\
         <begin>{begin}</begin><end>{}</end></date_range></report_metadata>\
         <policy_published><domain>{policy_domain}</domain><p>none</p></policy_published>{rows}</feedback>\n",
        begin + 86_399
    )
}

fn report(reporter: &str, id: &str, rows: &str) -> String {
    report_of(reporter, id, "example.com", YESTERDAY, rows)
}

impl World {
    fn domain_id(&self) -> crate::base::id::DomainId {
        let snapshot = self.engine.store.snapshot().unwrap();
        crate::store::op::domain::domain_by_name(&snapshot, self.account, "example.com").unwrap().unwrap().0
    }

    /// Receives a report that its From domain has signed.
    async fn receive_signed(&self, reporter: &str, mail: &str) -> &'static str {
        self.receive_report(&self.keys.sign(reporter, mail)).await
    }

    /// Receives a report, and returns its result.
    async fn receive_report(&self, mail: &str) -> &'static str {
        let before: BTreeMap<_, _> = self.engine.meters.dmarc_reports.read().collect();
        assert_eq!(self.receive_at(Mailbox::Dmarc, mail).await, AcceptedKind::DmarcReport);
        let mut changed = self.engine.meters.dmarc_reports.read().filter(|(name, count)| before[name] != *count);
        let (name, _) = changed.next().unwrap();
        assert_eq!(changed.next(), None);
        name
    }

    async fn overview(&self) -> Overview {
        self.engine.dmarc_overview(self.account, self.domain_id(), 30).await.unwrap().unwrap()
    }

    fn reports(&self) -> Vec<DmarcReportRow> {
        let page = crate::engine::listing::PageRequest { before: None, limit: 100 };
        let rows = self.engine.dmarc_reports(self.account, self.domain_id(), page).unwrap().rows;
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

fn source<'o>(overview: &'o Overview, network: &str) -> &'o Source {
    let network: SourceNetwork = network.parse().unwrap();
    overview.sources.iter().find(|source| source.network == network).unwrap()
}

#[tokio::test]
async fn reports_are_accepted_at_the_bounce_host_and_at_the_return_path_host_of_a_verified_domain() {
    let world = World::new().await;
    assert_eq!(world.mailbox("dmarc", "bounces.example.com"), Ok(Mailbox::Dmarc));
    assert_eq!(world.mailbox("DMARC", "rp.Example.com"), Ok(Mailbox::Dmarc));
    assert_eq!(world.mailbox("dmarc", "example.com"), Err(MailboxRefusal::Host));
    assert_eq!(world.mailbox("dmarc", "rp.example.org"), Err(MailboxRefusal::Host));
}

#[tokio::test]
async fn a_signed_report_counts_for_its_domain() {
    let world = World::new().await;
    let rows = row("192.0.2.7", 90, true, "example.com", "x") + &row("198.51.100.1", 10, false, "example.com", "x");
    assert_eq!(world.receive_signed("google.example", &report("google.example", "1", &rows)).await, "counted");
    let overview = world.overview().await;
    assert_eq!((overview.counts.messages(), overview.counts.passed(), overview.reports), (100, 90, 1));
    assert_eq!(overview.days.len(), 1);
    assert_eq!(crate::store::op::dmarc::start_of(overview.days[0].0).as_secs(), YESTERDAY);
    let [reporter] = overview.reporters.as_slice() else { panic!() };
    assert_eq!((reporter.name.as_str(), reporter.reports, reporter.messages), ("google.example", 1, 100));
    assert_eq!(source(&overview, "192.0.2.0/24").kind, SourceKind::Authorised);
    assert_eq!(source(&overview, "198.51.100.0/24").kind, SourceKind::Unknown);
    let [listed] = world.reports().try_into().unwrap();
    let DmarcReportRow { messages, passed, is_authentic, from_domain, .. } = listed;
    assert_eq!((messages, passed, is_authentic), (100, 90, true));
    assert_eq!(from_domain.unwrap().as_str(), "google.example");
}

#[tokio::test]
async fn the_sums_that_are_read_in_advance_are_those_of_the_page() {
    let world = World::new().await;
    world.engine.warm_dmarc_sums().await;
    assert_eq!(world.engine.dmarc_sums.kept(), 0, "there are no reports");
    let rows = row("192.0.2.7", 90, true, "example.com", "x");
    assert_eq!(world.receive_signed("google.example", &report("google.example", "1", &rows)).await, "counted");
    world.engine.warm_dmarc_sums().await;
    let kept = world.engine.dmarc_sums.kept();
    let overview = world.engine.dmarc_overview(world.account, world.domain_id(), 400).await.unwrap().unwrap();
    assert_eq!((overview.counts.messages(), world.engine.dmarc_sums.kept()), (90, kept), "nothing more is read");
    assert_eq!(kept, 1);
}

#[tokio::test]
async fn only_the_from_domain_or_a_parent_of_it_may_sign() {
    let world = World::new().await;
    let mail = |id: &str| report("mx.reporter.example", id, &row("192.0.2.7", 1, true, "example.com", "x"));
    assert_eq!(world.receive_report(&mail("1")).await, "unauthentic", "the report has no signature");
    for (signer, expected) in [
        ("other.example", "unauthentic"),
        ("deeper.mx.reporter.example", "unauthentic"),
        ("reporter.example", "counted"),
        ("mx.reporter.example", "counted"),
    ] {
        assert_eq!(world.receive_signed(signer, &mail(signer)).await, expected, "{signer}");
    }
    let changed = world.keys.sign("reporter.example", &mail("changed")).replace("<count>1<", "<count>9<");
    assert_eq!(world.receive_report(&changed).await, "unauthentic");
    let listed: Vec<_> = world.reports().iter().map(|row| row.is_authentic).collect();
    assert_eq!(listed, [false, true, true, false, false, false]);
    assert_eq!(world.overview().await.counts.messages(), 2);
}

#[tokio::test]
async fn a_repeated_report_is_counted_once() {
    let world = World::new().await;
    let mail = report("r.example", "1", &row("192.0.2.7", 5, true, "example.com", "x"));
    let accepted = [world.receive_signed("r.example", &mail).await, world.receive_signed("r.example", &mail).await];
    assert_eq!(accepted, ["counted", "repeated"]);
    assert_eq!((world.overview().await.counts.messages(), world.reports().len()), (5, 1));
}

#[tokio::test]
async fn unreadable_and_foreign_reports_are_counted_as_such_without_a_key_lookup() {
    let world = World::new().await;
    let of_another = report_of("r.example", "1", "example.org", YESTERDAY, &row("192.0.2.7", 1, true, "x.org", "x"));
    assert_eq!(world.receive_signed("r.example", &of_another).await, "unknown_domain");
    assert_eq!(world.receive_report("Subject: hello\n\nIs there anybody?\n").await, "unreadable");
    let old = report_of("r.example", "2", "example.com", YESTERDAY - 70 * 86_400, "");
    assert_eq!(world.receive_signed("r.example", &old).await, "unreadable");
    assert!(world.keys.asked.lock().unwrap().is_empty());
    assert!(world.reports().is_empty());
    let counts: BTreeMap<_, _> = world.engine.meters.came_back.taken().collect();
    assert_eq!(counts["dmarc_report"], 3);
}

#[tokio::test]
async fn own_sources_are_recognised_by_relay_addresses_and_by_our_selectors() {
    let world = World::new().await;
    let selector = world.engine.domain(world.account, world.domain_id()).unwrap().unwrap().dkim[0].selector.clone();
    let later = selector.trim_end_matches('1').to_owned() + "27";
    let rows = row("203.0.113.5", 10, false, "example.com", "x")
        + &row("198.51.100.1", 3, false, "example.com", &selector)
        + &row("198.51.101.1", 3, false, "example.com", &later)
        + &row("198.51.102.1", 3, false, "example.com", "pr-other-r1");
    world.receive_signed("r.example", &report("r.example", "1", &rows)).await;
    let overview = world.overview().await;
    let kinds = ["203.0.113.0/24", "198.51.100.0/24", "198.51.101.0/24", "198.51.102.0/24"];
    let kinds = kinds.map(|network| source(&overview, network).kind);
    assert_eq!(kinds, [SourceKind::Own, SourceKind::Forwarder, SourceKind::Forwarder, SourceKind::Unknown]);
    let yesterday = overview.days[0].0;
    let count = async |day| {
        let counts = world.engine.dmarc_counts_of_own(world.account, world.domain_id(), (day, 1)).await.unwrap();
        (counts.messages(), counts.failed())
    };
    assert_eq!((count(yesterday).await, count(yesterday + 1).await), ((10, 10), (0, 0)));
    let mine = "198.51.102.0/24".parse().unwrap();
    let marked = world.engine.mark_dmarc_source(world.account, world.domain_id(), mine, Some(true)).await.unwrap();
    assert_eq!((marked.is_mine, marked.counts.messages()), (Some(true), 3));
    assert_eq!(count(yesterday).await, (10, 10), "marked sources don't count as own");
    let unseen = "192.0.9.0/24".parse().unwrap();
    let refused = world.engine.mark_dmarc_source(world.account, world.domain_id(), unseen, None).await;
    assert!(matches!(refused, Err(OpError::Refused(DmarcRefusal::NotFound))));
}

#[tokio::test]
async fn an_alert_is_open_while_own_mail_fails() {
    let world = World::new().await;
    let receive = async |id: &str, count| {
        let mail = report("r.example", id, &row("203.0.113.5", count, false, "example.com", "x"));
        world.receive_signed("r.example", &mail).await;
        world.engine.check_alerts().await.unwrap();
        let open = world.engine.open_alerts(AlertsOf::Account(world.account)).unwrap();
        (open.count, open.worst)
    };
    assert_eq!(receive("1", 9).await, (0, None));
    assert_eq!(receive("2", 1).await, (1, Some(crate::domain::alert::Severity::Critical)));
}

#[tokio::test]
async fn a_report_with_many_networks_hides_no_failure_of_own_sources() {
    let world = World::new().await;
    let many = |first: u32, count: u32| -> String {
        let address = |n| format!("{first}.{}.{}.1", n / 250, n % 250);
        (0..count).map(|n| row(&address(n), 1, true, "example.com", "x")).collect()
    };
    world.receive_signed("evil.example", &report("evil.example", "1", &many(20, 1000))).await;
    let real = many(30, 150) + &row("203.0.113.5", 500, false, "example.com", "x");
    world.receive_signed("r.example", &report("r.example", "1", &real)).await;
    assert_eq!(source(&world.overview().await, "203.0.113.0/24").counts.failed(), 500);
    world.engine.check_alerts().await.unwrap();
    assert_eq!(world.engine.open_alerts(AlertsOf::Account(world.account)).unwrap().count, 1);
}

#[tokio::test]
async fn reports_arrive_at_the_bounce_host_and_below_related_domains() {
    let world = World::new().await;
    let stranger =
        world.engine.create_account("Other".parse().unwrap(), None, QuotaLimits::default()).await.unwrap().id;
    for (account, name) in [(stranger, "other.test"), (stranger, "b.example.com"), (world.account, "c.example.com")] {
        let made = world.engine.create_verified_domain(account, name.parse().unwrap(), Stream::Transactional).await;
        assert!(made.is_ok());
    }
    let takes = |domain: &str, address: &str| {
        let snapshot = world.engine.store.snapshot().unwrap();
        let of = (world.account, &domain.parse().unwrap());
        world.engine.takes_reports(&snapshot, of, &address.parse().unwrap()).unwrap()
    };
    let bounce_host = format!("dmarc@{}", world.engine.settings.bounce_host);
    for (domain, address, expected) in [
        ("example.com", bounce_host.as_str(), true),
        ("example.com", "DMARC@rp.example.com", true),
        ("c.example.com", "dmarc@rp.example.com", true),
        ("example.com", "dmarc@rp.c.example.com", true),
        ("example.com", "dmarc@rp.d.example.com", false),
        ("example.com", "reports@rp.example.com", false),
        ("example.com", "dmarc@rp.other.test", false),
        ("c.example.com", "dmarc@rp.b.example.com", false),
    ] {
        assert_eq!(takes(domain, address), expected, "{domain} {address}");
    }
}

#[tokio::test]
async fn an_ignored_reporter_is_not_counted_until_it_is_included_again() {
    let world = World::new().await;
    let rows = row("192.0.2.7", 5, true, "example.com", "x");
    world.receive_signed("good.example", &report("good.example", "1", &rows)).await;
    let forged = row("203.0.113.5", 500, false, "example.com", "x");
    world.receive_signed("bad.example", &report("bad.example", "1", &forged)).await;
    let id = world.domain_id();
    let yesterday = world.overview().await.days[0].0;
    let failed = async || world.engine.dmarc_counts_of_own(world.account, id, (yesterday, 1)).await.unwrap().failed();
    assert_eq!((world.overview().await.counts.messages(), failed().await), (505, 500));
    let observed = async || {
        let domain = world.engine.domain(world.account, id).unwrap().unwrap();
        let items = world.engine.checklist(world.account, id, &domain).await.unwrap();
        items.into_iter().find(|(item, _)| *item == ItemId::DmarcObserved).unwrap().1.status
    };
    assert_eq!(observed().await, checklist::Status::Fail);
    let name = "bad.example".to_owned();
    let ignored = world.engine.ignore_dmarc_reporter(world.account, id, (name.clone(), None), true).await.unwrap();
    assert_eq!((ignored.reports, ignored.messages, ignored.is_ignored), (1, 500, true));
    let overview = world.overview().await;
    assert_eq!((overview.counts.messages(), overview.reports, overview.sources.len()), (5, 1, 1));
    assert_eq!(overview.reporters.iter().filter(|reporter| !reporter.is_ignored).count(), 1);
    assert_eq!((failed().await, observed().await), (0, checklist::Status::Unknown));
    world.engine.ignore_dmarc_reporter(world.account, id, (name, None), false).await.unwrap();
    assert_eq!(world.overview().await.counts.messages(), 505);
    let stranger = world.engine.ignore_dmarc_reporter(world.account, id, ("x".to_owned(), None), true).await;
    assert!(matches!(stranger, Err(OpError::Refused(DmarcRefusal::NotFound))));
}

#[tokio::test]
async fn the_advice_follows_the_reports() {
    let world = World::new().await;
    assert_eq!(world.overview().await.advice.action, Action::Publish, "no record was found yet");
    let record = "v=DMARC1; p=none; rua=mailto:dmarc@rp.example.com";
    let key = schema::domain(world.account, world.domain_id());
    let row_of = |world: &World| world.engine.store.snapshot().unwrap().row::<DomainRow>(&key).unwrap().unwrap();
    let mut domain = row_of(&world);
    domain.last_checked_at = Some(NOW);
    domain.findings = vec![crate::store::row::domain::Finding {
        purpose: crate::domain::sending_domain::RecordPurpose::Dmarc,
        name: "_dmarc.example.com".to_owned(),
        status: crate::domain::sending_domain::RecordStatus::Ok,
        found: vec![record.to_owned()],
    }];
    let op = crate::store::op::domain::AdoptDomain { account: world.account, id: world.domain_id(), row: domain };
    world.engine.delete_domain(world.account, world.domain_id()).await.unwrap();
    world.engine.store.commit(op).await.unwrap();
    for day in 0..14 {
        assert_eq!(world.overview().await.advice.action, Action::Wait);
        let rows = row("203.0.113.5", 50, true, "example.com", "x");
        let mail = report_of("r.example", "1", "example.com", YESTERDAY - day * 86_400, &rows);
        assert_eq!(world.receive_signed("r.example", &mail).await, "counted");
    }
    let advice = world.overview().await.advice;
    let wanted = "v=DMARC1; p=quarantine; rua=mailto:dmarc@rp.example.com";
    assert_eq!((advice.action, advice.record.as_deref()), (Action::Quarantine, Some(wanted)));
}

#[tokio::test]
async fn a_report_to_two_mailboxes_has_the_effect_of_each() {
    let world = World::new().await;
    let message = world.delivered().await;
    let both = [Mailbox::Dmarc, Mailbox::ReturnPath(ReturnPath { account: world.account, message })];
    let bounce = dsn(&[("b@example.net", "failed", "550 5.1.1 gone")]).replace('\n', "\r\n").into_bytes();
    assert_eq!(world.receiver.receive(client(1), &both, bounce).await.unwrap(), AcceptedKind::Bounced);
    let counts: BTreeMap<_, _> = world.engine.meters.dmarc_reports.read().collect();
    assert_eq!((counts["unreadable"], world.status(message)), (1, Status::Bounced));
}
