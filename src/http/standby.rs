//! The HTTP service of a standby: it is alive but not ready. The operator's socket shows its state and promotes it.

use std::sync::Arc;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::RETRY_AFTER;
use hyper::{Method, Request, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};

use super::answer::Answer;
use crate::base::entropy::{self, Entropy};
use crate::base::id::Ulid;
use crate::engine::ports::Clock;
use crate::engine::replica::ReplicaStatus;
use crate::net::http_body::Body;
use crate::net::http_listener::{Connection, ListenerKind, Serve};

/// Maximum size of a promotion's body in bytes.
const BODY_BYTES_MAX: usize = 4096;

/// Error code of a promotion that is refused because an idle active machine can't be seen.
pub const ACTIVE_UNSEEN: &str = "active_unseen";

/// A promotion requested by the operator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PromotionRequest {
    /// Promote even if the active machine may still run.
    pub force: bool,
    /// Put queued messages on hold.
    pub hold: bool,
    /// Continue without the bucket.
    pub without_bucket: bool,
}

/// Reason for a refused promotion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromotionRefusal {
    /// HTTP status.
    pub status: u16,
    /// Error code.
    pub code: &'static str,
    /// Error message.
    pub message: String,
}

/// The channel for the answer to a promotion.
pub type PromotionAnswer = oneshot::Sender<Result<serde_json::Value, PromotionRefusal>>;

/// A promotion for the standby's loop, and the channel for its answer.
pub type Promotion = (PromotionRequest, PromotionAnswer);

/// The service.
pub struct StandbyService {
    status: watch::Receiver<ReplicaStatus>,
    /// `None` for a service that waits for the bucket of its replica before it starts.
    promotions: Option<mpsc::Sender<Promotion>>,
    identities: Identities,
}

/// Randomness and time for request identifiers.
pub type Identities = (Arc<dyn Clock>, Arc<dyn Entropy>);

impl StandbyService {
    /// Creates a service that shows `status` and passes on promotions.
    pub const fn new(
        status: watch::Receiver<ReplicaStatus>,
        promotions: mpsc::Sender<Promotion>,
        identities: Identities,
    ) -> Self {
        Self { status, promotions: Some(promotions), identities }
    }

    /// Creates the service of a start that waits for the bucket. It shows `status`, and answers all other requests with
    /// the error in it.
    pub const fn waiting(status: watch::Receiver<ReplicaStatus>, identities: Identities) -> Self {
        Self { status, promotions: None, identities }
    }

    async fn promote(&self, promotions: &mpsc::Sender<Promotion>, request: Request<Incoming>) -> Answer {
        let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await.map(|body| body.to_bytes());
        let parsed = body.ok().and_then(|body| match body.is_empty() {
            true => Some(PromotionRequest::default()),
            false => serde_json::from_slice(&body).ok(),
        });
        let Some(wanted) = parsed else { return refusal(422, "invalid_json", "The request body is not valid.") };
        let (sender, answer) = oneshot::channel();
        if promotions.send((wanted, sender)).await.is_err() {
            return refusal(503, "shutting_down", "The standby is stopping.");
        }
        match answer.await {
            Ok(Ok(promoted)) => Answer::json(StatusCode::OK, &promoted),
            Ok(Err(PromotionRefusal { status, code, message })) => refusal(status, code, &message),
            Err(_) => refusal(503, "shutting_down", "The standby is stopping."),
        }
    }

    fn unavailable(&self) -> Answer {
        let refused = match &self.promotions {
            Some(_) => refusal(503, "standby", "This machine is a standby. Ask the active one, or promote this one."),
            None => {
                let why = self.status.borrow().error.clone().unwrap_or_default();
                refusal(503, "replica_unavailable", &format!("The service is not started: {why}."))
            }
        };
        refused.with_header(RETRY_AFTER, "5")
    }
}

impl Serve for StandbyService {
    async fn serve(&self, request: Request<Incoming>, connection: &Arc<Connection>) -> Response<Body> {
        let (method, is_operator) = (request.method().clone(), connection.kind == ListenerKind::Admin);
        let (clock, entropy) = &self.identities;
        let id = Ulid::new(clock.now(), entropy::bytes(&**entropy)).to_string();
        let answer = match (&method, request.uri().path(), &self.promotions) {
            (&Method::GET | &Method::HEAD, "/healthz", _) => Answer::json(StatusCode::OK, &json!({ "status": "ok" })),
            (&Method::GET, "/v1/replica", _) if is_operator => Answer::json(StatusCode::OK, &*self.status.borrow()),
            (&Method::POST, "/v1/replica/promote", Some(promotions)) if is_operator => {
                self.promote(promotions, request).await
            }
            (_, _, _) => self.unavailable(),
        };
        answer.into_response(&method, &id)
    }
}

fn refusal(status: u16, code: &str, message: &str) -> Answer {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    Answer::json(status, &json!({ "message": message, "code": code }))
}
