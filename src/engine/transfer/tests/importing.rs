//! Tests of the import of long suppression lists, with the dispatcher that serves their timers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Behaviour, World};
use crate::base::id::AccountId;
use crate::domain::address::Address;
use crate::domain::limits::SUPPRESSIONS_COUNT;
use crate::engine::imports::ImportRefusal;
use crate::engine::suppressions::{Imported, SuppressionBatches};
use crate::store::error::{OpError, StoreError};
use crate::store::op::suppression::{IMPORTED_MAX, Suppression, is_suppressed};
use crate::store::op::suppression_count::SetSuppressionCount;
use crate::store::op::suppression_import::{BeginImport, FinishImport, ImportBatch};
use crate::store::read::{Order, Read as _};
use crate::store::row::suppression::SuppressionReason;
use crate::store::schema::Table;
use crate::store::timer::TimerKind;

fn address(number: usize) -> Address {
    format!("u{number}@a.test").parse().unwrap()
}

fn batch(number: usize) -> Vec<Suppression> {
    let numbers = number * IMPORTED_MAX..(number + 1) * IMPORTED_MAX;
    numbers.map(|number| Suppression::of(address(number), SuppressionReason::Import)).collect()
}

/// A list of three batches. The test releases the second one.
struct Three {
    gate: Mutex<Receiver<()>>,
    is_at_gate: AtomicBool,
}

impl SuppressionBatches for Three {
    fn count(&self) -> usize {
        3 * IMPORTED_MAX
    }
    fn batches(&self) -> usize {
        3
    }
    fn batch(&self, number: usize) -> Vec<Suppression> {
        if number == 1 {
            self.is_at_gate.store(true, Ordering::SeqCst);
            self.gate.lock().unwrap().recv().unwrap();
        }
        batch(number)
    }
}

impl Three {
    fn new() -> (Arc<Self>, Sender<()>) {
        let (open, gate) = channel();
        (Arc::new(Self { gate: Mutex::new(gate), is_at_gate: AtomicBool::new(false) }), open)
    }

    async fn has_come_to_its_gate(&self) {
        while !self.is_at_gate.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl World {
    fn is_listed(&self, number: usize) -> bool {
        is_suppressed(&self.engine.store.snapshot().unwrap(), self.account, &address(number)).unwrap()
    }

    fn rows(&self, table: Table) -> usize {
        self.engine.store.snapshot().unwrap().keys(table, &[], &[u8::MAX; 64], Order::Ascending, 9999).unwrap().len()
    }

    async fn has_no_import_left(&self) {
        while self.waits(TimerKind::SuppressionImport) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn import(&self, list: Arc<Three>) -> tokio::task::JoinHandle<Result<Imported, OpError<ImportRefusal>>> {
        let (engine, account): (_, AccountId) = (Arc::clone(&self.engine), self.account);
        tokio::spawn(async move { engine.import_suppressions(account, list).await })
    }
}

#[tokio::test]
async fn an_import_takes_effect_when_complete_and_others_send_meanwhile() {
    let world = World::new().await;
    world.net.behave("mx.a.test", Behaviour::Says("450 later"));
    let waiting = world.send("u500@a.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(waiting).0, "deferred");
    let (list, open) = Three::new();
    let import = world.import(Arc::clone(&list));
    list.has_come_to_its_gate().await;
    assert_eq!((world.rows(Table::Suppressions), world.is_listed(0)), (IMPORTED_MAX, false));
    world.send("u0@b.test").await;
    let second = world.engine.import_suppressions(world.account, Three::new().0).await;
    assert!(matches!(second, Err(OpError::Refused(ImportRefusal::Running))));
    open.send(()).unwrap();
    let imported = import.await.unwrap().unwrap();
    assert_eq!(imported, Imported { imported: 3 * IMPORTED_MAX, skipped: 0 });
    assert!((0..3 * IMPORTED_MAX).all(|number| world.is_listed(number)));
    assert_eq!(world.progress(waiting).0, "suppressed");
    world.has_no_import_left().await;
    world.pass(0).await;
    assert_eq!(world.rows(Table::SuppressionImports), 0);
}

#[tokio::test]
async fn a_failed_import_is_rolled_back_and_can_be_repeated() {
    let world = World::new().await;
    let (list, open) = Three::new();
    let import = world.import(Arc::clone(&list));
    list.has_come_to_its_gate().await;
    drop(open);
    assert!(matches!(import.await.unwrap(), Err(OpError::Failed(StoreError::Panicked))));
    world.has_no_import_left().await;
    assert_eq!((world.rows(Table::Suppressions), world.rows(Table::SuppressionsById)), (0, 0));
    let (list, open) = Three::new();
    open.send(()).unwrap();
    assert!(world.engine.import_suppressions(world.account, list).await.is_ok());
    assert!(world.is_listed(599));
}

#[tokio::test]
async fn a_list_over_the_limit_is_refused_before_anything_is_written() {
    let world = World::new().await;
    let (account, written) = (world.account, 3 * IMPORTED_MAX as u64);
    let count = |suppressions| world.engine.store.commit(SetSuppressionCount { account, suppressions });
    count(SUPPRESSIONS_COUNT - written + 1).await.unwrap();
    let (list, open) = Three::new();
    open.send(()).unwrap();
    let refused = world.engine.import_suppressions(account, list).await;
    assert!(matches!(refused, Err(OpError::Refused(ImportRefusal::TooMany))));
    assert_eq!(world.rows(Table::Suppressions), 0);
    assert!(!world.waits(TimerKind::SuppressionImport), "there is nothing to undo");
    count(SUPPRESSIONS_COUNT - written).await.unwrap();
    let (list, open) = Three::new();
    open.send(()).unwrap();
    assert_eq!(world.engine.import_suppressions(account, list).await.unwrap().imported, 3 * IMPORTED_MAX);
}

#[tokio::test]
async fn the_next_start_rolls_back_an_interrupted_import_and_completes_a_finished_one() {
    let mut world = World::new().await;
    world.net.behave("mx.a.test", Behaviour::Says("450 later"));
    let waiting = world.send("u7@a.test").await;
    world.pass(0).await;
    for is_finished in [false, true] {
        world = world.stopped().await;
        let account = world.account;
        let timer = world.engine.store.commit(BeginImport { account }).await.unwrap();
        let batch = ImportBatch { account, import: timer.id, suppressions: batch(0) };
        assert_eq!(world.engine.store.commit(batch).await.unwrap(), IMPORTED_MAX);
        if is_finished {
            let finish = FinishImport { account, import: timer.id, count: IMPORTED_MAX };
            world.engine.store.commit(finish).await.unwrap();
        }
        world = world.restarted(vec![super::mx("direct", &[])]).await;
        world.has_no_import_left().await;
        assert_eq!((world.rows(Table::SuppressionImports), world.is_listed(7)), (0, is_finished));
        assert_eq!(world.progress(waiting).0, if is_finished { "suppressed" } else { "deferred" });
    }
}
