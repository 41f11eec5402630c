//! Tests of the connection window.

use std::time::Duration;

use super::super::window::{Trust, Window, WindowState};
use crate::base::time::Timestamp;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn after(seconds: u64) -> Timestamp {
    NOW + Duration::from_secs(seconds)
}

fn grown(most: usize, messages: usize) -> Window {
    let mut window = Window::new(most);
    (0..messages).for_each(|_| window.took());
    window
}

#[test]
fn grows_by_one_for_each_round_up_to_the_provider_s_limit() {
    let sizes = [0, 1, 2, 4, 5, 9, 100].map(|messages| grown(5, messages).connections());
    assert_eq!(sizes, [2, 2, 3, 3, 4, 5, 5]);
    assert_eq!(Window::new(1).connections(), 1);
}

#[test]
fn an_accepted_message_proves_the_site_until_a_failure() {
    let mut window = Window::new(10);
    assert_eq!(window.trust(), Trust::New);
    window.answered();
    assert_eq!(window.trust(), Trust::Answers);
    window.took();
    window.slowed();
    assert_eq!(window.trust(), Trust::Proven);
    window.pushed_back(NOW);
    assert_eq!(window.trust(), Trust::Answers);
}

#[test]
fn a_timeout_makes_the_site_silent_and_halves_its_window_until_it_answers() {
    let mut window = grown(10, 100);
    window.timed_out(false);
    assert_eq!((window.hung(false, NOW), window.trust(), window.connections()), (None, Trust::Silent, 5));
    window.pushed_back(NOW);
    assert_eq!(window.trust(), Trust::Silent);
    assert!(window.begin_probe(after(50)));
    window.timed_out(false);
    assert_eq!(window.hung(false, after(50)), Some(after(150)), "the probe hung");
    assert!(window.begin_probe(after(150)));
    window.answered();
    assert_eq!(window.trust(), Trust::Answers);
}

#[test]
fn a_421_among_successes_halves_the_window_without_a_backoff() {
    let mut window = grown(10, 100);
    for size in [5, 2, 1] {
        assert_eq!((window.turned_away(NOW), window.connections()), (None, size));
    }
    (0..100).for_each(|_| window.took());
    let mut in_a_row = 1;
    while window.turned_away(NOW).is_none() {
        in_a_row += 1;
    }
    assert_eq!(in_a_row, 11, "most of twenty");
    let mut lone = Window::new(10);
    assert_eq!(lone.turned_away(NOW), Some(after(50)), "the only attempt there was");
    assert!(lone.begin_probe(after(50)));
    assert_eq!(lone.turned_away(after(50)), Some(after(150)));
}

#[test]
fn halves_when_slowed_and_never_falls_to_zero() {
    let mut window = grown(10, 100);
    for size in [5, 2, 1, 1] {
        window.slowed();
        assert_eq!(window.connections(), size);
    }
}

#[test]
fn a_refusing_site_is_backed_off_once_then_probed_by_one_connection() {
    let mut window = grown(10, 100);
    assert_eq!(window.pushed_back(NOW), Some(after(50)));
    assert_eq!((window.pushed_back(after(1)), window.connections()), (None, 0));
    window.took();
    assert_eq!(window.connections(), 0, "what was under way before lifts no pause");
    assert!(!window.begin_probe(after(49)) && window.begin_probe(after(50)) && !window.begin_probe(after(50)));
    assert_eq!(window.connections(), 1);
    window.answered();
    assert_eq!(window.connections(), 5, "half of what it was");
}

#[test]
fn each_failure_in_a_row_extends_the_backoff_until_an_answer() {
    let (mut window, mut now) = (Window::new(10), NOW);
    for seconds in [50, 100, 210, 420, 800, 1600, 1600] {
        let until = window.pushed_back(now).unwrap();
        assert_eq!(until.since(now), Duration::from_secs(seconds));
        now = until;
        assert!(window.begin_probe(now));
    }
    window.answered();
    assert_eq!(window.pushed_back(now), Some(now + Duration::from_secs(50)));
}

#[test]
fn a_backed_off_site_is_probed_at_once_on_request() {
    let mut window = grown(10, 100);
    assert!(!window.allow_probe(NOW), "nothing holds it back");
    window.pushed_back(NOW);
    assert!(window.allow_probe(after(1)) && !window.allow_probe(after(1)));
    assert!(window.begin_probe(after(1)));
    assert_eq!(window.connections(), 1);
    assert_eq!(window.pushed_back(after(2)), Some(after(50)), "the interrupted backoff continues");
    assert!(!window.allow_probe(after(10)), "an account can't make us hammer a site that other accounts need");
    assert!(window.allow_probe(after(11)));
}

#[test]
fn failed_probes_on_request_lengthen_no_backoff() {
    let (mut window, mut regular) = (grown(64, 3000), grown(64, 3000));
    let mut now = 0;
    for lasts in [50, 100, 210, 420] {
        let until = regular.pushed_back(after(now)).unwrap();
        assert_eq!((window.pushed_back(after(now)), until), (Some(until), after(now + lasts)));
        for requested_at in (now + 10..now + lasts).step_by(10) {
            assert!(window.allow_probe(after(requested_at)) && window.begin_probe(after(requested_at)));
            let failed = if requested_at % 20 == 0 { Window::pushed_back } else { Window::turned_away };
            assert_eq!(failed(&mut window, after(requested_at + 9)), Some(until));
        }
        now += lasts;
        assert!(window.begin_probe(until) && regular.begin_probe(until));
    }
    window.answered();
    assert_eq!(window.connections(), 4, "only the four regular failures halved it");
    // An answer to a requested probe that asks for a pause adds none to the backoff.
    let until = window.pushed_back(after(now)).unwrap();
    assert!(window.allow_probe(after(now + 10)) && window.begin_probe(after(now + 10)));
    assert_eq!(window.hold(after(now + 900), after(now + 11)), Some(until));
    assert!(window.begin_probe(until));
    assert_eq!(window.hold(after(now + 900), until), Some(after(now + 900)), "the regular probe hears it too");
    assert!(window.begin_probe(after(now + 900)));
    window.answered();
    now += 900;
    // A requested probe that lasts beyond the backoff is also the regular one.
    let until = window.pushed_back(after(now)).unwrap();
    assert!(window.allow_probe(until - Duration::from_secs(1)) && window.begin_probe(until));
    assert_eq!(window.hung(false, until), Some(until + Duration::from_secs(100)));
}

#[test]
fn the_longer_pause_counts() {
    let mut window = grown(10, 100);
    let held = [100, 99, 101].map(|seconds| window.hold(after(seconds), NOW));
    assert_eq!(held, [Some(after(100)), None, Some(after(101))]);
    assert_eq!(window.state(), WindowState::BackedOff(after(101)));
    assert_eq!(window.pushed_back(after(1)), None, "the longer pause counts");
}

#[test]
fn a_backoff_keeps_its_duration_when_the_time_is_set_back() {
    let mut window = grown(10, 100);
    window.pushed_back(NOW);
    assert!(window.allow_probe(after(1)));
    window.pushed_back(after(2));
    let by = Duration::from_secs(5 * 24 * 3600);
    window.set_back(by);
    assert_eq!(window.state(), WindowState::BackedOff(after(50) - by));
    assert_eq!(window.closed_at(), Some(NOW - by));
    assert!(!window.allow_probe(after(10) - by) && window.allow_probe(after(11) - by));
    assert!(window.begin_probe(after(11) - by));
}
