//! The syntax of an SPF record (RFC 7208 4.6.1 and 5), and what it says about a host.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether `text` is an SPF record, valid or not. There may be other TXT records beside it.
pub fn is_claimed_by(text: &str) -> bool {
    text.trim_start().split([' ', '\t']).next().is_some_and(|version| version.eq_ignore_ascii_case("v=spf1"))
}

/// Returns the first term that is an error, because of which receivers apply no SPF.
pub fn faulty_term(record: &str) -> Option<&str> {
    let mut modifiers = Vec::new();
    terms(record).find(|term| match modifier(term) {
        Some((name, value)) => {
            let name = name.to_ascii_lowercase();
            let is_known = ["redirect", "exp"].contains(&name.as_str());
            let is_faulty = is_known && (value.is_empty() || modifiers.contains(&name));
            modifiers.push(name);
            is_faulty
        }
        None => !is_mechanism(term),
    })
}

/// A part of a valid record that decides about a host, or leaves the decision to another record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'r> {
    /// A term `a` or `include` names the host. It passes, or it does not.
    Decided(bool),
    /// The record at this name decides if the host passes there. `passes` says whether it passes here too.
    Include {
        /// The name.
        name: &'r str,
        /// The result of a match.
        passes: bool,
    },
    /// The record at this name replaces this one.
    Redirect(&'r str),
}

/// Returns the parts of a record that concern `host`, in order: only the term that names the host, if there is one.
/// Terms after `all` have no effect, nor does a redirection beside it (RFC 7208 5.1, 6.1). An invalid record has none.
pub fn steps<'r>(record: &'r str, host: &str) -> Vec<Step<'r>> {
    let mut steps = Vec::new();
    if faulty_term(record).is_some() {
        return steps;
    }
    let host = bare(host);
    for term in terms(record).filter(|term| modifier(term).is_none()) {
        let (qualifier, mechanism) = qualified(term);
        let (name, target) = split(mechanism);
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("all") {
            return steps;
        }
        let Some(target) = target.strip_prefix(':') else { continue };
        let named = target.split('/').next().unwrap_or_default();
        if (is("a") || is("include")) && bare(named) == host {
            return vec![Step::Decided(qualifier == '+')];
        }
        if is("include") {
            steps.push(Step::Include { name: target, passes: qualifier == '+' });
        }
    }
    let redirection = terms(record).filter_map(modifier).find(|(name, _)| name.eq_ignore_ascii_case("redirect"));
    steps.extend(redirection.map(|(_, name)| Step::Redirect(name)));
    steps
}

fn bare(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn terms(record: &str) -> impl Iterator<Item = &str> {
    record.split_ascii_whitespace().skip(1)
}

/// Splits a modifier, which is a name with `=`.
fn modifier(term: &str) -> Option<(&str, &str)> {
    let (name, value) = term.split_once('=')?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_part)).then_some((name, value))
}

fn qualified(term: &str) -> (char, &str) {
    match term.strip_prefix(['+', '-', '~', '?']) {
        Some(mechanism) => (term.chars().next().unwrap_or('+'), mechanism),
        None => ('+', term),
    }
}

/// Splits a mechanism after its name.
fn split(mechanism: &str) -> (&str, &str) {
    mechanism.split_at(mechanism.find([':', '/']).unwrap_or(mechanism.len()))
}

fn is_mechanism(term: &str) -> bool {
    let (name, target) = split(qualified(term).1);
    let value = target.strip_prefix(':');
    match name.to_ascii_lowercase().as_str() {
        "all" => target.is_empty(),
        "include" | "exists" => value.is_some_and(|domain| !domain.is_empty()),
        "ptr" => target.is_empty() || value.is_some_and(|domain| !domain.is_empty()),
        "a" | "mx" => has_lengths(value.unwrap_or(target), value.is_some()),
        "ip4" => value.is_some_and(|network| is_network(network, 32, |text| text.parse::<Ipv4Addr>().is_ok())),
        "ip6" => value.is_some_and(|network| is_network(network, 128, |text| text.parse::<Ipv6Addr>().is_ok())),
        _ => false,
    }
}

/// Whether the prefix lengths after a name, such as `/24//64`, are valid. A macro may contain a slash.
fn has_lengths(target: &str, needs_name: bool) -> bool {
    let after_macro = target.rfind('}').map_or(0, |end| end + 1);
    let (name, lengths) = target.split_at(target[after_macro..].find('/').map_or(target.len(), |at| after_macro + at));
    if needs_name && name.is_empty() {
        return false;
    }
    let (v4, v6) = match lengths.split_once("//") {
        Some((v4, v6)) => (v4, Some(v6)),
        None => (lengths, None),
    };
    (v4.is_empty() || v4.strip_prefix('/').is_some_and(|length| is_length(length, 32)))
        && v6.is_none_or(|length| is_length(length, 128))
}

fn is_network(network: &str, longest: u8, is_address: impl Fn(&str) -> bool) -> bool {
    match network.split_once('/') {
        Some((address, length)) => is_address(address) && is_length(length, longest),
        None => is_address(network),
    }
}

fn is_length(text: &str, longest: u8) -> bool {
    let is_plain = text == "0" || !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain && text.parse::<u8>().is_ok_and(|length| length <= longest)
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
    fn other_records_decide_before_all_or_the_end() {
        let of = |record| steps(record, "mail.example.com");
        let include = |name, passes| Step::Include { name, passes };
        let redirect = Step::Redirect("c.example");
        assert_eq!(of("v=spf1 include:a.example mx redirect=c.example"), [include("a.example", true), redirect]);
        assert_eq!(of("v=spf1 redirect=c.example ?include:a.example"), [include("a.example", false), redirect]);
        assert_eq!(of("v=spf1 redirect=c.example a:mail.example.com"), [Step::Decided(true)]);
        assert_eq!(of("v=spf1 redirect=c.example -all"), []);
        assert_eq!(of("v=spf1 foo:bar redirect=c.example"), []);
    }

    #[test]
    fn a_host_passes_by_a_term_before_all() {
        for (record, passes) in [
            ("v=spf1 mx a:Mail.Example.com. -all", true),
            ("v=spf1 +include:mail.example.com ~all", true),
            ("v=spf1 a:mail.example.com/32", true),
            ("v=spf1 -a:mail.example.com -all", false),
            ("v=spf1 ?a:mail.example.com a:mail.example.com -all", false),
            ("v=spf1 -all a:mail.example.com", false),
            ("v=spf1 foo:bar a:mail.example.com -all", false),
            ("v=spf1 a:mail.example.com/99 -all", false),
            ("v=spf1 a:mail.example.com include: -all", false),
            ("v=spf1 a -all", false),
        ] {
            let is_passed = steps(record, "mail.example.com") == [Step::Decided(true)];
            assert_eq!(is_passed, passes, "{record}");
        }
    }
}
