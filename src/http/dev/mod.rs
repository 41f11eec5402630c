//! The routes under `/dev` (contract 8 and 12.2): captured mail, the virtual clock, and accounts for tests. Only `dev`
//! has them. They need no authentication, and answer only this machine and the networks of `--dev-allow` (`dev_guard`).

mod accounts;
mod initial_accounts;
mod mail;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub use self::initial_accounts::InitialAccounts;
use hyper::{Method, StatusCode};
use serde::Serialize;
use serde_json::Value;

use super::answer::Answer;
use super::error::ApiError;
use super::route::{Access, BodyRule, Call, Route};
use super::state::Api;
use crate::base::time::{Timestamp, iso};
use crate::domain::network::Network;
use crate::domain::violation::Violations;
use crate::engine::Engine;
use crate::engine::blocking::OPERATOR;
use crate::engine::virtual_clock::{AdvanceError, VirtualClock};
use crate::net::dev::capture::Capture;

/// Maximum length of a single advance: a hundred years.
const ADVANCE_SECONDS_MAX: f64 = 100.0 * 366.0 * 86_400.0;

/// State of the routes.
pub struct Dev {
    /// The captured mail.
    pub capture: Arc<Capture>,
    /// The virtual clock, if time is virtual.
    pub clock: Option<Arc<VirtualClock>>,
    /// Networks that may use the routes, in addition to this machine.
    pub allow: Vec<Network>,
    /// The initial keys and domains of the accounts.
    pub given: InitialAccounts,
}

impl Dev {
    /// Makes captured mail show the sending account. Called before anything is sent.
    pub fn attach(&self, engine: &Arc<Engine>) {
        let engine = Arc::downgrade(engine);
        self.capture.find_accounts(Box::new(move |message| {
            let found = engine.upgrade()?.account_of_message(message);
            found.unwrap_or_else(|error| {
                tracing::error!(
                    %error,
                    "could not look up the account of captured mail; the mail is listed without it"
                );
                None
            })
        }));
    }

    /// Returns whether a client at `address` may use the routes.
    pub(super) fn lets_in(&self, address: IpAddr) -> bool {
        self.allow.iter().any(|network| network.contains(address))
    }
}

/// Boxes a handler for the route table.
macro_rules! run {
    ($handler:path) => {
        Access::Loopback(|api, call| Box::pin($handler(api, call)))
    };
}

/// The rows of the route table.
pub fn routes() -> Vec<Route<Api>> {
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    vec![
        Route::new(get.clone(), "/dev/mail", "dev.mail.list", run!(mail::list)),
        Route::new(delete.clone(), "/dev/mail", "dev.mail.clear", run!(mail::clear)),
        Route::new(get.clone(), "/dev/mail/{id}", "dev.mail.show", run!(mail::show)),
        Route::new(get, "/dev/clock", "dev.clock.show", run!(clock)),
        Route::new(post.clone(), "/dev/clock", "dev.clock.advance", run!(advance)).with_body(BodyRule::OfAnyType),
        Route::new(post.clone(), "/dev/accounts", "dev.accounts.create", run!(accounts::create))
            .with_body(BodyRule::OfAnyType),
        Route::new(delete, "/dev/accounts/{id}", "dev.accounts.delete", run!(accounts::delete)),
        Route::new(post, "/dev/reset", "dev.reset", run!(accounts::reset)).with_body(BodyRule::OfAnyType),
    ]
}

fn dev(api: &Api) -> Result<&Dev, ApiError> {
    api.dev.as_deref().ok_or(ApiError::NotFound)
}

async fn blocking<T: Send + 'static>(
    api: &Api,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    let done = api.engine.blocking(OPERATOR, work).await?;
    done.map_err(|error| {
        tracing::error!(%error, "could not read captured mail; the request failed");
        ApiError::Internal
    })
}

#[derive(Serialize)]
struct ClockTime {
    #[serde(serialize_with = "iso::serialize")]
    now: Timestamp,
}

async fn clock(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    dev(api)?;
    Ok(Answer::json(StatusCode::OK, &ClockTime { now: api.engine.clock.now() }))
}

#[derive(Serialize)]
struct AdvancedClock {
    #[serde(serialize_with = "iso::serialize")]
    now: Timestamp,
    fired: u64,
}

async fn advance(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let clock = dev(api)?.clock.clone().ok_or_else(|| {
        ApiError::Conflict("The clock is real. Start dev with --virtual-clock to move it.".to_owned())
    })?;
    call.no_query()?;
    let by = advance_of(&call.json()?)?;
    let store = Arc::clone(&api.engine.store);
    // The clock advances in a separate task, so that it completes even if the client disconnects.
    let moved = tokio::spawn(async move { VirtualClock::advance(&clock, by, &store).await }).await;
    match moved {
        Ok(Ok(moved)) => Ok(Answer::json(StatusCode::OK, &AdvancedClock { now: moved.now, fired: moved.fired })),
        Ok(Err(AdvanceError::Store(_))) => Err(ApiError::StorageFailed),
        Ok(Err(AdvanceError::File(error))) => {
            tracing::error!(%error, "could not advance the virtual clock; the request failed");
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
