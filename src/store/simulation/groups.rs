//! Messages accepted together: several bodies, appended in one or more steps, and one operation. They need the
//! appender's turn twice before the writer's, so a run that ends waits for three rounds of answers.

use std::time::Duration;

use super::history::{Known, Submitted};
use super::process::Waiting;
use super::run::Run;
use super::work::{Intent, Outcome, next_hour, outcome};
use crate::machine::retention::Bucket;
use crate::store::error::{OpError, StoreError};
use crate::store::op::accept::Accept;
use crate::store::op::accept_all::AcceptAll;
use crate::store::testing::message_row;

/// First seed of runs that accept some messages together. Runs of smaller seeds stay reproducible.
pub(super) const FIRST_SEED: u64 = 1 << 32;

impl Run {
    /// Submits two to five messages together.
    pub(super) fn accept_all(&mut self) {
        let now = self.now();
        let Some(process) = &self.process else { return };
        let store = process.store.clone();
        let count = 2 + self.rng.index(4);
        let ids = store.reserve_message_ids(now, count);
        let (mut messages, mut bodies) = (Vec::new(), Vec::new());
        for id in &ids {
            let (to, body) = (self.address(), self.body(*id));
            let end = next_hour(now) + Duration::from_secs(3600 * self.rng.below(3));
            let mut message = message_row(self.setup.domain, &to, now);
            message.content_expires_at = end;
            let answer = format!("{{\"id\":\"{id}\"}}").into_bytes();
            let (account, row) = (self.setup.account, message.clone());
            let to_suppressed = !self.is_suppressing() && self.history.suppressed.get(&to) == Some(&Known::Yes);
            bodies.push(store.content().seal(Bucket { end }.end, *id, body.clone()));
            let (answer_bytes, accepted) = (answer.clone(), Known::No);
            let submitted =
                Submitted { account, row, body, claim: None, answer: answer_bytes, to_suppressed, accepted };
            self.history.submit(*id, submitted);
            messages.push(Accept {
                account,
                key_stream: None,
                id: *id,
                message,
                answer,
                idempotency: None,
                stored_bytes_max: 0,
            });
        }
        self.history.groups.push(ids.clone());
        let last = bodies.split_off(self.rng.index(count));
        let answered = async move {
            let mut appended = store.announce_bodies();
            for step in [bodies, last] {
                match store.append_bodies(&mut appended, step).await {
                    Ok(()) => {}
                    Err(StoreError::Full) => return Outcome::Full,
                    Err(_) => return Outcome::Failed,
                }
            }
            let op = move |places: Vec<_>| {
                messages.iter_mut().zip(places).for_each(|(accept, place)| accept.message.place = place);
                AcceptAll { messages }
            };
            match store.commit_appended(appended, op).await {
                Err(OpError::Failed(StoreError::Full)) => Outcome::Full,
                other => outcome(other),
            }
        };
        self.wait(Intent::AcceptAll(ids), Waiting::new(answered));
    }
}
