//! The routes under `/dev` (contract 8): captured mail and the virtual clock. They stand in the table of `dev` alone,
//! without authentication, and answer loopback clients only (`dev_guard`).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::{Method, StatusCode};
use serde::Serialize;
use serde_json::Value;

use super::answer::Answer;
use super::error::ApiError;
use super::route::{Access, BodyRule, Call, Route};
use super::state::Api;
use crate::base::id::MessageId;
use crate::base::time::{Timestamp, iso};
use crate::domain::violation::Violations;
use crate::engine::blocking::OPERATOR;
use crate::engine::virtual_clock::{AdvanceError, VirtualClock};
use crate::net::dev::capture::{Capture, CapturedMail};

/// The longest single advance: a hundred years.
const ADVANCE_SECONDS_MAX: f64 = 100.0 * 366.0 * 86_400.0;

/// What the routes need.
pub struct Dev {
    /// The captured mail.
    pub capture: Arc<Capture>,
    /// The virtual clock, where time is virtual.
    pub clock: Option<Arc<VirtualClock>>,
}

/// The rows of the route table.
pub fn routes() -> Vec<Route<Api>> {
    vec![
        row(Method::GET, "/dev/mail", "dev.mail.list", Access::Loopback(|api, call| Box::pin(list(api, call)))),
        row(Method::DELETE, "/dev/mail", "dev.mail.clear", Access::Loopback(|api, call| Box::pin(clear(api, call)))),
        row(Method::GET, "/dev/mail/{id}", "dev.mail.show", Access::Loopback(|api, call| Box::pin(show(api, call)))),
        row(Method::GET, "/dev/clock", "dev.clock.show", Access::Loopback(|api, call| Box::pin(clock(api, call)))),
        row(
            Method::POST,
            "/dev/clock",
            "dev.clock.advance",
            Access::Loopback(|api, call| Box::pin(advance(api, call))),
        )
        .with_body(BodyRule::OfAnyType),
    ]
}

fn row(method: Method, path: &'static str, name: &'static str, access: Access<Api>) -> Route<Api> {
    Route::new(method, path, name, access)
}

fn dev(api: &Api) -> Result<&Dev, ApiError> {
    api.dev.as_deref().ok_or(ApiError::NotFound)
}

#[derive(Serialize)]
struct MailList {
    data: Vec<CapturedMail>,
}

async fn list(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    Ok(Answer::json(StatusCode::OK, &MailList { data: dev(api)?.capture.list() }))
}

#[derive(Serialize)]
struct Mail {
    #[serde(flatten)]
    mail: CapturedMail,
    raw: String,
}

async fn show(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let id: MessageId = call.param("id").parse().map_err(|_| ApiError::NotFound)?;
    let capture = Arc::clone(&dev(api)?.capture);
    // From its content's deadline on a message is refused everywhere (contract 7).
    if api.engine.is_content_over(id)? {
        return Err(ApiError::NotFound);
    }
    let found = blocking(api, move || capture.get(id)).await?;
    let (mail, raw) = found.ok_or(ApiError::NotFound)?;
    Ok(Answer::json(StatusCode::OK, &Mail { mail, raw: STANDARD.encode(raw) }))
}

async fn clear(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let capture = Arc::clone(&dev(api)?.capture);
    blocking(api, move || capture.clear()).await?;
    Ok(Answer::no_content())
}

async fn blocking<T: Send + 'static>(
    api: &Api,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    let done = api.engine.blocking(OPERATOR, work).await?;
    done.map_err(|error| {
        tracing::error!(%error, "captured mail can't be reached");
        ApiError::Internal
    })
}

#[derive(Serialize)]
struct Now {
    #[serde(serialize_with = "iso::serialize")]
    now: Timestamp,
}

async fn clock(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    dev(api)?;
    Ok(Answer::json(StatusCode::OK, &Now { now: api.engine.clock.now() }))
}

#[derive(Serialize)]
struct Moved {
    #[serde(serialize_with = "iso::serialize")]
    now: Timestamp,
    fired: u64,
}

async fn advance(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let clock = dev(api)?
        .clock
        .clone()
        .ok_or_else(|| ApiError::Conflict("time is real here: start dev with --virtual-clock to move it".to_owned()))?;
    let by = advance_of(&call.json()?)?;
    let store = Arc::clone(&api.engine.store);
    // On its own, so that it goes to its end when the client leaves.
    let moved = tokio::spawn(async move { VirtualClock::advance(&clock, by, &store).await }).await;
    match moved {
        Ok(Ok(moved)) => Ok(Answer::json(StatusCode::OK, &Moved { now: moved.now, fired: moved.fired })),
        Ok(Err(AdvanceError::Store(_))) => Err(ApiError::StorageFailed),
        Ok(Err(AdvanceError::File(error))) => {
            tracing::error!(%error, "the virtual clock stands still");
            Err(ApiError::Internal)
        }
        Err(_) => Err(ApiError::Internal),
    }
}

fn advance_of(body: &serde_json::Map<String, Value>) -> Result<Duration, ApiError> {
    let mut violations = Violations::new();
    for name in body.keys().filter(|name| *name != "advance_seconds") {
        violations.add(name, "unknown field");
    }
    let seconds = body.get("advance_seconds").and_then(Value::as_f64);
    let fits = seconds.filter(|seconds| (0.0..=ADVANCE_SECONDS_MAX).contains(seconds));
    if fits.is_none() {
        violations.add("advance_seconds", "must be a number of seconds, 0 or more, and at most a hundred years");
    }
    Ok(violations.or(|| fits.map(Duration::from_secs_f64))?)
}
