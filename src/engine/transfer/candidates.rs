//! The servers that an attempt tries, in order: the recipient's MX servers, the smarthost of a relay, or our own
//! receiver. Each has the address to send from.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::Shared;
use super::attempt::AttemptError;
use super::destination_queue::DestinationQueue;
use super::failed_attempt::{RelayFault, deferred, route_failed, unasked};
use super::relays::{DrawPurpose, place_of};
use super::site::Site;
use crate::base::id::MessageId;
use crate::engine::ports::{LookupFailure, MAIL_HOSTS_MAX, MailHost, Requester, Target};
use crate::engine::relay::{RelayWay, Smarthost};
use crate::smtp::deadlines::Deadlines;
use crate::smtp::finding;
use crate::smtp::tls_policy::TlsRequirement;
use crate::store::row::message::MessageRow;

/// A server's address, and the server's name in the DNS.
pub(super) struct Candidate {
    pub(super) target: Target,
    pub(super) host: Option<Arc<MailHost>>,
}

/// Domain whose servers are looked up.
pub(super) struct Question<'a> {
    pub(super) shared: &'a Shared,
    pub(super) queue: &'a DestinationQueue,
    pub(super) row: &'a MessageRow,
    pub(super) id: MessageId,
    pub(super) requester: Requester,
}

impl Question<'_> {
    /// The servers to try, in order.
    pub(super) async fn candidates(&self) -> Result<Vec<Candidate>, AttemptError> {
        let relay = self.shared.relays.relay(self.queue.relay);
        let plain = |host: Arc<str>, address: SocketAddr| Target {
            host,
            address,
            ehlo: Arc::clone(&relay.ehlo),
            source: None,
            deadlines: Deadlines::default(),
            loop_check: self.queue.site.loop_check(),
            submission: None,
            tls: TlsRequirement::Opportunistic,
        };
        let from_here = |host: &Arc<str>, address: SocketAddr| {
            let source = sources_for(&relay.sources, address.ip(), self.id).first().copied()?;
            Some(Target { source, ..plain(Arc::clone(host), address) })
        };
        let mut candidates = Vec::new();
        match (&self.queue.site, &relay.way) {
            (Site::Captured(address), _) => {
                candidates.push(Candidate { target: plain("localhost".into(), *address), host: None });
            }
            (_, RelayWay::Smarthost(smarthost)) => {
                let submission = Some(Arc::clone(&smarthost.submission));
                for ip in self.smarthost_addresses(smarthost).await? {
                    let target = from_here(&smarthost.host, SocketAddr::new(ip, smarthost.port));
                    let submitting = |target| Target { submission: submission.clone(), ..target };
                    candidates.extend(target.map(|target| Candidate { target: submitting(target), host: None }));
                }
            }
            (_, RelayWay::Mx) => {
                let hosts = self.shared.engine.resolver.mail_hosts(self.row.to.domain(), self.requester).await;
                let hosts = hosts.map_err(|failure| AttemptError::Ended(route_failed(&failure, self.shared.now())))?;
                self.check_servers(&hosts).await?;
                // Each of many servers gets at least one try.
                let tries = (MAIL_HOSTS_MAX / hosts.len().max(1)).max(1);
                for host in hosts {
                    let (name, host): (Arc<str>, _) = (host.name.as_str().into(), Arc::new(host));
                    let addresses = host.addresses.iter().map(|ip| SocketAddr::new(*ip, self.shared.port));
                    let targets = addresses.filter_map(|address| from_here(&name, address)).take(tries);
                    candidates.extend(targets.map(|target| Candidate { target, host: Some(Arc::clone(&host)) }));
                }
            }
        }
        let none =
            || AttemptError::Ended(deferred(finding::unreachable("the relay has no address to send there from")));
        if candidates.is_empty() { Err(none()) } else { Ok(candidates) }
    }

    /// Refuses servers that the domain has got since its mail joined this queue. Their answers say nothing about the
    /// queue's site, which other domains share. The message is routed again.
    async fn check_servers(&self, hosts: &[MailHost]) -> Result<(), AttemptError> {
        let servers = self.shared.engine.resolver.mail_exchanges(self.row.to.domain(), self.requester).await;
        let servers = servers.map_err(|failure| AttemptError::Ended(route_failed(&failure, self.shared.now())))?;
        let is_listed = |host: &MailHost| servers.binary_search(&host.name).is_ok();
        if Site::of_servers(&servers, &self.shared.shaping) == self.queue.site && hosts.iter().all(is_listed) {
            return Ok(());
        }
        self.shared.routes.forget(self.row.to.domain());
        Err(AttemptError::Ended(unasked(self.shared.now())))
    }

    /// If a smarthost is not found, the relay is at fault: the configuration names the smarthost.
    async fn smarthost_addresses(&self, smarthost: &Smarthost) -> Result<Vec<IpAddr>, AttemptError> {
        if let Ok(address) = smarthost.host.parse() {
            return Ok(vec![address]);
        }
        let found = self.shared.engine.resolver.host_addresses(&smarthost.host).await;
        found.map_err(|failure| match failure {
            LookupFailure::Absent | LookupFailure::Temporary(_) => {
                let why = format!("the smarthost {} was not found: {failure}", smarthost.host);
                AttemptError::RelayFault(RelayFault::passing(why))
            }
            LookupFailure::Unasked => AttemptError::Ended(unasked(self.shared.now())),
        })
    }
}

/// Returns the source addresses for `ip`. The message's own address comes first and is always the same. The result is
/// empty if the relay has no address of the family; the system chooses if the relay has no addresses at all.
pub(super) fn sources_for(sources: &[IpAddr], ip: IpAddr, message: MessageId) -> Vec<Option<IpAddr>> {
    if sources.is_empty() {
        return vec![None];
    }
    let family = sources.iter().filter(|source| source.is_ipv4() == ip.is_ipv4());
    let mut family: Vec<_> = family.copied().map(Some).collect();
    let own = place_of(message, family.len(), DrawPurpose::Source);
    family.rotate_left(own);
    family
}
