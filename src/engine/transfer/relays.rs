//! The relays at work: which one a message takes, backoff after faults of their own, and how much those that warm up
//! have handed over today.

use super::Shared;
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;
use crate::engine::relay::{Relay, day_of};
use crate::machine::relay_table::{RelayBackoff, RelayNumber, RelayTable};
use crate::store::error::StoreError;
use crate::store::op::warm_up::CountHandedOver;
use crate::store::read::Read;
use crate::store::row::warm_up::WarmUpRow;
use crate::store::schema;

/// A relay's place in the configuration.
pub(super) type Number = RelayNumber;

/// The configured relays. Their state is the machine's.
pub(super) struct Relays(Vec<Relay>);

/// A share of a daily cap, for one message that is about to go.
pub(super) struct Share<'a> {
    shared: &'a Shared,
    relay: Number,
    site: String,
    /// Its day, where the relay warms up.
    day: Option<u32>,
}

impl Relays {
    pub(super) fn new(relays: Vec<Relay>) -> Self {
        Self(relays)
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = Number> + use<> {
        0..self.0.len()
    }

    pub(super) fn relay(&self, number: Number) -> &Relay {
        &self.0[number]
    }

    /// The relays that a message may take, in its own order, which stays the same at every attempt: a receiver that
    /// turned away a stranger (greylisting) knows the address that comes again. Those that carry its stream alone come
    /// before those that it shares.
    pub(super) fn order(&self, stream: Stream, message: MessageId) -> Vec<Number> {
        let carrying = self.0.iter().enumerate().filter(|(_, relay)| relay.streams.contains(&stream));
        let (mut own, mut shared): (Vec<_>, Vec<_>) =
            carrying.map(|(number, _)| number).partition(|&number| self.0[number].is_own_of(stream));
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
        self.0.len() == 1
    }

    /// The relay of this name.
    fn named(&self, name: &str) -> Option<Number> {
        self.0.iter().position(|relay| &*relay.name == name)
    }
}

impl Shared {
    /// Returns the end of a relay's backoff, if it is still to come.
    pub(super) fn held_until(&self, relay: Number, now: Timestamp) -> Option<Timestamp> {
        self.destinations().relays.held_until(relay, now)
    }

    /// Backs off from a relay for a fault of its own, and returns until when.
    pub(super) fn relay_failed(&self, relay: Number, why: &str) -> Timestamp {
        // The part after the colon is the smarthost's answer, which is for the log alone.
        let kind = why.split(": ").next().unwrap_or_default();
        let RelayBackoff { until, is_new } = self.destinations().relays.failed(relay, self.now(), kind);
        if is_new {
            let relay = &self.relays.relay(relay).name;
            tracing::error!(%relay, why, %until, "relay failed; backing off without charging its messages");
        }
        until
    }

    /// A relay works.
    pub(super) fn relay_works(&self, relay: Number) {
        let has_recovered = self.destinations().relays.works(relay);
        if has_recovered {
            tracing::info!(relay = %self.relays.relay(relay).name, "relay works again");
        }
    }

    /// Whether a relay may hand nothing more over to `site` today.
    pub(super) fn is_used_up(&self, relay: Number, site: &str) -> Result<bool, StoreError> {
        let is_used_up = self.with_count(relay, site, |relays, day, cap| relays.is_used_up(relay, site, day, cap))?;
        Ok(is_used_up.is_some_and(|(is_used_up, _)| is_used_up))
    }

    /// A share of the relay's daily cap for `site`; nothing where it is used up.
    pub(super) fn share(&self, relay: Number, site: &str) -> Result<Option<Share<'_>>, StoreError> {
        let taken = self.with_count(relay, site, |relays, day, cap| relays.take_share(relay, site, day, cap))?;
        let share = |day| Share { shared: self, relay, site: site.to_owned(), day };
        Ok(match taken {
            None => Some(share(None)),
            Some((true, day)) => Some(share(Some(day))),
            Some((false, _)) => None,
        })
    }

    /// Decides by today's count of a relay that warms up, and returns the day. Where memory does not have the count it
    /// is read from the store, without the lock. Returns `None` if the relay does not warm up.
    fn with_count(
        &self,
        relay: Number,
        site: &str,
        decide: impl Fn(&mut RelayTable, u32, u32) -> Option<bool>,
    ) -> Result<Option<(bool, u32)>, StoreError> {
        let Relay { warm_up, name, .. } = self.relays.relay(relay);
        let Some(warm_up) = warm_up else { return Ok(None) };
        let day = day_of(self.now());
        let cap = warm_up.cap(day);
        let known = decide(&mut self.destinations().relays, day, cap);
        if let Some(decided) = known {
            return Ok(Some((decided, day)));
        }
        let row = self.engine.store.snapshot()?.row::<WarmUpRow>(&schema::warm_up(name, site))?;
        let taken = row.filter(|row| row.day == day).map_or(0, |row| row.messages);
        let relays = &mut self.destinations().relays;
        relays.learn(relay, site, day, taken);
        Ok(decide(relays, day, cap).map(|decided| (decided, day)))
    }
}

impl Share<'_> {
    /// The message was taken: returns what is to be recorded of it, where the relay warms up.
    pub(super) fn used(mut self) -> Option<CountHandedOver> {
        let day = self.day.take()?;
        let Self { shared, relay, .. } = self;
        shared.destinations().relays.end_share(relay, &self.site, day, true);
        let relay = shared.relays.relay(relay).name.to_string();
        Some(CountHandedOver { relay, site: std::mem::take(&mut self.site), day })
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if let Some(day) = self.day {
            self.shared.destinations().relays.end_share(self.relay, &self.site, day, false);
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
