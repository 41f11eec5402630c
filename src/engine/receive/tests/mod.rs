//! Tests of returned mail: our mailboxes, and the effect of each report on its message.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use self::complaints::PublishedKeys;
use super::*;
use crate::base::entropy::SeededEntropy;
use crate::base::id::MessageId;
use crate::base::secret::Secret;
use crate::base::time::Timestamp;
use crate::domain::account::QuotaLimits;
use crate::domain::event::AttemptFacts;
use crate::domain::return_path;
use crate::domain::sending_domain::{DkimState, DomainStatus};
use crate::domain::stream::Stream;
use crate::domain::submission::{Submission, SubmissionLimits};
use crate::domain::token_key::TokenKeys;
use crate::engine::Caller;
use crate::engine::ports::Clock;
use crate::engine::settings::Settings;
use crate::machine::transfer::Status;
use crate::store::Store;
use crate::store::op::domain::CreateDomain;
use crate::store::op::settle_transfer::{SettleTransfer, TransferEnd};
use crate::store::open::StoreEnvironment;
use crate::store::row::domain::DomainRow;
use crate::store::row::message::TransferRow;
use crate::store::row::suppression::SuppressionRow;

mod complaints;
mod dmarc;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

/// Returns the network of a client.
fn client(host: u8) -> Network {
    Network::of_site([198, 51, 100, host].into())
}

/// A clock that changes only when it is set, in milliseconds.
struct StillClock(AtomicU64);

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

/// A service with two accounts; `example.com` and our return path belong to the first one.
struct World {
    keys: Arc<PublishedKeys>,
    clock: Arc<StillClock>,
    engine: Arc<Engine>,
    receiver: Receiver,
    account: AccountId,
    other: AccountId,
    _directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let entropy = Arc::new(SeededEntropy::new(7));
        let clock = Arc::new(StillClock(AtomicU64::new(NOW.as_millis())));
        let time = Arc::clone(&clock);
        let surroundings = StoreEnvironment { now: Arc::new(move || time.time()), entropy: entropy.clone() };
        let store = Arc::new(Store::open(directory.path(), surroundings).unwrap());
        let settings = Settings::for_tests();
        let keys = Arc::new(PublishedKeys::default());
        let engine = Arc::new(Engine::new(store, clock.clone(), entropy, keys.clone(), settings));
        let account = async |name: &str| {
            engine.create_account(name.parse().unwrap(), None, QuotaLimits::default()).await.unwrap().id
        };
        let (one, other) = (account("One").await, account("Other").await);
        let id = engine.store.reserve_id(NOW);
        let row = DomainRow {
            status: DomainStatus::Verified,
            verified_at: Some(NOW),
            dkim: engine.new_keys(one, id, 1, DkimState::Active).await.unwrap(),
            return_path_seen: true,
            ..DomainRow::new("example.com".parse().unwrap(), Stream::Marketing, NOW)
        };
        engine.store.commit(CreateDomain { account: one, id, row }).await.unwrap();
        let receiver = Receiver::new(Arc::clone(&engine), Arc::new(Rules::built_in().clone()));
        Self { keys, clock, engine, receiver, account: one, other, _directory: directory }
    }

    fn pass(&self, time: Duration) {
        self.clock.0.store((self.clock.now() + time).as_millis(), Ordering::SeqCst);
    }

    /// Returns a message that a server accepted.
    async fn delivered(&self) -> MessageId {
        let id = self.accepted().await;
        self.deliver(id).await;
        id
    }

    async fn accepted(&self) -> MessageId {
        let json = serde_json::json!({"from": "a@example.com", "to": "B@example.net", "text": "x",
            "unsubscribe_url": "https://example.com/u"});
        let serde_json::Value::Object(object) = json else { panic!("no object") };
        let submission = Submission::lift(object, SubmissionLimits::at(self.clock.now(), 2 * DAY)).unwrap();
        let caller = Caller { account: self.account, key: None };
        let accepted = self.engine.submit(&caller, submission, None).await.unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&accepted.answer).unwrap();
        answer["id"].as_str().unwrap().parse().unwrap()
    }

    async fn deliver(&self, message: MessageId) {
        let due = self.transfer(message).due.unwrap();
        let (account, facts) = (self.account, AttemptFacts::default());
        let end = TransferEnd::Delivered;
        let op = SettleTransfer {
            account,
            message,
            due,
            end,
            facts,
            provider: None,
            random: [0; 4],
            others: vec![],
            transcript: None,
        };
        self.engine.store.commit(op).await.unwrap();
    }

    fn row(&self, message: MessageId) -> MessageRow {
        self.engine.store.snapshot().unwrap().row(&schema::message(self.account, message)).unwrap().unwrap()
    }

    fn transfer(&self, message: MessageId) -> TransferRow {
        self.engine.store.snapshot().unwrap().row(&schema::message(self.account, message)).unwrap().unwrap()
    }

    fn status(&self, message: MessageId) -> Status {
        self.transfer(message).state.status()
    }

    fn is_suppressed(&self) -> bool {
        let key = schema::named(self.account, b"b@example.net");
        self.engine.store.snapshot().unwrap().row::<SuppressionRow>(&key).unwrap().is_some()
    }

    /// Returns the header section as it was sent.
    fn headers(&self, message: MessageId) -> String {
        let bytes = self.engine.store.content().read(self.row(message).place, message).unwrap();
        String::from_utf8(bytes).unwrap().split_once("\r\n\r\n").unwrap().0.to_owned()
    }

    fn local(&self, account: AccountId, message: MessageId) -> String {
        return_path::encode(account, message, &self.engine.settings.return_path_keys)
    }

    fn mailbox(&self, local: &str, domain: &str) -> Result<Mailbox, MailboxRefusal> {
        self.receiver.mailbox(local, domain).unwrap()
    }

    /// Receives `report` at the message's return path.
    async fn receive_for(&self, message: MessageId, report: &str) -> AcceptedKind {
        self.receive_at(Mailbox::ReturnPath(ReturnPath { account: self.account, message }), report).await
    }

    async fn receive_at(&self, mailbox: Mailbox, report: &str) -> AcceptedKind {
        self.receiver.receive(client(1), &[mailbox], report.replace('\n', "\r\n").into_bytes()).await.unwrap()
    }
}

/// Returns a delivery status notification with one block per recipient: address, action and diagnostic.
fn dsn(blocks: &[(&str, &str, &str)]) -> String {
    let blocks: String = blocks
        .iter()
        .map(|(address, action, diagnostic)| {
            format!(
                "\nFinal-Recipient: rfc822; {address}\nAction: {action}\nStatus: 5.0.0\nDiagnostic-Code: smtp; {diagnostic}\n"
            )
        })
        .collect();
    report("delivery-status", &format!("Reporting-MTA: dns; mx.example.net\n{blocks}"), "Subject: x\n")
}

fn arf(fields: &str, returned: &str) -> String {
    report("feedback-report", &format!("Feedback-Type: abuse\nUser-Agent: Loop/1\nVersion: 1\n{fields}"), returned)
}

fn report(kind: &str, fields: &str, returned: &str) -> String {
    format!(
        "From: x@example.net\nMIME-Version: 1.0\n\
         Content-Type: multipart/report; report-type={kind}; boundary=b\n\n\
         --b\nContent-Type: text/plain\n\nSorry.\n\n--b\nContent-Type: message/{kind}\n\n{fields}\n\
         --b\nContent-Type: text/rfc822-headers\n\n{returned}\n--b--\n"
    )
}

#[tokio::test]
async fn mailboxes_exist_at_the_bounce_host_and_at_the_return_path_host_of_their_own_domain() {
    let world = World::new().await;
    let message = world.delivered().await;
    let path = Mailbox::ReturnPath(ReturnPath { account: world.account, message });
    assert_eq!(world.row(message).return_path.split_once('@').unwrap().1, "rp.example.com");
    let local = world.local(world.account, message);
    for host in ["bounces.example.com", "RP.Example.COM"] {
        assert_eq!(world.mailbox(&local, host), Ok(path), "{host}");
        assert_eq!(world.mailbox("FBL", host), Ok(Mailbox::Feedback));
        assert_eq!(world.mailbox("abuse", host), Ok(Mailbox::People));
        assert_eq!(world.mailbox("info", host), Err(MailboxRefusal::Mailbox));
    }
    assert_eq!(world.mailbox("postmaster", ""), Ok(Mailbox::People));
    for host in ["example.com", "rp.example.org", "mail.example.com", "x.rp.example.com", "[192.0.2.1]", "rp."] {
        assert_eq!(world.mailbox(&local, host), Err(MailboxRefusal::Host), "{host}");
    }
}

#[tokio::test]
async fn a_return_path_stays_valid_at_its_host_after_its_domain_is_removed() {
    let world = World::new().await;
    let message = world.delivered().await;
    let domain = world.row(message).domain;
    world.engine.delete_domain(world.account, domain).await.unwrap();
    let local = world.local(world.account, message);
    assert!(matches!(world.mailbox(&local, "rp.example.com"), Ok(Mailbox::ReturnPath(_))));
    assert_eq!(world.mailbox("fbl", "rp.example.com"), Err(MailboxRefusal::Host));
    assert_eq!(world.mailbox(&world.local(world.other, message), "rp.example.com"), Err(MailboxRefusal::Host));
}

#[tokio::test]
async fn a_token_is_valid_only_with_its_own_account_and_an_existing_message() {
    let world = World::new().await;
    let message = world.delivered().await;
    let elsewhere = TokenKeys::new(Secret::new([2; 32]));
    let unwritten = world.engine.store.reserve_message_id(NOW);
    for local in [
        world.local(world.other, message),
        world.local(AccountId::default(), message),
        return_path::encode(world.account, message, &elsewhere),
        world.local(world.account, unwritten),
    ] {
        assert_eq!(world.mailbox(&local, "bounces.example.com"), Err(MailboxRefusal::Mailbox), "{local}");
    }
}

#[tokio::test]
async fn a_return_path_outlives_its_key_and_expires_after_37_days() {
    let world = World::new().await;
    let message = world.delivered().await;
    let local = world.local(world.account, message);
    let path = Mailbox::ReturnPath(ReturnPath { account: world.account, message });
    world.pass(37 * DAY);
    let later = world.local(world.account, world.accepted().await);
    assert_ne!(later[2..3], local[2..3], "another key has replaced it");
    assert_eq!(world.mailbox(&local, "bounces.example.com"), Ok(path));
    assert_eq!(
        world.receive_for(message, &dsn(&[("b@example.net", "failed", "550 5.1.1 gone")])).await,
        AcceptedKind::Bounced
    );
    world.pass(Duration::from_millis(1));
    assert_eq!(world.mailbox(&local, "bounces.example.com"), Err(MailboxRefusal::Expired));
    assert!(world.mailbox(&later, "bounces.example.com").is_ok());
    let refused: BTreeMap<_, _> = world.engine.meters.came_back.refused().collect();
    assert_eq!(refused, BTreeMap::from([("host", 0), ("mailbox", 0), ("expired", 1)]));
}

#[tokio::test]
async fn our_recipient_decides_among_several_and_a_partly_working_alias_is_not_suppressed() {
    let gone = "550 5.1.1 User unknown";
    for (blocks, taken, suppressed) in [
        (vec![("b@EXAMPLE.net", "failed", gone)], AcceptedKind::Bounced, true),
        (vec![("c@inner.example", "failed", gone)], AcceptedKind::Bounced, true),
        (vec![("b@example.net", "delivered", "250 ok"), ("c@x.example", "failed", gone)], AcceptedKind::NoNews, false),
        (vec![("c@x.example", "failed", gone), ("d@x.example", "delivered", "250 ok")], AcceptedKind::Bounced, false),
        (vec![("b@example.net", "failed", "550 5.7.1 blocked")], AcceptedKind::Bounced, false),
        (vec![("b@example.net", "delayed", "550 5.1.1 User unknown")], AcceptedKind::Delayed, false),
    ] {
        let world = World::new().await;
        let message = world.delivered().await;
        assert_eq!(world.receive_for(message, &dsn(&blocks)).await, taken, "{blocks:?}");
        assert_eq!(world.is_suppressed(), suppressed, "{blocks:?}");
        let status = if taken == AcceptedKind::Bounced { Status::Bounced } else { Status::Delivered };
        assert_eq!(world.status(message), status);
    }
}

#[tokio::test]
async fn a_repeated_report_is_counted_but_changes_nothing() {
    let world = World::new().await;
    let message = world.delivered().await;
    let report = dsn(&[("b@example.net", "failed", "550 5.1.1 User unknown")]);
    let accepted = [world.receive_for(message, &report).await, world.receive_for(message, &report).await];
    assert_eq!(accepted, [AcceptedKind::Bounced, AcceptedKind::Repeated]);
    let counts: BTreeMap<_, _> = world.engine.meters.came_back.taken().collect();
    assert_eq!((counts["bounced"], counts["repeated"], counts.values().sum::<u64>()), (1, 1, 2));
}

#[tokio::test]
async fn an_unstructured_bounce_is_recorded_and_suppresses_no_address() {
    let world = World::new().await;
    let message = world.delivered().await;
    let qmail = "From: MAILER-DAEMON@mx.example.net\nSubject: failure notice\n\n\
                 Hi. This is the qmail-send program at mx.example.net.\n\
                 I'm afraid I wasn't able to deliver your message to the following addresses.\n\
                 This is a permanent error; I've given up. Sorry it didn't work out.\n\n\
                 <b@example.net>:\nSorry, no mailbox here by that name. (#5.1.1)\n\n\
                 --- Below this line is a copy of the message.\n\nSubject: x\n\nx\n";
    assert_eq!(world.receive_for(message, qmail).await, AcceptedKind::Undetermined);
    assert_eq!((world.status(message), world.is_suppressed()), (Status::Bounced, false));
}

#[tokio::test]
async fn messages_that_wait_for_a_suppressed_address_end_at_once() {
    let world = World::new().await;
    let (message, waiting) = (world.delivered().await, world.accepted().await);
    assert_eq!(world.receive_for(message, &arf("", "Subject: x\n")).await, AcceptedKind::Complained);
    assert_eq!((world.status(waiting), world.transfer(waiting).due), (Status::Suppressed, None));
}

#[tokio::test]
async fn personal_mail_and_automatic_replies_are_accepted_and_dropped() {
    let world = World::new().await;
    let message = world.delivered().await;
    let report = dsn(&[("b@example.net", "failed", "550 5.1.1 User unknown")]);
    for mailbox in [Mailbox::People, Mailbox::Feedback] {
        assert_eq!(world.receive_at(mailbox, &report).await, AcceptedKind::Untied);
    }
    let letter = "From: a@example.net\nSubject: a question\n\nx\n";
    assert_eq!(world.receive_at(Mailbox::People, letter).await, AcceptedKind::Personal);
    assert_eq!(
        world.receive_for(message, "Auto-Submitted: auto-replied\nSubject: away\n\nx\n").await,
        AcceptedKind::AutoReply
    );
    assert_eq!(world.receive_for(message, "Subject: hello\n\nhow are you?\n").await, AcceptedKind::Unknown);
    assert_eq!((world.status(message), world.is_suppressed()), (Status::Delivered, false));
}

#[tokio::test]
async fn a_report_that_precedes_its_attempts_outcome_waits_for_it() {
    let world = World::new().await;
    let message = world.accepted().await;
    let lease = world.engine.leases.take(message).unwrap();
    let report = dsn(&[("b@example.net", "failed", "550 5.1.1 User unknown")]);
    let outcome = async {
        tokio::task::yield_now().await;
        world.deliver(message).await;
        assert_eq!(world.status(message), Status::Delivered);
        drop(lease);
    };
    let (taken, ()) = tokio::join!(world.receive_for(message, &report), outcome);
    assert_eq!((taken, world.status(message)), (AcceptedKind::Bounced, Status::Bounced));
    assert!(world.engine.leases.take(message).is_some());
}

#[tokio::test]
async fn an_oversized_header_section_is_refused_and_a_closed_store_accepts_nothing() {
    let world = World::new().await;
    let message = world.delivered().await;
    let mailbox = [Mailbox::ReturnPath(ReturnPath { account: world.account, message })];
    let endless = format!("X: {}", "x".repeat(HEADER_BYTES_MAX)).into_bytes();
    assert!(matches!(world.receiver.receive(client(1), &mailbox, endless).await, Err(ReceiveError::HeaderTooLarge)));
    let store = Arc::clone(&world.engine.store);
    tokio::task::spawn_blocking(move || store.close()).await.unwrap();
    let report = dsn(&[("b@example.net", "failed", "550 5.1.1 User unknown")]).into_bytes();
    let refused = world.receiver.receive(client(1), &mailbox, report).await;
    assert!(matches!(refused, Err(ReceiveError::Failed(StoreError::Closed))), "{refused:?}");
}

#[tokio::test]
async fn messages_of_one_client_leave_turns_to_others() {
    let world = World::new().await;
    let reading = &world.receiver.reading;
    let _held = [reading.take(client(1)).await, reading.take(client(1)).await];
    let mut third = std::pin::pin!(reading.take(client(1)));
    let is_waiting = std::future::poll_fn(|context| std::task::Poll::Ready(third.as_mut().poll(context).is_pending()));
    assert!(is_waiting.await, "one client has at most half of the turns");
    let (message, mailboxes) = (b"Subject: x\r\n\r\n".to_vec(), [Mailbox::Feedback]);
    assert!(world.receiver.receive(client(2), &mailboxes, message).await.is_ok());
}
