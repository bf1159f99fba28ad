//! The background worker on a simulated disk: random records, random faults, a power cut or a kill at a random
//! operation, what that may leave, and a new start; repeatedly. One seed is one run. The table is in memory and
//! loses what was committed since the last flush; `tests/powercut` covers SQLite itself under power cuts.

mod faulty_disk;
mod machine;
mod torn_tail;

use self::machine::SimMachine;

/// Seeds that once failed: pages of a segment that were never written (1, 26, 31, 32), a checkpoint that was in
/// the table and not in its file (3, 14, 24), a segment that was closed before the cursor was stored (9, 35,
/// 50, 60).
const ONCE_FAILED: &[u64] = &[1, 3, 9, 14, 24, 26, 31, 32, 35, 50, 60];

/// Number of seeds that a test run can afford.
const SEEDS: u64 = 2000;

fn run(seed: u64) {
    let outcome = std::panic::catch_unwind(|| SimMachine::new(seed).live());
    if let Err(panic) = outcome {
        println!("seed {seed} failed");
        std::panic::resume_unwind(panic);
    }
}

/// A quarter of the seeds each, so that they share the cores.
fn quarter(number: u64) {
    let wanted = std::env::var("VAMBRACE_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    (0..wanted.unwrap_or(SEEDS) / 4).for_each(|seed| run(seed * 4 + number));
}

// B5: torn sectors, lost and reordered pages, full disk, failing writes and syncs
#[test]
fn every_crash_is_recovered_and_nothing_published_is_lost_1() {
    quarter(0);
}

#[test]
fn every_crash_is_recovered_and_nothing_published_is_lost_2() {
    quarter(1);
}

#[test]
fn every_crash_is_recovered_and_nothing_published_is_lost_3() {
    quarter(2);
}

#[test]
fn every_crash_is_recovered_and_nothing_published_is_lost_4() {
    quarter(3);
}

#[test]
fn seeds_that_once_failed_pass() {
    ONCE_FAILED.iter().copied().for_each(run);
}
