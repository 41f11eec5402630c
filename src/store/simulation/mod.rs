//! Simulation of a store whose disk fails. Each run follows from its seed alone, so findings are reproducible.
//! `POSTRIDER_STORE_SEED=N` runs seed N. `POSTRIDER_STORE_RUNS=N` runs that many seeds instead of 2,000, beginning
//! with seed `POSTRIDER_STORE_FIRST_SEED`.
//!
//! A seed with a finding is added to `tests/seeds/store.txt`, and runs in every test from then on.

mod backup;
mod canaries;
mod damage;
mod erasure;
mod faults;
mod first_start;
mod groups;
mod history;
mod invariants;
mod migration;
mod process;
mod restore;
mod run;
mod start;
mod work;

use std::str::FromStr;

use invariants::Invariant;
use run::run_seed;

use super::disk::simulated::FsyncMode;

/// Seeds with earlier findings.
const KEPT: &str = include_str!("../../../tests/seeds/store.txt");
/// Number of runs of the everyday test.
const RUNS: u64 = 2_000;
/// Number of further runs in which messages are accepted together.
const GROUPED: u64 = 300;

fn variable<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// Totals of many runs.
#[derive(Debug, Default)]
struct Totals {
    runs: u64,
    crashes: u64,
    accepted: u64,
}

/// Runs these seeds, and stops at the first finding.
fn run_all(seeds: impl Iterator<Item = u64>) -> Totals {
    let mut totals = Totals::default();
    for seed in seeds {
        let result = run_seed(seed, FsyncMode::Honored);
        assert!(
            result.findings.is_empty(),
            "{}\nThe run of seed {seed} found {:#?}\n\
             Repeat it: POSTRIDER_STORE_SEED={seed} cargo test --lib run_one_seed\n\
             Keep it: add {seed} to tests/seeds/store.txt",
            result.log.join("\n"),
            result.findings
        );
        totals.runs += 1;
        totals.crashes += result.crashes;
        totals.accepted += result.accepted;
    }
    totals
}

/// Runs one half of the everyday seeds: two tests, so that they run in parallel.
fn run_half(first: u64) {
    let runs = variable("POSTRIDER_STORE_RUNS").unwrap_or(RUNS);
    let from = variable("POSTRIDER_STORE_FIRST_SEED").unwrap_or(0);
    let totals = run_all((from + first..from + runs).step_by(2));
    assert!(
        totals.crashes > totals.runs / 2 && totals.accepted > totals.runs,
        "too little work or too few faults: {totals:?}"
    );
}

#[test]
fn acknowledged_data_survives_disk_faults_even_seeds() {
    run_half(0);
}

#[test]
fn acknowledged_data_survives_disk_faults_odd_seeds() {
    run_half(1);
}

#[test]
fn messages_accepted_together_exist_all_or_not_at_all() {
    let from = variable("POSTRIDER_STORE_FIRST_SEED").unwrap_or(0) + groups::FIRST_SEED;
    run_all(from..from + variable("POSTRIDER_STORE_RUNS").unwrap_or(GROUPED));
}

#[test]
fn seeds_with_earlier_findings_pass() {
    let kept = KEPT.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace);
    run_all(kept.map(|seed| seed.parse().expect("a seed is a number")));
}

#[test]
fn run_one_seed() {
    run_all(variable("POSTRIDER_STORE_SEED").into_iter());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        assert_eq!(run_seed(seed, FsyncMode::Honored), run_seed(seed, FsyncMode::Honored), "seed {seed}");
    }
}

// In optimised builds, redb panics in a destructor on some of these stores, which aborts the process.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "redb aborts the process")]
fn detects_a_disk_whose_syncs_do_nothing() {
    let results: Vec<_> = (0..40).map(|seed| run_seed(seed, FsyncMode::Ignored)).collect();
    let found_out = results.iter().filter(|result| !result.findings.is_empty()).count();
    assert_eq!(found_out, results.len(), "every run ends with a power cut");
    let invariants: Vec<Invariant> =
        results.iter().flat_map(|result| &result.findings).map(|finding| finding.invariant).collect();
    assert!(invariants.contains(&Invariant::DurableAccept), "{invariants:?}");
}
