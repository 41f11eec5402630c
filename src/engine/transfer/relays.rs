//! The relays: the choice of a message's relay, the backoff after failures of a relay, and today's counts of relays
//! that warm up.

use super::Shared;
use super::failed_attempt::RelayFault;
use crate::base::id::{AccountId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::stream::Stream;
use crate::engine::relay::{Relay, day_of};
use crate::machine::relay_table::{RelayBackoff, RelayNumber};
use crate::machine::warm_up::{DailyCap, WarmUpCounts};
use crate::store::error::StoreError;
use crate::store::op::warm_up::CountHandedOver;
use crate::store::read::Read;
use crate::store::row::warm_up::WarmUpRow;
use crate::store::schema;

/// Position of a relay in the configuration.
pub(super) type Number = RelayNumber;

/// The configured relays. Their state is the machine's.
pub(super) struct Relays(Vec<Relay>);

/// A reserved part of a daily cap, for one message that is about to be sent.
pub(super) struct Share<'a> {
    shared: &'a Shared,
    relay: Number,
    site: String,
    account: AccountId,
    /// The day of the cap, if the relay warms up.
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

    /// Returns the relays that a message may take. The order is the same at every attempt, because a receiver that
    /// greylists expects the same address again. Relays for its stream alone come before shared ones.
    pub(super) fn order(&self, stream: Stream, message: MessageId) -> Vec<Number> {
        let carrying = self.0.iter().enumerate().filter(|(_, relay)| relay.streams.contains(&stream));
        let (mut own, mut shared): (Vec<_>, Vec<_>) =
            carrying.map(|(number, _)| number).partition(|&number| self.0[number].is_own_of(stream));
        for set in [&mut own, &mut shared] {
            let first = place_of(message, set.len(), DrawPurpose::Relay);
            set.rotate_left(first);
        }
        own.append(&mut shared);
        own
    }

    /// Returns the relays in the order of [`Self::order`], but the relay `last` first.
    pub(super) fn order_after(&self, stream: Stream, message: MessageId, last: Option<&str>) -> Vec<Number> {
        let mut order = self.order(stream, message);
        let last = last.and_then(|name| self.named(name));
        if let Some(at) = order.iter().position(|number| Some(*number) == last) {
            order[..=at].rotate_right(1);
        }
        order
    }

    /// Returns whether there is only one relay.
    pub(super) const fn is_lone(&self) -> bool {
        self.0.len() == 1
    }

    /// Returns the relay with this name.
    fn named(&self, name: &str) -> Option<Number> {
        self.0.iter().position(|relay| &*relay.name == name)
    }
}

impl Shared {
    /// Returns the end of a relay's backoff for mail of an account, if it is in the future.
    pub(super) fn held_until(&self, relay: Number, account: AccountId, now: Timestamp) -> Option<Timestamp> {
        self.destinations().relays.held_until(relay, account, now)
    }

    /// Backs a relay off after a failure of its own, and returns the end of the backoff.
    pub(super) fn relay_failed(&self, relay: Number, RelayFault { why, only, .. }: &RelayFault) -> Timestamp {
        // Text after the colon is the smarthost's answer, which is only for the log.
        let kind = why.split(": ").next().unwrap_or_default();
        let RelayBackoff { until, is_new } = self.destinations().relays.failed(relay, self.now(), kind, *only);
        if is_new {
            let relay = &self.relays.relay(relay).name;
            tracing::error!(%relay, why, %until, "relay failed; backing off without charging its messages");
        }
        until
    }

    /// Ends the backoff of a relay that works. `took` is the account whose mail it took.
    pub(super) fn relay_works(&self, relay: Number, took: Option<AccountId>) {
        let now = self.now();
        let mut destinations = self.destinations();
        took.into_iter().for_each(|account| destinations.relays.takes(relay, account, now));
        let has_recovered = destinations.relays.works(relay);
        drop(destinations);
        if has_recovered {
            tracing::info!(relay = %self.relays.relay(relay).name, "relay works again");
        }
    }

    /// Returns whether a relay may send no message of the account to `site` today.
    pub(super) fn is_used_up(&self, relay: Number, site: &str, account: AccountId) -> Result<bool, StoreError> {
        let is_used_up = self.with_count(relay, site, |counts, cap| counts.is_used_up(relay, site, account, cap))?;
        Ok(is_used_up.is_some_and(|(is_used_up, _)| is_used_up))
    }

    /// Reserves a part of the relay's daily cap for a message of the account to `site`; `None` if it may have none.
    pub(super) fn share(&self, relay: Number, site: &str, account: AccountId) -> Result<Option<Share<'_>>, StoreError> {
        let taken = self.with_count(relay, site, |counts, cap| counts.take_share(relay, site, account, cap))?;
        let share = |day| Share { shared: self, relay, site: site.to_owned(), account, day };
        Ok(match taken {
            None => Some(share(None)),
            Some((true, day)) => Some(share(Some(day))),
            Some((false, _)) => None,
        })
    }

    /// Checks today's count of a relay that warms up, and returns the day. A count that is not in memory is read from
    /// the store, without the lock. Returns `None` if the relay does not warm up.
    fn with_count(
        &self,
        relay: Number,
        site: &str,
        decide: impl Fn(&mut WarmUpCounts, DailyCap) -> Option<bool>,
    ) -> Result<Option<(bool, u32)>, StoreError> {
        let Relay { warm_up, name, .. } = self.relays.relay(relay);
        let Some(warm_up) = warm_up else { return Ok(None) };
        let day = day_of(self.now());
        let cap = DailyCap { day, messages: warm_up.cap(day) };
        let known = decide(&mut self.destinations().warm_up, cap);
        if let Some(decided) = known {
            return Ok(Some((decided, day)));
        }
        let row = self.engine.store.snapshot()?.row::<WarmUpRow>(&schema::warm_up(name, site))?;
        let taken = row.filter(|row| row.day == day).map_or(0, |row| row.messages);
        let counts = &mut self.destinations().warm_up;
        counts.learn(relay, site, day, taken);
        Ok(decide(counts, cap).map(|decided| (decided, day)))
    }
}

impl Share<'_> {
    /// Records that the message was accepted. Returns the count to store, if the relay warms up.
    pub(super) fn used(mut self) -> Option<CountHandedOver> {
        let day = self.day.take()?;
        let Self { shared, relay, account, .. } = self;
        shared.destinations().warm_up.end_share(relay, &self.site, account, day, true);
        let relay = shared.relays.relay(relay).name.to_string();
        Some(CountHandedOver { relay, site: std::mem::take(&mut self.site), day })
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if let Some(day) = self.day {
            self.shared.destinations().warm_up.end_share(self.relay, &self.site, self.account, day, false);
        }
    }
}

/// Purpose of a draw. Draws for different purposes are independent.
#[derive(Debug, Clone, Copy)]
pub(super) enum DrawPurpose {
    /// A relay for a stream.
    Relay = 1,
    /// An address of a relay.
    Source = 2,
}

/// Returns a message's position among `count`. It is always the same.
pub(super) fn place_of(message: MessageId, count: usize, deal: DrawPurpose) -> usize {
    // Identifiers of the same millisecond are close, so their differences are mixed into every bit (the last step of
    // MurmurHash3). The function is written out, so that no version of Rust can change it: a message keeps its position
    // across upgrades.
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
    fn consecutive_messages_get_relays_and_sources_evenly_and_independently() {
        let mut counts = [[0; 2]; 3];
        for n in 0..600_u16 {
            let [high, low] = n.to_be_bytes();
            let mut bytes = [7; 16];
            bytes[14..].copy_from_slice(&[high, low]);
            let message = MessageId(Ulid(bytes));
            counts[place_of(message, 3, DrawPurpose::Relay)][place_of(message, 2, DrawPurpose::Source)] += 1;
        }
        assert!(counts.as_flattened().iter().all(|count| (70..=130).contains(count)), "{counts:?}");
        assert_eq!(place_of(MessageId::default(), 0, DrawPurpose::Relay), 0);
    }
}
