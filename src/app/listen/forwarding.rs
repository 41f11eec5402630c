//! Following a service's event log, and forwarding each event to a program, one after the other.
//!
//! It survives restarts of both sides: it follows the service again after the last handled event, and tries each event
//! a few times.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::sleep;

use super::{ForwardResult, ListenOutput, cannot, shutdown_requested};
use crate::app::cli_error::CliError;
use crate::app::exit::Exit;
use crate::base::entropy;
use crate::base::id::{DeliveryId, EventId, Ulid};
use crate::base::secret::Secret;
use crate::base::signature::webhook_secret;
use crate::domain::event::EventType;
use crate::engine::ports::Clock as _;
use crate::engine::webhook::WebhookCall;
use crate::net::clock::SystemClock;
use crate::net::entropy::OsEntropy;
use crate::net::event_source::{EventSource, EventSourceAddress, OpenStream, SourceEvent, SourceFault};
use crate::net::webhook_forward::Forward;

/// Delays between attempts. They are short: the developer is watching, and a program restarts in seconds.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// Delay before following the service again, as its streams advise.
const COMES_AGAIN: Duration = Duration::from_secs(3);

/// Events to follow, and the program to forward them to.
pub struct Forwarding {
    /// The service.
    pub address: EventSourceAddress,
    /// Only events of these types; `None` for all.
    pub events: Option<BTreeSet<EventType>>,
    /// Start after this event; `None` for new events.
    pub after: Option<EventId>,
    /// The program; `None` only shows the events.
    pub program: Option<Program>,
}

/// A program under development.
pub struct Program {
    /// HTTP client for the program.
    pub forward: Forward,
    /// Secret that signs the webhooks; if `None`, a new one is generated and printed.
    pub secret: Option<Secret>,
}

/// Early end of following.
pub(in crate::app) enum End {
    /// An error for the operator.
    Error(CliError),
    /// The output can't be written any more.
    Output(std::io::Error),
}

impl From<std::io::Error> for End {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}

impl Forwarding {
    /// Follows until it is stopped.
    ///
    /// # Errors
    /// The service can't be followed from the start, or refuses later; or the output can't be written.
    pub(in crate::app) async fn run(self, output: &mut ListenOutput<'_>) -> Result<Exit, End> {
        tokio::select! {
            ended = self.follow(output) => ended,
            () = shutdown_requested() => Ok(Exit::Done),
        }
    }

    async fn follow(self, output: &mut ListenOutput<'_>) -> Result<Exit, End> {
        let source = EventSource::new(self.address.clone()).map_err(|fault| End::Error(refused(&fault)))?;
        let mut place = self.after.map(|event| event.to_string());
        let mut stream = source.open(place.as_deref()).await.map_err(|fault| End::Error(refused(&fault)))?;
        let signer = match &self.program {
            Some(program) => Some(signer(program, output)?),
            None => None,
        };
        output.remark("listening; press Ctrl-C to stop");
        loop {
            place = stream.place().map(str::to_owned).or(place);
            let fault = self.pass_on(&mut stream, &mut place, signer.as_ref(), output).await?;
            output.remark(&format!("event stream lost ({fault}); reconnecting"));
            stream = again(&source, place.as_deref()).await?;
        }
    }

    /// Handles one event after the other until the stream is lost, and returns the error of the stream.
    async fn pass_on(
        &self,
        stream: &mut OpenStream,
        place: &mut Option<String>,
        signer: Option<&Secret>,
        output: &mut ListenOutput<'_>,
    ) -> Result<SourceFault, End> {
        loop {
            let event = match stream.next().await {
                Ok(event) => event,
                Err(fault) => return Ok(fault),
            };
            if self.takes(&event) {
                let result = match (&self.program, signer) {
                    (Some(program), Some(secret)) => forward(&program.forward, secret, &event).await,
                    (Some(_) | None, _) => ForwardResult::of(&event.id, &event.kind, &event.record),
                };
                output.print(&result)?;
            }
            *place = Some(event.id);
        }
    }

    fn takes(&self, event: &SourceEvent) -> bool {
        let wanted = |kinds: &BTreeSet<EventType>| kinds.iter().any(|kind| kind.as_str() == event.kind);
        self.events.as_ref().is_none_or(wanted)
    }
}

/// Returns the secret for signing. A generated one is printed, because it is not known to the program yet.
fn signer(program: &Program, output: &mut ListenOutput<'_>) -> Result<Secret, End> {
    if let Some(secret) = &program.secret {
        return Ok(secret.clone());
    }
    let made = webhook_secret(&entropy::bytes(&OsEntropy));
    output.secret(&made)?;
    Ok(made)
}

/// Opens the stream again once the service is back. Only errors that a restart does not fix end it.
async fn again(source: &EventSource, place: Option<&str>) -> Result<OpenStream, End> {
    loop {
        sleep(COMES_AGAIN).await;
        match source.open(place).await {
            Ok(stream) => return Ok(stream),
            Err(SourceFault::Refused { status: 500.., .. } | SourceFault::Lost(_)) => {}
            Err(fault @ SourceFault::Refused { .. }) => return Err(End::Error(refused(&fault))),
        }
    }
}

/// Sends the program an event, with a few retries. Each attempt has a new signature.
async fn forward(forward: &Forward, secret: &Secret, event: &SourceEvent) -> ForwardResult {
    let mut result = ForwardResult::of(&event.id, &event.kind, &event.record);
    let clock = SystemClock::new();
    let delivery = DeliveryId(Ulid::new(clock.now(), entropy::bytes(&OsEntropy)));
    let mut waits = WAITS.into_iter();
    loop {
        result.attempts += 1;
        let telling = WebhookCall {
            event: &event.id,
            kind: &event.kind,
            delivery,
            number: result.attempts,
            at: clock.now(),
            body: &event.record,
        };
        match forward.post(&telling.headers(secret), event.record.clone()).await {
            Ok(status) => (result.status, result.error) = (Some(status), None),
            Err(error) => (result.status, result.error) = (None, Some(error)),
        }
        if result.status.is_some_and(|status| (200..300).contains(&status)) {
            return result;
        }
        let Some(wait) = waits.next() else { return result };
        sleep(wait).await;
    }
}

fn refused(fault: &SourceFault) -> CliError {
    match fault {
        SourceFault::Lost(why) => cannot(
            Exit::Unreachable,
            format!("the service does not answer: {why}"),
            "Start the service, or select it with --data-dir, --config, or --url and --key.",
        ),
        SourceFault::Refused { status, body } => {
            let error: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
            let code = error["code"].as_str().unwrap_or_default();
            let why = error["message"].as_str().map_or_else(|| fault.to_string(), str::to_owned);
            let exit = match Exit::of_answer(*status, code) {
                Exit::Done => Exit::Failed,
                other => other,
            };
            cannot(exit, why, "Use a key with the scope read, and an event ID from `event list`.")
        }
    }
}
