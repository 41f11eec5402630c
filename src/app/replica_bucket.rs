//! The bucket of `[replica]`, opened by commands and the service. It has its own resolver, because it is needed before
//! a store is open.

use std::sync::Arc;

use url::Url;

use super::cli_error::CliError;
use super::config::Config;
use super::exit::Exit;
use crate::domain::replication::BucketUrl;
use crate::engine::ports::Clock as _;
use crate::net::clock::SystemClock;
use crate::net::dns::{DnsSettings, OwnHosts, Resolver};
use crate::net::entropy::OsEntropy;
use crate::net::hosts_file::{HOSTS_FILE, HostsFile};
use crate::net::network_guard::Guard;
use crate::net::s3::{S3, S3Settings};
use crate::net::tls;

/// Opens the bucket at `url` with the other settings of `config`. Sends nothing.
///
/// # Errors
/// Root certificates that can't be read; a client that can't be created.
pub(super) fn open(config: &Config, url: &BucketUrl) -> Result<Arc<S3>, CliError> {
    let replica = &config.replica;
    let roots = tls::trusted_roots(replica.extra_roots.as_deref())
        .map_err(|fault| cannot_open("replica.extra_roots", &fault))?;
    let settings = S3Settings {
        endpoint: replica.endpoint.clone().unwrap_or_else(|| of_aws(&replica.region)),
        region: replica.region.clone(),
        path_style: replica.path_style(),
        bucket: url.bucket().to_owned(),
        prefix: url.prefix().to_owned(),
        timeout: replica.timeout,
        allow: config.network.allow.clone(),
        roots,
        credentials: replica.credentials(),
    };
    let names = Arc::new(HostsFile::new(HOSTS_FILE.into(), Arc::new(resolver(config)?)));
    let clock = SystemClock::new();
    S3::new(settings, names, move || clock.now()).map(Arc::new).map_err(|error| cannot_open("its client", &error))
}

/// Returns the address of AWS's service in a region.
fn of_aws(region: &str) -> Url {
    let url = format!("https://s3.{region}.amazonaws.com").parse();
    url.unwrap_or_else(|_| unreachable!("a region has only characters of host names"))
}

/// Returns the resolver. An endpoint that is an IP address needs no name servers.
fn resolver(config: &Config) -> Result<Resolver, CliError> {
    let settings =
        DnsSettings { servers: config.dns.servers.clone(), may_lack_servers: true, ..DnsSettings::default() };
    let (guard, clock, entropy) = (Arc::new(Guard::default()), Arc::new(SystemClock::new()), Arc::new(OsEntropy));
    Resolver::new(&settings, OwnHosts::default(), guard, clock, entropy)
        .map_err(|error| cannot_open("name resolution", &error))
}

fn cannot_open(what: &str, why: &dyn std::fmt::Display) -> CliError {
    CliError::new(Exit::Failed, "cannot open the bucket of [replica]", format!("{what}: {why}"), "Correct [replica].")
}
