//! Connection window of a site. It grows while the site accepts messages, and halves when the site fails or asks for a
//! lower rate. It is zero during a backoff, then one for the probe. Times are arguments.

use std::time::Duration;

use crate::base::time::Timestamp;

/// Initial number of connections to a site.
const START: usize = 2;
/// Backoff of a site after its first, second, ... failure in a row. Each is shorter than the retry delay of a single
/// message (contract 6, less 10 %), so that such a message keeps to its own schedule.
const HOLD_SECS: [u64; 6] = [50, 100, 210, 420, 800, 1600];

/// Minimum time between probes that accounts request. The site belongs to all of them.
const REQUEST_INTERVAL: Duration = Duration::from_secs(10);

/// The window of one site.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// Maximum that the provider allows.
    most: usize,
    size: usize,
    /// Number of messages accepted since it last grew.
    round: usize,
    /// Number of failures in a row.
    failures: usize,
    trust: Trust,
    recent: Recent,
    state: WindowState,
    /// When the site was last backed off while it was open.
    closed_at: Timestamp,
    /// A smaller window that an answer requested, and its end.
    fewer: Option<(usize, Timestamp)>,
    /// When the next requested probe is allowed.
    next_request_at: Timestamp,
}

/// Trust in a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The site was never contacted.
    New,
    /// The site has answered.
    Answers,
    /// The site has accepted a message, and has not failed since.
    Proven,
    /// An attempt timed out, and no answer has come since.
    Silent,
}

/// The results of the last attempts.
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

/// Whether attempts at a site are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowState {
    /// They are allowed.
    Open,
    /// They are not allowed before this time.
    BackedOff(Timestamp),
    /// One connection probes the site, and its outcome decides.
    Probing,
}

impl Window {
    pub(super) fn new(most: usize) -> Self {
        let size = START.min(most);
        let (trust, recent, state) = (Trust::New, Recent::default(), WindowState::Open);
        let closed_at = Timestamp::ZERO;
        Self {
            most,
            size,
            round: 0,
            failures: 0,
            trust,
            recent,
            state,
            closed_at,
            fewer: None,
            next_request_at: Timestamp::ZERO,
        }
    }

    /// Returns the trust in the site.
    pub(super) const fn trust(&self) -> Trust {
        self.trust
    }

    pub(super) const fn state(&self) -> WindowState {
        self.state
    }

    /// Returns the number of connections that are allowed at `now`.
    pub(super) fn connections(&self, now: Timestamp) -> usize {
        match self.state {
            WindowState::BackedOff(_) => 0,
            WindowState::Probing => 1,
            WindowState::Open => {
                let fewer = self.fewer.filter(|(_, until)| *until > now).map_or(usize::MAX, |(most, _)| most);
                self.size.min(fewer).max(1)
            }
        }
    }

    /// The site accepted a message.
    pub(super) fn took(&mut self) {
        self.round += 1;
        if self.round >= self.size {
            self.round = 0;
            self.size = (self.size + 1).min(self.most);
        }
        self.answered();
        self.trust = Trust::Proven;
    }

    /// The site answered about the message, with any result.
    pub(super) fn answered(&mut self) {
        self.recent.note(false);
        if self.trust != Trust::Proven {
            self.trust = Trust::Answers;
        }
        match self.state {
            WindowState::Open => self.failures = 0,
            WindowState::Probing => {
                self.failures = 0;
                self.state = WindowState::Open;
            }
            // The connection was opened before the backoff, which continues.
            WindowState::BackedOff(_) => {}
        }
    }

    /// The site asked for a lower rate.
    pub(super) fn slowed(&mut self) {
        self.answered();
        self.halve();
    }

    /// An attempt timed out, in any phase.
    pub(super) fn timed_out(&mut self) {
        self.trust = Trust::Silent;
        self.halve();
    }

    /// An attempt timed out after it had begun its message. Returns the end of the new backoff, if that attempt was the
    /// probe.
    pub(super) fn hung(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.recent.note(true);
        if self.state == WindowState::Probing { self.pushed_back(now) } else { None }
    }

    /// The site closed a connection with 421. While its other connections succeed, the window is halved. If most of the
    /// last attempts failed, the site is backed off, and the end of the backoff is returned.
    pub(super) fn turned_away(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.recent.note(true);
        if self.recent.is_mostly_failed() || self.state == WindowState::Probing {
            return self.pushed_back(now);
        }
        self.halve();
        None
    }

    /// The site refused us or could not be reached. Returns the end of the new backoff. Several connections may meet
    /// the same failure, which begins only one backoff.
    pub(super) fn pushed_back(&mut self, now: Timestamp) -> Option<Timestamp> {
        if let WindowState::BackedOff(until) = self.state
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

    /// Backs the site off until then, for a reason that is not its own failure. Returns false if it already is.
    pub(super) fn hold(&mut self, until: Timestamp, now: Timestamp) -> bool {
        match self.state {
            WindowState::BackedOff(held) if held >= until => false,
            WindowState::BackedOff(_) | WindowState::Open | WindowState::Probing => {
                self.close(until, now);
                true
            }
        }
    }

    fn close(&mut self, until: Timestamp, now: Timestamp) {
        if self.state == WindowState::Open {
            self.closed_at = now;
        }
        self.state = WindowState::BackedOff(until);
    }

    /// Returns the start of the backoff, unless the site is open.
    pub(super) fn closed_at(&self) -> Option<Timestamp> {
        (self.state != WindowState::Open).then_some(self.closed_at)
    }

    /// Returns the end of the requested limit on connections, if that limit is effective.
    pub(super) fn fewer_until(&self, now: Timestamp) -> Option<Timestamp> {
        let (most, until) = self.fewer?;
        (until > now && most < self.size).then_some(until)
    }

    /// Allows a probe now, before the end of the backoff, unless one was allowed less than [`REQUEST_INTERVAL`] ago.
    /// Returns whether it ended a backoff.
    pub(super) fn allow_probe(&mut self, now: Timestamp) -> bool {
        if self.next_request_at > now {
            return false;
        }
        match self.state {
            WindowState::BackedOff(until) if until > now => {
                self.state = WindowState::BackedOff(now);
                self.next_request_at = now + REQUEST_INTERVAL;
                true
            }
            WindowState::BackedOff(_) | WindowState::Open | WindowState::Probing => false,
        }
    }

    /// Limits the site to this many connections until then.
    pub(super) const fn limit(&mut self, most: usize, until: Timestamp) {
        self.fewer = Some((most, until));
    }

    /// Ends the backoff if it is over. Returns whether the site must be probed.
    pub(super) fn begin_probe(&mut self, now: Timestamp) -> bool {
        match self.state {
            WindowState::BackedOff(until) if until <= now => {
                self.state = WindowState::Probing;
                true
            }
            WindowState::BackedOff(_) | WindowState::Open | WindowState::Probing => false,
        }
    }

    /// Moves all times, because the service's time was set back.
    pub(super) fn set_back(&mut self, by: Duration) {
        if let WindowState::BackedOff(until) = self.state {
            self.state = WindowState::BackedOff(until - by);
        }
        self.fewer = self.fewer.map(|(most, until)| (most, until - by));
        self.closed_at = self.closed_at - by;
        self.next_request_at = self.next_request_at - by;
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
    fn grows_by_one_for_each_round_up_to_the_provider_s_limit() {
        let sizes = [0, 1, 2, 4, 5, 9, 100].map(|messages| grown(5, messages).connections(NOW));
        assert_eq!(sizes, [2, 2, 3, 3, 4, 5, 5]);
        assert_eq!(Window::new(1).connections(NOW), 1);
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
        window.timed_out();
        assert_eq!((window.hung(NOW), window.trust(), window.connections(NOW)), (None, Trust::Silent, 5));
        window.pushed_back(NOW);
        assert_eq!(window.trust(), Trust::Silent);
        assert!(window.begin_probe(after(50)));
        window.timed_out();
        assert_eq!(window.hung(after(50)), Some(after(150)), "the probe hung");
        assert!(window.begin_probe(after(150)));
        window.answered();
        assert_eq!(window.trust(), Trust::Answers);
    }

    #[test]
    fn a_421_among_successes_halves_the_window_without_a_backoff() {
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
        assert!(lone.begin_probe(after(50)));
        assert_eq!(lone.turned_away(after(50)), Some(after(150)));
    }

    #[test]
    fn halves_when_slowed_and_never_falls_to_zero() {
        let mut window = grown(10, 100);
        for size in [5, 2, 1, 1] {
            window.slowed();
            assert_eq!(window.connections(NOW), size);
        }
    }

    #[test]
    fn a_refusing_site_is_backed_off_once_then_probed_by_one_connection() {
        let mut window = grown(10, 100);
        assert_eq!(window.pushed_back(NOW), Some(after(50)));
        assert_eq!((window.pushed_back(after(1)), window.connections(after(1))), (None, 0));
        window.took();
        assert_eq!(window.connections(after(2)), 0, "what was under way before lifts no pause");
        assert!(!window.begin_probe(after(49)) && window.begin_probe(after(50)) && !window.begin_probe(after(50)));
        assert_eq!(window.connections(after(50)), 1);
        window.answered();
        assert_eq!(window.connections(after(51)), 5, "half of what it was");
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
        assert_eq!(window.connections(after(1)), 1);
        assert_eq!(window.pushed_back(after(2)), Some(after(102)), "a failure counts as ever");
        assert!(!window.allow_probe(after(10)), "an account can't make us hammer a site that other accounts need");
        assert!(window.allow_probe(after(11)));
    }

    #[test]
    fn a_limit_from_an_answer_lasts_until_its_end() {
        let mut window = grown(10, 100);
        window.limit(1, after(60));
        assert_eq!((window.connections(after(59)), window.connections(after(60))), (1, 10));
        assert!(window.hold(after(100), NOW) && !window.hold(after(99), NOW) && window.hold(after(101), NOW));
        assert_eq!(window.state(), WindowState::BackedOff(after(101)));
        assert_eq!(window.pushed_back(after(1)), None, "the longer pause counts");
    }

    #[test]
    fn a_backoff_and_a_limit_keep_their_durations_when_the_time_is_set_back() {
        let mut window = grown(10, 100);
        window.limit(1, after(60));
        window.pushed_back(NOW);
        assert!(window.allow_probe(after(1)));
        window.pushed_back(after(2));
        let by = Duration::from_secs(5 * 24 * 3600);
        window.set_back(by);
        assert_eq!(window.state(), WindowState::BackedOff(after(102) - by));
        assert_eq!(window.closed_at(), Some(NOW - by));
        assert!(!window.allow_probe(after(10) - by) && window.allow_probe(after(11) - by));
        assert!(window.begin_probe(after(11) - by));
        window.answered();
        assert_eq!((window.connections(after(59) - by), window.connections(after(60) - by)), (1, 2));
    }
}
