//! Connections to each mail server, over all destinations.
//!
//! A site is a set of servers, and anyone can name another site's server in a domain of their own: beside a server of
//! their own, or by an alias of its address. Each such set is a site with connections of its own. So connections are
//! also counted by provider and by address, for each relay, whose addresses the servers see. Accounts share what one
//! server may get. An account that has none is served at once, even if others have taken all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::Shared;
use super::relays::Number;
use crate::base::id::AccountId;
use crate::engine::ports::Target;
use crate::engine::turn_permits::{TurnPermit, TurnPermits};
use crate::machine::destination::{EXTRA_MAX, Input};

/// Number of entries at which unused ones are removed.
const PRUNE_FROM: usize = 1_024;

/// Key of a count of connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ServerKey {
    /// The provider that runs the server.
    Provider(Arc<str>),
    /// The server's address.
    Address(IpAddr),
    /// The server's name. On the loopback interface, one address serves the servers of many names, for tests.
    Name(Arc<str>),
}

/// The permits for connections to servers.
pub(super) struct Servers(Mutex<Table>);

struct Table {
    permits: HashMap<(Number, ServerKey), TurnPermits>,
    prune_at: usize,
}

impl Default for Servers {
    fn default() -> Self {
        Self(Mutex::new(Table { permits: HashMap::new(), prune_at: PRUNE_FROM }))
    }
}

impl Servers {
    /// Returns a relay's permits of a server that may get `most` connections. It may be known by several names: the
    /// largest number counts, because anyone can give it a name with a small one. A provider has a count of its own.
    fn permits(&self, key: (Number, ServerKey), most: usize) -> TurnPermits {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.permits.len() >= table.prune_at {
            table.permits.retain(|_, permits| !permits.is_unused());
            table.prune_at = PRUNE_FROM.max(table.permits.len() * 2);
        }
        let permits = table.permits.entry(key).or_insert_with(|| TurnPermits::exceedable(most, EXTRA_MAX)).clone();
        permits.raise(most);
        permits
    }
}

/// The permits of one connection.
#[derive(Default)]
pub(super) struct ServerPermits(Vec<TurnPermit>);

impl ServerPermits {
    /// Transfers the permits to the account of the connection's next message.
    pub(super) fn lend(&mut self, account: AccountId) {
        self.0.iter_mut().for_each(|permit| permit.lend(account));
    }

    /// Returns whether a message waits for one of them.
    pub(super) fn are_wanted(&self) -> bool {
        self.0.iter().any(TurnPermit::is_wanted)
    }
}

impl Shared {
    /// Waits for the permits for a connection of a relay to `target`, a server that the DNS names.
    pub(super) async fn server_permits(
        self: &Arc<Self>,
        relay: Number,
        target: &Target,
        account: AccountId,
    ) -> ServerPermits {
        let mut taken = ServerPermits::default();
        let name = [target.host.to_string()];
        let provider = self.shaping.provider_of(&name);
        let most = self.shaping.limits(provider).connections;
        let address = target.address.ip().to_canonical();
        let server =
            if address.is_loopback() { ServerKey::Name(Arc::clone(&target.host)) } else { ServerKey::Address(address) };
        // Always in this order, so that no two messages wait for each other.
        for key in [Some(server), provider.map(|name| ServerKey::Provider(name.into()))].into_iter().flatten() {
            let permits = self.servers.permits((relay, key), most);
            let is_first = !permits.has_waiters();
            let mut turn = std::pin::pin!(permits.take(account));
            let permit = tokio::select! {
                biased;
                permit = &mut turn => permit,
                () = std::future::ready(()) => {
                    if is_first {
                        self.close_wanted();
                    }
                    turn.await
                }
            };
            taken.0.extend(permit);
        }
        taken
    }

    /// Closes the idle connections of all destinations whose permits other messages wait for. Connections that become
    /// idle later are closed then.
    fn close_wanted(self: &Arc<Self>) {
        let destinations = self.destinations();
        let ids = destinations.scheduler.iter().map(|(id, _)| id);
        let wanted: Vec<_> = ids.filter(|id| destinations.is_idle_and_wanted(*id)).collect();
        drop(destinations);
        wanted.into_iter().for_each(|id| self.handle(id, Input::ConnectionsWanted));
    }
}
