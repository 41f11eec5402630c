//! The webhook receivers: one endpoint for each tenant, at `https://hooks-N.test/`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::plan::FaultClass;
use super::replica::fence;
use super::world::{Posted, World};
use crate::engine::ports::{BoxFuture, Post, PostError, PostOutcome, WebhookRequest};

/// Time limit of a webhook request (contract 5).
const DEADLINE: Duration = Duration::from_secs(10);

/// Sends webhook requests to the simulated receivers.
pub(super) struct SimulatedPost {
    pub(super) world: Arc<World>,
    /// The process that sends.
    pub(super) life: u32,
}

/// Returns the endpoint URL of a tenant.
pub(super) fn url(tenant: usize) -> String {
    format!("https://hooks-{tenant}.test/")
}

impl Post for SimulatedPost {
    fn post<'a>(&'a self, request: WebhookRequest, begun: &'a AtomicBool) -> BoxFuture<'a, PostOutcome> {
        Box::pin(async move {
            let (world, began) = (&self.world, Instant::now());
            fence::sends(world, self.life);
            sleep(world.millis(0, 50)).await;
            if world.strikes(FaultClass::Webhooks, 60) {
                let error = world.pick(&[PostError::Dns, PostError::Connect, PostError::Tls]);
                return outcome(None, Some(error), began);
            }
            begun.store(true, Ordering::Release);
            let (status, error, is_seen) = self.judge();
            if is_seen {
                self.record(&request, status.is_some_and(|status| status / 100 == 2));
            }
            sleep(if error == Some(PostError::Timeout) { DEADLINE } else { world.millis(0, 200) }).await;
            outcome(status, error, began)
        })
    }
}

impl SimulatedPost {
    /// Returns status and error of an answer, and whether the receiver has seen the event.
    fn judge(&self) -> (Option<u16>, Option<PostError>, bool) {
        let world = &self.world;
        if !world.strikes(FaultClass::Webhooks, 200) {
            return (Some(world.pick(&[200, 202, 204])), None, true);
        }
        match world.below(4) {
            0 => (None, Some(PostError::Timeout), true),
            1 => (None, Some(PostError::Reset), true),
            2 => (Some(world.pick(&[302, 404, 410, 429])), Some(PostError::Status), true),
            _ => (Some(world.pick(&[500, 503])), Some(PostError::Status), false),
        }
    }

    fn record(&self, request: &WebhookRequest, is_acknowledged: bool) {
        let host = request.url.host_str().unwrap_or_default();
        let tenant = host.trim_start_matches("hooks-").trim_end_matches(".test").parse().unwrap();
        let event: serde_json::Value = serde_json::from_slice(&request.body).expect("an event is JSON");
        let event = event["id"].as_str().expect("an event has an id").to_owned();
        self.world.note(format!("hooks-{tenant} sees {event}, acknowledged: {is_acknowledged}"));
        let (life, at) = (self.life, self.world.clocks.elapsed());
        let posted = Posted { tenant, event, body: request.body.to_vec(), life, at, is_acknowledged };
        self.world.state().posted.push(posted);
    }
}

fn outcome(status: Option<u16>, error: Option<PostError>, began: Instant) -> PostOutcome {
    PostOutcome { status, error, duration: began.elapsed(), peer: None, body: None }
}
