//! Tests of the networks that have counts of their own on a day.

use std::collections::BTreeSet;

use super::*;

const MAX: usize = NETWORKS_MAX as usize;

fn networks(numbers: std::ops::Range<u32>) -> Vec<SourceNetwork> {
    numbers.map(network).collect()
}

impl World {
    /// Returns the number of networks with counts of their own.
    fn listed(&self) -> usize {
        let all: BTreeSet<_> = self.counted().into_iter().map(|(_, network, _)| network).collect();
        all.iter().filter(|network| **network != SourceNetwork::Other).count()
    }

    /// Returns the number of these networks that have separate counts.
    fn listed_of(&self, wanted: &[SourceNetwork]) -> usize {
        wanted.iter().filter(|network| self.messages_of(**network) > 0).count()
    }
}

#[test]
fn networks_above_the_daily_limit_are_counted_together() {
    let world = World::new();
    world.test.done(world.report("one", "1", &networks(0..NETWORKS_MAX)));
    world.test.done(world.report("one", "2", &[network(0), network(NETWORKS_MAX), network(NETWORKS_MAX + 1)]));
    let of = |wanted| world.messages_of(wanted);
    assert_eq!((of(network(0)), of(network(NETWORKS_MAX)), of(SourceNetwork::Other)), (2, 0, 2));
    assert_eq!((world.listed(), world.rows(Table::DmarcSources)), (MAX, MAX + 1));
}

#[test]
fn the_networks_with_the_most_messages_have_counts_of_their_own() {
    let world = World::new();
    let mut report = world.report("one", "1", &networks(0..NETWORKS_MAX + 1));
    let more = report.sources[0].counts;
    report.sources[MAX].counts.merge(&more);
    world.test.done(report);
    assert_eq!((world.messages_of(network(NETWORKS_MAX)), world.messages_of(SourceNetwork::Other)), (2, 1));
}

#[test]
fn reporters_share_the_networks_of_a_full_day() {
    let world = World::new();
    let (first, second) = (networks(0..NETWORKS_MAX), networks(5000..5600));
    world.test.done(world.report("one", "1", &first));
    world.test.done(world.report("two", "1", &[network(999)]));
    world.test.done(world.report("three", "1", &second));
    assert_eq!((world.listed(), world.listed_of(&first), world.listed_of(&second)), (MAX, MAX / 2, MAX / 2));
    assert_eq!(world.messages_of(network(999)), 2, "a reporter with few networks names it");
    assert_eq!(world.messages_of(SourceNetwork::Other), 600, "no message is lost");
    let few = networks(7000..7010);
    world.test.done(world.report("four", "1", &few));
    assert_eq!((world.listed(), world.listed_of(&few)), (MAX, few.len()));
    assert_eq!(world.rows(Table::DmarcCounts), world.counted().len(), "displaced networks leave no rows");
    assert_eq!(world.rows(Table::DmarcSources), MAX + 1);
}

#[test]
fn own_and_marked_networks_have_counts_of_their_own_on_a_full_day() {
    let world = World::new();
    let marked = network(7 << 8);
    world.test.done(world.report("two", "0", &[marked]));
    let mark = MarkDmarcSource {
        account: world.account,
        domain: world.domain,
        network: marked,
        is_mine: Some(true),
        limit: None,
    };
    assert!(world.test.commit(mark).is_ok());
    world.test.pass(DAY);
    for n in 0..ROWS_MAX / NETWORKS_MAX + 1 {
        world.test.done(world.report(&format!("r{n}"), "1", &networks(0..NETWORKS_MAX)));
    }
    let own = network(9 << 8);
    world.test.done(RecordDmarcReport { own: vec![own], ..world.report("r0", "2", &[own, marked]) });
    assert_eq!((world.messages_of(own), world.messages_of(marked)), (1, 2));
    assert_eq!(world.listed_of(&networks(0..NETWORKS_MAX)), MAX - 2);
    // Later networks displace others.
    let mut report = world.report("new", "1", &networks(5000..5900));
    report.own = vec![own];
    world.test.done(report);
    assert_eq!((world.messages_of(own), world.messages_of(marked), world.listed()), (1, 2, MAX));
}

#[test]
fn the_networks_of_an_ignored_reporter_make_room_for_all_others() {
    let world = World::new();
    let (first, second) = (networks(0..NETWORKS_MAX), networks(5000..5000 + NETWORKS_MAX));
    world.test.done(world.report("one", "1", &first));
    assert!(world.test.commit(world.ignore("one", None)).is_ok());
    world.test.done(world.report("two", "1", &second));
    assert_eq!((world.listed(), world.listed_of(&second)), (MAX, MAX));
    assert_eq!(world.messages_of(SourceNetwork::Other), u64::from(NETWORKS_MAX));
}

#[test]
fn an_ignored_reporter_uses_none_of_the_days_networks() {
    let world = World::new();
    world.test.done(world.report("one", "1", &[network(1)]));
    assert!(world.test.commit(world.ignore("one", None)).is_ok());
    world.test.done(world.report("one", "2", &networks(0..NETWORKS_MAX)));
    assert_eq!((world.rows(Table::DmarcCounts), world.messages_of(network(1))), (2, 2));
}

#[test]
fn a_displaced_network_of_earlier_days_is_removed_with_them() {
    let world = World::new();
    world.test.done(world.report("one", "1", &[network(999)]));
    world.test.pass(DAY);
    world.test.done(world.report("one", "2", &networks(0..NETWORKS_MAX)));
    world.test.done(world.report("two", "1", &[network(5000)]));
    assert_eq!((world.messages_of(network(999)), world.messages_of(SourceNetwork::Other)), (1, 1));
    let source = |world: &World| {
        world.test.count(Table::DmarcSources, &keys::dmarc_source(world.account, world.domain, network(999)))
    };
    world.test.done(world.report("three", "1", &[network(999)]));
    assert_eq!((world.messages_of(network(999)), source(&world)), (2, 1), "it can be counted again");
    world.test.pass(KEPT + DAY * 2);
    world.sweep();
    assert_eq!(TABLES.map(|table| world.rows(table)), [0; 7]);
}
