//! Routes of recipients to one of `dev`'s two listeners.
//!
//! The simulator's `timeout` stops answering before it could know the recipient, so it has a separate address.

use std::net::SocketAddr;

use super::simulator::{self, Outcome};

/// The mail that `dev` captures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All mail.
    Everything,
    /// Only mail to `simulator.test`; other mail is delivered for real (`--deliver`).
    SimulatorOnly,
}

/// Routes to `dev`'s own receiver.
#[derive(Debug, Clone, Copy)]
pub struct DevRoutes {
    scope: Scope,
    receiver: SocketAddr,
    silent: SocketAddr,
}

impl DevRoutes {
    pub(super) const fn new(scope: Scope, receiver: SocketAddr, silent: SocketAddr) -> Self {
        Self { scope, receiver, silent }
    }

    /// Returns the address for mail to this recipient; `None` if the mail is delivered for real.
    pub fn route(&self, recipient_local: &str, recipient_domain: &str) -> Option<SocketAddr> {
        match (simulator::outcome_of(recipient_local, recipient_domain), self.scope) {
            (Some(Ok(Outcome::Timeout)), _) => Some(self.silent),
            (Some(_), _) | (None, Scope::Everything) => Some(self.receiver),
            (None, Scope::SimulatorOnly) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_simulator_s_timeout_is_routed_to_the_silent_listener() {
        let [receiver, silent] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let all = DevRoutes::new(Scope::Everything, receiver, silent);
        assert_eq!(all.route("timeout", "simulator.test"), Some(silent));
        assert_eq!(all.route("Timeout+1", "Simulator.Test"), Some(silent));
        assert_eq!(all.route("timeout", "example.com"), Some(receiver));
        assert_eq!(all.route("nobody", "simulator.test"), Some(receiver));

        let few = DevRoutes::new(Scope::SimulatorOnly, receiver, silent);
        assert_eq!(few.route("timeout", "simulator.test"), Some(silent));
        assert_eq!(few.route("bounced+x", "simulator.test"), Some(receiver));
        assert_eq!(few.route("a", "example.com"), None);
    }
}
