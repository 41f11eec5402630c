//! Tests of TLS reports from counts, over a real store and a controlled clock: their receivers, content and number.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::limits::{OF_ADDRESS_MAX, OF_RECEIVER_MAX};
use super::*;
use crate::base::entropy::SeededEntropy;
use crate::base::id::MessageId;
use crate::domain::account::QuotaLimits;
use crate::domain::stream::Stream;
use crate::engine::audit::Behalf;
use crate::engine::ports::{BoxFuture, Clock, MailHost, PostError, PostOutcome, Requester, Resolve, RouteFailure};
use crate::engine::settings::Settings;
use crate::smtp::tls_policy::TlsFault;
use crate::smtp::tlsa::TlsaRecord;
use crate::store::Store;
use crate::store::op::account::AccountChange;
use crate::store::op::tls_report::{CountTlsSession, day_of};
use crate::store::open::StoreEnvironment;
use crate::store::read::{Order, after_prefix};
use crate::store::row::message::MessageRow;
use crate::store::timer::TimerKind;

const NOON: Timestamp = Timestamp::from_millis(1_700_049_600_000);
const MAIL: &str = "mailto:tls@a.example";
const BOTH: &str = "v=TLSRPTv1; rua=mailto:tls@a.example,https://tls.a.example/v1";

/// Scripted DNS, the receivers of POSTs, and the clock.
struct Outside {
    now: AtomicU64,
    txt: Mutex<Result<Vec<String>, LookupFailure>>,
    asked: Mutex<Vec<String>>,
    is_down: AtomicBool,
    posts: Mutex<Vec<WebhookRequest>>,
}

impl Clock for Outside {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::SeqCst))
    }
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.now.load(Ordering::SeqCst))
    }
}

impl Resolve for Outside {
    fn mail_hosts<'a>(&'a self, _: &'a DomainName, _: Requester) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>> {
        Box::pin(async { Err(RouteFailure::NoHost) })
    }
    fn tlsa<'a>(&'a self, _: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn txt<'a>(&'a self, name: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        self.asked.lock().unwrap().push(name.to_owned());
        let answer = self.txt.lock().unwrap().clone();
        Box::pin(async { answer })
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

impl Post for Outside {
    fn post<'a>(&'a self, request: WebhookRequest, _: &'a AtomicBool) -> BoxFuture<'a, PostOutcome> {
        self.posts.lock().unwrap().push(request);
        let is_down = self.is_down.load(Ordering::SeqCst);
        let (status, error) = if is_down { (None, Some(PostError::Connect)) } else { (Some(201), None) };
        Box::pin(async move { PostOutcome { status, error, duration: Duration::ZERO, peer: None, body: None } })
    }
}

struct World {
    outside: Arc<Outside>,
    engine: Arc<Engine>,
    account: AccountId,
    _directory: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        Self::sending_as(Some("reports@example.com")).await
    }

    /// Creates an account with `example.com`, whose mail is transactional, and `news.example.com`, whose mail is not.
    async fn sending_as(from: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let outside = Arc::new(Outside {
            now: AtomicU64::new(NOON.as_millis()),
            txt: Mutex::new(Ok(vec![BOTH.to_owned()])),
            asked: Mutex::default(),
            is_down: AtomicBool::new(false),
            posts: Mutex::default(),
        });
        let entropy = Arc::new(SeededEntropy::new(7));
        let time = Arc::clone(&outside);
        let surroundings = StoreEnvironment { now: Arc::new(move || time.time()), entropy: entropy.clone() };
        let store = Arc::new(Store::open(directory.path(), surroundings).unwrap());
        let from = from.map(|from| from.parse().unwrap());
        let settings = Settings { tls_reports_from: from, ..Settings::for_tests() };
        let engine = Arc::new(Engine::new(store, outside.clone(), entropy, outside.clone(), settings));
        let account = engine.create_account("Acme".parse().unwrap(), None, QuotaLimits::default()).await.unwrap().id;
        for (name, stream) in [("example.com", Stream::Transactional), ("news.example.com", Stream::Marketing)] {
            engine.create_verified_domain(account, name.parse().unwrap(), stream).await.unwrap();
        }
        Self { outside, engine, account, _directory: directory }
    }

    async fn count(&self, domain: &str, fault: Option<TlsFault>) {
        let domain: DomainName = domain.parse().unwrap();
        let report_after = self.engine.tls_report_after(&domain);
        let policy = vec!["version: STSv1".to_owned(), "mx: *.a.example".to_owned()];
        let (policy_type, host) = (PolicyType::Sts, Some("mx.a.example".to_owned()));
        let op = CountTlsSession { domain, policy_type, policy, host, fault, report_after };
        assert!(self.engine.store.commit(op).await.is_ok());
    }

    fn timers(&self) -> Vec<Timer> {
        let snapshot = self.engine.store.snapshot().unwrap();
        let keys = snapshot.keys(Table::Timers, &[], &[0xff], Order::Ascending, usize::MAX).unwrap();
        keys.iter().filter_map(|key| Timer::decode(key)).filter(|timer| timer.kind == TimerKind::TlsReport).collect()
    }

    async fn serve(&self, timer: Timer) {
        assert!(self.engine.report_tls(&*self.outside, timer).await.is_ok());
    }

    /// Advances the clock to the only report's timer and serves it.
    async fn next(&self) -> Timer {
        let [timer] = self.timers()[..] else { panic!("{:?}", self.timers()) };
        self.outside.now.store(timer.due.as_millis(), Ordering::SeqCst);
        self.serve(timer).await;
        timer
    }

    /// Returns the accepted messages with their bytes.
    fn messages(&self) -> Vec<(MessageRow, String)> {
        let (snapshot, prefix) = (self.engine.store.snapshot().unwrap(), self.account.as_bytes());
        let keys = snapshot.keys(Table::Messages, prefix, &after_prefix(prefix), Order::Ascending, 100).unwrap();
        let message = |key: &Vec<u8>| {
            let row: MessageRow = snapshot.row(key).unwrap().unwrap();
            let id = MessageId(Ulid(key[16..].try_into().unwrap()));
            let bytes = self.engine.store.content().read(row.place, id).unwrap();
            (row, String::from_utf8(bytes).unwrap())
        };
        keys.iter().map(message).collect()
    }

    fn posts(&self) -> Vec<WebhookRequest> {
        self.outside.posts.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn after_the_day_a_domain_that_requests_reports_gets_them_by_mail_and_by_post() {
    let world = World::new().await;
    for fault in [None, None, Some(TlsFault::CertificateExpired)] {
        world.count("a.example", fault).await;
    }
    let due = world.next().await.due;
    let midnight = end_of(day_of(NOON));
    assert!(due >= midnight && due < midnight + SPREAD, "{due}");
    assert_eq!(*world.outside.asked.lock().unwrap(), ["_smtp._tls.a.example"]);
    let [(row, bytes)] = &world.messages()[..] else { panic!("one message") };
    assert_eq!((row.to.as_given(), row.stream, row.waives_tls), ("tls@a.example", Stream::Transactional, true));
    assert_eq!(row.expires_at, Some(due + TRIED_FOR));
    assert!(bytes.starts_with("DKIM-Signature: ") && bytes.contains("\r\nTLS-Report-Domain: a.example\r\n"));
    let [post] = &world.posts()[..] else { panic!("one request") };
    assert_eq!(post.url.as_str(), "https://tls.a.example/v1");
    assert_eq!(post.headers[0], ("content-type", "application/tlsrpt+json".to_owned()));
    let json: serde_json::Value = serde_json::from_slice(&post.body).unwrap();
    assert_eq!(json["date-range"]["start-datetime"], "2023-11-15T00:00:00.000+00:00");
    assert_eq!(json["date-range"]["end-datetime"], "2023-11-15T23:59:59.000+00:00");
    let policy = &json["policies"][0];
    assert_eq!(policy["policy"]["mx-host"], serde_json::json!(["*.a.example"]));
    assert_eq!(policy["summary"]["total-successful-session-count"], 2);
    assert_eq!(policy["failure-details"][0]["result-type"], "certificate-expired");
    assert!(world.timers().is_empty());
}

#[tokio::test]
async fn a_crash_before_the_outcome_is_recorded_causes_no_second_mail() {
    let world = World::new().await;
    world.count("a.example", None).await;
    let timer = world.next().await;
    world.serve(timer).await;
    assert_eq!(world.messages().len(), 1);
    let ids: Vec<_> = world.posts().iter().map(|post| post.body.clone()).collect();
    assert!(ids.len() == 2 && ids[0] == ids[1], "a receiver can recognise a repeated report by its identifier");
}

#[tokio::test]
async fn an_unreachable_destination_is_retried_for_a_day_and_the_others_get_one_report() {
    let world = World::new().await;
    world.count("a.example", None).await;
    world.outside.is_down.store(true, Ordering::SeqCst);
    let first = world.next().await.due;
    assert_eq!(world.timers()[0].due, first + WAIT_MIN);
    let mut last = first;
    while !world.timers().is_empty() {
        last = world.next().await.due;
    }
    assert_eq!((last.since(first), world.messages().len(), world.posts().len()), (TRIED_FOR, 1, 11));
}

#[tokio::test]
async fn a_destination_that_recovers_within_a_day_gets_its_report() {
    let world = World::new().await;
    world.count("a.example", None).await;
    world.outside.is_down.store(true, Ordering::SeqCst);
    world.next().await;
    world.outside.is_down.store(false, Ordering::SeqCst);
    world.next().await;
    assert_eq!((world.messages().len(), world.posts().len(), world.timers()), (1, 2, vec![]));
}

#[tokio::test]
async fn a_domain_without_a_request_gets_no_report_and_a_failed_lookup_is_retried() {
    let world = World::new().await;
    world.count("a.example", None).await;
    let answers = [
        (Err(LookupFailure::Temporary("SERVFAIL".to_owned())), 1),
        (Err(LookupFailure::Unasked), 1),
        (Ok(vec!["v=TLSRPTv1; rua=ftp://a.example".to_owned()]), 0),
    ];
    for (answer, left) in answers {
        *world.outside.txt.lock().unwrap() = answer;
        world.next().await;
        assert_eq!(world.timers().len(), left);
    }
    *world.outside.txt.lock().unwrap() = Err(LookupFailure::Absent);
    world.count("b.example", None).await;
    world.next().await;
    assert!(world.timers().is_empty() && world.messages().is_empty() && world.posts().is_empty());
}

#[tokio::test]
async fn if_reports_are_off_no_timer_is_armed_and_no_record_is_looked_up() {
    let sending = World::new().await;
    sending.count("a.example", None).await;
    let world = World::sending_as(None).await;
    world.count("a.example", None).await;
    assert!(world.timers().is_empty());
    // A timer that was armed before reports were switched off.
    world.serve(sending.timers()[0]).await;
    assert!(world.outside.asked.lock().unwrap().is_empty() && world.messages().is_empty());
}

#[tokio::test]
async fn reports_wait_until_their_sender_may_send() {
    for from in ["reports@elsewhere.example", "reports@news.example.com"] {
        let world = World::sending_as(Some(from)).await;
        world.count("a.example", None).await;
        *world.outside.txt.lock().unwrap() = Ok(vec![format!("v=TLSRPTv1; rua={MAIL}")]);
        world.next().await;
        assert_eq!((world.messages().len(), world.timers().len()), (0, 1), "{from}");
    }
    let world = World::sending_as(Some("reports@elsewhere.example")).await;
    world.count("a.example", None).await;
    world.next().await;
    let (name, stream) = ("elsewhere.example".parse().unwrap(), Stream::Transactional);
    world.engine.create_verified_domain(world.account, name, stream).await.unwrap();
    world.next().await;
    assert_eq!((world.messages().len(), world.posts().len(), world.timers()), (1, 1, vec![]));
}

#[tokio::test]
async fn reports_are_spread_over_hours_at_a_constant_time_for_each_domain() {
    let world = World::new().await;
    let after = |n: u32| world.engine.tls_report_after(&format!("d{n}.example").parse().unwrap()).unwrap();
    let mut moments: Vec<_> = (0..200).map(after).collect();
    assert_eq!(moments[7], after(7));
    moments.sort();
    assert!(moments[0] < SPREAD / 10 && moments[199] > SPREAD - SPREAD / 10 && moments[199] < SPREAD);
}

#[tokio::test]
async fn domains_can_direct_only_a_few_reports_of_a_day_at_a_receiver_of_others() {
    let world = World::new().await;
    for number in 0..OF_ADDRESS_MAX + 5 {
        world.count(&format!("d{number}.example"), None).await;
    }
    world.count("d.a.example", None).await;
    *world.outside.txt.lock().unwrap() = Ok(vec![format!("v=TLSRPTv1; rua={MAIL}")]);
    for timer in world.timers() {
        world.serve(timer).await;
    }
    let sent = world.messages();
    assert!(world.timers().is_empty(), "the others are dropped");
    assert_eq!(sent.len(), OF_ADDRESS_MAX + 1);
    assert!(sent.iter().any(|(_, bytes)| bytes.contains("\r\nTLS-Report-Domain: d.a.example\r\n")));
}

#[tokio::test]
async fn reports_use_at_most_half_of_the_quota() {
    let world = World::new().await;
    let change = AccountChange { quota_per_hour: Some(4), ..AccountChange::default() };
    assert!(world.engine.change_account(Behalf::operator(world.account), change).await.is_ok());
    for number in 0..3 {
        world.count(&format!("d{number}.example"), None).await;
    }
    *world.outside.txt.lock().unwrap() = Ok(vec![format!("v=TLSRPTv1; rua={MAIL}")]);
    let midnight = end_of(day_of(NOON)) + SPREAD;
    world.outside.now.store(midnight.as_millis(), Ordering::SeqCst);
    for timer in world.timers() {
        world.serve(timer).await;
    }
    assert_eq!((world.messages().len(), world.timers().len()), (2, 1));
    world.outside.now.store((midnight + Duration::from_secs(3600)).as_millis(), Ordering::SeqCst);
    let [timer] = world.timers()[..] else { panic!("one is left") };
    world.serve(timer).await;
    assert_eq!((world.messages().len(), world.timers().len()), (3, 0));
}

#[test]
fn the_limits_of_a_receiver_hold_for_each_day_try_and_kind_of_host() {
    let destination = |uri: &str| destinations(&[format!("v=TLSRPTv1; rua={uri}")]).pop().unwrap();
    let domain = |number: usize| -> DomainName { format!("d{number}.example").parse().unwrap() };
    for (uri, most) in [(MAIL, OF_ADDRESS_MAX), ("https://203.0.113.9/", OF_RECEIVER_MAX)] {
        let (limits, to) = (ReportLimits::default(), destination(uri));
        for day in [7, 8, 7] {
            for number in 0..most {
                assert!(limits.admit(day, &domain(number), &to), "{uri}: a repeated try counts once");
            }
            assert!(!limits.admit(day, &domain(most), &to), "{uri}");
        }
        // A clock that was ahead has been corrected.
        assert!(limits.admit(400, &domain(1), &to) && limits.admit(9, &domain(1), &to));
        (2..most + 1).for_each(|number| assert!(limits.admit(9, &domain(number), &to)));
        assert!(!limits.admit(9, &domain(most + 1), &to));
    }
}
