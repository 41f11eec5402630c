//! The ways that messages take: the relays, and what goes past them because `dev` keeps it in the house.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::domain::address::Address;
use crate::engine::relay::Relay;

/// Says where mail to an address is kept in the house, if it is.
pub type InHouse = dyn Fn(&Address) -> Option<SocketAddr> + Send + Sync;

/// The relays, and what goes past them.
#[derive(Clone)]
pub struct Ways {
    /// At least one for each stream.
    pub relays: Vec<Relay>,
    /// The port of receivers' servers.
    pub port: u16,
    /// Mail that is not mailed.
    pub in_house: Option<Arc<InHouse>>,
}
