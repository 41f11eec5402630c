//! Tests of sending domains: adding one, expected and published records, and advice for a missing record.

use super::*;
use crate::base::id::DomainId;
use crate::domain::sending_domain::{DkimState, RecordPurpose, RecordStatus};
use crate::engine::domains::{ExpectedRecord, expected_records};
use crate::store::op::domain::RecordDomainCheck;
use crate::store::row::domain::{DnsFacts, DomainRow, Finding};

impl World {
    fn domain(&self, id: DomainId) -> DomainRow {
        self.engine.domain(self.account, id).unwrap().unwrap()
    }

    /// Records a DNS check with the results of `find`.
    async fn found(&self, id: DomainId, find: impl Fn(&ExpectedRecord) -> (RecordStatus, Vec<String>)) {
        let expected = expected_records(&self.domain(id), &self.engine.settings);
        let findings = expected.into_iter().map(|record| {
            let (status, found) = find(&record);
            Finding { purpose: record.purpose, name: record.name, status, found }
        });
        let (findings, facts) = (findings.collect(), DnsFacts::default());
        let op = RecordDomainCheck { account: self.account, domain: id, findings, facts };
        self.engine.store.commit(op).await.unwrap();
    }

    async fn all_found(&self, id: DomainId) {
        self.found(id, |record| (RecordStatus::Ok, vec![record.value.clone()])).await;
    }
}

async fn added(browser: &mut Browser) -> DomainId {
    let reply = browser.post("/domains", &[("name", "Shop.Example.COM"), ("stream", "marketing")]).await;
    assert_eq!(reply.status, 303, "{}", reply.body);
    reply.location().strip_prefix("/domains/").unwrap().strip_suffix("?done=added").unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_page_of_a_new_domain_shows_its_records() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = added(&mut browser).await;
    let page = browser.get(&format!("/domains/{id}")).await;
    assert!(page.shows("Not verified") && !page.shows("nchecked") && page.shows("Not checked</span>"));
    for record in expected_records(&world.domain(id), &world.engine.settings) {
        assert!(page.shows(&format!(">{}</code>", record.name)), "{}", record.name);
        assert!(page.shows(&format!(">{}</code>", record.value)), "{}", record.value);
    }
    assert_eq!(page.body.matches("class=\"needed\"").count(), 1, "the RSA record alone");
    assert!(page.shows("<dt>Short name</dt>") && page.shows("<dt>Full name</dt>"));
    assert!(page.shows("tabindex=\"0\">rp.shop</code>") && page.shows("tabindex=\"0\">shop</code>"));
    assert!(page.shows("Use the short name if your provider adds <code>example.com</code>."));
    assert!(page.shows("rp.shop.example.com. 3600 IN CNAME bounces.example.com."));
    let list = browser.get("/domains").await;
    assert!(list.shows("shop.example.com") && list.shows("data-label=\"Records found\">Not checked</td>"));
    let json = browser.get(&format!("/domains/{id}/json")).await;
    assert!(json.body.starts_with(&format!("{{\"id\":\"{id}\",\"name\":\"shop.example.com\"")));
}

#[tokio::test]
async fn an_invalid_domain_is_shown_again_with_its_error() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for (name, fault) in [("not a domain", "name-fault"), ("", "name-fault"), ("example.test", "name-fault")] {
        let reply = browser.post("/domains", &[("name", name), ("stream", "transactional")]).await;
        assert!(reply.status == 422 && reply.shows(fault) && reply.shows(&format!("value=\"{name}\"")), "{name}");
    }
    let reply = browser.post("/domains", &[("name", "a.example.com"), ("stream", "bulk")]).await;
    assert!(reply.status == 422 && reply.shows("stream-fault"));
}

#[tokio::test]
async fn published_records_are_shown_beside_expected_ones() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = added(&mut browser).await;
    let key = |record: &ExpectedRecord| record.value.replace("; p=", "; p=X");
    world
        .found(id, |record| match record.purpose {
            RecordPurpose::Dkim => (RecordStatus::Mismatch, vec![key(record)]),
            RecordPurpose::Spf => (RecordStatus::Mismatch, vec!["v=spf1 include:other.test -all".to_owned()]),
            RecordPurpose::ReturnPath => (RecordStatus::Missing, vec![]),
            RecordPurpose::Dmarc => (RecordStatus::Unchecked, vec![]),
        })
        .await;
    let list = browser.get("/domains").await;
    assert!(list.shows("data-label=\"Records found\">0 of 5</td>"), "{}", list.body);
    let page = browser.get(&format!("/domains/{id}")).await;
    assert!(page.shows("<span>0 of 5 records found</span>"));
    assert!(page.shows("; p=<mark>X") && page.shows("Different key; maybe cut off."));
    assert!(page.shows("Merge into one SPF record: v=spf1 include:other.test a:mail.example.com -all"));
    assert!(page.shows("Not published or not propagated") && page.shows("Lookup failed"));
    let verify = browser.post(&format!("/domains/{id}/verify"), &[]).await;
    assert_eq!(verify.location(), format!("/domains/{id}?done=checked"));
    let page = browser.get(verify.location()).await;
    let result = "<p class=\"done wait\" role=\"status\">Checked: 0 of 5 records found.</p>";
    assert!(page.shows(result) && !page.shows("<mark>"), "nothing is known under any name");
    world.all_found(id).await;
    let page = browser.get(verify.location()).await;
    assert!(page.shows("<p class=\"done\" role=\"status\">Checked: 5 of 5 records found.</p>"), "{}", page.body);
}

#[tokio::test]
async fn the_dmarc_record_has_a_remark_if_it_would_weaken_an_inherited_policy() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = added(&mut browser).await;
    let ours = "v=DMARC1; p=none; rua=mailto:dmarc@rp.shop.example.com";
    for (inherited, kept) in [
        (
            "v=DMARC1; p=none; sp=reject; rua=mailto:dmarc@example.com",
            Some("v=DMARC1; p=reject; rua=mailto:dmarc@example.com,mailto:dmarc@rp.shop.example.com"),
        ),
        ("v=DMARC1; p=reject; sp=none", None),
    ] {
        let expected = expected_records(&world.domain(id), &world.engine.settings);
        let of = |name: &str, found: &[&str]| Finding {
            purpose: RecordPurpose::Dmarc,
            name: name.to_owned(),
            status: if found.is_empty() { RecordStatus::Missing } else { RecordStatus::Ok },
            found: found.iter().map(ToString::to_string).collect(),
        };
        let findings = vec![of("_dmarc.shop.example.com", &[]), of("_dmarc.example.com", &[inherited])];
        let op = RecordDomainCheck { account: world.account, domain: id, findings, facts: DnsFacts::default() };
        world.engine.store.commit(op).await.unwrap();
        assert_eq!(expected_records(&world.domain(id), &world.engine.settings), expected, "the value stays");
        let page = browser.get(&format!("/domains/{id}")).await;
        assert!(page.shows(&format!(">{ours}</code>")) && page.shows("Not published"));
        let remark = "The record at _dmarc.example.com protects this domain with p=reject";
        let remarks = page.body.matches(remark).count();
        assert_eq!(remarks, if kept.is_some() { 2 } else { 0 }, "beside the record, and in the zone file");
        assert!(kept.is_none_or(|kept| page.shows(&format!("To keep the policy, publish: {kept}"))), "{}", page.body);
    }
}

#[tokio::test]
async fn a_missing_record_shows_the_end_of_the_grace_period() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = added(&mut browser).await;
    world.all_found(id).await;
    assert!(browser.get("/domains").await.shows(">5 of 5</td>"));
    assert!(!browser.get(&format!("/domains/{id}")).await.shows("class=\"panel problem\""));
    world.advance(Duration::from_secs(3600));
    world.found(id, |_| (RecordStatus::Missing, vec![])).await;
    let page = browser.get(&format!("/domains/{id}")).await;
    assert!(
        page.shows("DKIM record missing")
            && page.shows("17 Nov 2023, <span>22:13:20 UTC</span></time> <span class=\"age\">in 2 days"),
        "72 hours on"
    );
    let strip = browser.get("/").await;
    assert!(strip.shows("is missing; sending stops") && strip.shows(&format!("href=\"/domains/{id}\"")));
}

#[tokio::test]
async fn keys_are_rotated_the_stream_changed_and_the_domain_deleted() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = added(&mut browser).await;
    world.all_found(id).await;
    let path = format!("/domains/{id}");
    assert_eq!(browser.post(&format!("{path}/rotate-dkim"), &[]).await.location(), format!("{path}?done=rotated"));
    assert_eq!(world.domain(id).dkim.iter().filter(|key| key.state == DkimState::Pending).count(), 2);
    world.all_found(id).await;
    assert!(browser.get(&path).await.shows("Retiring"));
    assert_eq!(browser.post(&path, &[("stream", "transactional")]).await.location(), format!("{path}?done=saved"));
    assert_eq!(world.domain(id).stream, Stream::Transactional);
    assert_eq!(browser.post(&path, &[("stream", "bulk")]).await.status, 422);
    assert_eq!(
        browser.post(&format!("{path}/delete"), &[("name", "shop.example.com")]).await.location(),
        "/domains?done=deleted"
    );
    assert_eq!(browser.get(&path).await.status, 404);
    assert_eq!(browser.post(&format!("{path}/verify"), &[]).await.status, 404);
}

#[tokio::test]
async fn a_dev_domain_is_pre_verified() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let list = browser.get("/domains").await;
    let id = list.between("href=\"/domains/dom_", "\"").to_owned();
    let page = browser.get(&format!("/domains/dom_{id}")).await;
    assert!(page.shows("Pre-verified") && !page.shows("Check now"));
}

#[tokio::test]
async fn a_refused_rotation_keeps_what_was_typed_and_names_its_field() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = added(&mut browser).await;
    for typed in ["7", "x"] {
        let refused = browser.post(&format!("/domains/{id}"), &[("dkim_rotation_days", typed)]).await;
        assert_eq!(refused.status, 422);
        let said = refused.between("id=\"rotation-fault\">", "<");
        assert_eq!(said, "Rotate every (days) must be 0, or a whole number of days from 30 to 730.");
        assert!(refused.shows(&format!("value=\"{typed}\"")) && refused.shows("shop.example.com"), "{}", refused.body);
    }
}

#[tokio::test]
async fn a_domain_that_was_never_checked_counts_no_records() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = added(&mut browser).await;
    for path in ["/domains".to_owned(), format!("/domains/{id}")] {
        let page = browser.get(&path).await;
        assert!(page.shows("Not checked") && !page.shows("0 of 5"), "{}", page.body);
    }
    world.found(id, |_| (RecordStatus::Missing, Vec::new())).await;
    assert!(browser.get(&format!("/domains/{id}")).await.shows("0 of 5 records found"));
}
