//! The simulator (contract 8): addresses at `simulator.test` whose local part selects the outcome of their mail.
//!
//! It is pure but for one count: how often each message to `deferred` was deferred.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::smtp::server::{Answer, Path};

/// The simulator's domain.
pub(super) const DOMAIN: &str = "simulator.test";
/// The host name of the simulator's mail server.
pub(super) const HOSTNAME: &str = "mx.simulator.test";
/// Number of times that `deferred` defers a message before it accepts it.
const DEFERRALS: u8 = 2;
/// Maximum number of messages to `deferred` that are remembered; beyond it the oldest start again.
const REMEMBERED_MAX: usize = 65_536;

/// Outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Delivered,
    Bounced,
    Blocked,
    Deferred,
    Full,
    Timeout,
    Complained,
    LateBounce,
}

impl Outcome {
    const ALL: [Self; 8] = [
        Self::Delivered,
        Self::Bounced,
        Self::Blocked,
        Self::Deferred,
        Self::Full,
        Self::Timeout,
        Self::Complained,
        Self::LateBounce,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Bounced => "bounced",
            Self::Blocked => "blocked",
            Self::Deferred => "deferred",
            Self::Full => "full",
            Self::Timeout => "timeout",
            Self::Complained => "complained",
            Self::LateBounce => "late-bounce",
        }
    }
}

/// No outcome has this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnknownOutcome;

/// Returns the outcome of an address, or `None` if the address is not the simulator's. `+anything` after the local part
/// varies the address and not the outcome.
pub(super) fn outcome_of(local: &str, domain: &str) -> Option<Result<Outcome, UnknownOutcome>> {
    if !domain.eq_ignore_ascii_case(DOMAIN) {
        return None;
    }
    let name = local.split_once('+').map_or(local, |(name, _)| name);
    let found = Outcome::ALL.into_iter().find(|outcome| name.eq_ignore_ascii_case(outcome.name()));
    Some(found.ok_or(UnknownOutcome))
}

/// Answers RCPT for every address. Addresses that are not the simulator's are accepted.
pub(super) struct Simulator {
    deferrals: Mutex<Deferrals>,
}

impl Simulator {
    pub(super) fn new() -> Self {
        Self { deferrals: Mutex::new(Deferrals::new(REMEMBERED_MAX)) }
    }

    /// Returns the answer to RCPT.
    pub(super) fn answer(&self, mail_from: Option<&Path>, recipient: &Path) -> Answer {
        let ok = Answer::new(250, "2.1.5", format!("<{recipient}> recipient ok"));
        match outcome_of(recipient.local(), recipient.domain()) {
            None | Some(Ok(Outcome::Delivered | Outcome::Complained | Outcome::LateBounce)) => ok,
            Some(Ok(Outcome::Bounced)) => bounced(recipient),
            Some(Ok(Outcome::Blocked)) => blocked(),
            Some(Ok(Outcome::Full)) => Answer::new(452, "4.2.2", format!("<{recipient}> mailbox full, over quota")),
            Some(Ok(Outcome::Deferred)) => {
                if self.remembered().puts_off(key(mail_from, recipient)) {
                    defer_mail(recipient)
                } else {
                    ok
                }
            }
            // A client that reaches this listener did not connect to the silent one.
            Some(Ok(Outcome::Timeout)) => Answer::new(421, "4.4.2", "mx.simulator.test Error: timeout exceeded"),
            Some(Err(UnknownOutcome)) => unknown(recipient),
        }
    }

    /// Notes that the message was accepted: the next one with this return path is a new message.
    pub(super) fn taken(&self, mail_from: Option<&Path>, recipients: &[Path]) {
        for recipient in recipients {
            if let Some(Ok(Outcome::Deferred)) = outcome_of(recipient.local(), recipient.domain()) {
                self.remembered().forget(&key(mail_from, recipient));
            }
        }
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, Deferrals> {
        self.deferrals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the key that identifies a message before its content is known: its return path, which is unique.
fn key(mail_from: Option<&Path>, recipient: &Path) -> String {
    format!("{} {recipient}", mail_from.map(Path::to_string).unwrap_or_default())
}

fn bounced(recipient: &Path) -> Answer {
    Answer::new(
        550,
        "5.1.1",
        format!("<{recipient}>: Recipient address rejected: User unknown in virtual mailbox table"),
    )
}

fn blocked() -> Answer {
    Answer::new(550, "5.7.1", "Our system has detected that this message is likely unsolicited mail.")
        .and("To reduce the amount of spam sent to simulator.test, this message has been blocked.")
        .and("See https://simulator.test/blocked for more information.")
}

fn defer_mail(recipient: &Path) -> Answer {
    Answer::new(451, "4.7.1", format!("<{recipient}>: Recipient address rejected: Greylisted, please try again later"))
}

fn unknown(recipient: &Path) -> Answer {
    let names = Outcome::ALL.map(Outcome::name).join(", ");
    Answer::new(550, "5.1.1", format!("<{recipient}>: unknown simulator address; known are {names}"))
}

/// Number of deferrals of each recent message.
struct Deferrals {
    counts: HashMap<String, u8>,
    order: VecDeque<String>,
    max: usize,
}

impl Deferrals {
    fn new(max: usize) -> Self {
        Self { counts: HashMap::new(), order: VecDeque::new(), max }
    }

    /// Returns whether the message is deferred now, and counts it.
    fn puts_off(&mut self, key: String) -> bool {
        if let Some(count) = self.counts.get_mut(&key) {
            let puts_off = *count < DEFERRALS;
            *count += u8::from(puts_off);
            return puts_off;
        }
        while self.order.len() >= self.max {
            // An entry that was removed earlier is only dropped from the order.
            self.order.pop_front().and_then(|oldest| self.counts.remove(&oldest));
        }
        self.order.push_back(key.clone());
        self.counts.insert(key, 1);
        true
    }

    fn forget(&mut self, key: &str) {
        if self.counts.remove(key).is_some() && self.order.front().is_some_and(|oldest| oldest == key) {
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_deferred_twice_then_accepted_and_the_next_one_starts_again() {
        let mut deferrals = Deferrals::new(10);
        for _ in 0..2 {
            let tries = [0; 4].map(|_| deferrals.puts_off("a".to_owned()));
            assert_eq!(tries, [true, true, false, false]);
            deferrals.forget("a");
        }
        assert!(deferrals.counts.is_empty() && deferrals.order.is_empty());
    }

    #[test]
    fn the_number_of_remembered_deferrals_is_bounded() {
        let mut deferrals = Deferrals::new(3);
        for number in 0..100 {
            assert!(deferrals.puts_off(number.to_string()));
            deferrals.forget(&(number - 1).to_string());
            assert!(deferrals.order.len() <= 3 && deferrals.counts.len() <= 3);
        }
        assert_eq!(deferrals.counts.get("99"), Some(&1));
    }

    #[test]
    fn the_local_part_before_its_plus_selects_the_outcome() {
        assert_eq!(outcome_of("LATE-bounce+x+y", "SIMULATOR.test"), Some(Ok(Outcome::LateBounce)));
        assert_eq!(outcome_of("+delivered", "simulator.test"), Some(Err(UnknownOutcome)));
        assert_eq!(outcome_of("delivered", "sub.simulator.test"), None);
    }
}
