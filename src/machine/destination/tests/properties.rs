//! Invariants under any inputs. The model checks most of them after each.

use proptest::prelude::*;

use super::*;

const SIGNALS: [Signal; 7] = [
    Signal::Took,
    Signal::Answered,
    Signal::Slowed,
    Signal::PushedBack,
    Signal::TurnedAway,
    Signal::TimedOut,
    Signal::Silent,
];

/// Applies one step that is possible in the current state, chosen by `kind` and `pick`.
fn apply(model: &mut Model, next: &mut u8, kind: u8, pick: u8) {
    let started = model.started();
    let one = started.get(usize::from(pick) % started.len().max(1)).copied();
    let soon = model.now.wall + Duration::from_secs(u64::from(pick));
    match (kind, one) {
        (0..=4, _) if *next < 200 => {
            *next += 1;
            let stream = if pick.is_multiple_of(4) { Stream::Marketing } else { Stream::Transactional };
            let give_up_at = if pick.is_multiple_of(5) { soon } else { Timestamp::MAX };
            model.take(*next, QueuedMessage { stream, ..message(*next, give_up_at) });
        }
        (5..=9, Some(n)) => model.end(n, SIGNALS[usize::from(pick) % SIGNALS.len()]),
        (10, Some(n)) => model.let_pass(n),
        (11, Some(n)) => model.connect(n),
        (12, Some(n)) => model.keep(n),
        (13, _) => model.step(Input::ConnectionsWanted),
        (14, _) => model.step(Input::ServerSilent),
        (15, _) => model.step(Input::Throttle(soon)),
        (16, _) => model.step(Input::Space(u32::from(pick) + 1, soon)),
        (17, _) => model.step(Input::Narrow(usize::from(pick % 4), soon)),
        (18, _) => model.step(Input::TryNow),
        (19, _) => model.step(Input::Spill),
        (20, _) if pick == 0 => model.step(Input::Clear),
        (21, _) if model.reading.is_some() => model.refill(),
        (22, _) => {
            model.pass(Duration::from_secs(u64::from(pick)));
            model.step(Input::TurnCame);
        }
        _ => model.wake(),
    }
}

fn limits() -> impl Strategy<Value = Limits> {
    (1usize..6, prop::option::of(1u32..600), any::<bool>()).prop_map(|(connections, messages_per_minute, is_shared)| {
        Limits { connections, messages_per_minute, is_shared, ..LIMITS }
    })
}

proptest! {
    #[test]
    fn every_message_is_in_one_place_and_ends_once_the_site_accepts_mail(
        limits in limits(),
        steps in prop::collection::vec((0u8..26, any::<u8>()), 0..120),
    ) {
        let (mut model, mut next) = (Model::new(&limits), 0);
        for (kind, pick) in steps {
            apply(&mut model, &mut next, kind, pick);
        }
        model.ends_well();
    }

    #[test]
    fn no_message_starts_after_the_stop_under_any_inputs(
        steps in prop::collection::vec((0u8..26, any::<u8>(), any::<bool>()), 0..60),
    ) {
        let (mut model, mut next) = (model(LIMITS), 0);
        for (n, (kind, pick, stops)) in steps.into_iter().enumerate() {
            apply(&mut model, &mut next, kind, pick);
            if stops && n > 20 {
                model.step(Input::Stop);
            }
        }
    }

    #[test]
    fn a_message_waits_for_at_most_two_of_another_account(
        waiting in 1u8..60,
        connections in 1usize..5,
        ended in 0u8..20,
    ) {
        let mut model = model(Limits { connections, ..LIMITS });
        (1..=waiting).for_each(|n| model.due(n * 3));
        for _ in 0..ended {
            let first = model.started().first().copied();
            first.into_iter().for_each(|n| model.end(n, Signal::Answered));
        }
        model.due(1);
        let mut before = 0;
        while !model.started().contains(&1) {
            model.end(model.started()[0], Signal::Answered);
            before += 1;
            prop_assert!(before <= 2, "it waits behind others");
        }
    }
}
