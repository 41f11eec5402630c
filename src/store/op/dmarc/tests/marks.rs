//! Tests of the account's marks.

use super::*;
use crate::store::row::dmarc::DmarcMarkRow;
use crate::store::schema::meta;

#[test]
fn marks_require_a_reported_source_or_reporter() {
    let world = World::new();
    world.test.done(world.report("one", "1", &[network(1)]));
    let mark = |number, limit| MarkDmarcSource {
        account: world.account,
        domain: world.domain,
        network: network(number),
        is_mine: Some(true),
        limit,
    };
    assert!(world.test.commit(mark(1, None)).is_ok());
    let row: DmarcSourceRow = world.test.row(&keys::dmarc_source(world.account, world.domain, network(1)));
    assert_eq!(row.is_mine, Some(true));
    assert!(matches!(world.test.commit(mark(2, None)), Err(OpError::Refused(DmarcRefusal::NotFound))));
    let limited = world.test.commit(mark(1, Some(Stream::Marketing)));
    assert!(matches!(limited, Err(OpError::Refused(DmarcRefusal::Stream(_)))));
    assert!(world.test.commit(world.ignore("one", None)).is_ok());
    assert!(matches!(world.test.commit(world.ignore("two", None)), Err(OpError::Refused(DmarcRefusal::NotFound))));
    assert_eq!(world.ignored(), ["one"]);
    world.test.done(world.report("one", "2", &[network(1)]));
    let row: DmarcSourceRow = world.test.row(&keys::dmarc_source(world.account, world.domain, network(1)));
    assert_eq!(row.is_mine, Some(true), "another report keeps the mark");
    assert_eq!(world.ignored(), ["one"]);
}

#[test]
fn a_mark_is_a_separate_row_until_it_or_its_source_is_removed() {
    let mut world = World::new();
    let marks = |world: &World| -> Vec<(Vec<u8>, DmarcMarkRow)> {
        let prefix = keys::dmarc_domain(world.account, world.domain);
        world.test.snapshot().sound_rows(&prefix, 10).unwrap()
    };
    let mark = |number, is_mine| MarkDmarcSource {
        account: world.account,
        domain: world.domain,
        network: network(number),
        is_mine,
        limit: None,
    };
    let key = |number| keys::dmarc_source(world.account, world.domain, network(number));
    world.test.done(world.report("one", "1", &[network(1), network(2), network(3)]));
    for (number, is_mine) in [(1, Some(true)), (2, Some(false)), (3, Some(true)), (3, None)] {
        assert!(world.test.commit(mark(number, is_mine)).is_ok());
    }
    let row = |is_mine| DmarcMarkRow { is_mine };
    assert_eq!(marks(&world), [(key(1), row(true)), (key(2), row(false))]);
    // A store of an earlier version has the marks in the rows of the sources alone.
    world.test.put(Table::DmarcMarks, &key(1), None);
    world.test.put(Table::DmarcMarks, &key(2), None);
    world.test.put(Table::Meta, meta::TOTALS, Some(&[2]));
    world.test.reopen();
    assert_eq!(marks(&world), [(key(1), row(true)), (key(2), row(false))]);
    world.test.pass(DAY * 10);
    world.test.done(world.report("one", "2", &[network(1)]));
    world.test.pass(KEPT - DAY * 8);
    world.sweep();
    assert_eq!(marks(&world), [(key(1), row(true))], "the second source was not reported again");
}
