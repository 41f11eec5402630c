//! The canary test: bodies must be unrecoverable after their deadline, even after repeated power cuts during their
//! destruction. The raw disk does not contain a body, or its compressed or sealed form, and a copy of the segments
//! finds no key that opens it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::process::{Clock, DIRECTORY, OtherWriters, Process, Waiting};
use super::start::{Setup, make};
use super::work::timers;
use crate::base::entropy::{Entropy, SeededEntropy};
use crate::base::id::{AccountId, MessageId};
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::store::content::{InJournal, Place, SealedContent, compression};
use crate::store::disk::simulated::{Fault, FsyncMode, Loss, SimulatedDisk};
use crate::store::disk::{Disk, FileSystem};
use crate::store::limits::Limits;
use crate::store::op::accept::Accept;
use crate::store::op::sweep::ContentDestroyed;
use crate::store::read::Read;
use crate::store::row::message::MessageRow;
use crate::store::schema;
use crate::store::testing::message_row;
use crate::store::timer::TimerKind;

const CANARIES: usize = 200;
/// Number of points in the sweep at which power is cut.
const POINTS: u64 = 50;
/// Size of the patterns searched for, in bytes.
const PIECE: usize = size_of::<u64>();

/// Planted content, and a thief's copy from before its deadline.
struct Planted {
    disk: SimulatedDisk,
    bodies: BTreeMap<MessageId, (Place, Vec<u8>)>,
    /// Files below `content`, including the keys.
    stolen: BTreeMap<PathBuf, Vec<u8>>,
    master: MasterKey,
    /// End of the last bucket.
    over: Timestamp,
}

/// Writes two hundred canaries, in three buckets of two segments each.
fn plant() -> Planted {
    let disk = SimulatedDisk::new(1, FsyncMode::Honored);
    let setup = make(&disk, CANARIES);
    let clock = Clock::new(setup.now);
    let rng = SeededEntropy::new(7);
    let mut bodies = BTreeMap::new();
    let mut over = setup.now;
    for start in 0..2 {
        let limits = Limits { carried_bytes_max: [200, 16 << 10][start], ..Limits::default() };
        let seed = 10 + start as u64;
        let mut process = Process::start_with(&disk, &clock, seed, limits, OtherWriters::Announced).unwrap();
        let mut accepting = Vec::new();
        for number in 0..CANARIES / 2 {
            let mut noise = [0; 24];
            rng.fill(&mut noise);
            let body = format!("canary-{}\r\n", hex::encode(noise)).repeat(1 + number % 5).into_bytes();
            let hour_ms = 3_600_000 * (1 + number as u64 % 3);
            let bucket = Timestamp::from_millis(setup.now.as_millis() / 3_600_000 * 3_600_000 + hour_ms);
            over = over.max(bucket);
            let (id, mut waiting) = accept(&process, &setup, bucket, &body);
            assert!(waiting.poll().is_none());
            accepting.push((id, body, waiting));
        }
        process.settle();
        let snapshot = process.store.snapshot().unwrap();
        for (id, body, mut waiting) in accepting {
            assert_eq!(waiting.poll(), Some(true));
            let row: MessageRow = snapshot.row(&schema::message(setup.account, id)).unwrap().unwrap();
            bodies.insert(id, (row.place, body));
        }
        drop(snapshot);
        drop(process);
        disk.restart();
    }
    let master = disk.read(&Path::new(DIRECTORY).join("master.key")).unwrap();
    let master = MasterKey::new(master.as_slice().try_into().unwrap());
    let stolen = content_of(&disk);
    Planted { disk, bodies, stolen, master, over }
}

pub(super) fn accept(process: &Process, setup: &Setup, bucket: Timestamp, body: &[u8]) -> (MessageId, Waiting<bool>) {
    let mut message = message_row(setup.domain, "b@example.net", setup.now);
    message.content_expires_at = bucket;
    accept_row(process, setup.account, bucket, body, message)
}

/// Submits `message`, whose body is in `bucket`.
pub(super) fn accept_row(
    process: &Process,
    account: AccountId,
    bucket: Timestamp,
    body: &[u8],
    mut message: MessageRow,
) -> (MessageId, Waiting<bool>) {
    let store = process.store.clone();
    let id = store.reserve_message_id(message.created_at);
    let sealed = store.content().seal(bucket, id, body.to_vec());
    let waiting = Waiting::new(async move {
        let accept = move |place| {
            message.place = place;
            Accept {
                account,
                key_stream: None,
                id,
                message,
                answer: b"{}".to_vec(),
                idempotency: None,
                stored_bytes_max: 0,
            }
        };
        store.commit_with_body(store.announce(), sealed, accept).await.is_ok()
    });
    (id, waiting)
}

/// Returns the files below `content` as the running system sees them.
pub(super) fn content_of(disk: &SimulatedDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![Path::new(DIRECTORY).join("content")];
    while let Some(directory) = directories.pop() {
        for entry in disk.list(&directory).unwrap() {
            let path = directory.join(entry.name);
            if entry.length.is_some() {
                found.insert(path.strip_prefix(DIRECTORY).unwrap().to_owned(), disk.read(&path).unwrap());
            } else {
                directories.push(path);
            }
        }
    }
    found
}

/// Starts a process, and destroys due buckets as the engine does. Returns whether it completed.
fn sweep(disk: &SimulatedDisk, clock: &Clock, seed: u64) -> bool {
    let started = Process::start_with(disk, clock, seed, Limits::default(), OtherWriters::Announced);
    started.is_ok_and(|mut process| sweep_in(&mut process, clock))
}

/// Destroys due buckets in a running process. Returns whether it completed.
pub(super) fn sweep_in(process: &mut Process, clock: &Clock) -> bool {
    let (store, now) = (process.store.clone(), clock.now());
    let Ok(over) = store.content().buckets_until(now) else { return false };
    if over.into_iter().any(|bucket| store.content().destroy(bucket).is_err()) {
        return false;
    }
    for timer in timers(&store).into_iter().filter(|timer| timer.kind == TimerKind::Content && timer.due <= now) {
        let store = store.clone();
        let mut waiting =
            Waiting::new(async move { store.commit(ContentDestroyed { bucket: timer.due }).await.is_ok() });
        assert!(waiting.poll().is_none());
        process.settle();
        if waiting.poll() != Some(true) {
            return false;
        }
    }
    true
}

/// Eight-byte patterns that must not be found.
pub(super) struct Pieces {
    /// A filter of a million digests, which skips most data quickly.
    digests: Vec<bool>,
    all: HashSet<u64>,
}

impl Default for Pieces {
    fn default() -> Self {
        Self { digests: vec![false; 1 << 20], all: HashSet::new() }
    }
}

fn digest(piece: u64) -> usize {
    usize::try_from(piece.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44).unwrap()
}

impl Pieces {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        for window in bytes.windows(PIECE) {
            // Padding is not searched for.
            if window.iter().collect::<BTreeSet<_>>().len() > PIECE / 2 {
                let piece = u64::from_ne_bytes(window.try_into().unwrap());
                self.digests[digest(piece)] = true;
                self.all.insert(piece);
            }
        }
    }

    /// Returns the files of the raw disk that contain a pattern.
    pub(super) fn found_on(&self, disk: &SimulatedDisk) -> Vec<PathBuf> {
        disk.everything().into_iter().filter(|(_, bytes)| self.are_in(bytes)).map(|(path, _)| path).collect()
    }

    /// Returns whether `bytes` contain a pattern. Data twice as long as a pattern contains one at a multiple of eight.
    fn are_in(&self, bytes: &[u8]) -> bool {
        let blocks = bytes.chunks_exact(PIECE).map(|block| u64::from_ne_bytes(block.try_into().unwrap()));
        blocks.filter(|block| *block != 0).any(|block| self.digests[digest(block)] && self.all.contains(&block))
    }
}

/// Returns whether a file is the key file or its mirror.
fn is_keys(path: &Path) -> bool {
    path.ends_with("content/keys") || path.ends_with("content/keys.mirror")
}

impl Planted {
    /// Returns the patterns that must not be found: the canaries, their compressed form, and all content of the
    /// segments and of their key slots.
    fn pieces(&self) -> Pieces {
        let mut pieces = Pieces::default();
        for (_, body) in self.bodies.values() {
            pieces.add(body);
            // All frames begin with the same bytes, which are not searched for.
            pieces.add(&compression::compress(body)[12..]);
        }
        for (path, bytes) in &self.stolen {
            if is_keys(path) {
                bytes.chunks(128).for_each(|slot| pieces.add(&slot[24..80]));
            } else {
                pieces.add(bytes);
            }
        }
        pieces
    }

    /// Returns the number of bodies that the thief can open with this key file.
    fn opened_with(&self, keys: &[u8]) -> usize {
        let directory = tempfile::tempdir().unwrap();
        for (path, bytes) in self.stolen.iter().filter(|(path, _)| !is_keys(path)) {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
        std::fs::write(directory.path().join("content/keys"), keys).unwrap();
        let sealed =
            SealedContent::open(Arc::new(FileSystem), directory.path(), &self.master, InJournal::default()).unwrap();
        let opened = self
            .bodies
            .iter()
            .filter(|(id, (place, body))| sealed.read(*place, **id).is_ok_and(|found| found == *body));
        opened.count()
    }

    /// Returns all possible states of the key file and its mirror on the disk.
    fn keys_on(&self, disk: &SimulatedDisk) -> BTreeSet<Vec<u8>> {
        disk.everything().into_iter().filter(|(path, _)| is_keys(path)).map(|(_, bytes)| bytes).collect()
    }

    /// Asserts that the raw disk and the thief's copy reveal no canary.
    fn is_gone_from(&self, disk: &SimulatedDisk, pieces: &Pieces, when: &str) {
        assert_eq!(pieces.found_on(disk), Vec::<PathBuf>::new(), "{when}");
        for keys in self.keys_on(disk) {
            assert_eq!(self.opened_with(&keys), 0, "{when}");
        }
    }
}

#[test]
fn no_canary_or_key_survives_power_cuts_during_the_sweep() {
    let planted = plant();
    let pieces = planted.pieces();
    assert_eq!(planted.bodies.len(), CANARIES);
    assert!(!pieces.found_on(&planted.disk).is_empty(), "the search finds the canaries");
    let before: Vec<_> = planted.keys_on(&planted.disk).iter().map(|keys| planted.opened_with(keys)).collect();
    assert_eq!(before, [CANARIES], "the thief's copy opens while the keys exist");

    let clock = Clock::new(planted.over);
    let whole = planted.disk.copy(2, FsyncMode::Honored);
    assert!(sweep(&whole, &clock, 20));
    planted.is_gone_from(&whole, &pieces, "after an undisturbed sweep");
    let losses = [Loss::Some, Loss::Everything, Loss::Nothing];
    for point in 0..POINTS {
        let disk = planted.disk.copy(100 + point, FsyncMode::Honored);
        let at = point * whole.operations() / POINTS;
        let loss = losses[usize::try_from(point % 3).unwrap()];
        disk.plan(at, Fault::Off(loss));
        sweep(&disk, &clock, 30);
        assert!(disk.is_off(), "power was cut at operation {at}");
        disk.restart();
        assert!(sweep(&disk, &clock, 40));
        planted.is_gone_from(&disk, &pieces, &format!("after {loss:?} was lost at operation {at}"));
        disk.turn_off(Loss::Some);
        disk.restart();
        planted.is_gone_from(&disk, &pieces, &format!("after operation {at} and one more loss"));
    }
}

#[test]
fn a_repeatedly_interrupted_sweep_completes_and_keeps_unexpired_content() {
    let planted = plant();
    let pieces = planted.pieces();
    let (disk, clock) =
        (planted.disk.copy(3, FsyncMode::Honored), Clock::new(planted.over - Duration::from_secs(3600)));
    let is_last = |place: &Place| place.bucket == planted.over;
    let kept = planted.bodies.values().filter(|(place, _)| is_last(place)).count();
    for at in 0_u64.. {
        disk.plan(at, Fault::Off(Loss::Some));
        let is_over = sweep(&disk, &clock, at);
        disk.restart();
        if is_over {
            break;
        }
    }
    for keys in planted.keys_on(&disk) {
        assert_eq!(planted.opened_with(&keys), kept, "only the last bucket's keys");
    }
    clock.set(planted.over);
    assert!(sweep(&disk, &clock, 1000));
    planted.is_gone_from(&disk, &pieces, "after the last bucket's end");
}
