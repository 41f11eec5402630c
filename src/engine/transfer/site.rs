//! A receiving site: the mail servers that take the mail of one domain or of many. Sites are what limits are for.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::engine::relay::Smarthost;
use crate::smtp::outcome::LoopCheck;
use crate::smtp::shaping::Shaping;

/// Where mail goes: one destination queue for each relay that goes there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Site {
    /// The servers of a known provider, for all domains that have their mail there.
    Provider(Arc<str>),
    /// This set of mail servers, by their sorted names.
    Servers(Arc<str>),
    /// A smarthost, as host and port.
    Smarthost(Arc<str>),
    /// This address, whatever the DNS says.
    InHouse(SocketAddr),
}

impl Site {
    /// The site of these mail servers, whose names are sorted.
    pub(super) fn of_servers(servers: &[String], shaping: &Shaping) -> Self {
        match shaping.provider_of(servers) {
            Some(provider) => Self::Provider(provider.into()),
            None => Self::Servers(servers.join(",").into()),
        }
    }

    /// The site of a relay's smarthost.
    pub(super) fn of_smarthost(smarthost: &Smarthost) -> Self {
        Self::Smarthost(format!("{}:{}", smarthost.host, smarthost.port).into())
    }

    /// Its name, for the operator.
    pub(super) fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Provider(name) | Self::Servers(name) | Self::Smarthost(name) => Cow::Borrowed(name),
            Self::InHouse(address) => Cow::Owned(address.to_string()),
        }
    }

    /// The provider, where it is a known one.
    pub(super) fn provider(&self) -> Option<&str> {
        match self {
            Self::Provider(name) => Some(name),
            Self::Servers(_) | Self::Smarthost(_) | Self::InHouse(_) => None,
        }
    }

    /// Whether a server that calls itself by our own name is a loop: not where it is our own receiver, nor where the
    /// operator named it as the way out.
    pub(super) const fn loop_check(&self) -> LoopCheck {
        match self {
            Self::Provider(_) | Self::Servers(_) => LoopCheck::OwnNameIsLoop,
            Self::Smarthost(_) | Self::InHouse(_) => LoopCheck::OwnNameIsExpected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(servers: &[&str]) -> Site {
        let servers: Vec<_> = servers.iter().map(|&server| server.to_owned()).collect();
        Site::of_servers(&servers, Shaping::built_in())
    }

    #[test]
    fn hosted_domains_share_their_servers_and_known_providers_all_of_theirs() {
        assert_eq!(site(&["mx1.host.example", "mx2.host.example"]).name(), "mx1.host.example,mx2.host.example");
        assert_ne!(site(&["mx1.host.example"]), site(&["mx2.host.example"]));
        let (gmail, workspace) = (site(&["gmail-smtp-in.l.google.com"]), site(&["aspmx.l.google.com"]));
        assert_eq!((gmail.provider(), &gmail), (Some("google"), &workspace));
    }
}
