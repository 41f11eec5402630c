//! A resolver without any names, for tests without DNS.

use std::net::IpAddr;

use super::ports::{BoxFuture, LookupFailure, MailHost, Requester, Resolve, RouteFailure};
use crate::domain::hostname::DomainName;
use crate::smtp::tlsa::TlsaRecord;

/// A resolver whose lookups all fail.
pub(crate) struct NoNames;

impl Resolve for NoNames {
    fn mail_hosts<'a>(&'a self, _: &'a DomainName, _: Requester) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>> {
        Box::pin(async { Err(RouteFailure::NoHost) })
    }
    fn tlsa<'a>(&'a self, _: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn txt<'a>(&'a self, _: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn host_addresses<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn txt_now<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
    fn cname_now<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<String, LookupFailure>> {
        Box::pin(async { Err(LookupFailure::Absent) })
    }
}
