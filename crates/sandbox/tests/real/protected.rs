//! What runs or configures something is never taken over.

use libtest_mimic::Trial;
use vambrace_sandbox::{Exit, Filesystem};

use super::kit::{Room, err, out, promote, run, test, withheld};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("protected::protected_and_secret_names_are_never_promoted", protected_names),
        test(
            "protected::protected_names_of_a_repository_further_down_are_never_promoted",
            nested_repositories,
        ),
        test("protected::hooks_and_settings_of_a_bare_repository_are_never_promoted", bare_repositories),
        test("protected::hooks_that_lie_elsewhere_are_never_promoted", hooks_elsewhere),
        test("protected::exchanging_names_with_a_protected_one_changes_it_not", exchange),
    ]
}

// Research A 5, 30
fn exchange() {
    let room = Room::new();
    let program = std::env::current_exe().unwrap();
    let mut spec = room.spec(Filesystem::ReadWrite, program.to_str().unwrap(), &["probe", "exchange"]);
    spec.read = vec![program];
    let outcome = run(&spec);
    // Inside it may succeed; what counts is what is taken over.
    assert!(matches!(out(&outcome).as_str(), "exchanged\n" | "refused\n"), "{}", out(&outcome));
    promote(&outcome).unwrap();
    assert_eq!(room.read("project/.git/config").as_deref(), Some("[core]\n"));
}

fn protected_names() {
    let room = Room::new();
    let before = room.listing("project");
    let script = "echo x >.git/hooks/pre-commit; echo x >>.git/config; mkdir -p .vscode; echo x >.vscode/tasks.json; \
                  echo x >.mcp.json; echo x >.bashrc; mkdir .git/rebase-merge .devcontainer .vambrace; \
                  for name in .git/rebase-merge/git-rebase-todo .devcontainer/x sub.code-workspace .nvim.lua; do echo x >$name; done; \
                  echo x >.vambrace/config.yaml; \
                  echo x >.env; mkdir secrets; echo x >secrets/b; mkdir .GIT 2>/dev/null; mkdir -p sub/.Vscode; \
                  echo x >.EnV; rm .git/hooks/sample; mv .git/hooks .git/gone 2>/dev/null; true";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    assert_eq!(outcome.exit, Exit::Code(0));
    let names: Vec<String> = withheld(&outcome).into_iter().map(|(path, _)| path).collect();
    for name in [
        ".git/hooks/pre-commit",
        ".git/config",
        ".vscode",
        ".mcp.json",
        ".bashrc",
        ".git/rebase-merge/git-rebase-todo",
        ".devcontainer",
        "sub.code-workspace",
        ".nvim.lua",
        ".vambrace",
        ".env",
        "secrets",
        ".EnV",
        "sub/.Vscode",
    ] {
        assert!(
            names.iter().any(|one| one == name || name.starts_with(&format!("{one}/"))),
            "{name} in {names:?}"
        );
    }
    promote(&outcome).unwrap();
    let after: Vec<String> = room.listing("project");
    for line in &before {
        assert!(after.contains(line), "{line}");
    }
    for line in &after {
        let harmless = ["/.GIT ", "/sub ", "/.git/gone", "/.git/rebase-merge "];
        assert!(before.contains(line) || harmless.iter().any(|name| line.contains(name)), "{line}");
    }
}

// P4
fn nested_repositories() {
    let room = Room::new();
    room.write("project/sub/.git/config", "[core]\n");
    room.write("project/sub/.git/HEAD", "ref\n");
    let before = room.listing("project");
    // Hooks and settings in another repository, and ways to lead one to hooks and settings under another name.
    let script = "echo x >>sub/.git/config; mkdir -p sub/.git/hooks new/.git/hooks file link evil; echo x >sub/.git/hooks/post-checkout; \
                  echo x >new/.git/config; echo ../../evil >sub/.git/commondir; echo 'gitdir: ../evil' >file/.git; \
                  ln -s ../evil link/.GIT; cp -r .git/. evil; rm -rf .git; ln -s evil .git; mkdir -p sub/.git/worktrees/w; \
                  echo ../../../../evil >sub/.git/worktrees/w/commondir";
    let outcome = run(&room.shell(Filesystem::ReadWrite, script));
    assert_eq!((outcome.exit, err(&outcome).as_str()), (Exit::Code(0), ""));
    let names: Vec<String> = withheld(&outcome).into_iter().map(|(path, _)| path).collect();
    let expected = [
        ".git",
        "file/.git",
        "link/.GIT",
        "new/.git/config",
        "new/.git/hooks",
        "sub/.git/commondir",
        "sub/.git/config",
        "sub/.git/hooks",
        "sub/.git/worktrees",
    ];
    assert_eq!(names, expected);
    promote(&outcome).unwrap();
    let after = room.listing("project");
    for line in &before {
        assert!(after.contains(line), "{line}");
    }
}

fn hooks_elsewhere() {
    for filesystem in [Filesystem::ReadWrite, Filesystem::Write] {
        let room = Room::new();
        room.write("project/.git/config", "[core]\n\thooksPath = ./tools/hooks/\n");
        let script = "mkdir -p tools/hooks/d tools/hooksmith .husky; \
            for name in tools/hooks/pre-commit tools/hooks/d/x tools/hooksmith/x .husky/pre-push; do echo x >$name; done";
        let outcome = run(&room.shell(filesystem, script));
        assert_eq!((outcome.exit, err(&outcome).as_str()), (Exit::Code(0), ""));
        promote(&outcome).unwrap();
        let there = |name: &str| room.path("project").join(name).exists();
        assert!(there("tools/hooksmith/x") && !there("tools/hooks") && !there(".husky"), "{filesystem:?}");
    }
}

// P4: git takes a folder for a repository by what lies in it
fn bare_repositories() {
    for filesystem in [Filesystem::ReadWrite, Filesystem::Write] {
        let room = Room::new();
        for name in ["HEAD", "config", "objects/x", "refs/x", "hooks/sample"] {
            room.write(&format!("project/bare/{name}"), "was\n");
        }
        // Settings that an earlier run left; this one makes repositories around them.
        room.write("project/half/config", "was\n");
        room.write("project/led/commondir", "../new\n");
        room.write("project/app/config/plain", "was\n");
        let before = room.listing("project");
        let script = "mkdir -p bare/hooks bare/info new/objects new/refs new/hooks half/objects half/refs led app/config away/d; \
            echo x >bare/config; echo x >bare/hooks/post-checkout; echo x >bare/info/attributes; echo x >bare/refs-log; \
            echo x >new/config; echo x >new/hooks/update; echo x >new/objects/o; echo x >new/CONFIG.worktree; \
            echo x >half/objects/o; echo x >half/refs/r; echo x >led/HEAD; echo x >app/config/other; \
            echo ../new >away/d/commondir; echo x >away/d/HEAD; rm -rf bare/hooks/sample";
        let outcome = run(&room.shell(filesystem, script));
        assert_eq!((outcome.exit, err(&outcome).as_str()), (Exit::Code(0), ""));
        let names: Vec<String> = withheld(&outcome).into_iter().map(|(path, _)| path).collect();
        for name in [
            "away/d/commondir",
            "half/objects",
            "half/refs",
            "led/HEAD",
            "new/CONFIG.worktree",
            "new/config",
            "new/hooks",
        ] {
            assert!(names.iter().any(|known| known == name), "{filesystem:?} {name}: {names:?}");
        }
        promote(&outcome).unwrap();
        let after = room.listing("project");
        for line in &before {
            assert!(after.contains(line), "{filesystem:?} {line}");
        }
        for name in [
            "bare/hooks/post-checkout",
            "bare/info/attributes",
            "new/config",
            "new/hooks/update",
            "half/refs",
            "led/HEAD",
            "away/d/commondir",
        ] {
            assert!(!room.path("project").join(name).exists(), "{filesystem:?} {name}");
        }
        // What only shares a name with them is taken over.
        for name in ["app/config/other", "new/objects/o", "away/d/HEAD", "bare/refs-log"] {
            assert!(room.path("project").join(name).exists(), "{filesystem:?} {name}: {names:?}");
        }
    }
}
