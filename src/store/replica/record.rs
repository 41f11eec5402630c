//! The record of a batch in the log: the payload of its journal record. It contains its own sequence and small bodies;
//! its rows name the places of the others.

use std::collections::BTreeSet;

use super::position::Sequence;
use crate::store::changes::Changes;
use crate::store::content::{Place, PlaceKey, place_key};
use crate::store::error::StoreError;
use crate::store::journal;
use crate::store::row::Row as _;
use crate::store::row::message::MessageRow;
use crate::store::schema::{Table, meta};

/// Returns the sequence of a record; `None` if the record is malformed or older than sequences.
pub(in crate::store) fn sequence_of(payload: &[u8]) -> Option<Sequence> {
    let changes = journal::decode_record(payload).ok()?;
    let of_meta = |change: &journal::Change<'_>| change.table == Table::Meta.name() && change.key == meta::SEQUENCE;
    changes.iter().rfind(|change| of_meta(change)).and_then(|change| Sequence::decode(change.value?))
}

/// Returns the bodies named in a record's rows but not inlined in it, in the order of their places.
///
/// # Errors
/// A malformed record or message row.
pub fn missing_bodies(payload: &[u8]) -> Result<Vec<Place>, StoreError> {
    let mut carried: BTreeSet<PlaceKey> = BTreeSet::new();
    let mut named = Vec::new();
    for journal::Change { table, key, value } in journal::decode_record(payload)? {
        let Some(value) = value else { continue };
        if table == journal::BODIES {
            carried.extend(PlaceKey::try_from(key));
        } else if table == Table::Messages.name() {
            named.push(MessageRow::decode(value)?.place);
        }
    }
    named.retain(|place| place.length > 0 && !carried.contains(&place_key(place)));
    named.sort_by_key(place_key);
    Ok(named)
}

/// Returns the segments of the record's bodies, inlined or named.
///
/// # Errors
/// A malformed record or message row.
pub fn segments(payload: &[u8]) -> Result<BTreeSet<(crate::base::time::Timestamp, u32)>, StoreError> {
    let mut segments = BTreeSet::new();
    for journal::Change { table, value, .. } in journal::decode_record(payload)? {
        if table == Table::Messages.name()
            && let Some(value) = value
        {
            let place = MessageRow::decode(value)?.place;
            segments.insert((place.bucket, place.segment));
        }
    }
    Ok(segments)
}

/// A row or body that precedes its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// A body: its place and its sealed bytes.
    Body {
        /// The place, in the form for [`crate::store::replica::Follower::body`].
        key: &'a [u8],
        /// The sealed bytes.
        sealed: &'a [u8],
    },
    /// The log continues after this sequence; the batches before it are missing.
    Resumed(u64),
}

/// Returns the bytes of a preceding body.
pub fn body_ahead(place: &Place, sealed: &[u8]) -> Vec<u8> {
    journal::encode_body(&place_key(place), sealed)
}

/// Returns the bytes of the statement that the log continues after `sequence`.
pub fn resumed(sequence: u64) -> Vec<u8> {
    let mut changes = Changes::default();
    let sequence = Sequence { number: sequence, ..Sequence::default() };
    changes.put(Table::Meta, meta::SEQUENCE.to_vec(), Some(sequence.encode()));
    journal::Record::of(&changes, &[]).payload().to_vec()
}

/// Reads the entries that precede a batch.
///
/// # Errors
/// Malformed bytes.
pub fn ahead(bytes: &[u8]) -> Result<Vec<Record<'_>>, StoreError> {
    Ok(journal::decode_record(bytes)?.into_iter().filter_map(read_ahead).collect())
}

fn read_ahead(change: journal::Change<'_>) -> Option<Record<'_>> {
    let journal::Change { table, key, value } = change;
    match value {
        Some(sealed) if table == journal::BODIES => Some(Record::Body { key, sealed }),
        Some(value) if key == meta::SEQUENCE => Some(Record::Resumed(Sequence::decode(value)?.number)),
        Some(_) | None => None,
    }
}
