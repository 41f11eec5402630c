//! Tests of `/metrics`, with a strict parser.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::support::{Answer, Dev};

/// Samples of an OpenMetrics text, by name with labels.
type Samples = BTreeMap<String, f64>;

/// Parses an OpenMetrics 1.0 text; panics at every violation of its rules.
fn parsed(text: &str) -> Samples {
    assert!(text.ends_with("\n# EOF\n"), "the end is missing: {text}");
    let (mut samples, mut families) = (Samples::new(), BTreeSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    for line in text.strip_suffix("# EOF\n").unwrap().lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", "TYPE", name, of] => {
                assert!(families.insert((*name).to_owned()), "{name} is duplicated");
                (family, kind) = ((*name).to_owned(), (*of).to_owned());
            }
            ["#", "UNIT", name, unit] => assert!(*name == family && name.ends_with(&format!("_{unit}")), "{line}"),
            ["#", "HELP", name, help] => assert!(*name == family && help.ends_with('.'), "{line}"),
            ["#", ..] => panic!("an unknown comment: {line}"),
            _ => {
                let (name, value) = line.rsplit_once(' ').unwrap();
                check_name(name, &family, &kind);
                assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{name} is duplicated");
            }
        }
    }
    check_histograms(&samples);
    samples
}

fn check_name(name: &str, family: &str, kind: &str) {
    let bare = name.split('{').next().unwrap();
    let suffix = bare.strip_prefix(family).unwrap_or_else(|| panic!("{name} is listed under {family}"));
    let allowed: &[&str] = match kind {
        "counter" => &["_total"],
        "gauge" => &[""],
        "info" => &["_info"],
        "histogram" => &["_bucket", "_count", "_sum"],
        other => panic!("{family} is of type {other}"),
    };
    assert!(allowed.contains(&suffix), "{name} is not a {kind}");
    assert!(bare.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{name}");
    assert!(!name.contains('@') && !name.contains("acc_") && !name.contains(".test"), "{name} contains personal data");
}

/// Checks that bucket counts ascend, and that the last one is the total.
fn check_histograms(samples: &Samples) {
    for (name, value) in samples.iter().filter(|(name, _)| name.contains("le=\"+Inf\"")) {
        let count = name.replace("_bucket", "_count").replace("{le=\"+Inf\"}", "").replace(",le=\"+Inf\"", "");
        assert_eq!(samples.get(&count), Some(value), "{count}");
        let series = name.split("le=").next().unwrap();
        let buckets = samples.iter().filter(|(name, _)| name.starts_with(series));
        let bound = |name: &str| name.rsplit_once("le=\"").unwrap().1.trim_end_matches("\"}").replace('+', "").parse();
        let mut rising: Vec<(f64, f64)> = buckets.map(|(name, value)| (bound(name).unwrap(), *value)).collect();
        rising.sort_by(|a, b| a.partial_cmp(b).unwrap());
        assert!(rising.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{series}: {rising:?}");
    }
}

/// Starts `dev` with metrics on a free port, and returns their address.
fn watched() -> (Dev, String) {
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(&file, "[metrics]\nlisten = \"127.0.0.1:0\"\n[limits]\nrequests_per_minute = 600\n").unwrap();
    let dev = Dev::with(&["--virtual-clock", "--config", file.path().to_str().unwrap()]);
    let addresses = std::fs::read_to_string(dev.data_dir().join("addresses.json")).unwrap();
    let addresses: serde_json::Value = serde_json::from_str(&addresses).unwrap();
    let url = format!("http://{}/metrics", addresses["metrics"].as_str().unwrap());
    (dev, url)
}

async fn scraped(url: &str) -> Samples {
    let answer = Answer::of(reqwest::get(url).await.unwrap()).await.expect(200);
    assert!(answer.header("content-type").starts_with("application/openmetrics-text; version=1.0.0"));
    parsed(std::str::from_utf8(&answer.bytes).unwrap())
}

#[tokio::test]
async fn the_metrics_count_all_outcomes() {
    let (dev, url) = watched();
    let before = scraped(&url).await;
    assert_eq!(before["postrider_message_events_total{type=\"queued\",stream=\"transactional\"}"], 0.0);
    for to in ["delivered@simulator.test", "bounced@simulator.test", "deferred@simulator.test", "ann@receiver.test"] {
        dev.send(to).await;
    }
    dev.post("/v1/messages", json!({})).await.expect(422);
    dev.get("/v1/messages/msg_00000000000000000000000000").await.expect(404);
    dev.get("/nowhere").await.expect(404);
    dev.advance(0).await;
    let after = scraped(&url).await;
    for (name, count) in [
        ("postrider_message_events_total{type=\"queued\",stream=\"transactional\"}", 4.0),
        ("postrider_message_events_total{type=\"delivered\",stream=\"transactional\"}", 2.0),
        ("postrider_message_events_total{type=\"bounced\",stream=\"transactional\"}", 1.0),
        ("postrider_message_events_total{type=\"deferred\",stream=\"transactional\"}", 1.0),
        ("postrider_message_events_total{type=\"queued\",stream=\"marketing\"}", 0.0),
        ("postrider_bounces_total{kind=\"hard\",stream=\"transactional\"}", 1.0),
        ("postrider_attempt_duration_seconds_count{outcome=\"delivered\"}", 2.0),
        ("postrider_attempt_duration_seconds_count{outcome=\"bounced\"}", 1.0),
        ("postrider_attempt_duration_seconds_count{outcome=\"deferred\"}", 1.0),
        ("postrider_signing_duration_seconds_count", 4.0),
        ("postrider_queue_waiting{kind=\"message\"}", 1.0),
        ("postrider_queue_due{kind=\"message\"}", 0.0),
        ("postrider_queue_oldest_due_seconds", 0.0),
        ("postrider_http_requests_total{route=\"messages.create\",status=\"2xx\"}", 4.0),
        ("postrider_http_requests_total{route=\"messages.create\",status=\"4xx\"}", 1.0),
        ("postrider_http_requests_total{route=\"messages.show\",status=\"4xx\"}", 1.0),
        ("postrider_http_requests_total{route=\"unknown\",status=\"4xx\"}", 1.0),
        ("postrider_http_request_duration_seconds_count{route=\"messages.create\"}", 5.0),
        ("postrider_store_failed", 0.0),
    ] {
        assert_eq!(after.get(name), Some(&count), "{name} of {after:#?}");
    }
    for name in [
        "postrider_store_commit_duration_seconds_count",
        "postrider_store_append_duration_seconds_count",
        "postrider_store_size_bytes{part=\"content\"}",
        "postrider_store_free_bytes",
        "process_resident_memory_bytes",
    ] {
        assert!(after[name] > 0.0, "{name}");
    }
}

#[tokio::test]
async fn returned_mail_is_counted_by_kind() {
    let (dev, url) = watched();
    for to in ["complained@simulator.test", "late-bounce@simulator.test", "late-bounce+1@simulator.test"] {
        dev.send(to).await;
    }
    dev.advance(0).await;
    let counted = scraped(&url).await;
    for (kind, count) in [("bounced", 2.0), ("complained", 1.0), ("undetermined", 0.0), ("auto_reply", 0.0)] {
        assert_eq!(counted[&format!("postrider_came_back_messages_total{{kind=\"{kind}\"}}")], count, "{kind}");
    }
    assert_eq!(counted["postrider_came_back_refusals_total{reason=\"mailbox\"}"], 0.0);
}

/// Returns the names in a text that may be metrics.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("postrider_") || word.starts_with("process_")).collect()
}

#[tokio::test]
async fn alerts_and_dashboard_use_existing_metrics() {
    let (dev, url) = watched();
    dev.send("delivered@simulator.test").await;
    let samples = scraped(&url).await;
    let mut there: BTreeSet<_> = samples.keys().map(|name| name.split('{').next().unwrap()).collect();
    // Only present with a certificate, which `dev` does not have.
    there.insert("postrider_certificate_expiry_timestamp_seconds");
    for text in [
        include_str!("../../packaging/monitoring/alerts.yml"),
        include_str!("../../packaging/monitoring/dashboard.json"),
    ] {
        let asked = named(text);
        assert!(asked.len() > 5, "{asked:?}");
        assert_eq!(asked.difference(&there).collect::<Vec<_>>(), [&""; 0]);
    }
}

#[tokio::test]
async fn a_refusal_is_counted_by_its_code_and_the_metrics_have_one_page() {
    let (dev, url) = watched();
    for _ in 0..601 {
        dev.get("/v1/me").await;
    }
    dev.get("/v1/me").await.expect(429);
    let counted = scraped(&url).await;
    assert!(counted["postrider_http_refusals_total{code=\"rate_limited\"}"] >= 1.0);
    assert_eq!(counted["postrider_http_refusals_total{code=\"quota_exceeded\"}"], 0.0);
    let client = reqwest::Client::new();
    assert_eq!(client.post(&url).send().await.unwrap().status(), 405);
    assert_eq!(client.get(url.replace("/metrics", "/v1/me")).send().await.unwrap().status(), 404);
    let head = client.head(&url).send().await.unwrap();
    assert_eq!((head.status().as_u16(), head.bytes().await.unwrap().len()), (200, 0));
}
