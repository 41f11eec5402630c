//! Simulation of the whole service under one seed: the real code from the API's bytes to the disk's blocks, on one
//! thread. Clients, tenants, name servers, mail servers, webhook receivers, disk, power and clock fail. A run has a
//! phase with faults and a phase without, and is checked by invariants. `docs/internals/simulation.md` explains it.
//!
//! `cargo test` runs the first seeds, `tests/simulation` further ones. `POSTRIDER_SIMULATION=N` runs seed N and prints
//! its log. `POSTRIDER_SIMULATIONS=N` runs N seeds, from `POSTRIDER_SIMULATIONS_FROM` on. A seed with a finding is kept
//! in `tests/seeds/service.txt`.

mod bounces;
mod clients;
mod clock;
mod http_client;
mod invariants;
mod isolation;
mod life;
mod mail_server;
mod names;
mod plan;
mod process;
mod receivers;
mod replica;
mod reports;
mod service;
mod smtp_client;
mod transmit;
mod world;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use plan::{FaultClass, Plan};
use world::{End, World};

/// Seeds with earlier findings.
const KEPT: &str = include_str!("../../../tests/seeds/service.txt");
/// Seeds of runs with a replica that had findings.
const KEPT_WITH_REPLICA: &str = include_str!("../../../tests/seeds/replica.txt");
/// Seeds of runs with a standby that had findings.
const KEPT_WITH_STANDBY: &str = include_str!("../../../tests/seeds/standby.txt");
/// Seeds of runs with hostile sites that had findings.
const KEPT_WITH_HOSTILE_SITES: &str = include_str!("../../../tests/seeds/hostile.txt");
/// Number of runs in each half of the everyday test.
const RUNS: u64 = 80;
/// Number of runs with a replica. They take longer: after each process the bucket is restored.
const RUNS_WITH_REPLICA: u64 = 22;
/// Number of runs with a standby, which have two machines.
const RUNS_WITH_STANDBY: u64 = 8;
/// Number of runs with hostile sites, which have many messages.
const RUNS_WITH_HOSTILE_SITES: u64 = 6;
/// Maximum number of processes in one run.
const LIVES_MAX: usize = 200;

/// Result of a run.
struct Run {
    seed: u64,
    faults: BTreeSet<FaultClass>,
    findings: Vec<String>,
    log: Vec<String>,
    digest: u64,
    lives: usize,
    taken: usize,
    posted: usize,
}

/// Draws the plan of a seed, without some classes of faults.
type Planner = fn(u64, &BTreeSet<FaultClass>) -> Plan;

/// A set of runs: its plans, the tests' variable for the number of one seed, and its list of stored seeds.
#[derive(Clone, Copy)]
struct Family {
    planner: Planner,
    variable: &'static str,
    list: &'static str,
    runs: u64,
}

/// Runs of one machine.
const ALONE: Family = Family { planner: Plan::new, variable: "POSTRIDER_SIMULATION", list: "service.txt", runs: RUNS };
/// Runs with a replica.
const REPLICATED: Family = Family {
    planner: Plan::with_replica,
    variable: "POSTRIDER_REPLICA_SIMULATION",
    list: "replica.txt",
    runs: RUNS_WITH_REPLICA,
};

/// Runs with a replica and a standby.
const WITH_STANDBY: Family = Family {
    planner: Plan::with_standby,
    variable: "POSTRIDER_STANDBY_SIMULATION",
    list: "standby.txt",
    runs: RUNS_WITH_STANDBY,
};

/// Runs in which only some sites and clients have faults.
const WITH_HOSTILE_SITES: Family = Family {
    planner: Plan::with_hostile_sites,
    variable: "POSTRIDER_HOSTILE_SIMULATION",
    list: "hostile.txt",
    runs: RUNS_WITH_HOSTILE_SITES,
};

/// Every set of runs, with its stored seeds.
const FAMILIES: [(Family, &str); 4] = [
    (ALONE, KEPT),
    (REPLICATED, KEPT_WITH_REPLICA),
    (WITH_STANDBY, KEPT_WITH_STANDBY),
    (WITH_HOSTILE_SITES, KEPT_WITH_HOSTILE_SITES),
];

/// Runs `seed` without some classes of faults.
fn run(family: Family, seed: u64, without: &BTreeSet<FaultClass>) -> Run {
    let world = Arc::new(World::new((family.planner)(seed, without)));
    world.note(format!("{:?}", world.plan));
    loop {
        let end = life::live(&world);
        world.note(format!("process ended: {end:?}"));
        world.state().lives.push(end.unwrap_or(End::Failed));
        if end.is_some() {
            replica::after_end(&world);
        }
        let lives = world.state().lives.len();
        if lives > LIVES_MAX {
            world.find("liveness: the service fails repeatedly".to_owned());
        }
        let has_found = !world.state().findings.is_empty();
        if end == Some(End::Finished) || has_found {
            break;
        }
        let pause = world.millis(1_000, 60_000);
        world.clocks.pass(pause);
    }
    replica::shred::after_the_run(&world);
    let digest = world.digest();
    let state = world.state();
    Run {
        seed,
        faults: world.plan.faults.clone(),
        findings: state.findings.clone(),
        log: state.log.clone(),
        digest,
        lives: state.lives.len(),
        taken: state.taken.len(),
        posted: state.posted.len(),
    }
}

/// Switches off one class of faults after the other, as long as the run still has a finding.
fn shrunk(family: Family, found: Run) -> Run {
    let (mut least, mut without) = (found, BTreeSet::new());
    for fault in FaultClass::ALL.into_iter().chain(FaultClass::OF_REPLICA).chain(FaultClass::OF_STANDBY) {
        if !least.faults.contains(&fault) {
            continue;
        }
        without.insert(fault);
        let tried = run(family, least.seed, &without);
        if tried.findings.is_empty() {
            without.remove(&fault);
        } else {
            least = tried;
        }
    }
    least
}

fn variable<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// Totals of many runs.
#[derive(Debug, Default)]
struct Totals {
    runs: u64,
    lives: usize,
    taken: usize,
    posted: usize,
}

/// Runs these seeds, and stops at the first finding.
fn run_all(family: Family, seeds: impl Iterator<Item = u64>) -> Totals {
    let mut totals = Totals::default();
    for seed in seeds {
        let run = run(family, seed, &BTreeSet::new());
        if !run.findings.is_empty() {
            fail(family, shrunk(family, run));
        }
        totals.runs += 1;
        totals.lives += run.lives;
        totals.taken += run.taken;
        totals.posted += run.posted;
    }
    totals
}

fn fail(family: Family, run: Run) -> ! {
    let Family { variable, list, .. } = family;
    let mut text = run.log.join("\n");
    let _ = write!(
        text,
        "\nSeed {} found {:#?}\nwith the faults {:?}.\nReplay it: {variable}={} cargo test --lib \
         app::simulation::one_run\nKeep it: add {} to tests/seeds/{list}",
        run.seed, run.findings, run.faults, run.seed, run.seed
    );
    panic!("{text}");
}

/// Runs one half of the everyday seeds: two tests, so that they run in parallel.
fn run_half(family: Family, first: u64) {
    run_every(family, first, 2);
}

/// Runs every `step`th of the everyday seeds, from `first` on.
fn run_every(family: Family, first: u64, step: usize) {
    let count = variable("POSTRIDER_SIMULATIONS").unwrap_or(2 * family.runs);
    let from = variable("POSTRIDER_SIMULATIONS_FROM").unwrap_or(0);
    let began = std::time::Instant::now();
    let totals = run_all(family, (from + first..from + count).step_by(step));
    let spent: Duration = began.elapsed();
    println!("{totals:?} in {spent:?}");
    assert!(totals.lives > 0 && totals.taken > 0 && totals.posted > 0, "there is work: {totals:?}");
}

#[test]
fn the_invariants_hold_under_faults_even_seeds() {
    run_half(ALONE, 0);
}

#[test]
fn the_invariants_hold_under_faults_odd_seeds() {
    run_half(ALONE, 1);
}

#[test]
fn seeds_with_earlier_findings_have_none() {
    for (family, kept) in FAMILIES {
        let kept = kept.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace);
        run_all(family, kept.map(|seed| seed.parse().expect("a seed is a number")));
    }
}

#[test]
fn the_invariants_hold_with_a_replica_even_seeds() {
    run_half(REPLICATED, 0);
}

#[test]
fn the_invariants_hold_with_a_replica_odd_seeds() {
    run_half(REPLICATED, 1);
}

#[test]
fn the_invariants_hold_with_a_standby_even_seeds() {
    run_half(WITH_STANDBY, 0);
}

#[test]
fn the_invariants_hold_with_a_standby_odd_seeds() {
    run_half(WITH_STANDBY, 1);
}

#[test]
fn the_invariants_hold_with_hostile_sites() {
    run_every(WITH_HOSTILE_SITES, 0, 1);
}

#[test]
fn one_run() {
    for (family, _) in FAMILIES {
        let Some(seed) = variable(family.variable) else { continue };
        let run = run(family, seed, &BTreeSet::new());
        println!("{}", run.log.join("\n"));
        if !run.findings.is_empty() {
            fail(family, shrunk(family, run));
        }
    }
}

#[test]
fn a_seed_determines_the_run() {
    let with_standby = (0..3).map(|seed| (WITH_STANDBY, seed)).chain([(WITH_HOSTILE_SITES, 0)]);
    for (family, seed) in (0..6).flat_map(|seed| [(ALONE, seed), (REPLICATED, seed)]).chain(with_standby) {
        let (first, second) = (run(family, seed, &BTreeSet::new()), run(family, seed, &BTreeSet::new()));
        let differs = first.log.iter().zip(&second.log).find(|(first, second)| first != second);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first.digest, second.digest, "seed {seed}");
    }
}
