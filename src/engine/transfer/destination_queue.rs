//! One destination queue: the messages of one relay for one site, as workers see it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Shared;
use super::destinations::{DeferredEffects, StartedMessage};
use super::pool::PooledConnection;
use super::relays::Number;
use super::site::Site;
use crate::base::id::AccountId;
use crate::engine::ports::Target;
use crate::machine::destination::{Destination, Input, LETS_PASS, RequestedLimit, Slot, Trust};
use crate::machine::scheduler::DestinationId;
use crate::smtp::shaping::{Action, Limits};

/// The messages of one relay for one site.
pub(super) struct DestinationQueue {
    /// Number in the machine, among alarms, and among the store's queues.
    pub(super) id: DestinationId,
    /// Site in the budgets: all relays' connections to a site are counted together.
    pub(super) site_key: u64,
    pub(super) relay: Number,
    pub(super) site: Site,
    limits: Limits,
    /// Notified when a message arrives that must wait.
    pub(super) arrived: Notify,
    /// Notified when the keeper has a new event to wait for.
    pub(super) changed: Notify,
}

impl DestinationQueue {
    pub(super) fn new(id: DestinationId, site_key: u64, relay: Number, site: Site, limits: Limits) -> Self {
        let [arrived, changed] = [Notify::const_new(), Notify::const_new()];
        Self { id, site_key, relay, site, limits, arrived, changed }
    }

    /// Returns the site in the budgets; `None` if it counts for no site, such as a smarthost.
    pub(super) fn site_in_budgets(&self) -> Option<u64> {
        matches!(self.site, Site::Provider(_) | Site::Servers(_)).then_some(self.site_key)
    }

    /// Reports an event to the machine.
    pub(super) fn handle(&self, shared: &Arc<Shared>, input: Input) {
        shared.handle(self.id, input);
    }

    /// Reports the end of a started message, and returns the next message for the same worker.
    pub(super) fn end(&self, shared: &Arc<Shared>, input: Input) -> Option<StartedMessage> {
        let (mut destinations, mut decided) = (shared.destinations(), DeferredEffects::default());
        destinations.decide(shared, self.id, input, &mut decided);
        if destinations.is_idle_and_wanted(self.id) {
            destinations.decide(shared, self.id, Input::ConnectionsWanted, &mut decided);
        }
        drop(destinations);
        let next = decided.started.pop_front();
        shared.carry_out(decided);
        next
    }

    /// Lets a started message use a kept connection to one of `targets`, unless that server answers no RSET.
    pub(super) fn take_kept<'a>(
        &self,
        shared: &Arc<Shared>,
        slot: Slot,
        targets: impl IntoIterator<Item = &'a Target>,
    ) -> Option<PooledConnection> {
        self.close_old(shared);
        let (now, mut destinations, mut decided) =
            (shared.moment().machine, shared.destinations(), DeferredEffects::default());
        let silent = &destinations.silent_resets;
        let targets: Vec<_> = targets.into_iter().filter(|target| !silent.has(&target.address, now)).collect();
        let found = destinations.driven.get_mut(&self.id)?.pool.take(targets)?;
        destinations.decide(shared, self.id, Input::Reuse(slot), &mut decided);
        drop(destinations);
        shared.carry_out(decided);
        Some(found)
    }

    /// Keeps the connection of a started message, or closes it if its server answers no RSET.
    pub(super) fn keep(&self, shared: &Arc<Shared>, slot: Slot, kept: PooledConnection) {
        let (now, mut destinations, mut decided) =
            (shared.moment().machine, shared.destinations(), DeferredEffects::default());
        if destinations.silent_resets.has(&kept.target.address, now) {
            drop(destinations);
            return kept.leave();
        }
        if let Some(driven) = destinations.driven.get_mut(&self.id) {
            driven.pool.put(kept);
            destinations.decide(shared, self.id, Input::Keep(slot), &mut decided);
        }
        drop(destinations);
        shared.carry_out(decided);
    }

    /// Closes the kept connections that have expired.
    pub(super) fn close_old(&self, shared: &Arc<Shared>) {
        let (mut destinations, mut decided) = (shared.destinations(), DeferredEffects::default());
        let Some(driven) = destinations.driven.get_mut(&self.id) else { return };
        let old = driven.pool.take_old(&self.limits, Instant::now());
        if !old.is_empty() {
            destinations.decide(shared, self.id, Input::Closed(old.len()), &mut decided);
        }
        drop(destinations);
        old.into_iter().for_each(PooledConnection::leave);
        shared.carry_out(decided);
    }

    /// Resolves when another account's message could start instead of one of `account` that waits for a connection.
    pub(super) async fn is_wanted_by_others(&self, account: AccountId, shared: &Shared) {
        loop {
            // Subscribe before the check, so that no arrival in between is missed.
            let arrived = self.arrived.notified();
            let moment = shared.moment();
            if shared.destinations().scheduler.get(self.id).is_some_and(|own| own.has_other(account, moment)) {
                return;
            }
            tokio::select! {
                biased;
                () = arrived => {}
                () = tokio::time::sleep(LETS_PASS) => {}
            }
        }
    }

    /// Limits the site as the rules for an answer say. `account` is the account of the answered message; `None` if the
    /// answer came before MAIL.
    pub(super) fn shape(&self, shared: &Arc<Shared>, actions: &[Action], account: Option<AccountId>) {
        let now = shared.now();
        for action in actions {
            let limit = match *action {
                Action::Pause(time) => RequestedLimit::Pause(now + time),
                Action::Rate { messages_per_minute, lasts } => RequestedLimit::Rate(messages_per_minute, now + lasts),
                Action::Connections { most, lasts } => RequestedLimit::Connections(most, now + lasts),
            };
            self.handle(shared, Input::Limit(limit, account));
        }
    }

    /// Returns the trust level of the site.
    pub(super) fn trust(&self, shared: &Shared) -> Trust {
        shared.destinations().scheduler.get(self.id).map_or(Trust::New, Destination::trust)
    }

    /// Stores the last answer of the site, for the operator.
    pub(super) fn set_last_answer(&self, shared: &Shared, answer: String) {
        if let Some(own) = shared.destinations().scheduler.get_mut(self.id) {
            own.set_last_answer(answer);
        }
    }

    /// Counts the next connection, and returns its delay.
    pub(super) fn connection_wait(&self, shared: &Shared) -> Duration {
        let moment = shared.moment();
        let mut destinations = shared.destinations();
        destinations.scheduler.get_mut(self.id).map_or(Duration::ZERO, |own| own.connection_wait(moment))
    }
}
