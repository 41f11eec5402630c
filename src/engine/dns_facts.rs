//! DNS facts for a domain's checklist: its mail servers, and BIMI. All queries bypass the cache.

use super::ports::{LookupFailure, Resolve};
use crate::domain::bimi_record;
use crate::domain::hostname::DomainName;
use crate::store::row::domain::{DnsFacts, Receiving};

/// Makes all lookups except those of SPF, which need the record first.
pub(super) async fn look(resolver: &dyn Resolve, domain: &DomainName) -> DnsFacts {
    let (receiving, bimi) = tokio::join!(receiving(resolver, domain), bimi(resolver, domain));
    DnsFacts { receiving, bimi, ..DnsFacts::default() }
}

async fn receiving(resolver: &dyn Resolve, domain: &DomainName) -> Option<Receiving> {
    match resolver.mx_now(domain.as_str()).await {
        Ok(servers) if servers.iter().all(String::is_empty) => Some(Receiving::NullMx),
        // A null MX record next to other MX records is ignored (RFC 7505 3).
        Ok(servers) => Some(Receiving::Servers(servers.into_iter().filter(|server| !server.is_empty()).collect())),
        Err(LookupFailure::Absent) => match resolver.host_addresses_now(domain.as_str()).await {
            Ok(_) => Some(Receiving::Address),
            Err(LookupFailure::Absent) => Some(Receiving::Nothing),
            Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => None,
        },
        Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => None,
    }
}

async fn bimi(resolver: &dyn Resolve, domain: &DomainName) -> Option<Vec<String>> {
    match resolver.txt_now(&format!("default._bimi.{domain}")).await {
        Ok(mut texts) => {
            texts.retain(|text| bimi_record::is_meant_by(text));
            Some(texts)
        }
        Err(LookupFailure::Absent) => Some(Vec::new()),
        Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashMap;
    use std::net::IpAddr;

    use super::*;
    use crate::engine::ports::{BoxFuture, Family, MailHost, Requester, RouteFailure};
    use crate::smtp::tlsa::TlsaRecord;

    /// Names with their texts, addresses and mail servers. The text `!` stands for a failing lookup. Names with `AAAA`
    /// replace the IPv6 addresses among those with `A`.
    #[derive(Default)]
    pub(in crate::engine) struct Names(HashMap<&'static str, Vec<&'static str>>);

    impl Names {
        /// Names with one text each, or several separated by `|`.
        pub(in crate::engine) fn new<const N: usize>(texts: [(&'static str, &'static str); N]) -> Self {
            Self(texts.map(|(name, text)| (name, text.split('|').collect())).into())
        }

        fn get(&self, name: &str) -> Result<Vec<String>, LookupFailure> {
            match self.0.get(name).map(Vec::as_slice) {
                Some(["!"]) => Err(LookupFailure::Temporary("SERVFAIL".to_owned())),
                Some(values) => Ok(values.iter().map(|value| (*value).to_owned()).collect()),
                None => Err(LookupFailure::Absent),
            }
        }
    }

    impl Resolve for Names {
        fn mail_hosts<'a>(
            &'a self,
            _: &'a DomainName,
            _: Requester,
        ) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>> {
            Box::pin(async { Err(RouteFailure::NoHost) })
        }
        fn tlsa<'a>(&'a self, _: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>> {
            Box::pin(async { Err(LookupFailure::Absent) })
        }
        fn txt<'a>(&'a self, name: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
            self.txt_now(name)
        }
        fn host_addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
            let found = self.get(&format!("A {host}"));
            Box::pin(async move { found.map(|texts| texts.iter().filter_map(|text| text.parse().ok()).collect()) })
        }
        fn family_addresses_now<'a>(
            &'a self,
            host: &'a str,
            family: Family,
        ) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
            Box::pin(async move {
                if family == Family::V6 && self.0.contains_key(&*format!("AAAA {host}")) {
                    let texts = self.get(&format!("AAAA {host}"))?;
                    return Ok(texts.iter().filter_map(|text| text.parse().ok()).collect());
                }
                family.only(self.host_addresses(host).await?)
            })
        }
        fn txt_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
            Box::pin(async move { self.get(name) })
        }
        fn cname_now<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<String, LookupFailure>> {
            Box::pin(async { Err(LookupFailure::Absent) })
        }
        fn mx_now<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
            let found = self.get(&format!("MX {name}"));
            Box::pin(async move { found })
        }
        fn ptr_now(&self, _: IpAddr) -> BoxFuture<'_, Result<Vec<String>, LookupFailure>> {
            Box::pin(async { Err(LookupFailure::Absent) })
        }
    }

    #[tokio::test]
    async fn a_domain_receives_through_mx_servers_or_its_address_or_not_at_all() {
        let names = Names(HashMap::from([
            ("MX a.example", vec!["", "mx1.example", "mx2.example"]),
            ("MX null.example", vec![""]),
            ("A host.example", vec!["192.0.2.1"]),
            ("MX bad.example", vec!["!"]),
            ("default._bimi.a.example", vec!["v=BIMI2; l=https://a.example/l.svg", "x"]),
            ("default._bimi.bad.example", vec!["!"]),
        ]));
        let servers = Receiving::Servers(vec!["mx1.example".to_owned(), "mx2.example".to_owned()]);
        for (name, expected, bimi) in [
            ("a.example", Some(servers), Some(1)),
            ("null.example", Some(Receiving::NullMx), Some(0)),
            ("host.example", Some(Receiving::Address), Some(0)),
            ("none.example", Some(Receiving::Nothing), Some(0)),
            ("bad.example", None, None),
        ] {
            let facts = look(&names, &name.parse().unwrap()).await;
            assert_eq!((facts.receiving, facts.bimi.map(|found| found.len())), (expected, bimi), "{name}");
        }
    }
}
