//! Stories of housekeeping beside the mail.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::World;
use crate::base::id::{AccountId, Ulid};
use crate::store::error::Stop;
use crate::store::op::{Never, Op};
use crate::store::read::{Order, Read as _};
use crate::store::schema::Table;
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Damages a row that the sweep of idempotency keys looks at, and has it and the index seen to.
#[derive(Serialize, Deserialize)]
struct Spoil(AccountId);

impl Op for Spoil {
    type Reply = ();
    type Refusal = Never;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), Stop<Never>> {
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
    fn waits(&self, kind: TimerKind) -> bool {
        let snapshot = self.engine.store.snapshot().unwrap();
        let keys = snapshot.keys(Table::Timers, &[], &[u8::MAX; 64], Order::Ascending, 100).unwrap();
        keys.iter().filter_map(|key| Timer::decode(key)).any(|timer| timer.kind == kind)
    }
}

#[tokio::test]
async fn housekeeping_that_fails_holds_up_no_other() {
    let world = World::new().await;
    world.engine.store.commit(Spoil(world.account)).await.unwrap();
    let index_is_seen_to = async {
        while world.waits(TimerKind::MessageIndex) {
            tokio::task::yield_now().await;
        }
    };
    // What failed keeps its timer for a minute of the machine's own.
    tokio::time::timeout(Duration::from_secs(30), index_is_seen_to).await.expect("the index waits for what failed");
    assert!(world.waits(TimerKind::Idempotency), "it is tried again");
}
