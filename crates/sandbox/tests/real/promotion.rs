//! What promotion keeps, and what it leaves alone.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::Trial;
use vambrace_sandbox::{Filesystem, Input, PROTECTED, SandboxFault, Spec, Why};

use super::kit::{Room, TIERS, changes, check_out, in_tier, promote, run, start, test, withheld};
use super::tiers::{become_user, check};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("promotion::what_is_mounted_below_the_workspace_is_not_touched", || {
            check("mounted-below", "mounted, all as it was\n");
        }),
        test("promotion::no_chain_of_links_leads_out_of_the_workspace", chains_of_links),
        test(
            "promotion::a_changed_file_keeps_its_group_its_attributes_and_its_access_list",
            what_a_file_keeps,
        ),
        test("promotion::what_is_too_deep_is_told_and_the_rest_taken_over", too_deep),
        test("promotion::diffs_of_one_run_are_bounded_together", diffs_are_bounded),
        test("promotion::large_files_and_lines_unlike_each_other_take_no_time", telling_takes_little_time),
        test("promotion::what_shells_editors_and_agents_heed_is_never_promoted", heeded_names),
        test(
            "promotion::hooks_and_settings_that_a_repository_names_are_never_promoted",
            named_by_a_repository,
        ),
        test(
            "promotion::a_letter_that_stands_for_a_slash_hides_no_secret_or_protected_name",
            letters_for_slashes,
        ),
        test("promotion::what_a_folder_hands_on_stays", what_a_folder_hands_on),
        test("promotion::attributes_and_other_names_that_stay_are_told", attributes_and_other_names),
    ]
}

// P4, S4: the program does not see into what is mounted there, so nothing of it is its to change
pub(crate) fn mounted_below(room: &str) -> ExitCode {
    let room = Path::new(room);
    let root = rustix::process::geteuid().is_root();
    if root {
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
    } else {
        become_user(None);
    }
    let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).unwrap();
    let project = room.join("project");
    let folders = ["sub", "deep/in/sub"].map(|name| project.join(name));
    for folder in &folders {
        std::fs::create_dir_all(folder).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", folder, "tmpfs", flags, None).unwrap();
        std::fs::create_dir(folder.join("d2")).unwrap();
        for name in ["data", "d2/e"] {
            std::fs::write(folder.join(name), "kept\n").unwrap();
        }
    }
    let sandbox = start(&room.join("state"));
    let scripts = [
        (
            Filesystem::ReadWrite,
            "rmdir sub; rm -rf deep; mkdir deep; echo x >plain.txt",
            "sub deep/in deep/in/sub",
        ),
        (
            Filesystem::ReadWrite,
            "echo y >sub/data; mkdir sub/new; rm -r deep; echo x >deep",
            "sub deep deep/in deep/in/sub",
        ),
        (Filesystem::ReadWrite, "rmdir sub; ln -s src sub; chmod 700 deep/in/sub", "sub deep/in/sub"),
        (Filesystem::ReadWrite, "rmdir sub; echo x >sub; mv deep/in/sub deep/moved", "sub deep/in/sub"),
        (
            Filesystem::Write,
            "mkdir -p sub deep/in/sub; echo y >sub/data; echo y >deep/in/sub/n",
            "sub deep/in/sub",
        ),
    ];
    let only_read = sandbox.run(&Spec::new("true", &project), Input::Nothing, &mut |_, _| {});
    assert_eq!(only_read.is_ok(), root, "{only_read:?}");
    for (filesystem, script, expected) in scripts {
        let mut spec = Spec::new("sh", &project);
        spec.arguments = vec!["-ec".into(), script.into()];
        spec.filesystem = filesystem;
        let ran = sandbox.run(&spec, Input::Nothing, &mut |_, _| {});
        if !root && filesystem != Filesystem::Write {
            // The kernel makes no overlay of another user namespace's mounts; which one it is can be read.
            let Err(SandboxFault::Mounted(place)) = ran else { panic!("{script}: {ran:?}") };
            assert_eq!(place, folders[1], "{script}");
            continue;
        }
        let outcome = ran.unwrap();
        assert_eq!(outcome.exit.code(), 0, "{script}: {}", super::kit::err(&outcome));
        let mut names: Vec<String> = withheld(&outcome).into_iter().map(|(name, _)| name).collect();
        names.retain(|name| !name.starts_with("deep/er"));
        let mut expected: Vec<&str> = expected.split(' ').collect();
        expected.sort_unstable();
        assert_eq!(names, expected, "{script}: {:?}", changes(&outcome));
        promote(&outcome).unwrap();
        for folder in &folders {
            for name in ["data", "d2/e"] {
                assert_eq!(std::fs::read_to_string(folder.join(name)).unwrap(), "kept\n", "{script}");
            }
            assert_eq!(std::fs::read_dir(folder).unwrap().count(), 2, "{script}");
        }
    }
    println!("mounted, all as it was");
    ExitCode::SUCCESS
}

// T9, P4: a link is judged with the links that it leads through, those of the user and those of other runs
fn chains_of_links() {
    for filesystem in [Filesystem::ReadWrite, Filesystem::Write] {
        let room = Room::new();
        std::os::unix::fs::symlink("../outside", room.path("project/user")).unwrap();
        std::os::unix::fs::symlink("/etc", room.path("project/.env.link")).unwrap();
        let runs = [
            // Up after a link that leads down; and where the folder becomes a link later.
            ("mkdir -p d/e/f n; ln -s ../../.. d/e/f/link; ln -s d/e/f/link/../outside/file x", "x"),
            ("ln -s n/../../outside/file later", "later"),
            ("ln -s n/../outside/file later", "later"),
            // Through links of the user's, seen and masked; through one that is made here; to a secret.
            ("ln -s user/file a; ln -s b c; ln -s user b; ln -s c/file e", "a b c e"),
            ("ln -s .env.link/passwd m; mkdir p; ln -s ../.env p/env; ln -s ../.env.link p/l", "m p/env p/l"),
            ("ln -s loop loop; ln -s /proc/self/cwd/../outside/file q; ln -s .. r", "loop q r"),
        ];
        for (script, expected) in runs {
            let outcome = run(&room.shell(filesystem, script));
            check_out(&outcome, "");
            let names: Vec<String> = withheld(&outcome).into_iter().map(|(name, _)| name).collect();
            let by_view = |name: &&str| filesystem == Filesystem::ReadWrite || !["c", "e"].contains(name);
            let expected: Vec<&str> = expected.split(' ').filter(by_view).collect();
            assert_eq!(names, expected, "{filesystem:?} {script}: {:?}", changes(&outcome));
            promote(&outcome).unwrap();
        }
        let outside = room.path("outside").canonicalize().unwrap();
        for name in ["x", "later", "a", "b", "c", "e", "m", "p/env", "p/l", "loop", "q", "r"] {
            let found = room.project().join(name).canonicalize();
            assert!(!found.is_ok_and(|found| found.starts_with(&outside)), "{filesystem:?} {name}");
        }
        // What stays inside is taken over.
        let outcome = run(&room.shell(
            filesystem,
            "mkdir -p d; ln -s ../src d/to; ln -s d/to/main.rs far; ln -s nowhere dangling",
        ));
        assert_eq!(withheld(&outcome), [] as [(String, Why); 0]);
        promote(&outcome).unwrap();
        assert_eq!(room.read("project/far").as_deref(), Some("fn main() {}\n"));
    }
}

const NOTE: &str = "user.note";

/// A group that the user may give files to.
fn another_group() -> Option<u32> {
    let own = rustix::process::getegid().as_raw();
    let groups = rustix::process::getgroups().unwrap();
    match rustix::process::geteuid().is_root() {
        true => Some(4321),
        false => groups.into_iter().map(rustix::process::Gid::as_raw).find(|group| *group != own),
    }
}

fn note(path: &Path, value: &str) {
    rustix::fs::setxattr(path, NOTE, value.as_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 256];
    let length = rustix::fs::getxattr(path, name, &mut value).ok()?;
    Some(value[..length].to_vec())
}

/// Owner, one user by number, group, mask, others: version 2 of the kernel's form.
fn access_list() -> Vec<u8> {
    // The kernel copies no list into an ordinary user's overlay that names somebody else.
    let user = rustix::process::geteuid().as_raw();
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, rights, whose) in
        [(1u16, 6u16, u32::MAX), (2, 6, user), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)]
    {
        list.extend(tag.to_le_bytes().into_iter().chain(rights.to_le_bytes()).chain(whose.to_le_bytes()));
    }
    list
}

// P4
fn what_a_file_keeps() {
    let room = Room::new();
    let file = room.path("project/plain.txt");
    note(&file, "of the user");
    let group = another_group();
    chown(&file, None, group).unwrap();
    let list = "system.posix_acl_access";
    let listed = rustix::fs::setxattr(&file, list, &access_list(), rustix::fs::XattrFlags::empty()).is_ok();
    let (before, mode) = (attribute(&file, list), file.metadata().unwrap().mode());
    assert_eq!(listed, before.is_some());
    let outcome = run(&room.shell(Filesystem::ReadWrite, "echo more >>plain.txt"));
    check_out(&outcome, "");
    assert_eq!((changes(&outcome), withheld(&outcome)), (vec!["modified plain.txt".to_owned()], vec![]));
    promote(&outcome).unwrap();
    assert_eq!(room.read("project/plain.txt").as_deref(), Some("plain\nmore\n"));
    assert_eq!(attribute(&file, NOTE).as_deref(), Some(&b"of the user"[..]));
    let facts = file.metadata().unwrap();
    assert_eq!((facts.mode(), attribute(&file, list)), (mode, before));
    assert!(group.is_none_or(|group| facts.gid() == group), "{group:?} became {}", facts.gid());
}

// P4
fn what_a_folder_hands_on() {
    let room = Room::new();
    let folder = room.path("project/shared");
    std::fs::create_dir(&folder).unwrap();
    chown(&folder, None, another_group()).unwrap();
    let group = folder.metadata().unwrap().gid();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o3775)).unwrap();
    // With fewer digits `chmod` would ask for the set-group bit again, which nobody gets in there.
    let script = "chmod 00750 shared; mkdir -p shared/new; echo x >shared/file; ln -s file shared/link";
    promote(&run(&room.shell(Filesystem::ReadWrite, script))).unwrap();
    assert_eq!(folder.metadata().unwrap().mode() & 0o7777, 0o3750);
    assert_eq!(folder.join("new").metadata().unwrap().mode() & 0o7000, 0o2000);
    for name in ["", "new", "file", "link"] {
        assert_eq!(folder.join(name).symlink_metadata().unwrap().gid(), group, "{name}");
    }
    assert_eq!(folder.join("file").metadata().unwrap().mode() & 0o7000, 0);
}

// P4
fn attributes_and_other_names() {
    let room = Room::new();
    let at = |name: &str| room.path("project").join(name);
    std::fs::create_dir(at("folder")).unwrap();
    for name in ["folder", "plain.txt", "src/main.rs"] {
        note(&at(name), "of the user");
    }
    for name in ["one", "two"] {
        room.write(&format!("outside/{name}"), "x\n");
        std::fs::hard_link(room.path("outside").join(name), at(name)).unwrap();
    }
    // The same content and mode, and no attributes any more.
    let script = "cp plain.txt t; rm plain.txt; mv t plain.txt; rmdir folder; mkdir folder; echo y >>one; chmod 777 two; \
                  echo >>src/main.rs";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    check_out(&outcome, "");
    assert_eq!(changes(&outcome), ["modified one", "modified src/main.rs"]);
    let told = |name: &str, why| (name.to_owned(), why);
    let expected = [
        told("folder", Why::Attributes),
        told("one", Why::OtherNames),
        told("plain.txt", Why::Attributes),
        told("two", Why::OtherNames),
    ];
    assert_eq!(withheld(&outcome), expected);
    promote(&outcome).unwrap();
    for name in ["folder", "plain.txt", "src/main.rs"] {
        assert_eq!(attribute(&at(name), NOTE).as_deref(), Some(&b"of the user"[..]), "{name}");
    }
    assert_eq!(room.read("outside/one").as_deref(), Some("x\n"));
    assert_eq!(room.path("outside/two").metadata().unwrap().mode() & 0o777, 0o644);
}

// P4, T12: no path of the kernel's is that long, so it is neither compared nor shown
fn too_deep() {
    let name = "n".repeat(200);
    let room = Room::new();
    let script = |rest: &str| {
        format!("i=0; while [ $i -lt 25 ]; do mkdir -p {name}; cd -P {name}; i=$((i+1)); done; {rest}")
    };
    let own = script("echo x >../file");
    for filesystem in [Filesystem::ReadWrite, Filesystem::Write] {
        let outcome = run(&room.shell(filesystem, &format!("base=$PWD; {own}; cd $base; echo x >new")));
        assert_eq!(outcome.exit.code(), 0, "{}", super::kit::err(&outcome));
        let told = withheld(&outcome);
        assert_eq!(told.iter().map(|(_, why)| *why).collect::<Vec<_>>(), [Why::TooDeep], "{filesystem:?}");
        assert!(changes(&outcome).contains(&"created new".to_owned()), "{filesystem:?}");
        promote(&outcome).unwrap();
        std::fs::remove_file(room.path("project/new")).unwrap();
        std::fs::remove_dir_all(room.project().join(&name)).unwrap();
    }
    // The user's own: a secret so far down is not shown, and what is there stays.
    let mut make = std::process::Command::new("sh");
    make.arg("-ec").arg(script("echo in-the-deep-file >.env")).current_dir(room.project());
    assert!(make.status().unwrap().success());
    let look = format!(
        "base=$PWD; while cd -P {name} 2>/dev/null; do :; done; cat .env; cd \"$base\"; rm -rf {name}; echo x >new"
    );
    for tier in TIERS {
        let outcome = run(&in_tier(room.shell(Filesystem::Read, &look), tier));
        assert_eq!(super::kit::out(&outcome), "", "{tier}");
    }
    let outcome = run(&room.shell(Filesystem::ReadWrite, &look));
    assert_eq!(super::kit::out(&outcome), "");
    assert!(withheld(&outcome).iter().any(|(path, why)| *path == name && *why == Why::NotEmpty));
    promote(&outcome).unwrap();
    assert!(room.project().join("new").exists());
    let mut check = std::process::Command::new("sh");
    check.arg("-ec").arg(script("cat .env")).current_dir(room.project());
    assert_eq!(check.output().unwrap().stdout, b"in-the-deep-file\n");
}

// P9: what a program wrote is told in a bounded report
fn diffs_are_bounded() {
    let room = Room::new();
    let script = "i=10; while [ $i -lt 30 ]; do head -c 900000 /dev/zero | tr '\\0' 'x' >big$i; i=$((i+1)); done; \
                  head -c 900000 /dev/zero >binary; echo small >small";
    let outcome = run(&room.shell(Filesystem::Speculative, script));
    check_out(&outcome, "");
    let changes = outcome.changes.as_ref().unwrap();
    let mut diffs = changes.diffs();
    let told: Vec<String> = changes.list.iter().map(|change| diffs.next(change).1).collect();
    assert!(told.iter().map(String::len).sum::<usize>() < 9 << 20);
    let whole = told.iter().filter(|diff| diff.len() > 900_000).count();
    let left_out: Vec<_> = told.iter().filter(|diff| diff.contains("diff left out")).collect();
    assert_eq!((told.len(), whole, left_out.len()), (22, 9, 11));
    assert!(left_out[0].starts_with("created big19: nothing -> 900000 bytes sha256:"), "{}", left_out[0]);
    // What still fits is told whole.
    let head = "diff --git a/small b/small\nnew file mode 100644\n--- /dev/null\n+++ b/small\n";
    assert_eq!(told[21], format!("{head}@@ -0,0 +1 @@\n+small\n"));
}

// P9: a program that has ended costs no more time, however large its files look and however little their lines are alike
fn telling_takes_little_time() {
    let room = Room::new();
    for name in 0..30 {
        room.write(&format!("project/sparse{name}"), "x");
    }
    let sparse = |name: &str, size: u64| {
        room.write(name, "");
        std::fs::File::options().write(true).open(room.path(name)).unwrap().set_len(size).unwrap();
    };
    sparse("project/gone", 1 << 28);
    (0..30).for_each(|name| sparse(&format!("project/same{name}"), 1 << 30));
    // Lines that are alike here and there, and nowhere in order.
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{}\n", (seed >> 33) % 5_000)
    };
    let mut lines = || (0..200_000).map(|_| random()).collect::<String>();
    room.write("project/lines", &lines());
    room.write("outside/lines", &lines());
    let mut spec = room.shell(
        Filesystem::Speculative,
        "for i in $(seq 0 29); do truncate -s 1023M sparse$i new$i; truncate -s 256M like$i; chmod 200 new$i; touch same$i; done; \
         rm gone; chmod 600 same1; printf x | dd of=same2 bs=1 seek=1000000000 conv=notrunc 2>/dev/null; \
         cat ../outside/lines >lines; echo x >z",
    );
    spec.read = vec![room.path("outside")];
    let outcome = run(&spec);
    check_out(&outcome, "");
    let began = std::time::Instant::now();
    let changes = outcome.changes.as_ref().unwrap();
    let mut diffs = changes.diffs();
    let told: Vec<_> = changes.list.iter().map(|change| diffs.next(change)).collect();
    assert!(outcome.duration.as_secs() + began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    let of = |name: &str| told.iter().find(|(change, _)| change.path.as_os_str() == name).unwrap();
    let (change, text) = of("sparse0");
    assert_eq!(change.after.as_ref().unwrap().hash, None);
    assert!(change.before.as_ref().unwrap().hash.is_some());
    assert!(text.ends_with(" -> 1072693248 bytes\n"), "{text}");
    let (change, text) = of("lines");
    assert!(change.after.as_ref().unwrap().hash.is_some());
    assert!(text.ends_with(" (diff left out: too many lines that differ)\n"), "{text}");
    let moved = |name: usize| of(&format!("like{name}")).0.kind.as_str() == "renamed";
    assert_eq!((0..30).filter(|name| moved(*name)).count(), 1);
    assert!(of("z").1.ends_with("+x\n"));
    let same: Vec<_> =
        changes.list.iter().filter(|change| change.path.display().to_string().starts_with("same")).collect();
    let same: Vec<_> =
        same.iter().map(|change| (change.path.to_str().unwrap(), change.kind.as_str())).collect();
    assert_eq!(same, [("same1", "mode"), ("same2", "modified")]);
}

// P4
fn heeded_names() {
    let names = ".aider.conf.yml .bash_aliases .config/fish/config.fish .continue/config.yaml .crush.json .cshrc .emacs .emacs.d/init.el \
                 .exrc .gvimrc .helix/config.toml .hg/hgrc .jj/repo/config.toml .kshrc .login .lvimrc .opencode/x .tcshrc .vs/tasks.vs.json \
                 a.sublime-project opencode.json .amazonq/cli-agents/x.json .augment/settings.json .copilot/mcp-config.json .devcontainer.json \
                 .factory/settings.json .ghci .github/hooks/x.json .irbrc .kiro/hooks/x .roomodes .Rprofile .pdbrc .qwen/settings.json \
                 .config/mise.toml .mise.local.toml mise.toml lefthook.yml .pre-commit-config.yaml .xprofile \
                 .dir-locals-2.el .sl/config .git/sl/config .hg/hgrc-not-shared .hg/sharedpath .hg/requires .ocamlinit .rdbgrc .rdbgrc.rb .byebugrc \
                 .Renviron .RData .perldb";
    let names: Vec<&str> = names.split_whitespace().collect();
    let room = Room::new();
    let script = format!(
        "for n in {}; do for d in . d/e; do mkdir -p $(dirname $d/$n); echo x >$d/$n; done; done",
        names.join(" ")
    );
    let outcome = run(&room.shell(Filesystem::ReadWrite, &script));
    check_out(&outcome, "");
    promote(&outcome).unwrap();
    for name in names {
        for folder in ["project", "project/d/e"] {
            assert_eq!(room.read(&format!("{folder}/{name}")), None, "{folder}/{name}");
        }
    }
    let bare = |name: &&str| name.trim_start_matches("**/").trim_start_matches('*').to_owned();
    assert!(PROTECTED.iter().map(bare).is_sorted(), "what is sorted is found again");
}

// T12, P4: some file systems fold names; so `\u{ff0f}` is a slash, and `\u{2100}` has one in it
fn letters_for_slashes() {
    let room = Room::new();
    let script = "mkdir -p d/e; for f in . d d/e; do echo x >$f/.env\u{ff0f}x; echo x >$f/.mcp.json\u{ff0f}x; echo x >$f/\u{2100}; done";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    check_out(&outcome, "");
    let mut expected = Vec::new();
    for folder in ["", "d/", "d/e/"] {
        expected.push((format!("{folder}.env\u{ff0f}x"), Why::Masked));
        expected.push((format!("{folder}.mcp.json\u{ff0f}x"), Why::Protected));
    }
    assert_eq!(withheld(&outcome), expected);
    let created =
        ["created d", "created d/e", "created d/e/\u{2100}", "created d/\u{2100}", "created \u{2100}"];
    assert_eq!(changes(&outcome), created);
}

// P4: settings that git reads from files of the project, and hooks in folders that settings name
fn named_by_a_repository() {
    let room = Room::new();
    let outer = room.path("");
    room.write(".git/config", "[core]\n\thooksPath = project/outer-hooks ; of the one around\n");
    room.write("project/.git/config", "[include]\n\tpath = ../shared.ini # all of us\n[includeIf \"gitdir:/x\"] path = \"../more\\\n.ini\"\n");
    room.write("project/shared.ini", "[include]\npath = conf/deep.ini\n");
    room.write("project/conf/deep.ini", "[core]\nhooksPath = by-include\n");
    room.write("project/nested/.git/config", "[core]\nhooksPath = ci/hooks\n");
    // A submodule and a working tree of a repository somewhere else.
    room.write("project/module/.git", "gitdir: ../.git/modules/module\n");
    room.write("project/.git/modules/module/config", "[core]\nhooksPath = run\n");
    room.write(
        "project/tree/.git",
        &format!("gitdir: {}\n", outer.join("outside/main/worktrees/t").display()),
    );
    room.write("outside/main/worktrees/t/commondir", "../..\n");
    room.write("outside/main/config", "[core]\nhooksPath = run\n");
    let protected = "outer-hooks/pre-commit shared.ini more.ini conf/deep.ini by-include/x nested/ci/hooks/pre-push module/run/update tree/run/update";
    let free = "nested/ci/x ci/hooks/x run/x conf/x nested/by-include/x module/x";
    for filesystem in [Filesystem::ReadWrite, Filesystem::Write] {
        let script = format!("for n in {protected} {free}; do mkdir -p $(dirname $n); echo agent >$n; done");
        let outcome = run(&room.shell(filesystem, &script));
        check_out(&outcome, "");
        promote(&outcome).unwrap();
        let taken = |name: &str| room.read(&format!("project/{name}")).as_deref() == Some("agent\n");
        for name in protected.split(' ') {
            assert!(!taken(name), "{filesystem:?} {name}");
        }
        for name in free.split(' ') {
            assert!(taken(name), "{filesystem:?} {name}: {:?}", withheld(&outcome));
            std::fs::remove_file(room.project().join(name)).unwrap();
        }
    }
}
