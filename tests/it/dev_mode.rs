//! Tests of `dev` as used by test suites: waits, accounts, resets, and access (contract 12.2).

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::Dev;

#[tokio::test]
async fn a_reset_keeps_only_the_objects_that_dev_created() {
    let dev = Dev::with(&["--webhook", "http://127.0.0.1:9/hook", "--domain", "extra.example"]);
    let letter = json!({"from": "a@extra.example", "to": "ann@example.org", "subject": "Hi", "text": "x"});
    dev.post("/v1/messages", letter.clone()).await.expect(202);
    dev.get("/dev/mail?to=ann@example.org&wait=30s").await.expect(200);
    dev.post("/v1/suppressions", json!({"email": "bob@example.org"})).await.expect(201);
    let made = dev.post("/dev/accounts", json!({"domain": "t.example"})).await.expect(201).json();
    dev.post("/dev/accounts", json!({"domain": "t.example"})).await.expect(409);
    assert_eq!((&made["domain"], &made["marketing_domain"]), (&json!("t.example"), &json!("news.t.example")));

    dev.post("/dev/reset", json!({})).await.expect(204);
    for list in ["/v1/messages", "/v1/events", "/v1/suppressions", "/dev/mail"] {
        assert_eq!(dev.get(list).await.expect(200).json()["data"], json!([]), "{list}");
    }
    let me = dev.get("/v1/me").await.expect(200).json();
    assert_eq!((&me["quota"]["hour"]["used"], &me["quota"]["hour"]["limit"]), (&json!(0), &json!(10_000_000)));
    assert_eq!(dev.get("/v1/webhooks").await.json()["data"][0]["url"], "http://127.0.0.1:9/hook");
    assert_eq!(dev.get("/v1/domains").await.json()["data"].as_array().unwrap().len(), 3);
    dev.post("/dev/reset", json!({"account_id": made["account_id"]})).await.expect(404);
    dev.post("/dev/accounts", json!({"domain": "t.example"})).await.expect(201);
    dev.post("/v1/messages", letter.clone()).await.expect(202);
}

#[tokio::test]
async fn serve_refuses_a_directory_of_dev() {
    let dev = Dev::with(&[]);
    let ended = Command::new(env!("CARGO_BIN_EXE_postrider"))
        .arg("serve")
        .env("POSTRIDER_HOSTNAME", "mail.example.com")
        .env("POSTRIDER_DATA_DIR", dev.data_dir())
        .env("POSTRIDER_HTTP__TLS__MODE", "off")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(2), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("postrider dev"));
}

/// Sends one message by SMTP, and returns the last reply.
fn submit(url: &str, from: &str) -> String {
    let stream = TcpStream::connect(url.strip_prefix("smtp://").unwrap()).unwrap();
    let mut replies = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut reply = move || loop {
        let line = replies.next().unwrap().unwrap();
        if line.as_bytes()[3] == b' ' {
            return line;
        }
    };
    reply();
    let message = format!("From: {from}\r\nSubject: x\r\n\r\nx\r\n.");
    let mut last = String::new();
    for line in ["EHLO test", "MAIL FROM:<>", "RCPT TO:<ann@example.org>", "DATA", &message] {
        write!(&stream, "{line}\r\n").unwrap();
        last = reply();
    }
    last
}

#[tokio::test]
async fn with_any_domain_all_interfaces_accept_every_domain_and_a_reset_clears_smtp_refusals() {
    let dev = Dev::with(&["--domain", "*", "--smtp-listen", "127.0.0.1:0"]);
    let url = dev.announcement["smtp_url"].as_str().unwrap().to_owned();
    let submit = async |from: &'static str| {
        let url = url.clone();
        tokio::task::spawn_blocking(move || submit(&url, from)).await.unwrap()
    };
    let queued = submit("a@by-smtp.example").await;
    assert!(queued.starts_with("250 2.0.0 Ok: queued as msg_"), "{queued}");
    let letter = |from: &str| json!({"from": from, "to": "ann@example.org", "subject": "Hi", "text": "x"});
    dev.post("/v1/messages", letter("a@by-api.example")).await.expect(202);
    let both =
        json!([letter("a@one.example"), letter("a@two.example"), letter("a@three.example"), letter("a@four.example")]);
    dev.post("/v1/compat/resend/emails/batch", both).await.expect(200);
    let refused = submit("not an address").await;
    assert!(refused.starts_with("550 5.6.0"), "{refused}");
    assert_eq!(dev.get("/v1/submission-refusals").await.json()["data"].as_array().unwrap().len(), 1);
    dev.post("/dev/reset", json!({})).await.expect(204);
    assert_eq!(dev.get("/v1/submission-refusals").await.json()["data"], json!([]));
}
