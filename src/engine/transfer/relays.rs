//! The relays at work: which one a message takes, which are held back for a fault of their own, and how much those that
//! warm up have handed over today.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;
use crate::engine::relay::{Relay, day_of};
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::op::warm_up::CountHandedOver;
use crate::store::read::Read;
use crate::store::row::warm_up::WarmUpRow;
use crate::store::schema;

/// Backoff of a relay after its first, second, ... fault in a row.
const HOLD_SECS: [u64; 4] = [60, 120, 300, 600];

/// Messages remembered at most that met a fault which may be theirs.
const DOUBTFUL_MAX: usize = 4096;

/// A relay's place in the configuration.
pub(super) type Number = usize;

/// All relays.
pub(super) struct Relays {
    relays: Vec<Relay>,
    faults: Mutex<Vec<Fault>>,
    counts: Mutex<HashMap<(Number, String), Count>>,
    /// Messages that met a fault which may be theirs.
    doubtful: Mutex<HashSet<MessageId>>,
}

/// Fault of a relay.
#[derive(Debug, Clone, Default)]
struct Fault {
    held_until: Option<Timestamp>,
    in_a_row: usize,
    /// The start of the first of them, and the last one in words that name nobody.
    since: Timestamp,
    why: String,
}

/// Number of messages that a relay has handed to a site on one day, and of those in flight.
#[derive(Debug, Clone, Copy)]
struct Count {
    day: u32,
    taken: u32,
    under_way: u32,
}

/// A share of a daily cap, for one message that is about to go.
pub(super) struct Share<'a> {
    relays: &'a Relays,
    key: Option<(Number, String)>,
    day: u32,
}

impl Relays {
    pub(super) fn new(relays: Vec<Relay>) -> Self {
        let faults = vec![Fault::default(); relays.len()];
        Self { relays, faults: Mutex::new(faults), counts: Mutex::default(), doubtful: Mutex::default() }
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = Number> + use<> {
        0..self.relays.len()
    }

    pub(super) fn relay(&self, number: Number) -> &Relay {
        &self.relays[number]
    }

    /// The relays that a message may take, in its own order, which stays the same at every attempt: a receiver that
    /// turned away a stranger (greylisting) knows the address that comes again. Those that carry its stream alone come
    /// before those that it shares.
    pub(super) fn order(&self, stream: Stream, message: MessageId) -> Vec<Number> {
        let carrying = self.relays.iter().enumerate().filter(|(_, relay)| relay.streams.contains(&stream));
        let (mut own, mut shared): (Vec<_>, Vec<_>) =
            carrying.map(|(number, _)| number).partition(|&number| self.relays[number].is_own_of(stream));
        for set in [&mut own, &mut shared] {
            let first = place_of(message, set.len(), Deal::Relay);
            set.rotate_left(first);
        }
        own.append(&mut shared);
        own
    }

    /// The relays in the order of [`Self::order`], but with the relay `last` first.
    pub(super) fn order_after(&self, stream: Stream, message: MessageId, last: Option<&str>) -> Vec<Number> {
        let mut order = self.order(stream, message);
        let last = last.and_then(|name| self.named(name));
        if let Some(at) = order.iter().position(|number| Some(*number) == last) {
            order[..=at].rotate_right(1);
        }
        order
    }

    /// Whether there is no other relay to choose.
    pub(super) const fn is_lone(&self) -> bool {
        self.relays.len() == 1
    }

    /// The relay of this name.
    fn named(&self, name: &str) -> Option<Number> {
        self.relays.iter().position(|relay| &*relay.name == name)
    }

    /// Until when a relay is held back.
    pub(super) fn held_until(&self, number: Number, now: Timestamp) -> Option<Timestamp> {
        self.faults()[number].held_until.filter(|until| *until > now)
    }

    /// The start of a relay's faults in a row, and the last of them in words that name nobody.
    pub(super) fn fault(&self, number: Number) -> Option<(Timestamp, String)> {
        let faults = self.faults();
        let fault = faults.get(number).filter(|fault| fault.in_a_row > 0)?;
        Some((fault.since, fault.why.clone()))
    }

    /// Holds a relay back for a fault of its own, and says until when.
    pub(super) fn failed(&self, number: Number, now: Timestamp, why: &str) -> Timestamp {
        let mut faults = self.faults();
        let fault = &mut faults[number];
        // Several messages may meet the same fault: it counts once.
        if let Some(until) = fault.held_until.filter(|until| *until > now) {
            return until;
        }
        let until = now + Duration::from_secs(HOLD_SECS[fault.in_a_row.min(HOLD_SECS.len() - 1)]);
        let since = if fault.in_a_row == 0 { now } else { fault.since };
        // The part after the colon is the smarthost's answer, which is for the log alone.
        let kind = why.split(": ").next().unwrap_or_default().to_owned();
        *fault = Fault { held_until: Some(until), in_a_row: fault.in_a_row + 1, since, why: kind };
        drop(faults);
        let relay = &self.relays[number].name;
        tracing::error!(%relay, why, %until, "relay failed; backing off without charging its messages");
        until
    }

    /// A relay works.
    pub(super) fn works(&self, number: Number) {
        let mut faults = self.faults();
        if faults[number].in_a_row > 0 {
            faults[number] = Fault::default();
            drop(faults);
            tracing::info!(relay = %self.relays[number].name, "relay works again");
        }
    }

    /// Whether a fault that may be the message's own is put down to its relay: the first time that the message meets
    /// it.
    pub(super) fn blames_itself_for(&self, message: MessageId) -> bool {
        let mut doubtful = self.doubtful.lock().unwrap_or_else(PoisonError::into_inner);
        if doubtful.len() >= DOUBTFUL_MAX {
            doubtful.clear();
        }
        doubtful.insert(message)
    }

    fn faults(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a relay may hand nothing more over to `site` today.
    pub(super) fn is_used_up(
        &self,
        number: Number,
        site: &str,
        now: Timestamp,
        store: &Store,
    ) -> Result<bool, StoreError> {
        let Some(warm_up) = self.relays[number].warm_up else { return Ok(false) };
        let day = day_of(now);
        let key = (number, site.to_owned());
        let mut counts = self.counts();
        let count = self.count(&mut counts, &key, day, store)?;
        Ok(count.taken + count.under_way >= warm_up.cap(day))
    }

    /// A share of the relay's daily cap for `site`; nothing where it is used up.
    pub(super) fn share(
        &self,
        number: Number,
        site: &str,
        now: Timestamp,
        store: &Store,
    ) -> Result<Option<Share<'_>>, StoreError> {
        let day = day_of(now);
        let Some(warm_up) = self.relays[number].warm_up else {
            return Ok(Some(Share { relays: self, key: None, day }));
        };
        let key = (number, site.to_owned());
        let mut counts = self.counts();
        let count = self.count(&mut counts, &key, day, store)?;
        if count.taken + count.under_way >= warm_up.cap(day) {
            return Ok(None);
        }
        count.under_way += 1;
        drop(counts);
        Ok(Some(Share { relays: self, key: Some(key), day }))
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<(Number, String), Count>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Today's count, read from the store where memory does not have it.
    fn count<'c>(
        &self,
        counts: &'c mut HashMap<(Number, String), Count>,
        key: &(Number, String),
        day: u32,
        store: &Store,
    ) -> Result<&'c mut Count, StoreError> {
        if counts.get(key).is_none_or(|count| count.day != day) {
            counts.retain(|_, count| count.day == day);
            let row_key = schema::warm_up(&self.relays[key.0].name, &key.1);
            let row = store.snapshot()?.row::<WarmUpRow>(&row_key)?.filter(|row| row.day == day);
            let taken = row.map_or(0, |row| row.messages);
            counts.insert(key.clone(), Count { day, taken, under_way: 0 });
        }
        counts.get_mut(key).ok_or(StoreError::Panicked)
    }
}

impl Share<'_> {
    /// The message was taken: what is to be recorded of it, where the relay warms up.
    pub(super) fn used(mut self) -> Option<CountHandedOver> {
        let (number, site) = self.key.take()?;
        let relay = self.relays.relays[number].name.to_string();
        let mut counts = self.relays.counts();
        let count = counts.get_mut(&(number, site.clone())).filter(|count| count.day == self.day);
        if let Some(count) = count {
            count.under_way = count.under_way.saturating_sub(1);
            count.taken += 1;
        }
        Some(CountHandedOver { relay, site, day: self.day })
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        if let Some(count) = self.relays.counts().get_mut(&key).filter(|count| count.day == self.day) {
            count.under_way = count.under_way.saturating_sub(1);
        }
    }
}

/// Purpose of a draw. Draws for different purposes are independent of each other.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deal {
    /// A relay among its stream's.
    Relay = 1,
    /// An address among its relay's.
    Source = 2,
}

/// The place of a message among `count`, always the same one.
pub(super) fn place_of(message: MessageId, count: usize, deal: Deal) -> usize {
    // Identifiers of one millisecond are neighbours, so what differs is mixed into every bit (MurmurHash3's last step).
    // It is written out for no version of Rust to change: a message keeps its place across an upgrade.
    const MIX: u64 = 0xff51_afd7_ed55_8ccd;
    let bytes = message.0.0.into_iter().chain([deal as u8]);
    let sum = bytes.fold(0_u64, |sum, byte| sum.wrapping_mul(257).wrapping_add(u64::from(byte)));
    let mixed = (sum ^ (sum >> 33)).wrapping_mul(MIX);
    usize::try_from((mixed >> 32) % (count.max(1) as u64)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    #[test]
    fn neighbours_are_dealt_out_evenly_and_each_deal_is_its_own() {
        let mut counts = [[0; 2]; 3];
        for n in 0..600_u16 {
            let [high, low] = n.to_be_bytes();
            let mut bytes = [7; 16];
            bytes[14..].copy_from_slice(&[high, low]);
            let message = MessageId(Ulid(bytes));
            counts[place_of(message, 3, Deal::Relay)][place_of(message, 2, Deal::Source)] += 1;
        }
        assert!(counts.as_flattened().iter().all(|count| (70..=130).contains(count)), "{counts:?}");
        assert_eq!(place_of(MessageId::default(), 0, Deal::Relay), 0);
    }
}
