//! Tests of the backup format: every part is read back as written, and anything else is refused.

use super::*;
use crate::base::time::Timestamp;

fn head() -> Head {
    Head {
        store_format: 1,
        taken_at: Timestamp::from_millis(1_700_000_000_000),
        program: "0.1.0".to_owned(),
        has_content: true,
        has_master_key: true,
        rows: 3000,
    }
}

fn written(count: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::begin(&mut bytes, &head()).unwrap();
    writer.master_key(&[7; 32]).unwrap();
    for number in 0..count {
        let table = if number < count / 2 { "messages" } else { "timers" };
        writer.row(table, &number.to_be_bytes(), &[5; 300]).unwrap();
    }
    writer.content_ahead(6).unwrap();
    writer.segment(Timestamp::from_millis(3_600_000), 2, 0, b"abcd").unwrap();
    writer.segment(Timestamp::from_millis(3_600_000), 2, 4, b"ef").unwrap();
    writer.keys(&[1; 128]).unwrap();
    writer.file("virtual-clock", b"now").unwrap();
    let totals = writer.end().unwrap();
    assert_eq!(totals, Totals { rows: count.into(), segments: 1, content_bytes: 6 });
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<Part>, ArchiveError> {
    let (mut reader, found) = Reader::open(bytes)?;
    assert_eq!(found, head());
    let mut parts = Vec::new();
    while let Some(part) = reader.next_part()? {
        parts.push(part);
    }
    assert_eq!(reader.byte_count(), bytes.len() as u64);
    Ok(parts)
}

#[test]
fn reads_back_every_part_as_written() {
    let parts = read(&written(3000)).unwrap();
    let mut rows = Vec::new();
    let mut others = Vec::new();
    for part in parts {
        match part {
            Part::Rows { table, rows: more } => rows.extend(more.into_iter().map(|(key, _)| (table.clone(), key))),
            other => others.push(format!("{other:?}")),
        }
    }
    assert_eq!(rows.len(), 3000);
    assert_eq!(rows[1500], ("timers".to_owned(), 1500_u32.to_be_bytes().to_vec()));
    assert_eq!(others.len(), 6, "{others:?}");
    assert!(others[5].contains("virtual-clock"), "{others:?}");
}

#[test]
fn a_backup_truncated_at_any_byte_is_incomplete() {
    let bytes = written(20);
    for length in 0..bytes.len() {
        let Err(fault) = read(&bytes[..length]) else { panic!("{length} bytes of {} pass", bytes.len()) };
        assert!(matches!(fault, ArchiveError::Truncated { .. }), "{length}: {fault}");
    }
}

#[test]
fn any_flipped_bit_is_detected() {
    let bytes = written(20);
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1 << (place % 8);
        assert!(read(&damaged).is_err(), "byte {place}");
    }
}

#[test]
fn detects_missing_repeated_and_trailing_parts() {
    let bytes = written(20);
    let (mut reader, _) = Reader::open(&bytes[..]).unwrap();
    let from = reader.byte_count() as usize;
    reader.next_part().unwrap();
    let to = reader.byte_count() as usize;
    let without = [&bytes[..from], &bytes[to..]].concat();
    let doubled = [&bytes[..to], &bytes[from..]].concat();
    let longer = [&bytes[..], b"\n"].concat();
    for changed in [without, doubled, longer] {
        assert!(matches!(read(&changed), Err(ArchiveError::Damaged { .. })));
    }
}

#[test]
fn rejects_other_files_and_names_a_later_format() {
    for strange in [&b"SQLite format 3\0 and so on"[..], b"postrider backup x\n", b"postrider backup \n", b"p0"] {
        assert!(matches!(Reader::open(strange), Err(ArchiveError::Strange)), "{strange:?}");
    }
    assert!(matches!(Reader::open(&b"postrider backup 2\n"[..]), Err(ArchiveError::Newer { found: 2 })));
    assert!(matches!(Reader::open(&b"postrider backup 4000000000\n"[..]), Err(ArchiveError::Strange)));
}

#[test]
fn an_impossible_length_allocates_no_memory_for_it() {
    let mut bytes = written(20);
    let length = MAGIC.len() + 2 + 1;
    bytes[length..length + 4].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(matches!(Reader::open(&bytes[..]), Err(ArchiveError::Damaged { .. })));
}
