//! The DNS records of the server itself, independent of its sending domains.

use std::net::IpAddr;

use serde::Serialize;

use crate::app::config::Config;
use crate::engine::probe::reverse_name;
use crate::net::network_guard::Guard;

/// A record to publish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Purpose of the record.
    pub purpose: &'static str,
    /// Type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Name of the record.
    pub name: String,
    /// Value of the record.
    pub value: String,
}

/// Returns the records of this server, which sends from `sources`. The operator must fill in addresses that can't be
/// reached from outside, as behind NAT.
pub(super) fn of_server(config: &Config, sources: &[IpAddr]) -> Vec<Record> {
    let host = config.hostname.to_string();
    let bounces = config.bounce_host().to_string();
    let mut records = Vec::new();
    let mut add = |purpose, kind, name: &str, value: String| {
        records.push(Record { purpose, kind, name: name.to_owned(), value });
    };
    let global: Vec<_> = sources.iter().copied().filter(|address| Guard::default().permits(*address)).collect();
    if global.is_empty() {
        add("address", "A", &host, "(this server's public IPv4 address)".to_owned());
        add("reverse", "PTR", "(that address)", format!("{host}."));
    }
    for address in &global {
        add("address", if address.is_ipv4() { "A" } else { "AAAA" }, &host, address.to_string());
        add("reverse", "PTR", &reverse_name(*address), format!("{host}."));
    }
    // Bounces have no sender, so receivers check the SPF record of the EHLO name (RFC 7208 2.4).
    add("spf of the server", "TXT", &host, "v=spf1 a -all".to_owned());
    if config.bounces.is_some() {
        add("bounces", "MX", &bounces, format!("10 {host}."));
        // Receivers send reports about other domains here only if this record allows it (RFC 9990).
        add("dmarc reports", "TXT", &format!("*._report._dmarc.{bounces}"), "v=DMARC1".to_owned());
    }
    if bounces != host {
        // The certificate includes this name, and an authority connects to its address.
        for address in &global {
            add("address of bounces", if address.is_ipv4() { "A" } else { "AAAA" }, &bounces, address.to_string());
        }
        add("spf of bounces", "TXT", &bounces, format!("v=spf1 a:{host} ~all"));
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::environment::Environment;

    fn lines(text: &str, sources: &[&str]) -> Vec<String> {
        let config = Config::parse(text, "p.toml", &Environment::default()).unwrap();
        let sources: Vec<_> = sources.iter().map(|source| source.parse().unwrap()).collect();
        let records = of_server(&config, &sources);
        records.iter().map(|record| format!("{} {} {}", record.name, record.kind, record.value)).collect()
    }

    #[test]
    fn a_server_has_forward_and_reverse_records_and_its_own_spf() {
        assert_eq!(
            lines("hostname = \"mail.example.com\"", &["192.168.0.2", "8.8.4.4"]),
            [
                "mail.example.com A 8.8.4.4",
                "4.4.8.8.in-addr.arpa PTR mail.example.com.",
                "mail.example.com TXT v=spf1 a -all"
            ]
        );
        let unknown = lines("hostname = \"mail.example.com\"", &["10.0.0.1"]);
        assert_eq!(unknown[0], "mail.example.com A (this server's public IPv4 address)");
    }

    #[test]
    fn bounces_have_their_own_host() {
        let text = "hostname = \"mail.example.com\"\n[bounces]\nhost = \"bounces.example.com\"";
        let lines = lines(text, &["8.8.4.4"]);
        assert!(lines.contains(&"bounces.example.com A 8.8.4.4".to_owned()), "{lines:?}");
        assert!(lines.contains(&"*._report._dmarc.bounces.example.com TXT v=DMARC1".to_owned()), "{lines:?}");
        assert!(lines.contains(&"bounces.example.com MX 10 mail.example.com.".to_owned()), "{lines:?}");
        assert!(lines.contains(&"bounces.example.com TXT v=spf1 a:mail.example.com ~all".to_owned()), "{lines:?}");
    }
}
