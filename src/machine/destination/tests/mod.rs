//! Tests of a destination: its rules as scripts, its invariants under any inputs, and all runs of a small one.

mod exhaustive;
mod isolation;
mod model;
mod properties;
mod window;

use std::time::Duration;

use super::*;
use crate::base::id::{AccountId, MessageId, Ulid};
use crate::domain::stream::Stream;
use model::{Model, START, message};
use turns::{PROBE_MAX, STUCK};

const LIMITS: Limits = Limits {
    connections: 4,
    messages_per_minute: None,
    connections_per_minute: None,
    is_shared: false,
    may_spill: true,
};

fn model(limits: Limits) -> Model {
    Model::new(&limits)
}

/// Returns a model whose site has just refused the first of three messages.
fn throttled() -> Model {
    let mut model = model(Limits { connections: 1, ..LIMITS });
    (1..=3).for_each(|n| model.due(n));
    assert_eq!(model.started(), [1]);
    model.end(1, Signal::PushedBack);
    assert_eq!((model.started(), model.is_suspended), (vec![], true));
    model
}

#[test]
fn accounts_take_turns_and_the_window_grows_while_messages_are_accepted() {
    let mut model = model(LIMITS);
    // Messages of one account have the same remainder by three.
    for n in [3, 6, 9, 12, 4] {
        model.due(n);
    }
    assert_eq!(model.started(), [3, 6]);
    model.end(3, Signal::Took);
    assert_eq!(model.started(), [6, 4], "the other account waits");
    model.end(6, Signal::Took);
    assert_eq!(model.started(), [4, 9, 12], "and one connection more");
}

#[test]
fn an_account_never_waits_long_for_slow_messages_of_another() {
    let mut model = model(LIMITS);
    [3, 6, 9, 4].into_iter().for_each(|n| model.due(n));
    assert_eq!((model.started(), model.destination.next_wake()), (vec![3, 6], Some(START.machine + STUCK)));
    model.pass(STUCK);
    model.step(Input::TurnCame);
    assert_eq!(model.started(), [3, 6, 4], "one connection more than the window");
    [7, 5].into_iter().for_each(|n| model.due(n));
    assert_eq!(model.started(), [3, 6, 4], "and no other");
    model.end(4, Signal::Answered);
    assert_eq!(model.started(), [3, 6, 7], "at once, because the first two are still slow");
    model.end(7, Signal::Answered);
    assert_eq!(model.started(), [3, 6, 5]);
    model.end(3, Signal::Answered);
    assert_eq!(model.started(), [6, 5], "the window has two");
}

#[test]
fn several_accounts_may_exceed_the_window_one_after_the_other() {
    let mut model = model(LIMITS);
    [3, 6, 4, 5].into_iter().for_each(|n| model.due(n));
    for expected in [vec![3, 6, 4], vec![3, 6, 4, 5]] {
        model.pass(STUCK);
        model.step(Input::TurnCame);
        assert_eq!(model.started(), expected);
    }
}

#[test]
fn a_421_to_one_account_s_mail_does_not_hold_back_others() {
    let mut model = model(Limits { connections: 1, ..LIMITS });
    model.due(1);
    model.end(1, Signal::Took);
    for n in [3, 6, 9] {
        model.due(n);
        model.end(n, Signal::RefusedAccount);
        assert!(!model.is_suspended, "the site serves another account");
    }
    for n in [4, 12, 7, 15, 10] {
        assert!(!model.is_suspended);
        model.due(n);
        model.end(n, Signal::RefusedAccount);
    }
    assert!(model.is_suspended, "most of the last attempts failed, and those of two accounts");
}

#[test]
fn a_site_backed_off_for_one_account_is_probed_at_once_with_the_mail_of_another() {
    let mut model = model(Limits { connections: 1, ..LIMITS });
    [3, 6].into_iter().for_each(|n| model.due(n));
    model.end(3, Signal::RefusedAccount);
    assert!(model.is_suspended);
    model.due(4);
    let before = model.now.wall;
    model.wake();
    assert_eq!((model.started(), model.now.wall), (vec![4], before));
    model.end(4, Signal::Took);
    assert_eq!(model.started(), [6]);
    model.end(6, Signal::RefusedAccount);
    assert!(!model.is_suspended);
    // A failure that concerns all accounts is not cut short.
    model.due(5);
    model.end(5, Signal::PushedBack);
    model.due(7);
    let before = model.now.wall;
    model.wake();
    assert!(model.now.wall >= before + Duration::from_secs(50));
}

#[test]
fn a_site_that_serves_others_is_not_silent_because_one_account_s_message_got_no_answer() {
    let mut model = model(LIMITS);
    let account = |n| Some(message(n, Timestamp::MAX).place.account);
    model.due(1);
    model.end(1, Signal::Took);
    model.step(Input::ServerSilent(account(3)));
    assert_eq!(model.destination.trust(), Trust::Answers);
    model.step(Input::ServerSilent(account(4)));
    assert_eq!(model.destination.trust(), Trust::Silent, "the only account that it served");
    model.due(4);
    model.end(4, Signal::Took);
    model.step(Input::ServerSilent(None));
    assert_eq!(model.destination.trust(), Trust::Silent, "it did not greet");
}

#[test]
fn a_limit_requested_for_one_account_counts_only_if_the_site_serves_no_other() {
    let mut model = model(LIMITS);
    let soon = START.wall + Duration::from_secs(60);
    let pause = |n| Input::Limit(RequestedLimit::Pause(soon), Some(message(n, Timestamp::MAX).place.account));
    model.due(1);
    model.end(1, Signal::Took);
    model.step(pause(3));
    assert!(!model.is_suspended, "it serves another account");
    model.step(pause(4));
    assert!(model.is_suspended, "it refuses both");
    let mut alone = super::tests::model(LIMITS);
    alone.step(pause(3));
    assert!(alone.is_suspended);
    alone.due(4);
    let before = alone.now.wall;
    alone.wake();
    assert_eq!((alone.started(), alone.now.wall), (vec![4], before), "the mail of another account probes at once");
}

#[test]
fn marketing_mail_never_waits_long_for_slow_marketing_mail_of_another_account() {
    let mut model = model(Limits { is_shared: true, ..LIMITS });
    let marketing = |n: u8| QueuedMessage { stream: Stream::Marketing, ..message(n, Timestamp::MAX) };
    [3, 6, 4].into_iter().for_each(|n| model.take(n, marketing(n)));
    assert_eq!(model.started(), [3]);
    model.pass(STUCK);
    model.step(Input::TurnCame);
    assert_eq!(model.started(), [3, 4]);
}

#[test]
fn a_limit_that_the_site_requested_is_never_exceeded() {
    let mut model = model(LIMITS);
    model.step(Input::Limit(RequestedLimit::Connections(1, START.wall + Duration::from_secs(600)), None));
    [3, 4].into_iter().for_each(|n| model.due(n));
    model.pass(STUCK);
    model.step(Input::TurnCame);
    assert_eq!(model.started(), [3]);
}

#[test]
fn messages_start_when_a_requested_limit_ends() {
    for limit in [
        Input::Limit(RequestedLimit::Connections(1, START.wall + Duration::from_secs(60)), None),
        Input::Limit(RequestedLimit::Rate(1, START.wall + Duration::from_secs(50)), None),
    ] {
        let mut model = model(LIMITS);
        model.step(limit);
        [3, 6].into_iter().for_each(|n| model.due(n));
        assert_eq!(model.started(), [3]);
        model.wake();
        assert_eq!(model.started(), [3, 6], "{limit:?}");
    }
}

#[test]
fn a_probe_that_hangs_is_followed_by_the_next_message_after_a_minute() {
    let mut model = throttled();
    model.wake();
    assert_eq!((model.started(), model.destination.next_wake()), (vec![2], Some(model.now.machine + PROBE_MAX)));
    model.pass(PROBE_MAX);
    model.step(Input::TurnCame);
    assert_eq!(model.started(), [2, 3]);
    model.due(4);
    assert_eq!(model.started(), [2, 3], "it has another minute");
    model.end(3, Signal::Took);
    assert_eq!((model.started(), model.is_suspended), (vec![2, 4], false));
}

#[test]
fn a_successful_probe_starts_the_messages_of_a_throttled_site() {
    let mut model = throttled();
    model.wake();
    assert_eq!((model.started(), model.is_suspended), (vec![2], true));
    model.end(2, Signal::Took);
    assert_eq!((model.started(), model.is_suspended), (vec![3], false));
}

#[test]
fn a_probe_without_a_result_is_followed_by_the_next_message_at_once() {
    let mut model = throttled();
    model.wake();
    model.end(2, Signal::Silent);
    assert_eq!(model.started(), [3]);
    model.end(3, Signal::Silent);
    model.due(4);
    assert_eq!((model.started(), model.is_suspended), (vec![4], true), "it still has to be probed");
}

#[test]
fn messages_for_a_probed_site_stay_suspended_when_it_is_throttled_again() {
    let mut model = throttled();
    model.wake();
    [2, 3].into_iter().for_each(|n| model.end(n, Signal::Silent));
    [4, 5].into_iter().for_each(|n| model.due(n));
    model.end(4, Signal::PushedBack);
    assert_eq!((model.started(), model.is_suspended), (vec![], true));
}

#[test]
fn a_message_that_expires_before_the_next_probe_is_deferred() {
    let mut model = throttled();
    model.due_until(4, START.wall + Duration::from_secs(49));
    assert!(model.is_put_off(4));
    model.due_until(5, START.wall + Duration::from_secs(70));
    model.wake();
    model.end(2, Signal::PushedBack);
    assert!(model.is_put_off(5) && !model.is_put_off(3));
}

#[test]
fn a_site_is_tried_now_on_request() {
    let mut model = throttled();
    model.step(Input::TryNow);
    model.step(Input::Woken);
    assert_eq!((model.started(), model.now), (vec![2], START));
}

#[test]
fn one_connection_is_reserved_for_transactional_mail_if_streams_share_the_site() {
    let mut model = model(Limits { is_shared: true, ..LIMITS });
    let marketing = |n: u8| QueuedMessage { stream: Stream::Marketing, ..message(n, Timestamp::MAX) };
    [1, 2].into_iter().for_each(|n| model.take(n, marketing(n)));
    assert_eq!(model.started(), [1]);
    model.due(3);
    assert_eq!(model.started(), [1, 3]);
    model.due(4);
    model.end(1, Signal::Took);
    assert_eq!(model.started(), [3, 4], "transactional mail goes first");
}

#[test]
fn a_message_that_waits_for_a_connection_lets_another_account_pass_once() {
    let mut model = model(Limits { connections: 1, ..LIMITS });
    [3, 6, 4].into_iter().for_each(|n| model.due(n));
    assert!(model.destination.has_other(message(3, Timestamp::MAX).place.account, model.now));
    model.let_pass(3);
    assert_eq!(model.started(), [4]);
    model.end(4, Signal::Took);
    assert_eq!(model.started(), [3], "nobody else is there");
}

#[test]
fn messages_are_spaced_over_the_minute_but_a_probe_is_not() {
    let mut model = model(Limits { messages_per_minute: Some(6), ..LIMITS });
    (1..=4).for_each(|n| model.due(n));
    assert_eq!(
        (model.started(), model.destination.next_wake()),
        (vec![1], Some(START.machine + Duration::from_secs(10)))
    );
    model.pass(Duration::from_secs(10));
    model.step(Input::TurnCame);
    assert_eq!(model.started(), [1, 2]);
    model.end(1, Signal::PushedBack);
    model.wake();
    assert_eq!(model.started(), [2, 3]);
    let mut model = super::tests::model(LIMITS);
    model.step(Input::Limit(RequestedLimit::Rate(60, START.wall + Duration::from_secs(100)), None));
    [1, 2].into_iter().for_each(|n| model.due(n));
    assert_eq!(model.started(), [1]);
}

#[test]
fn kept_connections_never_exceed_the_window_and_idle_ones_are_closed_for_others() {
    let mut model = model(LIMITS);
    [1, 2].into_iter().for_each(|n| model.due(n));
    [1, 2].into_iter().for_each(|n| model.connect(n));
    model.keep(1);
    assert_eq!((model.kept, model.destination.idle_connections()), (1, 0), "its own message may use it again");
    model.end(1, Signal::Answered);
    model.keep(2);
    model.end(2, Signal::Answered);
    assert_eq!((model.kept, model.destination.idle_connections()), (2, 2));
    model.due(3);
    model.step(Input::ConnectionsWanted);
    assert_eq!(model.kept, 1, "a started message uses it");
    model.step(Input::Limit(RequestedLimit::Pause(START.wall + Duration::from_secs(60)), None));
    assert_eq!(model.kept, 0);
}

#[test]
fn no_message_starts_after_the_stop() {
    let mut model = model(LIMITS);
    (1..=3).for_each(|n| model.due(n));
    model.step(Input::Stop);
    model.end(1, Signal::Took);
    assert_eq!(model.started(), [2]);
}

#[test]
fn a_long_queue_spills_half_and_reads_it_again_when_short() {
    let mut model = model(Limits { connections: 1, ..LIMITS });
    (1..=20).for_each(|n| model.due(n));
    model.step(Input::Spill);
    assert_eq!((model.destination.len(), model.spilled()), (10, 9));
    model.step(Input::Woken);
    assert!(model.reading.is_some(), "it has fewer than it may have");
    model.refill();
    assert_eq!((model.destination.len(), model.spilled()), (19, 0));
}

#[test]
fn a_reread_message_that_expires_before_the_next_probe_is_deferred() {
    let mut model = model(Limits { connections: 1, ..LIMITS });
    (1..=20).for_each(|n| model.due_until(n, START.wall + Duration::from_secs(100)));
    model.step(Input::Spill);
    model.step(Input::Woken);
    model.step(Input::Limit(RequestedLimit::Pause(START.wall + Duration::from_secs(200)), None));
    model.refill();
    assert_eq!((model.destination.len(), model.spilled()), (0, 0));
    assert!((2..=20).all(|n| model.is_put_off(n)));
}

#[test]
fn a_queued_message_is_small() {
    assert!(size_of::<QueuedMessage>() <= 56);
}
