//! All of a run's changes are taken over or none, whatever happens meanwhile.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use libtest_mimic::Trial;
use vambrace_sandbox::{Exit, Filesystem, Journaled, Places, Promote as _, PromoteFault};

use super::kit::{Room, changes, err, is_root, promote, run, start, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("crash::folders_that_are_closed_in_the_end_are_filled_before", closed_folders),
        test("crash::what_cannot_be_finished_is_not_begun", not_begun),
        test("crash::a_file_changed_while_others_are_written_is_stale", changed_while_others_are_written),
        test("crash::a_promotion_checks_again_and_writes_nothing_when_stale", promotion_checks_again),
        test("crash::a_crash_while_changes_are_taken_over_leaves_all_or_none", crash_leaves_all_or_none),
        test("crash::after_a_crash_a_later_change_of_somebody_else_stays", later_changes_stay),
        test("crash::a_folder_that_looks_like_a_journals_is_never_promoted", forged_journal),
    ]
}

// A6; as an ordinary user
fn closed_folders() {
    let room = Room::new();
    room.write("project/old/a", "a\n");
    room.write("project/old/b", "b\n");
    room.write("project/was/a", "a\n");
    let mode = |path: &str| room.path(path).metadata().unwrap().permissions().mode() & 0o777;
    std::fs::set_permissions(room.path("project/was"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let script = "mkdir -p new/in; echo x >new/in/x; chmod 555 new/in new; rm old/a; echo n >old/b; echo c >old/c; \
                  chmod 555 old; chmod 755 was; rm was/a; echo b >was/b";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    assert_eq!((outcome.exit, err(&outcome).as_str()), (Exit::Code(0), ""));
    promote(&outcome).unwrap();
    assert_eq!(room.read("project/new/in/x").as_deref(), Some("x\n"));
    assert_eq!([mode("project/new"), mode("project/new/in"), mode("project/old")], [0o555; 3]);
    assert_eq!([room.read("project/old/a"), room.read("project/was/a")], [None, None]);
    assert_eq!(room.read("project/old/c").as_deref(), Some("c\n"));
    assert_eq!(room.read("project/was/b").as_deref(), Some("b\n"));
    for folder in ["new", "new/in", "old"] {
        let path = room.path(&format!("project/{folder}"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

// A6; as an ordinary user
fn not_begun() {
    if is_root() {
        return;
    }
    let room = Room::new();
    room.write("project/was/a", "a\n");
    std::fs::set_permissions(room.path("project/was"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let before = room.listing("project");
    let script = "echo x >first; chmod 755 was; echo b >was/b; chmod 555 was";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    assert!(matches!(promote(&outcome), Err(PromoteFault::Write { written: 0, .. })));
    assert_eq!(room.listing("project"), before);
    std::fs::set_permissions(room.path("project/was"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

// A6
fn changed_while_others_are_written() {
    let room = Room::new();
    let script = "echo program >plain.txt; head -c 200000000 /dev/zero | tr '\\0' x >zz";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    assert_eq!(changes(&outcome), ["modified plain.txt", "created zz"]);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = |name: &str| name.starts_with(".vambrace-unfinished");
            let names = || std::fs::read_dir(room.project()).unwrap().map(|entry| entry.unwrap().file_name());
            while !names().any(|name| begun(&name.to_string_lossy())) && !room.path("project/zz").exists() {}
            room.write("project/plain.txt", "mine\n");
        });
        promote(&outcome)
    });
    assert!(matches!(&done, Err(PromoteFault::StaleBase(path)) if path.ends_with("plain.txt")), "{done:?}");
    assert_eq!(room.read("project/plain.txt").as_deref(), Some("mine\n"));
    assert!(!room.path("project/zz").exists());
}

fn promotion_checks_again() {
    let room = Room::new();
    let outcome = run(&room.shell(Filesystem::Speculative, "echo agent >>plain.txt; echo a >src/a.rs"));
    room.write("project/plain.txt", "user\n");
    let fault = promote(&outcome).unwrap_err();
    assert!(matches!(fault, PromoteFault::StaleBase(_)), "{fault}");
    assert_eq!(room.read("project/plain.txt").as_deref(), Some("user\n"));
    assert_eq!(room.read("project/src/a.rs"), None);
    let outcome = run(&room.shell(Filesystem::Speculative, "echo agent >new"));
    room.write("project/new", "user\n");
    assert!(matches!(promote(&outcome).unwrap_err(), PromoteFault::StaleBase(_)));
    assert_eq!(room.read("project/new").as_deref(), Some("user\n"));
}

/// How many files of each kind the promoter changes.
const MANY: usize = 150;

/// The process of [`crash_leaves_all_or_none`]: changes a project and takes that over.
pub(crate) fn promoter(room: &str) {
    let room = std::path::Path::new(room);
    let sandbox = start(&room.join("state"));
    let script = "for i in $(seq MANY); do echo new >new/$i; echo new >old/$i; rm gone/$i; done; mkdir made; ln -s x link; mv a b"
        .replace("MANY", &MANY.to_string());
    let mut spec = vambrace_sandbox::Spec::new("sh", room.join("project"));
    spec.arguments = vec!["-c".into(), script.into()];
    spec.filesystem = Filesystem::ReadWrite;
    let outcome = sandbox.run(&spec, vambrace_sandbox::Input::Nothing, &mut |_, _| {}).unwrap();
    let changes = outcome.changes.as_ref().unwrap();
    let promotion = Journaled::over(changes, sandbox.places()).unwrap();
    println!("promoting");
    std::io::stdout().flush().unwrap();
    promotion.promote(changes).unwrap();
}

/// A project for it, with its files.
fn many_files() -> Room {
    let room = Room::new();
    for number in 1..=MANY {
        room.write(&format!("project/old/{number}"), "old\n");
        let gone = format!("project/gone/{number}");
        // Some are one file with two names.
        if number % 2 == 0 {
            let other = room.path(&format!("project/gone/{}", number - 1));
            std::fs::hard_link(other, room.path(&gone)).unwrap();
        } else {
            room.write(&gone, "gone\n");
        }
    }
    std::fs::create_dir(room.path("project/new")).unwrap();
    room.write("project/a", "moves\n");
    room
}

/// Starts the promoter and ends it at a moment.
fn kill_promoter(room: &Room, when: impl Fn() -> bool) {
    use std::io::BufRead as _;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["promoter", room.path("").to_str().unwrap()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "promoting\n");
    while !when() && child.try_wait().unwrap().is_none() {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn state_of(room: &Room) -> [usize; 4] {
    let count = |folder: &str| std::fs::read_dir(room.path(folder)).unwrap().count();
    let new =
        (1..=MANY).filter(|n| room.read(&format!("project/old/{n}")).as_deref() == Some("new\n")).count();
    let others = ["project/made", "project/link", "project/b"];
    let there = others.iter().filter(|name| room.path(name).symlink_metadata().is_ok()).count();
    [count("project/new"), new, MANY - count("project/gone"), there]
}

// A6
fn crash_leaves_all_or_none() {
    let (mut all, mut none, mut recovered) = (0, 0, 0);
    // From before anything is written to after the end, and surely in the middle.
    for round in 0..15_u64 {
        let room = many_files();
        let begin = std::cell::OnceCell::new();
        let half = room.path(&format!("project/new/{}", 1 + round % 100));
        kill_promoter(&room, || match round % 3 {
            0 => half.exists(),
            _ => {
                begin.get_or_init(std::time::Instant::now).elapsed()
                    > std::time::Duration::from_micros(round * 700)
            }
        });
        recovered += Journaled::recover(&Places::below(&room.path("state")));
        match state_of(&room) {
            [0, 0, 0, 0] => none += 1,
            [MANY, MANY, MANY, 3] => all += 1,
            half => panic!("round {round}: {half:?}"),
        }
        let left = std::fs::read_dir(room.project()).unwrap().filter(|entry| {
            entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".vambrace-unfinished")
        });
        assert_eq!(left.count(), 0);
        assert_eq!(std::fs::read_dir(room.path("state/promotions")).map_or(0, Iterator::count), 0);
    }
    println!("all {all}, none {none}, recovered {recovered}");
    assert!(none > 0 && recovered > 0, "all {all}, none {none}, recovered {recovered}");
}

fn later_changes_stay() {
    // Until a kill fell between the note and the end.
    for _ in 0..30 {
        let room = many_files();
        kill_promoter(&room, || room.read("project/old/1").as_deref() == Some("new\n"));
        let [_, new, ..] = state_of(&room);
        let unfinished = new > 0 && new < MANY;
        if !unfinished {
            continue;
        }
        let untouched =
            (1..=MANY).find(|n| room.read(&format!("project/old/{n}")).as_deref() == Some("old\n"));
        let mine = format!("project/old/{}", untouched.unwrap());
        room.write(&mine, "mine\n");
        assert_eq!(Journaled::recover(&Places::below(&room.path("state"))), 1);
        assert_eq!(room.read(&mine).as_deref(), Some("mine\n"));
        let [added, new, gone, others] = state_of(&room);
        assert_eq!((added, new, gone, others), (MANY, MANY - 1, MANY, 3));
        return;
    }
    panic!("no kill fell into the middle");
}

/// What lies there is put into place by whoever recovers, so no program may leave any.
fn forged_journal() {
    let room = Room::new();
    let script = "mkdir .vambrace-unfinished-1-1 src/.vambrace-unfinished-2; echo x >.vambrace-unfinished-1-1/0; \
                  echo x >src/.vambrace-unfinished-2/0; echo y >fine";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    promote(&outcome).unwrap();
    assert_eq!(changes(&outcome), ["created fine"]);
    assert!(!room.path("project/.vambrace-unfinished-1-1").exists());
    assert!(!room.path("project/src/.vambrace-unfinished-2").exists());
}
