//! Tests of returned mail: bounces and complaints, over the real receiver.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::smtp::{Session, arf, dsn};
use crate::support::{Dev, types};

const CONFIG: &str = "hostname = \"mail.example.com\"\n\
    [bounces]\nhost = \"bounces.example.com\"\nlisten = [\"127.0.0.1:0\"]\n";
const GONE: &str = "550 5.1.1 <you@example.org>: User unknown";

/// A service with its receiver's address.
struct World {
    dev: Dev,
    receiver: SocketAddr,
    directory: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self::on(tempfile::tempdir().unwrap())
    }

    /// Starts a service in a directory that may already have a store.
    fn on(directory: tempfile::TempDir) -> Self {
        let config = directory.path().join("postrider.toml");
        std::fs::write(&config, CONFIG).unwrap();
        let data = directory.path().join("data");
        let dev = Dev::on(&data, &["--virtual-clock", "--config", config.to_str().unwrap()]);
        let addresses = std::fs::read(data.join("addresses.json")).unwrap();
        let addresses: Value = serde_json::from_slice(&addresses).unwrap();
        let receiver = addresses["bounces"][0].as_str().unwrap().parse().unwrap();
        Self { dev, receiver, directory }
    }

    async fn session(&self) -> Session {
        Session::open(self.receiver).await
    }

    /// Delivers a message, and returns its identifier and its return path.
    async fn delivered(&self, to: &str) -> (String, String) {
        let id = self.dev.send(to).await;
        self.dev.advance(0).await;
        let mail = self.dev.get(&format!("/dev/mail/{id}")).await.expect(200).json();
        (id, mail["mail_from"].as_str().unwrap().to_owned())
    }

    /// Returns the header section of a sent message.
    async fn headers(&self, id: &str) -> String {
        let raw = self.dev.get(&format!("/v1/messages/{id}/raw")).await.expect(200);
        let raw = String::from_utf8(raw.bytes).unwrap();
        raw.split_once("\r\n\r\n").unwrap().0.to_owned() + "\r\n"
    }

    async fn types(&self, id: &str) -> Vec<String> {
        types(&self.dev.message(id).await).into_iter().map(str::to_owned).collect()
    }

    async fn suppressions(&self) -> usize {
        self.dev.get("/v1/suppressions").await.expect(200).json()["data"].as_array().unwrap().len()
    }
}

#[tokio::test]
async fn the_simulator_s_complaint_and_late_bounce_arrive_at_the_same_time() {
    let dev = Dev::start();
    let complained = dev.send("complained+1@simulator.test").await;
    let bounced = dev.send("late-bounce+1@simulator.test").await;
    dev.advance(0).await;

    let message = dev.message(&complained).await;
    assert_eq!(types(&message), ["queued", "delivered", "complained"]);
    assert_eq!(message["status"], "complained");
    let complaint = &message["events"][2]["complaint"];
    assert_eq!(complaint, &json!({"feedback_type": "abuse", "reporter": "Postrider-Simulator/1"}));

    let message = dev.message(&bounced).await;
    assert_eq!(types(&message), ["queued", "delivered", "bounced"]);
    assert_eq!((&message["status"], &message["smtp_code"]), (&json!("bounced"), &json!(550)));
    let event = &message["events"][2];
    assert_eq!((&event["bounce"]["source"], &event["bounce"]["kind"]), (&json!("dsn"), &json!("hard")));
    assert_eq!((&event["smtp_enhanced_code"], &event["mx_host"]), (&json!("5.1.1"), &json!("store.simulator.test")));
    assert_eq!(event["created_at"], message["events"][1]["created_at"], "virtual time has not advanced");

    let list = dev.get("/v1/suppressions").await.expect(200).json();
    let mut rows: Vec<_> =
        list["data"].as_array().unwrap().iter().map(|row| (&row["reason"], &row["message_id"])).collect();
    rows.sort_by_key(|(reason, _)| reason.to_string());
    assert_eq!(rows, [(&json!("bounce"), &json!(bounced)), (&json!("complaint"), &json!(complained))]);
    for to in ["complained+1@simulator.test", "late-bounce+1@simulator.test"] {
        let again = json!({"from": "hello@example.test", "to": to, "text": "again"});
        assert_eq!(dev.post("/v1/messages", again).await.expect(422).json()["code"], "recipient_suppressed");
    }
    dev.send("complained+2@simulator.test").await;
}

#[tokio::test]
async fn many_complaints_are_settled_before_the_virtual_clock_advances() {
    let dev = Dev::start();
    for number in 0..60 {
        dev.send(&format!("complained+{number}@simulator.test")).await;
    }
    dev.advance(0).await;
    let events = dev.get("/v1/events?type=complained&limit=100").await.expect(200).json();
    assert_eq!(events["data"].as_array().unwrap().len(), 60);
}

#[tokio::test]
async fn a_bounce_after_delivery_is_reported_once_with_its_answer() {
    let world = World::new();
    let (id, path) = world.delivered("you@example.org").await;
    assert!(path.starts_with("b+") && path.ends_with("@bounces.example.com"), "{path}");
    let mut session = world.session().await;
    let report = dsn("you@example.org", "failed", "5.1.1", GONE);
    for _ in 0..2 {
        assert_eq!(session.mail(&path.to_ascii_uppercase(), &report).await, "250 2.0.0 Taken\r\n");
    }
    let message = world.dev.message(&id).await;
    assert_eq!(types(&message), ["queued", "delivered", "bounced"]);
    let event = &message["events"][2];
    assert_eq!((&event["smtp_code"], &event["smtp_response"]), (&json!(550), &json!(GONE)));
    assert_eq!((&event["mx_host"], &event["attempt"]), (&json!("store.example.org"), &Value::Null));
    assert_eq!(event["bounce"]["suppressed"], true);
    let row = world.dev.get("/v1/suppressions/you@example.org").await.expect(200).json();
    assert_eq!((&row["reason"], &row["message_id"], &row["smtp_code"]), (&json!("bounce"), &json!(id), &json!(550)));
}

#[tokio::test]
async fn a_policy_bounce_and_one_without_a_diagnosis_suppress_nobody() {
    let world = World::new();
    let mut session = world.session().await;
    for (report, kind) in [
        (dsn("you@example.org", "failed", "5.7.1", "550 5.7.1 Message rejected due to local policy"), "block"),
        (dsn("you@example.org", "failed", "5.0.0", "550 no"), "undetermined"),
        (dsn("you@example.org", "failed", "4.4.7", "421 4.4.7 timed out"), "soft"),
    ] {
        let (id, path) = world.delivered("you@example.org").await;
        assert!(session.mail(&path, &report).await.starts_with("250 "));
        let bounce = world.dev.message(&id).await["events"][2]["bounce"].clone();
        assert_eq!((&bounce["kind"], &bounce["suppressed"]), (&json!(kind), &json!(false)), "{bounce}");
    }
    assert_eq!(world.suppressions().await, 0);
}

#[tokio::test]
async fn a_delay_is_reported_without_changing_the_status_and_a_success_adds_no_event() {
    let world = World::new();
    let (id, path) = world.delivered("you@example.org").await;
    let mut session = world.session().await;
    for action in ["delivered", "relayed", "expanded", "delayed", "delayed"] {
        let report = dsn("you@example.org", action, "4.2.2", "452 4.2.2 Mailbox full");
        assert!(session.mail(&path, &report).await.starts_with("250 "));
    }
    let message = world.dev.message(&id).await;
    assert_eq!(types(&message), ["queued", "delivered", "deferred"]);
    assert_eq!((&message["status"], &message["smtp_code"]), (&json!("delivered"), &json!(250)));
    let event = &message["events"][2];
    assert_eq!((&event["bounce"]["source"], &event["smtp_code"]), (&json!("dsn"), &json!(452)));
}

#[tokio::test]
async fn a_complaint_is_matched_only_by_the_return_path() {
    let world = World::new();
    let (id, path) = world.delivered("you@example.org").await;
    let headers = world.headers(&id).await;
    let returned = format!("Return-Path: <{path}>\r\n{headers}");
    assert!(headers.contains("\r\nFeedback-ID: ") && headers.contains("feedback-id;"), "{headers}");
    let mut session = world.session().await;
    let fbl = "fbl@bounces.example.com";
    // Everybody who has the message sees these headers; only servers see the return path.
    let token = headers.split_once("\nFeedback-ID: ").unwrap().1.split(':').next().unwrap();
    assert!(session.rcpt(&format!("b+{token}@bounces.example.com")).await.starts_with("550 5.1.1 "));
    let dsn = dsn("you@example.org", "failed", "5.1.1", GONE).replace("Subject: Hello\n", &headers);
    let key = &path[2..3];
    let other = if key == "0" { "1" } else { "0" };
    let forged = returned.replace(&format!("<b+{key}"), &format!("<b+{other}"));
    for report in
        [dsn, arf("abuse", &headers), arf("abuse", &forged), arf("not-spam", &returned), arf("auth-failure", &returned)]
    {
        assert_eq!(session.mail(fbl, &report).await, "250 2.0.0 Taken\r\n");
    }
    assert_eq!((world.types(&id).await.len(), world.suppressions().await), (2, 0));

    assert!(session.mail(fbl, &arf("abuse", &returned)).await.starts_with("250 "));
    let message = world.dev.message(&id).await;
    assert_eq!(types(&message), ["queued", "delivered", "complained"]);
    assert_eq!(message["events"][2]["complaint"], json!({"feedback_type": "abuse", "reporter": "Loop/2.1"}));
    let row = world.dev.get("/v1/suppressions/you@example.org").await.expect(200).json();
    assert_eq!((&row["reason"], &row["message_id"]), (&json!("complaint"), &json!(id)));
}

#[tokio::test]
async fn only_our_own_mailboxes_are_accepted_and_nothing_is_relayed() {
    let world = World::new();
    let (id, path) = world.delivered("you@example.org").await;
    let (local, _) = path.split_once('@').unwrap();
    let other = |place: usize| {
        let mut bytes = local.as_bytes().to_vec();
        bytes[place] = if bytes[place] == b'7' { b'8' } else { b'7' };
        String::from_utf8(bytes).unwrap()
    };
    let mut session = world.session().await;
    for taken in [
        "postmaster",
        "fbl@bounces.example.com",
        "Abuse@BOUNCES.example.com",
        "fbl@rp.example.test",
        "dmarc@rp.example.test",
    ] {
        assert!(session.rcpt(taken).await.starts_with("250 2.1.5 "), "{taken}");
    }
    assert!(session.rcpt(&format!("{local}@rp.example.test")).await.starts_with("250 "));
    for (refused, code) in [
        ("you@example.org".to_owned(), "550 5.7.1 "),
        ("postmaster@example.org".to_owned(), "550 5.7.1 "),
        ("fbl@rp.example.org".to_owned(), "550 5.7.1 "),
        ("you%example.org@bounces.example.com".to_owned(), "550 5.1.1 "),
        ("\"you@example.org\"@bounces.example.com".to_owned(), "550 5.1.1 "),
        ("@bounces.example.com:you@example.org".to_owned(), "550 5.7.1 "),
        ("you@[127.0.0.1]".to_owned(), "550 5.7.1 "),
        ("hello@bounces.example.com".to_owned(), "550 5.1.1 "),
        ("b+@bounces.example.com".to_owned(), "550 5.1.1 "),
        (format!("{local}@example.test"), "550 5.7.1 "),
        (format!("{}@bounces.example.com", other(30)), "550 5.1.1 "),
        (format!("{}@bounces.example.com", other(60)), "550 5.1.1 "),
        (format!("{}@bounces.example.com", other(20)), "550 5.1.1 "),
    ] {
        let answer = session.rcpt(&refused).await;
        assert!(answer.starts_with(code), "{refused}: {answer}");
    }
    let forged = format!("{}@bounces.example.com", other(50));
    let report = dsn("you@example.org", "failed", "5.1.1", GONE);
    assert!(session.mail(&forged, &report).await.starts_with("550 "));
    assert_eq!(world.types(&id).await, ["queued", "delivered"]);
}

#[tokio::test]
async fn a_return_path_is_valid_for_37_days() {
    let world = World::new();
    let (id, path) = world.delivered("you@example.org").await;
    world.dev.advance(37 * 86_400).await;
    assert!(world.session().await.rcpt(&path).await.starts_with("250 "));
    world.dev.advance(1).await;
    assert_eq!(
        world.session().await.rcpt(&path).await,
        "550 5.1.1 This return path has expired: its message is too old\r\n"
    );
    assert_eq!(world.types(&id).await, ["queued", "delivered"]);
}

#[tokio::test]
async fn an_auto_reply_and_a_normal_message_are_accepted_without_effect() {
    let world = World::new();
    let (id, path) = world.delivered("you@example.org").await;
    let mut session = world.session().await;
    let reply =
        "From: you@example.org\nSubject: Away\nAuto-Submitted: auto-replied\n\n550 5.1.1 user unknown, just away\n";
    let letter = dsn("you@example.org", "failed", "5.1.1", GONE);
    for (to, message) in
        [(path.as_str(), reply), ("abuse@bounces.example.com", &letter), (&path, "Subject: hi\n\nhi\n")]
    {
        assert_eq!(session.mail(to, message).await, "250 2.0.0 Taken\r\n");
    }
    assert_eq!((world.types(&id).await.len(), world.suppressions().await), (2, 0));
}

#[tokio::test]
async fn a_report_answered_with_250_survives_a_power_cut() {
    let world = World::new();
    let (id, path) = world.delivered("you@example.org").await;
    let report = dsn("you@example.org", "failed", "5.1.1", GONE);
    assert!(world.session().await.mail(&path, &report).await.starts_with("250 "));
    let World { dev, directory, .. } = world;
    dev.kill();
    let world = World::on(directory);
    assert_eq!(world.types(&id).await, ["queued", "delivered", "bounced"]);
    assert_eq!(world.suppressions().await, 1);
}

#[tokio::test]
async fn oversized_smuggled_and_unsynchronised_messages_are_refused() {
    let world = World::new();
    let (id, path) = world.delivered("you@example.org").await;
    let report = dsn("you@example.org", "failed", "5.1.1", GONE).replace('\n', "\r\n");
    let begin = |path: &str| format!("MAIL FROM:<>\r\nRCPT TO:<{path}>\r\n");

    let mut session = world.session().await;
    assert!(session.say("MAIL FROM:<> SIZE=1048577\r\n").await.starts_with("552 5.3.4 "));
    for (body, answer) in [
        (report.replacen("\r\n", "\n", 1), "550 5.5.2 "),
        (report.replacen("Subject", "Sub\rject", 1), "550 5.5.2 "),
        (format!("X: {}\r\n\r\n", "x".repeat(70_000)), "552 5.3.4 The header"),
        (format!("{report}{}", "y".repeat(1_048_576)), "552 5.3.4 "),
    ] {
        assert!(session.rcpt(&path).await.starts_with("250 "));
        assert!(session.say("DATA\r\n").await.starts_with("354 "));
        let reply = session.say(&format!("{body}\r\n.\r\n")).await;
        assert!(reply.starts_with(answer), "{reply}");
    }
    let mut hasty = world.session().await;
    hasty.write(&format!("{}DATA\r\n{report}\r\n.\r\n", begin(&path))).await;
    let codes = [hasty.read_reply().await, hasty.read_reply().await, hasty.read_reply().await]
        .map(|answer| answer[..3].to_owned());
    assert_eq!(codes, ["250", "250", "503"]);
    assert!(hasty.is_closed().await);
    assert_eq!(world.types(&id).await, ["queued", "delivered"]);
}

#[tokio::test]
async fn a_client_cannot_redirect_complaints() {
    let dev = Dev::start();
    for name in ["Feedback-ID", "cfbl-address", "CFBL-Feedback-ID"] {
        let letter =
            json!({"from": "hello@example.test", "to": "you@example.org", "text": "x", "headers": {name: "x"}});
        let refused = dev.post("/v1/messages", letter).await.expect(422).json();
        assert!(refused["errors"][format!("headers.{name}")].is_array(), "{refused}");
        let raw = format!("From: hello@example.test\r\n{name}: x\r\n\r\nx");
        let letter = json!({"from": "hello@example.test", "to": "you@example.org", "raw": raw});
        assert!(dev.post("/v1/messages", letter).await.expect(422).json()["errors"]["raw"].is_array());
    }
    let id = dev.send("you@example.org").await;
    assert_eq!(
        dev.message(&id).await["headers"],
        json!({}),
        "headers added by the service are not shown as the client's"
    );
}
