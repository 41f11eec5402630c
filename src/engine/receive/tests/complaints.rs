//! Tests of complaints: their link to the message, and the signature that they need.

use std::net::IpAddr;
use std::sync::Mutex;

use super::*;
use crate::base::entropy::Entropy;
use crate::domain::hostname::DomainName;
use crate::domain::sending_domain::DkimAlgorithm;
use crate::engine::ports::{BoxFuture, LookupFailure, MailHost, Requester, Resolve, RouteFailure};
use crate::mail::dkim::{SigningKey, sign};
use crate::mail::dkim_key::generate;
use crate::smtp::tlsa::TlsaRecord;

/// Scripted DNS with DKIM keys only. It records the queried names.
#[derive(Default)]
pub(super) struct PublishedKeys {
    records: Mutex<BTreeMap<String, String>>,
    pub(super) asked: Mutex<Vec<String>>,
}

impl Resolve for PublishedKeys {
    fn mail_hosts<'a>(&'a self, _: &'a DomainName, _: Requester) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>> {
        Box::pin(async { Err(RouteFailure::NoHost) })
    }
    fn tlsa<'a>(&'a self, _: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn txt<'a>(&'a self, name: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        self.asked.lock().unwrap().push(name.to_owned());
        let record = self.records.lock().unwrap().get(name).cloned();
        Box::pin(async move { record.map(|record| vec![record]).ok_or(LookupFailure::Absent) })
    }
    fn host_addresses<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn txt_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        self.txt(name, Requester::SERVICE)
    }
    fn cname_now<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<String, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
}

impl PublishedKeys {
    /// Returns `report` with a signature of `domain`, and publishes its key.
    pub(super) fn sign(&self, domain: &str, report: &str) -> String {
        let algorithm = DkimAlgorithm::Ed25519Sha256;
        let entropy: &dyn Entropy = &SeededEntropy::new(5);
        let key = generate(algorithm, entropy).unwrap();
        self.records.lock().unwrap().insert(format!("s._domainkey.{domain}"), key.record);
        let key = SigningKey::from_pkcs8(domain.parse().unwrap(), "s", algorithm, key.pkcs8.expose()).unwrap();
        let report = report.replace('\n', "\r\n");
        let field = String::from_utf8(sign(&[&key], report.as_bytes(), NOW).unwrap()).unwrap();
        (field + &report).replace("\r\n", "\n")
    }
}

impl World {
    /// Returns the field of this name from a message.
    fn field(&self, message: MessageId, name: &str) -> String {
        let headers = self.headers(message);
        headers.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap().to_owned() + "\n"
    }
}

#[tokio::test]
async fn a_complaint_is_linked_to_its_message_by_the_return_path() {
    let world = World::new().await;
    let mut messages = Vec::new();
    for _ in 0..4 {
        // All are accepted before the first complaint, after which the address is suppressed.
        messages.push(world.delivered().await);
    }
    let untied = messages.pop().unwrap();
    for (place, message) in ["return path", "Original-Mail-From", "Return-Path"].into_iter().zip(messages) {
        let path = world.row(message).return_path;
        let taken = match place {
            "return path" => world.receive_for(message, &arf("", "Subject: x\n")).await,
            "Return-Path" => world.receive_at(Mailbox::Feedback, &arf("", &format!("{place}: <{path}>\n"))).await,
            _ => world.receive_at(Mailbox::Feedback, &arf(&format!("{place}: <{path}>\n"), "")).await,
        };
        assert_eq!((taken, world.status(message)), (AcceptedKind::Complained, Status::Complained), "{place}");
    }
    let id = format!("Message-ID: <{untied}@example.com>\n");
    let taken = world.receive_at(Mailbox::Feedback, &arf("Original-Rcpt-To: b@example.net\n", &id)).await;
    assert_eq!((taken, world.status(untied)), (AcceptedKind::Untied, Status::Delivered));
    assert!(world.keys.asked.lock().unwrap().is_empty(), "no key is needed");
}

#[tokio::test]
async fn the_visible_fields_of_a_message_suffice_for_neither_a_bounce_nor_a_complaint() {
    let world = World::new().await;
    let message = world.delivered().await;
    for name in ["Feedback-ID", "CFBL-Feedback-ID"] {
        let field = world.field(message, name);
        let token = field.split_once(": ").unwrap().1.trim_end().split(':').next().unwrap();
        for host in ["bounces.example.com", "rp.example.com"] {
            assert_eq!(world.mailbox(&format!("b+{token}"), host), Err(MailboxRefusal::Mailbox));
        }
        let gone = [("b@example.net", "failed", "550 5.1.1 gone")];
        let bounce = dsn(&gone).replace("Subject: x\n", &field);
        assert!(bounce.contains(token));
        assert_eq!(world.receive_at(Mailbox::Feedback, &bounce).await, AcceptedKind::Untied);
        assert_eq!(world.receive_at(Mailbox::Feedback, &arf("", &field)).await, AcceptedKind::Unproven);
        // The token is not accepted as a return path either.
        let path = format!("Original-Mail-From: <b+{token}@bounces.example.com>\n");
        assert_eq!(world.receive_at(Mailbox::Feedback, &arf(&path, "")).await, AcceptedKind::Untied);
    }
    assert_eq!((world.status(message), world.is_suppressed()), (Status::Delivered, false));
    let counts: BTreeMap<_, _> = world.engine.meters.came_back.taken().collect();
    assert_eq!((counts["unproven"], counts["untied"]), (2, 4));
}

#[tokio::test]
async fn a_complaint_by_feedback_id_alone_needs_a_signature_of_its_from_domain() {
    let world = World::new().await;
    let message = world.delivered().await;
    let report = arf("", &world.field(message, "Feedback-ID"));
    for (signed, why) in [
        (world.keys.sign("example.org", &report), "signed by another domain"),
        (world.keys.sign("mx.example.net", &report).replacen("Sorry", "Sorrow", 1), "the report was changed"),
        (world.keys.sign("unpublished.example.net", &report), "the key is withdrawn"),
    ] {
        world.keys.records.lock().unwrap().remove("s._domainkey.unpublished.example.net");
        assert_eq!(world.receive_at(Mailbox::Feedback, &signed).await, AcceptedKind::Unproven, "{why}");
    }
    assert_eq!(*world.keys.asked.lock().unwrap(), ["s._domainkey.unpublished.example.net"]);
    assert_eq!((world.status(message), world.is_suppressed()), (Status::Delivered, false));
    let signed = world.keys.sign("mx.example.net", &report);
    assert_eq!(world.receive_at(Mailbox::Feedback, &signed).await, AcceptedKind::Complained);
    assert_eq!((world.status(message), world.is_suppressed()), (Status::Complained, true));
}

#[tokio::test]
async fn a_feedback_id_of_an_earlier_version_needs_the_same_signature() {
    let world = World::new().await;
    let message = world.delivered().await;
    let token = return_path::token(world.account, message, &world.engine.settings.return_path_keys);
    let report = arf("", &format!("Feedback-ID: {token}:marketing:x\n"));
    assert_eq!(world.receive_at(Mailbox::Feedback, &report).await, AcceptedKind::Unproven);
    assert_eq!(
        world.receive_at(Mailbox::Feedback, &world.keys.sign("example.net", &report)).await,
        AcceptedKind::Complained
    );
    let path = Mailbox::ReturnPath(ReturnPath { account: world.account, message });
    assert_eq!(world.mailbox(&format!("b+{token}"), "bounces.example.com"), Ok(path), "it opens the return path");
}

#[tokio::test]
async fn a_report_without_a_valid_token_causes_no_key_lookup() {
    let world = World::new().await;
    let message = world.delivered().await;
    let forged = world.field(message, "Feedback-ID").replacen(": ", ": 0", 1);
    let report = world.keys.sign("example.net", &arf("", &forged));
    assert_eq!(world.receive_at(Mailbox::Feedback, &report).await, AcceptedKind::Untied);
    assert!(world.keys.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn every_message_requests_complaints_in_a_signed_field() {
    let world = World::new().await;
    let message = world.delivered().await;
    let headers = world.headers(message);
    let token = return_path::token(world.account, message, &world.engine.settings.feedback_keys);
    assert!(headers.contains(&format!("\r\nFeedback-ID: {token}:marketing:")), "{headers}");
    assert!(headers.contains("\r\nCFBL-Address: fbl@rp.example.com; report=arf\r\n"), "{headers}");
    let signed = headers.split_once(" h=").unwrap().1.split_once(';').unwrap().0.replace("\r\n ", "");
    let signed: Vec<_> = signed.split(':').collect();
    assert!(["feedback-id", "cfbl-address", "cfbl-feedback-id"].iter().all(|name| signed.contains(name)), "{signed:?}");
}

#[tokio::test]
async fn a_bounce_report_ends_the_attempts_of_a_waiting_message() {
    let world = World::new().await;
    let message = world.accepted().await;
    assert_eq!(
        world.receive_for(message, &dsn(&[("b@example.net", "failed", "550 5.1.1 gone")])).await,
        AcceptedKind::Bounced
    );
    assert_eq!((world.status(message), world.transfer(message).due), (Status::Bounced, None));
}
