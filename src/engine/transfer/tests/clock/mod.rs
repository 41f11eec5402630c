//! Tests of the running engine with a wrong wall clock.

mod accepted;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::World;
use super::net::Behaviour;
use super::world::{START, mx};
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::domain::submission::{Content, Parts, Submission};
use crate::engine::Caller;
use crate::engine::service_clock::ServiceClock;
use crate::machine::service_clock::Sample;
use crate::store::op::admission::IdempotencyClaim;
use crate::store::op::clock_doubt::EndDoubt;
use crate::store::read::Read as _;
use crate::store::schema::{Table, meta};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The machine's clocks, set by the test.
#[derive(Clone)]
struct Clocks(Arc<Mutex<Sample>>);

impl Clocks {
    fn new() -> Self {
        let wall = Duration::from_millis(START.as_millis());
        Self(Arc::new(Mutex::new(Sample { wall, elapsed: DAY, is_synchronised: false })))
    }

    fn service_clock(&self) -> Arc<ServiceClock> {
        let clocks = Arc::clone(&self.0);
        Arc::new(ServiceClock::new(Box::new(move || *clocks.lock().unwrap())))
    }

    async fn world(&self) -> World {
        World::on_clock(self.service_clock()).await
    }

    fn set_ahead(&self, by: Duration) {
        self.0.lock().unwrap().wall += by;
    }

    fn set_back(&self, by: Duration) {
        self.0.lock().unwrap().wall -= by;
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(u64::try_from(self.0.lock().unwrap().wall.as_millis()).unwrap())
    }

    fn pass(&self, time: Duration) {
        let mut sample = self.0.lock().unwrap();
        sample.wall += time;
        sample.elapsed += time;
    }
}

impl World {
    /// Waits until all due work is done.
    async fn settles(&self) {
        self.engine.settle_clock().await.unwrap();
        let settled = async {
            loop {
                // Wakes the dispatcher, whose sleep follows the machine's clock.
                self.engine.store.timers().give_back_all([]);
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                if self.engine.store.timers().is_settled(self.engine.clock.now()) {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), settled).await.expect("something stays due");
    }

    async fn pass_on(&self, clocks: &Clocks, time: Duration, step: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let now = left.min(step);
            clocks.pass(now);
            self.settles().await;
            left -= now;
        }
    }

    /// Corrects a clock that was ahead, and lets the operator accept it.
    async fn set_right(&self, clocks: &Clocks, ahead: Duration) {
        clocks.set_back(ahead);
        self.settles().await;
        self.engine.accept_clock().await.unwrap();
        self.settles().await;
        assert_eq!(self.engine.clock.now(), clocks.wall());
    }

    async fn restarted_with(self, clocks: &Clocks) -> Self {
        let world = self.restarted_on(vec![mx("direct", &[])], Some(clocks.service_clock())).await;
        world.settles().await;
        world
    }

    fn has_kept_time(&self) -> bool {
        self.engine.store.snapshot().unwrap().has(Table::Meta, meta::TIME).unwrap()
    }

    async fn has_content(&self, id: MessageId) -> bool {
        let record = self.message(id);
        self.engine.content(self.account, &record, |bytes| !bytes.is_empty()).await.unwrap() == Some(true)
    }

    /// Returns a message that its server defers.
    async fn deferred(&self) -> MessageId {
        self.net.serve("a.test", &["mx.a.test"]);
        self.net.behave("mx.a.test", Behaviour::Says("451 4.3.0 later"));
        let id = self.send("u@a.test").await;
        self.settles().await;
        assert_eq!(self.progress(id), ("deferred", 1));
        id
    }

    /// Returns a message to a site that refuses connections, and so is backed off.
    async fn backed_off(&self) -> MessageId {
        self.net.serve("b.test", &["mx.b.test"]);
        self.net.behave("mx.b.test", Behaviour::Refuses);
        let id = self.send("u@b.test").await;
        self.settles().await;
        assert_eq!(self.progress(id), ("deferred", 1));
        id
    }

    /// Submits with an idempotency key. Returns whether it was a replay.
    async fn submit_with_key(&self) -> bool {
        let parts = Parts { text: Some("Once.".to_owned()), ..Parts::default() };
        let submission = Submission {
            to_name: None,
            list_unsubscribe: None,
            from: "shop@example.test".parse().unwrap(),
            from_name: None,
            to: "u@b.test".parse().unwrap(),
            content: Content::Composed(parts),
            unsubscribe_url: None,
            metadata: Default::default(),
            expires_at: None,
        };
        let claim = IdempotencyClaim { key_hash: [1; 32], body_hash: [2; 32] };
        let caller = Caller { account: self.account, key: None };
        self.engine.submit(&caller, submission, Some(claim)).await.unwrap().is_replay
    }
}

#[tokio::test]
async fn a_clock_forty_days_ahead_for_three_seconds_destroys_and_fails_nothing() {
    let clocks = Clocks::new();
    let world = clocks.world().await;
    let id = world.deferred().await;
    assert!(!world.submit_with_key().await);
    clocks.set_ahead(40 * DAY);
    for _ in 0..3 {
        world.pass_on(&clocks, Duration::from_secs(1), DAY).await;
        assert!(world.engine.clock.doubt().is_some());
        assert!(world.has_content(id).await && world.submit_with_key().await);
    }
    clocks.set_back(40 * DAY);
    world.settles().await;
    assert!(world.engine.clock.doubt().is_none());
    assert!(!world.engine.clock.time().is_frozen);
    assert!(world.has_content(id).await && world.submit_with_key().await);
    assert_eq!(world.progress(id), ("deferred", 1));
    world.pass_on(&clocks, 31 * DAY, DAY).await;
    assert!(!world.has_content(id).await, "deadlines move on");
    assert_eq!(world.progress(id).0, "failed");
}

#[tokio::test]
async fn a_clock_that_creeps_ahead_by_42_days_destroys_and_fails_nothing() {
    let clocks = Clocks::new();
    let world = clocks.world().await;
    let id = world.deferred().await;
    assert!(!world.submit_with_key().await);
    let step = 58 * MINUTE;
    for _ in 0..1043 {
        clocks.set_ahead(step);
        world.engine.clock.time();
    }
    world.settles().await;
    assert!(world.engine.clock.doubt().is_some());
    assert!(world.has_content(id).await && world.submit_with_key().await);
    assert_eq!(world.progress(id).0, "deferred");
    clocks.set_back(1043 * step);
    world.settles().await;
    assert!(world.engine.clock.doubt().is_none());
    assert!(world.has_content(id).await && world.submit_with_key().await);
    assert_eq!(world.progress(id).0, "deferred");
}

#[tokio::test]
async fn a_message_that_expires_in_doubt_is_retried_and_fails_when_the_doubt_ends() {
    let clocks = Clocks::new();
    let world = clocks.world().await;
    let id = world.deferred().await;
    clocks.set_back(40 * DAY);
    world.settles().await;
    // Set the clock once more every 20 hours; otherwise the doubt would end.
    for _ in 0..4 {
        world.pass_on(&clocks, 20 * HOUR, HOUR).await;
        clocks.set_back(HOUR);
        world.settles().await;
    }
    let (status, attempts) = world.progress(id);
    assert_eq!(status, "deferred", "80 hours are beyond its lifetime");
    clocks.set_ahead(40 * DAY + 4 * HOUR);
    world.pass_on(&clocks, 2 * HOUR, 10 * MINUTE).await;
    assert_eq!(world.progress(id).0, "failed");
    assert!(attempts > 10 && attempts < 200, "{attempts} attempts");
}

#[tokio::test]
async fn mail_continues_when_the_clock_is_set_back_by_an_hour() {
    let clocks = Clocks::new();
    let world = clocks.world().await;
    let id = world.deferred().await;
    clocks.set_back(HOUR);
    world.pass_on(&clocks, 20 * MINUTE, MINUTE).await;
    assert!(world.progress(id).1 > 1, "it waits for the clock to catch up");
    assert!(world.engine.clock.doubt().is_none());
}

#[tokio::test]
async fn content_accepted_with_a_clock_forty_days_behind_survives_its_correction() {
    let clocks = Clocks::new();
    let world = clocks.world().await;
    clocks.set_back(40 * DAY);
    world.settles().await;
    let id = world.deferred().await;
    clocks.set_ahead(40 * DAY);
    world.settles().await;
    assert!(world.has_content(id).await);
    world.pass_on(&clocks, 29 * DAY, DAY).await;
    assert!(world.has_content(id).await);
    world.pass_on(&clocks, 2 * DAY, DAY).await;
    assert!(!world.has_content(id).await);
}

#[tokio::test]
async fn an_accepted_clock_sets_the_deadlines_of_content_and_ends_older_content() {
    let clocks = Clocks::new();
    let world = clocks.world().await;
    let old = world.deferred().await;
    clocks.set_ahead(40 * DAY);
    world.settles().await;
    assert!(world.has_content(old).await);
    let new = world.deferred().await;
    world.engine.accept_clock().await.unwrap();
    world.settles().await;
    assert_eq!(world.message(new).row.content_expires_at, clocks.wall() + 30 * DAY);
    assert!(!world.has_content(old).await && world.has_content(new).await);
    assert_eq!(world.progress(new).0, "deferred", "its lifetime counts from the right time");
    world.pass_on(&clocks, 29 * DAY, DAY).await;
    assert!(world.has_content(new).await);
    world.pass_on(&clocks, 2 * DAY, DAY).await;
    assert!(!world.has_content(new).await);
    let buckets = world.engine.store.content().buckets_until(Timestamp::MAX).unwrap();
    assert_eq!(buckets.len(), 0, "its bytes are destroyed too: {buckets:?}");
}

#[tokio::test]
async fn accepting_a_clock_that_is_behind_moves_attempts_and_deadlines_forward() {
    let clocks = Clocks::new();
    let world = clocks.world().await;
    let old = world.deferred().await;
    clocks.set_back(3 * DAY);
    world.settles().await;
    let new = world.deferred().await;
    world.engine.accept_clock().await.unwrap();
    world.settles().await;
    assert_eq!(world.message(new).row.content_expires_at, clocks.wall() + 30 * DAY);
    world.pass_on(&clocks, 20 * MINUTE, MINUTE).await;
    assert!(world.progress(old).1 > 1 && world.progress(new).1 > 1, "they wait for the clock to catch up");
}

#[tokio::test]
async fn a_backed_off_site_is_tried_after_its_delay_when_a_clock_that_was_ahead_is_corrected() {
    let clocks = Clocks::new();
    let world = clocks.world().await;
    let old = world.backed_off().await;
    world.set_right(&clocks, 5 * DAY).await;
    let new = world.send("v@b.test").await;
    world.net.behave("mx.b.test", Behaviour::Takes);
    world.pass_on(&clocks, 5 * MINUTE, MINUTE).await;
    assert_eq!([old, new].map(|id| world.progress(id).0), ["delivered"; 2], "they wait for the clock to catch up");
}

#[tokio::test]
async fn a_restart_after_a_clock_that_was_ahead_is_corrected_expires_nothing_and_delays_nothing() {
    let clocks = Clocks::new();
    let world = clocks.world().await;
    let old = world.backed_off().await;
    let queued = world.send("v@b.test").await;
    world.settles().await;
    world.set_right(&clocks, 5 * DAY).await;
    let new = world.deferred().await;
    assert!(!world.submit_with_key().await);
    let world = world.restarted_with(&clocks).await;
    assert_eq!(world.engine.clock.doubt(), None);
    assert_eq!(world.engine.clock.now(), clocks.wall());
    assert!(world.submit_with_key().await, "its key is forgotten");
    assert_eq!(world.progress(new).0, "deferred");
    world.net.behave("mx.b.test", Behaviour::Takes);
    world.pass_on(&clocks, 5 * MINUTE, MINUTE).await;
    assert_eq!([old, queued].map(|id| world.progress(id).0), ["delivered"; 2], "they wait for the clock to catch up");
    assert!(world.progress(new).1 > 1);
    assert!(world.has_kept_time());
    world.pass_on(&clocks, 6 * DAY, HOUR).await;
    assert!(!world.has_kept_time(), "identifiers follow the service's time again");
    let world = world.restarted_with(&clocks).await;
    assert_eq!(world.engine.clock.now(), clocks.wall());
}

#[tokio::test]
async fn a_crash_before_a_clock_that_was_ahead_is_followed_expires_nothing() {
    let clocks = Clocks::new();
    let world = clocks.world().await;
    let id = world.deferred().await;
    clocks.set_back(5 * DAY);
    world.settles().await;
    let (until, number) = (world.engine.clock.now(), world.engine.clock.time().doubt.unwrap());
    let offset_ms = -i64::try_from((5 * DAY).as_millis()).unwrap();
    world.engine.store.commit(EndDoubt { number, until, offset_ms }).await.unwrap();
    let world = world.restarted_with(&clocks).await;
    assert_eq!((world.engine.clock.doubt(), world.engine.clock.now()), (None, clocks.wall()));
    assert_eq!(world.progress(id).0, "deferred");
    world.pass_on(&clocks, 5 * MINUTE, MINUTE).await;
    assert!(world.progress(id).1 > 1);
}

/// A message whose server holds it until the gate opens.
struct HeldMessage {
    clocks: Clocks,
    world: World,
    gate: Arc<Semaphore>,
    id: MessageId,
}

impl HeldMessage {
    async fn new(behaviour: fn(Arc<Semaphore>) -> Behaviour) -> Self {
        let clocks = Clocks::new();
        let world = clocks.world().await;
        world.net.serve("b.test", &["mx.b.test"]);
        let gate = Arc::new(Semaphore::new(0));
        world.net.behave("mx.b.test", behaviour(Arc::clone(&gate)));
        let id = world.send("u@b.test").await;
        Self { clocks, world, gate, id }
    }

    /// Corrects the clock, which gives the message a new timer while its worker still has it, and opens the gate.
    async fn sends_it_once_after_a_correction(self) {
        let Self { clocks, world, gate, id } = self;
        clocks.set_back(5 * DAY);
        world.engine.settle_clock().await.unwrap();
        world.engine.accept_clock().await.unwrap();
        gate.add_permits(10);
        world.is_delivered(id).await;
        world.settles().await;
        assert_eq!(world.net.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_message_in_transmission_while_the_clock_is_corrected_is_sent_once() {
    let held = HeldMessage::new(Behaviour::HoldsDots).await;
    held.world.net.has_seen(1).await;
    held.sends_it_once_after_a_correction().await;
}

#[tokio::test]
async fn a_message_that_connects_while_the_clock_is_corrected_is_sent_once() {
    let held = HeldMessage::new(Behaviour::Greets).await;
    held.world.is_in_hand("mx.b.test").await;
    held.sends_it_once_after_a_correction().await;
}
