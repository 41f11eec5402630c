//! Tests of the exact request rate and quota: on the test's clock, and with many concurrent clients.

use super::*;

const MESSAGES: &str = "POST /v1/messages";

/// The four headers of contract 3.
fn quota(reply: &Reply) -> [String; 4] {
    ["window", "limit", "remaining", "reset"].map(|name| reply.header(&format!("x-service-quota-{name}")).to_owned())
}

fn of(per_hour: u64, per_day: u64) -> QuotaLimits {
    QuotaLimits { per_hour, per_day }
}

#[tokio::test]
async fn a_key_makes_at_most_600_requests_in_any_60_seconds() {
    let mut world = World::new().await;
    for left in (300..600).rev() {
        assert_eq!(world.get("/v1/me").await.header("ratelimit"), format!("\"key\";r={left};t=60"));
    }
    world.advance(Duration::from_secs(30));
    for left in (0..300).rev() {
        assert_eq!(world.get("/v1/me").await.header("ratelimit"), format!("\"key\";r={left};t=30"));
    }
    for (wait_ms, retry_after) in [(0, "30"), (1, "30"), (29_000, "1"), (998, "1")] {
        world.advance(Duration::from_millis(wait_ms));
        let refused = world.get("/v1/me").await;
        refused.fails_with(429, "rate_limited");
        assert_eq!(refused.header("retry-after"), retry_after, "{wait_ms}");
        assert!(refused.header("ratelimit").starts_with("\"key\";r=0;"));
    }
    // Another key of the account has its own window, and the operator has no limit.
    let second = world.new_key(world.account, None, Scopes::ALL).await;
    assert_eq!(world.client.get("/v1/me", &second).await.header("ratelimit"), "\"key\";r=599;t=60");
    // Exactly at the 60th second the first 300 have expired; refused requests were not counted.
    world.advance(Duration::from_millis(1));
    for _ in 0..300 {
        assert_eq!(world.get("/v1/me").await.status, 200);
    }
    let refused = world.get("/v1/me").await;
    refused.fails_with(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), "30");
}

#[tokio::test]
async fn every_answer_to_a_known_key_has_its_rate() {
    let mut world = World::with(QuotaLimits::default(), 100).await;
    let reader = world.new_key(world.account, None, Scopes::parse("scopes", &["read"]).unwrap()).await;
    let all = world.key.clone();
    let mut left = 100;
    for (key, line, headers, body, status) in [
        (&all, "GET /v1/me", "", "", 200),
        (&all, "HEAD /v1/me", "", "", 200),
        (&all, "HEAD /v1/events/stream", "", "", 200),
        (&all, MESSAGES, "", &*letter("a@example.net").to_string(), 202),
        (&all, "GET /v1/nothing", "", "", 404),
        (&all, "GET /nothing", "", "", 404),
        (&all, "GET /v1/accounts", "", "", 404),
        (&all, "GET /v1/messages/x", "", "", 404),
        (&all, "PUT /v1/messages", "", "", 405),
        (&all, "GET /v1/me?x=1", "", "", 422),
        (&all, MESSAGES, "", "{", 422),
        (&all, MESSAGES, "Content-Type: text/plain\r\n", "x", 415),
    ] {
        left -= 1;
        let reply = world.client.ask(line, key, headers, body).await;
        assert_eq!(reply.status, status, "{line}");
        assert_eq!(reply.header("ratelimit-policy"), "\"key\";q=100;w=60", "{line}");
        assert_eq!(reply.header("ratelimit"), format!("\"key\";r={left};t=60"), "{line}");
        assert_eq!((reply.header("cache-control"), reply.header("x-request-id").len()), ("no-store", 26), "{line}");
    }
    let reply = world.client.ask(MESSAGES, &reader, "", "{}").await;
    assert_eq!((reply.status, reply.header("ratelimit")), (403, "\"key\";r=99;t=60"));
    let unknown = format!("pr_live_{}", "a".repeat(43));
    for (key, path) in [("", "/v1/me"), (&*unknown, "/v1/me"), ("", "/v1/nothing"), ("", "/healthz")] {
        let reply = world.client.get(path, key).await;
        assert_eq!((reply.header("ratelimit"), reply.header("ratelimit-policy")), ("", ""), "{path}");
        assert_eq!(reply.status == 401, reply.header("www-authenticate") == "Bearer");
    }
}

#[tokio::test]
async fn the_quota_headers_name_the_tighter_or_later_window() {
    // 22:13:20 of the 14th; the hour ends at 23:00, the day at midnight.
    let (hour, day) = ("1700002800", "1700006400");
    for (limits, expected) in
        [(of(5, 9), ["hour", "5", "4", hour]), (of(9, 5), ["day", "5", "4", day]), (of(5, 5), ["day", "5", "4", day])]
    {
        let mut world = World::with(limits, 600).await;
        assert_eq!(quota(&world.send(letter("a@example.net")).await), expected);
        let me = world.get("/v1/me").await.json()["quota"].clone();
        assert_eq!((&me["hour"]["used"], &me["day"]["used"]), (&1.into(), &1.into()));
        assert_eq!(
            (me["hour"]["limit"].as_u64(), me["day"]["limit"].as_u64()),
            (Some(limits.per_hour), Some(limits.per_day))
        );
    }
    // In the day's last hour both end at midnight.
    let mut world = World::with(of(5, 5), 600).await;
    world.advance(Duration::from_secs(3600));
    assert_eq!(quota(&world.send(letter("a@example.net")).await), ["day", "5", "4", day]);
}

#[tokio::test]
async fn waiting_as_long_as_reported_is_exactly_enough() {
    let mut world = World::with(of(2, 3), 600).await;
    for (expected_wait, next) in [("2800", Duration::from_secs(2799)), ("3600", Duration::from_secs(3599))] {
        while world.send(letter("a@example.net")).await.status == 202 {}
        let spent = world.send(letter("a@example.net")).await;
        spent.fails_with(429, "quota_exceeded");
        assert_eq!((spent.header("retry-after"), spent.header("x-service-quota-remaining")), (expected_wait, "0"));
        world.advance(next);
        let early = world.send(letter("a@example.net")).await;
        early.fails_with(429, "quota_exceeded");
        assert_eq!(early.header("retry-after"), "1");
        world.advance(Duration::from_secs(1));
        assert_eq!(world.send(letter("a@example.net")).await.status, 202);
    }
    // Two messages counted in the first hour and one in the last hour of the day. Then a new day began.
    assert_eq!(world.get("/v1/me").await.json()["quota"]["day"]["used"], 1);
}

#[tokio::test]
async fn sixty_four_concurrent_clients_get_exactly_the_quota() {
    let mut world = World::with(of(50, 1000), 600).await;
    let clients = (0..64).map(|number| {
        let (address, key) = (world.address, world.key.clone());
        tokio::spawn(async move {
            let mut client = Client::open(address).await;
            let mut accepted = Vec::new();
            for round in 0..2 {
                let body = letter(&format!("a{number}.{round}@example.net")).to_string();
                let reply = client.ask(MESSAGES, &key, "", &body).await;
                match reply.status {
                    202 => accepted.push(reply.header("x-service-quota-remaining").parse::<u64>().unwrap()),
                    _ => reply.fails_with(429, "quota_exceeded"),
                }
            }
            accepted
        })
    });
    let mut remaining = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        remaining.extend(client.await.unwrap());
    }
    remaining.sort_unstable();
    assert_eq!(remaining, (0..50).collect::<Vec<_>>(), "each 202 has the count of its own transaction");
    let listed = world.get("/v1/messages?limit=100").await.json()["data"].as_array().unwrap().len();
    let hour = world.get("/v1/me").await.json()["quota"]["hour"].clone();
    assert_eq!((listed, &hour["used"], &hour["remaining"]), (50, &50.into(), &0.into()));
}
