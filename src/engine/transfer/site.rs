//! A receiving site: the mail servers of one or more domains. Limits apply to sites.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::domain::provider_name::provider_name;
use crate::domain::site_name::BYTES_MAX;
use crate::engine::relay::Smarthost;
use crate::smtp::outcome::LoopCheck;
use crate::smtp::shaping::Shaping;

/// Target of mail. Each relay that sends there has one destination queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Site {
    /// The servers of a known provider, for all domains that the provider hosts.
    Provider(Arc<str>),
    /// This set of mail servers, by its name: the sorted names of the servers. If they are long, the first one, the
    /// number of the others, and a hash of all.
    Servers(Arc<str>),
    /// A smarthost, as host and port.
    Smarthost(Arc<str>),
    /// This address, independent of the DNS.
    Captured(SocketAddr),
}

impl Site {
    /// Returns the site of these mail servers, whose names are sorted.
    pub(super) fn of_servers(servers: &[String], shaping: &Shaping) -> Self {
        match shaping.provider_of(servers) {
            Some(provider) => Self::Provider(provider.into()),
            None => Self::Servers(name_of(servers).into()),
        }
    }

    /// Returns the site of a relay's smarthost.
    pub(super) fn of_smarthost(smarthost: &Smarthost) -> Self {
        Self::Smarthost(format!("{}:{}", smarthost.host, smarthost.port).into())
    }

    /// Returns the site's name, for the operator.
    pub(super) fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Provider(name) | Self::Servers(name) | Self::Smarthost(name) => Cow::Borrowed(name),
            Self::Captured(address) => Cow::Owned(address.to_string()),
        }
    }

    /// Returns the site's name in texts for people.
    pub(super) fn name_for_people(&self) -> Cow<'_, str> {
        match self {
            Self::Provider(name) => Cow::Borrowed(provider_name(name)),
            Self::Servers(_) | Self::Smarthost(_) | Self::Captured(_) => self.name(),
        }
    }

    /// Returns the provider, if it is a known one.
    pub(super) fn provider(&self) -> Option<&str> {
        match self {
            Self::Provider(name) => Some(name),
            Self::Servers(_) | Self::Smarthost(_) | Self::Captured(_) => None,
        }
    }

    /// Returns whether a server that identifies itself by our own name means a loop. It does not if the server is our
    /// own receiver, or if the operator configured it as an egress route.
    pub(super) const fn loop_check(&self) -> LoopCheck {
        match self {
            Self::Provider(_) | Self::Servers(_) => LoopCheck::OwnNameIsLoop,
            Self::Smarthost(_) | Self::Captured(_) => LoopCheck::OwnNameIsExpected,
        }
    }
}

fn name_of(servers: &[String]) -> String {
    let all = servers.join(",");
    match servers {
        [first, others @ ..] if all.len() > BYTES_MAX && !others.is_empty() => {
            format!("{first}+{}-{}", others.len(), hex::encode(&Sha256::digest(&all)[..8]))
        }
        _ => all,
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
        for customer in ["c-192-0-2-7.hsd1.ca.comcast.net", "laubervilliers-192-0-2-7.w192-0.abo.wanadoo.fr"] {
            assert_eq!(site(&[customer]).provider(), None);
        }
        assert_eq!(site(&["mx1.comcast.net", "mx2.comcast.net"]).provider(), Some("comcast"));
        assert_eq!(site(&["smtp-in.orange.fr"]).provider(), Some("orange"));
        let two_regions = site(&["eu-smtp-inbound-1.mimecast.com", "us-smtp-inbound-1.mimecast.com"]);
        assert_eq!(two_regions.provider(), Some("mimecast"));
    }

    #[test]
    fn many_servers_have_a_short_name_of_their_own() {
        let servers = |last: &str| -> Vec<String> {
            let many = (0..80).map(|number| format!("mx{number:02}.a-rather-long-name.host.example"));
            many.chain([last.to_owned()]).collect()
        };
        let name = |last| Site::of_servers(&servers(last), Shaping::built_in()).name().into_owned();
        let one = name("mx98.host.example");
        assert!(one.starts_with("mx00.a-rather-long-name.host.example+80-") && one.len() < 60, "{one}");
        assert_eq!(one, name("mx98.host.example"));
        assert_ne!(one, name("mx99.host.example"));
    }
}
