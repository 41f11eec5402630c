//! The part of the queue that belongs to one account, counted by site and relay. Thousands of messages are counted for
//! a page, so only the first fields of their rows are read. The site of each domain is looked up once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Transfers;
use super::listing::Names;
use super::relays::Number;
use crate::base::id::{AccountId, MessageId};
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::hostname::DomainName;
use crate::domain::site_name::SiteName;
use crate::engine::queue::{PausedDomain, SiteKey};
use crate::store::error::StoreError;
use crate::store::read::{Read, sound};
use crate::store::row::message::MessageRow;
use crate::store::row::message_head::{MessageHead, TransferHead};
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;

/// Pauses of an account by name, each with its start.
pub(super) type Pauses = BTreeMap<String, (SiteName, Timestamp)>;

/// Counts of an account's messages for one site.
#[derive(Default)]
pub(super) struct Part {
    pub(super) waiting: u64,
    pub(super) in_flight: u64,
    pub(super) domains: BTreeSet<DomainName>,
    pub(super) oldest_at: Option<Timestamp>,
    pub(super) next_at: Option<Timestamp>,
    /// The later an attempt was, the later the next one is due.
    pub(super) last_tried: Option<((bool, Option<Timestamp>), MessageId)>,
    pub(super) paused_domains: BTreeMap<SiteName, PausedDomain>,
}

impl Part {
    /// Counts a message, whose recipient's domain may have a pause. A paused message has no next attempt.
    fn add(
        &mut self,
        id: MessageId,
        transfer: &TransferHead,
        is_on_the_wire: bool,
        pause: Option<&(SiteName, Timestamp)>,
    ) {
        if is_on_the_wire {
            self.in_flight += 1;
        } else if let Some((name, since)) = pause {
            self.waiting += 1;
            let empty = || PausedDomain { name: name.clone(), since: *since, waiting: 0 };
            self.paused_domains.entry(name.clone()).or_insert_with(empty).waiting += 1;
        } else {
            self.waiting += 1;
            self.next_at = [self.next_at, transfer.due].into_iter().flatten().min();
        }
        self.last_tried = self.last_tried.max(Some(((transfer.attempts > 0, transfer.due), id)));
    }
}

/// The counts of an account's messages, while they are read.
pub(super) struct Parts<'a> {
    transfers: &'a Transfers,
    snapshot: &'a Snapshot,
    account: AccountId,
    pauses: &'a Pauses,
    found: Vec<(SiteKey, Part)>,
    /// Places of the parts.
    places: HashMap<SiteKey, usize>,
    /// Places of the parts by domain and relay, where all mail of a domain goes one way.
    known: HashMap<String, BTreeMap<Number, usize>>,
}

impl<'a> Parts<'a> {
    pub(super) fn new(
        transfers: &'a Transfers,
        snapshot: &'a Snapshot,
        account: AccountId,
        pauses: &'a Pauses,
    ) -> Self {
        let (found, places, known) = (Vec::new(), HashMap::new(), HashMap::new());
        Self { transfers, snapshot, account, pauses, found, places, known }
    }

    /// Counts a message of the account. Messages come in the order of their identifiers.
    pub(super) fn add(&mut self, id: MessageId) -> Result<(), StoreError> {
        let key = schema::message(self.account, id);
        let row = sound(self.snapshot.get(Table::Messages, &key))?.flatten();
        let transfer = sound(self.snapshot.get(Table::Transfers, &key))?.flatten();
        let head = row.as_deref().and_then(MessageHead::read);
        let transfer = transfer.as_deref().and_then(TransferHead::read);
        if let (Some(head), Some(transfer)) = (head, transfer)
            && let Some(place) = self.place_of(&head, id)?
        {
            let ((site, _), part) = &mut self.found[place];
            // If a site's mail servers are unknown, the site has the domain's name. The pause then applies to the site.
            let pause = self.pauses.get(head.to_domain()).filter(|_| site != head.to_domain());
            part.add(id, &transfer, self.transfers.shared.leases.is_taken(id), pause);
        }
        Ok(())
    }

    /// Returns the parts with their sites and relays.
    pub(super) fn into_sorted(self) -> Vec<(SiteKey, Part)> {
        let mut found = self.found;
        found.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        found
    }

    /// Returns the place of the part to which a message belongs. `None` if its row is damaged.
    fn place_of(&mut self, head: &MessageHead<'_>, id: MessageId) -> Result<Option<usize>, StoreError> {
        let relay = self.transfers.first_relay(head.stream, id);
        if let Some(place) = self.known.get(head.to_domain()).and_then(|of_domain| of_domain.get(&relay)) {
            return Ok(Some(*place));
        }
        let Ok(to) = head.to_as_given().parse::<Address>() else { return Ok(None) };
        let way = self.transfers.way_of(relay, &to, &mut Names::new());
        let place = match self.places.get(&way) {
            Some(place) => *place,
            None => {
                let row = self.snapshot.sound_row::<MessageRow>(&schema::message(self.account, id))?;
                let oldest_at = row.map(|row| row.created_at);
                self.found.push((way.clone(), Part { oldest_at, ..Part::default() }));
                self.places.insert(way, self.found.len() - 1);
                self.found.len() - 1
            }
        };
        self.found[place].1.domains.insert(to.domain().clone());
        // `dev` delivers some addresses of a domain and captures others.
        if self.transfers.shared.capture.is_none() {
            self.known.entry(head.to_domain().to_owned()).or_default().insert(relay, place);
        }
        Ok(Some(place))
    }
}
