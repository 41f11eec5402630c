//! Tests of a restored store, whose queues are on hold until the operator releases them.

use serde::{Deserialize, Serialize};

use super::*;
use crate::base::id::Ulid;
use crate::store::error::OpError;
use crate::store::op::{Infallible, Op};
use crate::store::row::restored::{HoldCause, RestoreOrigin};
use crate::store::schema::meta;
use crate::store::tables::Tables;

/// Marks the store as restored.
#[derive(Serialize, Deserialize)]
struct Restore(RestoreOrigin);

impl Op for Restore {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.put(meta::RESTORED, &self.0);
        Ok(())
    }
}

#[tokio::test]
async fn every_page_has_a_notice_while_a_restored_queue_is_on_hold() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    assert!(!browser.get("/").await.shows("on hold"));
    let (last_message, last_id) = (Ulid::default(), Ulid::default());
    let backup_at = world.clock.now();
    let cause = HoldCause::Restored;
    let restored = RestoreOrigin { backup_at, has_content: true, last_message, last_id, is_on_hold: true, cause };
    world.engine.store.commit(Restore(restored)).await.unwrap();
    for path in ["/", "/queue", "/messages"] {
        let page = browser.get(path).await;
        assert!(page.shows("Restored from the backup of 14 Nov 2023, 22:13:20 UTC"), "{path}");
        assert!(page.shows("postrider queue release"), "{path}");
    }
    world.engine.store.release_queue().await.unwrap();
    assert!(!browser.get("/").await.shows("on hold"));
}
