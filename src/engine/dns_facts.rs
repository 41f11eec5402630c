//! DNS facts for a domain's checklist: the lookups of its SPF record, its mail servers, and BIMI. All queries bypass
//! the cache.

use super::domain_records::begins_with_word;
use super::ports::{LookupFailure, Resolve};
use crate::domain::bimi_record;
use crate::domain::hostname::DomainName;
use crate::store::row::domain::{DnsFacts, Receiving};

/// Maximum queries for counting SPF lookups. A record that needs more is far above the limit of 10 (RFC 7208 4.6.4).
const SPF_QUERIES_MAX: u32 = 20;

/// Makes all lookups except those for counting SPF lookups, which need the record first.
pub(super) async fn look(resolver: &dyn Resolve, domain: &DomainName) -> DnsFacts {
    let (receiving, bimi) = tokio::join!(receiving(resolver, domain), bimi(resolver, domain));
    DnsFacts { spf_lookups: None, receiving, bimi }
}

async fn receiving(resolver: &dyn Resolve, domain: &DomainName) -> Option<Receiving> {
    match resolver.mx_now(domain.as_str()).await {
        Ok(servers) if servers.iter().all(String::is_empty) => Some(Receiving::NullMx),
        // A null MX beside others means nothing (RFC 7505 3).
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

/// A term of an SPF record that causes a lookup (RFC 7208 4.6.4).
#[derive(Debug, PartialEq, Eq)]
enum LookupTerm<'a> {
    /// A term whose lookup returns addresses.
    Addresses,
    /// A term that includes another record, at this name.
    Record(&'a str),
}

fn lookup_term(term: &str) -> Option<LookupTerm<'_>> {
    let term = term.trim_start_matches(['+', '-', '~', '?']);
    let (name, target) = term.split_at(term.find([':', '/', '=']).unwrap_or(term.len()));
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    match target.chars().next() {
        Some('=') => is("redirect").then(|| LookupTerm::Record(&target[1..])),
        Some(':') if is("include") => Some(LookupTerm::Record(&target[1..])),
        _ if is("a") || is("mx") || is("ptr") || is("exists") => Some(LookupTerm::Addresses),
        _ => None,
    }
}

/// Counts the lookups of an SPF record, through its includes. A record that is included twice counts twice. `None` if
/// a lookup failed.
pub(super) async fn spf_lookups(resolver: &dyn Resolve, record: &str) -> Option<u32> {
    let (mut lookups, mut queries) = (0, 0);
    let mut open = vec![record.to_owned()];
    while let Some(record) = open.pop() {
        for term in record.split_ascii_whitespace().skip(1).filter_map(lookup_term) {
            lookups += 1;
            // A name with a macro depends on the message.
            let LookupTerm::Record(name) = term else { continue };
            if queries == SPF_QUERIES_MAX || name.contains('%') {
                continue;
            }
            queries += 1;
            match resolver.txt_now(name).await {
                Ok(texts) => open.extend(texts.into_iter().find(|text| begins_with_word(text, "v=spf1"))),
                Err(LookupFailure::Absent) => {}
                Err(LookupFailure::Temporary(_) | LookupFailure::Unasked) => return None,
            }
        }
    }
    Some(lookups)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashMap;
    use std::net::IpAddr;

    use super::*;
    use crate::engine::ports::{BoxFuture, MailHost, RouteFailure};
    use crate::smtp::tlsa::TlsaRecord;

    /// Names with their texts and mail servers. The text `!` stands for a failing lookup.
    #[derive(Default)]
    pub(in crate::engine) struct Names(HashMap<&'static str, Vec<&'static str>>);

    impl Names {
        /// Names with one text each.
        pub(in crate::engine) fn new<const N: usize>(texts: [(&'static str, &'static str); N]) -> Self {
            Self(texts.map(|(name, text)| (name, vec![text])).into())
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
        fn mail_hosts<'a>(&'a self, _: &'a DomainName) -> BoxFuture<'a, Result<Vec<MailHost>, RouteFailure>> {
            Box::pin(async { Err(RouteFailure::NoHost) })
        }
        fn tlsa<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<TlsaRecord>, LookupFailure>> {
            Box::pin(async { Err(LookupFailure::Absent) })
        }
        fn txt<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, LookupFailure>> {
            self.txt_now(name)
        }
        fn host_addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
            let found = self.get(&format!("A {host}"));
            Box::pin(async move { found.map(|texts| texts.iter().filter_map(|text| text.parse().ok()).collect()) })
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

    #[test]
    fn only_terms_that_need_a_lookup_are_counted() {
        for (term, expected) in [
            ("a", Some(LookupTerm::Addresses)),
            ("-A:mail.example/24", Some(LookupTerm::Addresses)),
            ("mx/24", Some(LookupTerm::Addresses)),
            ("exists:%{i}.x.example", Some(LookupTerm::Addresses)),
            ("?ptr", Some(LookupTerm::Addresses)),
            ("include:a.example", Some(LookupTerm::Record("a.example"))),
            ("redirect=b.example", Some(LookupTerm::Record("b.example"))),
            ("ip4:192.0.2.0/24", None),
            ("all", None),
            ("exp=x.example", None),
            ("a=b", None),
        ] {
            assert_eq!(lookup_term(term), expected, "{term}");
        }
    }

    #[tokio::test]
    async fn lookups_are_counted_through_includes_and_bounded_in_a_loop() {
        let names = Names(HashMap::from([
            ("a.example", vec!["other", "v=spf1 mx a include:b.example -all"]),
            ("b.example", vec!["v=spf1 a ip4:192.0.2.1 -all"]),
            ("loop.example", vec!["v=spf1 a include:loop.example -all"]),
            ("bad.example", vec!["!"]),
        ]));
        for (record, expected) in [
            ("v=spf1 ip4:192.0.2.1 -all", Some(0)),
            ("v=spf1 include:a.example -all", Some(5)),
            ("v=spf1 include:b.example include:b.example redirect=nowhere.example", Some(5)),
            ("v=spf1 include:%{d}.example -all", Some(1)),
            ("v=spf1 include:bad.example -all", None),
            ("v=spf1 include:loop.example -all", Some(41)),
        ] {
            assert_eq!(spf_lookups(&names, record).await, expected, "{record}");
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
