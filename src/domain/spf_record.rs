//! The syntax of an SPF record (RFC 7208 4.6.1, 5 and 6).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::network::Network;

/// Returns whether `text` is an SPF record, valid or not. There may be other TXT records beside it.
pub fn is_claimed_by(text: &str) -> bool {
    text.trim_start().split([' ', '\t']).next().is_some_and(|version| version.eq_ignore_ascii_case("v=spf1"))
}

/// A valid record.
#[derive(Debug, PartialEq, Eq)]
pub struct SpfRecord<'r> {
    /// Terms in order, up to `all`: receivers ignore later ones (RFC 7208 5.1).
    pub terms: Vec<Term<'r>>,
    /// Name of the record that decides if no term matches. `None` beside `all` (RFC 7208 6.1).
    pub redirect: Option<&'r str>,
}

/// A mechanism with its qualifier.
#[derive(Debug, PartialEq, Eq)]
pub struct Term<'r> {
    /// Whether a matching server passes.
    pub passes: bool,
    /// The servers that match.
    pub mechanism: Mechanism<'r>,
}

/// The servers that a term matches. A name may contain macros.
#[derive(Debug, PartialEq, Eq)]
pub enum Mechanism<'r> {
    /// `all`: every server.
    All,
    /// `include`: servers that pass by the record at this name.
    Include(&'r str),
    /// `a`: servers in the networks around the addresses of a name.
    Address(Hosts<'r>),
    /// `mx`: servers in the networks around the mail servers of a name.
    MailServer(Hosts<'r>),
    /// `ptr`: servers with a reverse name below a name.
    ReverseName,
    /// `exists`: every server, if this name has an address.
    Exists(&'r str),
    /// `ip4` or `ip6`: servers in a network.
    Network(Network),
}

/// The hosts of a term `a` or `mx`.
#[derive(Debug, PartialEq, Eq)]
pub struct Hosts<'r> {
    /// The name; the record's own one by default.
    pub name: Option<&'r str>,
    v4_prefix: u8,
    v6_prefix: u8,
}

impl Hosts<'_> {
    /// Returns the network around the address of a host.
    pub fn network(&self, address: IpAddr) -> Network {
        Network::around(address, if address.is_ipv4() { self.v4_prefix } else { self.v6_prefix })
    }
}

impl<'r> SpfRecord<'r> {
    /// Parses a record.
    ///
    /// # Errors
    /// The first term that is an error, because of which receivers apply no SPF.
    pub fn parse(record: &'r str) -> Result<Self, &'r str> {
        let (mut terms, mut redirect, mut explanation) = (Vec::new(), None, None);
        for term in record.split_ascii_whitespace().skip(1) {
            let Some((name, value)) = modifier(term) else {
                terms.push(Term::parse(term).ok_or(term)?);
                continue;
            };
            let earlier = match name.to_ascii_lowercase().as_str() {
                "redirect" => redirect.replace(value),
                "exp" => explanation.replace(value),
                _ => continue,
            };
            if value.is_empty() || earlier.is_some() {
                return Err(term);
            }
        }
        if let Some(all) = terms.iter().position(|term| term.mechanism == Mechanism::All) {
            terms.truncate(all + 1);
            redirect = None;
        }
        Ok(Self { terms, redirect })
    }
}

/// Returns the first term that is an error, because of which receivers apply no SPF.
pub fn faulty_term(record: &str) -> Option<&str> {
    SpfRecord::parse(record).err()
}

impl<'r> Term<'r> {
    fn parse(term: &'r str) -> Option<Self> {
        let mechanism = term.strip_prefix(['+', '-', '~', '?']);
        let passes = mechanism.is_none() || term.starts_with('+');
        Some(Self { passes, mechanism: Mechanism::parse(mechanism.unwrap_or(term))? })
    }
}

impl<'r> Mechanism<'r> {
    fn parse(text: &'r str) -> Option<Self> {
        let (name, target) = text.split_at(text.find([':', '/']).unwrap_or(text.len()));
        let value = target.strip_prefix(':');
        let domain = value.filter(|domain| !domain.is_empty());
        match name.to_ascii_lowercase().as_str() {
            "all" => target.is_empty().then_some(Self::All),
            "include" => domain.map(Self::Include),
            "exists" => domain.map(Self::Exists),
            "ptr" => (target.is_empty() || domain.is_some()).then_some(Self::ReverseName),
            "a" => hosts(target).map(Self::Address),
            "mx" => hosts(target).map(Self::MailServer),
            "ip4" => network(value?, 32, |text| text.parse::<Ipv4Addr>().ok().map(IpAddr::V4)).map(Self::Network),
            "ip6" => network(value?, 128, |text| text.parse::<Ipv6Addr>().ok().map(IpAddr::V6)).map(Self::Network),
            _ => None,
        }
    }

    /// Returns whether the mechanism is `a` or `include` with the name of a host.
    pub fn names(&self, host: &str) -> bool {
        match self {
            Self::Include(name) | Self::Address(Hosts { name: Some(name), .. }) => bare(name) == bare(host),
            Self::Address(_)
            | Self::All
            | Self::MailServer(_)
            | Self::ReverseName
            | Self::Exists(_)
            | Self::Network(_) => false,
        }
    }

    /// Returns whether the mechanism counts as a DNS lookup (RFC 7208 4.6.4).
    pub const fn needs_lookup(&self) -> bool {
        match self {
            Self::All | Self::Network(_) => false,
            Self::Include(_) | Self::Address(_) | Self::MailServer(_) | Self::ReverseName | Self::Exists(_) => true,
        }
    }
}

fn bare(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Splits a modifier, which is a name with `=`.
fn modifier(term: &str) -> Option<(&str, &str)> {
    let (name, value) = term.split_once('=')?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_part)).then_some((name, value))
}

/// Parses the target of `a` or `mx`: a name after a colon, and prefix lengths such as `/24//64`, all optional. A macro
/// may contain a slash.
fn hosts(target: &str) -> Option<Hosts<'_>> {
    let after_macro = target.rfind('}').map_or(0, |end| end + 1);
    let lengths = target[after_macro..].find('/').map_or(target.len(), |slash| after_macro + slash);
    let (name, lengths) = target.split_at(lengths);
    let name = match name.strip_prefix(':') {
        Some("") => return None,
        name => name,
    };
    let (v4, v6) = match lengths.split_once("//") {
        Some((v4, v6)) => (v4, Some(v6)),
        None => (lengths, None),
    };
    let v4_prefix = if v4.is_empty() { 32 } else { prefix(v4.strip_prefix('/')?, 32)? };
    Some(Hosts { name, v4_prefix, v6_prefix: v6.map_or(Some(128), |v6| prefix(v6, 128))? })
}

fn network(text: &str, longest: u8, parse: impl Fn(&str) -> Option<IpAddr>) -> Option<Network> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, prefix(length, longest)?),
        None => (text, longest),
    };
    Some(Network::around(parse(address)?, length))
}

/// Parses a prefix length, which has no leading zero.
fn prefix(text: &str, longest: u8) -> Option<u8> {
    let is_plain = text == "0" || !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|length| is_plain && *length <= longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_record_has_no_faulty_term() {
        for valid in [
            "v=spf1",
            "V=SPF1 a mx/24 a:x.example/24//64 MX//64 ptr ?ptr:x.example -all",
            "v=spf1 include:_spf.x.example ip4:192.0.2.1 ip4:192.0.2.0/24 ip6:2001:db8::/32 exists:%{i}/x.example ~all",
            "v=spf1 redirect=x.example exp=y.example custom=z a:%{d2}/28",
        ] {
            assert_eq!(faulty_term(valid), None, "{valid}");
            assert!(is_claimed_by(valid), "{valid}");
        }
        for other in ["v=spf10 a", "v=spf1;a", "spf2.0/pra a", ""] {
            assert!(!is_claimed_by(other), "{other}");
        }
    }

    #[test]
    fn an_error_in_any_term_makes_the_record_invalid() {
        for faulty in [
            "foo:bar",
            "include:",
            "include",
            "a:",
            "a:x.example/99",
            "a/33",
            "mx//129",
            "ip4:192.0.2",
            "ip4:192.0.2.0/33",
            "ip6:192.0.2.1",
            "all:x",
            "exists:",
            "redirect=",
            "ptr:",
            "ip4",
            "a/024",
            "-",
            "a:x.example/",
        ] {
            assert_eq!(faulty_term(&format!("v=spf1 a {faulty} -all")), Some(faulty));
        }
        assert_eq!(faulty_term("v=spf1 redirect=a.example Redirect=b.example"), Some("Redirect=b.example"));
    }

    #[test]
    fn terms_after_all_and_a_redirection_beside_it_have_no_effect() {
        let record = SpfRecord::parse("v=spf1 redirect=c.example ?include:a.example mx -all a").unwrap();
        assert_eq!(record.redirect, None);
        let passes = record.terms.iter().map(|term| term.passes).collect::<Vec<_>>();
        assert_eq!(passes, [false, true, false]);
        assert_eq!(SpfRecord::parse("v=spf1 mx redirect=c.example").unwrap().redirect, Some("c.example"));
    }

    #[test]
    fn prefix_lengths_apply_to_their_family() {
        let record = SpfRecord::parse("v=spf1 a:x.example/24//64 mx ip4:192.0.2.9/25 ip6:2001:db8::1").unwrap();
        let [a, mx, ip4, ip6] = &*record.terms else { panic!("{record:?}") };
        let (Mechanism::Address(a), Mechanism::MailServer(mx)) = (&a.mechanism, &mx.mechanism) else { panic!() };
        assert_eq!((a.name, mx.name), (Some("x.example"), None));
        let (v4, v6): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        assert_eq!([a.network(v4), a.network(v6)], ["192.0.2.0/24", "2001:db8::/64"].map(|text| text.parse().unwrap()));
        assert_eq!([mx.network(v4), mx.network(v6)], [Network::around(v4, 32), Network::around(v6, 128)]);
        assert_eq!(ip4.mechanism, Mechanism::Network("192.0.2.0/25".parse().unwrap()));
        assert_eq!(ip6.mechanism, Mechanism::Network(Network::around(v6, 128)));
    }

    #[test]
    fn a_host_passes_by_the_first_term_with_its_name_before_all() {
        for (record, passes) in [
            ("v=spf1 mx a:Mail.Example.com. -all", Some(true)),
            ("v=spf1 +include:mail.example.com ~all", Some(true)),
            ("v=spf1 a:mail.example.com/32", Some(true)),
            ("v=spf1 -a:mail.example.com -all", Some(false)),
            ("v=spf1 ?a:mail.example.com a:mail.example.com -all", Some(false)),
            ("v=spf1 -all a:mail.example.com", None),
            ("v=spf1 a -all", None),
        ] {
            let record = SpfRecord::parse(record).unwrap();
            let named = record.terms.iter().find(|term| term.mechanism.names("mail.example.com"));
            assert_eq!(named.map(|term| term.passes), passes, "{record:?}");
        }
    }
}
