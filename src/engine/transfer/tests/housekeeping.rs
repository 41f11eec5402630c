//! Tests of housekeeping.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::{Behaviour, World};
use crate::base::id::{AccountId, Ulid};
use crate::store::error::OpError;
use crate::store::op::{Infallible, Op};
use crate::store::read::{Order, Read as _};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Damages a record that the sweep of idempotency keys reads, and arms the timers of the sweep and of the index.
#[derive(Serialize, Deserialize)]
struct Spoil(AccountId);

impl Op for Spoil {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        let (now, key) = (tables.now(), [7; 48]);
        tables.put_bytes(Table::Idempotency, &key, b"no row".to_vec());
        let by_expiry = [now.as_millis().to_be_bytes().as_slice(), &key].concat();
        tables.put_bytes(Table::IdempotencyByExpiry, &by_expiry, Vec::new());
        tables.arm(Timer::of_store(now, TimerKind::Idempotency));
        tables.arm(Timer::new(now, TimerKind::MessageIndex, self.0, Ulid::default()));
        Ok(())
    }
}

impl World {
    pub(super) fn waits(&self, kind: TimerKind) -> bool {
        let snapshot = self.engine.store.snapshot().unwrap();
        let keys = snapshot.keys(Table::Timers, &[], &[u8::MAX; 64], Order::Ascending, 100).unwrap();
        keys.iter().filter_map(|key| Timer::decode(key)).any(|timer| timer.kind == kind)
    }
}

#[tokio::test]
async fn a_damaged_record_does_not_block_housekeeping() {
    let world = World::new().await;
    world.engine.store.commit(Spoil(world.account)).await.unwrap();
    let all_is_served = async {
        while world.waits(TimerKind::MessageIndex) || world.waits(TimerKind::Idempotency) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all_is_served).await.expect("the sweep passes over the record");
}

/// Replaces a message's transfer row by these bytes.
#[derive(Serialize, Deserialize)]
struct Overwrite(Vec<u8>, Vec<u8>);

impl Op for Overwrite {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.put_bytes(Table::Transfers, &self.0, self.1.clone());
        Ok(())
    }
}

#[tokio::test]
async fn an_unrecorded_outcome_is_recorded_later_and_the_message_is_sent_once() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.behave("mx.a.test", Behaviour::Holds(Arc::clone(&gate)));
    let id = world.send("u@a.test").await;
    world.net.has_seen(1).await;
    let key = schema::message(world.account, id).to_vec();
    let whole = world.engine.store.snapshot().unwrap().get(Table::Transfers, &key).unwrap().unwrap();
    world.engine.store.commit(Overwrite(key.clone(), b"no row".to_vec())).await.unwrap();
    gate.add_permits(10);
    tokio::time::sleep(Duration::from_millis(200)).await;
    world.engine.store.commit(Overwrite(key, whole)).await.unwrap();
    world.is_delivered(id).await;
    assert_eq!(world.net.seen().len(), 1);
}

#[tokio::test]
async fn content_of_a_store_that_was_set_aside_expires_also_without_replication() {
    let world = World::new().await;
    let id = world.send("u@a.test").await;
    world.is_delivered(id).await;
    let aside = world.content_set_aside();
    let buckets = || std::fs::read_dir(&aside).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
    assert_eq!(buckets(), 1);
    world.pass(400 * 24 * 3600).await;
    let is_destroyed = async {
        while buckets() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), is_destroyed).await.expect("expired content is destroyed");
}
