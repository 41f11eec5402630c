//! Which keys were set though the part they speak of does not exist yet. A warning at start: what an operator
//! configured and does not get must be said.

use super::{Config, Delivery, RelayKind, Tls};

impl Config {
    /// A sentence for each key whose value asks for what is not built yet.
    pub fn unbuilt(&self) -> Vec<&'static str> {
        let defaults = Delivery::default();
        let smarthost = |relay: &super::Relay| matches!(relay.kind, RelayKind::Smarthost(_));
        let table = [
            (
                matches!(self.http.tls, Tls::Acme(_)),
                "http.tls.mode = \"acme\" is not built yet: `serve` refuses to start with it.",
            ),
            (
                !self.http.trusted_proxies.is_empty(),
                "http.trusted_proxies has no effect yet: X-Forwarded-For is not read.",
            ),
            (self.dns.trust_anchor.is_some(), "dns.trust_anchor has no effect yet: DNSSEC and DANE are not built."),
            (
                self.delivery.mta_sts_port != defaults.mta_sts_port,
                "delivery.mta_sts_port has no effect yet: MTA-STS is not built.",
            ),
            (
                self.delivery.shaping_file.is_some(),
                "delivery.shaping_file has no effect yet: pacing by provider is not built.",
            ),
            (
                self.bounces.as_ref().is_some_and(|bounces| !bounces.listen.is_empty()),
                "bounces.listen has no effect yet: the receiver of bounces is not built, so none come back by mail.",
            ),
            (
                self.relays.iter().any(smarthost),
                "a relay of kind \"smarthost\" has no effect yet: its mail goes by MX instead.",
            ),
            (
                self.relays.iter().any(|relay| !relay.source.is_empty()),
                "source of a relay has no effect yet: the system chooses the address to send from.",
            ),
            (
                self.relays.iter().any(|relay| relay.ehlo.is_some()),
                "ehlo of a relay has no effect yet: every relay greets with hostname.",
            ),
        ];
        table.into_iter().filter(|(is_set, _)| *is_set).map(|(_, sentence)| sentence).collect()
    }
}
