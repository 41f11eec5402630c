//! Runs with hostile sites: some sites answer promptly, and only the others have faults. One account submits most of
//! the messages. The messages of the other accounts to prompt sites must not wait for any of that.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::plan::{Action, FaultClass, Plan};
use super::world::{Progress, Submission, Taken, World};
use crate::store::single_threaded::{DiskFault, Rng};

/// Time within which a prompt site has a message (contract 10.4).
const HAND_OVER: Duration = Duration::from_secs(5);
/// Time within which a prompt site is used for a waiting message while permits are free: a lookup and a few commits.
const START: Duration = Duration::from_millis(250);

/// The hostile sites of a run.
#[derive(Debug)]
pub(super) struct Hostility {
    /// Number of sites that answer promptly. They have the lowest numbers.
    prompt_sites: usize,
    /// Whether the busiest account submits most messages to other sites only.
    spares_prompt_sites: bool,
    /// Factor of the probability that another site stops answering.
    silence: u64,
}

impl Hostility {
    /// Draws the number of tenants, the sites, and the times in milliseconds from which those of a submission are
    /// drawn. First the busiest account submits most messages. Then any account sends to prompt sites.
    pub(super) fn draw_limits(&self, world: &World) -> (u64, Range<u64>, Range<u64>) {
        let (tenants, sites) = (world.plan.tenants as u64, world.plan.sites as u64);
        let (prompt, end) = (self.prompt_sites as u64, u64::try_from(world.plan.window.as_millis()).unwrap());
        match world.below(4) {
            0 => (tenants, 0..prompt, end / 4..end),
            _ if self.spares_prompt_sites => (1, prompt..sites, 0..end / 4),
            _ => (1, 0..sites, 0..end / 4),
        }
    }

    /// Returns the probability of a fault at the site of the host or domain `name`, per mille.
    pub(super) fn per_mille(&self, name: &str, fault: FaultClass, per_mille: u64) -> u64 {
        match fault {
            _ if self.is_prompt(name) => 0,
            FaultClass::Silence => per_mille * self.silence,
            _ => per_mille,
        }
    }

    /// Returns whether the site of the host or domain `name` answers promptly.
    fn is_prompt(&self, name: &str) -> bool {
        site_of(name).is_some_and(|site| site < self.prompt_sites)
    }
}

/// Returns the number of the site of the host or domain `name`.
pub(super) fn site_of(name: &str) -> Option<usize> {
    name.strip_suffix(".test")?.rsplit('r').next()?.parse().ok()
}

impl Plan {
    /// Draws the plan of `seed` for a run with hostile sites.
    pub(super) fn with_hostile_sites(seed: u64, without: &BTreeSet<FaultClass>) -> Self {
        let mut plan = Self::new(seed, without);
        let mut rng = Rng::new(seed ^ 0x0457_11e5);
        let excluded = [
            FaultClass::Tenants,
            FaultClass::Bounces,
            FaultClass::Clock,
            FaultClass::Power,
            FaultClass::Disk,
            FaultClass::Full,
        ];
        plan.faults.retain(|fault| !excluded.contains(fault));
        // Silent sites hold permits longest.
        plan.faults.extend([FaultClass::Silence].into_iter().filter(|fault| !without.contains(fault)));
        let is_kept = |action: &Action| {
            matches!(action, Action::Stop | Action::Kill | Action::EndFaults | Action::Disk(DiskFault::Kill, _))
        };
        plan.actions.retain(|(_, action)| is_kept(action));
        plan.window = plan.window.min(Duration::from_secs(30));
        plan.queue_lifetime = Duration::from_secs(2 * 3600);
        plan.tenants = 2 + rng.index(3);
        plan.submissions = [20, 50, 80][rng.index(3)];
        plan.connections = [22, 22, 32][rng.index(3)];
        let prompt_sites = 1 + rng.index(2);
        plan.sites = prompt_sites + [8, 30, 50][rng.index(3)];
        plan.hostility =
            Some(Hostility { prompt_sites, spares_prompt_sites: rng.coin(), silence: [4, 16, 40][rng.index(3)] });
        plan
    }
}

/// The work of mail servers: the time, the site, and whether a transfer begins or ends.
#[derive(Debug, Default)]
pub(super) struct Transfers(Vec<(Duration, usize, bool)>);

/// Work of a mail server: a new connection, or a message.
pub(super) struct Transfer {
    world: Arc<World>,
    site: usize,
}

impl Transfer {
    /// Records the beginning of work for the mail server `host`. `None` in runs without hostile sites.
    pub(super) fn begin(world: &Arc<World>, host: &str) -> Option<Self> {
        world.plan.hostility.as_ref()?;
        let transfer = Self { world: Arc::clone(world), site: site_of(host)? };
        transfer.record(true);
        Some(transfer)
    }

    fn record(&self, begins: bool) {
        let now = self.world.clocks.elapsed();
        self.world.state().transfers.0.push((now, self.site, begins));
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.record(false);
    }
}

impl Transfers {
    /// Returns the periods in which `site` had no transfer, although fewer than `free_below` transfers ran.
    fn idle(&self, site: usize, free_below: usize) -> Vec<(Duration, Duration)> {
        let (mut all, mut own, mut since) = (0, 0, Some(Duration::ZERO));
        let mut periods = Vec::new();
        for (at, of, begins) in &self.0 {
            let step = |count: &mut usize| *count = if *begins { *count + 1 } else { *count - 1 };
            step(&mut all);
            if *of == site {
                step(&mut own);
            }
            match since {
                None if own == 0 && all < free_below => since = Some(*at),
                Some(from) if own > 0 || all >= free_below => {
                    periods.push((from, *at));
                    since = None;
                }
                _ => {}
            }
        }
        periods.extend(since.map(|from| (from, Duration::MAX)));
        periods
    }
}

/// Records that the running process begins nothing more.
pub(super) fn ends_serving(world: &World) {
    let now = world.clocks.elapsed();
    world.state().served.iter_mut().for_each(|(_, to)| *to = now.min(*to));
}

/// Judges every message to a prompt site, except those of the busiest account.
pub(super) fn judge(world: &World) {
    let Some(hostility) = &world.plan.hostility else { return };
    for submission in world.submissions().iter().filter(|submission| submission.tenant > 0) {
        let Progress::Accepted(ids) = &submission.progress else { continue };
        for (id, recipient) in ids.iter().zip(&submission.recipients) {
            let domain = recipient.rsplit('@').next().unwrap_or_default();
            if let Some(site) = site_of(domain).filter(|_| hostility.is_prompt(domain)) {
                message(world, submission, site, &format!("<{id}@"));
            }
        }
    }
}

/// Judges the waits of a message for `site`, in each process since it was accepted.
fn message(world: &World, submission: &Submission, site: usize, prefix: &str) {
    let state = world.state();
    let is_it = |taken: &&Taken| taken.message_id.starts_with(prefix);
    let taken_at = state.taken.iter().find(is_it).map_or(Duration::MAX, |taken| taken.at);
    let waits: Vec<_> = state
        .served
        .iter()
        .map(|(from, to)| (submission.accepted_at.max(*from), taken_at.min(*to)))
        .filter(|(from, to)| from < to)
        .collect();
    let idle = state.transfers.idle(site, world.plan.connections / 2);
    drop(state);
    for (from, to) in waits {
        if to - from > HAND_OVER {
            world.find(format!("isolation: {} waited {:?} from {from:?}", submission.subject, to - from));
        }
        let unused = idle.iter().map(|(idle_from, idle_to)| to.min(*idle_to).saturating_sub(from.max(*idle_from)));
        if let Some(unused) = unused.max().filter(|unused| *unused > START) {
            world.find(format!("work conservation: {} waited {unused:?} for an idle site", submission.subject));
        }
    }
}
