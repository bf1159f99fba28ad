//! Kills during a write-back that has a ChangeSet and other entries.

use std::io::BufRead as _;
use std::path::Path;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use vambrace_exec::recover;
use vambrace_sandbox::Filesystem;

use super::harness::{TestProject, sandbox, test};

/// Changed files, and new symlinks.
const MANY: usize = 60;

pub(crate) fn trials() -> Vec<Trial> {
    vec![test("crash_leaves_all_changes_or_none_of_both_parts", crash_leaves_all_changes_or_none)]
}

/// The process that is killed: runs a program and writes back.
pub(crate) fn writer(dir: &Path) {
    let project = TestProject::at(dir);
    let sandbox = sandbox(&dir.join("state"));
    let script = format!("for i in $(seq {MANY}); do echo new >old/$i; ln -s x link$i; done");
    let request = project.request(Filesystem::ReadWrite, &script);
    let report = project.try_run_in(&sandbox, &request).unwrap();
    let prepared = project.prepare(&report).unwrap();
    assert_eq!((prepared.change_set().files().len(), prepared.has_other_entries()), (MANY, true));
    println!("writing back");
    prepared.commit("test").unwrap();
}

// P4
fn crash_leaves_all_changes_or_none() {
    let (mut all, mut none) = (0, 0);
    for round in 0..16_u64 {
        let project = TestProject::new();
        for number in 1..=MANY {
            project.write(&format!("old/{number}"), "old\n");
        }
        let program = std::env::current_exe().unwrap();
        let mut child = std::process::Command::new(program)
            .arg("writer")
            .arg(project.root())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "writing back\n");
        let begin = Instant::now();
        // Every second kill certainly in the middle: after the first file, or after the first symlink.
        let is_time = || match round % 4 {
            1 => project.read("old/1").as_deref() == Some("new\n"),
            3 => project.path("link1").symlink_metadata().is_ok(),
            _ => begin.elapsed() > Duration::from_micros(round * 1500),
        };
        while !is_time() && child.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        recover(&project.places(), None);
        recover(&project.places(), Some(&project.applier));
        let new =
            (1..=MANY).filter(|n| project.read(&format!("old/{n}")).as_deref() == Some("new\n")).count();
        let links =
            (1..=MANY).filter(|n| project.path(&format!("link{n}")).symlink_metadata().is_ok()).count();
        match (new, links) {
            (0, 0) => none += 1,
            (MANY, MANY) => all += 1,
            half => panic!("round {round}: {half:?}"),
        }
        let left = project.listing().into_keys().filter(|path| path.to_string_lossy().contains("/.vambrace"));
        assert_eq!(left.count(), 0, "round {round}");
        assert_eq!(std::fs::read_dir(project.places().write_backs).map_or(0, Iterator::count), 0);
    }
    println!("all {all}, none {none}");
    assert!(all > 0, "no kill fell after the record");
}
