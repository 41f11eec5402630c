//! kill -9 while many clients send: every idempotency key has one message, and the quota counts the stored ones
//! (contract 3).

use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Dev};

fn letter(number: usize) -> Value {
    json!({"from": "hello@example.test", "to": format!("you{number}@example.org"), "text": "once"})
}

/// Starts `dev` on `directory` with this quota for its account.
fn with_quota(directory: &Path, per_hour: u64) -> Dev {
    let config = directory.join("quota.toml");
    std::fs::write(&config, format!("[quota]\nper_hour = {per_hour}\nper_day = 1000\n")).unwrap();
    Dev::on(&directory.join("data"), &["--virtual-clock", "--config", config.to_str().unwrap()])
}

/// Sends message `number` with its own key; `None` if the service dies before the answer.
async fn try_send(dev: &Dev, number: usize) -> Option<Answer> {
    let key = format!("key-{number}");
    let key = [("idempotency-key", key.as_str())];
    dev.try_call(Method::POST, "/v1/messages", Some(letter(number)), &key).await
}

/// Returns the answer to each of `count` concurrent requests. The service is killed after `so_many` answers.
async fn until_killed(dev: Dev, count: usize, so_many: usize) -> Vec<Option<Answer>> {
    let mut answers: Vec<_> = (0..count).map(|_| None).collect();
    {
        let mut sends = futures(count, |number| try_send(&dev, number));
        let mut left = so_many;
        while left > 0 {
            let (number, answer) = next(&mut sends).await;
            answers[number] = answer;
            left -= 1;
        }
        dev.kill_now();
        while !sends.is_empty() {
            let (number, answer) = next(&mut sends).await;
            answers[number] = answer;
        }
    }
    answers
}

type Running<'f, T> = Vec<(usize, std::pin::Pin<Box<dyn Future<Output = T> + 'f>>)>;

fn futures<'f, F: Future<Output = T> + 'f, T>(count: usize, make: impl Fn(usize) -> F) -> Running<'f, T> {
    (0..count).map(|number| (number, Box::pin(make(number)) as _)).collect()
}

/// Returns the first future that ends, with its index.
async fn next<T>(running: &mut Running<'_, T>) -> (usize, T) {
    std::future::poll_fn(|cx| {
        for place in 0..running.len() {
            if let std::task::Poll::Ready(value) = running[place].1.as_mut().poll(cx) {
                return std::task::Poll::Ready((running.swap_remove(place).0, value));
            }
        }
        std::task::Poll::Pending
    })
    .await
}

/// Returns the identifiers of all stored messages.
async fn stored(dev: &Dev) -> Vec<String> {
    let (mut ids, mut path) = (Vec::new(), "/v1/messages?limit=100".to_owned());
    loop {
        let page = dev.get(&path).await.expect(200).json();
        let rows = page["data"].as_array().unwrap();
        ids.extend(rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/messages?cursor={cursor}&limit=100");
    }
    ids.sort();
    ids
}

async fn used(dev: &Dev) -> (u64, u64) {
    let hour = dev.get("/v1/me").await.expect(200).json()["quota"]["hour"].clone();
    (hour["used"].as_u64().unwrap(), hour["remaining"].as_u64().unwrap())
}

#[tokio::test]
async fn after_kill_9_every_key_replays_its_only_message() {
    const COUNT: usize = 60;
    for so_many in [1, 20, 45] {
        let directory = tempfile::tempdir().unwrap();
        let before = until_killed(Dev::on(directory.path(), &["--virtual-clock"]), COUNT, so_many).await;
        let dev = Dev::on(directory.path(), &["--virtual-clock"]);
        let mut ids = Vec::new();
        for (number, before) in before.into_iter().enumerate() {
            let after = try_send(&dev, number).await.unwrap().expect(202);
            if let Some(before) = before {
                assert_eq!(after.bytes, before.expect(202).bytes, "the same bytes as before the crash");
                assert_eq!(after.header("idempotent-replay"), "true");
            }
            let again = try_send(&dev, number).await.unwrap().expect(202);
            assert_eq!((again.header("idempotent-replay"), &again.bytes), ("true", &after.bytes));
            ids.push(after.json()["id"].as_str().unwrap().to_owned());
        }
        ids.sort();
        assert_eq!(stored(&dev).await, ids, "one message for each key, and no others");
        assert_eq!(used(&dev).await, (COUNT as u64, 10_000_000 - COUNT as u64));
    }
}

#[tokio::test]
async fn the_quota_is_exact_under_64_clients_and_across_kill_9() {
    const QUOTA: u64 = 50;
    let directory = tempfile::tempdir().unwrap();
    let before = until_killed(with_quota(directory.path(), QUOTA), 64, 25).await;
    let answered = before.iter().flatten().filter(|answer| answer.status.as_u16() == 202).count() as u64;
    let dev = with_quota(directory.path(), QUOTA);
    let kept = stored(&dev).await.len() as u64;
    assert!(kept >= answered && kept <= QUOTA, "{answered} were acknowledged, {kept} are stored");
    assert_eq!(used(&dev).await, (kept, QUOTA - kept), "the quota equals the number of stored messages");

    // Without a key each is a new message: exactly the rest of the quota is accepted.
    let mut sends = futures(64, |number| dev.call(Method::POST, "/v1/messages", Some(letter(number))));
    let mut accepted = 0;
    while !sends.is_empty() {
        let (_, answer) = next(&mut sends).await;
        match answer.status.as_u16() {
            202 => accepted += 1,
            429 => {
                assert_eq!(answer.json()["code"], "quota_exceeded");
                assert_eq!(answer.header("x-service-quota-remaining"), "0");
                assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
            }
            other => panic!("{other}"),
        }
    }
    drop(sends);
    assert_eq!(kept + accepted, QUOTA);
    assert_eq!(used(&dev).await, (QUOTA, 0));
    dev.kill();
    let dev = with_quota(directory.path(), QUOTA);
    assert_eq!((stored(&dev).await.len() as u64, used(&dev).await), (QUOTA, (QUOTA, 0)));
    let spent = dev.post("/v1/messages", letter(0)).await.expect(429);
    dev.advance(spent.header("retry-after").parse().unwrap()).await;
    dev.post("/v1/messages", letter(0)).await.expect(202);
}

#[tokio::test]
async fn a_stream_continues_after_a_restart_without_gap_or_repetition() {
    let directory = tempfile::tempdir().unwrap();
    let dev = Dev::on(directory.path(), &["--virtual-clock"]);
    let mut first = dev.follow(None).await;
    dev.send("a@example.org").await;
    let seen = first.id().await;
    // At least one was reported; the service is killed before all are.
    dev.send("b@example.org").await;
    dev.kill();

    let dev = Dev::on(directory.path(), &["--virtual-clock"]);
    dev.send("c@example.org").await;
    dev.advance(0).await;
    let log = dev.get("/v1/events").await.expect(200).json();
    let mut ids: Vec<_> =
        log["data"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
    ids.reverse();
    let place = ids.iter().position(|id| *id == seen).unwrap();
    assert_eq!(ids.len(), 6, "three were queued and delivered");
    let mut second = dev.follow(Some(&seen)).await;
    for id in &ids[place + 1..] {
        assert_eq!(second.id().await, *id);
    }
}

#[tokio::test]
async fn a_stream_ends_cleanly_at_shutdown() {
    let dev = Dev::start();
    let mut following = dev.follow(None).await;
    dev.send("a@example.org").await;
    following.id().await;
    let ended = tokio::time::timeout(Duration::from_secs(20), dev.terminate()).await;
    assert_eq!(ended.unwrap().code(), Some(0));
    following.read_to_end().await;
}
