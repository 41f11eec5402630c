//! Tests with flipped bits all over the database file. Nothing panics, and a check never reports a store as sound if a
//! start fails on it or one of its rows can't be read.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use crate::base::entropy::{Entropy, SeededEntropy};
use crate::store::check::{KeyPlace, check};
use crate::store::op::settle_transfer::TransferEnd;
use crate::store::open::OnJournalDamage;
use crate::store::read::{Order, Read, after_prefix};
use crate::store::schema::Table;
use crate::store::testing::{START, TestStore};

/// Number of flips for each store. `POSTRIDER_FLIPS` sets another number.
const FLIPS: usize = 60;
const FILES: [&str; 3] = ["postrider.redb", "journal", "master.key"];
/// Size of a page in bytes.
const PAGE: usize = 4096;

/// Returns the files of two stores with rows in many tables: a closed one and a killed one.
fn stores() -> [Vec<Option<Vec<u8>>>; 2] {
    let mut test = TestStore::new();
    let sender = test.sender();
    test.endpoint(sender.account, None);
    for n in 0..40 {
        let message = sender.accept(&format!("a{n}@example.net"));
        if n % 3 == 0 {
            sender.settle(message, TransferEnd::Delivered);
        }
    }
    let files = |test: &TestStore| FILES.map(|file| fs::read(test.directory().join(file)).ok()).to_vec();
    let killed = files(&test);
    test.close();
    [files(&test), killed]
}

fn write(files: &[Option<Vec<u8>>], directory: &Path) {
    for (name, bytes) in FILES.iter().zip(files) {
        if let Some(bytes) = bytes {
            fs::write(directory.join(name), bytes).unwrap();
        }
    }
}

/// Writes the files with one flipped bit in a used page of the database.
fn flip(files: &[Option<Vec<u8>>], directory: &Path, entropy: &SeededEntropy) -> usize {
    write(files, directory);
    let mut database = files[0].clone().unwrap();
    let in_use: Vec<_> = database
        .chunks(PAGE)
        .enumerate()
        .filter(|(_, page)| page.iter().any(|byte| *byte != 0))
        .map(|(n, _)| n)
        .collect();
    let mut drawn = [0; 12];
    entropy.fill(&mut drawn);
    let [page, byte, bit] = [0, 4, 8].map(|at| u32::from_le_bytes(drawn[at..at + 4].try_into().unwrap()) as usize);
    let at = in_use[page % in_use.len()] * PAGE + byte % PAGE;
    database[at] ^= 1 << (bit % 8);
    fs::write(directory.join(FILES[0]), database).unwrap();
    at
}

/// Returns the rows of the store in these files: table, key and value.
fn rows(files: &[Option<Vec<u8>>]) -> Vec<(Table, Vec<u8>, Vec<u8>)> {
    let directory = tempfile::tempdir().unwrap();
    write(files, directory.path());
    let test = TestStore::try_in_directory(directory, OnJournalDamage::Refuse).ok().unwrap();
    let mut rows = Vec::new();
    for table in Table::ALL {
        let each = &mut |key: &[u8], value: &[u8]| {
            rows.push((*table, key.to_vec(), value.to_vec()));
            Ok(ControlFlow::Continue(()))
        };
        test.snapshot().scan(*table, &[], &after_prefix(&[]), Order::Ascending, each).unwrap();
    }
    rows
}

/// Opens the store, reads everything in it, and closes it. Returns whether all of that worked.
fn serves(directory: tempfile::TempDir) -> bool {
    let Ok(mut test) = TestStore::try_in_directory(directory, OnJournalDamage::Refuse) else { return false };
    let snapshot = test.snapshot();
    let mut is_whole = true;
    for table in Table::ALL {
        let each = &mut |_: &[u8], _: &[u8]| Ok(ControlFlow::Continue(()));
        is_whole &= snapshot.scan(*table, &[], &after_prefix(&[]), Order::Ascending, each).is_ok();
    }
    drop(snapshot);
    test.close();
    is_whole
}

#[test]
fn a_flipped_bit_causes_no_panic_and_no_false_clean_check() {
    let flips = std::env::var("POSTRIDER_FLIPS").ok().and_then(|flips| flips.parse().ok()).unwrap_or(FLIPS);
    let (mut broken, mut found) = (0, 0);
    for (number, files) in stores().iter().enumerate() {
        let entropy = SeededEntropy::new(number as u64);
        for _ in 0..flips {
            let directory = tempfile::tempdir().unwrap();
            let at = flip(files, directory.path(), &entropy);
            let report = check(directory.path(), START, KeyPlace::Apart, &mut |_| {});
            let holds = report.as_ref().is_ok_and(|report| report.failed == 0);
            let serves = serves(directory);
            assert!(serves || !holds, "store {number}, byte {at}: the check passes, but the store does not work");
            (broken, found) = (broken + usize::from(!serves), found + usize::from(!holds));
        }
    }
    assert!(broken > 0 && found >= broken, "{broken} broken, {found} found");
}

#[test]
fn a_row_hidden_by_a_flipped_bit_never_counts_as_absent() {
    let flips = std::env::var("POSTRIDER_FLIPS").ok().and_then(|flips| flips.parse().ok()).unwrap_or(FLIPS);
    let [closed, _] = stores();
    let truth = rows(&closed);
    let entropy = SeededEntropy::new(7);
    let mut failed = 0;
    for _ in 0..flips {
        let directory = tempfile::tempdir().unwrap();
        let at = flip(&closed, directory.path(), &entropy);
        let Ok(test) = TestStore::try_in_directory(directory, OnJournalDamage::Refuse) else { continue };
        let snapshot = test.snapshot();
        for (table, key, value) in &truth {
            match snapshot.get(*table, key) {
                Ok(found) => assert_eq!(found.as_ref(), Some(value), "byte {at}, {table:?}"),
                Err(_) => failed += 1,
            }
        }
    }
    assert!(failed > 0, "no flip hit a row");
}

#[test]
fn a_flipped_bit_in_a_key_never_hides_its_row() {
    let [closed, _] = stores();
    let (table, key, _) = rows(&closed).into_iter().filter(|(table, ..)| *table == Table::Messages).nth(20).unwrap();
    let database = closed[0].clone().unwrap();
    // Pages of earlier commits may hold the key too, so all of its places are damaged.
    let places: Vec<_> = (0..database.len() - key.len()).filter(|at| database[*at..].starts_with(&key)).collect();
    for bit in (0..key.len() * 8).step_by(5) {
        let mut files = closed.clone();
        let damaged = files[0].as_mut().unwrap();
        places.iter().for_each(|place| damaged[place + bit / 8] ^= 1 << (bit % 8));
        let directory = tempfile::tempdir().unwrap();
        write(&files, directory.path());
        let Ok(test) = TestStore::try_in_directory(directory, OnJournalDamage::Refuse) else { continue };
        assert!(test.snapshot().get(table, &key).is_err(), "bit {bit}");
    }
}
