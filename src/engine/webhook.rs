//! The headers of a webhook (contract 5), for requests to endpoints ([`super::deliver`]) and for those that `postrider
//! webhook listen` forwards to a program under development.

use crate::base::id::DeliveryId;
use crate::base::secret::Secret;
use crate::base::signature::{service_signature, standard_signature};
use crate::base::time::Timestamp;

const USER_AGENT: &str = concat!("Postrider/", env!("CARGO_PKG_VERSION"));

/// One attempt to deliver an event.
#[derive(Debug, Clone, Copy)]
pub struct WebhookCall<'a> {
    /// The event's identifier.
    pub event: &'a str,
    /// Type.
    pub kind: &'a str,
    /// Identifier of the delivery, the same for all its attempts.
    pub delivery: DeliveryId,
    /// Attempt number, from 1.
    pub number: u8,
    /// Time of the attempt, which is part of its signatures.
    pub at: Timestamp,
    /// The event's bytes.
    pub body: &'a [u8],
}

impl WebhookCall<'_> {
    /// Returns the headers, signed with `secret`; names in lower case.
    pub fn headers(&self, secret: &Secret) -> Vec<(&'static str, String)> {
        vec![
            ("content-type", "application/json".to_owned()),
            ("user-agent", USER_AGENT.to_owned()),
            ("x-service-signature", service_signature(secret, self.at, self.body)),
            ("x-service-event", self.kind.to_owned()),
            ("x-service-delivery", self.delivery.to_string()),
            ("x-service-attempt", self.number.to_string()),
            ("webhook-signature", standard_signature(secret, self.event, self.at, self.body)),
            ("webhook-timestamp", self.at.as_secs().to_string()),
            ("webhook-id", self.event.to_owned()),
        ]
    }
}
