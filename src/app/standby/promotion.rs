//! The promotion of a standby by an operator: the checks, the claim, and the answer to the operator.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::sight::LogView;
use super::{FollowEnd, Following, LoopEnd};
use crate::app::bucket_wait::BucketWait;
use crate::app::cli_error::CliError;
use crate::app::exit::Exit;
use crate::app::replication::{self, Claim, cannot_join, mailing_from};
use crate::app::signals::Signals;
use crate::base::time::Timestamp;
use crate::engine::ports::BucketErrorKind;
use crate::engine::replica::{ReplicaError, ReplicaStatus, Standby, open_without_bucket};
use crate::http::standby::{ACTIVE_UNSEEN, Promotion, PromotionAnswer, PromotionRefusal, PromotionRequest};
use crate::store::replica::claim::ClaimCause;
use crate::store::replica::{Kind, Position, continue_without_bucket};

/// Maximum wait of an operator for the bucket's answer to the claim, below the deadline of the request.
const CLAIM_WAIT: Duration = Duration::from_secs(45);

/// A promotion without objections, which is answered once the log is claimed.
pub(super) struct AcceptedPromotion {
    answer: PromotionAnswer,
    queued: u64,
    due: u64,
    /// The position before the claim.
    position: Position,
}

impl AcceptedPromotion {
    fn grant(self, (epoch, slot): (u64, u64), now: Timestamp, wait: Duration) {
        let promoted = json!({
            "epoch": epoch,
            "slot": slot,
            "accepting_at": now.to_string(),
            "mailing_from": mailing_from(now, wait).to_string(),
            "queued": self.queued,
            "due": self.due,
        });
        // An operator who does not wait any more sees the result in the status.
        drop(self.answer.send(Ok(promoted)));
    }

    fn refuse(self, status: u16, code: &'static str, message: String) {
        drop(self.answer.send(Err(PromotionRefusal { status, code, message })));
    }
}

impl Following<'_> {
    /// Checks whether the log may be claimed. Returns the end of following if a promotion is allowed. Otherwise answers
    /// with the reason.
    pub(super) fn promote(
        &self,
        (wanted, answer): Promotion,
        standby: &mut Option<Standby>,
        sight: &LogView,
    ) -> Option<LoopEnd> {
        match self.prepare(wanted, standby, sight) {
            Ok((position, queued, due)) => {
                let accepted = AcceptedPromotion { answer, queued, due, position };
                let cause = if wanted.hold { ClaimCause::PromotionWithHold } else { ClaimCause::Promotion };
                Some(match wanted.without_bucket {
                    true => LoopEnd::WithoutBucket(accepted),
                    false => LoopEnd::Claim(cause, Some(accepted)),
                })
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
    ) -> Result<(Position, u64, u64), PromotionRefusal> {
        let refuse = |status, code, message: &str| PromotionRefusal { status, code, message: message.to_owned() };
        let not_ready = || refuse(503, "not_ready", "The standby has not reached the end of the log yet.");
        let failed = |error: ReplicaError| refuse(500, "internal", &error.to_string());
        if let Some(bytes) = self.world.replica.disk.lacks_room(&self.config.data_dir) {
            let mebibytes = bytes.div_ceil(1 << 20);
            let message = format!(
                "The disk of this standby is full: {mebibytes} MiB more must be free to serve. Nothing was claimed. \
                 Free space, and try again."
            );
            return Err(refuse(503, "storage_full", &message));
        }
        if wanted.without_bucket {
            return self.leave_log(standby, wanted.hold).map_err(failed)?.ok_or_else(not_ready);
        }
        let Some(open) = standby.as_mut().filter(|_| sight.is_at_end) else { return Err(not_ready()) };
        let was_released = open.head().is_some_and(|head| head.kind == Kind::Release);
        if !wanted.force && !was_released {
            let rules = replication::lease_rules(self.config);
            let lease = rules.lease.max(open.lease());
            if sight.moved_at.is_some_and(|moved| moved.elapsed() <= lease) {
                let message =
                    "The log moved within a lease: the active machine is alive. Stop it first, or use --force.";
                return Err(refuse(409, "active_lives", message));
            }
            // A machine that stops when its lease expires does not mail after the claim. A machine that continues to
            // serve may be idle, and the log does not show that it is active.
            if !rules.stops {
                let message = "An active machine that is idle can't be seen. Stop it first, then use --force.";
                return Err(refuse(409, ACTIVE_UNSEEN, message));
            }
        }
        open.checkpoint().map_err(failed)?;
        let (queued, due) = open.queued().map_err(failed)?;
        Ok((open.position(), queued, due))
    }

    /// Lets the store continue without the log, which can't be read. `None` if there is no store yet.
    fn leave_log(
        &self,
        standby: &mut Option<Standby>,
        hold: bool,
    ) -> Result<Option<(Position, u64, u64)>, ReplicaError> {
        let directory = &self.config.data_dir;
        let follower = match standby.take() {
            Some(open) => Some(open.into_follower()),
            // The process was started while the bucket did not answer.
            None => open_without_bucket(&self.world.replica, directory)?,
        };
        let Some(mut follower) = follower else { return Ok(None) };
        let now = self.clock.now();
        follower.leave_log()?;
        if hold {
            follower.hold_queue(now)?;
        }
        follower.checkpoint()?;
        let (queued, due) = follower.queued(now)?;
        continue_without_bucket(&self.world.replica.disk, directory).map_err(|error| ReplicaError::Io {
            what: "marking the directory as one that continues without the bucket".to_owned(),
            error,
        })?;
        Ok(Some((follower.position().unwrap_or_default(), queued, due)))
    }

    /// Claims the log if following ended for a claim, and answers the operator. A claim without a waiting operator
    /// shows its reason for waiting in `status`, and ends if an operator asks for a promotion.
    pub(super) async fn claim(
        &self,
        end: LoopEnd,
        signals: &mut Signals,
        promotions: &mut mpsc::Receiver<Promotion>,
        status: &watch::Sender<ReplicaStatus>,
    ) -> Result<FollowEnd, CliError> {
        let (cause, promotion) = match end {
            LoopEnd::Stopped => return Ok(FollowEnd::Stopped),
            LoopEnd::WithoutBucket(promotion) => {
                let Position { epoch, slot, .. } = promotion.position;
                promotion.grant((epoch + 1, slot + 1), self.clock.now(), Duration::ZERO);
                return Ok(FollowEnd::WithoutBucket);
            }
            LoopEnd::Claim(cause, promotion) => (cause, promotion),
        };
        let is_awaited = promotion.is_some();
        let (config, clock) = (self.config, Arc::clone(self.clock));
        let mut waiting = BucketWait::of_standby(status.clone(), !is_awaited);
        let claimed = tokio::select! {
            claimed = replication::claim(config, &config.data_dir, clock, cause, &mut waiting) => claimed,
            () = signals.stop() => return Ok(FollowEnd::Stopped),
            // A claim that is still on its way makes this process the holder, which the next turn sees.
            () = tokio::time::sleep(CLAIM_WAIT), if is_awaited => Ok(None),
            next = promotions.recv(), if !is_awaited => {
                self.next_promotion.set(next);
                Ok(None)
            }
        };
        if let Some(promotion) = promotion {
            answer(promotion, &claimed, self.clock.now());
        }
        Ok(match claimed? {
            Some(Ok(claim)) => FollowEnd::Claimed(Box::new(claim)),
            Some(Err(error)) => {
                tracing::warn!(%error, "could not claim the log; following it again");
                FollowEnd::Unclaimed
            }
            None => FollowEnd::Unclaimed,
        })
    }
}

/// Answers the operator with the result of the claim.
fn answer(
    promotion: AcceptedPromotion,
    claimed: &Result<Option<Result<Claim, ReplicaError>>, CliError>,
    now: Timestamp,
) {
    match claimed {
        Ok(Some(Ok(claim))) => {
            let Position { epoch, slot, .. } = claim.start().confirmed;
            promotion.grant((epoch, slot), now, claim.wait());
        }
        Ok(Some(Err(error))) if error.needs_base() => {
            let message = "The log does not continue from this standby. It is building its store from the newest base. \
                           Try again once `postrider replica status` shows the state ok.";
            promotion.refuse(503, "not_ready", message.to_owned());
        }
        Ok(Some(Err(error))) if error.of_bucket().is_some_and(|error| error.kind == BucketErrorKind::Forbidden) => {
            promotion.refuse(403, "replica_forbidden", cannot_join(error).reason());
        }
        Ok(Some(Err(_)) | None) => {
            let message = "The bucket did not confirm the claim, or the active machine wrote every next slot first. \
                           The standby continues to follow the log. Stop the active machine, and try again.";
            promotion.refuse(503, "replica_unavailable", message.to_owned());
        }
        Err(error) => {
            let (status, code) = match error.exit() {
                Exit::Conflict => (409, "conflict"),
                _ => (500, "internal"),
            };
            promotion.refuse(status, code, error.reason());
        }
    }
}
