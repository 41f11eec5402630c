//! Latency of single messages from acceptance to delivery, from the server's own records.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

use crate::Outcome;
use crate::client::Connection;
use crate::server::Server;

const LOOK_EVERY: Duration = Duration::from_millis(5);
const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until the message is delivered, and returns the time since its acceptance, with a resolution of a millisecond.
pub(crate) async fn delivered(server: &Server, id: &str) -> Outcome<Duration> {
    let mut connection = Connection::open(server.http).await?;
    let begun = Instant::now();
    loop {
        let answer = connection.ask("GET", &format!("/v1/messages/{id}"), &server.key).await?;
        let record: Value = serde_json::from_slice(&answer.body)?;
        if record["status"] == "delivered" {
            return between(&record["created_at"], &record["delivered_at"]);
        }
        if begun.elapsed() > DEADLINE {
            return Err(format!("{id} is still {}", record["status"]).into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Sends `count` messages to `recipient`, one after another. Returns their times, shortest first.
pub(crate) async fn sampled(server: &Server, recipient: &str, count: usize) -> Outcome<Vec<Duration>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let id = server.post(recipient, "It is on its way.\n").await?;
        times.push(delivered(server, &id).await?);
    }
    times.sort_unstable();
    Ok(times)
}

/// Returns the time that `share` of the messages did not exceed, in ms.
pub(crate) fn millis_at(times: &[Duration], share: f64) -> f64 {
    let rank = (times.len() as f64 * share).ceil() as usize;
    times.get(rank.saturating_sub(1)).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

fn between(from: &Value, to: &Value) -> Outcome<Duration> {
    let moment = |value: &Value| value.as_str().ok_or("a record without its times")?.parse().map_err(Into::into);
    let (from, to): (Outcome<Timestamp>, Outcome<Timestamp>) = (moment(from), moment(to));
    Ok(Duration::try_from(to?.duration_since(from?)).unwrap_or_default())
}
