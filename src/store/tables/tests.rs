//! Tests of layered changes: an operation reads exactly the state that it will leave.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use proptest::prelude::*;
use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase};

use super::*;
use crate::store::schema;

const TABLE: Table = Table::Suppressions;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A change of one key: a value, or `None` for its removal.
type Change = (Vec<u8>, Option<Vec<u8>>);

/// Returns a batch that made the second half of the changes in `stored`; the first half is committed.
fn batch_over(stored: &[Change]) -> Batch {
    let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
    let transaction = database.begin_write().unwrap();
    schema::make_tables(&transaction).unwrap();
    let (committed, later) = stored.split_at(stored.len() / 2);
    let mut changes = Changes::default();
    for (key, value) in committed {
        changes.put(TABLE, key.clone(), value.clone());
    }
    changes.write_to(&transaction).unwrap();
    transaction.commit().unwrap();
    let mut batch = Batch::new(Snapshot::new(database.begin_read().unwrap(), std::sync::Arc::default()));
    let mut changes = Changes::default();
    for (key, value) in later {
        changes.put(TABLE, key.clone(), value.clone());
    }
    batch.join(changes).unwrap();
    batch
}

fn with_tables<T>(stored: &[Change], use_them: impl FnOnce(&mut Tables<'_>) -> T) -> T {
    let mut batch = batch_over(stored);
    let moment = Moment { time: Timestamp::from_millis(1_700_000_000_000).into(), random: [7; 10] };
    use_them(&mut Tables::new(&mut batch, moment, Ulid::default()))
}

fn change(tables: &mut Tables<'_>, (key, value): &Change) {
    match value {
        Some(value) => tables.put_bytes(TABLE, key, value.clone()),
        None => tables.remove(TABLE, key),
    }
}

fn scanned(tables: &Tables<'_>, from: &[u8], to: &[u8], order: Order, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut each = |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        Ok(if rows.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    };
    tables.scan(TABLE, from, to, order, &mut each).unwrap();
    rows
}

#[test]
fn reads_and_scans_see_added_rows_and_skip_removed_ones_in_both_orders() {
    let row = |key: &[u8], value: &[u8]| (key.to_vec(), Some(value.to_vec()));
    with_tables(&[row(b"a", b"1"), row(b"b", b"2"), row(b"d", b"4")], |tables| {
        tables.remove(TABLE, b"b");
        tables.remove(TABLE, b"x");
        tables.put_bytes(TABLE, b"c", b"3".to_vec());
        tables.put_bytes(TABLE, b"d", b"5".to_vec());
        let mut keys = tables.keys(TABLE, b"a", b"z", Order::Ascending, 9).unwrap();
        assert_eq!(keys, [b"a", b"c", b"d"]);
        keys.reverse();
        assert_eq!(tables.keys(TABLE, b"a", b"z", Order::Descending, 9).unwrap(), keys);
        assert_eq!(tables.keys(TABLE, b"b", b"d", Order::Ascending, 9).unwrap(), [b"c"]);
        assert_eq!(tables.get(TABLE, b"b").unwrap(), None);
        assert_eq!(tables.get(TABLE, b"d").unwrap(), Some(b"5".to_vec()));
    });
}

#[test]
fn an_inverted_range_is_empty() {
    with_tables(&[(b"m".to_vec(), Some(Vec::new()))], |tables| {
        assert!(tables.keys(TABLE, b"z", b"a", Order::Ascending, 9).unwrap().is_empty());
    });
}

#[test]
fn a_change_of_one_table_does_not_affect_others() {
    with_tables(&[], |tables| {
        tables.put_bytes(Table::Quotas, b"a", Vec::new());
        tables.put_bytes(Table::Timers, b"a", Vec::new());
        assert!(tables.keys(TABLE, b"", b"z", Order::Ascending, 9).unwrap().is_empty());
    });
}

#[test]
fn a_timer_armed_and_disarmed_by_one_operation_is_not_armed() {
    let timer = Timer::of_store(Timestamp::from_millis(1), super::super::timer::TimerKind::EventLog);
    with_tables(&[], |tables| {
        tables.arm(timer);
        tables.disarm(timer);
        assert!(tables.armed.is_empty());
        tables.arm(timer);
        assert_eq!(tables.armed, [timer]);
    });
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0_u8..3, 0..3)
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let value = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..2));
    proptest::collection::vec((keys(), value), 0..16)
}

proptest! {
    #[test]
    fn layered_reads_equal_reads_of_one_map(
        stored in changes(), changed in changes(), from in keys(), to in keys(), down: bool, limit in 1_usize..6,
    ) {
        let mut model = Rows::new();
        for (key, value) in stored.iter().chain(&changed) {
            match value {
                Some(value) => model.insert(key.clone(), value.clone()),
                None => model.remove(key),
            };
        }
        let inside = model.iter().filter(|(key, _)| **key >= from && **key < to);
        let mut wanted: Vec<_> = inside.map(|(key, value)| (key.clone(), value.clone())).collect();
        if down {
            wanted.reverse();
        }
        wanted.truncate(limit);
        let order = if down { Order::Descending } else { Order::Ascending };
        let (rows, single) = with_tables(&stored, |tables| {
            changed.iter().for_each(|one| change(tables, one));
            (scanned(tables, &from, &to, order, limit), tables.get(TABLE, &from).unwrap())
        });
        prop_assert_eq!(rows, wanted);
        prop_assert_eq!(single.as_ref(), model.get(&from));
    }

    #[test]
    fn an_operation_leaves_exactly_the_state_that_it_read(stored in changes(), changed in changes()) {
        let mut batch = batch_over(&stored);
        let moment = Moment { time: Timestamp::ZERO.into(), random: [0; 10] };
        let mut tables = Tables::new(&mut batch, moment, Ulid::default());
        changed.iter().for_each(|one| change(&mut tables, one));
        let before = scanned(&tables, b"", &[9], Order::Ascending, usize::MAX);
        tables.join(Vec::new()).unwrap();
        let after = scanned(&Tables::new(&mut batch, moment, Ulid::default()), b"", &[9], Order::Ascending, usize::MAX);
        prop_assert_eq!(before, after);
    }
}
