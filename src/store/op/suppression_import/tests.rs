//! Tests of imports: crashes, and other operations during an import.

use super::*;
use crate::domain::account::QuotaLimits;
use crate::store::op::admission::Refusal;
use crate::store::op::suppression::{IMPORTED_MAX, Name, Suppress, UnfinishedImport, Unsuppress, find, is_suppressed};
use crate::store::row::suppression::SuppressionReason;
use crate::store::testing::TestStore;

fn listed(number: usize) -> Suppression {
    Suppression::of(format!("a{number}@example.net").parse().unwrap(), SuppressionReason::Import)
}

fn batch(account: AccountId, timer: Timer, number: usize) -> ImportBatch {
    let suppressions = (number * IMPORTED_MAX..(number + 1) * IMPORTED_MAX).map(listed).collect();
    ImportBatch { account, import: timer.id, suppressions }
}

fn is_listed(test: &TestStore, account: AccountId, number: usize) -> bool {
    is_suppressed(&test.snapshot(), account, &listed(number).address).unwrap()
}

fn rows(test: &TestStore) -> (usize, usize, usize) {
    let count = |table| test.count(table, &[]);
    (count(Table::Suppressions), count(Table::SuppressionsById), count(Table::SuppressionImports))
}

#[test]
fn an_import_takes_effect_only_as_a_whole_at_its_end() {
    let test = TestStore::new();
    let sender = test.sender();
    let account = sender.account;
    let timer = test.done(BeginImport { account });
    assert_eq!(test.done(batch(account, timer, 0)), IMPORTED_MAX);
    assert_eq!(test.done(batch(account, timer, 0)), 0, "the list names them again");
    assert!(!is_listed(&test, account, 0));
    sender.accept("a0@example.net");
    let unsuppress = Unsuppress { account, name: Name::Address(listed(0).address) };
    assert!(matches!(test.commit(unsuppress), Err(OpError::Refused(_))));
    assert!(matches!(test.commit(BeginImport { account }), Err(OpError::Refused(ImportUnfinished))));
    test.done(FinishImport { account, import: timer.id, count: IMPORTED_MAX });
    assert!((0..IMPORTED_MAX).all(|number| is_listed(&test, account, number)));
    assert!(matches!(test.answer_of(sender.message("a0@example.net")), Err(Refusal::RecipientSuppressed)));
    test.done(EndImport { timer });
    assert_eq!(rows(&test), (IMPORTED_MAX, IMPORTED_MAX, 0));
    assert!(test.timers(TimerKind::SuppressionImport).is_empty() && is_listed(&test, account, 1));
    test.done(BeginImport { account });
    assert!(is_listed(&test, account, 1), "another import does not hide the first one's rows");
}

#[test]
fn a_crash_between_two_batches_undoes_the_import() {
    let mut test = TestStore::new();
    let account = test.account(QuotaLimits::default());
    let kept = Suppression { reason: SuppressionReason::Manual, ..listed(1) };
    test.done(Suppress { account, suppression: kept, waiting: vec![] });
    let timer = test.done(BeginImport { account });
    let written: usize = (0..2).map(|number| test.done(batch(account, timer, number))).sum();
    assert_eq!(written, 2 * IMPORTED_MAX - 1);
    test.reopen();
    let shown = |test: &TestStore| (0..2 * IMPORTED_MAX).filter(|number| is_listed(test, account, *number)).count();
    assert_eq!(shown(&test), 1);
    assert_eq!(test.timers(TimerKind::SuppressionImport), [timer], "it removes the rows");
    let mut slices = 1;
    while !test.done(UndoImport { timer }) {
        assert_eq!(shown(&test), 1);
        slices += 1;
    }
    assert_eq!((slices, rows(&test)), (2, (1, 1, 0)));
    assert!(test.timers(TimerKind::SuppressionImport).is_empty());
    test.done(BeginImport { account });
}

#[test]
fn mail_flows_between_batches_and_a_manual_suppression_outlives_the_import() {
    let test = TestStore::new();
    let (sender, account) = (test.sender(), test.account(QuotaLimits::default()));
    let timer = test.done(BeginImport { account });
    test.done(batch(account, timer, 0));
    sender.accept("a0@example.net");
    let by_hand = Suppression { reason: SuppressionReason::Manual, ..listed(7) };
    assert!(test.done(Suppress { account, suppression: by_hand, waiting: vec![] }).is_new);
    assert!(is_listed(&test, account, 7) && !is_listed(&test, account, 8));
    assert_eq!(rows(&test), (IMPORTED_MAX, IMPORTED_MAX, 1), "the hidden row was replaced");
    test.done(batch(account, timer, 1));
    while !test.done(UndoImport { timer }) {}
    let key = schema::named(account, b"a7@example.net");
    assert_eq!(find(&test.snapshot(), account, &key).unwrap().unwrap().reason, SuppressionReason::Manual);
    assert_eq!(rows(&test), (1, 1, 0));
}

#[test]
fn a_batch_of_an_ended_import_writes_nothing() {
    let test = TestStore::new();
    let account = test.account(QuotaLimits::default());
    let timer = test.done(BeginImport { account });
    while !test.done(UndoImport { timer }) {}
    assert!(matches!(test.commit(batch(account, timer, 0)), Err(OpError::Failed(error)) if error.is_of_row()));
    let second = test.done(BeginImport { account });
    assert!(test.commit(batch(account, timer, 0)).is_err());
    assert!(test.commit(FinishImport { account, import: timer.id, count: 0 }).is_err());
    test.done(EndImport { timer });
    assert_eq!((rows(&test), test.timers(TimerKind::SuppressionImport)), ((0, 0, 1), vec![second]));
    let hides = |row: SuppressionRow| UnfinishedImport::of(&test.snapshot(), account).unwrap().hides(&row);
    test.done(batch(account, second, 0));
    assert!(hides(test.row(&schema::named(account, b"a0@example.net"))));
}
