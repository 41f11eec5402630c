//! The way that a message takes: by the DNS through the relay `direct`, or straight to an address where `dev` keeps
//! mail in the house.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::domain::address::Address;
use crate::domain::hostname::DomainName;
use crate::smtp::outcome::LoopCheck;

/// Where mail to an address goes, as far as the address alone tells: one lane each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// To the mail servers of a domain.
    Domain(DomainName),
    /// To this address, whatever the DNS says.
    Fixed(SocketAddr),
}

/// Says where mail to an address is kept in the house, if it is.
pub type InHouse = dyn Fn(&Address) -> Option<SocketAddr> + Send + Sync;

/// The relay `direct`, and what goes past it.
#[derive(Clone)]
pub struct Ways {
    /// The relay's name, in every attempt.
    pub relay: Arc<str>,
    /// The name to greet with.
    pub ehlo: Arc<str>,
    /// The port of mail servers.
    pub port: u16,
    /// Mail that is not mailed.
    pub in_house: Option<Arc<InHouse>>,
}

impl Ways {
    /// The lane of mail to `recipient`.
    pub(super) fn place_of(&self, recipient: &Address) -> Place {
        let in_house = self.in_house.as_ref().and_then(|route| route(recipient));
        in_house.map_or_else(|| Place::Domain(recipient.domain().clone()), Place::Fixed)
    }
}

impl Place {
    /// Whether a server that calls itself by our own name is a loop: not where it is our own receiver.
    pub(super) const fn loop_check(&self) -> LoopCheck {
        match self {
            Self::Domain(_) => LoopCheck::OwnNameIsLoop,
            Self::Fixed(_) => LoopCheck::OwnNameIsExpected,
        }
    }
}
