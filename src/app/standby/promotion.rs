//! The promotion of a standby by an operator: the checks, and the answer to the operator.

use super::sight::LogView;
use super::{FollowEnd, Following};
use crate::app::replication::mailing_from;
use crate::engine::replica::{ReplicaError, Standby};
use crate::http::standby::{Promotion, PromotionRefusal, PromotionRequest};
use crate::store::replica::Kind;
use std::time::Duration;

impl Following<'_> {
    /// Claims the log if no check fails. Returns how the standby ends then.
    pub(super) async fn promote(
        &self,
        (wanted, answer): Promotion,
        standby: &mut Option<Standby>,
        sight: &LogView,
    ) -> Option<FollowEnd> {
        match self.prepare(wanted, standby, sight) {
            Ok(promoted) => {
                drop(answer.send(Ok(promoted)));
                Some(FollowEnd::Promoted { without_bucket: wanted.without_bucket })
            }
            Err(refusal) => {
                drop(answer.send(Err(refusal)));
                None
            }
        }
    }

    fn prepare(
        &self,
        wanted: PromotionRequest,
        standby: &mut Option<Standby>,
        sight: &LogView,
    ) -> Result<serde_json::Value, PromotionRefusal> {
        let refuse = |status, code, message: &str| PromotionRefusal { status, code, message: message.to_owned() };
        let Some(open) = standby.as_mut().filter(|_| sight.is_at_end || wanted.without_bucket) else {
            return Err(refuse(503, "not_ready", "The standby has not reached the end of the log yet."));
        };
        let was_released = open.head().is_some_and(|head| head.kind == Kind::Release);
        if !wanted.force && !wanted.without_bucket && !was_released {
            let lease = self.config.replica.lease;
            if sight.moved_at.is_some_and(|moved| moved.elapsed() <= lease) {
                let message =
                    "The log moved within a lease: the active machine is alive. Stop it first, or use --force.";
                return Err(refuse(409, "active_lives", message));
            }
            let message = "An active machine that is idle can't be seen. Stop it first, then use --force.";
            return Err(refuse(409, "active_unseen", message));
        }
        let failed = |error: ReplicaError| refuse(500, "internal", &error.to_string());
        if wanted.hold {
            open.hold_queue().map_err(failed)?;
        }
        open.checkpoint().map_err(failed)?;
        let (queued, due) = open.queued().map_err(failed)?;
        let position = open.position();
        let now = self.clock.now();
        let wait = match was_released || wanted.without_bucket {
            true => Duration::ZERO,
            false => self.config.replica.lease.mul_f64(1.05) + Duration::from_millis(500),
        };
        Ok(serde_json::json!({
            "epoch": position.epoch + 1,
            "slot": position.slot + 1,
            "accepting_at": now.to_string(),
            "mailing_from": mailing_from(now, wait).to_string(),
            "queued": queued,
            "due": due,
        }))
    }
}
