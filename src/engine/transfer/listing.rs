//! The queue by site and relay: the waiting messages of the store, and what the lanes know of their sites.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Transfers;
use super::relays::Number;
use super::site::Site;
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::domain::hostname::DomainName;
use crate::engine::messages::MessageRecord;
use crate::engine::queue::{QueueView, SiteQueue};
use crate::engine::relay::RelayWay;
use crate::store::error::StoreError;
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::message::MessageRow;
use crate::store::schema::{self, Table};
use crate::store::timer::{Timer, TimerKind};

/// Timers that are read from one snapshot, so that a long queue pins no pages for long.
const PAGE: usize = 4_096;

/// Relay and site, by their names.
type Key = (String, String);

impl QueueView for Transfers {
    fn sites(&self) -> Result<Vec<SiteQueue>, StoreError> {
        let mut found: BTreeMap<Key, SiteQueue> = BTreeMap::new();
        let standing = self.shared.engine.store.standstill()?;
        let mut names = HashMap::new();
        let mut from = Vec::new();
        loop {
            let snapshot = self.shared.engine.store.snapshot()?;
            let keys = snapshot.keys(Table::Timers, &from, &after_prefix(&[]), Order::Ascending, PAGE)?;
            for timer in keys.iter().filter_map(|key| Timer::decode(key)).filter(is_transfer) {
                let key = schema::message(timer.account, MessageId(timer.id));
                if let Some(row) = snapshot.row::<MessageRow>(&key)? {
                    let (relay, site) = self.way_of(&row, MessageId(timer.id), &mut names);
                    let entry = found.entry((site.clone(), relay.clone())).or_insert_with(|| empty(site, relay));
                    entry.waiting += 1;
                    // What stands still is tried at no time.
                    if !standing.is_some_and(|restored| restored.holds(&timer)) {
                        entry.next_at = Some(entry.next_at.map_or(timer.due, |next| next.min(timer.due)));
                    }
                }
            }
            let Some(last) = keys.last().filter(|_| keys.len() == PAGE) else { break };
            from = [last, &[0][..]].concat();
        }
        self.add_lanes(&mut found, self.shared.now());
        Ok(found
            .into_values()
            .filter(|queue| queue.waiting + queue.in_flight > 0 || queue.held_until.is_some())
            .collect())
    }

    fn held_until(&self, record: &MessageRecord) -> Option<Timestamp> {
        let MessageRecord { id, row, transfer, .. } = record;
        let (relays, now) = (&self.shared.relays, self.shared.now());
        if self.shared.in_house.as_ref().is_some_and(|route| route(&row.to).is_some()) {
            return None;
        }
        let last = transfer.last.relay.as_deref().and_then(|name| relays.named(name));
        let number = last.or_else(|| relays.order(row.stream, *id).first().copied())?;
        let site = match &relays.relay(number).way {
            RelayWay::Smarthost(smarthost) => Some(Site::of_smarthost(smarthost)),
            RelayWay::Mx => self.routes.last_seen(row.to.domain()),
        };
        let lane = site.and_then(|site| self.lanes().by_way.get(&(number, site)).map(Arc::clone));
        let held_until = lane.and_then(|lane| lane.sight(now).held_until);
        held_until.max(relays.held_until(number, now))
    }
}

impl Transfers {
    /// The relay that a message would take, and its site as far as it is known.
    fn way_of(
        &self,
        row: &MessageRow,
        message: MessageId,
        names: &mut HashMap<(Number, DomainName), String>,
    ) -> (String, String) {
        let relays = &self.shared.relays;
        let number = relays.order(row.stream, message).first().copied().unwrap_or(0);
        let relay = relays.relay(number);
        let domain = row.to.domain();
        let in_house = self.shared.in_house.as_ref().and_then(|route| route(&row.to));
        let site = match (in_house, &relay.way) {
            (Some(address), _) => address.to_string(),
            (None, RelayWay::Smarthost(smarthost)) => format!("{}:{}", smarthost.host, smarthost.port),
            (None, RelayWay::Mx) => {
                let name = || self.routes.last_seen(domain).map_or_else(|| domain.to_string(), |site| named(&site));
                names.entry((number, domain.clone())).or_insert_with(name).clone()
            }
        };
        (relay.name.to_string(), site)
    }

    /// Adds what the lanes know. What is on the wire has its timer too, so it was counted as waiting.
    fn add_lanes(&self, found: &mut BTreeMap<Key, SiteQueue>, now: Timestamp) {
        let lanes: Vec<_> = self.lanes().by_way.values().map(Arc::clone).collect();
        for lane in lanes {
            let (relay, site) = (self.shared.relays.relay(lane.relay).name.to_string(), named(&lane.site));
            let entry = found.entry((site.clone(), relay.clone())).or_insert_with(|| empty(site, relay));
            let sight = lane.sight(now);
            entry.in_flight = sight.in_flight as u64;
            entry.waiting = entry.waiting.saturating_sub(entry.in_flight);
            entry.held_until = sight.held_until;
            entry.last_answer = sight.last_answer;
            entry.next_at =
                entry.next_at.filter(|_| entry.waiting > 0).max(entry.held_until.filter(|_| entry.waiting > 0));
        }
    }
}

fn is_transfer(timer: &Timer) -> bool {
    timer.kind == TimerKind::Transfer
}

fn named(site: &Site) -> String {
    site.name().into_owned()
}

const fn empty(site: String, relay: String) -> SiteQueue {
    SiteQueue { site, relay, waiting: 0, in_flight: 0, next_at: None, held_until: None, last_answer: None }
}
