//! All of a run's changes are written back or none, whatever happens meanwhile.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use libtest_mimic::Trial;
use vambrace_sandbox::{Exit, Filesystem, JournaledWriteBack, StateDirs, WriteBackError};

use super::harness::{TestProject, changes, err, is_root, run, start, test, write_back};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test(
            "crash::directories_that_end_up_closed_are_filled_first",
            directories_that_end_up_closed_are_filled_first,
        ),
        test(
            "crash::write_back_that_cannot_complete_changes_nothing",
            write_back_that_cannot_complete_changes_nothing,
        ),
        test(
            "crash::file_changed_while_others_are_staged_is_stale",
            file_changed_while_others_are_staged_is_stale,
        ),
        test(
            "crash::write_back_rechecks_the_base_and_writes_nothing_when_stale",
            write_back_rechecks_the_base_and_writes_nothing_when_stale,
        ),
        test(
            "crash::crash_during_write_back_leaves_all_changes_or_none",
            crash_during_write_back_leaves_all_changes_or_none,
        ),
        test(
            "crash::recovery_keeps_a_later_change_of_another_process",
            recovery_keeps_a_later_change_of_another_process,
        ),
        test(
            "crash::forged_staging_directory_is_never_written_back",
            forged_staging_directory_is_never_written_back,
        ),
    ]
}

// P4; as an ordinary user
fn directories_that_end_up_closed_are_filled_first() {
    let fixture = TestProject::new();
    fixture.write("project/old/a", "a\n");
    fixture.write("project/old/b", "b\n");
    fixture.write("project/was/a", "a\n");
    let mode = |path: &str| fixture.path(path).metadata().unwrap().permissions().mode() & 0o777;
    std::fs::set_permissions(fixture.path("project/was"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let script = "mkdir -p new/in; echo x >new/in/x; chmod 555 new/in new; rm old/a; echo n >old/b; echo c >old/c; \
                  chmod 555 old; chmod 755 was; rm was/a; echo b >was/b";
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, script));
    assert_eq!((outcome.exit, err(&outcome).as_str()), (Exit::Code(0), ""));
    write_back(&outcome).unwrap();
    assert_eq!(fixture.read("project/new/in/x").as_deref(), Some("x\n"));
    assert_eq!([mode("project/new"), mode("project/new/in"), mode("project/old")], [0o555; 3]);
    assert_eq!([fixture.read("project/old/a"), fixture.read("project/was/a")], [None, None]);
    assert_eq!(fixture.read("project/old/c").as_deref(), Some("c\n"));
    assert_eq!(fixture.read("project/was/b").as_deref(), Some("b\n"));
    for dir in ["new", "new/in", "old"] {
        let path = fixture.path(&format!("project/{dir}"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

// P4; as an ordinary user
fn write_back_that_cannot_complete_changes_nothing() {
    if is_root() {
        vambrace_skip::skip("root may write everywhere");
        return;
    }
    let fixture = TestProject::new();
    fixture.write("project/was/a", "a\n");
    std::fs::set_permissions(fixture.path("project/was"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let before = fixture.listing("project");
    let script = "echo x >first; chmod 755 was; echo b >was/b; chmod 555 was";
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, script));
    assert!(matches!(write_back(&outcome), Err(WriteBackError::Write { written: 0, .. })));
    assert_eq!(fixture.listing("project"), before);
    std::fs::set_permissions(fixture.path("project/was"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

// P4
fn file_changed_while_others_are_staged_is_stale() {
    let fixture = TestProject::new();
    let script = "echo program >plain.txt; head -c 200000000 /dev/zero | tr '\\0' x >zz";
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, script));
    assert_eq!(changes(&outcome), ["modified plain.txt", "created zz"]);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = |name: &str| name.starts_with(".vambrace-unfinished");
            let names =
                || std::fs::read_dir(fixture.project()).unwrap().map(|entry| entry.unwrap().file_name());
            while !names().any(|name| begun(&name.to_string_lossy())) && !fixture.path("project/zz").exists()
            {
            }
            fixture.write("project/plain.txt", "mine\n");
        });
        write_back(&outcome)
    });
    assert!(matches!(&done, Err(WriteBackError::StaleBase(path)) if path.ends_with("plain.txt")), "{done:?}");
    assert_eq!(fixture.read("project/plain.txt").as_deref(), Some("mine\n"));
    assert!(!fixture.path("project/zz").exists());
}

// P4
fn write_back_rechecks_the_base_and_writes_nothing_when_stale() {
    let fixture = TestProject::new();
    let outcome = run(&fixture.shell(Filesystem::Speculative, "echo agent >>plain.txt; echo a >src/a.rs"));
    fixture.write("project/plain.txt", "user\n");
    let error = write_back(&outcome).unwrap_err();
    assert!(matches!(error, WriteBackError::StaleBase(_)), "{error}");
    assert_eq!(fixture.read("project/plain.txt").as_deref(), Some("user\n"));
    assert_eq!(fixture.read("project/src/a.rs"), None);
    let outcome = run(&fixture.shell(Filesystem::Speculative, "echo agent >new"));
    fixture.write("project/new", "user\n");
    assert!(matches!(write_back(&outcome).unwrap_err(), WriteBackError::StaleBase(_)));
    assert_eq!(fixture.read("project/new").as_deref(), Some("user\n"));
}

/// How many files of each kind the writer process changes.
const MANY: usize = 150;

/// The process of [`crash_during_write_back_leaves_all_changes_or_none`]: changes a project and writes the changes back.
pub(crate) fn writer(fixture: &str) {
    let fixture = std::path::Path::new(fixture);
    let sandbox = start(&fixture.join("state"));
    let script = "for i in $(seq MANY); do echo new >new/$i; echo new >old/$i; rm gone/$i; done; mkdir made; ln -s x link; mv a b"
        .replace("MANY", &MANY.to_string());
    let mut spec = vambrace_sandbox::Spec::new("sh", fixture.join("project"));
    spec.arguments = vec!["-c".into(), script.into()];
    spec.filesystem = Filesystem::ReadWrite;
    let outcome = sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {}).unwrap();
    let changes = outcome.changes.as_ref().unwrap();
    let journaled = JournaledWriteBack::new(changes, sandbox.places()).unwrap();
    println!("writing back");
    std::io::stdout().flush().unwrap();
    journaled.write_back(changes).unwrap();
}

/// A project with the files for it.
fn many_files() -> TestProject {
    let fixture = TestProject::new();
    for number in 1..=MANY {
        fixture.write(&format!("project/old/{number}"), "old\n");
        let gone = format!("project/gone/{number}");
        // Pairs of hard links.
        if number % 2 == 0 {
            let other = fixture.path(&format!("project/gone/{}", number - 1));
            std::fs::hard_link(other, fixture.path(&gone)).unwrap();
        } else {
            fixture.write(&gone, "gone\n");
        }
    }
    std::fs::create_dir(fixture.path("project/new")).unwrap();
    fixture.write("project/a", "moves\n");
    fixture
}

/// Starts the writer process and kills it at a given moment.
fn kill_writer(fixture: &TestProject, when: impl Fn() -> bool) {
    use std::io::BufRead as _;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["writer", fixture.path("").to_str().unwrap()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "writing back\n");
    while !when() && child.try_wait().unwrap().is_none() {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn state_of(fixture: &TestProject) -> [usize; 4] {
    let count = |dir: &str| std::fs::read_dir(fixture.path(dir)).unwrap().count();
    let new =
        (1..=MANY).filter(|n| fixture.read(&format!("project/old/{n}")).as_deref() == Some("new\n")).count();
    let others = ["project/made", "project/link", "project/b"];
    let there = others.iter().filter(|name| fixture.path(name).symlink_metadata().is_ok()).count();
    [count("project/new"), new, MANY - count("project/gone"), there]
}

// P4
fn crash_during_write_back_leaves_all_changes_or_none() {
    let (mut all, mut none, mut recovered) = (0, 0, 0);
    // Kills from before the first write to after the end; every third one certainly in the middle.
    for round in 0..15_u64 {
        let fixture = many_files();
        let begin = std::cell::OnceCell::new();
        let half = fixture.path(&format!("project/new/{}", 1 + round % 100));
        kill_writer(&fixture, || match round % 3 {
            0 => half.exists(),
            _ => {
                begin.get_or_init(std::time::Instant::now).elapsed()
                    > std::time::Duration::from_micros(round * 700)
            }
        });
        recovered += JournaledWriteBack::recover(&StateDirs::below(&fixture.path("state")), &mut |_| false);
        match state_of(&fixture) {
            [0, 0, 0, 0] => none += 1,
            [MANY, MANY, MANY, 3] => all += 1,
            half => panic!("round {round}: {half:?}"),
        }
        let left = std::fs::read_dir(fixture.project()).unwrap().filter(|entry| {
            entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".vambrace-unfinished")
        });
        assert_eq!(left.count(), 0);
        assert_eq!(std::fs::read_dir(fixture.path("state/promotions")).map_or(0, Iterator::count), 0);
    }
    println!("all {all}, none {none}, recovered {recovered}");
    assert!(none > 0 && recovered > 0, "all {all}, none {none}, recovered {recovered}");
}

fn recovery_keeps_a_later_change_of_another_process() {
    // Repeats until a kill falls between the journal record and the end.
    for _ in 0..30 {
        let fixture = many_files();
        kill_writer(&fixture, || fixture.read("project/old/1").as_deref() == Some("new\n"));
        let [_, new, ..] = state_of(&fixture);
        let unfinished = new > 0 && new < MANY;
        if !unfinished {
            continue;
        }
        let untouched =
            (1..=MANY).find(|n| fixture.read(&format!("project/old/{n}")).as_deref() == Some("old\n"));
        let mine = format!("project/old/{}", untouched.unwrap());
        fixture.write(&mine, "mine\n");
        assert_eq!(JournaledWriteBack::recover(&StateDirs::below(&fixture.path("state")), &mut |_| false), 1);
        assert_eq!(fixture.read(&mine).as_deref(), Some("mine\n"));
        let [added, new, gone, others] = state_of(&fixture);
        assert_eq!((added, new, gone, others), (MANY, MANY - 1, MANY, 3));
        return;
    }
    panic!("no kill fell into the middle");
}

/// Recovery moves what is in a staging directory into place, so no program may leave one behind.
// P4
fn forged_staging_directory_is_never_written_back() {
    let fixture = TestProject::new();
    let script = "mkdir .vambrace-unfinished-1-1 src/.vambrace-unfinished-2; echo x >.vambrace-unfinished-1-1/0; \
                  echo x >src/.vambrace-unfinished-2/0; echo y >fine";
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, script));
    write_back(&outcome).unwrap();
    assert_eq!(changes(&outcome), ["created fine"]);
    assert!(!fixture.path("project/.vambrace-unfinished-1-1").exists());
    assert!(!fixture.path("project/src/.vambrace-unfinished-2").exists());
}
