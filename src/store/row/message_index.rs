//! One row of the message index: the terms in a block of consecutive messages. It does not say which messages have a
//! term, and it has false positives, so a search then checks the messages.
//!
//! A block's row is a Bloom filter. The index has one row for every few hundred messages, written in the order of their
//! identifiers. A message takes about twenty bytes, and three more for each metadata pair that is unique in the block.
//! No page is written at random places.

use std::collections::HashSet;

use super::message::MessageRow;
use crate::base::id::{MessageId, Ulid};
use crate::domain::address::Address;
use crate::domain::stream::Stream;
use crate::domain::subject_words::{beginning, for_each_beginning};
use crate::machine::transfer::Status;
use crate::store::error::StoreError;
use crate::store::schema::Table;

const VERSION: u8 = 3;
/// The version since which blocks have terms of metadata pairs.
pub const METADATA_SINCE: u8 = 2;
/// The version since which blocks also have terms of metadata values alone.
pub const VALUES_SINCE: u8 = 3;
/// Maximum length of an indexed metadata pair's name and of its value, in bytes.
pub const METADATA_BYTES_MAX: usize = 255;
/// Length of the version and the first message.
const HEAD: usize = 17;
/// Bits for each term; with [`PROBES`] about one block in 300 is a false positive.
const BITS_OF_TERM: usize = 12;
const PROBES: u64 = 8;
/// Maximum length of a filter in bytes. Larger blocks have more false positives.
const BYTES_MAX: usize = 64 * 1024;

/// A search term as a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Term(u64);

impl Term {
    /// Term of the recipient.
    pub fn to(address: &Address) -> Self {
        Self::of(1, &address.match_key())
    }

    /// Term of the sender.
    pub fn from(address: &Address) -> Self {
        Self::of(2, &address.match_key())
    }

    /// Term of a prefix of a word in the subject.
    pub fn word(word: &str) -> Self {
        Self::of(3, beginning(word))
    }

    /// Term of a current or earlier status.
    pub fn status(status: Status) -> Self {
        Self::of(4, status.as_str())
    }

    /// Term of the stream.
    pub fn stream(stream: Stream) -> Self {
        Self::of(5, stream.as_str())
    }

    /// Term of all messages submitted by SMTP.
    pub fn by_smtp() -> Self {
        Self::of(6, "smtp")
    }

    /// Term of a metadata pair. The length separates the name from its value.
    pub fn metadata(name: &str, value: &str) -> Self {
        Self::of(7, &format!("{}:{name}{value}", name.len()))
    }

    /// Term of a metadata value, whatever its name.
    pub fn metadata_value(value: &str) -> Self {
        Self::of(8, value)
    }

    /// Returns the FNV-1a hash with a final mix. The numbers are stored, so they must never change.
    fn of(kind: u8, text: &str) -> Self {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = text.bytes().fold(step(0xcbf2_9ce4_8422_2325, kind), step);
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        Self(hash ^ (hash >> 29))
    }

    /// Returns the term's positions among `bits`.
    fn places(self, bits: usize) -> impl Iterator<Item = usize> {
        let step = self.0.rotate_left(32) | 1;
        (0..PROBES).map(move |probe| {
            let mixed = u128::from(self.0.wrapping_add(step.wrapping_mul(probe)));
            usize::try_from((mixed * bits as u128) >> 64).unwrap_or_default()
        })
    }
}

/// Returns all terms of a message except its statuses.
pub fn terms(row: &MessageRow) -> Vec<Term> {
    let mut terms = vec![Term::to(&row.to), Term::from(&row.from), Term::stream(row.stream)];
    let subject = row.subject.as_deref().unwrap_or_default();
    for_each_beginning(subject, &mut |beginning| terms.push(Term::of(3, beginning)));
    if row.submission.is_some() {
        terms.push(Term::by_smtp());
    }
    let is_indexed = |(name, value): &(&String, &String)| name.len().max(value.len()) <= METADATA_BYTES_MAX;
    let of_pair = |(name, value): (&String, &String)| [Term::metadata(name, value), Term::metadata_value(value)];
    terms.extend(row.metadata.iter().filter(is_indexed).flat_map(of_pair));
    terms
}

/// A block that is being built.
#[derive(Default)]
pub struct Block {
    first: Option<MessageId>,
    terms: HashSet<Term>,
    /// Number of messages in the block.
    pub count: usize,
}

impl Block {
    /// Adds the next message.
    pub fn add(&mut self, id: MessageId, terms: impl IntoIterator<Item = Term>) {
        self.first.get_or_insert(id);
        self.terms.extend(terms);
        self.count += 1;
    }

    /// Returns the row's value.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = (self.terms.len() * BITS_OF_TERM).div_ceil(8).clamp(8, BYTES_MAX);
        let mut value = vec![0; HEAD + bytes];
        value[0] = VERSION;
        value[1..HEAD].copy_from_slice(self.first.unwrap_or_default().as_bytes());
        self.terms.iter().for_each(|term| set(&mut value, *term));
        value
    }
}

fn set(value: &mut [u8], term: Term) {
    let filter = &mut value[HEAD..];
    term.places(filter.len() * 8).for_each(|place| filter[place / 8] |= 1 << (place % 8));
}

/// The stored row of a block.
#[derive(Clone, Copy)]
pub struct IndexedBlock<'a> {
    /// The first message in the block; the last one is in its key.
    pub first: MessageId,
    /// Version of the row, which says what the filter has.
    pub version: u8,
    filter: &'a [u8],
}

impl<'a> IndexedBlock<'a> {
    /// Reads the stored bytes.
    ///
    /// # Errors
    /// [`StoreError::Row`] if they are damaged or of an unknown version.
    pub fn decode(value: &'a [u8]) -> Result<Self, StoreError> {
        let fault = || StoreError::Row { table: Table::MessageIndex, fault: "it is damaged".to_owned() };
        let (head, filter) = value.split_at_checked(HEAD).ok_or_else(fault)?;
        let first = head[1..].try_into().map_err(|_| fault())?;
        if !(1..=VERSION).contains(&head[0]) || filter.is_empty() {
            return Err(fault());
        }
        Ok(Self { first: MessageId(Ulid(first)), version: head[0], filter })
    }

    /// Returns whether a message of the block may have `term`. If false, none has it.
    pub fn may_have(&self, term: Term) -> bool {
        term.places(self.filter.len() * 8).all(|place| self.filter[place / 8] & 1 << (place % 8) != 0)
    }

    /// Returns the value with one more message, which may precede the first; `None` if that changes nothing.
    pub fn with(&self, id: MessageId, terms: &[Term]) -> Option<Vec<u8>> {
        let first = self.first.min(id);
        if first == self.first && terms.iter().all(|term| self.may_have(*term)) {
            return None;
        }
        let mut value = [&[self.version], first.as_bytes().as_slice(), self.filter].concat();
        terms.iter().for_each(|term| set(&mut value, *term));
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_its_terms_and_few_false_positives() {
        let mut block = Block::default();
        for number in 0..500 {
            block.add(MessageId::default(), [Term::of(3, &format!("word{number}"))]);
        }
        let value = block.encode();
        let read = IndexedBlock::decode(&value).unwrap();
        assert!((0..500).all(|number| read.may_have(Term::of(3, &format!("word{number}")))));
        let wrong = (0..10_000).filter(|number| read.may_have(Term::of(3, &format!("other{number}")))).count();
        assert!(wrong < 100, "{wrong} of 10,000");
        assert_eq!(value.len(), HEAD + 750);
    }

    #[test]
    fn a_late_message_is_added_once() {
        let mut block = Block::default();
        let id = |number| MessageId(Ulid([number; 16]));
        block.add(id(5), [Term::status(Status::Queued)]);
        let value = block.encode();
        let read = IndexedBlock::decode(&value).unwrap();
        assert!(read.with(id(5), &[Term::status(Status::Queued)]).is_none());
        let late = read.with(id(3), &[Term::status(Status::Bounced)]).unwrap();
        let late = IndexedBlock::decode(&late).unwrap();
        assert!(late.first == id(3) && late.may_have(Term::status(Status::Bounced)));
        assert!(late.may_have(Term::status(Status::Queued)));
    }

    #[test]
    fn term_hashes_are_stable() {
        assert_eq!(Term::word("order"), Term(3_085_688_307_823_559_316));
        assert_eq!(Term::word("a-very-long-word-indeed"), Term::word("a-very-long-word-at-all"));
        assert_ne!(Term::metadata("a", "bc"), Term::metadata("ab", "c"));
    }

    #[test]
    fn a_block_of_version_1_keeps_its_version_when_a_message_is_added() {
        let mut block = Block::default();
        block.add(MessageId(Ulid([5; 16])), [Term::status(Status::Queued)]);
        let mut value = block.encode();
        assert_eq!(IndexedBlock::decode(&value).unwrap().version, VERSION);
        value[0] = 1;
        let late = IndexedBlock::decode(&value).unwrap().with(MessageId::default(), &[Term::by_smtp()]).unwrap();
        assert_eq!(IndexedBlock::decode(&late).unwrap().version, 1);
        value[0] = VERSION + 1;
        assert!(IndexedBlock::decode(&value).is_err());
    }
}
