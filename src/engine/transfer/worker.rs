//! A worker of a lane: one message after the other, over the lane's connections. It goes on to the next message while
//! the last one's outcome is being committed; its lease lasts until then.

use std::sync::Arc;

use tokio::time::Instant;

use super::Shared;
use super::attempt::{Attempt, Ended, Signal, attempt};
use super::begin::NotBegun;
use super::lane::{Lane, Leave, Next};
use super::pool::IDLE;
use super::queue::{Duty, Ticket};
use super::settle::{Ready, Unsettled};
use super::site::Site;
use super::why::Obstacle;
use super::window::Window;
use crate::base::time::Timestamp;
use crate::domain::event::AttemptFacts;
use crate::domain::stream::Stream;
use crate::engine::crash::caught;
use crate::engine::relay::RelayWay;
use crate::smtp::transcript::Transcript;
use crate::store::error::StoreError;
use crate::store::op::settle_transfer::TransferEnd;
use crate::store::row::message::MessageRow;

/// Serves `lane` until nothing is due, `first` the message in hand.
pub(super) async fn run(shared: Arc<Shared>, lane: Arc<Lane>, duty: Duty, first: Option<Ticket>) {
    let mut job = Job { shared: &shared, lane: &lane, duty, has_left: false };
    if let Some(ticket) = first {
        carry(&shared, &lane, ticket).await;
    }
    loop {
        serve(&shared, &lane, &mut job.duty).await;
        // Each worker that goes takes a connection along, and the last one all.
        match lane.leave(job.duty, shared.now()) {
            Leave::Stays(duty) => job.duty = duty,
            Leave::Goes => {
                job.has_left = true;
                lane.pool.oldest().into_iter().for_each(|kept| kept.leave());
                return;
            }
            Leave::Last => {
                job.has_left = true;
                while let Some(kept) = lane.pool.oldest() {
                    kept.leave();
                }
                return;
            }
        }
    }
}

/// A worker's place in its lane, which it leaves even where it panics. Another worker takes over then.
struct Job<'a> {
    shared: &'a Arc<Shared>,
    lane: &'a Arc<Lane>,
    duty: Duty,
    has_left: bool,
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if !self.has_left
            && let Leave::Stays(duty) = self.lane.leave(self.duty, self.shared.now())
            && !self.shared.is_stopping()
        {
            self.shared.start_worker(Arc::clone(self.lane), duty, None);
        }
    }
}

/// Returns the obstacle to sending `lane`'s next message at once.
pub(super) fn obstacle(lane: &Lane, now: Timestamp) -> Obstacle {
    lane.obstacle(now, Instant::now())
}

async fn serve(shared: &Arc<Shared>, lane: &Arc<Lane>, duty: &mut Duty) {
    loop {
        match lane.next(duty, shared.now(), Instant::now(), shared.near()) {
            Next::Go(ticket) => carry(shared, lane, ticket).await,
            Next::Pace(wait) => {
                tokio::select! {
                    biased;
                    () = shared.closing() => {}
                    () = tokio::time::sleep(wait) => {}
                }
            }
            Next::Nothing => {
                if lane.pool.len() == 0 {
                    return;
                }
                tokio::select! {
                    biased;
                    () = lane.wait(shared.now()) => {}
                    () = tokio::time::sleep(IDLE) => return,
                    () = shared.connections.wanted() => return,
                }
            }
            Next::Stop => return,
        }
    }
}

/// Brings one message to its outcome, and tells the lane what the site made of it.
async fn carry(shared: &Arc<Shared>, lane: &Arc<Lane>, ticket: Ticket) {
    shared.left_queue(1);
    let in_hand = InHand { lane, stream: ticket.stream };
    transfer(shared, lane, ticket).await;
    drop(in_hand);
    lane.call_for_more(shared.now(), shared.near());
    while let Some(duty) = lane.grow(shared.now()) {
        shared.start_worker(Arc::clone(lane), duty, None);
    }
}

/// Counts a message that a worker has in hand, whatever ends the work.
struct InHand<'a> {
    lane: &'a Lane,
    stream: Stream,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.lane.done(self.stream);
    }
}

async fn transfer(shared: &Arc<Shared>, lane: &Arc<Lane>, ticket: Ticket) {
    let unsettled = Unsettled { ticket, held: None, lease: None, transcript: None };
    let row = match caught(async { shared.look(&ticket, Some(&lane.site)) }).await.unwrap_or(Err(StoreError::Panicked))
    {
        Ok(Ready::Send(row)) => row,
        Ok(ready) => return not_begun(shared, lane, unsettled, NotBegun::Rows(ready)),
        Err(error) => return unsettled.unreadable(shared, error),
    };
    send(shared, lane, unsettled, *row).await;
}

/// Ends the work on a message that is not sent.
fn not_begun(shared: &Arc<Shared>, lane: &Lane, unsettled: Unsettled, why: NotBegun) {
    let ticket = unsettled.ticket;
    match why {
        // Its timer fires again after the restart.
        NotBegun::Stopping => {}
        NotBegun::Leased | NotBegun::NoMemory | NotBegun::Unconfirmed | NotBegun::Rows(Ready::Send(_)) => {
            drop(unsettled);
            shared.near().give_back(ticket.timer);
        }
        NotBegun::Gone => unsettled.expired(shared),
        NotBegun::Rows(Ready::Settle(end)) => unsettled.settle(shared, end, AttemptFacts::default()),
        NotBegun::Rows(Ready::Paused) => {
            drop(unsettled);
            shared.rest_paused(ticket, Some(&lane.site));
        }
        NotBegun::Rows(Ready::Stale) => shared.near().forget(&ticket.timer),
        NotBegun::Unreadable(error) => unsettled.unreadable(shared, error),
        NotBegun::Damaged(error) => unsettled.content_unreadable(shared, &error),
        NotBegun::LetsPass => {
            drop(unsettled);
            shared.enters_queue();
            if let Err(late) = lane.put_back(ticket, Instant::now(), shared.near()) {
                shared.put_off_until_their_end(vec![late]);
            }
        }
    }
}

async fn send(shared: &Arc<Shared>, lane: &Arc<Lane>, mut unsettled: Unsettled, row: MessageRow) {
    let (ticket, site) = (unsettled.ticket, lane.site.name());
    let share = match shared.relays.share(lane.relay, &site, shared.now(), &shared.engine.store) {
        Ok(Some(share)) => share,
        // The day's cap is used up: whatever else waits here goes elsewhere too.
        Ok(None) => {
            drop(unsettled);
            return reroute(shared, lane, ticket);
        }
        Err(error) => return unsettled.unreadable(shared, error),
    };
    let tried = caught(attempt(shared, lane, &mut unsettled, &row)).await;
    let Attempt { ended, facts, transcript, signal } = tried.unwrap_or_else(|crashed| {
        tracing::error!(message = %ticket.id(), %crashed, "delivery attempt panicked");
        let (facts, transcript) = (AttemptFacts::default(), Transcript::default());
        Attempt { ended: Ended::With(TransferEnd::Crashed), facts, transcript, signal: Signal::Silent }
    });
    match ended {
        Ended::With(end) => {
            if signal != Signal::Silent {
                shared.relays.works(lane.relay);
                let relay = shared.relays.relay(lane.relay);
                let is_direct = matches!(relay.way, RelayWay::Mx) && !matches!(lane.site, Site::InHouse(_));
                shared.engine.relay_works(&relay.name, is_direct);
            }
            shared.engine.alerts.attempted(&end, shared.now());
            shared.engine.meters.attempted(&end, facts.duration_ms.unwrap_or_default());
            if matches!(end, TransferEnd::Delivered)
                && let Some(count) = share.used()
            {
                shared.engine.store.post(count, drop);
            }
            obey(shared, lane, signal);
            let others = shared.others(&ticket, &row.to, &end);
            let is_failure = !matches!(end, TransferEnd::Delivered) && !transcript.as_str().is_empty();
            unsettled.transcript = is_failure.then(|| transcript.as_str().to_owned());
            unsettled.settle_with(shared, end, facts, others, row.to);
        }
        Ended::NotBegun(why) => not_begun(shared, lane, unsettled, why),
        Ended::RelayFault(fault) => {
            let until = shared.relays.failed(lane.relay, shared.now(), &fault.why);
            if fault.needs_operator {
                shared.engine.relay_fails(&shared.relays.relay(lane.relay).name, &fault.why);
            }
            lane.heard(fault.why);
            hold(shared, lane, until);
            drop(unsettled);
            reroute(shared, lane, ticket);
        }
    }
}

/// Tells the lane what the site made of the message.
fn obey(shared: &Arc<Shared>, lane: &Lane, signal: Signal) {
    let near = shared.near();
    // Mail that stays in the house is sent message by message, whatever the one before met: `dev` simulates failures.
    let signal = match (&lane.site, signal) {
        (Site::InHouse(_), Signal::PushedBack | Signal::TurnedAway | Signal::TimedOut | Signal::Slowed) => {
            Signal::Answered
        }
        (_, signal) => signal,
    };
    match signal {
        Signal::Took => lane.took(near),
        Signal::Answered => lane.answered(near),
        // The prober goes on with the next message.
        Signal::Silent => {}
        Signal::Slowed => lane.slowed(near),
        Signal::PushedBack => fails(shared, lane, Window::pushed_back),
        Signal::TurnedAway => fails(shared, lane, Window::turned_away),
        Signal::TimedOut => fails(shared, lane, Window::hung),
    }
}

/// Reports a failure to the lane's window, which may hold the lane back.
fn fails(shared: &Arc<Shared>, lane: &Lane, how: fn(&mut Window, Timestamp) -> Option<Timestamp>) {
    let now = shared.now();
    shared.put_off_until_their_end(lane.fails(shared.near(), |window| how(window, now)));
}

/// Holds the lane back until its relay may be tried again.
fn hold(shared: &Arc<Shared>, lane: &Lane, until: Timestamp) {
    shared.put_off_until_their_end(lane.hold(until, shared.now(), shared.near()));
}

/// Has this message and the whole queue of its destination look up their routes again.
fn reroute(shared: &Arc<Shared>, lane: &Lane, ticket: Ticket) {
    let waiting = lane.clear();
    shared.left_queue(waiting.len());
    shared.near().give_back_all(waiting.iter().chain([&ticket]).map(|ticket| ticket.timer));
}
