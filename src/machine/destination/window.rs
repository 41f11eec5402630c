//! Connection window of a site: it grows while the site takes messages, halves when it pushes back, and is zero while
//! the site is held back, then one for the probe. Pure: times are arguments.

use std::time::Duration;

use crate::base::time::Timestamp;

/// Connections of a site that is new to us.
const START: usize = 2;
/// Backoff of a site after its first, second, ... failure in a row. Each is shorter than the delay of a lone message's
/// retry (contract 6, less 10 %), so that such a message keeps to its own schedule.
const HOLD_SECS: [u64; 6] = [50, 100, 210, 420, 800, 1600];

/// The window of one site.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// Maximum that the provider allows.
    most: usize,
    size: usize,
    /// Messages taken since it last grew.
    round: usize,
    /// Failures in a row.
    failures: usize,
    trust: Trust,
    recent: Recent,
    standing: Standing,
    /// When it was last held back while it was open.
    closed_at: Timestamp,
    /// Smaller window that an answer asked for, and its end.
    fewer: Option<(usize, Timestamp)>,
}

/// Trust in a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// It was never heard from.
    New,
    /// It has answered.
    Answers,
    /// It has taken a message, and not failed since.
    Proven,
    /// An attempt timed out there, and no answer has come since.
    Silent,
}

/// The last attempts, each a success or a failure.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    /// The newest is the lowest bit; 1 is a failure.
    failed: u32,
    count: u32,
}

impl Recent {
    const MOST: u32 = 20;

    const fn note(&mut self, failed: bool) {
        self.failed = (self.failed << 1 | failed as u32) & ((1 << Self::MOST) - 1);
        if self.count < Self::MOST {
            self.count += 1;
        }
    }

    /// Whether most of them failed.
    const fn is_mostly_failed(self) -> bool {
        self.failed.count_ones() * 2 > self.count
    }
}

/// Whether a site may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It may.
    Open,
    /// Not before then.
    Held(Timestamp),
    /// By one connection, whose outcome decides.
    Probing,
}

impl Window {
    pub(super) fn new(most: usize) -> Self {
        let size = START.min(most);
        let (trust, recent, standing) = (Trust::New, Recent::default(), Standing::Open);
        let closed_at = Timestamp::ZERO;
        Self { most, size, round: 0, failures: 0, trust, recent, standing, closed_at, fewer: None }
    }

    /// Returns the trust in the site.
    pub(super) const fn trust(&self) -> Trust {
        self.trust
    }

    pub(super) const fn standing(&self) -> Standing {
        self.standing
    }

    /// The connections that it may have at `now`.
    pub(super) fn connections(&self, now: Timestamp) -> usize {
        match self.standing {
            Standing::Held(_) => 0,
            Standing::Probing => 1,
            Standing::Open => {
                let fewer = self.fewer.filter(|(_, until)| *until > now).map_or(usize::MAX, |(most, _)| most);
                self.size.min(fewer).max(1)
            }
        }
    }

    /// It took a message.
    pub(super) fn took(&mut self) {
        self.round += 1;
        if self.round >= self.size {
            self.round = 0;
            self.size = (self.size + 1).min(self.most);
        }
        self.answered();
        self.trust = Trust::Proven;
    }

    /// It was there and spoke of the message, whatever it said.
    pub(super) fn answered(&mut self) {
        self.recent.note(false);
        if self.trust != Trust::Proven {
            self.trust = Trust::Answers;
        }
        match self.standing {
            Standing::Open => self.failures = 0,
            Standing::Probing => {
                self.failures = 0;
                self.standing = Standing::Open;
            }
            // From a connection that was under way before: the pause holds.
            Standing::Held(_) => {}
        }
    }

    /// It asked us to be slower.
    pub(super) fn slowed(&mut self) {
        self.answered();
        self.halve();
    }

    /// An attempt timed out, in whatever phase.
    pub(super) fn timed_out(&mut self) {
        self.trust = Trust::Silent;
        self.halve();
    }

    /// An attempt that had begun its message timed out. The time until which the site is held back, if that was the
    /// probe.
    pub(super) fn hung(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.recent.note(true);
        if self.standing == Standing::Probing { self.pushed_back(now) } else { None }
    }

    /// It closed a connection with 421. While its other connections succeed it has half as many; it is held back where
    /// most of the last attempts failed, until the returned time.
    pub(super) fn turned_away(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.recent.note(true);
        if self.recent.is_mostly_failed() || self.standing == Standing::Probing {
            return self.pushed_back(now);
        }
        self.halve();
        None
    }

    /// It turned us away or could not be reached: until when it is held back. Several connections may meet the same
    /// failure, which holds it back once.
    pub(super) fn pushed_back(&mut self, now: Timestamp) -> Option<Timestamp> {
        if let Standing::Held(until) = self.standing
            && until > now
        {
            return None;
        }
        self.halve();
        let until = now + Duration::from_secs(HOLD_SECS[self.failures.min(HOLD_SECS.len() - 1)]);
        self.failures += 1;
        if self.trust == Trust::Proven {
            self.trust = Trust::Answers;
        }
        self.recent = Recent::default();
        self.close(until, now);
        Some(until)
    }

    /// It is held back until then, for a reason that is no failure of its own; false where it is already.
    pub(super) fn hold(&mut self, until: Timestamp, now: Timestamp) -> bool {
        match self.standing {
            Standing::Held(held) if held >= until => false,
            Standing::Held(_) | Standing::Open | Standing::Probing => {
                self.close(until, now);
                true
            }
        }
    }

    fn close(&mut self, until: Timestamp, now: Timestamp) {
        if self.standing == Standing::Open {
            self.closed_at = now;
        }
        self.standing = Standing::Held(until);
    }

    /// When it was held back, unless it is open.
    pub(super) fn closed_at(&self) -> Option<Timestamp> {
        (self.standing != Standing::Open).then_some(self.closed_at)
    }

    /// The end of the time for which an answer asked for fewer connections than there would be.
    pub(super) fn fewer_until(&self, now: Timestamp) -> Option<Timestamp> {
        let (most, until) = self.fewer?;
        (until > now && most < self.size).then_some(until)
    }

    /// It may be probed now, although it is held back for longer; whether it is.
    pub(super) fn hurry(&mut self, now: Timestamp) -> bool {
        match self.standing {
            Standing::Held(until) if until > now => {
                self.standing = Standing::Held(now);
                true
            }
            Standing::Held(_) | Standing::Open | Standing::Probing => false,
        }
    }

    /// It takes no more than so many connections until then.
    pub(super) const fn limit(&mut self, most: usize, until: Timestamp) {
        self.fewer = Some((most, until));
    }

    /// Its pause may be over: whether it is to be probed.
    pub(super) fn rings(&mut self, now: Timestamp) -> bool {
        match self.standing {
            Standing::Held(until) if until <= now => {
                self.standing = Standing::Probing;
                true
            }
            Standing::Held(_) | Standing::Open | Standing::Probing => false,
        }
    }

    fn halve(&mut self) {
        self.round = 0;
        self.size = (self.size / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn it_grows_by_one_for_each_round_up_to_what_the_provider_takes() {
        let sizes = [0, 1, 2, 4, 5, 9, 100].map(|messages| grown(5, messages).connections(NOW));
        assert_eq!(sizes, [2, 2, 3, 3, 4, 5, 5]);
        assert_eq!(Window::new(1).connections(NOW), 1);
    }

    #[test]
    fn it_is_proven_by_a_message_that_it_takes_until_it_fails() {
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
    fn a_time_out_makes_it_silent_and_halves_its_window_until_it_answers() {
        let mut window = grown(10, 100);
        window.timed_out();
        assert_eq!((window.hung(NOW), window.trust(), window.connections(NOW)), (None, Trust::Silent, 5));
        window.pushed_back(NOW);
        assert_eq!(window.trust(), Trust::Silent);
        assert!(window.rings(after(50)));
        window.timed_out();
        assert_eq!(window.hung(after(50)), Some(after(150)), "the probe hung");
        assert!(window.rings(after(150)));
        window.answered();
        assert_eq!(window.trust(), Trust::Answers);
    }

    #[test]
    fn a_421_among_successes_halves_the_window_and_holds_back_nothing() {
        let mut window = grown(10, 100);
        for size in [5, 2, 1] {
            assert_eq!((window.turned_away(NOW), window.connections(NOW)), (None, size));
        }
        (0..100).for_each(|_| window.took());
        let mut in_a_row = 1;
        while window.turned_away(NOW).is_none() {
            in_a_row += 1;
        }
        assert_eq!(in_a_row, 11, "most of twenty");
        let mut lone = Window::new(10);
        assert_eq!(lone.turned_away(NOW), Some(after(50)), "the only attempt there was");
        assert!(lone.rings(after(50)));
        assert_eq!(lone.turned_away(after(50)), Some(after(150)));
    }

    #[test]
    fn it_halves_when_slowed_and_never_falls_to_nothing() {
        let mut window = grown(10, 100);
        for size in [5, 2, 1, 1] {
            window.slowed();
            assert_eq!(window.connections(NOW), size);
        }
    }

    #[test]
    fn a_site_that_turns_us_away_is_held_back_once_then_probed_by_one_connection() {
        let mut window = grown(10, 100);
        assert_eq!(window.pushed_back(NOW), Some(after(50)));
        assert_eq!((window.pushed_back(after(1)), window.connections(after(1))), (None, 0));
        window.took();
        assert_eq!(window.connections(after(2)), 0, "what was under way before lifts no pause");
        assert!(!window.rings(after(49)) && window.rings(after(50)) && !window.rings(after(50)));
        assert_eq!(window.connections(after(50)), 1);
        window.answered();
        assert_eq!(window.connections(after(51)), 5, "half of what it was");
    }

    #[test]
    fn each_failure_in_a_row_holds_it_back_for_longer_until_it_answers() {
        let (mut window, mut now) = (Window::new(10), NOW);
        for seconds in [50, 100, 210, 420, 800, 1600, 1600] {
            let until = window.pushed_back(now).unwrap();
            assert_eq!(until.since(now), Duration::from_secs(seconds));
            now = until;
            assert!(window.rings(now));
        }
        window.answered();
        assert_eq!(window.pushed_back(now), Some(now + Duration::from_secs(50)));
    }

    #[test]
    fn a_site_that_is_held_back_is_probed_at_once_where_somebody_asks_for_it() {
        let mut window = grown(10, 100);
        assert!(!window.hurry(NOW), "nothing holds it back");
        window.pushed_back(NOW);
        assert!(window.hurry(after(1)) && !window.hurry(after(1)));
        assert!(window.rings(after(1)));
        assert_eq!(window.connections(after(1)), 1);
        assert_eq!(window.pushed_back(after(2)), Some(after(102)), "a failure counts as ever");
    }

    #[test]
    fn what_an_answer_asked_for_holds_until_its_time_is_over() {
        let mut window = grown(10, 100);
        window.limit(1, after(60));
        assert_eq!((window.connections(after(59)), window.connections(after(60))), (1, 10));
        assert!(window.hold(after(100), NOW) && !window.hold(after(99), NOW) && window.hold(after(101), NOW));
        assert_eq!(window.standing(), Standing::Held(after(101)));
        assert_eq!(window.pushed_back(after(1)), None, "the longer pause counts");
    }
}
