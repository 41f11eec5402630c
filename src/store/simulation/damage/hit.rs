//! The damage of one run: the file and the bytes.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::store::disk::Disk;
use crate::store::disk::simulated::SimulatedDisk;
use crate::store::disk::simulated::rng::Rng;
use crate::store::simulation::canaries::content_of;
use crate::store::simulation::process::DIRECTORY;

/// Unit that a disk writes atomically.
const SECTOR: usize = 512;
/// Size of a key slot, in bytes.
const SLOT: usize = 128;

/// The damaged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Journal,
    Keys,
    Mirror,
    Database,
    Segment,
}

impl Target {
    const ALL: [Self; 5] = [Self::Journal, Self::Keys, Self::Mirror, Self::Database, Self::Segment];

    /// Returns the file's path, if the file exists.
    fn path(self, disk: &SimulatedDisk, rng: &mut Rng) -> Option<PathBuf> {
        let directory = Path::new(DIRECTORY);
        Some(match self {
            Self::Journal => directory.join("journal"),
            Self::Keys => directory.join("content/keys"),
            Self::Mirror => directory.join("content/keys.mirror"),
            Self::Database => directory.join("postrider.redb"),
            Self::Segment => {
                let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "segment");
                let segments: Vec<_> = content_of(disk).into_keys().filter(is_segment).collect();
                if segments.is_empty() {
                    return None;
                }
                directory.join(&segments[rng.index(segments.len())])
            }
        })
    }
}

/// The damage of one run.
#[derive(Debug)]
pub(super) struct Hit {
    pub(super) target: Target,
    pub(super) path: PathBuf,
    /// The bytes that may have changed.
    pub(super) range: Range<usize>,
    /// Whether a crash could leave a key file in this state: each changed slot is free, or was free before.
    pub(super) is_like_a_crash: bool,
}

impl Hit {
    /// Damages one file, if it contains anything to damage. Flips a bit, lets a sector lose its write, or gives it the
    /// content of another write.
    pub(super) fn draw(disk: &SimulatedDisk, rng: &mut Rng) -> Option<Self> {
        let target = Target::ALL[rng.index(Target::ALL.len())];
        let path = target.path(disk, rng)?;
        let bytes = disk.read(&path).unwrap();
        let length = match target {
            Target::Journal => disk.last_write(&path)?.range.end.min(bytes.len()),
            Target::Keys | Target::Mirror | Target::Database | Target::Segment => bytes.len(),
        };
        let sector = |at: usize| at..(at + SECTOR).min(bytes.len());
        let is_used = |at: &usize| bytes[sector(*at)].iter().any(|byte| *byte != 0);
        let used: Vec<usize> = (0..length).step_by(SECTOR).filter(is_used).collect();
        if used.is_empty() {
            return None;
        }
        let at = used[rng.index(used.len())];
        let mut damaged = bytes[sector(at)].to_vec();
        let range = match rng.below(4) {
            0..2 => {
                let byte = rng.index((length - at).min(damaged.len()));
                damaged[byte] ^= 1 << rng.below(8);
                at + byte..at + byte + 1
            }
            2 => {
                damaged.fill(0);
                sector(at)
            }
            _ => {
                let other = &bytes[sector(used[rng.index(used.len())])];
                let common = other.len().min(damaged.len());
                damaged[..common].copy_from_slice(&other[..common]);
                sector(at)
            }
        };
        if damaged == bytes[sector(at)] {
            return None;
        }
        let is_blank = |slot: &[u8]| slot.iter().all(|byte| *byte == 0);
        let mut slots = bytes[sector(at)].chunks(SLOT).zip(damaged.chunks(SLOT));
        let is_like_a_crash = slots.all(|(before, after)| before == after || is_blank(before) || is_blank(after));
        disk.damage(&path, at, &damaged);
        Some(Self { target, path, range, is_like_a_crash })
    }
}
