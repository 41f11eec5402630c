//! Tests of removing reports.

use super::*;

#[test]
fn reports_are_removed_after_400_days_and_newer_ones_stay() {
    let world = World::new();
    let networks: Vec<_> = (0..600).map(network).collect();
    world.test.done(world.report("old", "1", &networks));
    world.test.done(world.sums());
    let late = world.sums();
    world.test.pass(DAY * 10);
    world.test.done(world.report("new", "2", &[network(1)]));
    world.test.done(world.sums());
    world.test.pass(KEPT - DAY * 11);
    world.sweep();
    assert_eq!(world.rows(Table::DmarcCounts), 601, "the first day is 400 days old, not older");
    world.test.pass(DAY * 2);
    world.sweep();
    world.test.done(late);
    assert_eq!(TABLES.map(|table| world.rows(table)), [1; 7]);
    let report = crate::store::check::check_open(world.test.store(), world.test.now());
    assert_eq!(report.failures, []);
    world.test.pass(DAY * 10);
    world.sweep();
    assert_eq!(TABLES.map(|table| world.rows(table)), [0; 7]);
}

#[test]
fn a_report_about_an_earlier_day_is_removed_400_days_after_its_arrival() {
    let world = World::new();
    let mut late = world.report("late", "1", &[network(1)]);
    late.report.begin = late.report.begin - DAY * 5;
    late.report.end = late.report.end - DAY * 5;
    world.test.done(late);
    world.test.pass(KEPT - DAY * 2);
    world.sweep();
    assert_eq!((world.rows(Table::DmarcCounts), world.rows(Table::DmarcReports)), (0, 1));
    world.test.pass(DAY * 4);
    world.sweep();
    assert_eq!(TABLES.map(|table| world.rows(table)), [0; 7]);
}

#[test]
fn removing_a_domain_removes_its_reports() {
    let world = World::new();
    world.test.done(world.report("one", "1", &[network(1)]));
    world.test.done(world.unauthentic("two", "2"));
    world.test.done(world.sums());
    let op = DeleteDomain { account: world.account, domain: world.domain, limit: None };
    assert!(world.test.commit(op).is_ok());
    world.sweep();
    world.test.done(world.sums());
    assert_eq!(TABLES.map(|table| world.rows(table)), [0; 7]);
}
