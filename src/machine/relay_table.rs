//! State of the relays: backoff after their own failures, and messages with a failure that may be the relay's. Relays
//! are identified by their position in the configuration.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use crate::base::id::{AccountId, MessageId};
use crate::base::time::Timestamp;

/// Backoff of a relay after its first, second, ... failure in a row.
const BACKOFF_SECS: [u64; 4] = [60, 120, 300, 600];
/// Maximum number of stored messages whose failure may be the relay's.
const DOUBTFUL_MAX: usize = 4096;

/// Time after which a relay that takes no mail is blamed for refusals of one account.
const REFUSED_MAX: Duration = Duration::from_secs(600);

/// A message that a relay has refused from MAIL on, as if a login were missing.
#[derive(Debug, Clone, Copy)]
pub struct RefusedMessage {
    /// The message.
    pub id: MessageId,
    /// The message's account.
    pub account: AccountId,
    /// Whether the relay has a login, which it accepted before.
    pub has_login: bool,
}

/// Position of a relay in the configuration.
pub type RelayNumber = usize;

/// State of all relays.
#[derive(Debug, Default)]
pub struct RelayTable {
    faults: BTreeMap<RelayNumber, FaultSeries>,
    doubtful: HashSet<MessageId>,
    evidence: BTreeMap<RelayNumber, LoginEvidence>,
}

/// Accounts whose mail a relay took and refused. They show whether a refusal from MAIL on is about its login or about a
/// message.
#[derive(Debug, Default)]
struct LoginEvidence {
    /// The last three accounts whose mail it took and has not refused since, and the times of their last messages.
    took: [Option<(AccountId, Timestamp)>; 3],
    /// The account whose mail it has refused since it took the last message, and the time of the first refusal.
    refused: Option<(AccountId, Timestamp)>,
}

/// Cause of a failure that may be about a message, or about the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCause {
    /// The message.
    Message,
    /// The relay, or the account of the message: no mail of other accounts shows which.
    RelayOrAccount,
    /// The relay.
    Relay,
}

impl LoginEvidence {
    /// Returns the cause of a refused message of `account`. The relay is the cause if it also refused mail of another
    /// account, and has lately taken no mail of a third account. Without a login, the relay may also be the cause if it
    /// took no mail of other accounts, or no mail at all for some time. With a login it can't be the cause in that
    /// case, because it accepted the login before it refused the message.
    fn cause(&mut self, account: AccountId, has_login: bool, now: Timestamp) -> FailureCause {
        self.took = self.took.map(|took| took.filter(|(other, _)| *other != account));
        let (of, since) = *self.refused.get_or_insert((account, now));
        let mut others = self.took.iter().flatten();
        let takes_none = self.took.iter().all(Option::is_none);
        let refuses_two = of != account && !others.any(|(_, at)| now.since(*at) < REFUSED_MAX);
        if refuses_two {
            FailureCause::Relay
        } else if !has_login && (takes_none || now.since(since) >= REFUSED_MAX) {
            FailureCause::RelayOrAccount
        } else {
            FailureCause::Message
        }
    }

    fn takes(&mut self, account: AccountId, now: Timestamp) {
        self.refused = None;
        let mut others = self.took.into_iter().flatten().filter(|(other, _)| *other != account);
        self.took = [Some((account, now)), others.next(), others.next()];
    }
}

/// The failures of a relay in a row.
#[derive(Debug)]
struct FaultSeries {
    held_until: Timestamp,
    in_a_row: usize,
    since: Timestamp,
    why: String,
    /// The account whose mail alone met the failure, if it may be about that account.
    only: Option<AccountId>,
}

/// Backoff of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayBackoff {
    /// The end of the backoff.
    pub until: Timestamp,
    /// Whether this failure began the backoff. Several messages may meet the same failure, which counts once.
    pub is_new: bool,
}

impl RelayTable {
    /// Returns the end of a relay's backoff for mail of `account`, if it is in the future. A failure that may be about
    /// another account holds back only that account's mail, so the next message of others shows whether the relay
    /// works.
    pub fn held_until(&self, relay: RelayNumber, account: AccountId, now: Timestamp) -> Option<Timestamp> {
        let fault = self.faults.get(&relay)?;
        let concerns = fault.only.is_none_or(|only| only == account);
        Some(fault.held_until).filter(|until| concerns && *until > now)
    }

    /// Returns the end of a relay's backoff for mail of all accounts, if it is in the future.
    pub fn held_for_all_until(&self, relay: RelayNumber, now: Timestamp) -> Option<Timestamp> {
        let fault = self.faults.get(&relay).filter(|fault| fault.only.is_none())?;
        Some(fault.held_until).filter(|until| *until > now)
    }

    /// Returns the start of a relay's failures in a row, and the kind of the last one.
    pub fn fault(&self, relay: RelayNumber) -> Option<(Timestamp, &str)> {
        self.faults.get(&relay).map(|fault| (fault.since, fault.why.as_str()))
    }

    /// Records a failure of a relay. `why` is the kind of failure, without any recipient. `only` is the account of the
    /// message that met it, if it may be about that account.
    pub fn failed(&mut self, relay: RelayNumber, now: Timestamp, why: &str, only: Option<AccountId>) -> RelayBackoff {
        if let Some(fault) = self.faults.get_mut(&relay).filter(|fault| fault.held_until > now) {
            fault.only = fault.only.filter(|account| Some(*account) == only);
            return RelayBackoff { until: fault.held_until, is_new: false };
        }
        let before = self.faults.get(&relay);
        let in_a_row = before.map_or(0, |fault| fault.in_a_row);
        let since = before.map_or(now, |fault| fault.since);
        let until = now + Duration::from_secs(BACKOFF_SECS[in_a_row.min(BACKOFF_SECS.len() - 1)]);
        let fault = FaultSeries { held_until: until, in_a_row: in_a_row + 1, since, why: why.to_owned(), only };
        self.faults.insert(relay, fault);
        RelayBackoff { until, is_new: true }
    }

    /// Moves all times, because the service's time was set back.
    pub fn set_back(&mut self, by: Duration) {
        for fault in self.faults.values_mut() {
            (fault.held_until, fault.since) = (fault.held_until - by, fault.since - by);
        }
        for evidence in self.evidence.values_mut() {
            for (_, at) in evidence.took.iter_mut().chain([&mut evidence.refused]).flatten() {
                *at = *at - by;
            }
        }
    }

    /// Records that a relay works. Returns whether it had failed before.
    pub fn works(&mut self, relay: RelayNumber) -> bool {
        self.faults.remove(&relay).is_some()
    }

    /// Records that a relay took a message of `account`.
    pub fn takes(&mut self, relay: RelayNumber, account: AccountId, now: Timestamp) {
        self.evidence.entry(relay).or_default().takes(account, now);
    }

    /// Returns the cause of a failure that a message may have caused. The relay is charged only the first time that the
    /// message meets it, and not if it takes mail of other accounts. Otherwise one account could stop the mail of all.
    pub fn cause_of(&mut self, relay: RelayNumber, refused: RefusedMessage, now: Timestamp) -> FailureCause {
        let RefusedMessage { id, account, has_login } = refused;
        if self.doubtful.len() >= DOUBTFUL_MAX {
            self.doubtful.clear();
        }
        if !self.doubtful.insert(id) {
            return FailureCause::Message;
        }
        self.evidence.entry(relay).or_default().cause(account, has_login, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn each_fault_in_a_row_backs_off_for_longer_and_counts_once() {
        let (mut table, mut now) = (RelayTable::default(), NOW);
        for seconds in [60, 120, 300, 600, 600] {
            let RelayBackoff { until, is_new } = table.failed(1, now, "no login", None);
            assert_eq!((until.since(now), is_new), (Duration::from_secs(seconds), true));
            assert_eq!(table.failed(1, now, "no login", None), RelayBackoff { until, is_new: false });
            assert_eq!((table.held_for_all_until(1, now), table.held_for_all_until(0, now)), (Some(until), None));
            now = until;
        }
        assert_eq!((table.fault(1), table.held_for_all_until(1, now)), (Some((NOW, "no login")), None));
        assert!(table.works(1) && !table.works(1) && table.fault(1).is_none());
        assert_eq!(table.failed(1, now, "no login", None).until, now + Duration::from_secs(60));
    }

    #[test]
    fn a_failure_that_may_be_about_one_account_holds_only_its_mail_until_others_meet_it() {
        let mut table = RelayTable::default();
        let [a, b] = [1, 2].map(|number| AccountId(Ulid([number; 16])));
        let until = NOW + Duration::from_secs(60);
        let held = |table: &RelayTable| {
            ([a, b].map(|account| table.held_until(1, account, NOW).is_some()), table.held_for_all_until(1, NOW))
        };
        table.failed(1, NOW, "no login", Some(a));
        assert_eq!(held(&table), ([true, false], None));
        assert_eq!(table.failed(1, NOW, "no login", Some(a)), RelayBackoff { until, is_new: false });
        assert_eq!(held(&table), ([true, false], None));
        table.failed(1, NOW, "no login", Some(b));
        assert_eq!(held(&table), ([true; 2], Some(until)));
    }

    #[test]
    fn a_failure_possibly_caused_by_the_message_is_charged_to_the_relay_once() {
        let mut table = RelayTable::default();
        let (account, message) = (AccountId::default(), MessageId::default());
        let refused = RefusedMessage { id: message, account, has_login: false };
        assert_eq!(table.cause_of(1, refused, NOW), FailureCause::RelayOrAccount);
        assert_eq!(table.cause_of(1, refused, NOW), FailureCause::Message);
    }

    #[test]
    fn a_relay_that_takes_mail_of_others_is_not_blamed_for_one_account() {
        let mut table = RelayTable::default();
        let [a, b] = [1, 2].map(|number| AccountId(Ulid([number; 16])));
        let mut messages = (0..).map(|number| MessageId(Ulid([number; 16])));
        let mut refuses = |table: &mut RelayTable, account, now| {
            let refused = RefusedMessage { id: messages.next().unwrap(), account, has_login: false };
            table.cause_of(1, refused, now) != FailureCause::Message
        };
        table.takes(1, a, NOW);
        assert!(refuses(&mut table, a, NOW), "it took no mail of others");
        table.takes(1, b, NOW);
        assert!((0..50).all(|_| !refuses(&mut table, a, NOW)));
        assert!(refuses(&mut table, b, NOW), "it refuses both");
        table.takes(1, b, NOW);
        assert!(!refuses(&mut table, a, NOW) && !refuses(&mut table, a, NOW + Duration::from_secs(599)));
        assert!(refuses(&mut table, a, NOW + REFUSED_MAX), "it took no mail for ten minutes");
        assert!(table.evidence.len() == 1);
    }

    #[test]
    fn a_relay_that_accepted_the_login_is_blamed_only_for_two_accounts() {
        let mut table = RelayTable::default();
        let [a, b] = [1, 2].map(|number| AccountId(Ulid([number; 16])));
        let mut messages = (0..).map(|number| MessageId(Ulid([number; 16])));
        let mut refuses = |account, now| {
            let refused = RefusedMessage { id: messages.next().unwrap(), account, has_login: true };
            table.cause_of(1, refused, now) != FailureCause::Message
        };
        assert!(!refuses(a, NOW) && !refuses(a, NOW + 2 * REFUSED_MAX), "it took no mail since the start");
        assert!(refuses(b, NOW + 2 * REFUSED_MAX));
    }

    #[test]
    fn a_relay_that_lately_took_mail_of_a_third_account_is_not_blamed_for_two() {
        let mut table = RelayTable::default();
        let [a, b, c] = [1, 2, 3].map(|number| AccountId(Ulid([number; 16])));
        let mut messages = (0..).map(|number| MessageId(Ulid([number; 16])));
        let mut refuses = |table: &mut RelayTable, account, now| {
            let refused = RefusedMessage { id: messages.next().unwrap(), account, has_login: true };
            table.cause_of(1, refused, now) != FailureCause::Message
        };
        [a, b, c].into_iter().for_each(|account| table.takes(1, account, NOW));
        assert!(!refuses(&mut table, a, NOW) && !refuses(&mut table, b, NOW), "it serves the third");
        assert!(refuses(&mut table, c, NOW), "it refuses the third too");
        table.takes(1, c, NOW);
        assert!(!refuses(&mut table, a, NOW) && refuses(&mut table, b, NOW + REFUSED_MAX), "it took nothing since");
    }
}
