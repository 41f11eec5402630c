//! Check that attempts still succeed. Only attempts that show whether our own egress works count, so a hard bounce
//! counts as a success.
//!
//! Retries become rare, and a restart forgets all attempts. So a stall does not end when failures stop. It ends with a
//! success, or when no message waits to be sent.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::notifier::SERVICE;
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::domain::alert::{Condition, Severity, Sighting};
use crate::domain::event::BounceKind;
use crate::engine::Engine;
use crate::engine::blocking::OPERATOR;
use crate::engine::messages::MessageRecord;
use crate::engine::wait_reason::{Holds, WaitReason};
use crate::store::error::StoreError;
use crate::store::op::alert::Finding;
use crate::store::op::settle_transfer::TransferEnd;
use crate::store::read::{Order, Read as _, after_prefix, sound};
use crate::store::row::alert::AlertStateRow;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;
use crate::store::timer::{Timer, TimerKind};

/// Number of attempts without success that raises an alert.
pub(super) const ATTEMPTS: usize = 20;
/// Period in which the attempts of the alert are counted.
pub(super) const WINDOW: Duration = Duration::from_secs(30 * 60);
/// Time after which a due message is overdue.
const OVERDUE: Duration = Duration::from_secs(15 * 60);
/// Number of overdue messages that raises an alert.
const OVERDUE_COUNT: usize = 20;
/// Maximum number of timers that one part of a search passes, most of them without reading their messages.
const TIMERS_MAX: usize = 100_000;
/// Maximum number of messages that one part of a search reads. Each part has its own snapshot, so that a long queue
/// pins no database pages for long.
const MESSAGES_MAX: usize = if cfg!(test) { 16 } else { 5_000 };
/// Maximum number of parts of a search in one check: a million messages.
const PARTS_MAX: usize = if cfg!(test) { 4 } else { 200 };

/// Failed attempts since the last success.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    failed: VecDeque<Timestamp>,
    /// Whether an attempt has succeeded since the last stall, or since the start.
    has_succeeded: bool,
}

impl Attempts {
    /// Records the end of an attempt.
    pub(super) fn note(&mut self, end: &TransferEnd, now: Timestamp) {
        match end {
            TransferEnd::Delivered => self.succeeded(),
            TransferEnd::Bounced(bounce) if bounce.kind == BounceKind::Hard => self.succeeded(),
            TransferEnd::Bounced(_) | TransferEnd::Deferred { .. } => {
                self.failed.push_back(now);
                if self.failed.len() > ATTEMPTS {
                    self.failed.pop_front();
                }
            }
            // No server was contacted, or the attempt panicked.
            TransferEnd::GaveUp(_)
            | TransferEnd::Suppressed
            | TransferEnd::Postponed { .. }
            | TransferEnd::Over
            | TransferEnd::Crashed
            | TransferEnd::Unreadable => {}
        }
    }

    fn succeeded(&mut self) {
        self.failed.clear();
        self.has_succeeded = true;
    }

    /// Records that the queue is stalled. Only a later success shows the end of the stall.
    pub(super) const fn note_stall(&mut self) {
        self.has_succeeded = false;
    }

    /// Returns whether an attempt has succeeded since the last stall, or since the start.
    pub(super) const fn have_succeeded(&self) -> bool {
        self.has_succeeded
    }

    /// Returns whether the last [`ATTEMPTS`] attempts all failed, within [`WINDOW`] before `now`.
    pub(super) fn are_failing(&self, now: Timestamp) -> bool {
        self.failed.len() == ATTEMPTS && self.failed.front().is_some_and(|first| now.since(*first) < WINDOW)
    }
}

/// The searches for waiting messages.
#[derive(Debug, Default)]
pub(super) struct Searches {
    overdue: Search,
    to_be_sent: Search,
}

/// A search through the timers in their order. A check that does not reach the end leaves the rest to the next one.
#[derive(Debug, Default)]
struct Search {
    /// The key at which the next part continues.
    from: Vec<u8>,
    /// The messages found by earlier parts of this search.
    found: Vec<Timer>,
}

/// The messages that a search is to find.
#[derive(Debug, Clone)]
struct Goal {
    /// The end of the timers.
    to: Vec<u8>,
    /// Number of messages after which the search ends.
    count: usize,
    /// Whether messages with this wait reason count.
    is_meant: fn(WaitReason) -> bool,
}

/// Result of a search in one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchResult {
    /// The goal's number of messages, or more, wait.
    Enough,
    /// The search reached the end and found fewer messages than the goal names.
    Fewer,
    /// The check did not reach the end.
    Unfinished,
}

impl Engine {
    /// Checks whether queued mail goes out.
    pub(super) async fn queue_finding(self: &Arc<Self>, searches: &mut Searches) -> Result<Finding, StoreError> {
        let now = self.clock.now();
        let raise = |seen: String| {
            let summary = "Queued mail is not being sent";
            self.attempts().note_stall();
            let sighting = Sighting::new(Condition::QueueStalled, Severity::Critical, summary, seen);
            Ok(Finding::of_service(Condition::QueueStalled, Some(sighting)))
        };
        if self.attempts().are_failing(now) {
            let minutes = WINDOW.as_secs() / 60;
            return raise(format!("The last {ATTEMPTS} attempts failed, all within {minutes} minutes."));
        }
        let goal =
            Goal { to: Timer::first_after(now - OVERDUE).to_vec(), count: OVERDUE_COUNT, is_meant: lacks_a_route };
        let overdue = self.search(&mut searches.overdue, &goal).await?;
        if overdue == SearchResult::Enough {
            let minutes = OVERDUE.as_secs() / 60;
            return raise(format!("At least {OVERDUE_COUNT} messages have been due for {minutes} minutes."));
        }
        let is_unknown =
            overdue == SearchResult::Unfinished || self.may_still_be_stalled(&mut searches.to_be_sent).await?;
        let finding = Finding::of_service(Condition::QueueStalled, None);
        Ok(Finding { unknown: is_unknown.then(String::new).into_iter().collect(), ..finding })
    }

    /// Returns whether a stall is open, nothing has succeeded since, and messages are left to be sent.
    async fn may_still_be_stalled(self: &Arc<Self>, to_be_sent: &mut Search) -> Result<bool, StoreError> {
        if self.attempts().have_succeeded() || !is_stall_open(&self.store.snapshot()?)? {
            return Ok(false);
        }
        let goal = Goal { to: after_prefix(&[]), count: 1, is_meant: is_to_be_sent };
        Ok(self.search(to_be_sent, &goal).await? != SearchResult::Fewer)
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.alerts.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues a search, in parts. Other blocking work takes turns with them.
    async fn search(self: &Arc<Self>, search: &mut Search, goal: &Goal) -> Result<SearchResult, StoreError> {
        for _ in 0..PARTS_MAX {
            let (engine, part, goal) = (Arc::clone(self), std::mem::take(search), goal.clone());
            let result;
            (result, *search) = self.blocking(OPERATOR, move || engine.search_part(part, &goal)).await??;
            if result != SearchResult::Unfinished {
                return Ok(result);
            }
        }
        Ok(SearchResult::Unfinished)
    }

    /// Makes one part of a search. Returns its result and the search that continues it. Held messages and those of
    /// accounts with damaged rows are passed without reading them.
    fn search_part(&self, search: Search, goal: &Goal) -> Result<(SearchResult, Search), StoreError> {
        let snapshot = self.store.snapshot()?;
        let Search { from, mut found } = search;
        let (mut holds, mut passed, mut read) = (HashMap::new(), 0, 0);
        let mut is_found = |timer: &Timer, read: &mut usize| -> Result<bool, StoreError> {
            if timer.kind != TimerKind::Transfer {
                return Ok(false);
            }
            let holds = match holds.entry(timer.account) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(sound(Holds::read(&snapshot, timer.account))?),
            };
            let Some(holds) = holds.as_ref().filter(|holds| !holds.are_on(timer)) else { return Ok(false) };
            *read += 1;
            Ok(self.reason_at(&snapshot, timer, holds)?.is_some_and(goal.is_meant))
        };
        for timer in std::mem::take(&mut found) {
            if is_found(&timer, &mut 0)? {
                found.push(timer);
            }
        }
        let mut next = None;
        snapshot.scan_sound(Table::Timers, &from, &goal.to, Order::Ascending, &mut |key, _| {
            if found.len() >= goal.count {
                return Ok(ControlFlow::Break(()));
            }
            if passed >= TIMERS_MAX || read >= MESSAGES_MAX {
                next = Some(key.to_vec());
                return Ok(ControlFlow::Break(()));
            }
            passed += 1;
            if let Some(timer) = Timer::decode(key)
                && is_found(&timer, &mut read)?
            {
                found.push(timer);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(match next {
            _ if found.len() >= goal.count => (SearchResult::Enough, Search::default()),
            None => (SearchResult::Fewer, Search::default()),
            Some(from) => (SearchResult::Unfinished, Search { from, found }),
        })
    }

    /// Returns the reason why the message of a timer waits. `None` if the message has ended or has another timer now.
    pub(in crate::engine) fn reason_at(
        &self,
        snapshot: &Snapshot,
        timer: &Timer,
        holds: &Holds,
    ) -> Result<Option<WaitReason>, StoreError> {
        let id = MessageId(timer.id);
        let key = schema::message(timer.account, id);
        let row = snapshot.sound_row::<MessageRow>(&key)?;
        let Some((row, transfer)) = row.zip(snapshot.sound_row::<TransferRow>(&key)?) else { return Ok(None) };
        if transfer.due != Some(timer.due) {
            return Ok(None);
        }
        let record = MessageRecord { id, row, transfer, next_attempt_at: None, waiting: None };
        Ok(self.wait_of(&record, holds).map(|wait| wait.reason))
    }
}

/// Returns whether no route is free for a message. Messages that wait because of their account, their site or a
/// restored store are not counted.
fn lacks_a_route(reason: WaitReason) -> bool {
    matches!(reason, WaitReason::Dns | WaitReason::Relay | WaitReason::Busy)
}

/// Returns whether a message is to be sent once egress works. Paused messages and those on hold are not.
fn is_to_be_sent(reason: WaitReason) -> bool {
    !matches!(reason, WaitReason::Paused | WaitReason::Held)
}

fn is_stall_open(snapshot: &Snapshot) -> Result<bool, StoreError> {
    let key = schema::alert_state(SERVICE, Condition::QueueStalled, "");
    Ok(snapshot.sound_row::<AlertStateRow>(&key)?.is_some_and(|row| row.state.is_open()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smtp::finding;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn deferred() -> TransferEnd {
        TransferEnd::Deferred { bounce: None, not_before: None }
    }

    fn of(ends: &[TransferEnd]) -> Attempts {
        let mut attempts = Attempts::default();
        ends.iter().for_each(|end| attempts.note(end, NOW));
        attempts
    }

    #[test]
    fn twenty_failures_within_half_an_hour_without_a_success_are_a_stall() {
        let twenty = vec![deferred(); ATTEMPTS];
        assert!(of(&twenty).are_failing(NOW) && !of(&twenty[1..]).are_failing(NOW));
        assert!(!of(&twenty).are_failing(NOW + WINDOW));
        let after = [&twenty[..], &[TransferEnd::Delivered], &twenty[1..]].concat();
        assert!(!of(&after).are_failing(NOW));
    }

    #[test]
    fn a_hard_bounce_counts_as_a_success_and_a_block_does_not() {
        let bounce = |kind| crate::domain::event::Bounce { kind, ..finding::expired() };
        let twenty = vec![deferred(); ATTEMPTS];
        let hard = [&twenty[..], &[TransferEnd::Bounced(bounce(BounceKind::Hard))]].concat();
        assert!(!of(&hard).are_failing(NOW));
        assert!(of(&vec![TransferEnd::Bounced(bounce(BounceKind::Block)); ATTEMPTS]).are_failing(NOW));
    }
}
