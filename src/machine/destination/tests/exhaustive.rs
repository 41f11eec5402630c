//! Exhaustive test: all runs of a destination with one connection and two messages, to a depth of twelve steps.

use std::collections::HashSet;

use super::*;

const DEPTH: usize = 12;

/// A possible next step.
#[derive(Debug, Clone, Copy)]
enum Step {
    Due(u8),
    End(u8, Signal),
    LetPass(u8),
    Connect(u8),
    Keep(u8),
    Throttle,
    TryNow,
    Wake,
}

fn steps(model: &Model, due: u8) -> Vec<Step> {
    let mut steps = vec![Step::TryNow, Step::Wake];
    if due < 2 {
        steps.push(Step::Due(due + 1));
    }
    if model.now == START {
        steps.push(Step::Throttle);
    }
    for n in model.started() {
        let ends = [Signal::Took, Signal::PushedBack, Signal::Silent].map(|signal| Step::End(n, signal));
        steps.extend(ends.into_iter().chain([Step::LetPass(n), Step::Connect(n), Step::Keep(n)]));
    }
    steps
}

fn take(model: &mut Model, due: &mut u8, step: Step) {
    match step {
        Step::Due(n) => {
            *due = n;
            model.due(n);
        }
        Step::End(n, signal) => model.end(n, signal),
        Step::LetPass(n) => model.let_pass(n),
        Step::Connect(n) => model.connect(n),
        Step::Keep(n) => model.keep(n),
        Step::Throttle => model.step(Input::Limit(RequestedLimit::Pause(START.wall + Duration::from_secs(70)), None)),
        Step::TryNow => model.step(Input::TryNow),
        Step::Wake => model.wake(),
    }
}

#[test]
fn all_runs_of_two_messages_over_one_connection_keep_the_invariants_and_end() {
    let first = (model(Limits { connections: 1, ..LIMITS }), 0);
    let (mut present, mut seen) = (vec![first], HashSet::new());
    for _ in 0..DEPTH {
        let mut next = Vec::new();
        for (model, due) in &present {
            for step in steps(model, *due) {
                let (mut model, mut due) = (model.clone(), *due);
                take(&mut model, &mut due, step);
                if seen.insert(format!("{model:?}")) {
                    model.clone().ends_well();
                    next.push((model, due));
                }
            }
        }
        present = next;
    }
    assert!(seen.len() > 1_000, "{}", seen.len());
}
