//! The queue by site and relay: the store's waiting messages, and the state of the destination queues. For an account,
//! only the account's rows are read. A destination queue adds the end of its site's throttling, but never an answer,
//! which may contain another account's recipient.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::Transfers;
use super::account_parts::{Part, Parts, Pauses};
use super::listed_sites::ListedSites;
use super::relays::Number;
use super::site::Site;
use crate::base::id::{AccountId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::hostname::DomainName;
use crate::domain::site_name::SiteName;
use crate::domain::stream::Stream;
use crate::engine::listing::last_id;
use crate::engine::messages::MessageRecord;
use crate::engine::pauses::pauses;
use crate::engine::queue::{AccountQueue, AccountSite, MailAtSite, QueuePage, QueueView, SiteKey};
use crate::engine::relay::RelayWay;
use crate::engine::wait_reason::Wait;
use crate::machine::destination::Input;
use crate::store::error::StoreError;
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema::{self, Table};
use crate::store::timer::{Timer, TimerKind};

/// Maximum number of timers read from one snapshot, so that a long queue pins no database pages for long.
const PAGE: usize = 4_096;
/// Maximum number of snapshots that are read for the messages of one site.
const PAGES_MAX: usize = 64;
/// Maximum number of sites of one page of the queue.
const SITES_MAX: usize = 10_000;
/// Number of names after which those that were looked up are forgotten.
const NAMES_MAX: usize = 65_536;

/// Names of sites that were looked up already.
pub(super) type Names = HashMap<(Number, DomainName), String>;

impl QueueView for Transfers {
    fn sites(&self, after: Option<&SiteKey>) -> Result<QueuePage, StoreError> {
        let mut found = ListedSites::new(after, SITES_MAX);
        let hold = self.shared.engine.store.restore_hold()?;
        let (mut names, mut next_of) = (Names::new(), BTreeMap::<SiteKey, (bool, Timer)>::new());
        let mut from = Vec::new();
        loop {
            let snapshot = self.shared.engine.store.snapshot()?;
            let keys = snapshot.sound_keys(Table::Timers, &from, &after_prefix(&[]), Order::Ascending, PAGE)?;
            for timer in keys.iter().filter_map(|key| Timer::decode(key)).filter(is_transfer) {
                let key = schema::message(timer.account, MessageId(timer.id));
                if let Some(row) = snapshot.sound_row::<MessageRow>(&key)? {
                    let way = self.way_of(self.first_relay(row.stream, MessageId(timer.id)), &row.to, &mut names);
                    let Some(entry) = found.entry(&way) else { continue };
                    entry.waiting += 1;
                    // Mail on hold has no next attempt.
                    let is_held = hold.is_some_and(|restored| restored.holds(&timer));
                    if !is_held {
                        entry.next_at = Some(entry.next_at.map_or(timer.due, |next| next.min(timer.due)));
                    }
                    let next = next_of.entry(way).or_insert((is_held, timer));
                    *next = (*next).min((is_held, timer));
                }
            }
            // The names and timers of sites beyond the page are not kept.
            next_of.retain(|key, _| found.get_mut(key).is_some());
            if names.len() > NAMES_MAX {
                names.clear();
            }
            let Some(last) = keys.last().filter(|_| keys.len() == PAGE) else { break };
            from = [last, &[0][..]].concat();
        }
        self.add_destinations(&mut found, self.shared.now());
        for (key, (_, timer)) in next_of {
            let Some(queue) = found.get_mut(&key) else { continue };
            let next = self.shared.engine.message(timer.account, MessageId(timer.id))?;
            let reason = next.and_then(|record| record.waiting).map(|wait| wait.reason);
            queue.reason = reason.filter(|_| queue.waiting > 0);
        }
        let (mut sites, next) = found.into_page();
        sites.retain(|queue| queue.waiting + queue.in_flight > 0 || queue.held_until.is_some());
        Ok(QueuePage { sites, next })
    }

    fn of_account(&self, account: AccountId, most: usize) -> Result<AccountQueue, StoreError> {
        let snapshot = self.shared.engine.store.snapshot()?;
        let (from, to) = (account.as_bytes(), after_prefix(account.as_bytes()));
        let keys = snapshot.sound_keys(Table::Waiting, from, &to, Order::Ascending, most + 1)?;
        let mut pauses: Pauses =
            pauses(&snapshot, account)?.into_iter().map(|(name, since)| (name.to_string(), (name, since))).collect();
        // Rows of messages accepted one after the other are on the same pages.
        let mut ids: Vec<_> = keys.iter().take(most).filter_map(|key| last_id(key)).map(MessageId).collect();
        ids.sort_unstable();
        let mut parts = Parts::new(self, &snapshot, account, &pauses);
        for id in ids {
            parts.add(id)?;
        }
        let found = parts.into_sorted();
        let held = self.throttled_sites(self.shared.now());
        let sites = found.into_iter().filter_map(|(key, part)| {
            let held_until = held.get(&key).copied();
            let (site, relay) = key;
            let Part { waiting, in_flight, domains, oldest_at, next_at, last_tried, paused_domains } = part;
            let paused_since = pauses.get(&site).map(|(_, since)| *since);
            let paused_domains = paused_domains.into_values().collect();
            let last_tried = last_tried?.1;
            let of = AccountSite {
                site,
                relay,
                waiting,
                in_flight,
                domains: domains.into_iter().collect(),
                oldest_at,
                next_at: next_at.max(held_until.filter(|_| waiting > 0)),
                held_until,
                last_tried,
                paused_since,
                paused_domains,
            };
            Some(AccountSite { next_at: of.next_at.filter(|_| !of.is_paused()), ..of })
        });
        let sites: Vec<_> = sites.collect();
        for site in &sites {
            pauses.remove(&site.site);
            site.paused_domains.iter().for_each(|domain| drop(pauses.remove(domain.name.as_str())));
        }
        Ok(AccountQueue { sites, pauses: pauses.into_values().collect(), is_cut: keys.len() > most })
    }

    fn wait(&self, account: AccountId, record: &MessageRecord, due: Timestamp) -> Wait {
        self.reason_of(account, record, due)
    }

    fn site_of(&self, record: &MessageRecord) -> String {
        self.way_of(self.first_relay(record.row.stream, record.id), &record.row.to, &mut Names::new()).0
    }

    fn waiting_at(&self, account: AccountId, site: &SiteName, most: usize) -> Result<MailAtSite, StoreError> {
        let (mut found, mut names, now) = (MailAtSite::default(), Names::new(), self.shared.now());
        let (mut from, to) = (account.as_bytes().to_vec(), after_prefix(account.as_bytes()));
        for _ in 0..PAGES_MAX {
            let snapshot = self.shared.engine.store.snapshot()?;
            let keys = snapshot.sound_keys(Table::Waiting, &from, &to, Order::Ascending, PAGE)?;
            for id in keys.iter().filter_map(|key| last_id(key)).map(MessageId) {
                let key = schema::message(account, id);
                let (Some(row), Some(transfer)) =
                    (snapshot.sound_row::<MessageRow>(&key)?, snapshot.sound_row::<TransferRow>(&key)?)
                else {
                    continue;
                };
                let is_there =
                    |row: &MessageRow, name| row.to.domain().as_str() == site.as_str() || name == site.as_str();
                let Some(due) = transfer.due else { continue };
                let way = self.way_of(self.first_relay(row.stream, id), &row.to, &mut names);
                if !is_there(&row, &way.0) {
                    continue;
                }
                found.has_mail = true;
                if due > now {
                    if found.waiting.len() == most {
                        return Ok(MailAtSite { is_cut: true, ..found });
                    }
                    found.waiting.push(id);
                }
            }
            let Some(last) = keys.last().filter(|_| keys.len() == PAGE) else { return Ok(found) };
            from = [last, &[0][..]].concat();
        }
        Ok(MailAtSite { is_cut: true, ..found })
    }

    fn hurry(&self, site: &str) {
        let destinations = self.shared.destinations();
        let at_site: Vec<_> =
            destinations.iter().filter(|(queue, _)| queue.site.name() == site).map(|(queue, _)| queue.id).collect();
        drop(destinations);
        at_site.into_iter().for_each(|id| self.shared.handle(id, Input::TryNow));
    }

    fn wake(&self, account: AccountId) {
        self.shared.wake_paused(account);
    }

    fn set_back(&self, by: Duration) {
        let decided = self.shared.destinations().set_back(&self.shared, by);
        self.shared.carry_out(decided);
    }
}

impl Transfers {
    /// Returns the relay that a message would take first.
    pub(super) fn first_relay(&self, stream: Stream, message: MessageId) -> Number {
        self.shared.relays.order(stream, message).first().copied().unwrap_or(0)
    }

    /// Returns the names of a relay and of the site to which it takes mail for a recipient: the domain's name, if the
    /// site is unknown.
    pub(super) fn way_of(&self, relay: Number, to: &Address, names: &mut Names) -> SiteKey {
        let (number, relay) = (relay, self.shared.relays.relay(relay));
        let capture = self.shared.capture.as_ref().and_then(|route| route(to));
        let site = match (capture, &relay.way) {
            (Some(address), _) => address.to_string(),
            (None, RelayWay::Smarthost(smarthost)) => format!("{}:{}", smarthost.host, smarthost.port),
            (None, RelayWay::Mx) => {
                let domain = to.domain();
                let name =
                    || self.shared.routes.last_seen(domain).map_or_else(|| domain.to_string(), |site| named(&site));
                names.entry((number, domain.clone())).or_insert_with(name).clone()
            }
        };
        (site, relay.name.to_string())
    }

    /// Returns the throttled sites, each with the end of its throttling.
    fn throttled_sites(&self, now: Timestamp) -> HashMap<SiteKey, Timestamp> {
        let destinations = self.shared.destinations();
        let held = destinations.iter().filter_map(|(queue, destination)| {
            let relay = self.shared.relays.relay(queue.relay).name.to_string();
            Some(((named(&queue.site), relay), destination.view(now).held_until?))
        });
        held.collect()
    }

    /// Adds the state of the destination queues. Messages in flight still have their timers, so they were counted as
    /// waiting.
    fn add_destinations(&self, found: &mut ListedSites<'_>, now: Timestamp) {
        for (queue, destination) in self.shared.destinations().iter() {
            let (relay, site) = (self.shared.relays.relay(queue.relay).name.to_string(), named(&queue.site));
            let Some(entry) = found.entry(&(site, relay)) else { continue };
            let view = destination.view(now);
            entry.in_flight = view.in_flight as u64;
            entry.waiting = entry.waiting.saturating_sub(entry.in_flight);
            entry.held_until = view.held_until;
            entry.last_answer = view.last_answer;
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
