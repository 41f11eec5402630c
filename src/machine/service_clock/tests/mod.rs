//! Tests of each rule about a doubtful wall clock, and properties for arbitrary readings.

mod creeping;

use super::*;
use proptest::prelude::*;

const START: Duration = Duration::from_secs(1_700_000_000);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A machine whose clocks are set by the test.
struct Machine {
    state: State,
    sample: Sample,
    effects: Vec<Effect>,
}

impl Machine {
    fn new() -> Self {
        Self::started(ClockHistory::default(), START)
    }

    fn started(past: ClockHistory, wall: Duration) -> Self {
        let sample = Sample { wall, elapsed: DAY, is_synchronised: false };
        let Next { state, effects } = State::start(past, sample);
        Self { state, sample, effects }
    }

    fn read(&mut self) {
        self.step(Input::Read(self.sample));
    }

    fn step(&mut self, input: Input) {
        let next = self.state.step(input);
        self.state = next.state;
        self.effects.extend(next.effects);
    }

    /// Records and settles the end of the doubt.
    fn settle(&mut self) {
        self.step(Input::Recorded(self.sample));
        self.state = self.state.settled();
    }

    /// Advances both clocks.
    fn pass(&mut self, time: Duration) -> &mut Self {
        self.sample.wall += time;
        self.sample.elapsed += time;
        self.read();
        self
    }

    fn set_ahead(&mut self, by: Duration) -> &mut Self {
        self.sample.wall += by;
        self.read();
        self
    }

    fn set_back(&mut self, by: Duration) -> &mut Self {
        self.sample.wall -= by;
        self.read();
        self
    }

    fn time(&self) -> ServiceTime {
        self.state.time()
    }

    fn resolution(&self) -> Option<(Resolution, i64)> {
        self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Ended { resolution, offset_ms, .. } => Some((*resolution, *offset_ms)),
            Effect::Doubted { .. } => None,
        })
    }
}

fn at(since_epoch: Duration) -> Timestamp {
    moment(since_epoch)
}

#[test]
fn a_step_forward_of_up_to_an_hour_is_followed_at_once() {
    let mut machine = Machine::new();
    machine.pass(MINUTE).set_ahead(HOUR);
    assert_eq!(machine.time(), at(START + MINUTE + HOUR).into());
}

#[test]
fn after_a_step_back_of_up_to_an_hour_time_runs_a_tenth_slower() {
    let mut machine = Machine::new();
    machine.set_back(HOUR);
    assert_eq!(machine.time().now, at(START));
    machine.pass(10 * MINUTE);
    assert_eq!(machine.time().now, at(START + 9 * MINUTE));
    assert_eq!(machine.time().wall, at(START - 50 * MINUTE));
    for _ in 0..59 {
        machine.pass(10 * MINUTE);
    }
    assert_eq!(machine.time().now, at(machine.sample.wall));
    machine.pass(MINUTE);
    assert_eq!(machine.time(), at(machine.sample.wall).into());
    assert_eq!(machine.effects, []);
}

#[test]
fn after_a_step_of_more_than_an_hour_the_service_follows_the_monotonic_clock() {
    for (ahead, back) in [(HOUR + Duration::from_millis(1), Duration::ZERO), (Duration::ZERO, 40 * DAY)] {
        let mut machine = Machine::new();
        machine.pass(MINUTE).set_ahead(ahead).set_back(back).pass(9 * MINUTE);
        assert_eq!(machine.time().now, at(START + 10 * MINUTE));
        assert_eq!(machine.time().expiry, at(START + MINUTE));
        assert_eq!(machine.time().wall, at(START + 10 * MINUTE + ahead - back));
        assert_eq!(machine.time().doubt, Some(1));
    }
}

#[test]
fn a_clock_that_is_set_to_and_fro_within_an_hour_causes_no_doubt() {
    let mut machine = Machine::new();
    for _ in 0..1000 {
        machine.set_ahead(50 * MINUTE).pass(MINUTE).set_back(50 * MINUTE).pass(MINUTE);
    }
    assert_eq!(machine.effects, []);
}

#[test]
fn a_suspended_machine_causes_no_doubt() {
    let mut machine = Machine::new();
    machine.pass(40 * DAY);
    assert_eq!(machine.time(), at(START + 40 * DAY).into());
}

#[test]
fn a_doubt_ends_when_the_jump_is_undone_and_deadlines_continue_once_it_is_settled() {
    let mut machine = Machine::new();
    machine.set_ahead(40 * DAY).pass(Duration::from_secs(3)).set_back(40 * DAY);
    assert_eq!(machine.resolution(), Some((Resolution::JumpUndone, 0)));
    machine.state = machine.state.settled();
    assert_eq!((machine.time().doubt, machine.time().expiry), (Some(1), at(START)), "until that is recorded");
    machine.step(Input::Recorded(machine.sample));
    assert_eq!((machine.time().doubt, machine.time().expiry), (None, at(START)), "until that is settled");
    machine.settle();
    assert_eq!(machine.time(), at(START + Duration::from_secs(3)).into());
}

#[test]
fn a_doubt_ends_after_ten_minutes_of_a_synchronised_clock_without_a_step() {
    let mut machine = Machine::new();
    machine.set_ahead(40 * DAY).pass(MINUTE);
    machine.sample.is_synchronised = true;
    machine.pass(MINUTE).pass(9 * MINUTE).set_ahead(2 * MINUTE).pass(9 * MINUTE);
    assert_eq!(machine.resolution(), None, "it was set, so only 9 minutes count");
    machine.sample.is_synchronised = false;
    machine.pass(MINUTE);
    machine.sample.is_synchronised = true;
    machine.pass(MINUTE).pass(SYNCHRONISED_FOR - Duration::from_millis(1));
    assert_eq!(machine.resolution(), None);
    machine.pass(Duration::from_millis(1));
    let offset = i64::try_from((40 * DAY + 2 * MINUTE).as_millis()).unwrap();
    assert_eq!(machine.resolution(), Some((Resolution::Synchronised, offset)));
    machine.settle();
    assert_eq!(machine.time().now, at(machine.sample.wall));
}

#[test]
fn a_doubt_ends_after_24_hours_of_agreement_between_both_clocks() {
    let mut machine = Machine::new();
    machine.set_back(40 * DAY).pass(23 * HOUR).set_ahead(2 * MINUTE).pass(23 * HOUR);
    assert_eq!(machine.resolution(), None);
    machine.pass(HOUR);
    let offset = i64::try_from((40 * DAY - 2 * MINUTE).as_millis()).unwrap();
    assert_eq!(machine.resolution(), Some((Resolution::Agreed, -offset)));
    machine.settle();
    assert_eq!(machine.time().now, at(machine.sample.wall));
}

#[test]
fn accepting_the_clock_ends_a_doubt_and_changes_nothing_without_one() {
    let mut machine = Machine::new();
    machine.pass(MINUTE);
    let trusted = machine.state;
    assert_eq!(trusted.step(Input::Accepted(machine.sample)), Next::unchanged(trusted));
    machine.set_ahead(2 * HOUR);
    machine.effects.clear();
    machine.step(Input::Accepted(machine.sample));
    let (number, until) = (1, at(START + MINUTE));
    let resolution = Resolution::Accepted;
    assert_eq!(machine.effects, [Effect::Ended { number, resolution, until, offset_ms: 7_200_000 }]);
    machine.pass(MINUTE);
    assert_eq!(machine.time().now, at(START + 2 * MINUTE), "until that is recorded");
    machine.settle();
    assert_eq!(machine.time(), at(START + 2 * MINUTE + 2 * HOUR).into());
    assert_eq!(machine.effects.len(), 1);
}

#[test]
fn a_clock_step_between_the_end_of_a_doubt_and_its_recording_starts_a_new_doubt() {
    let mut machine = Machine::new();
    machine.set_ahead(40 * DAY);
    machine.step(Input::Accepted(machine.sample));
    machine.set_back(40 * DAY);
    machine.settle();
    assert_eq!(machine.time().now, at(START + 40 * DAY));
    assert_eq!(machine.time().doubt, Some(2));
}

#[test]
fn a_start_compares_the_wall_clock_with_the_newest_identifier() {
    let past = ClockHistory { reached: Some(at(START)), ..ClockHistory::default() };
    let cause = |past, wall| Machine::started(past, wall).state.doubt().map(|doubt| doubt.cause);
    assert_eq!(cause(ClockHistory::default(), START), None, "a new store has nothing to compare with");
    assert_eq!(cause(past, START + STOPPED_MAX), None);
    assert_eq!(cause(past, START + STOPPED_MAX + MINUTE), Some(Cause::StartedAhead));
    assert_eq!(cause(past, START - HOUR), None);
    assert_eq!(cause(past, START - HOUR - MINUTE), Some(Cause::StartedBehind));
    let mut behind = Machine::started(past, START - 40 * DAY);
    behind.pass(MINUTE);
    assert_eq!(behind.time().now, at(START + MINUTE));
    let mut slightly_behind = Machine::started(past, START - HOUR);
    slightly_behind.pass(10 * MINUTE);
    assert_eq!(slightly_behind.time().now, at(START + 9 * MINUTE));
}

#[test]
fn a_restart_keeps_a_doubt_until_the_clock_is_within_an_hour_of_the_newest_identifier() {
    let past = ClockHistory { reached: Some(at(START)), open: Some(7), next: 8, is_unsettled: false };
    let doubtful = Machine::started(past, START + 2 * HOUR);
    assert_eq!(doubtful.state.doubt().map(|doubt| (doubt.number, doubt.cause)), Some((7, Cause::StillDoubtful)));
    let mut undone = Machine::started(past, START + MINUTE);
    assert_eq!(undone.resolution(), Some((Resolution::JumpUndone, 0)));
    undone.step(Input::Recorded(undone.sample));
    assert_eq!(undone.time().now, at(START + MINUTE));
    assert_eq!(undone.time().expiry, at(START), "until the end is settled");
    let unsettled = Machine::started(ClockHistory { open: None, is_unsettled: true, ..past }, START + MINUTE);
    assert_eq!((unsettled.time().doubt, unsettled.time().expiry), (None, at(START)));
}

#[test]
fn a_deadline_that_passes_while_deadlines_are_frozen_is_checked_again_in_an_hour() {
    let mut machine = Machine::new();
    machine.set_ahead(40 * DAY).pass(MINUTE);
    let time = machine.time();
    assert_eq!(time.deadline(at(START)), at(START), "it passed before the doubt");
    assert_eq!(time.deadline(at(START + MINUTE)), at(START + MINUTE + HOUR));
    assert_eq!(time.deadline(at(START + 2 * MINUTE)), at(START + 2 * MINUTE));
}

proptest! {
    #[test]
    fn time_steps_back_only_at_the_end_of_a_doubt_and_deadlines_never_run_ahead(
        steps in proptest::collection::vec((0_u8..4, 0_u64..10_000_000), 0..60),
    ) {
        let mut machine = Machine::new();
        for (kind, seconds) in steps {
            let (before, by) = (machine.time(), Duration::from_secs(seconds));
            machine.effects.clear();
            match kind {
                0 => machine.pass(by),
                1 => machine.set_ahead(by),
                2 => machine.set_back(by.min(machine.sample.wall)),
                _ => machine.pass(by / 10_000),
            };
            let has_ended = machine.resolution().is_some();
            if has_ended {
                machine.step(Input::Recorded(machine.sample));
            }
            if seconds % 2 == 0 {
                machine.state = machine.state.settled();
            }
            let time = machine.time();
            prop_assert!(time.now >= before.now || has_ended);
            prop_assert!(time.expiry <= time.now);
            prop_assert!(time.expiry == before.expiry || !before.is_frozen || !time.is_frozen || has_ended);
            let differs = time.now.since(time.wall).max(time.wall.since(time.now));
            prop_assert!(differs <= DIFFERENCE_MAX || time.is_doubtful());
        }
    }

    #[test]
    fn in_any_period_time_gains_an_hour_and_the_decay_at_most(
        steps in proptest::collection::vec((0_u8..6, 0_u64..4000), 0..200),
    ) {
        let mut machine = Machine::new();
        let mut seen = vec![(machine.sample.elapsed, machine.state.service)];
        for (kind, seconds) in steps {
            let by = Duration::from_secs(seconds);
            match kind {
                0 => machine.pass(by),
                1 => machine.pass(by * 50),
                2 => machine.set_back(by),
                _ => machine.set_ahead(by),
            };
            if machine.state.doubt().is_some_and(|doubt| doubt.ended.is_some()) {
                machine.settle();
            }
            let (elapsed, service) = (machine.sample.elapsed, machine.state.service);
            if machine.resolution().is_some_and(|(resolution, _)| resolution != Resolution::JumpUndone) {
                // The wall clock was confirmed and adopted.
                machine.effects.clear();
                seen.clear();
            }
            for (since, then) in &seen {
                let passed = elapsed - *since;
                prop_assert!(service <= *then + passed + passed / GAIN_DECAY + DIFFERENCE_MAX);
            }
            seen.push((elapsed, service));
        }
    }

    #[test]
    fn a_clock_that_is_a_little_wrong_and_corrected_is_never_doubted(
        ppm in -5000_i64..=5000,
        jitter_ms in 0_u64..5000,
        readings in proptest::collection::vec((0_u64..86_400, 0_u64..=1000, any::<bool>()), 1..200),
    ) {
        let mut machine = Machine::new();
        let (mut right, mut off_ms) = (START, 0_i64);
        for (seconds, share, is_corrected) in readings {
            right += Duration::from_secs(seconds);
            machine.sample.elapsed += Duration::from_secs(seconds);
            off_ms += i64::try_from(seconds).unwrap() * ppm / 1000;
            // It is corrected when it is 25 minutes off, if not earlier.
            if is_corrected || off_ms.abs() > 1_500_000 {
                off_ms = 0;
            }
            let jitter = Duration::from_millis(jitter_ms * share / 1000);
            machine.sample.wall = at(right + jitter).moved_by(off_ms).since(Timestamp::from_millis(0));
            machine.read();
            prop_assert_eq!(&machine.effects, &[]);
        }
    }
}
