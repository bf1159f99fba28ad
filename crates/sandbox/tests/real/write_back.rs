//! What a write-back keeps, and what it leaves alone.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::Trial;
use vambrace_core::risk::SELF_RUNNING;
use vambrace_sandbox::{Filesystem, Input, SandboxError, Spec, WithheldReason};

use super::harness::{
    TIERS, TestProject, changes, check_out, in_tier, run, start, test, withheld, write_back,
};
use super::tiers::{become_user, check};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test(
            "write_back::mounts_below_the_workspace_are_not_touched",
            mounts_below_the_workspace_are_not_touched,
        ),
        test(
            "write_back::no_chain_of_symlinks_leads_out_of_the_workspace",
            no_chain_of_symlinks_leads_out_of_the_workspace,
        ),
        test(
            "write_back::changed_file_keeps_group_attributes_and_acl",
            changed_file_keeps_group_attributes_and_acl,
        ),
        test(
            "write_back::too_long_path_is_withheld_and_the_rest_written_back",
            too_long_path_is_withheld_and_the_rest_written_back,
        ),
        test("write_back::diffs_of_one_run_are_bounded_in_total", diffs_of_one_run_are_bounded_in_total),
        test(
            "write_back::sparse_files_and_unrelated_lines_are_compared_quickly",
            sparse_files_and_unrelated_lines_are_compared_quickly,
        ),
        test(
            "write_back::config_of_shells_editors_and_agents_is_never_written_back",
            config_of_shells_editors_and_agents_is_never_written_back,
        ),
        test(
            "write_back::hooks_and_includes_named_by_git_config_are_never_written_back",
            hooks_and_includes_named_by_git_config_are_never_written_back,
        ),
        test(
            "write_back::unicode_slash_hides_no_secret_or_protected_name",
            unicode_slash_hides_no_secret_or_protected_name,
        ),
        test(
            "write_back::setgid_and_sticky_bits_of_a_directory_stay",
            setgid_and_sticky_bits_of_a_directory_stay,
        ),
        test(
            "write_back::withheld_attributes_and_hard_links_are_reported",
            withheld_attributes_and_hard_links_are_reported,
        ),
    ]
}

// P4, S4: the program cannot see into the mounts, so it must not change anything in them
fn mounts_below_the_workspace_are_not_touched() {
    check("mounted-below", "mounted, all as it was\n");
}

/// Mounts file systems below the workspace and runs programs that try to change them.
pub(crate) fn with_mounts_below(fixture: &str) -> ExitCode {
    let fixture = Path::new(fixture);
    let root = rustix::process::geteuid().is_root();
    if root {
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
    } else {
        become_user(None);
    }
    let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).unwrap();
    let project = fixture.join("project");
    let dirs = ["sub", "deep/in/sub"].map(|name| project.join(name));
    for dir in &dirs {
        std::fs::create_dir_all(dir).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", dir, "tmpfs", flags, None).unwrap();
        std::fs::create_dir(dir.join("d2")).unwrap();
        for name in ["data", "d2/e"] {
            std::fs::write(dir.join(name), "kept\n").unwrap();
        }
    }
    let sandbox = start(&fixture.join("state"));
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
            // The kernel makes no overlay over mounts of another user namespace; the error names the mount.
            let Err(SandboxError::Mounted(place)) = ran else { panic!("{script}: {ran:?}") };
            assert_eq!(place, dirs[1], "{script}");
            continue;
        }
        let outcome = ran.unwrap();
        assert_eq!(outcome.exit.code(), 0, "{script}: {}", super::harness::err(&outcome));
        let mut names: Vec<String> = withheld(&outcome).into_iter().map(|(name, _)| name).collect();
        names.retain(|name| !name.starts_with("deep/er"));
        let mut expected: Vec<&str> = expected.split(' ').collect();
        expected.sort_unstable();
        assert_eq!(names, expected, "{script}: {:?}", changes(&outcome));
        write_back(&outcome).unwrap();
        for dir in &dirs {
            for name in ["data", "d2/e"] {
                assert_eq!(std::fs::read_to_string(dir.join(name)).unwrap(), "kept\n", "{script}");
            }
            assert_eq!(std::fs::read_dir(dir).unwrap().count(), 2, "{script}");
        }
    }
    println!("mounted, all as it was");
    ExitCode::SUCCESS
}

// T9, P4: a symlink is judged together with those that it leads through, of the user and of other runs
fn no_chain_of_symlinks_leads_out_of_the_workspace() {
    for filesystem in [Filesystem::ReadWrite, Filesystem::Write] {
        let fixture = TestProject::new();
        std::os::unix::fs::symlink("../outside", fixture.path("project/user")).unwrap();
        std::os::unix::fs::symlink("/etc", fixture.path("project/.env.link")).unwrap();
        let runs = [
            // `..` after a symlink that leads down; and after a directory that becomes a symlink later.
            ("mkdir -p d/e/f n; ln -s ../../.. d/e/f/link; ln -s d/e/f/link/../outside/file x", "x"),
            ("ln -s n/../../outside/file later", "later"),
            ("ln -s n/../outside/file later", "later"),
            // Through symlinks of the user, visible and masked; through one that is created here; to a secret.
            ("ln -s user/file a; ln -s b c; ln -s user b; ln -s c/file e", "a b c e"),
            ("ln -s .env.link/passwd m; mkdir p; ln -s ../.env p/env; ln -s ../.env.link p/l", "m p/env p/l"),
            ("ln -s loop loop; ln -s /proc/self/cwd/../outside/file q; ln -s .. r", "loop q r"),
        ];
        for (script, expected) in runs {
            let outcome = run(&fixture.shell(filesystem, script));
            check_out(&outcome, "");
            let names: Vec<String> = withheld(&outcome).into_iter().map(|(name, _)| name).collect();
            let by_view = |name: &&str| filesystem == Filesystem::ReadWrite || !["c", "e"].contains(name);
            let expected: Vec<&str> = expected.split(' ').filter(by_view).collect();
            assert_eq!(names, expected, "{filesystem:?} {script}: {:?}", changes(&outcome));
            write_back(&outcome).unwrap();
        }
        let outside = fixture.path("outside").canonicalize().unwrap();
        for name in ["x", "later", "a", "b", "c", "e", "m", "p/env", "p/l", "loop", "q", "r"] {
            let found = fixture.project().join(name).canonicalize();
            assert!(!found.is_ok_and(|found| found.starts_with(&outside)), "{filesystem:?} {name}");
        }
        // Symlinks that stay inside are written back.
        let outcome = run(&fixture.shell(
            filesystem,
            "mkdir -p d; ln -s ../src d/to; ln -s d/to/main.rs far; ln -s nowhere dangling",
        ));
        assert_eq!(withheld(&outcome), [] as [(String, WithheldReason); 0]);
        write_back(&outcome).unwrap();
        assert_eq!(fixture.read("project/far").as_deref(), Some("fn main() {}\n"));
    }
}

const NOTE: &str = "user.note";

/// Another group that the user may set on files.
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

/// An ACL with owner, one user by UID, group, mask, others, in version 2 of the kernel's format.
fn access_list() -> Vec<u8> {
    // The kernel does not copy an ACL that names another user into an ordinary user's overlay.
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
fn changed_file_keeps_group_attributes_and_acl() {
    let fixture = TestProject::new();
    let file = fixture.path("project/plain.txt");
    note(&file, "of the user");
    let group = another_group();
    chown(&file, None, group).unwrap();
    let list = "system.posix_acl_access";
    let listed = rustix::fs::setxattr(&file, list, &access_list(), rustix::fs::XattrFlags::empty()).is_ok();
    let (before, mode) = (attribute(&file, list), file.metadata().unwrap().mode());
    assert_eq!(listed, before.is_some());
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, "echo more >>plain.txt"));
    check_out(&outcome, "");
    assert_eq!((changes(&outcome), withheld(&outcome)), (vec!["modified plain.txt".to_owned()], vec![]));
    write_back(&outcome).unwrap();
    assert_eq!(fixture.read("project/plain.txt").as_deref(), Some("plain\nmore\n"));
    assert_eq!(attribute(&file, NOTE).as_deref(), Some(&b"of the user"[..]));
    let facts = file.metadata().unwrap();
    assert_eq!((facts.mode(), attribute(&file, list)), (mode, before));
    assert!(group.is_none_or(|group| facts.gid() == group), "{group:?} became {}", facts.gid());
}

// P4
fn setgid_and_sticky_bits_of_a_directory_stay() {
    let fixture = TestProject::new();
    let dir = fixture.path("project/shared");
    std::fs::create_dir(&dir).unwrap();
    chown(&dir, None, another_group()).unwrap();
    let group = dir.metadata().unwrap().gid();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o3775)).unwrap();
    // With fewer digits `chmod` would keep the setgid bit, which the sandbox denies.
    let script = "chmod 00750 shared; mkdir -p shared/new; echo x >shared/file; ln -s file shared/link";
    write_back(&run(&fixture.shell(Filesystem::ReadWrite, script))).unwrap();
    assert_eq!(dir.metadata().unwrap().mode() & 0o7777, 0o3750);
    assert_eq!(dir.join("new").metadata().unwrap().mode() & 0o7000, 0o2000);
    for name in ["", "new", "file", "link"] {
        assert_eq!(dir.join(name).symlink_metadata().unwrap().gid(), group, "{name}");
    }
    assert_eq!(dir.join("file").metadata().unwrap().mode() & 0o7000, 0);
}

// P4
fn withheld_attributes_and_hard_links_are_reported() {
    let fixture = TestProject::new();
    let at = |name: &str| fixture.path("project").join(name);
    std::fs::create_dir(at("dir")).unwrap();
    for name in ["dir", "plain.txt", "src/main.rs"] {
        note(&at(name), "of the user");
    }
    for name in ["one", "two"] {
        fixture.write(&format!("outside/{name}"), "x\n");
        std::fs::hard_link(fixture.path("outside").join(name), at(name)).unwrap();
    }
    // The same content and mode, but the attributes are gone.
    let script = "cp plain.txt t; rm plain.txt; mv t plain.txt; rmdir dir; mkdir dir; echo y >>one; chmod 777 two; \
                  echo >>src/main.rs";
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, script));
    check_out(&outcome, "");
    assert_eq!(changes(&outcome), ["modified one", "modified src/main.rs"]);
    let reported = |name: &str, why| (name.to_owned(), why);
    let expected = [
        reported("dir", WithheldReason::Attributes),
        reported("one", WithheldReason::OtherNames),
        reported("plain.txt", WithheldReason::Attributes),
        reported("two", WithheldReason::OtherNames),
    ];
    assert_eq!(withheld(&outcome), expected);
    write_back(&outcome).unwrap();
    for name in ["dir", "plain.txt", "src/main.rs"] {
        assert_eq!(attribute(&at(name), NOTE).as_deref(), Some(&b"of the user"[..]), "{name}");
    }
    assert_eq!(fixture.read("outside/one").as_deref(), Some("x\n"));
    assert_eq!(fixture.path("outside/two").metadata().unwrap().mode() & 0o777, 0o644);
}

// P4, T12: the kernel accepts no path that long, so the entry is neither compared nor visible
fn too_long_path_is_withheld_and_the_rest_written_back() {
    let name = "n".repeat(200);
    let fixture = TestProject::new();
    let script = |rest: &str| {
        format!("i=0; while [ $i -lt 25 ]; do mkdir -p {name}; cd -P {name}; i=$((i+1)); done; {rest}")
    };
    let own = script("echo x >../file");
    for filesystem in [Filesystem::ReadWrite, Filesystem::Write] {
        let outcome = run(&fixture.shell(filesystem, &format!("base=$PWD; {own}; cd $base; echo x >new")));
        assert_eq!(outcome.exit.code(), 0, "{}", super::harness::err(&outcome));
        let reported = withheld(&outcome);
        assert_eq!(
            reported.iter().map(|(_, why)| *why).collect::<Vec<_>>(),
            [WithheldReason::TooDeep],
            "{filesystem:?}"
        );
        assert!(changes(&outcome).contains(&"created new".to_owned()), "{filesystem:?}");
        write_back(&outcome).unwrap();
        std::fs::remove_file(fixture.path("project/new")).unwrap();
        std::fs::remove_dir_all(fixture.project().join(&name)).unwrap();
    }
    // The user's own: a secret that deep is masked, and what is there stays.
    let mut make = std::process::Command::new("sh");
    make.arg("-ec").arg(script("echo in-the-deep-file >.env")).current_dir(fixture.project());
    assert!(make.status().unwrap().success());
    let look = format!(
        "base=$PWD; while cd -P {name} 2>/dev/null; do :; done; cat .env; cd \"$base\"; rm -rf {name}; echo x >new"
    );
    for tier in TIERS {
        let outcome = run(&in_tier(fixture.shell(Filesystem::Read, &look), tier));
        assert_eq!(super::harness::out(&outcome), "", "{tier}");
    }
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, &look));
    assert_eq!(super::harness::out(&outcome), "");
    assert!(withheld(&outcome).iter().any(|(path, why)| *path == name && *why == WithheldReason::NotEmpty));
    write_back(&outcome).unwrap();
    assert!(fixture.project().join("new").exists());
    let mut check = std::process::Command::new("sh");
    check.arg("-ec").arg(script("cat .env")).current_dir(fixture.project());
    assert_eq!(check.output().unwrap().stdout, b"in-the-deep-file\n");
}

// P9: the report of what a program wrote is bounded
fn diffs_of_one_run_are_bounded_in_total() {
    let fixture = TestProject::new();
    let script = "i=10; while [ $i -lt 30 ]; do head -c 900000 /dev/zero | tr '\\0' 'x' >big$i; i=$((i+1)); done; \
                  head -c 900000 /dev/zero >binary; echo small >small";
    let outcome = run(&fixture.shell(Filesystem::Speculative, script));
    check_out(&outcome, "");
    let changes = outcome.changes.as_ref().unwrap();
    let mut diffs = changes.diffs();
    let reported: Vec<String> = changes.list.iter().map(|change| diffs.next(change).1).collect();
    assert!(reported.iter().map(String::len).sum::<usize>() < 9 << 20);
    let whole = reported.iter().filter(|diff| diff.len() > 900_000).count();
    let left_out: Vec<_> = reported.iter().filter(|diff| diff.contains("diff omitted")).collect();
    assert_eq!((reported.len(), whole, left_out.len()), (22, 9, 11));
    assert!(left_out[0].starts_with("created big19: nothing -> 900000 bytes sha256:"), "{}", left_out[0]);
    // A diff that still fits is complete.
    let head = "diff --git a/small b/small\nnew file mode 100644\n--- /dev/null\n+++ b/small\n";
    assert_eq!(reported[21], format!("{head}@@ -0,0 +1 @@\n+small\n"));
}

// P9: comparing takes little time, however large sparse files are and however unrelated their lines
fn sparse_files_and_unrelated_lines_are_compared_quickly() {
    let fixture = TestProject::new();
    for name in 0..30 {
        fixture.write(&format!("project/sparse{name}"), "x");
    }
    let sparse = |name: &str, size: u64| {
        fixture.write(name, "");
        std::fs::File::options().write(true).open(fixture.path(name)).unwrap().set_len(size).unwrap();
    };
    sparse("project/gone", 1 << 28);
    (0..30).for_each(|name| sparse(&format!("project/same{name}"), 1 << 30));
    // Lines that occur in both files, but never in the same order.
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{}\n", (seed >> 33) % 5_000)
    };
    let mut lines = || (0..200_000).map(|_| random()).collect::<String>();
    fixture.write("project/lines", &lines());
    fixture.write("outside/lines", &lines());
    let mut spec = fixture.shell(
        Filesystem::Speculative,
        "for i in $(seq 0 29); do truncate -s 1023M sparse$i new$i; truncate -s 256M like$i; chmod 200 new$i; touch same$i; done; \
         rm gone; chmod 600 same1; printf x | dd of=same2 bs=1 seek=1000000000 conv=notrunc 2>/dev/null; \
         cat ../outside/lines >lines; echo x >z",
    );
    spec.read = vec![fixture.path("outside")];
    let outcome = run(&spec);
    check_out(&outcome, "");
    let began = std::time::Instant::now();
    let changes = outcome.changes.as_ref().unwrap();
    let mut diffs = changes.diffs();
    let reported: Vec<_> = changes.list.iter().map(|change| diffs.next(change)).collect();
    assert!(outcome.duration.as_secs() + began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    let of = |name: &str| reported.iter().find(|(change, _)| change.path.as_os_str() == name).unwrap();
    let (change, text) = of("sparse0");
    assert_eq!(change.after.as_ref().unwrap().hash, None);
    assert!(change.before.as_ref().unwrap().hash.is_some());
    assert!(text.ends_with(" -> 1072693248 bytes\n"), "{text}");
    let (change, text) = of("lines");
    assert!(change.after.as_ref().unwrap().hash.is_some());
    assert!(text.ends_with(" (diff omitted: too many changed lines)\n"), "{text}");
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
fn config_of_shells_editors_and_agents_is_never_written_back() {
    let names = ".aider.conf.yml .bash_aliases .config/fish/config.fish .continue/config.yaml .crush.json .cshrc .emacs .emacs.d/init.el \
                 .exrc .gvimrc .helix/config.toml .hg/hgrc .jj/repo/config.toml .kshrc .login .lvimrc .opencode/x .tcshrc .vs/tasks.vs.json \
                 a.sublime-project opencode.json .amazonq/cli-agents/x.json .augment/settings.json .copilot/mcp-config.json .devcontainer.json \
                 .factory/settings.json .ghci .github/hooks/x.json .irbrc .kiro/hooks/x .roomodes .Rprofile .pdbrc .qwen/settings.json \
                 .config/mise.toml .mise.local.toml mise.toml lefthook.yml .pre-commit-config.yaml .xprofile \
                 .dir-locals-2.el .sl/config .git/sl/config .hg/hgrc-not-shared .hg/sharedpath .hg/requires .ocamlinit .rdbgrc .rdbgrc.rb .byebugrc \
                 .Renviron .RData .perldb";
    let names: Vec<&str> = names.split_whitespace().collect();
    let fixture = TestProject::new();
    let script = format!(
        "for n in {}; do for d in . d/e; do mkdir -p $(dirname $d/$n); echo x >$d/$n; done; done",
        names.join(" ")
    );
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, &script));
    check_out(&outcome, "");
    write_back(&outcome).unwrap();
    for name in names {
        for dir in ["project", "project/d/e"] {
            assert_eq!(fixture.read(&format!("{dir}/{name}")), None, "{dir}/{name}");
        }
    }
    assert!(
        Spec::new("true", fixture.project())
            .protected
            .iter()
            .map(String::as_str)
            .eq(SELF_RUNNING.protected())
    );
}

// T12, P4: some file systems normalize names: `\u{ff0f}` becomes a slash, and `\u{2100}` contains one
fn unicode_slash_hides_no_secret_or_protected_name() {
    let fixture = TestProject::new();
    let script = "mkdir -p d/e; for f in . d d/e; do echo x >$f/.env\u{ff0f}x; echo x >$f/.mcp.json\u{ff0f}x; echo x >$f/\u{2100}; done";
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, script));
    check_out(&outcome, "");
    let mut expected = Vec::new();
    for dir in ["", "d/", "d/e/"] {
        expected.push((format!("{dir}.env\u{ff0f}x"), WithheldReason::Masked));
        expected.push((format!("{dir}.mcp.json\u{ff0f}x"), WithheldReason::Protected));
    }
    assert_eq!(withheld(&outcome), expected);
    let created =
        ["created d", "created d/e", "created d/e/\u{2100}", "created d/\u{2100}", "created \u{2100}"];
    assert_eq!(changes(&outcome), created);
}

// P4: config that git includes from files of the project, and hooks in configured directories
fn hooks_and_includes_named_by_git_config_are_never_written_back() {
    let fixture = TestProject::new();
    let outer = fixture.path("");
    fixture.write(".git/config", "[core]\n\thooksPath = project/outer-hooks ; of the one around\n");
    fixture.write("project/.git/config", "[include]\n\tpath = ../shared.ini # all of us\n[includeIf \"gitdir:/x\"] path = \"../more\\\n.ini\"\n");
    fixture.write("project/shared.ini", "[include]\npath = conf/deep.ini\n");
    fixture.write("project/conf/deep.ini", "[core]\nhooksPath = by-include\n");
    fixture.write("project/nested/.git/config", "[core]\nhooksPath = ci/hooks\n");
    // A submodule, and a worktree of a repository elsewhere.
    fixture.write("project/module/.git", "gitdir: ../.git/modules/module\n");
    fixture.write("project/.git/modules/module/config", "[core]\nhooksPath = run\n");
    fixture.write(
        "project/tree/.git",
        &format!("gitdir: {}\n", outer.join("outside/main/worktrees/t").display()),
    );
    fixture.write("outside/main/worktrees/t/commondir", "../..\n");
    fixture.write("outside/main/config", "[core]\nhooksPath = run\n");
    let protected = "outer-hooks/pre-commit shared.ini more.ini conf/deep.ini by-include/x nested/ci/hooks/pre-push module/run/update tree/run/update";
    let free = "nested/ci/x ci/hooks/x run/x conf/x nested/by-include/x module/x";
    for filesystem in [Filesystem::ReadWrite, Filesystem::Write] {
        let script = format!("for n in {protected} {free}; do mkdir -p $(dirname $n); echo agent >$n; done");
        let outcome = run(&fixture.shell(filesystem, &script));
        check_out(&outcome, "");
        write_back(&outcome).unwrap();
        let taken = |name: &str| fixture.read(&format!("project/{name}")).as_deref() == Some("agent\n");
        for name in protected.split(' ') {
            assert!(!taken(name), "{filesystem:?} {name}");
        }
        for name in free.split(' ') {
            assert!(taken(name), "{filesystem:?} {name}: {:?}", withheld(&outcome));
            std::fs::remove_file(fixture.project().join(name)).unwrap();
        }
    }
}
