//! Tests of the simulated disk: it loses unsynced data and nothing else.

use super::node::SECTOR;
use super::*;

fn disk(seed: u64) -> SimulatedDisk {
    SimulatedDisk::new(seed, FsyncMode::Honored)
}

fn write(disk: &SimulatedDisk, path: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open(Path::new(path), OpenMode::Kept).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn after(disk: &SimulatedDisk, loss: Loss) -> Option<Vec<u8>> {
    disk.turn_off(loss);
    disk.restart();
    disk.read(Path::new("/file")).ok()
}

#[test]
fn synced_data_survives_a_power_loss_and_unsynced_data_may_not() {
    let make = || {
        let disk = disk(1);
        let file = write(&disk, "/file", b"durable");
        file.sync_data().unwrap();
        disk.sync_directory(Path::new("/")).unwrap();
        file.write_all_at(b"unsynced", 0).unwrap();
        disk
    };
    assert_eq!(after(&make(), Loss::Everything).unwrap(), b"durable");
    assert_eq!(after(&make(), Loss::Nothing).unwrap(), b"unsynced");
}

#[test]
fn a_name_is_durable_only_once_its_directory_is_synced() {
    let disk = disk(1);
    write(&disk, "/file", b"bytes").sync_data().unwrap();
    assert_eq!(after(&disk, Loss::Everything), None);
}

#[test]
fn each_lost_sector_has_an_earlier_content_independently() {
    let (mut torn, mut reordered) = (0, 0);
    for seed in 0..200 {
        let disk = disk(seed);
        let file = write(&disk, "/file", &[1; 4 * SECTOR]);
        file.sync_data().unwrap();
        disk.sync_directory(Path::new("/")).unwrap();
        file.write_all_at(&[2; 4 * SECTOR], 0).unwrap();
        file.write_all_at(&[3; SECTOR], 0).unwrap();
        let bytes = after(&disk, Loss::Some).unwrap();
        let sectors: Vec<u8> = bytes.chunks(SECTOR).map(|sector| sector[0]).collect();
        assert!(bytes.chunks(SECTOR).all(|sector| sector.iter().all(|byte| *byte == sector[0])), "{sectors:?}");
        assert!(sectors[1..].iter().all(|byte| [1, 2].contains(byte)), "{sectors:?}");
        torn += usize::from(sectors[1..].contains(&1) && sectors[1..].contains(&2));
        reordered += usize::from(sectors[0] == 3 && sectors[1..].contains(&1));
    }
    assert!(torn > 10 && reordered > 10, "{torn} torn, {reordered} reordered");
}

#[test]
fn a_second_sync_does_not_repair_a_failed_one() {
    let lost = |seed| {
        let disk = disk(seed);
        let file = write(&disk, "/file", b"first");
        disk.sync_directory(Path::new("/")).unwrap();
        disk.plan(0, Fault::Error);
        assert!(file.sync_data().is_err());
        assert_eq!(disk.read(Path::new("/file")).unwrap(), b"first");
        file.sync_data().unwrap();
        after(&disk, Loss::Everything).unwrap() != b"first"
    };
    let losses = (0..50).filter(|seed| lost(*seed)).count();
    assert!((1..50).contains(&losses), "{losses}");
}

#[test]
fn the_page_cache_survives_a_failed_sync_and_the_process_but_not_a_power_loss() {
    let lost = |seed| {
        let disk = disk(seed);
        let file = write(&disk, "/file", b"first");
        disk.sync_directory(Path::new("/")).unwrap();
        disk.plan(0, Fault::Error);
        assert!(file.sync_data().is_err());
        disk.restart();
        assert_eq!(disk.read(Path::new("/file")).unwrap(), b"first", "the next process reads the cache");
        let file = disk.open(Path::new("/file"), OpenMode::Kept).unwrap();
        file.sync_data().unwrap();
        let mut again = Some(b"first");
        if seed.is_multiple_of(2) {
            file.write_all_at(again.take().unwrap(), 0).unwrap();
            file.sync_data().unwrap();
        }
        let is_lost = after(&disk, Loss::Everything).unwrap() != b"first";
        assert!(!is_lost || again.is_some(), "rewritten data is durable");
        is_lost
    };
    assert!((0..100).any(lost));
}

#[test]
fn a_sync_without_space_fails_and_does_not_look_like_a_full_disk() {
    let disk = disk(1);
    let file = write(&disk, "/file", b"bytes");
    disk.plan(0, Fault::FullAtSync);
    file.write_all_at(b"more", 0).unwrap();
    assert_ne!(file.sync_data().unwrap_err().kind(), io::ErrorKind::StorageFull);
    disk.plan(0, Fault::FullAtSync);
    assert_ne!(disk.sync_directory(Path::new("/")).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.failed_syncs(), 2);
}

#[test]
fn a_failed_write_may_be_partly_done() {
    let parts: std::collections::BTreeSet<usize> = (0..100)
        .map(|seed| {
            let disk = disk(seed);
            let file = write(&disk, "/file", &[1; 4 * SECTOR]);
            disk.plan(0, Fault::Error);
            assert!(file.write_all_at(&[2; 4 * SECTOR], 0).is_err());
            disk.read(Path::new("/file")).unwrap().iter().filter(|byte| **byte == 2).count()
        })
        .collect();
    assert!(parts.len() > 2 && parts.iter().all(|part| part % SECTOR == 0), "{parts:?}");
}

#[test]
fn flipped_bits_and_misdirected_writes_are_on_the_disk() {
    let disk = disk(1);
    let file = write(&disk, "/000000.segment", &[0; 2 * SECTOR]);
    file.sync_data().unwrap();
    assert!(disk.rot(|path| path.ends_with("other")).is_none() && !disk.is_damaged());
    assert!(disk.rot(|_| true).is_some() && disk.is_damaged());
    let ones = |bytes: Vec<u8>| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
    assert_eq!(ones(disk.read(Path::new("/000000.segment")).unwrap()), 1);
    disk.plan(0, Fault::Misdirected);
    file.write_all_at(&[2; 9], 0).unwrap();
    let bytes = disk.read(Path::new("/000000.segment")).unwrap();
    assert_eq!(bytes.iter().filter(|byte| **byte == 2).count(), 9);
    assert_ne!(bytes[0], 2, "not at the intended offset");
}

#[test]
fn a_planned_read_fails() {
    let disk = disk(1);
    write(&disk, "/file", b"bytes");
    disk.plan_read_error(1);
    disk.read(Path::new("/file")).unwrap();
    assert!(disk.read(Path::new("/file")).is_err());
    disk.read(Path::new("/file")).unwrap();
}

#[test]
fn faults_occur_at_their_operation_and_a_full_disk_allows_removal() {
    let disk = disk(1);
    let file = write(&disk, "/file", b"bytes");
    disk.plan(1, Fault::Full(1));
    file.write_all_at(b"room", 0).unwrap();
    for _ in 0..2 {
        assert_eq!(file.write_all_at(b"none", 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
    file.write_all_at(b"again", 0).unwrap();
    disk.plan(0, Fault::Full(9));
    assert!(file.set_length(1).is_err());
    file.sync_data().unwrap();
    disk.remove_file(Path::new("/file")).unwrap();
}

#[test]
fn a_machine_without_power_fails_every_call_and_closes_open_files() {
    let disk = disk(1);
    let file = write(&disk, "/file", b"bytes");
    disk.plan(0, Fault::Off(Loss::Nothing));
    assert!(file.sync_data().is_err() && disk.is_off());
    assert!(file.length().is_err() && disk.open(Path::new("/file"), OpenMode::Kept).is_err());
    disk.restart();
    assert!(file.length().is_err());
    assert_eq!(disk.read(Path::new("/file")).unwrap(), b"bytes");
}

#[test]
fn a_removed_directory_returns_if_its_parent_was_not_synced() {
    let disk = disk(1);
    disk.create_directory(Path::new("/deep/inner")).unwrap();
    write(&disk, "/deep/inner/file", b"bytes").sync_data().unwrap();
    for directory in ["/", "/deep", "/deep/inner"] {
        disk.sync_directory(Path::new(directory)).unwrap();
    }
    disk.remove_directory(Path::new("/deep/inner")).unwrap();
    assert!(!disk.exists(Path::new("/deep/inner")));
    let left = disk.everything();
    assert!(left.iter().any(|(_, bytes)| bytes == b"bytes"), "it could still be read from the disk");
    disk.turn_off(Loss::Everything);
    disk.restart();
    assert_eq!(disk.read(Path::new("/deep/inner/file")).unwrap(), b"bytes");
    disk.remove_directory(Path::new("/deep/inner")).unwrap();
    disk.sync_directory(Path::new("/deep")).unwrap();
    assert_eq!(disk.everything(), []);
}
