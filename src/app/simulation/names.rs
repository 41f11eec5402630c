//! The name servers: each domain of a receiving site has two mail servers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::plan::FaultClass;
use super::world::World;
use super::{isolation, reports};
use crate::domain::hostname::DomainName;
use crate::engine::ports::{
    BoxFuture, LookupFailure, MailHost, PolicyHosts, Requester, Resolve, RouteFailure, Unfetched,
};
use crate::smtp::tlsa::TlsaRecord;

/// DNS resolver over the world's names.
pub(super) struct SimulatedNames(pub(super) Arc<World>);

impl Resolve for SimulatedNames {
    fn mail_hosts<'a>(
        &'a self,
        domain: &'a DomainName,
        _: Requester,
    ) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>> {
        Box::pin(async move {
            let world = &self.0;
            sleep(world.millis(0, 30)).await;
            if world.strikes_at(domain.as_str(), FaultClass::Names, 80) {
                sleep(world.pick(&[Duration::ZERO, Duration::from_secs(5), Duration::from_secs(20)])).await;
                return Err(RouteFailure::Temporary("SERVFAIL".to_owned()));
            }
            if world.strikes_at(domain.as_str(), FaultClass::Names, 15) {
                return Err(RouteFailure::NoSuchDomain);
            }
            let network = isolation::site_of(domain.as_str()).map_or(0, |site| u8::try_from(site % 256).unwrap());
            let host = |number: u8| MailHost {
                name: format!("mx{number}.{domain}"),
                preference: u16::from(number),
                addresses: vec![IpAddr::from([192, 0, network, number])],
                tlsa_names: Vec::new(),
            };
            Ok(vec![host(1), host(2)])
        })
    }

    fn tlsa<'a>(&'a self, _: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }

    fn txt<'a>(&'a self, name: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        self.txt_now(name)
    }

    fn host_addresses<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }

    fn txt_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async move {
            let world = &self.0;
            sleep(world.millis(0, 30)).await;
            if world.strikes(FaultClass::Names, 80) {
                return Err(LookupFailure::Temporary("SERVFAIL".to_owned()));
            }
            if name == reports::KEY_NAME {
                return Ok(vec![reports::KEY.record.clone()]);
            }
            Err(LookupFailure::Absent)
        })
    }

    fn cname_now<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<String, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
}

impl PolicyHosts for SimulatedNames {
    fn sts_policy<'a>(&'a self, _: &'a DomainName, _: Requester) -> BoxFuture<'a, Result<String, Unfetched>> {
        Box::pin(async { Err(Unfetched::Unasked) })
    }
}
