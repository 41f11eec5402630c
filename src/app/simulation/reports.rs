//! DMARC aggregate reports about the tenants' domains. Receivers send them by mail, repeat a mail until it is accepted,
//! and send some reports again afterwards.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::time::sleep;

use super::clients::with_patience;
use super::plan::{FaultClass, Plan};
use super::process::Front;
use super::smtp_client;
use super::world::World;
use crate::base::entropy::SeededEntropy;
use crate::base::id::DomainId;
use crate::domain::sending_domain::DkimAlgorithm;
use crate::engine::Engine;
use crate::engine::dmarc::report_address;
use crate::engine::listing::PageRequest;
use crate::mail::dkim::{SigningKey, sign};
use crate::mail::dkim_key::{GeneratedKey, generate};
use crate::store::op::domain::domain_by_name;

/// The domain of the receiver that writes the reports.
const REPORTER: &str = "reporter.test";
/// Name of the reporter's DKIM record.
pub(super) const KEY_NAME: &str = "s._domainkey.reporter.test";
const DAY: u64 = 86_400;

/// The reporter's key.
pub(super) static KEY: LazyLock<GeneratedKey> =
    LazyLock::new(|| generate(DkimAlgorithm::Ed25519Sha256, &SeededEntropy::new(7)).expect("Ed25519 keys are random"));

/// A report, from its reporter's view.
#[derive(Debug, Clone)]
pub(super) struct Report {
    tenant: usize,
    /// Number of messages in the report.
    messages: u64,
    /// The signed mail, from its first try on.
    mail: Option<String>,
    /// Elapsed time of the next try.
    at: Duration,
    /// Number of times that the report is sent again after it was accepted.
    repeats: usize,
    /// Number of tries that were accepted.
    accepted: usize,
}

impl Report {
    /// Returns whether the report will not be sent again.
    pub(super) const fn is_done(&self) -> bool {
        self.accepted > self.repeats
    }
}

/// Draws the reports of a run, in a sequence of its own, so that other draws stay as they are.
pub(super) fn draw(plan: &Plan) -> Vec<Report> {
    let mut rng = crate::store::single_threaded::Rng::new(plan.seed ^ 0xd3a2_c000);
    if !plan.faults.contains(&FaultClass::Bounces) {
        return Vec::new();
    }
    let count = rng.index(5);
    let mut report = |_| Report {
        tenant: rng.index(plan.tenants),
        messages: 1 + rng.below(1_000),
        mail: None,
        at: Duration::from_millis(rng.below(7_200_000)),
        repeats: rng.index(3),
        accepted: 0,
    };
    (0..count).map(&mut report).collect()
}

/// Sends the reports that are due, one after the other, for as long as the process lives.
pub(super) async fn send(world: Arc<World>, front: Front) {
    while let Some((number, report)) = next(&world) {
        sleep(report.at.saturating_sub(world.clocks.elapsed())).await;
        let process = front.reached(&world);
        let address = report_address(&domain(report.tenant).parse().unwrap());
        let mail = report.mail.clone().unwrap_or_else(|| mail(number, &report, &process.service.engine));
        world.state().reports[number].mail = Some(mail.clone());
        let sending = smtp_client::bounce(&process.service.bounces, &address, &mail);
        let answer = with_patience(&world, sending).await.map_or(0, |(code, _)| code);
        world.note(format!("report {number} is answered {answer}"));
        if answer >= 500 {
            world.find(format!("reports: a report is refused with {answer}"));
            return;
        }
        let pause = world.millis(60_000, 3_600_000);
        let mut state = world.state();
        let report = &mut state.reports[number];
        report.at += pause;
        report.accepted += usize::from(answer == 250);
    }
}

/// Returns the report that is due first, with its number.
fn next(world: &World) -> Option<(usize, Report)> {
    let state = world.state();
    let open = state.reports.iter().enumerate().filter(|(_, report)| !report.is_done());
    open.min_by_key(|(_, report)| report.at).map(|(number, report)| (number, report.clone()))
}

fn domain(tenant: usize) -> String {
    format!("t{tenant}.example")
}

/// Returns the mail of a report about the day before the first try (RFC 7489 7.2), signed by the reporter.
fn mail(number: usize, report: &Report, engine: &Engine) -> String {
    let (now, domain) = (engine.clock.now(), domain(report.tenant));
    let begin = (now.as_secs() / DAY - 1) * DAY;
    let text = format!(
        "From: DMARC <reports@{REPORTER}>\r\nSubject: Report Domain: {domain}\r\nContent-Type: text/xml\r\n\r\n\
         <feedback><report_metadata><org_name>{REPORTER}</org_name><report_id>{number}</report_id><date_range>\
         <begin>{begin}</begin><end>{}</end></date_range></report_metadata>\
         <policy_published><domain>{domain}</domain><p>none</p></policy_published>\
         <record><row><source_ip>198.51.100.9</source_ip><count>{}</count><policy_evaluated>\
         <disposition>none</disposition><dkim>pass</dkim><spf>fail</spf></policy_evaluated></row>\
         <identifiers><header_from>{domain}</header_from></identifiers><auth_results/></record></feedback>\r\n",
        begin + DAY - 1,
        report.messages,
    );
    let key = SigningKey::from_pkcs8(REPORTER.parse().unwrap(), "s", DkimAlgorithm::Ed25519Sha256, KEY.pkcs8.expose());
    let field = sign(&[&key.expect("a generated key")], text.as_bytes(), now).expect("a small message");
    String::from_utf8(field).unwrap() + &text
}

/// Judges the recorded reports: each is counted once, even if it was sent again, and the sums are those of the reports.
/// A report whose signature could not be verified is listed but not counted.
pub(super) async fn judge(world: &World, engine: &Arc<Engine>) {
    let (tenants, reports) = (world.tenants(), world.state().reports.clone());
    for (number, tenant) in tenants.iter().enumerate() {
        let Some(id) = domain_of(engine, tenant.account, number) else { continue };
        let page = PageRequest { before: None, limit: 1000 };
        let Ok(listed) = engine.dmarc_reports(tenant.account, id, page) else {
            world.find("reports: they can't be read".to_owned());
            continue;
        };
        let counted = |report: usize| {
            let rows = listed.rows.iter().map(|(_, row)| row);
            rows.filter(|row| row.is_authentic && row.report_id == report.to_string()).count()
        };
        for (place, report) in reports.iter().enumerate().filter(|(_, report)| report.tenant == number) {
            let must_count = report.accepted > 0 && !world.plan.faults.contains(&FaultClass::Names);
            let may_be_late = world.plan.faults.contains(&FaultClass::Clock);
            let times = counted(place);
            if times > 1 || (times == 0 && must_count && !may_be_late) {
                world.find(format!(
                    "reports: report {place} was accepted {} times and counted {times}",
                    report.accepted
                ));
            }
        }
        if world.plan.faults.contains(&FaultClass::Clock) {
            continue;
        }
        let sum: u64 = listed.rows.iter().filter(|(_, row)| row.is_authentic).map(|(_, row)| row.messages).sum();
        match engine.dmarc_overview(tenant.account, id, 30).await {
            Ok(Some(overview)) if overview.counts.messages() == sum => {}
            Ok(overview) => {
                let found = overview.map(|overview| overview.counts.messages());
                world.find(format!("reports: {sum} messages were reported, and {found:?} are counted"));
            }
            Err(error) => world.find(format!("reports: their sums can't be read: {error}")),
        }
    }
}

fn domain_of(engine: &Engine, account: crate::base::id::AccountId, number: usize) -> Option<DomainId> {
    let snapshot = engine.store.snapshot().ok()?;
    domain_by_name(&snapshot, account, &domain(number)).ok()?.map(|(id, _)| id)
}
