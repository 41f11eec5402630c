//! Tests of a wall clock that creeps ahead in steps that are small alone.

use super::*;

#[test]
fn steps_ahead_of_more_than_an_hour_in_sum_are_doubted_and_move_no_deadline() {
    for step in [Duration::from_secs(10), 7 * MINUTE, 58 * MINUTE, HOUR] {
        let mut machine = Machine::new();
        while machine.sample.wall < START + 42 * DAY {
            machine.set_ahead(step).pass(Duration::from_millis(20));
        }
        let cause = machine.state.doubt().map(|doubt| doubt.cause);
        assert_eq!((cause, machine.effects.len()), (Some(Cause::CreptAhead), 1), "{step:?}");
        let passed = machine.sample.elapsed - DAY;
        let gain_max = HOUR + passed / GAIN_DECAY;
        assert!(machine.time().expiry <= at(START + gain_max), "{step:?}: {:?}", machine.time());
        assert!(machine.time().now <= at(START + passed + gain_max), "{step:?}: {:?}", machine.time());
    }
}

#[test]
fn a_doubt_about_a_creeping_clock_ends_once_the_clock_is_no_longer_ahead() {
    let mut machine = Machine::new();
    machine.set_ahead(58 * MINUTE).set_ahead(3 * MINUTE);
    assert_eq!(machine.state.doubt().map(|doubt| doubt.cause), Some(Cause::CreptAhead));
    machine.pass(20 * HOUR);
    assert_eq!(machine.resolution(), None, "by now the gain alone would permit the difference");
    machine.set_back(61 * MINUTE);
    assert_eq!(machine.resolution(), Some((Resolution::JumpUndone, 0)));
    machine.settle();
    assert_eq!(machine.time().now, at(START + 58 * MINUTE + 20 * HOUR));
    machine.pass(10 * HOUR);
    assert_eq!(machine.time(), at(START + 30 * HOUR).into());
}

#[test]
fn a_clock_that_creeps_at_the_rate_of_the_decay_causes_one_doubt() {
    let mut machine = Machine::new();
    machine.set_ahead(HOUR);
    for _ in 0..1000 {
        machine.set_ahead(Duration::from_millis(995)).pass(GAIN_DECAY * Duration::from_secs(1));
        if machine.resolution().is_some() {
            machine.settle();
        }
    }
    assert_eq!(machine.effects.len(), 1, "{:?}", machine.effects);
}

#[test]
fn a_clock_that_is_fast_by_half_a_percent_is_followed_for_a_year() {
    let mut machine = Machine::new();
    for _ in 0..365 {
        machine.sample.wall += DAY / 200;
        machine.pass(DAY);
    }
    assert_eq!(machine.time(), at(START + 365 * (DAY + DAY / 200)).into());
}

#[test]
fn a_gain_of_an_hour_is_forgotten_in_seven_days() {
    for (days, cause) in [(7, None), (6, Some(Cause::CreptAhead))] {
        let mut machine = Machine::new();
        machine.set_ahead(HOUR).pass(days * DAY).set_ahead(HOUR);
        assert_eq!(machine.state.doubt().map(|doubt| doubt.cause), cause, "{days} days");
    }
}

#[test]
fn a_gain_is_forgotten_when_the_clock_is_confirmed_but_not_when_a_jump_is_undone() {
    let mut accepted = Machine::new();
    accepted.set_ahead(HOUR).set_ahead(HOUR);
    accepted.step(Input::Accepted(accepted.sample));
    accepted.settle();
    accepted.set_ahead(HOUR);
    assert_eq!(accepted.time(), at(START + 3 * HOUR).into());
    let mut undone = Machine::new();
    undone.set_ahead(HOUR).set_ahead(2 * HOUR).set_back(2 * HOUR - MINUTE);
    assert_eq!(undone.resolution(), None, "a minute ahead is still too much");
    undone.set_back(MINUTE);
    assert_eq!(undone.resolution(), Some((Resolution::JumpUndone, 0)));
    undone.settle();
    undone.set_ahead(MINUTE);
    assert_eq!(undone.state.doubt().map(|doubt| (doubt.number, doubt.cause)), Some((2, Cause::CreptAhead)));
}
