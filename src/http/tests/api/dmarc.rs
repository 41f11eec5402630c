//! Tests of DMARC reports over the API: figures, marks, and the list of reports.

use super::*;
use crate::base::id::DomainId;
use crate::base::time::Timestamp;
use crate::domain::dmarc_record::DmarcPolicy;
use crate::domain::dmarc_source::{DmarcCounts, Evaluation};
use crate::store::op::dmarc::{RecordDmarcReport, SourceCounts};
use crate::store::row::dmarc::DmarcReportRow;

/// The first second of the day before every test's start, 2023-11-13.
const YESTERDAY: u64 = 1_699_833_600;

/// Creates a domain with a record that requests reports, and returns its path.
async fn domain(world: &mut World) -> (DomainId, String) {
    let body = serde_json::json!({ "name": "shop.example", "stream": "transactional" });
    let made = world.post("/v1/domains", body).await.json();
    let record = |purpose: &str| {
        made["records"].as_array().unwrap().iter().find(|record| record["purpose"] == purpose).unwrap().clone()
    };
    let (dkim, dmarc) = (record("dkim"), record("dmarc"));
    assert_eq!(dmarc["value"], "v=DMARC1; p=none; rua=mailto:dmarc@rp.shop.example");
    world.names.publish(dkim["name"].as_str().unwrap(), dkim["value"].as_str().unwrap());
    world.names.publish("_dmarc.shop.example", "v=DMARC1; p=none; rua=mailto:dmarc@rp.shop.example");
    let id = made["id"].as_str().unwrap();
    let path = format!("/v1/domains/{id}");
    assert_eq!(world.post(&format!("{path}/verify"), Value::Null).await.json()["status"], "verified");
    (id.parse().unwrap(), path)
}

/// Stores a report of one reporter: address, passed messages, and failed messages.
async fn record(world: &World, domain: DomainId, reporter: &str, id: &str, sources: &[(&str, u64, u64)]) {
    let mut total = DmarcCounts::default();
    let sources = sources.iter().map(|(network, passed, failed)| {
        let mut counts = DmarcCounts::default();
        counts.add(Evaluation { disposition: DmarcPolicy::None, dkim: true, spf: false }, *passed);
        counts.add(Evaluation { disposition: DmarcPolicy::Quarantine, dkim: false, spf: false }, *failed);
        total.merge(&counts);
        SourceCounts {
            network: network.parse().unwrap(),
            counts,
            has_own_signature: false,
            dkim_domains: vec![("signer.example".parse().unwrap(), 1)],
            spf_domains: Vec::new(),
        }
    });
    let sources = sources.collect();
    let begin = Timestamp::from_millis(YESTERDAY * 1000);
    let report = DmarcReportRow {
        reporter: reporter.to_owned(),
        from_domain: Some("reporter.example".parse().unwrap()),
        report_id: id.to_owned(),
        policy_domain: "shop.example".parse().unwrap(),
        begin,
        end: begin + std::time::Duration::from_secs(86_399),
        messages: total.messages(),
        passed: total.passed(),
        skipped_rows: 1,
        is_authentic: true,
    };
    let signer = Some("reporter.example".parse().unwrap());
    let (account, policy, own) = (world.account, DmarcPolicy::None, Vec::new());
    let op = RecordDmarcReport { account, domain, report, signer, policy, own, sources };
    world.engine.store.commit(op).await.unwrap();
}

#[tokio::test]
async fn the_figures_of_a_domain_are_complete_and_exact() {
    let mut world = World::new().await;
    let (id, path) = domain(&mut world).await;
    let empty = world.get(&format!("{path}/dmarc")).await;
    let expected = [
        "domain",
        "from",
        "to",
        "policy",
        "reports",
        "reporters",
        "all_reporters",
        "messages",
        "passed",
        "pass_rate",
        "days",
        "sources",
        "recommendation",
    ];
    assert_eq!((empty.status, members(&empty.body)), (200, expected.map(str::to_owned).to_vec()));
    let empty = empty.json();
    assert_eq!((&empty["from"], &empty["to"]), (&"2023-10-16".into(), &"2023-11-14".into()));
    assert_eq!((&empty["pass_rate"], &empty["days"]), (&Value::Null, &serde_json::json!([])));
    assert_eq!(empty["recommendation"]["action"], "wait");

    record(&world, id, "google.com", "1", &[("192.0.2.0/24", 30, 0), ("198.51.100.0/24", 5, 5)]).await;
    record(&world, id, "Yahoo", "2", &[("192.0.2.0/24", 10, 0)]).await;
    let shown = world.get(&format!("{path}/dmarc?days=2")).await.json();
    let record = "v=DMARC1; p=none; rua=mailto:dmarc@rp.shop.example";
    assert_eq!(
        shown,
        serde_json::json!({
            "domain": "shop.example",
            "from": "2023-11-13",
            "to": "2023-11-14",
            "policy": { "record": record, "p": "none", "at": "_dmarc.shop.example", "inherited": false },
            "reports": 2,
            "reporters": [
                { "name": "google.com", "reports": 1, "messages": 40 },
                { "name": "Yahoo", "reports": 1, "messages": 10 },
            ],
            "all_reporters": [
                { "name": "google.com", "signed_by": "reporter.example", "reports": 1, "messages": 40, "ignored": false },
                { "name": "Yahoo", "signed_by": "reporter.example", "reports": 1, "messages": 10, "ignored": false },
            ],
            "messages": 50,
            "passed": 45,
            "pass_rate": 0.9,
            "days": [{ "day": "2023-11-13", "messages": 50, "passed": 45, "quarantined": 5, "rejected": 0 }],
            "sources": [
                {
                    "network": "192.0.2.0/24", "kind": "authorised", "mine": null,
                    "first_seen": "2023-11-13", "last_seen": "2023-11-13",
                    "messages": 40, "passed": 40, "pass_rate": 1.0, "dkim_aligned": 40, "spf_aligned": 0,
                    "dkim_domains": ["signer.example"], "spf_domains": [],
                },
                {
                    "network": "198.51.100.0/24", "kind": "authorised", "mine": null,
                    "first_seen": "2023-11-13", "last_seen": "2023-11-13",
                    "messages": 10, "passed": 5, "pass_rate": 0.5, "dkim_aligned": 5, "spf_aligned": 0,
                    "dkim_domains": ["signer.example"], "spf_domains": [],
                },
            ],
            "recommendation": {
                "action": "wait",
                "record": null,
                "reason": "Days with reports in the last 30 days: 1 (14 are needed). Messages in them: 50 (100 are needed).",
                "blockers": [],
            },
        })
    );
    assert_eq!(world.get(&format!("{path}/dmarc?days=1")).await.json()["messages"], 0, "today has no report yet");
    for days in ["0", "401", "x", "", "-1", "1.5", "+3"] {
        let refused = world.get(&format!("{path}/dmarc?days={days}")).await;
        refused.fails_with(422, "validation_failed");
        assert_eq!(refused.faults(), ["days"], "{days}");
    }
    assert_eq!(world.get(&format!("{path}/dmarc?days=400")).await.status, 200);
    world.get("/v1/domains/dom_x/dmarc?days=0").await.fails_with(404, "not_found");
}

#[tokio::test]
async fn a_source_is_marked_and_unmarked() {
    let mut world = World::new().await;
    let (id, path) = domain(&mut world).await;
    record(&world, id, "google.com", "1", &[("192.0.2.0/24", 30, 0)]).await;
    let path = format!("{path}/dmarc/sources");
    for mine in [Value::Bool(true), Value::Bool(false), Value::Null] {
        let body = serde_json::json!({ "network": "192.0.2.0/24", "mine": mine });
        let marked = world.patch(&path, body).await;
        let shown = marked.json();
        assert_eq!((marked.status, &shown["mine"], &shown["messages"]), (200, &mine, &30.into()));
    }
    let body = serde_json::json!({ "network": "192.0.3.0/24", "mine": true });
    world.patch(&path, body).await.fails_with(404, "not_found");
    let faults = async |world: &mut World, body| world.patch(&path, body).await.faults();
    assert_eq!(faults(&mut world, serde_json::json!({})).await, ["mine", "network"]);
    assert_eq!(faults(&mut world, serde_json::json!({ "network": "192.0.2.1", "mine": 1 })).await, ["mine", "network"]);
    let unknown = serde_json::json!({ "network": "192.0.2.0/24", "mine": true, "x": 1 });
    assert_eq!(faults(&mut world, unknown).await, ["x"]);
}

#[tokio::test]
async fn a_listed_name_without_separate_counts_means_its_signing_domain() {
    let mut world = World::new().await;
    let (id, path) = domain(&mut world).await;
    for name in ["One", "Two", "Three", "Four", "Five"] {
        record(&world, id, name, name, &[("192.0.2.0/24", 10, 0)]).await;
    }
    let listed = world.get(&format!("{path}/dmarc/reports")).await.json();
    assert_eq!(listed["data"][0]["reporter"], "Five");
    let path = format!("{path}/dmarc/reporters");
    let answer = world.patch(&path, serde_json::json!({ "name": "Five", "ignored": true })).await;
    let expected = serde_json::json!({ "name": "reporter.example", "reports": 1, "messages": 10, "ignored": true });
    assert_eq!((answer.status, answer.json()), (200, expected));
    let other = serde_json::json!({ "name": "Five", "signed_by": "other.example", "ignored": true });
    world.patch(&path, other).await.fails_with(404, "not_found");
}

#[tokio::test]
async fn a_reporter_is_ignored_and_counted_again() {
    let mut world = World::new().await;
    let (id, path) = domain(&mut world).await;
    record(&world, id, "google.com", "1", &[("192.0.2.0/24", 30, 0)]).await;
    record(&world, id, "liar", "2", &[("192.0.2.0/24", 0, 70)]).await;
    let (figures, path) = (format!("{path}/dmarc"), format!("{path}/dmarc/reporters"));
    for (ignored, messages, reporters) in [(true, 30, 1), (false, 100, 2)] {
        let answer = world.patch(&path, serde_json::json!({ "name": "liar", "ignored": ignored })).await;
        let expected = serde_json::json!({ "name": "liar", "reports": 1, "messages": 70, "ignored": ignored });
        assert_eq!((answer.status, answer.json()), (200, expected));
        let shown = world.get(&figures).await.json();
        assert_eq!((&shown["messages"], shown["reporters"].as_array().unwrap().len()), (&messages.into(), reporters));
        let all = shown["all_reporters"].as_array().unwrap();
        let liar = all.iter().find(|reporter| reporter["name"] == "liar").unwrap();
        assert_eq!((&liar["ignored"], &liar["signed_by"]), (&ignored.into(), &"reporter.example".into()));
    }
    let mut of_signer = serde_json::json!({ "name": "liar", "ignored": true, "signed_by": "other.example" });
    world.patch(&path, of_signer.clone()).await.fails_with(404, "not_found");
    of_signer["signed_by"] = "reporter.example".into();
    assert_eq!(world.patch(&path, of_signer).await.json()["messages"], 70);
    world.patch(&path, serde_json::json!({ "name": "x", "ignored": true })).await.fails_with(404, "not_found");
    assert_eq!(world.patch(&path, serde_json::json!({ "ignored": null })).await.faults(), ["ignored", "name"]);
}

#[tokio::test]
async fn reports_are_listed_newest_first_in_pages() {
    let mut world = World::new().await;
    let (id, path) = domain(&mut world).await;
    for number in 1..=3 {
        record(&world, id, "google.com", &number.to_string(), &[("192.0.2.0/24", number, 0)]).await;
    }
    let page = world.get(&format!("{path}/dmarc/reports?limit=2")).await.json();
    let rows = page["data"].as_array().unwrap();
    let id = rows[0]["id"].clone();
    assert!(id.as_str().unwrap().starts_with("dmr_"));
    assert_eq!(
        rows[0],
        serde_json::json!({
            "id": id, "reporter": "google.com", "from_domain": "reporter.example", "report_id": "3",
            "begin": "2023-11-13T00:00:00.000+00:00", "end": "2023-11-13T23:59:59.000+00:00",
            "messages": 3, "passed": 3, "skipped_rows": 1, "authentic": true,
        })
    );
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = world.get(&format!("{path}/dmarc/reports?limit=2&cursor={cursor}")).await.json();
    assert_eq!((rest["data"][0]["report_id"].as_str(), rest["data"].as_array().unwrap().len()), (Some("1"), 1));
    world.get("/v1/domains/dom_x/dmarc/reports").await.fails_with(404, "not_found");
}
