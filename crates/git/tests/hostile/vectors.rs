//! What a vector is, and the check of one: it fires without the protection and never with it.

use std::fs;

use super::lab::{Git, Lab, versions};
use super::operations::{check_local_operations, check_push};
use super::vectors_filters::FILTER_VECTORS;
use super::vectors_hooks::HOOK_VECTORS;
use super::vectors_programs::PROGRAM_VECTORS;
use super::vectors_remote::REMOTE_VECTORS;

/// What must happen with the protection.
pub(crate) enum Expectation {
    /// Every operation works.
    Works,
    /// Local operations work; the push is rejected with these words.
    PushRejected(&'static str),
    /// The repository is rejected with these words.
    Rejected(&'static str),
    /// Operations may fail; no program runs.
    NoProgram,
}

/// One way to make git start a program.
pub(crate) struct AttackVector {
    pub(crate) name: &'static str,
    /// The oldest git that has it.
    pub(crate) since: (u32, u32),
    /// Prepares the repository; the program is [`Lab::program`] or [`Lab::hook`] of any name.
    pub(crate) arm: fn(&Lab),
    /// Runs plain git so that the program starts.
    pub(crate) fire: fn(&Lab),
    pub(crate) expectation: Expectation,
    /// Whether the configuration file alone is to blame, so that a sanitized one is enough.
    pub(crate) config_only: bool,
}

pub(crate) const fn local(name: &'static str, arm: fn(&Lab), fire: fn(&Lab)) -> AttackVector {
    AttackVector { name, since: (2, 39), arm, fire, expectation: Expectation::Works, config_only: true }
}

pub(crate) const fn hook(name: &'static str, arm: fn(&Lab), fire: fn(&Lab)) -> AttackVector {
    AttackVector { config_only: false, ..local(name, arm, fire) }
}

pub(crate) fn set(lab: &Lab, section: &str, variable: &str) {
    lab.config(&format!("[{section}]\n\t{variable} = {}", lab.program("program")));
}

pub(crate) fn plain_status(lab: &Lab) {
    lab.plain(&["status"]);
}

pub(crate) fn plain_diff(lab: &Lab) {
    lab.plain(&["diff"]);
}

pub(crate) fn plain_add(lab: &Lab) {
    lab.plain(&["add", "data.evil"]);
}

pub(crate) fn plain_commit(lab: &Lab) {
    lab.plain(&["commit", "-a", "-m", "x"]);
}

pub(crate) fn plain_switch(lab: &Lab) {
    lab.plain(&["switch", "-f", "other"]);
}

fn check(git: &Git, vector: &AttackVector) {
    let name = format!("{} with git {:?}", vector.name, git.version);
    if git.version < vector.since {
        return;
    }
    let lab = Lab::new(git);
    (vector.arm)(&lab);
    let before = lab.markers();
    assert!(before.is_empty(), "{name}: ran while the repository was prepared: {before:?}");
    (vector.fire)(&lab);
    assert!(
        !lab.markers().is_empty(),
        "{name}: plain git does not start the program; the test shows nothing"
    );

    let lab = Lab::new(git);
    (vector.arm)(&lab);
    let opened = lab.open();
    match (&vector.expectation, &opened) {
        (Expectation::Rejected(words), Err(error)) => {
            assert!(error.to_string().contains(words), "{name}: {error}")
        }
        (Expectation::Rejected(_), Ok(_)) => panic!("{name}: the repository is not rejected"),
        (_, Err(error)) => panic!("{name}: {error}"),
        (Expectation::Works, Ok(repository)) => {
            check_local_operations(&lab, repository);
            check_push(&lab, repository);
        }
        (Expectation::PushRejected(words), Ok(repository)) => {
            check_local_operations(&lab, repository);
            super::vectors_remote::check_push_rejected(&lab, repository, words);
        }
        (Expectation::NoProgram, Ok(repository)) => super::vectors_remote::run_everything(&lab, repository),
    }
    assert_eq!(lab.markers(), Vec::<String>::new(), "{name}: a program of the repository ran");

    if let (true, Ok(repository)) = (vector.config_only, &opened) {
        let lab = Lab::new(git);
        (vector.arm)(&lab);
        fs::write(lab.repo().join(".git/config"), repository.neutralized().sanitized()).unwrap();
        (vector.fire)(&lab);
        assert_eq!(lab.markers(), Vec::<String>::new(), "{name}: with a sanitized configuration");
    }
}

/// Checks all vectors, and reports every one that fails.
fn check_all(vectors: &[AttackVector]) {
    let mut failed = Vec::new();
    for git in versions() {
        for vector in vectors {
            if vector.name.starts_with("http") && !git.has_http() {
                vambrace_skip::skip_part("this git has no http");
            } else if std::panic::catch_unwind(|| check(&git, vector)).is_err() {
                failed.push(vector.name);
            }
        }
    }
    let newest = versions().iter().map(|git| git.version).max().unwrap();
    for vector in vectors.iter().filter(|vector| vector.since > newest) {
        vambrace_skip::skip_part(&format!("no git here is new enough for {}", vector.name));
    }
    assert!(failed.is_empty(), "{failed:?}");
}

// T15
#[test]
fn hooks_and_submodules_fire_without_and_never_with_the_protection() {
    check_all(HOOK_VECTORS);
}

// T15
#[test]
fn filters_and_drivers_fire_without_and_never_with_the_protection() {
    check_all(FILTER_VECTORS);
}

// T15
#[test]
fn other_programs_fire_without_and_never_with_the_protection() {
    check_all(PROGRAM_VECTORS);
}

// T15
#[test]
fn remotes_and_credentials_fire_without_and_never_with_the_protection() {
    check_all(REMOTE_VECTORS);
}

/// Arms one repository with every local vector that can share it.
pub(crate) fn arm_everything(lab: &Lab) {
    for vector in HOOK_VECTORS.iter().chain(FILTER_VECTORS).chain(PROGRAM_VECTORS) {
        let alone = [
            "filter by tracked",
            "filter in",
            "hook pre-auto-gc",
            "core.hooksPath",
            "gc.",
            "gpg.",
            "format.pretty",
        ];
        let shares = !alone.iter().any(|start| vector.name.starts_with(start));
        if shares && matches!(vector.expectation, Expectation::Works) && !vector.name.contains("submodule") {
            (vector.arm)(lab);
        }
    }
}
