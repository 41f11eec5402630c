//! What comes back by mail (contract 6): which mailboxes are ours, and what a message to one of them does.
//!
//! The listener asks [`Receiver::mailbox`] at every RCPT and gives [`Receiver::receive`] the message; it answers 250
//! only when that has returned, which is after the commit. Nothing is ever sent from here: no relay, no bounce.

mod news;
mod tally;
#[cfg(test)]
mod tests;
mod tokens;

pub use tally::{Tally, Taken};

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::Engine;
use super::accounts::accounts_of_hint;
use super::lease::Lease;
use super::waiting::Leased;
use crate::base::id::{AccountId, Ulid};
use crate::domain::hostname::DomainName;
use crate::domain::return_path::{self, InvalidReturnPath, Parsed, ReturnPath};
use crate::machine::transfer::Wire;
use crate::mail::feedback::FEEDBACK_MAILBOX;
use crate::mail::report::{self, Report};
use crate::smtp::rules::Rules;
use crate::store::error::{Stop, StoreError};
use crate::store::op::report::{MessageNews, RecordReport};
use crate::store::read::Read;
use crate::store::row::message::MessageRow;
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;

/// Mailboxes that RFC 2142 asks for; people read them elsewhere.
const PEOPLES_MAILBOXES: [&str; 2] = ["postmaster", "abuse"];
/// Messages that are read at once; the others wait in their connections, which are counted.
const READING_MAX: usize = 4;
/// Octets of a header section (contract 6).
const HEADER_OCTETS_MAX: usize = 64 * 1024;
/// How long a report waits for the outcome of the attempt that it overtook, so that the timeline tells them in order.
const OVERTAKING: Duration = Duration::from_secs(5);

/// A mailbox of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mailbox {
    /// The return path of a message.
    ReturnPath(ReturnPath),
    /// Where mailbox providers send complaints.
    Feedback,
    /// For people.
    People,
}

/// Why an address is no mailbox of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotOurs {
    /// Its host is another's: we relay for nobody.
    Host,
    /// There is no such mailbox; a token that is not ours looks the same.
    Mailbox,
    /// A return path whose time is over.
    Expired,
}

/// Why a message is not taken.
#[derive(Debug)]
pub enum ReceiveError {
    /// Its header section is too large.
    HeaderTooLarge,
    /// We failed: it may be sent again.
    Failed(StoreError),
}

impl From<StoreError> for ReceiveError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// Takes what comes back.
pub struct Receiver {
    engine: Arc<Engine>,
    rules: Arc<Rules>,
    reading: Semaphore,
    /// What was taken since the start.
    pub tally: Tally,
}

impl Receiver {
    /// A receiver that judges what reports say by `rules`, as live answers are.
    pub fn new(engine: Arc<Engine>, rules: Arc<Rules>) -> Self {
        Self { engine, rules, reading: Semaphore::new(READING_MAX), tally: Tally::default() }
    }

    /// Which mailbox an address is. The bare `<Postmaster>` of RFC 5321 4.5.1 has an empty domain.
    ///
    /// # Errors
    /// Those of the store.
    pub fn mailbox(&self, local: &str, domain: &str) -> Result<Result<Mailbox, NotOurs>, StoreError> {
        let is_peoples = PEOPLES_MAILBOXES.iter().any(|name| local.eq_ignore_ascii_case(name));
        if domain.is_empty() && is_peoples {
            return Ok(Ok(Mailbox::People));
        }
        let snapshot = self.engine.store.snapshot()?;
        let Some(host) = self.host(&snapshot, domain)? else { return Ok(Err(NotOurs::Host)) };
        if is_peoples {
            return Ok(Ok(Mailbox::People));
        }
        if local.eq_ignore_ascii_case(FEEDBACK_MAILBOX) {
            return Ok(Ok(Mailbox::Feedback));
        }
        let Ok(parsed) = return_path::decode(local) else { return Ok(Err(NotOurs::Mailbox)) };
        Ok(match self.verify(&snapshot, &parsed)? {
            Ok(path) if host.is_for(path.account) => Ok(Mailbox::ReturnPath(path)),
            Ok(_) | Err(InvalidReturnPath::Malformed | InvalidReturnPath::Forged) => Err(NotOurs::Mailbox),
            Err(InvalidReturnPath::Expired) => Err(NotOurs::Expired),
        })
    }

    /// Takes a message for `mailboxes`: when this returns, what it reports is on the disk.
    ///
    /// # Errors
    /// Why it is not taken.
    pub async fn receive(&self, mailboxes: &[Mailbox], message: Vec<u8>) -> Result<Taken, ReceiveError> {
        if has_large_header(&message) {
            return Err(ReceiveError::HeaderTooLarge);
        }
        let is_machines = |mailbox: &Mailbox| !matches!(mailbox, Mailbox::People);
        let taken = if mailboxes.iter().any(is_machines) {
            let report = self.read(message).await?;
            self.act(mailboxes, &report).await?
        } else {
            Taken::Letter
        };
        self.tally.count(taken);
        tracing::info!(what = taken.as_str(), "mail came back");
        Ok(taken)
    }

    /// Reads a message where no other task waits for it.
    async fn read(&self, message: Vec<u8>) -> Result<Report, StoreError> {
        let _turn = self.reading.acquire().await;
        tokio::task::spawn_blocking(move || report::read(&message)).await.map_err(|_| StoreError::Panicked)
    }

    async fn act(&self, mailboxes: &[Mailbox], report: &Report) -> Result<Taken, StoreError> {
        if let Some(taken) = news::nothing_in(report) {
            return Ok(taken);
        }
        let subjects = self.subjects(mailboxes, report)?;
        if subjects.is_empty() {
            return Ok(Taken::Untied);
        }
        let (mut messages, mut leases, mut kind) = (Vec::new(), Vec::<Lease>::new(), Taken::NoNews);
        let mut crowded = Vec::new();
        for (path, row) in subjects {
            let Some((taken, news)) = news::of(report, &row, &self.rules) else { continue };
            let lease = self.engine.leases.take_within(path.message, OVERTAKING).await;
            let wire = if lease.is_some() { Wire::Idle } else { Wire::Busy };
            leases.extend(lease);
            let others = if news.suppresses() {
                self.engine.lease_waiting(path.account, [&row.to])?
            } else {
                Leased::default()
            };
            leases.extend(others.leases);
            if others.is_full {
                crowded.push((path.account, row.to));
            }
            let (account, message, others) = (path.account, path.message, others.messages);
            messages.push(MessageNews { account, message, wire, news, others });
            kind = taken;
        }
        if messages.is_empty() {
            return Ok(kind);
        }
        let heard = match self.engine.commit_leased(RecordReport { messages }, leases).await {
            Ok(heard) => heard,
            Err(Stop::Failed(error)) => return Err(error),
            Err(Stop::Refused(never)) => match never {},
        };
        for (account, address) in crowded {
            self.engine.end_waiting(account, &[address]).await?;
        }
        Ok(if heard == 0 { Taken::Repeated } else { kind })
    }

    /// The messages that the report is about, by what proves it: the mailboxes that it came to, else the first token
    /// of ours in what it returns. In the order of their identifiers, so that no two reports wait for each other.
    fn subjects(
        &self,
        mailboxes: &[Mailbox],
        report: &Report,
    ) -> Result<Vec<(ReturnPath, MessageRow)>, StoreError> {
        let snapshot = self.engine.store.snapshot()?;
        let mut paths: Vec<ReturnPath> = mailboxes
            .iter()
            .filter_map(|mailbox| match mailbox {
                Mailbox::ReturnPath(path) => Some(*path),
                Mailbox::Feedback | Mailbox::People => None,
            })
            .collect();
        if paths.is_empty() {
            for token in tokens::of(report) {
                if let Ok(path) = self.verify(&snapshot, &token)? {
                    paths.push(path);
                    break;
                }
            }
        }
        paths.sort_by_key(|path| path.message);
        paths.dedup();
        let mut subjects = Vec::new();
        for path in paths {
            let row: Option<MessageRow> = snapshot.row(&schema::message(path.account, path.message))?;
            subjects.extend(row.map(|row| (path, row)));
        }
        Ok(subjects)
    }

    /// Checks a token against every account of its hint, and that its message is there.
    fn verify(&self, read: &Snapshot, token: &Parsed) -> Result<Result<ReturnPath, InvalidReturnPath>, StoreError> {
        let now = self.engine.clock.now();
        for account in accounts_of_hint(read, token.account_hint)? {
            match token.verify(account, &self.engine.settings.return_path_key, now) {
                Ok(path) => {
                    let is_there = read.get(Table::Messages, &schema::message(account, path.message))?.is_some();
                    return Ok(if is_there { Ok(path) } else { Err(InvalidReturnPath::Forged) });
                }
                Err(InvalidReturnPath::Expired) => return Ok(Err(InvalidReturnPath::Expired)),
                Err(InvalidReturnPath::Malformed | InvalidReturnPath::Forged) => {}
            }
        }
        Ok(Err(InvalidReturnPath::Forged))
    }

    /// Whose host `domain` is, where it is ours: the bounce host, or `rp.<domain>` of a domain that may be sent from.
    fn host(&self, read: &impl Read, domain: &str) -> Result<Option<Host>, StoreError> {
        let Ok(name) = domain.parse::<DomainName>() else { return Ok(None) };
        if name.as_str() == self.engine.settings.bounce_host {
            return Ok(Some(Host::Everyones));
        }
        let Some(sending) = name.as_str().strip_prefix("rp.") else { return Ok(None) };
        let owner = read.get(Table::DomainOwners, sending.as_bytes())?;
        let account = owner.as_deref().and_then(|key| key.first_chunk::<16>());
        Ok(account.map(|account| Host::Of(AccountId(Ulid(*account)))))
    }
}

/// Whose messages have their return paths at a host.
enum Host {
    Everyones,
    Of(AccountId),
}

impl Host {
    fn is_for(&self, account: AccountId) -> bool {
        match self {
            Self::Everyones => true,
            Self::Of(owner) => *owner == account,
        }
    }
}

/// Whether the header section alone is larger than any report's.
fn has_large_header(message: &[u8]) -> bool {
    let head = &message[..message.len().min(HEADER_OCTETS_MAX)];
    let ends = head.starts_with(b"\r\n") || head.windows(4).any(|four| four == b"\r\n\r\n");
    message.len() > HEADER_OCTETS_MAX && !ends
}
