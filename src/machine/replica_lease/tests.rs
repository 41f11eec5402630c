//! The transition table of the lease, and its invariant: no two machines send at the same time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const LEASE: Duration = Duration::from_secs(5);
const STOPS: LeaseRules = LeaseRules { lease: LEASE, stops: true, is_automatic: false };
const SERVES: LeaseRules = LeaseRules { stops: false, ..STOPS };
const AUTOMATIC: LeaseRules = LeaseRules { is_automatic: true, ..STOPS };

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn active(newest: u64, wanted_since: Option<u64>) -> LeaseState {
    LeaseState::Active(Confirmations { newest: Some(at(newest)), wanted_since: wanted_since.map(at) })
}

fn waiting(until: u64) -> LeaseState {
    let confirmations = Confirmations { newest: Some(at(0)), wanted_since: None };
    LeaseState::Waiting { wait: at(5750), until: at(until), confirmations }
}

const FOLLOWING: LeaseState = LeaseState::Following { unchanged_since: None };

#[test]
fn a_claim_waits_for_its_predecessors_lease_unless_it_was_released() {
    let claim = |predecessor| {
        let input = LeaseInput::Claimed { asked_at: at(1000), predecessor };
        LeaseState::Claiming.step(input, at(1200), &STOPS)
    };
    assert_eq!(claim(Predecessor::Released), active(1000, None));
    assert_eq!(claim(Predecessor::Own), active(1000, None));
    let LeaseState::Waiting { until, .. } = claim(Predecessor::Other { lease: LEASE }) else { panic!("it must wait") };
    assert_eq!(until, at(1200 + 5250 + 500), "1.05 leases and 0.5 s after the answer");
    let waiting = claim(Predecessor::Other { lease: LEASE });
    assert_eq!(waiting.may_accept(at(1200), &STOPS), Permit::Granted);
    assert_eq!(waiting.may_send(at(1200), &STOPS), Permit::Refused);
    assert_eq!(waiting.step(LeaseInput::Passed, at(6949), &STOPS), waiting);
    assert!(matches!(waiting.step(LeaseInput::Passed, at(6950), &STOPS), LeaseState::Active(_)));
}

#[test]
fn work_that_arrived_during_the_wait_waits_for_a_confirmation_from_its_end_on() {
    let waiting = waiting(5750).step(LeaseInput::Wanted, at(1), &STOPS);
    let begun = waiting.step(LeaseInput::Passed, at(5750), &STOPS);
    assert_eq!(begun, active(0, Some(5750)));
    assert_eq!(begun.may_send(at(5750), &STOPS), Permit::AfterConfirmation);
    assert_eq!(begun.step(LeaseInput::Passed, at(10_749), &STOPS), begun);
    assert_eq!(begun.step(LeaseInput::Passed, at(10_750), &STOPS), LeaseState::Unconfirmed);
}

#[test]
fn a_machine_follows_again_after_a_lost_claim() {
    assert_eq!(FOLLOWING.step(LeaseInput::Promoted, at(0), &STOPS), LeaseState::Claiming);
    assert_eq!(LeaseState::Claiming.step(LeaseInput::ClaimLost, at(0), &STOPS), FOLLOWING);
    assert_eq!(LeaseState::Claiming.step(LeaseInput::Unanswered, at(0), &STOPS), LeaseState::Claiming);
}

#[test]
fn a_standby_claims_a_log_without_changes_for_two_leases_while_the_bucket_answers() {
    let follow = |rules: &LeaseRules, inputs: &[LeaseInput]| {
        inputs.iter().fold(FOLLOWING, |state, input| state.step(*input, at(0), rules))
    };
    let still = |millis| LeaseInput::Still(at(millis));
    assert_eq!(follow(&AUTOMATIC, &[still(0), still(5000), still(10_000)]), LeaseState::Claiming);
    for inputs in [
        [still(0), still(5000), still(9999)],
        [still(0), LeaseInput::Moved, still(10_000)],
        [still(0), LeaseInput::Unanswered, still(10_000)],
        [still(0), LeaseInput::Doubted, still(10_000)],
    ] {
        assert!(matches!(follow(&AUTOMATIC, &inputs), LeaseState::Following { .. }), "{inputs:?}");
    }
    assert!(matches!(follow(&STOPS, &[still(0), still(99_000)]), LeaseState::Following { .. }));
}

#[test]
fn a_lease_that_expired_while_idle_needs_a_confirmation_first() {
    let idle = active(0, None);
    assert_eq!(idle.may_send(at(4999), &STOPS), Permit::Granted);
    let idle = idle.step(LeaseInput::Passed, at(60_000), &STOPS);
    assert!(idle.is_ready(), "an idle machine is not unconfirmed");
    assert_eq!(idle.may_accept(at(60_000), &STOPS), Permit::AfterConfirmation);
    let asked = idle.step(LeaseInput::Wanted, at(60_000), &STOPS);
    assert_eq!(asked.step(LeaseInput::Passed, at(64_999), &STOPS), asked, "for at most a lease");
    assert_eq!(asked.step(LeaseInput::Passed, at(65_000), &STOPS), LeaseState::Unconfirmed);
    let confirmed = asked.step(LeaseInput::Confirmed(at(60_001)), at(60_040), &STOPS);
    assert_eq!(confirmed, active(60_001, None));
    assert_eq!(confirmed.may_send(at(60_040), &STOPS), Permit::Granted);
}

#[test]
fn work_without_a_confirmation_for_a_lease_is_unconfirmed() {
    let busy = active(0, None).step(LeaseInput::Wanted, at(1), &STOPS);
    assert_eq!(busy.step(LeaseInput::Passed, at(5000), &STOPS).may_send(at(5000), &STOPS), Permit::AfterConfirmation);
    let unconfirmed = busy.step(LeaseInput::Passed, at(5001), &STOPS);
    assert_eq!(unconfirmed, LeaseState::Unconfirmed);
    assert_eq!(unconfirmed.may_accept(at(5001), &STOPS), Permit::Refused);
    assert!(!unconfirmed.is_ready());
    assert_eq!(unconfirmed.step(LeaseInput::Confirmed(at(6000)), at(6100), &STOPS), active(6000, None));
    let late = unconfirmed.step(LeaseInput::Confirmed(at(6000)), at(11_000), &STOPS);
    assert_eq!(late, LeaseState::Unconfirmed, "a confirmation counts from before its request");
    assert_eq!(unconfirmed.step(LeaseInput::SlotTaken, at(6000), &STOPS), LeaseState::Deposed);
}

#[test]
fn a_later_answer_never_shortens_a_lease() {
    let confirmed = active(3000, None).step(LeaseInput::Confirmed(at(2000)), at(4000), &STOPS);
    assert_eq!(confirmed, active(3000, None));
    let wanted = active(0, Some(3500)).step(LeaseInput::Confirmed(at(3000)), at(4000), &STOPS);
    assert_eq!(wanted, active(3000, Some(3500)), "it was requested before the work arrived");
}

#[test]
fn without_a_stop_rule_the_right_lasts_until_another_machine_claims() {
    let busy = active(0, None).step(LeaseInput::Wanted, at(1), &SERVES);
    let late = busy.step(LeaseInput::Passed, at(3_600_000), &SERVES);
    assert_eq!(late.may_send(at(3_600_000), &SERVES), Permit::Granted);
    assert_eq!(late.lease_left(at(0), &SERVES), None);
    assert_eq!(late.step(LeaseInput::SlotTaken, at(0), &SERVES), LeaseState::Deposed);
}

#[test]
fn a_doubt_about_the_clock_ends_the_lease_until_it_is_confirmed() {
    for rules in [STOPS, SERVES] {
        let doubted = active(0, None).step(LeaseInput::Doubted, at(100), &rules);
        assert_eq!(doubted.may_send(at(100), &rules), Permit::AfterConfirmation);
        let confirmed = doubted.step(LeaseInput::Confirmed(at(150)), at(200), &rules);
        assert_eq!(confirmed.may_send(at(200), &rules), Permit::Granted);
        let asked = doubted.step(LeaseInput::Wanted, at(100), &rules).step(LeaseInput::Passed, at(5100), &rules);
        let after_a_lease = if rules.stops { Permit::Refused } else { Permit::Granted };
        assert_eq!(asked.may_send(at(5100), &rules), after_a_lease);
    }
    let LeaseState::Waiting { until, .. } = waiting(5750).step(LeaseInput::Doubted, at(5000), &STOPS) else {
        panic!("it must continue to wait")
    };
    assert_eq!(until, at(10_750), "the wait starts again");
}

#[test]
fn a_deposed_machine_stays_deposed() {
    let inputs = [
        LeaseInput::Promoted,
        LeaseInput::Moved,
        LeaseInput::Still(at(99_000)),
        LeaseInput::Unanswered,
        LeaseInput::Claimed { asked_at: at(0), predecessor: Predecessor::Released },
        LeaseInput::ClaimLost,
        LeaseInput::Confirmed(at(0)),
        LeaseInput::Wanted,
        LeaseInput::SlotTaken,
        LeaseInput::Doubted,
        LeaseInput::Passed,
    ];
    for input in inputs {
        assert_eq!(LeaseState::Deposed.step(input, at(1), &AUTOMATIC), LeaseState::Deposed, "{input:?}");
    }
    for state in [waiting(9000), active(0, None), LeaseState::Unconfirmed] {
        assert_eq!(state.step(LeaseInput::SlotTaken, at(1), &STOPS), LeaseState::Deposed);
    }
}

#[test]
fn confirmations_are_requested_every_half_lease_with_work_and_every_third_if_automatic_and_idle() {
    let next = |state: LeaseState, has_work, rules| state.next_confirmation(at(1000), has_work, &rules);
    assert_eq!(next(active(0, None), true, STOPS), Some(at(3500)));
    assert_eq!(next(active(0, None), false, STOPS), None, "idle and manual: no requests");
    assert_eq!(next(active(0, None), false, AUTOMATIC), Some(at(1000) + LEASE / 3));
    assert_eq!(next(LeaseState::Unconfirmed, false, STOPS), Some(at(3500)));
    assert_eq!(next(FOLLOWING, true, AUTOMATIC), None);
    assert_eq!(active(1000, None).lease_left(at(2000), &STOPS), Some(at(4000)));
    assert_eq!(active(1000, None).lease_left(at(9000), &STOPS), Some(Duration::ZERO));
}

/// One machine of a simulated pair.
#[derive(Debug)]
struct Machine {
    state: LeaseState,
    /// Milliseconds that its clock counts in one real second.
    rate: u64,
    /// Initial reading of its clock.
    origin: u64,
    /// A request in flight: its time by the machine's clock, when the bucket serves it, and when the answer arrives.
    request: Option<(Duration, u64, u64, Request)>,
}

#[derive(Debug, Clone, Copy)]
enum Request {
    /// Creates the next slot, or checks whether it exists.
    Confirm,
    Claim,
    Look,
}

impl Machine {
    fn clock(&self, real: u64) -> Duration {
        at(self.origin + real * self.rate / 1000)
    }

    fn step(&mut self, input: LeaseInput, real: u64) {
        self.state = self.state.step(input, self.clock(real), &AUTOMATIC);
    }
}

/// The log: the writer of each slot, by slot number.
#[derive(Debug, Default)]
struct Log {
    slots: BTreeMap<u64, usize>,
    /// Number of slots that each machine has seen.
    seen: [u64; 2],
    /// The bucket's results of requests whose answers have not arrived yet.
    served: [Option<LeaseInput>; 2],
}

impl Log {
    fn last(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Serves a request of a machine. Creating an object is both append and election.
    fn serve(&mut self, machine: usize, sent: Duration, request: Request) {
        let next = self.seen[machine] + 1;
        let taken = self.slots.get(&next).copied();
        let input = match (request, taken) {
            (Request::Look, Some(_)) => {
                self.seen[machine] = self.last();
                LeaseInput::Moved
            }
            (Request::Look, None) => LeaseInput::Still(sent),
            (Request::Confirm, None) => {
                self.slots.insert(next, machine);
                self.seen[machine] = next;
                LeaseInput::Confirmed(sent)
            }
            (Request::Confirm, Some(_)) => LeaseInput::SlotTaken,
            (Request::Claim, None) => {
                let predecessor = match self.slots.get(&self.seen[machine]) {
                    Some(owner) if *owner != machine => Predecessor::Other { lease: LEASE },
                    Some(_) => Predecessor::Own,
                    None => Predecessor::Released,
                };
                self.slots.insert(next, machine);
                self.seen[machine] = next;
                LeaseInput::Claimed { asked_at: sent, predecessor }
            }
            (Request::Claim, Some(_)) => {
                self.seen[machine] = self.last();
                LeaseInput::ClaimLost
            }
        };
        self.served[machine] = Some(input);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Two machines with automatic failover, whose clocks differ by up to 5 % in rate and by any amount in their
    /// readings. Requests take any time and may be lost before or after they are served. Either machine may stall.
    #[test]
    fn no_two_machines_send_at_the_same_time(
        rates in (976_u64..=1025, 976_u64..=1025),
        origins in (0_u64..1_000_000, 0_u64..1_000_000),
        draws in prop::collection::vec((0_u8..20, 0_u64..9000, 0_u64..9000), 800),
    ) {
        let machine = |rate, origin, state| Machine { state, rate, origin, request: None };
        let mut machines = [
            machine(rates.0, origins.0, LeaseState::Claiming),
            machine(rates.1, origins.1, FOLLOWING),
        ];
        let mut log = Log::default();
        let mut draws = draws.into_iter();
        let mut switches = 0;
        for real in (0..180_000).step_by(20) {
            for (own, machine) in machines.iter_mut().enumerate() {
                if let Some((sent, served_at, answered_at, request)) = machine.request {
                    if real >= served_at && log.served[own].is_none() {
                        log.serve(own, sent, request);
                    }
                    if real >= answered_at {
                        machine.request = None;
                        if let Some(input) = log.served[own].take() {
                            switches += usize::from(matches!(input, LeaseInput::Claimed { .. }));
                            machine.step(input, real);
                        }
                    }
                } else if real % 500 == 0 {
                    let request = match machine.state {
                        LeaseState::Following { .. } => Request::Look,
                        LeaseState::Claiming => Request::Claim,
                        LeaseState::Deposed => continue,
                        _ => Request::Confirm,
                    };
                    let Some((kind, one, two)) = draws.next() else { continue };
                    // Most requests are quick. One in twenty is slow, and the answer of one in twenty hardly ever
                    // arrives.
                    let (to, back) = match kind {
                        0 => (one, two),
                        1 => (one / 90, two * 4),
                        _ => (one / 90, two / 90),
                    };
                    machine.request = Some((machine.clock(real), real + to, real + to + back, request));
                }
                machine.step(LeaseInput::Wanted, real);
                // A deposed machine is set up again as a standby.
                if machine.state == LeaseState::Deposed && real % 10_000 == 0 {
                    (machine.state, machine.request) = (FOLLOWING, None);
                    (log.seen[own], log.served[own]) = (log.last(), None);
                }
            }
            let sends = |machine: &Machine| machine.state.may_send(machine.clock(real), &AUTOMATIC) == Permit::Granted;
            prop_assert!(!(sends(&machines[0]) && sends(&machines[1])), "at {real} ms: {machines:?}");
        }
        prop_assert!(switches >= 1);
    }
}
