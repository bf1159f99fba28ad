//! Files that run code or configure tools are never written back.

use libtest_mimic::Trial;
use vambrace_sandbox::{Exit, Filesystem};

use super::harness::{TestProject, err, out, run, test, withheld, write_back};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test(
            "protected::protected_and_secret_names_are_never_written_back",
            protected_and_secret_names_are_never_written_back,
        ),
        test(
            "protected::protected_names_of_a_nested_repository_are_never_written_back",
            protected_names_of_a_nested_repository_are_never_written_back,
        ),
        test(
            "protected::hooks_and_config_of_a_bare_repository_are_never_written_back",
            hooks_and_config_of_a_bare_repository_are_never_written_back,
        ),
        test(
            "protected::hooks_in_a_configured_directory_are_never_written_back",
            hooks_in_a_configured_directory_are_never_written_back,
        ),
        test(
            "protected::targets_of_protected_symlinks_are_never_written_back",
            targets_of_protected_symlinks_are_never_written_back,
        ),
        test(
            "protected::new_symlink_cannot_redirect_a_protected_directory",
            new_symlink_cannot_redirect_a_protected_directory,
        ),
        test(
            "protected::exchanging_names_does_not_change_a_protected_file",
            exchanging_names_does_not_change_a_protected_file,
        ),
    ]
}

// P4
fn exchanging_names_does_not_change_a_protected_file() {
    let fixture = TestProject::new();
    let program = std::env::current_exe().unwrap();
    let mut spec = fixture.spec(Filesystem::ReadWrite, program.to_str().unwrap(), &["probe", "exchange"]);
    spec.read = vec![program];
    let outcome = run(&spec);
    // Inside it may succeed; what counts is what is written back.
    assert!(matches!(out(&outcome).as_str(), "exchanged\n" | "denied\n"), "{}", out(&outcome));
    write_back(&outcome).unwrap();
    assert_eq!(fixture.read("project/.git/config").as_deref(), Some("[core]\n"));
}

// P4
fn protected_and_secret_names_are_never_written_back() {
    let fixture = TestProject::new();
    let before = fixture.listing("project");
    let script = "echo x >.git/hooks/pre-commit; echo x >>.git/config; mkdir -p .vscode; echo x >.vscode/tasks.json; \
                  echo x >.mcp.json; echo x >.bashrc; mkdir .git/rebase-merge .devcontainer .vambrace; \
                  for name in .git/rebase-merge/git-rebase-todo .devcontainer/x sub.code-workspace .nvim.lua; do echo x >$name; done; \
                  echo x >.vambrace/config.yaml; \
                  echo x >.env; mkdir secrets; echo x >secrets/b; mkdir .GIT 2>/dev/null; mkdir -p sub/.Vscode; \
                  echo x >.EnV; rm .git/hooks/sample; mv .git/hooks .git/gone 2>/dev/null; true";
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, script));
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
    write_back(&outcome).unwrap();
    let after: Vec<String> = fixture.listing("project");
    for line in &before {
        assert!(after.contains(line), "{line}");
    }
    for line in &after {
        let harmless = ["/.GIT ", "/sub ", "/.git/gone", "/.git/rebase-merge "];
        assert!(before.contains(line) || harmless.iter().any(|name| line.contains(name)), "{line}");
    }
}

// P4
fn protected_names_of_a_nested_repository_are_never_written_back() {
    let fixture = TestProject::new();
    fixture.write("project/sub/.git/config", "[core]\n");
    fixture.write("project/sub/.git/HEAD", "ref\n");
    let before = fixture.listing("project");
    // Hooks and config of another repository, and ways to redirect one to hooks and config under another name.
    let script = "echo x >>sub/.git/config; mkdir -p sub/.git/hooks new/.git/hooks file link evil; echo x >sub/.git/hooks/post-checkout; \
                  echo x >new/.git/config; echo ../../evil >sub/.git/commondir; echo 'gitdir: ../evil' >file/.git; \
                  ln -s ../evil link/.GIT; cp -r .git/. evil; rm -rf .git; ln -s evil .git; mkdir -p sub/.git/worktrees/w; \
                  echo ../../../../evil >sub/.git/worktrees/w/commondir";
    let outcome = run(&fixture.shell(Filesystem::ReadWrite, script));
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
    write_back(&outcome).unwrap();
    let after = fixture.listing("project");
    for line in &before {
        assert!(after.contains(line), "{line}");
    }
}

// P4
fn hooks_in_a_configured_directory_are_never_written_back() {
    for filesystem in [Filesystem::ReadWrite, Filesystem::Write] {
        let fixture = TestProject::new();
        fixture.write("project/.git/config", "[core]\n\thooksPath = ./tools/hooks/\n");
        let script = "mkdir -p tools/hooks/d tools/hooksmith .husky; \
            for name in tools/hooks/pre-commit tools/hooks/d/x tools/hooksmith/x .husky/pre-push; do echo x >$name; done";
        let outcome = run(&fixture.shell(filesystem, script));
        assert_eq!((outcome.exit, err(&outcome).as_str()), (Exit::Code(0), ""));
        write_back(&outcome).unwrap();
        let there = |name: &str| fixture.path("project").join(name).exists();
        assert!(there("tools/hooksmith/x") && !there("tools/hooks") && !there(".husky"), "{filesystem:?}");
    }
}

// P4: symlinks of the user, whose targets would run code or configure tools
fn targets_of_protected_symlinks_are_never_written_back() {
    let fixture = TestProject::new();
    fixture.write(".git/config", "[core]\n");
    let link = |path: &str, target: &str| {
        std::fs::create_dir_all(fixture.path(path).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, fixture.path(path)).unwrap();
    };
    link("project/.git/hooks/pre-commit", "../../scripts/pre-commit.sh");
    link("project/.git/hooks/pre-push", "../../not/yet/there.sh");
    link("project/.git/hooks/update", "../../by/link/update");
    link("project/by/link", "../really");
    link("project/.git/info/attributes", "../../attributes");
    link(".git/hooks/around", "../../project/around.sh");
    link("project/.githooks", "hooks");
    link("project/hooks/inner", "../lib/inner");
    link("project/.vscode/tasks.json", "../shared.json");
    link("project/.vscode/deep/er/x", fixture.path("project/absolute").to_str().unwrap());
    link("project/.mise.local.toml", "tools.toml");
    link("project/.config", "dotfiles");
    link("project/.husky", "../outside");
    link("project/.zed/all", "../..");
    fixture.write("project/dotfiles/mise.toml", "was\n");
    fixture.write("project/nested/.git/config", "[core]\nhooksPath = tools\n");
    link("project/nested/tools", "real-tools");
    link("project/nested/.git/hooks/x", "../../run.sh");
    let protected = "scripts/pre-commit.sh not/yet/there.sh really/update attributes around.sh hooks/new lib/inner shared.json absolute \
        tools.toml dotfiles/mise.toml nested/real-tools/pre-commit nested/run.sh";
    let free = "scripts/other not/yet/x by/x really/x lib/x dotfiles/x nested/x src/main.rs";
    let protected: Vec<&str> = protected.split_whitespace().collect();
    for name in ["scripts/pre-commit.sh", "really/update", "hooks/old", "shared.json", "nested/run.sh"] {
        fixture.write(&format!("project/{name}"), "was\n");
    }
    for filesystem in [Filesystem::ReadWrite, Filesystem::Write] {
        let before = fixture.listing("project");
        let script = format!(
            "for n in {} {free}; do mkdir -p $(dirname $n); echo agent >$n; done; rm -f hooks/old",
            protected.join(" ")
        );
        let outcome = run(&fixture.shell(filesystem, &script));
        assert_eq!((outcome.exit, err(&outcome).as_str()), (Exit::Code(0), ""));
        write_back(&outcome).unwrap();
        let taken = |name: &str| fixture.read(&format!("project/{name}")).as_deref() == Some("agent\n");
        for name in &protected {
            assert!(!taken(name), "{filesystem:?} {name}");
        }
        let was = |line: &&String| line.contains("src/main.rs") || fixture.listing("project").contains(line);
        assert_eq!(before.iter().find(|line| !was(line)), None, "{filesystem:?}");
        for name in free.split(' ') {
            assert!(taken(name), "{filesystem:?} {name}: {:?}", withheld(&outcome));
            std::fs::remove_file(fixture.project().join(name)).unwrap();
        }
        // Replacing a directory on the way to a target does not work either.
        let script = "rm -rf by scripts not hooks; mkdir -p evil/yet by/link; echo x >by/link/update; echo x >evil/yet/there.sh; \
            ln -s evil scripts; ln -s evil not; ln -s evil hooks";
        let outcome = run(&fixture.shell(filesystem, script));
        assert_eq!((outcome.exit, err(&outcome).as_str()), (Exit::Code(0), ""));
        write_back(&outcome).unwrap();
        for name in ["scripts/pre-commit.sh", "really/update", "hooks/old", "by/link/update"] {
            assert_eq!(
                fixture.read(&format!("project/{name}")).as_deref(),
                Some("was\n"),
                "{filesystem:?} {name}"
            );
        }
        assert!(!fixture.path("project/not/yet/there.sh").exists(), "{filesystem:?}");
    }
}

// P4: a symlink with the name of a config directory, leading to an unprotected directory
fn new_symlink_cannot_redirect_a_protected_directory() {
    for filesystem in [Filesystem::ReadWrite, Filesystem::Write] {
        let fixture = TestProject::new();
        let script = "mkdir -p evil d; for f in . d; do for n in .hg .config .github .SL .plain; do ln -s evil $f/$n; done; done; echo x >evil/hgrc";
        let outcome = run(&fixture.shell(filesystem, script));
        assert_eq!((outcome.exit, err(&outcome).as_str()), (Exit::Code(0), ""));
        write_back(&outcome).unwrap();
        for dir in ["", "d/"] {
            for name in [".hg", ".config", ".github", ".SL"] {
                let path = fixture.project().join(format!("{dir}{name}"));
                assert!(path.symlink_metadata().is_err(), "{filesystem:?} {dir}{name}");
            }
            assert!(fixture.project().join(format!("{dir}.plain")).is_symlink());
        }
    }
}

// P4: git recognizes a repository by the content of a directory
fn hooks_and_config_of_a_bare_repository_are_never_written_back() {
    for filesystem in [Filesystem::ReadWrite, Filesystem::Write] {
        let fixture = TestProject::new();
        for name in ["HEAD", "config", "objects/x", "refs/x", "hooks/sample"] {
            fixture.write(&format!("project/bare/{name}"), "was\n");
        }
        // Config that an earlier run left; this run creates repositories around it.
        fixture.write("project/half/config", "was\n");
        fixture.write("project/led/commondir", "../new\n");
        fixture.write("project/app/config/plain", "was\n");
        let before = fixture.listing("project");
        let script = "mkdir -p bare/hooks bare/info new/objects new/refs new/hooks half/objects half/refs led app/config away/d; \
            echo x >bare/config; echo x >bare/hooks/post-checkout; echo x >bare/info/attributes; echo x >bare/refs-log; \
            echo x >new/config; echo x >new/hooks/update; echo x >new/objects/o; echo x >new/CONFIG.worktree; \
            echo x >half/objects/o; echo x >half/refs/r; echo x >led/HEAD; echo x >app/config/other; \
            echo ../new >away/d/commondir; echo x >away/d/HEAD; rm -rf bare/hooks/sample";
        let outcome = run(&fixture.shell(filesystem, script));
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
        write_back(&outcome).unwrap();
        let after = fixture.listing("project");
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
            assert!(!fixture.path("project").join(name).exists(), "{filesystem:?} {name}");
        }
        // What only shares a name with them is written back.
        for name in ["app/config/other", "new/objects/o", "away/d/HEAD", "bare/refs-log"] {
            assert!(fixture.path("project").join(name).exists(), "{filesystem:?} {name}: {names:?}");
        }
    }
}
