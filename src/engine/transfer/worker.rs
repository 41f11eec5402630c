//! A worker: it processes one started message to its outcome, then the next one that its destination starts. It
//! continues while the last outcome is being committed; that message's lease lasts until then.

use std::sync::Arc;

use super::Shared;
use super::attempt::{Attempt, AttemptEnd, attempt};
use super::before_mail::NotSentReason;
use super::destination_queue::DestinationQueue;
use super::destinations::StartedMessage;
use super::permit_classes::AttemptPermits;
use super::settle::{LeasedRows, Unsettled};
use super::site::Site;
use crate::domain::event::AttemptFacts;
use crate::engine::caught_panic::caught;
use crate::engine::lease::Reservation;
use crate::engine::relay::RelayWay;
use crate::machine::budget::Claim;
use crate::machine::destination::{Input, QueuedMessage, RequestedLimit, Signal, Slot};
use crate::smtp::transcript::Transcript;
use crate::store::error::StoreError;
use crate::store::op::settle_transfer::TransferEnd;
use crate::store::row::message::MessageRow;
use crate::store::timer::Timer;

/// Sends `first`, then each message that the destination starts in the same slot.
pub(super) async fn run(shared: Arc<Shared>, first: StartedMessage) {
    let mut next = Some(first);
    while let Some(StartedMessage { queue, slot, queued }) = next {
        let mut running = RunningMessage::new(&shared, &queue, slot);
        match permits(&running, queued).await {
            // The future is boxed, because a message that waits for its permits should take little memory.
            Ok(_permits) => Box::pin(transfer(&mut running, queued)).await,
            Err(NotSentReason::LetsPass) => running.let_pass(),
            // The message's timer fires again after the restart.
            Err(_stopping) => {}
        }
        next = running.next();
    }
}

/// Waits for the permits of an attempt. Another account's message for the same site goes first.
async fn permits(running: &RunningMessage<'_>, queued: QueuedMessage) -> Result<AttemptPermits, NotSentReason> {
    let RunningMessage { shared, queue, .. } = *running;
    let claim = Claim { site: queue.site_in_budgets(), ..Claim::single(queued.place.account, queued.stream) };
    tokio::select! {
        biased;
        () = shared.closing() => Err(NotSentReason::Stopping),
        permits = shared.attempt_permits(queue, claim) => Ok(permits),
        // It ends now, which needs no permit.
        () = shared.expired(&queued) => Ok(AttemptPermits::default()),
        () = queue.is_wanted_by_others(claim.account, shared) => Err(NotSentReason::LetsPass),
    }
}

async fn transfer(running: &mut RunningMessage<'_>, queued: QueuedMessage) {
    let (shared, queue) = (running.shared, running.queue);
    let Some((lease, reservation)) = shared.leases.reserve(queued.place.id) else {
        return shared.give_back_when_free(queued);
    };
    let unsettled = Unsettled { queued, held: None, lease: Some(lease), transcript: None };
    let row = match caught(async { shared.look(&queued, Some(&queue.site)) }).await.unwrap_or(Err(StoreError::Panicked))
    {
        Ok(LeasedRows::Send(row)) => row,
        Ok(ready) => return not_begun(running, unsettled, NotSentReason::Rows(ready)),
        Err(error) => return unsettled.unreadable(shared, error),
    };
    send(running, &reservation, unsettled, *row).await;
}

/// Ends the work on a message that is not sent.
fn not_begun(running: &mut RunningMessage<'_>, unsettled: Unsettled, why: NotSentReason) {
    let (shared, queue, queued) = (running.shared, running.queue, unsettled.queued);
    match why {
        // The message's timer fires again after the restart.
        NotSentReason::Stopping => {}
        NotSentReason::Revoked => {
            drop(unsettled);
            shared.give_back_when_free(queued);
        }
        NotSentReason::NoMemory | NotSentReason::Unconfirmed | NotSentReason::Rows(LeasedRows::Send(_)) => {
            drop(unsettled);
            shared.timers().give_back(Timer::of_message(&queued));
        }
        NotSentReason::Gone => unsettled.expired(shared),
        NotSentReason::Rows(LeasedRows::Settle(end)) => unsettled.settle(shared, end, AttemptFacts::default()),
        NotSentReason::Rows(LeasedRows::Paused) => {
            drop(unsettled);
            shared.hold_paused(queued, Some(&queue.site));
        }
        NotSentReason::Rows(LeasedRows::Stale) => shared.timers().forget(&Timer::of_message(&queued)),
        NotSentReason::Unreadable(error) => unsettled.unreadable(shared, error),
        NotSentReason::Damaged(error) => unsettled.content_unreadable(shared, &error),
        NotSentReason::LetsPass => {
            drop(unsettled);
            running.let_pass();
        }
    }
}

async fn send(running: &mut RunningMessage<'_>, reservation: &Reservation, mut unsettled: Unsettled, row: MessageRow) {
    let (shared, queue, queued) = (running.shared, running.queue, unsettled.queued);
    let site = queue.site.name();
    let share = match shared.share(queue.relay, &site, queued.place.account) {
        Ok(Some(share)) => share,
        // The relay's daily cap is reached, so other messages of this queue need another relay, too.
        Ok(None) => {
            drop(unsettled);
            return reroute(running, &queued);
        }
        Err(error) => return unsettled.unreadable(shared, error),
    };
    let tried = caught(attempt(running, reservation, &mut unsettled, &row)).await;
    let Attempt { ended, facts, transcript, signal } = tried.unwrap_or_else(|crashed| {
        tracing::error!(message = %queued.place.id, %crashed, "delivery attempt panicked; deferring the message");
        let (facts, transcript) = (AttemptFacts::default(), Transcript::default());
        Attempt { ended: AttemptEnd::With(TransferEnd::Crashed), facts, transcript, signal: Signal::Silent }
    });
    match ended {
        // An operation took the lease before MAIL was written. It decides about the message.
        AttemptEnd::With(_) if !unsettled.begin() => {
            running.end(signal_of(&queue.site, signal));
            not_begun(running, unsettled, NotSentReason::Revoked);
        }
        AttemptEnd::With(end) => {
            if signal != Signal::Silent {
                let took = matches!(end, TransferEnd::Delivered).then_some(queued.place.account);
                shared.relay_works(queue.relay, took);
                let relay = shared.relays.relay(queue.relay);
                let is_direct = matches!(relay.way, RelayWay::Mx) && !matches!(queue.site, Site::Captured(_));
                shared.engine.relay_works(&relay.name, is_direct);
            }
            shared.engine.alerts.attempted(&end, shared.now());
            shared.engine.meters.attempted(&end, facts.duration_ms.unwrap_or_default());
            if matches!(end, TransferEnd::Delivered)
                && let Some(count) = share.used()
            {
                shared.engine.store.post(count, drop);
            }
            running.end(signal_of(&queue.site, signal));
            let others = shared.others(&queued, &row.to, &end);
            let is_failure = !matches!(end, TransferEnd::Delivered) && !transcript.as_str().is_empty();
            unsettled.transcript = is_failure.then(|| transcript.as_str().to_owned());
            unsettled.settle_with(shared, end, facts, others, row.to);
        }
        AttemptEnd::NotBegun(why) => not_begun(running, unsettled, why),
        AttemptEnd::RelayFault(fault) => {
            let until = shared.relay_failed(queue.relay, &fault);
            if fault.needs_operator {
                shared.engine.relay_fails(&shared.relays.relay(queue.relay).name, &fault.why);
            }
            queue.set_last_answer(shared, fault.why);
            queue.handle(shared, Input::Limit(RequestedLimit::Pause(until), fault.only));
            drop(unsettled);
            reroute(running, &queued);
        }
    }
}

/// Returns the meaning of an attempt for the site. Captured mail is sent message by message, regardless of earlier
/// failures, because `dev` simulates failures.
const fn signal_of(site: &Site, signal: Signal) -> Signal {
    match (site, signal) {
        (Site::Captured(_), Signal::PushedBack | Signal::TurnedAway | Signal::TimedOut | Signal::Slowed) => {
            Signal::Answered
        }
        (_, signal) => signal,
    }
}

/// Sends this message and the whole queue of its destination back to routing.
fn reroute(running: &mut RunningMessage<'_>, queued: &QueuedMessage) {
    running.queue.handle(running.shared, Input::Clear);
    running.end(Signal::Silent);
    running.shared.timers().give_back(Timer::of_message(queued));
}

/// A started message, until it has ended. The machine is notified even if the worker panics.
pub(super) struct RunningMessage<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) queue: &'a Arc<DestinationQueue>,
    pub(super) slot: Slot,
    has_ended: bool,
    next: Option<StartedMessage>,
}

impl<'a> RunningMessage<'a> {
    pub(super) const fn new(shared: &'a Arc<Shared>, queue: &'a Arc<DestinationQueue>, slot: Slot) -> Self {
        Self { shared, queue, slot, has_ended: false, next: None }
    }

    /// Reports that the message has ended, with this meaning for the site.
    pub(super) fn end(&mut self, signal: Signal) {
        self.report(Input::Ended(self.slot, signal));
    }

    /// Puts the message back into the queue, so that others are sent before it.
    pub(super) fn let_pass(&mut self) {
        self.report(Input::LetPass(self.slot));
    }

    fn report(&mut self, input: Input) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.next = self.queue.end(self.shared, input);
        }
    }

    /// Returns the next message for this worker.
    pub(super) fn next(mut self) -> Option<StartedMessage> {
        self.end(Signal::Silent);
        self.next.take()
    }
}

impl Drop for RunningMessage<'_> {
    fn drop(&mut self) {
        self.end(Signal::Silent);
        self.next.take().into_iter().for_each(|next| self.shared.start(next));
    }
}
