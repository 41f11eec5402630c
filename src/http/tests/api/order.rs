//! Tests of the check order of POST /v1/messages (contract 1). Each request fails two neighbouring checks.

use super::*;

const BOUND: &str = "Idempotency-Key: bound\r\n";

/// One request that fails two neighbouring checks, and the one that is reported.
struct Case<'a> {
    fails: &'static str,
    key: &'a str,
    headers: &'static str,
    body: String,
    wins: (u16, &'static str),
}

#[tokio::test]
async fn of_two_failed_checks_the_first_is_reported() {
    let mut world = World::with(QuotaLimits { per_hour: 1, per_day: 100 }, 600).await;
    let bound = world.send_with(BOUND, &letter("gone@example.net")).await;
    let gone = bound.json()["id"].as_str().unwrap().parse().unwrap();
    world.settle(gone, hard_bounce(), AttemptFacts::default()).await;
    for (name, stream) in [("pending.test", Stream::Transactional), ("news.pending.test", Stream::Marketing)] {
        world.engine.create_domain(world.account, name.parse().unwrap(), stream).await.unwrap();
    }
    let operator = Caller { account: world.account, key: None };
    let reading = Scopes::parse("scopes", &["read"]).unwrap();
    let expires_at = Some(world.clock.now() + Duration::from_secs(1));
    let dying = NewKey { name: "dying".to_owned(), stream: None, scopes: reading, expires_at };
    let expired = world.engine.create_key(&operator, dying).await.unwrap().1.expose().to_owned();
    world.advance(Duration::from_secs(1));
    let all = world.key.clone();
    let limited = world.new_key(world.account, Some(Stream::Transactional), Scopes::ALL).await;
    let (reader, spent) =
        (world.new_key(world.account, None, reading).await, world.new_key(world.account, None, Scopes::ALL).await);
    for key in [&reader, &spent] {
        for _ in 0..600 {
            assert_eq!(world.client.get("/v1/me", key).await.status, 200);
        }
    }
    let message = |from: &str, to: &str| {
        let mut message = letter(to);
        message["from"] = from.into();
        message.to_string()
    };
    let huge = || format!("{{\"text\":\"{}", "x".repeat(26_214_400));
    let text = "Content-Type: text/plain\r\n";
    let gone = "gone@example.net";
    let cases = [
        Case { fails: "key, scope", key: &expired, headers: "", body: "{}".into(), wins: (401, "unauthenticated") },
        Case { fails: "scope, rate", key: &reader, headers: "", body: "{}".into(), wins: (403, "scope_forbidden") },
        Case { fails: "rate, type", key: &spent, headers: text, body: "{}".into(), wins: (429, "rate_limited") },
        Case { fails: "rate, size", key: &spent, headers: "", body: huge(), wins: (429, "rate_limited") },
        Case { fails: "type, JSON", key: &all, headers: text, body: "{".into(), wins: (415, "unsupported_media_type") },
        Case { fails: "type, size", key: &all, headers: text, body: huge(), wins: (415, "unsupported_media_type") },
        Case { fails: "size, JSON", key: &all, headers: "", body: huge(), wins: (413, "payload_too_large") },
        Case { fails: "JSON, bound key", key: &all, headers: BOUND, body: "{".into(), wins: (422, "invalid_json") },
        Case {
            fails: "fields, bound key",
            key: &all,
            headers: BOUND,
            body: message("a@nowhere.test", "x"),
            wins: (422, "validation_failed"),
        },
        Case {
            fails: "bound key, domain unknown",
            key: &limited,
            headers: BOUND,
            body: message("a@nowhere.test", gone),
            wins: (409, "idempotency_mismatch"),
        },
        Case {
            fails: "domain unknown, and all later checks",
            key: &limited,
            headers: "",
            body: message("a@nowhere.test", gone),
            wins: (422, "domain_unknown"),
        },
        Case {
            fails: "stream, unsubscribe URL",
            key: &limited,
            headers: "",
            body: message("a@news.pending.test", gone),
            wins: (403, "stream_forbidden"),
        },
        Case {
            fails: "unsubscribe URL, domain unverified",
            key: &all,
            headers: "",
            body: message("a@news.pending.test", gone),
            wins: (422, "validation_failed"),
        },
        Case {
            fails: "domain unverified, suppression",
            key: &limited,
            headers: "",
            body: message("a@pending.test", gone),
            wins: (422, "domain_unverified"),
        },
        Case {
            fails: "suppression, quota",
            key: &limited,
            headers: "",
            body: message("a@example.test", gone),
            wins: (422, "recipient_suppressed"),
        },
        Case {
            fails: "quota alone",
            key: &limited,
            headers: "",
            body: message("a@example.test", "a@example.net"),
            wins: (429, "quota_exceeded"),
        },
    ];
    for Case { fails, key, headers, body, wins } in cases {
        let mut client = Client::open(world.address).await;
        let reply = client.ask("POST /v1/messages", key, headers, &body).await;
        assert_eq!((reply.status, reply.code().as_str()), wins, "{fails}: {}", reply.body);
        assert_eq!(reply.json().get("errors").is_some(), wins.0 == 422, "{fails}: only a 422 has errors");
        assert_eq!(reply.header("retry-after").is_empty(), wins.0 != 429, "{fails}");
    }
    // A replay skips all later checks, such as suppression and quota.
    let again = world.send_with(BOUND, &letter(gone)).await;
    assert_eq!((again.status, again.body), (202, bound.body));
}

#[tokio::test]
async fn one_answer_names_the_faults_of_the_query_the_headers_and_the_body() {
    let mut world = World::new().await;
    let key = world.key.clone();
    let line = "POST /v1/messages?zz=1";
    let reply = world.ask_as(&key, line, "Idempotency-Key: \r\n", &serde_json::json!({ "from": 1 })).await;
    let errors = reply.json()["errors"].clone();
    assert_eq!(errors["zz"], serde_json::json!(["unknown parameter"]), "{errors}");
    assert!(errors["from"].is_array() && errors["to"].is_array() && errors["Idempotency-Key"].is_array(), "{errors}");
}
