//! Invariants under any inputs. The model checks most of them after each.

use proptest::prelude::*;

use super::*;

const SIGNALS: [Signal; 8] = [
    Signal::Took,
    Signal::Answered,
    Signal::Slowed,
    Signal::PushedBack,
    Signal::TurnedAway,
    Signal::RefusedAccount,
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
        (14, _) => model.step(Input::ServerSilent(pick.is_multiple_of(2).then(AccountId::default))),
        (15, _) => {
            let account = message(pick, Timestamp::MAX).place.account;
            model.step(Input::Limit(RequestedLimit::Pause(soon), pick.is_multiple_of(2).then_some(account)));
        }
        (16 | 17, _) => {
            let account = (!pick.is_multiple_of(4)).then(|| message(pick, Timestamp::MAX).place.account);
            let rate = RequestedLimit::Rate(u32::from(pick) + 1, soon);
            let connections = RequestedLimit::Connections(usize::from(pick % 4), soon);
            model.step(Input::Limit(if kind == 16 { rate } else { connections }, account));
        }
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

/// Applies one step of account 0, whose message `n` is due: every message that ends has met an answer, or got none.
fn apply_answer(model: &mut Model, n: u8, kind: u8, pick: u8) {
    const ANSWERS: [Signal; 6] =
        [Signal::Took, Signal::Answered, Signal::Slowed, Signal::RefusedAccount, Signal::TimedOut, Signal::Silent];
    let (started, account) = (model.started(), Some(message(n, Timestamp::MAX).place.account));
    let soon = model.now.wall + Duration::from_secs(u64::from(pick) * 20);
    match (kind, started.get(usize::from(pick) % started.len().max(1)).copied()) {
        (0..=3, _) => model.due(n),
        (4..=6, Some(n)) => model.end(n, ANSWERS[usize::from(pick) % ANSWERS.len()]),
        (7, Some(_)) => model.step(Input::Limit(RequestedLimit::Pause(soon), account)),
        (8, Some(_)) => model.step(Input::Limit(RequestedLimit::Rate(1, soon), account)),
        (9, Some(_)) => model.step(Input::Limit(RequestedLimit::Connections(1, soon), account)),
        (10, Some(_)) => model.step(Input::ServerSilent(account)),
        (11, _) => model.step(Input::TryNow),
        (12, _) => {
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
    fn no_account_is_given_more_than_half_while_another_waits(
        connections in 1usize..9,
        ends in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut model = model(Limits { connections, ..LIMITS });
        (1..=40).for_each(|n| model.due(n * 3));
        (1..=40).for_each(|n| model.due(n * 3 + 1));
        let held = |model: &Model| [0, 1].map(|account| model.started().iter().filter(|n| *n % 3 == account).count());
        for pick in ends {
            let (started, before) = (model.started(), held(&model));
            model.end(started[usize::from(pick) % started.len()], Signal::Took);
            let most = model.destination.connections(model.now.wall).div_ceil(2);
            for (after, before) in held(&model).into_iter().zip(before) {
                prop_assert!(after <= most.max(before), "{after} of {most}");
            }
        }
    }

    #[test]
    fn a_newcomer_waits_at_most_two_seconds_regardless_of_the_others(
        connections in 1usize..6,
        steps in prop::collection::vec((0u8..13, any::<u8>()), 0..40),
    ) {
        let (mut model, mut next) = (model(Limits { connections, ..LIMITS }), 0);
        for (kind, pick) in steps {
            apply(&mut model, &mut next, kind, pick - pick % 7);
        }
        let others = model.started();
        prop_assume!(model.destination.window.state() == WindowState::Open && !others.is_empty());
        let account = AccountId(Ulid([9; 16]));
        let message = message(255, Timestamp::MAX);
        model.take(255, QueuedMessage { place: Place { account, ..message.place }, ..message });
        model.pass(STUCK);
        model.step(Input::TurnCame);
        prop_assert!(model.started().contains(&255) || model.has_extra());
    }

    #[test]
    fn a_message_starts_within_two_seconds_regardless_of_the_answers_to_another_account(
        connections in 1usize..6,
        is_served in any::<bool>(),
        steps in prop::collection::vec((0u8..14, any::<u8>()), 0..60),
    ) {
        let mut model = model(Limits { connections, ..LIMITS });
        if is_served {
            model.due(1);
            model.end(1, Signal::Took);
        }
        for (n, (kind, pick)) in (1u8..).zip(steps) {
            apply_answer(&mut model, n * 3, kind, pick);
        }
        let before = model.now;
        model.due(4);
        if !model.started().contains(&4) && model.is_suspended {
            model.wake();
        }
        prop_assert_eq!(before, model.now, "it probes at once");
        model.pass(STUCK);
        model.step(Input::TurnCame);
        prop_assert!(model.started().contains(&4));
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
