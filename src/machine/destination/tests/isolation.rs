//! Tests that the answers to one account's messages don't hold back another account. Account A has the messages 3, 6, 9
//! and so on, account V 4, 7 and 10, and account W 5, 8 and 11.

use super::*;

const SOON: Timestamp = Timestamp::from_millis(START.wall.as_millis() + 60_000);

/// An answer to message `n` that requests a limit.
fn requested(n: u8, limit: RequestedLimit) -> Input {
    Input::Limit(limit, Some(message(n, Timestamp::MAX).place.account))
}

/// Returns a model whose site has just accepted `count` messages of V.
fn serving(count: u8) -> Model {
    let mut model = model(Limits { connections: 10, ..LIMITS });
    for n in (1..=count).map(|n| n * 3 + 1) {
        model.due(n);
        model.end(n, Signal::Took);
    }
    model
}

/// Returns a model whose site has refused a message of A before it served anybody. Two more of A wait.
fn refusing() -> Model {
    let mut model = model(Limits { connections: 1, ..LIMITS });
    [3, 6, 9].into_iter().for_each(|n| model.due(n));
    model.end(3, Signal::RefusedAccount);
    assert!(model.is_suspended);
    model
}

#[test]
fn a_limit_requested_for_one_account_limits_only_that_account() {
    for limit in [RequestedLimit::Connections(1, SOON), RequestedLimit::Rate(1, SOON)] {
        for mut model in [serving(0), serving(20)] {
            model.step(requested(3, limit));
            [102, 105].into_iter().for_each(|n| model.due(n));
            let of_a = model.started();
            assert_eq!(of_a.len(), 1, "{limit:?}");
            model.due(100);
            assert_eq!(model.started(), [of_a[0], 100], "another account's message starts at once");
            model.end(100, Signal::Took);
            model.due(103);
            assert_eq!(model.started(), [of_a[0], 103], "whatever the limited account has there");
            model.end(103, Signal::Took);
            assert_eq!(model.started(), of_a);
            model.wake();
            assert_eq!(model.started().len(), 2, "the limit has ended");
        }
    }
}

#[test]
fn a_limit_requested_for_two_accounts_limits_the_site_unless_it_serves_a_third() {
    for (limit, is_served, expected) in [
        (RequestedLimit::Connections(1, SOON), false, vec![101]),
        (RequestedLimit::Rate(1, SOON), false, vec![101]),
        (RequestedLimit::Connections(1, SOON), true, vec![101, 104]),
        (RequestedLimit::Rate(1, SOON), true, vec![101, 104]),
    ] {
        let mut model = serving(0);
        if is_served {
            model.due(5);
            model.end(5, Signal::Took);
        }
        [3, 4].into_iter().for_each(|n| model.step(requested(n, limit)));
        [101, 104].into_iter().for_each(|n| model.due(n));
        assert_eq!(model.started(), expected, "{limit:?}");
    }
}

#[test]
fn a_probe_of_a_refused_account_is_replaced_at_once_by_another_account_s() {
    let mut model = refusing();
    model.wake();
    assert_eq!(model.started(), [6]);
    model.due(4);
    assert_eq!(model.started(), [6, 4], "the first probe hangs");
    model.due(5);
    assert_eq!(model.started(), [6, 4], "the second has its minute");
    model.end(4, Signal::Took);
    assert!(!model.is_suspended);
}

#[test]
fn a_probe_that_hangs_in_one_account_s_message_does_not_hold_back_others() {
    let mut model = refusing();
    model.wake();
    model.end(6, Signal::TimedOut);
    assert!(model.is_suspended);
    model.due(4);
    let before = model.now;
    model.wake();
    assert_eq!((model.started(), model.now), (vec![4], before));
}

#[test]
fn a_message_that_expires_during_another_account_s_backoff_is_sent() {
    let mut model = model(Limits { connections: 1, ..LIMITS });
    model.due(3);
    model.due_until(4, START.wall + Duration::from_secs(10));
    model.due_until(6, START.wall + Duration::from_secs(10));
    model.step(requested(3, RequestedLimit::Pause(SOON)));
    assert!(model.is_put_off(6) && !model.is_put_off(4));
    model.due_until(7, START.wall + Duration::from_secs(10));
    model.step(Input::Woken);
    assert_eq!((model.started(), model.now), (vec![3, 4], START));
    model.end(4, Signal::Took);
    assert!(!model.is_put_off(7));
    model.end(3, Signal::Silent);
    assert_eq!(model.started(), [7]);
    // A pause that the site requested from two accounts concerns all.
    let mut model = refusing();
    model.step(requested(3, RequestedLimit::Pause(SOON)));
    model.due_until(4, START.wall + Duration::from_secs(10));
    assert!(!model.is_put_off(4), "it ends the backoff");
    model.step(requested(5, RequestedLimit::Pause(SOON)));
    assert!(model.is_put_off(4));
}

#[test]
fn other_ends_don_t_extend_an_account_s_backoff_to_all() {
    for signal in [Signal::Took, Signal::TurnedAway, Signal::PushedBack, Signal::TimedOut] {
        let mut model = model(LIMITS);
        [3, 4].into_iter().for_each(|n| model.due(n));
        model.end(3, Signal::RefusedAccount);
        assert!(model.is_suspended);
        if signal == Signal::TimedOut {
            // The site served neither account.
            model.end(4, signal);
            model.due(7);
            assert_eq!((model.started(), model.is_suspended), (vec![], true));
            continue;
        }
        model.end(4, signal);
        model.due(7);
        let before = model.now;
        model.wake();
        assert_eq!((model.started(), model.now), (vec![7], before), "{signal:?}");
    }
}

#[test]
fn refusals_of_one_account_don_t_lengthen_the_backoff_of_others() {
    let mut model = refusing();
    for n in [6, 9, 12, 15] {
        model.due(n + 6);
        model.wake();
        model.end(n, Signal::RefusedAccount);
    }
    model.due(4);
    model.wake();
    model.end(4, Signal::PushedBack);
    let before = model.now.wall;
    model.wake();
    assert_eq!(model.now.wall, before + Duration::from_secs(50), "its first failure");
}

#[test]
fn refusals_of_one_account_slow_down_only_that_account() {
    for signal in [Signal::Slowed, Signal::RefusedAccount, Signal::TimedOut] {
        let mut model = serving(40);
        let connections = model.destination.connections(model.now.wall);
        (1..=20).map(|n| 129 + n * 3).for_each(|n| model.due(n));
        for _ in 0..connections {
            let n = model.started()[0];
            if signal == Signal::TimedOut {
                model.step(Input::ServerSilent(Some(message(n, Timestamp::MAX).place.account)));
            }
            model.end(n, signal);
        }
        assert_eq!(model.started().len(), 1, "{signal:?}: one connection at a time");
        assert_eq!(model.destination.connections(model.now.wall), connections, "{signal:?}");
        (1..=20).map(|n| 190 + n * 3).for_each(|n| model.due(n));
        assert_eq!(model.started().len(), connections, "{signal:?}: the other account has all others");
    }
}

#[test]
fn a_pause_requested_for_one_account_limits_it_to_one_connection_while_the_site_serves_others() {
    let mut model = serving(20);
    model.step(requested(3, RequestedLimit::Pause(SOON)));
    [102, 105].into_iter().for_each(|n| model.due(n));
    assert_eq!(model.started(), [102]);
    model.wake();
    assert_eq!(model.started(), [102, 105]);
}

#[test]
fn an_account_that_holds_all_connections_leaves_others_their_half() {
    let mut model = serving(60);
    let connections = model.destination.connections(model.now.wall);
    (0..20).map(|n| n * 3).for_each(|n| model.due(n));
    assert_eq!(model.started().len(), connections);
    (0..20).map(|n| 184 + n * 3).for_each(|n| model.due(n));
    assert_eq!(model.started().len(), connections, "its messages may be prompt");
    model.pass(STUCK);
    model.step(Input::TurnCame);
    let of_v = |model: &Model| model.started().iter().filter(|n| **n % 3 == 1).count();
    assert_eq!(of_v(&model), connections / 2);
    for _ in 0..8 {
        let n = model.started().into_iter().find(|n| n % 3 == 1).unwrap();
        model.end(n, Signal::Took);
        assert_eq!(of_v(&model), connections / 2, "as long as the others are slow");
    }
    for n in model.started().into_iter().filter(|n| n % 3 == 0).take(connections / 2).collect::<Vec<_>>() {
        model.end(n, Signal::Answered);
    }
    assert!(model.started().len() <= connections);
}
