//! Tests of the DMARC report page: the next step, marked sources, and escaping of foreign text.

use super::*;
use crate::base::id::DomainId;
use crate::domain::dmarc_record::DmarcPolicy;
use crate::domain::dmarc_source::{DmarcCounts, Evaluation};
use crate::domain::stream::Stream;
use crate::store::op::dmarc::{RecordDmarcReport, SourceCounts, day_of, start_of};
use crate::store::row::dmarc::DmarcReportRow;

const REPORTER: &str = "<script>alert(1)</script>";

impl World {
    /// A verified domain with one report.
    async fn reported(&self) -> DomainId {
        self.reported_as(true).await
    }

    async fn reported_as(&self, is_authentic: bool) -> DomainId {
        let name = "shop.example.com".parse().unwrap();
        let made = self.engine.create_verified_domain(self.account, name, Stream::Transactional).await;
        let (domain, _) = made.ok().unwrap();
        let mut counts = DmarcCounts::default();
        counts.add(Evaluation { disposition: DmarcPolicy::None, dkim: true, spf: true }, 1234);
        counts.add(Evaluation { disposition: DmarcPolicy::Reject, dkim: false, spf: false }, 66);
        let begin = start_of(day_of(self.engine.clock.now()) - 1);
        let signer: crate::domain::hostname::DomainName = "reporter.example".parse().unwrap();
        let source = SourceCounts {
            network: "198.51.100.0/24".parse().unwrap(),
            counts,
            has_own_signature: false,
            dkim_domains: vec![("mailer.example".parse().unwrap(), 1234)],
            spf_domains: Vec::new(),
        };
        let op = RecordDmarcReport {
            account: self.account,
            domain,
            report: DmarcReportRow {
                reporter: REPORTER.to_owned(),
                from_domain: Some(signer.clone()),
                report_id: "1".to_owned(),
                policy_domain: "shop.example.com".parse().unwrap(),
                begin,
                end: begin + std::time::Duration::from_secs(86_399),
                messages: counts.messages(),
                passed: counts.passed(),
                skipped_rows: 0,
                is_authentic,
            },
            signer: is_authentic.then_some(signer),
            policy: DmarcPolicy::None,
            own: Vec::new(),
            // Reports without a signature are not counted.
            sources: if is_authentic { vec![source] } else { Vec::new() },
        };
        assert!(self.engine.store.commit(op).await.is_ok());
        domain
    }
}

#[tokio::test]
async fn the_page_shows_the_next_step_first_and_escapes_foreign_text() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = world.reported().await;
    assert!(browser.get(&format!("/domains/{id}")).await.shows(&format!("/domains/{id}/dmarc")));
    let page = browser.get(&format!("/domains/{id}/dmarc")).await;
    assert_eq!(page.status, 200);
    assert!(page.shows("Publish a DMARC record") && page.shows("rua=mailto:dmarc@rp.shop.example.com"));
    assert!(
        page.shows("1,300") && page.shows("94.9%") && page.shows("198.51.100.0/24") && page.shows("mailer.example")
    );
    let domains = crate::engine::listing::PageRequest { before: None, limit: 9 };
    let domains = world.engine.domains(world.account, domains).unwrap().rows;
    let other = domains.iter().find(|(other, _)| *other != id).unwrap().0;
    let empty = browser.get(&format!("/domains/{other}/dmarc")).await;
    assert!(empty.status == 200 && !empty.shows("Receivers wrote these reports"), "{}", empty.body);
    assert!(page.shows("A signature proves who wrote a report, not that it is true."));
    assert!(!page.body.contains(REPORTER) && page.body.contains("script&#62;alert(1)"), "{}", page.body);
    assert!(page.shows("class=\"tip\">14 Nov: "), "each day has its bar, under a short name: {}", page.body);
    assert!(!page.shows("P=none"), "a record tag keeps its case");
    let json = browser.get(&format!("/domains/{id}/dmarc/json")).await;
    assert!(json.body.starts_with("{\"domain\":\"shop.example.com\""));
    for days in ["7", "400", "x"] {
        assert_eq!(browser.get(&format!("/domains/{id}/dmarc?days={days}")).await.status, 200);
    }
}

#[tokio::test]
async fn without_incoming_mail_the_page_first_says_so_and_leads_to_its_section() {
    let world = World::with(Settings { receives_mail: false, ..Settings::for_tests() }).await;
    let mut browser = world.owner().await;
    let made = browser.post("/domains", &[("name", "new.example.com"), ("stream", "transactional")]).await;
    let path = made.location().split('?').next().unwrap().to_owned();
    let page = browser.get(&format!("{path}/dmarc")).await;
    let order =
        ["No report can arrive", "href=\"/docs/domains#incoming-mail\">incoming mail</a>", "Check the DNS first"];
    let places = order.map(|text| page.body.find(text).unwrap_or_else(|| panic!("{text} in {}", page.body)));
    assert!(places.is_sorted(), "{places:?}");
    assert!(!page.shows("<dt>Passed</dt>"), "figures of nothing are not shown");
    let docs = browser.get("/docs/domains").await;
    assert!(docs.between("id=\"incoming-mail\"", "<h2").contains("To turn on incoming mail"), "{}", docs.body);
}

#[tokio::test]
async fn no_record_is_proposed_before_the_first_check() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let made = browser.post("/domains", &[("name", "new.example.com"), ("stream", "transactional")]).await;
    let path = made.location().split('?').next().unwrap().to_owned();
    let page = browser.get(&format!("{path}/dmarc")).await;
    let verdict = page.between("id=\"verdict\">", "</section>");
    assert!(verdict.starts_with("Check the DNS first") && !verdict.contains("v=DMARC1"), "{verdict}");
    assert!(verdict.contains(&format!("action=\"{path}/verify\"")) && !page.shows("No report can arrive"), "{verdict}");
    browser.post(&format!("{path}/verify"), &[]).await;
    let page = browser.get(&format!("{path}/dmarc")).await;
    assert!(!page.shows("Check the DNS first"), "{}", page.body);
}

#[tokio::test]
async fn reports_without_a_signature_explain_the_empty_figures() {
    let world = World::new().await;
    let path = format!("/domains/{}/dmarc", world.reported_as(false).await);
    let page = world.owner().await.get(&path).await;
    assert!(
        page.shows("No messages in the reports") && page.shows("have no valid signature of their"),
        "{}",
        page.body
    );
    assert!(page.shows("data-label=\"Range\">13 Nov<"), "days are written as elsewhere");
}

#[tokio::test]
async fn a_source_can_be_marked_and_a_reporter_ignored() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let path = format!("/domains/{}/dmarc", world.reported().await);
    let form = [("network", "198.51.100.0/24"), ("mine", "yes")];
    let reply = browser.post(&format!("{path}/sources"), &form).await;
    assert_eq!((reply.status, reply.location()), (303, &*format!("{path}?done=marked")));
    let page = browser.get(reply.location()).await;
    assert!(page.shows("<option value=\"yes\" selected>") && page.shows("Source saved."));
    assert!(page.shows("% <span class=\"hint block\">"), "a share is apart from its domains: {}", page.body);
    let reply = browser.post(&format!("{path}/reporters"), &[("name", REPORTER), ("ignored", "yes")]).await;
    assert_eq!((reply.status, reply.location()), (303, &*format!("{path}?done=ignored")));
    let page = browser.get(&path).await;
    assert!(page.shows("No messages in the reports") && page.shows("Count again"));
    let reply = browser.post(&format!("{path}/reporters"), &[("name", REPORTER)]).await;
    assert_eq!(reply.location(), format!("{path}?done=counted"));
    assert_eq!(browser.post(&format!("{path}/sources"), &[("network", "192.0.9.0/24")]).await.status, 404);
    assert!(browser.get("/audit").await.shows("marked a source in the DMARC reports of"));
}
