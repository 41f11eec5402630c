//! Simulation of a store whose disk fails. Each run follows from its seed alone, so findings are reproducible.
//! `POSTRIDER_STORY=N` runs seed N. `POSTRIDER_STORIES=N` runs that many seeds instead of 2,000, beginning with seed
//! `POSTRIDER_STORIES_FROM`.
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

use invariants::Law;
use run::tell;

use super::disk::simulated::Honesty;

/// Seeds with earlier findings.
const KEPT: &str = include_str!("../../../tests/seeds/store.txt");
/// Number of runs of the everyday test.
const STORIES: u64 = 2_000;
/// Number of further runs in which messages are accepted together.
const GROUPED: u64 = 300;

fn variable<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// Totals of many runs.
#[derive(Debug, Default)]
struct Sums {
    stories: u64,
    crashes: u64,
    accepted: u64,
}

/// Runs these seeds, and stops at the first finding.
fn tell_all(seeds: impl Iterator<Item = u64>) -> Sums {
    let mut sums = Sums::default();
    for seed in seeds {
        let told = tell(seed, Honesty::Honest);
        assert!(
            told.findings.is_empty(),
            "{}\nThe run of seed {seed} found {:#?}\n\
             Repeat it: POSTRIDER_STORY={seed} cargo test --lib run_one_seed\n\
             Keep it: add {seed} to tests/seeds/store.txt",
            told.log.join("\n"),
            told.findings
        );
        sums.stories += 1;
        sums.crashes += told.crashes;
        sums.accepted += told.accepted;
    }
    sums
}

/// Runs one half of the everyday seeds: two tests, so that they run in parallel.
fn tell_half(first: u64) {
    let stories = variable("POSTRIDER_STORIES").unwrap_or(STORIES);
    let from = variable("POSTRIDER_STORIES_FROM").unwrap_or(0);
    let sums = tell_all((from + first..from + stories).step_by(2));
    assert!(
        sums.crashes > sums.stories / 2 && sums.accepted > sums.stories,
        "too little work or too few faults: {sums:?}"
    );
}

#[test]
fn acknowledged_data_survives_disk_faults_even_seeds() {
    tell_half(0);
}

#[test]
fn acknowledged_data_survives_disk_faults_odd_seeds() {
    tell_half(1);
}

#[test]
fn messages_accepted_together_exist_all_or_not_at_all() {
    let from = variable("POSTRIDER_STORIES_FROM").unwrap_or(0) + groups::FIRST_SEED;
    tell_all(from..from + variable("POSTRIDER_STORIES").unwrap_or(GROUPED));
}

#[test]
fn seeds_with_earlier_findings_pass() {
    let kept = KEPT.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace);
    tell_all(kept.map(|seed| seed.parse().expect("a seed is a number")));
}

#[test]
fn run_one_seed() {
    tell_all(variable("POSTRIDER_STORY").into_iter());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        assert_eq!(tell(seed, Honesty::Honest), tell(seed, Honesty::Honest), "seed {seed}");
    }
}

// In optimised builds, redb panics in a destructor on some of these stores, which aborts the process.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "redb aborts the process")]
fn detects_a_disk_whose_syncs_do_nothing() {
    let told: Vec<_> = (0..40).map(|seed| tell(seed, Honesty::SyncsNothing)).collect();
    let found_out = told.iter().filter(|told| !told.findings.is_empty()).count();
    assert_eq!(found_out, told.len(), "every run ends with a power cut");
    let laws: Vec<Law> = told.iter().flat_map(|told| &told.findings).map(|finding| finding.law).collect();
    assert!(laws.contains(&Law::DurableAccept), "{laws:?}");
}
