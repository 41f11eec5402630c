//! Returned mail (contract 6): our mailboxes, and the effect of a message to one of them.
//!
//! The listener calls [`Receiver::mailbox`] at every RCPT, then [`Receiver::receive`] with the message. It answers 250
//! only after `receive` has returned, which is after the commit. This module never sends mail: no relaying, no bounces.

mod dmarc;
mod mailbox;
mod news;
mod tally;
#[cfg(test)]
mod tests;
mod tokens;

pub use dmarc::{DmarcResult, DmarcTally};
pub use mailbox::{Mailbox, MailboxRefusal};
pub use tally::{AcceptedKind, ReceiptCounts};

use std::sync::Arc;
use std::time::Duration;

use tokens::Token;

use super::Engine;
use super::lease::Lease;
use super::ports::Requester;
use super::suppressed_messages::Leased;
use super::turn_permits::TurnPermits;
use crate::base::id::AccountId;
use crate::domain::address::Address;
use crate::domain::network::Network;
use crate::domain::return_path::{Parsed, ReturnPath};
use crate::machine::transfer::AttemptProgress;
use crate::mail::dkim_verify::{self, UnverifiedSignature};
use crate::mail::report::{self, Report};
use crate::smtp::rules::Rules;
use crate::store::error::{OpError, StoreError};
use crate::store::op::report::{RecordReport, ReportMeaning, ReportedMessage};
use crate::store::read::Read;
use crate::store::row::message::MessageRow;
use crate::store::schema;
use crate::store::snapshot::Snapshot;

/// Maximum number of messages parsed concurrently. Further ones wait in their connections, which are limited. Clients
/// take turns, so that one client's large messages do not delay those of others.
const READING_MAX: usize = 4;
/// Maximum size of a header section, in bytes (contract 6).
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Time for which an early report waits for the outcome of its attempt, so that the timeline has the right order.
const OVERTAKING: Duration = Duration::from_secs(5);
/// Time limit for looking up the keys of all of a complaint's signatures.
const KEY_LOOKUPS: Duration = Duration::from_secs(20);

/// Reason why a message is not accepted.
#[derive(Debug)]
pub enum ReceiveError {
    /// The message's header section is too large.
    HeaderTooLarge,
    /// The system failed: the sender may try again.
    Failed(StoreError),
}

impl From<StoreError> for ReceiveError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// Processes returned mail.
pub struct Receiver {
    engine: Arc<Engine>,
    rules: Arc<Rules>,
    reading: TurnPermits<Network>,
}

impl Receiver {
    /// Returns the engine that reports change.
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Creates a receiver that classifies reports by `rules`, like live answers.
    pub fn new(engine: Arc<Engine>, rules: Arc<Rules>) -> Self {
        Self { engine, rules, reading: TurnPermits::new(READING_MAX) }
    }

    /// Processes a message that `client` sent for `mailboxes`. When this returns, its report is on disk.
    ///
    /// # Errors
    /// The reason why it is not accepted.
    pub async fn receive(
        &self,
        client: Network,
        mailboxes: &[Mailbox],
        message: Vec<u8>,
    ) -> Result<AcceptedKind, ReceiveError> {
        if has_large_header(&message) {
            return Err(ReceiveError::HeaderTooLarge);
        }
        let is_for_reports = |mailbox: &Mailbox| matches!(mailbox, Mailbox::Dmarc);
        let is_read = |mailbox: &Mailbox| !matches!(mailbox, Mailbox::Dmarc);
        let mut taken = AcceptedKind::Personal;
        if mailboxes.iter().any(is_for_reports) {
            self.receive_dmarc(client, message.clone()).await?;
            taken = AcceptedKind::DmarcReport;
        }
        if mailboxes.iter().any(is_read) {
            let (report, signatures) = self.read(client, message).await?;
            // Programs send reports to the mailboxes of people too. Everything else there is personal.
            let is_personal = mailboxes.iter().all(|mailbox| matches!(mailbox, Mailbox::People | Mailbox::Dmarc));
            taken = match news::nothing_in(&report) {
                Some(_) if is_personal => taken,
                Some(nothing) => nothing,
                None => self.act(mailboxes, &report, &signatures).await?,
            };
        }
        self.engine.meters.came_back.count(taken);
        tracing::info!(what = taken.as_str(), "bounce or complaint received");
        Ok(taken)
    }

    /// Parses a message on a blocking thread: its report and, for a feedback report, its signatures.
    async fn read(&self, client: Network, message: Vec<u8>) -> Result<(Report, Vec<UnverifiedSignature>), StoreError> {
        let turn = self.reading.take(client).await.ok_or(StoreError::Panicked)?;
        let now = self.engine.clock.now();
        let reading = move || {
            // Parsing continues after the connection has ended, so the work owns the permit.
            let _turn = turn;
            let report = report::read(&message);
            let signatures = match &report {
                Report::Feedback(_) => dkim_verify::aligned_signatures(&message, now),
                Report::Delivery(_) | Report::AutoReply | Report::Unknown(_) => Vec::new(),
            };
            (report, signatures)
        };
        self.engine.settings.executor.run(reading).await.map_err(|_| StoreError::Panicked)
    }

    async fn act(
        &self,
        mailboxes: &[Mailbox],
        report: &Report,
        signatures: &[UnverifiedSignature],
    ) -> Result<AcceptedKind, StoreError> {
        let (subjects, tie) = self.subjects(mailboxes, report)?;
        if subjects.is_empty() {
            return Ok(AcceptedKind::Untied);
        }
        let is_proven = match tie {
            LinkEvidence::ReturnPath => true,
            LinkEvidence::FeedbackId => self.first_verified(signatures).await.is_some(),
        };
        if !is_proven {
            return Ok(AcceptedKind::Unproven);
        }
        // All messages share this time, because the others' leases are held during each wait.
        let max_wait = OVERTAKING / u32::try_from(subjects.len()).unwrap_or(u32::MAX);
        let mut record = Record::default();
        let mut kind = AcceptedKind::NoNews;
        for (path, row) in subjects {
            let Some((taken, news)) = news::of(report, &row, &self.rules) else { continue };
            self.add(&mut record, path, row, news, max_wait).await?;
            kind = taken;
        }
        if record.messages.is_empty() {
            return Ok(kind);
        }
        let Record { messages, leases, crowded } = record;
        let recorded = self.engine.commit_leased(RecordReport { messages }, leases).await;
        match recorded {
            Ok(0) => Ok(AcceptedKind::Repeated),
            Ok(_) => {
                for (account, addresses) in crowded {
                    self.engine.end_waiting(account, &addresses).await?;
                }
                Ok(kind)
            }
            Err(OpError::Failed(error)) => Err(error),
            Err(OpError::Refused(never)) => match never {},
        }
    }

    /// Adds the report about one message, with the leases on it and on the messages that its suppression ends.
    async fn add(
        &self,
        record: &mut Record,
        path: ReturnPath,
        row: MessageRow,
        news: ReportMeaning,
        max_wait: Duration,
    ) -> Result<(), StoreError> {
        let ReturnPath { account, message } = path;
        let lease = self.engine.leases.take_within(message, max_wait).await;
        let wire = if lease.is_some() { AttemptProgress::Idle } else { AttemptProgress::Busy };
        record.leases.extend(lease);
        let mut others = Leased::default();
        if news.suppresses() {
            others = self.engine.lease_waiting(account, [&row.to])?;
        }
        if others.is_full {
            record.crowded.push((account, [row.to]));
        }
        record.leases.extend(others.leases);
        record.messages.push(ReportedMessage { account, message, wire, news, others: others.messages });
        Ok(())
    }

    /// Returns the first signature that verifies with the published key of its domain. A key that can't be fetched in
    /// time verifies no signature.
    async fn first_verified<'s>(&self, signatures: &'s [UnverifiedSignature]) -> Option<&'s UnverifiedSignature> {
        let verifies = async {
            for signature in signatures {
                let records =
                    self.engine.resolver.txt(signature.key_name(), Requester::CHECKS).await.unwrap_or_default();
                if signature.is_verified_by(&records) {
                    return Some(signature);
                }
            }
            None
        };
        tokio::time::timeout(KEY_LOOKUPS, verifies).await.unwrap_or_default()
    }

    /// Returns the messages that the report is about, with the evidence: the mailboxes that it was sent to. Without
    /// such mailboxes, it is our first token in the returned message. Sorted by identifier, so that two reports never
    /// wait for each other.
    fn subjects(&self, mailboxes: &[Mailbox], report: &Report) -> Result<(Vec<Subject>, LinkEvidence), StoreError> {
        let snapshot = self.engine.store.snapshot()?;
        let mut tie = LinkEvidence::ReturnPath;
        let mut paths: Vec<ReturnPath> = mailboxes
            .iter()
            .filter_map(|mailbox| match mailbox {
                Mailbox::ReturnPath(path) => Some(*path),
                Mailbox::Feedback | Mailbox::Dmarc | Mailbox::People => None,
            })
            .collect();
        if paths.is_empty() {
            for token in tokens::of(report) {
                let (path, kind) = match token {
                    Token::ReturnPath(token) => (self.return_path_of(&snapshot, &token)?, LinkEvidence::ReturnPath),
                    Token::FeedbackId(token) => (self.feedback_id_of(&snapshot, &token)?, LinkEvidence::FeedbackId),
                };
                if let Some(path) = path {
                    paths.push(path);
                    tie = kind;
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
        Ok((subjects, tie))
    }

    fn return_path_of(&self, read: &Snapshot, token: &Parsed) -> Result<Option<ReturnPath>, StoreError> {
        Ok(self.verify(read, token, &self.engine.settings.return_path_keys)?.ok())
    }

    /// Returns the message of a token in `Feedback-ID`. Earlier versions wrote the return path's token there.
    fn feedback_id_of(&self, read: &Snapshot, token: &Parsed) -> Result<Option<ReturnPath>, StoreError> {
        match self.verify(read, token, &self.engine.settings.feedback_keys)? {
            Ok(path) => Ok(Some(path)),
            Err(_) => self.return_path_of(read, token),
        }
    }
}

/// A message that a report is about.
type Subject = (ReturnPath, MessageRow);

/// Evidence that links a report to its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinkEvidence {
    /// The return path, which is secret.
    ReturnPath,
    /// Only a header field. Everybody who has seen the message can write such a report.
    FeedbackId,
}

/// Data of a report for its record.
#[derive(Default)]
struct Record {
    messages: Vec<ReportedMessage>,
    /// Held until the commit.
    leases: Vec<Lease>,
    /// Addresses with more waiting messages than one operation ends.
    crowded: Vec<(AccountId, [Address; 1])>,
}

/// Returns whether the header section alone exceeds the limit.
fn has_large_header(message: &[u8]) -> bool {
    let head = &message[..message.len().min(HEADER_BYTES_MAX)];
    let ends = head.starts_with(b"\r\n") || head.windows(4).any(|four| four == b"\r\n\r\n");
    message.len() > HEADER_BYTES_MAX && !ends
}
