//! What the block list, the rules and the fence mean inside.

use std::sync::Arc;

use libtest_mimic::Trial;
use vambrace_core::error::ErrorCode;
use vambrace_core::glob::{GlobPurpose, GlobRoots, PathGlobs};
use vambrace_sandbox::{Filesystem, WithheldReason};

use super::harness::{TestProject, out, test, withheld};

/// A blocked directory of the user, and a rule that denies paths.
const CONFIG: &str = "workspace: {block: [private/]}\n\
                      approvals: {rules: [{paths: ['docs/private/**'], decision: deny}]}\n";
const CONTENTS: [&str; 3] = ["blocked-by-the-user", "denied-by-a-rule", "in-the-env-file"];

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test(
            "blocked_and_denied_paths_cannot_be_read_inside",
            blocked_and_denied_paths_cannot_be_read_inside,
        ),
        test("denied_paths_are_not_written_back", denied_paths_are_not_written_back),
        test("path_denied_for_writing_only_is_readable_and_withheld", path_denied_for_writing_only),
        test("only_listed_paths_are_visible_and_written_back", only_listed_paths),
        test("direct_writes_that_a_rule_limits_are_denied", direct_writes_that_a_rule_limits_are_denied),
        test("own_variables_never_reach_a_program", own_variables_never_reach_a_program),
        test("block_list_is_relative_to_both_roots", block_list_is_relative_to_both_roots),
    ]
}

// T12, P4
fn blocked_and_denied_paths_cannot_be_read_inside() {
    let project = TestProject::with(CONFIG);
    let files = "private/key.txt docs/private/plan.md .env";
    let python = "import os,sys\nfor n in sys.argv[1:]:\n  try: print(open(n).read())\n  except OSError as e: print(type(e).__name__)\n\
                  for d,_,f in os.walk('.'):\n  for n in f:\n    try: sys.stdout.write(open(os.path.join(d,n)).read())\n    except OSError: pass\n";
    for filesystem in [Filesystem::Read, Filesystem::ReadWrite, Filesystem::Speculative] {
        for script in [
            format!("cat {files}; :"),
            format!("cat notes.txt; grep -r . . ; grep -r . {files}; :"),
            format!("find . -type f -exec cat {{}} +; cp {files} /tmp; cat /tmp/*; :"),
            format!("cat notes.txt; python3 -c \"$(cat <<'END'\n{python}END\n)\" {files}"),
            "ln -s docs/private/plan.md /tmp/a; ln -s private/key.txt /tmp/b; cat /tmp/a /tmp/b; :"
                .to_owned(),
        ] {
            let report = project.run(filesystem, &script);
            let said = out(&report);
            for content in CONTENTS {
                assert!(!said.contains(content), "{filesystem:?} {script}: {said}");
            }
            if script.contains("notes.txt") {
                assert!(said.contains("notes\n"), "other files are visible: {said}");
            }
        }
    }
}

// T12, P4
fn denied_paths_are_not_written_back() {
    let project = TestProject::with(CONFIG);
    let before = project.listing();
    let script = "mkdir -p docs/private/deep private; echo x >docs/private/plan.md; echo x >docs/private/deep/n; \
                  echo x >private/key.txt; echo x >private/n; echo x >docs/new.md; ln -s docs/private/plan.md l; rm -r docs/private";
    let report =
        project.run(Filesystem::ReadWrite, &format!("{script}; mkdir docs/private; echo y >docs/private/z"));
    project.write_back(&report).unwrap();
    let mut after = project.listing();
    assert!(after.remove(&project.path("docs/new.md")).is_some());
    assert_eq!(after, before);
    // In a project that has none of these paths yet.
    for name in ["docs/private", "private"] {
        std::fs::remove_dir_all(project.path(name)).unwrap();
    }
    let report = project.run(Filesystem::ReadWrite, script);
    project.write_back(&report).unwrap();
    assert!(
        !project.path("docs/private").exists() && !project.path("private").exists(),
        "{:?}",
        withheld(&report)
    );
}

fn globs(list: &[&str], purpose: GlobPurpose) -> Arc<PathGlobs> {
    Arc::new(PathGlobs::new(list, purpose, &GlobRoots::plain()).unwrap())
}

// P4
fn path_denied_for_writing_only() {
    let mut project = TestProject::new();
    project.fence.write.exclude(&globs(&["docs/", "new/"], GlobPurpose::Narrow));
    let script = "cat docs/guide.md; echo x >>docs/guide.md; rm docs/private/plan.md; chmod 700 docs; mkdir -p new/deep; echo x >new/deep/f; \
                  echo x >>notes.txt; mv src/main.rs docs/main.rs";
    let report = project.run(Filesystem::ReadWrite, script);
    assert!(out(&report).contains("guide\n"));
    project.write_back(&report).unwrap();
    assert_eq!(project.read("docs/guide.md").as_deref(), Some("guide\n"));
    assert_eq!(project.read("docs/private/plan.md").as_deref(), Some("denied-by-a-rule\n"));
    assert_eq!(project.read("notes.txt").as_deref(), Some("notes\nx\n"));
    assert!(!project.path("new").exists() && !project.path("docs/main.rs").exists());
    let denied = |path: &str| withheld(&report).contains(&(path.to_owned(), WithheldReason::Denied));
    for path in ["docs", "docs/guide.md", "docs/main.rs", "docs/private/plan.md", "new"] {
        assert!(denied(path), "{path}: {:?}", withheld(&report));
    }
}

// P4
fn only_listed_paths() {
    let mut project = TestProject::new();
    let only = globs(&["src/**/*.rs", "docs/guide.md"], GlobPurpose::Permit);
    project.fence = vambrace_core::fence::Fence::inside(&only);
    let script = "find . -type f | sort; echo x >>src/main.rs; mkdir -p src/new/deep; echo x >src/new/deep/a.rs; echo x >src/new/b.txt; \
                  mkdir other; echo x >other/o; echo x >notes.txt";
    let report = project.run(Filesystem::ReadWrite, script);
    assert_eq!(out(&report), "./docs/guide.md\n./src/main.rs\n");
    project.write_back(&report).unwrap();
    assert_eq!(project.read("src/main.rs").as_deref(), Some("fn main() {}\nx\n"));
    assert_eq!(project.read("src/new/deep/a.rs").as_deref(), Some("x\n"));
    assert_eq!(project.read("notes.txt").as_deref(), Some("notes\n"), "it was hidden, not missing");
    assert!(!project.path("src/new/b.txt").exists() && !project.path("other").exists());
}

// P4: no tier limits single names in a directory that a program changes directly
fn direct_writes_that_a_rule_limits_are_denied() {
    let project = TestProject::with(CONFIG);
    let run = |write: &str, filesystem: Filesystem| {
        let mut request = project.request(filesystem, "echo x >src/direct; echo x >docs/private/direct; :");
        request.write = vec![project.root().join(write)];
        project.try_run(&request)
    };
    for (write, filesystem) in [
        ("project/docs", Filesystem::Read),
        ("project/docs/private", Filesystem::ReadWrite),
        ("project", Filesystem::Deny),
        ("", Filesystem::Deny),
    ] {
        let denied = run(write, filesystem).expect_err(write);
        assert_eq!(denied.code(), ErrorCode::SandboxUnavailable, "{write}: {denied}");
    }
    run("project/src", Filesystem::Read).unwrap();
    assert_eq!(project.read("src/direct").as_deref(), Some("x\n"));
    assert!(!project.path("docs/private/direct").exists());
    // Further paths to read show no denied path either.
    for read in ["project/docs", "project/docs/private"] {
        let mut request = project
            .request(Filesystem::Deny, &format!("cat {}/docs/private/plan.md", project.path("").display()));
        request.read = vec![project.root().join(read)];
        if let Ok(report) = project.try_run(&request) {
            assert!(!out(&report).contains("denied-by-a-rule"), "{read}: {}", out(&report));
        }
    }
}

// P5
fn own_variables_never_reach_a_program() {
    let project = TestProject::new();
    for names in [&["*"][..], &["VAMBRACE_*", "SHOWN"], &["VAMBRACE_PASSPHRASE", "S*"]] {
        let mut request = project.request(Filesystem::Read, "env");
        request.environment = names.iter().map(|name| (*name).to_owned()).collect();
        let said = out(&project.try_run(&request).unwrap());
        assert!(said.contains("SHOWN=yes") && !said.contains("VAMBRACE"), "{names:?}: {said}");
    }
}

// T12: as for tools
fn block_list_is_relative_to_both_roots() {
    let project = TestProject::with("workspace: {service_root: svc, block: [conf/prod/]}\n");
    let said = out(&project.run(Filesystem::Read, "grep -rl in-the-configuration . | sort"));
    assert_eq!(said, "./svc/other/conf/prod/k\n");
    // Outside of the service root a program writes what no tool can.
    let report = project.run(
        Filesystem::ReadWrite,
        "echo x >>notes.txt; echo x >svc/new; mkdir -p conf/prod; echo x >conf/prod/k",
    );
    let prepared = project.prepare(&report).unwrap();
    let files: Vec<String> =
        prepared.change_set().files().iter().map(|file| file.path().to_string()).collect();
    assert_eq!(files, ["new"]);
    prepared.commit("test").unwrap();
    assert_eq!(project.read("notes.txt").as_deref(), Some("notes\nx\n"));
    assert_eq!(project.read("svc/new").as_deref(), Some("x\n"));
    assert_eq!(project.read("conf/prod/k").as_deref(), Some("in-the-configuration\n"));
}
