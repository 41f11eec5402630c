//! Tests of the event log (contract 4): pages with concurrent writes, restarts and retention, and filters of any size.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::Dev;

const DAY: u64 = 86_400;

/// Returns one page and the cursor of the next.
async fn page(dev: &Dev, path: &str, cursor: Option<&str>) -> (Vec<Value>, Option<String>) {
    let more = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
    let page = dev.get(&format!("{path}{more}")).await.expect(200).json();
    (page["data"].as_array().unwrap().clone(), page["next_cursor"].as_str().map(str::to_owned))
}

/// Returns the identifiers of all matching events, page by page.
async fn listed(dev: &Dev, filter: &str, limit: usize) -> Vec<String> {
    let path = format!("/v1/events?limit={limit}{filter}");
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let (events, next) = page(dev, &path, cursor.as_deref()).await;
        assert!(events.len() <= limit);
        assert!(next.is_none() || events.len() == limit, "only the last page is short");
        seen.extend(ids(&events));
        let Some(next) = next else { return seen };
        cursor = Some(next);
    }
}

fn ids(events: &[Value]) -> Vec<String> {
    events.iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect()
}

async fn send_many(dev: &Dev, label: &str, count: usize) {
    for number in 0..count {
        dev.send(&format!("{label}{number}@example.org")).await;
    }
    dev.advance(0).await;
}

#[tokio::test]
async fn pages_continue_across_writes_and_restarts_without_gap_or_repetition() {
    let directory = tempfile::tempdir().unwrap();
    let start = || Dev::on(&directory.path().join("data"), &["--virtual-clock"]);
    let mut dev = start();
    send_many(&dev, "early", 30).await;
    let expected = listed(&dev, "", 100).await;
    assert_eq!(expected.len(), 60);

    let (mut seen, mut cursor) = (Vec::new(), None);
    for number in 0.. {
        let path = "/v1/events?limit=7";
        let later = format!("later{number}@example.org");
        // The write and the read run concurrently; their order must not matter.
        let ((events, next), _) = tokio::join!(page(&dev, path, cursor.as_deref()), dev.send(&later));
        seen.extend(ids(&events));
        let Some(next) = next else { break };
        cursor = Some(next);
        if number % 3 == 2 {
            dev.kill();
            dev = start();
        }
    }
    // The first page was read concurrently with the first write, and may include it.
    let newer = seen.len() - expected.len();
    assert!(newer <= 2, "{newer} later events are on pages requested before them");
    assert_eq!(seen[newer..], expected);
}

#[tokio::test]
async fn pages_end_at_the_retention_limit_without_repetition() {
    let dev = Dev::start();
    send_many(&dev, "old", 20).await;
    dev.advance(10 * DAY).await;
    send_many(&dev, "new", 20).await;
    let all = listed(&dev, "", 100).await;
    assert_eq!(all.len(), 80);

    let (first, cursor) = page(&dev, "/v1/events?limit=15", None).await;
    dev.advance(20 * DAY + 1).await;
    let mut seen = ids(&first);
    let mut cursor = cursor;
    while let Some(place) = cursor {
        let (events, next) = page(&dev, "/v1/events?limit=15", Some(&place)).await;
        seen.extend(ids(&events));
        cursor = next;
    }
    assert_eq!(seen, all[..40], "only the newer half: older events have expired");
    assert_eq!(listed(&dev, "", 100).await, seen);
    dev.advance(10 * DAY).await;
    assert_eq!(listed(&dev, "", 100).await, [""; 0]);
}

#[tokio::test]
async fn filters_return_exactly_the_matches_at_any_page_size() {
    let dev = Dev::start();
    send_many(&dev, "plain", 12).await;
    let deferred = dev.send("deferred@simulator.test").await;
    let bounced = dev.send("bounced@simulator.test").await;
    dev.advance(DAY).await;
    send_many(&dev, "plain", 6).await;
    let (events, next) = page(&dev, "/v1/events?limit=100", None).await;
    assert_eq!(next, None);
    let kinds: BTreeSet<_> = events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    assert!(kinds.len() >= 4, "{kinds:?}");

    let fitting = |message: Option<&str>, kind: Option<&str>| -> Vec<String> {
        let fits = |event: &&Value| {
            message.is_none_or(|message| event["message_id"] == message)
                && kind.is_none_or(|kind| event["type"] == kind)
        };
        events.iter().filter(fits).map(|event| event["id"].as_str().unwrap().to_owned()).collect()
    };
    for message in [None, Some(deferred.as_str()), Some(bounced.as_str())] {
        for kind in kinds.iter().map(|kind| Some(kind.as_str())).chain([None]) {
            let mut filter = message.map(|message| format!("&message_id={message}")).unwrap_or_default();
            filter.extend(kind.map(|kind| format!("&type={kind}")));
            for limit in [1, 2, 3, 100] {
                assert_eq!(listed(&dev, &filter, limit).await, fitting(message, kind), "{filter} by {limit}");
            }
            // The request rate follows the virtual clock. No retries are outstanding.
            dev.advance(60).await;
        }
    }
}
