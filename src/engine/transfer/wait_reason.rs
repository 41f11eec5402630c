//! Reasons why a message waits, from the state of the destination queues, relays and lookups.

use std::borrow::Cow;
use std::sync::Arc;

use super::Transfers;
use super::destination_queue::DestinationQueue;
use super::relays::Number;
use super::routes::DomainState;
use super::site::Site;
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::event::AttemptFacts;
use crate::engine::lease::Step;
use crate::engine::messages::MessageRecord;
use crate::engine::relay::{RelayWay, next_day};
use crate::engine::wait_reason::{Wait, WaitReason};
use crate::machine::destination::Obstacle;

/// Explanation if the connections of the service are short, not those of the site.
const ALL_IN_USE: &str = "All connections are in use.";

impl Transfers {
    fn obstacle(&self, queue: &DestinationQueue, account: &AccountId) -> Obstacle {
        let moment = self.shared.moment();
        let destinations = self.shared.destinations();
        destinations.scheduler.get(queue.id).map_or(Obstacle::Nothing, |own| own.obstacle(account, moment))
    }

    /// Returns the reason why a message of `account` with the timer `due` waits.
    pub(super) fn reason_of(&self, account: AccountId, record: &MessageRecord, due: Timestamp) -> Wait {
        let now = self.shared.now();
        if due > now {
            self.wait_for_later(account, record, due, now)
        } else {
            self.wait_of_due(account, record, due, now)
        }
    }

    /// Returns the reason why a message waits whose next attempt is due later.
    fn wait_for_later(&self, account: AccountId, record: &MessageRecord, due: Timestamp, now: Timestamp) -> Wait {
        let MessageRecord { row, transfer, .. } = record;
        let wait = |reason, detail| Wait { reason, since: transfer.status_at, until: Some(due), detail };
        let domain = row.to.domain();
        if transfer.unreadable_since.is_some() {
            return wait(WaitReason::Backoff, "The content of the message could not be read.".to_owned());
        }
        if due >= next_day(now) && self.is_used_up(account, record) {
            let detail = "The relays have sent as much as they may in one day while they warm up.".to_owned();
            return wait(WaitReason::Relay, detail);
        }
        let was_asked = transfer.last.mx_host.is_some();
        if !was_asked
            && transfer.crashes == 0
            && matches!(self.shared.routes.seen(domain), DomainState::Nothing | DomainState::Asked(_))
        {
            return wait(
                WaitReason::Dns,
                format!("The mail servers of {domain} could not be looked up, or have just changed."),
            );
        }
        if transfer.attempts == 0 {
            let obstacle = self.queue_of(account, record, now).map(|queue| (self.obstacle(&queue, &account), queue));
            return match obstacle {
                // The message expires before the site is tried again.
                Some((Obstacle::Throttled { since, last_answer, .. }, queue)) => {
                    let detail = throttled(&queue.site, last_answer.as_deref());
                    Wait { since, ..wait(WaitReason::Throttled, detail) }
                }
                _ => wait(WaitReason::Busy, "There was not enough memory for the message.".to_owned()),
            };
        }
        let is_last = due >= self.shared.engine.clock.time().deadline(row.give_up_at);
        let end = if is_last { " There is no further attempt before the message expires." } else { "" };
        wait(WaitReason::Backoff, format!("{}{end}", failed(&transfer.last)))
    }

    /// Returns the reason why a due message waits.
    fn wait_of_due(&self, account: AccountId, record: &MessageRecord, due: Timestamp, now: Timestamp) -> Wait {
        let shared = &self.shared;
        let busy = |detail| Wait { reason: WaitReason::Busy, since: due, until: None, detail };
        let looked_up = |since, detail| Wait { reason: WaitReason::Dns, since, until: None, detail };
        let step = shared.leases.step(record.id);
        if shared.leases.is_taken(record.id) {
            return busy(match step {
                Some(Step::Memory) => "The content of other messages uses all memory.".to_owned(),
                _ => "The message is being sent.".to_owned(),
            });
        }
        if let Some(wait) = self.wait_for_relay(account, record, now) {
            return wait;
        }
        let domain = record.row.to.domain();
        let Some(queue) = self.queue_of(account, record, now) else {
            return match self.shared.routes.seen(domain) {
                DomainState::Asked(waited) if !self.goes_to_smarthost(account, record, now) => {
                    looked_up(now - waited, format!("The mail servers of {domain} are being looked up."))
                }
                DomainState::Nothing
                    if self.shared.routes.is_full() && !self.goes_to_smarthost(account, record, now) =>
                {
                    looked_up(due, format!("The mail servers of {domain} are looked up after those of other messages."))
                }
                DomainState::Asked(_) | DomainState::At(_) | DomainState::Nothing => {
                    busy("The message is about to be sent.".to_owned())
                }
            };
        };
        let site = queue.site.name_for_people();
        let throttled_by = |since, until, detail| Wait { reason: WaitReason::Throttled, since, until, detail };
        match step {
            Some(Step::Lookup) => {
                return looked_up(due, format!("The servers of {site} are being looked up."));
            }
            Some(Step::Pace) => {
                return throttled_by(due, None, format!("{site} takes no more connections in this minute."));
            }
            Some(Step::Server) => return busy(format!("All connections to a server of {site} are in use.")),
            // The message has one of the site's places, and waits for one of the service's connections.
            Some(Step::Permit) => return busy(ALL_IN_USE.to_owned()),
            Some(Step::Connecting) => return busy(format!("A connection to {site} is being opened.")),
            Some(Step::Sending | Step::Memory) | None => {}
        }
        match self.obstacle(&queue, &account) {
            Obstacle::Throttled { since, until: None, .. } => {
                throttled_by(since, None, format!("One attempt checks whether {site} takes mail again."))
            }
            Obstacle::Throttled { since, until, last_answer } => {
                throttled_by(since, until, throttled(&queue.site, last_answer.as_deref()))
            }
            Obstacle::Paced(until) => {
                throttled_by(due, Some(until), format!("{site} takes no more messages in this minute."))
            }
            Obstacle::Fewer(until) => {
                let detail = format!("{site} has asked for fewer connections, and all of them are in use.");
                throttled_by(due, Some(until), detail)
            }
            Obstacle::Window => busy(format!("All connections to {site} are in use.")),
            Obstacle::Unconnected | Obstacle::Nothing if shared.has_permit_waiters() => busy(ALL_IN_USE.to_owned()),
            Obstacle::Unconnected | Obstacle::Nothing => busy("The message is about to be sent.".to_owned()),
        }
    }

    /// Returns the failure of its relays, if none of them can be used.
    fn wait_for_relay(&self, account: AccountId, record: &MessageRecord, now: Timestamp) -> Option<Wait> {
        let order = self.relays_of(record);
        if self.is_in_house(record)
            || order.iter().any(|&number| self.shared.held_until(number, account, now).is_none())
        {
            return None;
        }
        let held = order.iter().filter_map(|&number| Some((self.shared.held_until(number, account, now)?, number)));
        let (until, number) = held.min()?;
        let destinations = self.shared.destinations();
        let (since, why) = destinations.relays.fault(number)?;
        let detail = format!("Relay {} can't be used: {why}.", self.shared.relays.relay(number).name);
        Some(Wait { reason: WaitReason::Relay, since, until: Some(until), detail })
    }

    fn relays_of(&self, record: &MessageRecord) -> Vec<Number> {
        let MessageRecord { id, row, transfer, .. } = record;
        self.shared.relays.order_after(row.stream, *id, transfer.last.relay.as_deref())
    }

    fn is_in_house(&self, record: &MessageRecord) -> bool {
        self.shared.capture.as_ref().is_some_and(|route| route(&record.row.to).is_some())
    }

    /// Returns whether no relay may send the message today.
    fn is_used_up(&self, account: AccountId, record: &MessageRecord) -> bool {
        let is_used_up = |number: &Number| {
            let site = self.site_by(*number, record).map_or(Cow::Borrowed(""), |site| site.name().into_owned().into());
            self.shared.is_used_up(*number, &site, account).unwrap_or(false)
        };
        !self.is_in_house(record) && self.relays_of(record).iter().all(is_used_up)
    }

    /// Returns the relay that the message would take now.
    fn relay_of(&self, account: AccountId, record: &MessageRecord, now: Timestamp) -> Option<Number> {
        let order = self.relays_of(record);
        let is_free = |number: &&Number| self.shared.held_until(**number, account, now).is_none();
        order.iter().find(is_free).or(order.first()).copied()
    }

    fn goes_to_smarthost(&self, account: AccountId, record: &MessageRecord, now: Timestamp) -> bool {
        let way = self.relay_of(account, record, now).map(|number| &self.shared.relays.relay(number).way);
        matches!(way, Some(RelayWay::Smarthost(_)))
    }

    fn site_by(&self, number: Number, record: &MessageRecord) -> Option<Site> {
        match &self.shared.relays.relay(number).way {
            RelayWay::Smarthost(smarthost) => Some(Site::of_smarthost(smarthost)),
            RelayWay::Mx => self.shared.routes.last_seen(record.row.to.domain()),
        }
    }

    /// Returns the destination queue of the message, if its site is known.
    fn queue_of(&self, account: AccountId, record: &MessageRecord, now: Timestamp) -> Option<Arc<DestinationQueue>> {
        let number = self.relay_of(account, record, now)?;
        let capture = self.shared.capture.as_ref().and_then(|route| route(&record.row.to)).map(Site::Captured);
        let site = capture.or_else(|| self.site_by(number, record))?;
        self.shared.destinations().find(number, site)
    }
}

/// Returns the reason why a site is throttled. Only the code of its last answer is shown, because the text may contain
/// another account's recipient.
fn throttled(site: &Site, last_answer: Option<&str>) -> String {
    let site = site.name_for_people();
    match last_answer.and_then(code) {
        Some(code) => format!("{site} is throttled since it answered {code}."),
        None => format!("{site} could not be reached at the last attempts, so it is tried again later."),
    }
}

/// Returns the code at the start of an answer, and its enhanced code.
fn code(answer: &str) -> Option<&str> {
    let is_code = |word: &str| word.len() == 3 && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_enhanced = |word: &str| {
        word.split('.').count() == 3 && word.split('.').all(|part| part.parse::<u16>().is_ok() && part.len() <= 3)
    };
    let end = answer.find(|c: char| !c.is_ascii_digit()).unwrap_or(answer.len());
    let code = answer.get(..end).filter(|code| is_code(code))?;
    let rest = answer.get(end + 1..).unwrap_or_default();
    let enhanced = rest.split_whitespace().next().filter(|word| is_enhanced(word) && rest.starts_with(word));
    Some(enhanced.map_or(code, |enhanced| &answer[..=end + enhanced.len()]))
}

/// Describes the failure of the last attempt.
fn failed(last: &AttemptFacts) -> String {
    match (&last.mx_host, last.smtp_code) {
        (Some(host), Some(code)) => {
            let enhanced = last.smtp_enhanced_code.as_ref().map(|code| format!(" {code}")).unwrap_or_default();
            format!("The last attempt failed: {host} answered {code}{enhanced}.")
        }
        (Some(host), None) => format!("The last attempt failed: {host} could not be reached, or did not answer."),
        (None, _) => "The last attempt failed.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_answer_only_its_codes_are_shown() {
        assert_eq!(code("421 4.7.28 ann@example.net sends too much"), Some("421 4.7.28"));
        assert_eq!(code("421-4.7.28 one\n421 4.7.28 two"), Some("421-4.7.28"));
        assert_eq!(code("451 ann@example.net later"), Some("451"));
        assert_eq!(code("451"), Some("451"));
        assert_eq!(
            [code("connection refused by ann"), code(""), code("4510 x"), code("451\u{e9}")].map(|c| c),
            [None, None, None, Some("451")]
        );
    }
}
