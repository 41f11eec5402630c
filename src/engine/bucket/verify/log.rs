//! Verification of the log from the oldest base on: no slot is missing, each names its predecessor, and epochs only
//! rise.

use super::base::Bases;
use super::{READS_AT_ONCE, Verification, read_all};
use crate::base::digest::Digest;
use crate::engine::ports::BucketResult;
use crate::store::replica::payload::{self, Assembler};
use crate::store::replica::slot::{self, Link, SlotBody};
use crate::store::replica::{Kind, ObjectName};

/// Maximum size of a slot, in bytes.
const SLOT_BYTES_MAX: u64 = 32 << 20;
/// Maximum number of missing slots reported one by one.
const NAMED_MAX: u64 = 10;

/// The previous slot, as far as it could be read.
#[derive(Default)]
struct PreviousSlot {
    number: u64,
    digest: Option<Digest>,
    epoch: u64,
}

impl Verification<'_> {
    /// Verifies the slots that a start from the oldest base reads.
    pub(super) async fn log(&mut self, bases: &Bases) -> BucketResult<()> {
        let first = bases.slots.keys().next().copied().unwrap_or(1);
        self.missing(first);
        self.missing_of_bases(bases);
        let numbers: Vec<_> = self.inventory.slots.range(first..).map(|(number, _)| *number).collect();
        let (mut before, mut sequence) = (PreviousSlot::default(), Sequences::default());
        for numbers in numbers.chunks(READS_AT_ONCE) {
            let names: Vec<_> = numbers.iter().map(|number| ObjectName::Slot(*number)).collect();
            for (number, bytes) in numbers.iter().zip(read_all(self.bucket, &names).await?) {
                // The garbage collection removed the slot after the list was taken.
                let Some(bytes) = bytes else { continue };
                self.slot(*number, &bytes, &mut before, &mut sequence);
                if bases.slots.get(number).is_some_and(|base| *base != slot::digest(&bytes)) {
                    self.findings.add(ObjectName::Manifest(*number), "names another slot than the one in the log");
                }
            }
        }
        Ok(())
    }

    /// Reports gaps from `first` on. Below `first`, only claims and the slots of bases are kept.
    fn missing(&mut self, first: u64) {
        let mut expected = first;
        let numbers: Vec<_> = self.inventory.slots.range(first..).map(|(number, _)| *number).collect();
        for number in numbers {
            let gap = number.saturating_sub(expected);
            for missing in (expected..number).take(NAMED_MAX as usize) {
                self.findings.add(ObjectName::Slot(missing), "is missing, but later slots exist");
            }
            if gap > NAMED_MAX {
                let problem = format!("is missing, as are {} slots before it", gap - NAMED_MAX - 1);
                self.findings.add(ObjectName::Slot(number - 1), problem);
            }
            expected = number + 1;
        }
    }

    /// Reports slots of bases above the last slot that is there. The manifest was written after its slot.
    fn missing_of_bases(&mut self, bases: &Bases) {
        let last = self.inventory.slots.keys().next_back().copied().unwrap_or_default();
        for slot in bases.slots.keys().filter(|slot| **slot > last) {
            self.findings.add(ObjectName::Slot(*slot), "is missing, and the log ends before it, but a base names it");
        }
    }

    fn slot(&mut self, number: u64, bytes: &[u8], before: &mut PreviousSlot, sequences: &mut Sequences) {
        let name = ObjectName::Slot(number);
        if bytes.len() as u64 > SLOT_BYTES_MAX {
            self.findings.add(&name, format!("has {} bytes, more than a slot may have", bytes.len()));
        }
        let digest = Some(slot::digest(bytes));
        let link = match Link::read(number, bytes) {
            Ok(link) => link,
            Err(error) => {
                self.findings.add(&name, error.to_string());
                // The check of the next slot's link is impossible then.
                *before = PreviousSlot { number, digest: None, ..*before };
                return;
            }
        };
        let follows = before.number + 1 == number && before.number > 0;
        if follows && before.digest.is_some_and(|digest| digest != link.previous) {
            self.findings.add(&name, "does not name the slot before it: one of them was replaced");
        }
        let is_claim = link.head.kind == Kind::Claim;
        let epoch = link.head.epoch;
        if before.number > 0 && (epoch < before.epoch || (is_claim == (epoch == before.epoch))) {
            self.findings.add(&name, format!("is of epoch {epoch}, which does not follow epoch {}", before.epoch));
        }
        if self.depth.deep {
            let problem = match Link::open(number, bytes, &self.sealer) {
                Ok((_, body)) => sequences.read(&body),
                Err(error) => Some(error.to_string()),
            };
            if let Some(problem) = problem {
                self.findings.add(&name, problem);
            }
        }
        *before = PreviousSlot { number, digest, epoch };
    }
}

/// Batch numbers of the log, which must rise.
#[derive(Default)]
struct Sequences {
    assembler: Assembler,
    last: u64,
}

impl Sequences {
    /// Returns the problem of a slot's body, if it has one.
    fn read(&mut self, body: &SlotBody) -> Option<String> {
        let SlotBody::Batches(payload) = body else {
            // A new holder starts with complete batches.
            self.assembler = Assembler::default();
            return None;
        };
        for piece in payload::pieces(payload) {
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) => return Some(error.to_string()),
            };
            if let Err(error) = self.assembler.take(&piece) {
                return Some(error.to_string());
            }
            // Bodies that precede their batch don't have a number.
            if piece.sequence > 0 && piece.is_last() {
                if piece.sequence <= self.last {
                    return Some(format!("has batch {} after batch {}", piece.sequence, self.last));
                }
                self.last = piece.sequence;
            }
        }
        None
    }
}
