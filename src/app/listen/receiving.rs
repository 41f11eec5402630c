//! The receiver: verifies incoming webhooks by their signature and its age (contract 5), and shows them.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::HeaderMap;
use tokio::sync::mpsc;

use super::forwarding::End;
use super::{ForwardResult, ListenOutput, cannot, shutdown_requested};
use crate::app::exit::Exit;
use crate::base::secret::Secret;
use crate::base::signature::verify_service_signature;
use crate::engine::ports::Clock as _;
use crate::net::clock::SystemClock;
use crate::net::hook_listener::{HookListener, Judge, Verdict};

/// Maximum number of lines that wait to be printed. Webhooks beyond it are refused and will be retried by the sender.
const LINES_MAX: usize = 1024;

/// Address of the receiver, and secret for verification.
pub struct Receiving {
    /// The address to listen at.
    pub address: SocketAddr,
    /// The endpoint's secret.
    pub secret: Secret,
}

impl Receiving {
    /// Receives until it is stopped.
    ///
    /// # Errors
    /// The address can't be bound, or the output can't be written.
    pub(in crate::app) async fn run(self, output: &mut ListenOutput<'_>) -> Result<Exit, End> {
        let in_use = |error: std::io::Error| {
            let why = format!("cannot listen at {}: {error}", self.address);
            End::Error(cannot(Exit::Failed, why, "Choose another address; port 0 selects a free port."))
        };
        let listener = HookListener::bind(self.address).await.map_err(in_use)?;
        output.remark(&format!("receiving at http://{}; press Ctrl-C to stop", listener.address()?));
        let (sender, mut lines) = mpsc::channel(LINES_MAX);
        let secret = self.secret;
        let judge: Arc<Judge> = Arc::new(move |headers: &HeaderMap, body: Bytes| {
            let result = judged(&secret, headers, &body);
            let verdict = if result.error.is_none() { Verdict::Believed } else { Verdict::Refused };
            if sender.try_send(result).is_ok() { verdict } else { Verdict::Refused }
        });
        let serving = listener.serve(judge);
        let ending = shutdown_requested();
        tokio::pin!(serving, ending);
        loop {
            tokio::select! {
                line = lines.recv() => match line {
                    Some(result) => output.print(&result)?,
                    None => return Ok(Exit::Done),
                },
                () = &mut serving => return Ok(Exit::Done),
                () = &mut ending => return Ok(Exit::Done),
            }
        }
    }
}

/// Returns the line for a request, with the reason if it is refused.
fn judged(secret: &Secret, headers: &HeaderMap, body: &[u8]) -> ForwardResult {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let verdict = verify_service_signature(secret, header("x-service-signature"), body, SystemClock::new().now());
    let mut result = ForwardResult::of(header("webhook-id"), header("x-service-event"), body);
    result.attempts = header("x-service-attempt").parse().unwrap_or(0);
    (result.status, result.error) = match verdict {
        Ok(()) => (Some(204), None),
        Err(why) => (Some(401), Some(why.to_string())),
    };
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::DeliveryId;
    use crate::base::time::Timestamp;
    use crate::engine::webhook::WebhookCall;

    fn headers(at: Timestamp, secret: &Secret, body: &[u8]) -> HeaderMap {
        let telling =
            WebhookCall { event: "evt_1", kind: "queued", delivery: DeliveryId::default(), number: 2, at, body };
        telling
            .headers(secret)
            .into_iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn only_authentic_and_recent_webhooks_are_accepted() {
        let (now, secret, body) = (SystemClock::new().now(), Secret::new("whsec_a"), b"{\"message_id\":\"msg_1\"}");
        let result = judged(&secret, &headers(now, &secret, body), body);
        assert_eq!((result.status, result.error, result.attempts), (Some(204), None, 2));
        assert_eq!(
            (result.event.as_str(), result.kind.as_str(), result.message.as_deref()),
            ("evt_1", "queued", Some("msg_1"))
        );
        let old = Timestamp::from_millis(now.as_millis() - 302_000);
        for (headers, why) in [
            (headers(old, &secret, body), "300 s old"),
            (headers(now, &Secret::new("whsec_b"), body), "does not match the body"),
            (HeaderMap::new(), "is not t="),
        ] {
            let result = judged(&secret, &headers, body);
            assert_eq!(result.status, Some(401));
            assert!(result.error.as_deref().unwrap_or("").contains(why), "{result:?}");
        }
    }
}
