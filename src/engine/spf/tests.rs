//! Tests of the evaluation of SPF records.

use super::*;
use crate::engine::dns_facts::tests::Names;
use RecordStatus::{Mismatch, Ok as Pass, Unchecked};

const HOST: &str = "mail.example.com";

fn names() -> Names {
    Names::new([
        ("spf.example", "unrelated|v=spf1 a:mail.example.com -all"),
        ("outer.example", "v=spf1 include:spf.example -all"),
        ("other.example", "v=spf1 a:other.example.com -all"),
        ("two.example", "v=spf1 +all|v=spf1 +all"),
        ("invalid.example", "v=spf1 +all foo:bar"),
        ("loop.example", "v=spf1 a include:loop.example -all"),
        ("bad.example", "!"),
        ("ours.example", "v=spf1 ip4:192.0.2.0/24 ip6:2001:db8::/32 ?all"),
        ("half.example", "v=spf1 ip4:192.0.2.0/24 -all"),
        ("own.example", "v=spf1 a mx -all"),
        ("A own.example", "192.0.2.7"),
        ("MX own.example", "mx1.example|mx2.example"),
        ("A mx1.example", "198.51.100.1"),
        ("A mx2.example", "2001:db8::2"),
        ("A bad.example", "!"),
        ("A 192.0.2.7", "192.0.2.7"),
        ("A slow.example", "192.0.2.7"),
        ("AAAA slow.example", "!"),
        ("A six.example", "2001:db8::2"),
    ])
}

async fn evaluate_from(sources: &[&str], record: &str) -> Evaluation {
    let sources: Vec<IpAddr> = sources.iter().map(|text| text.parse().unwrap()).collect();
    let relays = [DirectRelay::new(HOST.to_owned(), sources, |_| true)];
    evaluate(&names(), ("own.example", record), HOST, &relays).await
}

#[tokio::test]
async fn a_host_passes_by_its_name_in_the_record_itself_an_included_one_or_a_redirection() {
    for (record, expected) in [
        ("v=spf1 mx a:Mail.Example.com. -all", Pass),
        ("v=spf1 include:mail.example.com -all", Pass),
        ("v=spf1 -a:mail.example.com -all", Mismatch),
        ("v=spf1 redirect=spf.example", Pass),
        ("v=spf1 redirect=outer.example", Pass),
        ("v=spf1 include:other.example include:outer.example ~all", Pass),
        ("v=spf1 -include:spf.example -all", Mismatch),
        ("v=spf1 redirect=other.example", Mismatch),
        ("v=spf1 redirect=nowhere.example", Mismatch),
        ("v=spf1 include:two.example -all", Mismatch),
        ("v=spf1 include:invalid.example include:spf.example -all", Mismatch),
        ("v=spf1 include:loop.example -all", Mismatch),
        ("v=spf1 redirect=bad.example", Unchecked),
        ("v=spf1 include:bad.example -all", Unchecked),
        ("v=spf1 include:bad.example a:mail.example.com -all", Unchecked),
        ("v=spf1 include:bad.example include:spf.example -all", Unchecked),
        ("v=spf1 a:mail.example.com foo:bar -all", Mismatch),
        ("v=spf1 a:mail.example.com include:gone.example -all", Pass),
        ("v=spf1 include:gone.example a:mail.example.com -all", Mismatch),
        ("v=spf1 exists:a.test exists:b.test exists:c.test a:mail.example.com -all", Mismatch),
        ("v=spf1 -ip4:203.0.113.1 a:mail.example.com -all", Mismatch),
    ] {
        assert_eq!(evaluate_from(&["203.0.113.1"], record).await.status, expected, "{record}");
    }
}

#[tokio::test]
async fn a_record_that_covers_every_source_address_passes() {
    let both = &["192.0.2.7", "2001:db8::2"][..];
    for (sources, record, expected) in [
        (both, "v=spf1 ip4:192.0.2.7 ip6:2001:db8::/64 -all", Pass),
        (both, "v=spf1 ip4:192.0.2.7 -all", Mismatch),
        (both, "v=spf1 -ip4:192.0.2.7 +all", Mismatch),
        (both, "v=spf1 include:ours.example -all", Pass),
        (both, "v=spf1 include:half.example ip6:2001:db8::2 -all", Pass),
        (both, "v=spf1 ~include:ours.example -all", Mismatch),
        (both, "v=spf1 redirect=ours.example", Pass),
        (both, "v=spf1 include:own.example -all", Pass),
        (both, "v=spf1 a mx -all", Pass),
        (both, "v=spf1 a -all", Mismatch),
        (both, "v=spf1 a/24 mx//64 -all", Pass),
        (&["192.0.2.200"], "v=spf1 a/24 -all", Pass),
        (&["192.0.2.200"], "v=spf1 a -all", Mismatch),
        (&["192.0.2.7"], "v=spf1 a:192.0.2.7 -all", Mismatch),
        (&["192.0.2.7"], "v=spf1 exists:own.example -all", Pass),
        (&["2001:db8::2"], "v=spf1 exists:own.example -all", Pass),
        (&["2001:db8::2"], "v=spf1 exists:six.example -all", Mismatch),
        (both, "v=spf1 a:slow.example -all", Unchecked),
        (both, "v=spf1 a:slow.example ip6:2001:db8::2 -all", Unchecked),
        (&["192.0.2.7"], "v=spf1 a:slow.example -all", Pass),
        (&["192.0.2.7"], "v=spf1 exists:%{i}.own.example -all", Mismatch),
        (&["192.0.2.7"], "v=spf1 ip4:192.0.2.7 include:bad.example -all", Pass),
        (&["192.0.2.7"], "v=spf1 a:bad.example ip4:192.0.2.7 -all", Unchecked),
        (&["192.0.2.7"], "v=spf1 include:nowhere.example ip4:192.0.2.7 -all", Mismatch),
        // The EHLO name has no address.
        (&[], "v=spf1 ip4:192.0.2.7 -all", Mismatch),
    ] {
        assert_eq!(evaluate_from(sources, record).await.status, expected, "{sources:?} {record}");
    }
}

#[tokio::test]
async fn the_addresses_that_do_not_pass_are_returned_once() {
    let three = &["2001:db8::2", "192.0.2.7", "192.0.2.200", "192.0.2.7"][..];
    for (record, expected) in [
        ("v=spf1 a -all", &["192.0.2.200", "2001:db8::2"][..]),
        ("v=spf1 include:ours.example -all", &[]),
        ("v=spf1 -all", &["192.0.2.7", "192.0.2.200", "2001:db8::2"]),
        ("v=spf1 foo:bar", &[]),
        // The failed lookup may cover any address.
        ("v=spf1 include:bad.example -all", &[]),
    ] {
        let uncovered: Vec<_> = evaluate_from(three, record).await.uncovered.iter().map(ToString::to_string).collect();
        assert_eq!(uncovered, expected, "{record}");
    }
    assert_eq!(evaluate_from(&[], "v=spf1 ip4:192.0.2.7 -all").await.uncovered, [] as [IpAddr; 0]);
}

#[tokio::test]
async fn receivers_stop_after_ten_lookups_or_two_without_an_answer() {
    let ours = "ip4:192.0.2.7 -all";
    for (terms, expected) in [
        ("exists:a.test exists:b.test ", Pass),
        ("exists:a.test exists:b.test exists:c.test ", Mismatch),
        (&"ptr ".repeat(10), Pass),
        (&"ptr ".repeat(11), Mismatch),
    ] {
        assert_eq!(evaluate_from(&["192.0.2.7"], &format!("v=spf1 {terms}{ours}")).await.status, expected, "{terms}");
    }
}

#[tokio::test]
async fn lookups_are_counted_through_includes_and_bounded_in_a_loop() {
    for (record, expected) in [
        ("v=spf1 ip4:192.0.2.1 -all", Some(0)),
        ("v=spf1 a mx/24 ?ptr exists:%{i}.x.example exp=x.example -all", Some(4)),
        ("v=spf1 include:outer.example -all", Some(3)),
        ("v=spf1 include:own.example include:own.example redirect=nowhere.example", Some(7)),
        ("v=spf1 include:%{d}.example -all", Some(1)),
        ("v=spf1 -all include:outer.example redirect=outer.example", Some(0)),
        ("v=spf1 include:bad.example -all", None),
        ("v=spf1 a:bad.example -all", Some(1)),
        ("v=spf1 include:loop.example -all", Some(41)),
    ] {
        assert_eq!(evaluate_from(&["203.0.113.1"], record).await.lookups, expected, "{record}");
    }
}

#[tokio::test]
async fn behind_nat_a_failing_lookup_of_the_ehlo_name_leaves_the_record_unchecked() {
    for (ehlo, record, expected) in [
        ("own.example", "v=spf1 ip4:192.0.2.7 -all", Pass),
        ("slow.example", "v=spf1 ip4:192.0.2.7 -all", Unchecked),
        ("slow.example", "v=spf1 a:mail.example.com -all", Pass),
    ] {
        let relays = [DirectRelay::new(ehlo.to_owned(), Vec::new(), |_| false)];
        let found = evaluate(&names(), ("own.example", record), HOST, &relays).await;
        assert_eq!(found.status, expected, "{ehlo} {record}");
    }
}
