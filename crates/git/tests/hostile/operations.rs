//! Runs every operation on the repository of a [`Lab`], and checks that each did its work.

use std::fs;

use serde_json::json;
use vambrace_git::{
    BranchName, CommitIdentity, CommitMessageRules, DiffScope, DiffSummary, FileAtRevision, FileState,
    GitCommits, GitInvocation, GitPatch, GitStatus, LogQuery, Pathspec, PlainHttp, PushMode, PushReport,
    PushTarget, RefUpdateResult, RemoteName, Repository, Revision, SshSettings, UntrackedFiles,
    parse_filter_attributes,
};

use super::lab::{Lab, versions};

pub(crate) fn paths(names: &[&str]) -> Vec<Pathspec> {
    names.iter().map(|name| Pathspec::new(name).unwrap()).collect()
}

pub(crate) fn ssh(lab: &Lab) -> SshSettings {
    SshSettings {
        program: lab.root.join("programs/fake-ssh").to_str().unwrap().to_owned(),
        known_hosts: "/dev/null".into(),
        agent_socket: None,
    }
}

/// The invocations that commit what the lab has prepared.
pub(crate) fn commit(lab: &Lab, repository: &Repository, message: &str) -> GitInvocation {
    let message = CommitMessageRules::default().check(message, &|_| None).unwrap();
    let identity = CommitIdentity::new("Ann Agent", "ann@example.com").unwrap();
    lab.operations(repository).commit(&message, &identity)
}

/// Every operation that needs no network, in the order of a working day.
pub(crate) fn check_local_operations(lab: &Lab, repository: &Repository) {
    let git = lab.operations(repository);
    let status = || GitStatus::parse(&lab.output(&git.status(UntrackedFiles::All))).unwrap();
    let entries = status().to_json()["entries"].clone();
    assert_eq!(
        entries,
        json!([
            {"path": "data.evil", "kind": "tracked", "staged": "unmodified", "unstaged": "modified"},
            {"path": "kept.txt", "kind": "tracked", "staged": "unmodified", "unstaged": "modified"},
            {"path": "new.txt", "kind": "untracked"},
        ])
    );
    assert_eq!(status().branch.name.as_deref(), Some("main"));

    let summary = DiffSummary::parse(&lab.output(&git.diff_summary(&DiffScope::Unstaged, &[]))).unwrap();
    let counts: Vec<_> =
        summary.files.iter().map(|file| (file.path.to_string(), file.added, file.deleted)).collect();
    let one = Some(1);
    assert_eq!(counts, [("data.evil".to_owned(), one, one), ("kept.txt".to_owned(), one, one)]);

    let output = lab.output(&git.diff_patch(&DiffScope::Unstaged, &paths(&["data.evil"]), 3));
    let patch = GitPatch::parse(&output);
    assert_eq!(patch.files.len(), 1);
    assert!(
        patch.files[0].to_text().ends_with("@@ -1 +1 @@\n-payload\n+changed here\n"),
        "{}",
        patch.files[0].to_text()
    );
    let since = DiffScope::Since(Revision::head());
    assert_eq!(DiffSummary::parse(&lab.output(&git.diff_summary(&since, &[]))).unwrap().files.len(), 2);
    let between = DiffScope::Between(Revision::new("main").unwrap(), Revision::new("other").unwrap());
    let output = lab.output(&git.diff_patch(&between, &[], 0));
    assert!(GitPatch::parse(&output).files[0].to_text().contains("+other content\n"));

    let query = LogQuery { range: None, paths: Vec::new(), max_count: 10, skip: 0, files: true };
    let log = GitCommits::parse(&lab.output(&git.log(&query))).unwrap();
    assert_eq!(log.commits.iter().map(|commit| commit.subject()).collect::<Vec<_>>(), ["first"]);
    let files = log.commits[0].files.files.iter().map(|file| file.path.to_string());
    assert_eq!(files.filter(|file| file != "sub").collect::<Vec<_>>(), ["data.evil", "kept.txt"]);
    let show = GitCommits::parse(&lab.output(&git.show_commit(&Revision::head()))).unwrap();
    assert_eq!(show.commits[0].files.files[0].state, FileState::Added);
    let output = lab.output(&git.show_patch(&Revision::head(), &[], 3));
    assert!(GitPatch::parse(&output).files[0].to_text().contains("+payload\n"));
    let stored = |file: &str| lab.output(&git.show_file(&FileAtRevision::new(file).unwrap()));
    assert_eq!(stored("HEAD:data.evil"), b"payload\n");

    let filtered =
        parse_filter_attributes(&lab.output(&git.filter_attributes(&paths(&["data.evil", "new.txt"]))))
            .unwrap();
    assert!(filtered.iter().all(|(path, _)| path.to_string() == "data.evil"));

    let staged = ["data.evil", "kept.txt", "new.txt"];
    lab.output(&git.add(&paths(&staged)));
    assert!(status().entries.iter().all(|entry| entry.unstaged == FileState::Unmodified));
    let summary = DiffSummary::parse(&lab.output(&git.diff_summary(&DiffScope::Staged, &[]))).unwrap();
    assert_eq!(summary.files.iter().map(|file| file.path.to_string()).collect::<Vec<_>>(), staged);
    lab.output(&commit(lab, repository, "second\n\n# not a comment\n"));
    let show = GitCommits::parse(&lab.output(&git.show_commit(&Revision::head()))).unwrap();
    assert_eq!(show.commits[0].message, "second\n\n# not a comment\n");
    assert_eq!(show.commits[0].author.email, "ann@example.com");
    assert_eq!(show.commits[0].files.files.len(), 3);
    assert_eq!(stored("HEAD:data.evil"), b"changed here\n");

    let branch = |name: &str| BranchName::new(name).unwrap();
    lab.output(&git.create_branch(&branch("feature/x")));
    assert_eq!(status().branch.name.as_deref(), Some("feature/x"));
    lab.output(&git.switch(&branch("other")));
    assert_eq!(lab.read("data.evil"), "other content\n");
    assert!(status().entries.is_empty(), "{:?}", status().entries);
    lab.output(&git.switch(&branch("main")));
    assert_eq!(lab.read("data.evil"), "changed here\n");
}

/// A dry run, then a push, by an ssh that runs the server's part here.
pub(crate) fn check_push(lab: &Lab, repository: &Repository) {
    let git = lab.operations(repository);
    let target = PushTarget::find(repository, &RemoteName::new("origin").unwrap(), PlainHttp::Deny).unwrap();
    let main = BranchName::new("main").unwrap();
    let push =
        |mode| PushReport::parse(&lab.output(&git.push(&target, &main, mode, Some(&ssh(lab))).unwrap()));
    let remote_ref = lab.root.join("remote.git/refs/heads/main");
    let dry = push(PushMode::DryRun);
    assert!(dry.succeeded() && dry.updates[0].result == RefUpdateResult::Created, "{dry:?}");
    assert!(!remote_ref.exists());
    assert!(push(PushMode::Real).succeeded());
    let head =
        GitCommits::parse(&lab.output(&git.show_commit(&Revision::head()))).unwrap().commits[0].id.clone();
    assert_eq!(fs::read_to_string(remote_ref).unwrap().trim(), head);
    assert_eq!(lab.read(".git/refs/remotes/origin/main").trim(), head);
    assert_eq!(push(PushMode::Real).updates[0].result, RefUpdateResult::UpToDate);
}

// T15
#[test]
fn operations_work_on_a_plain_repository() {
    for git in versions() {
        let lab = Lab::new(&git);
        let repository = lab.open().unwrap();
        check_local_operations(&lab, &repository);
        check_push(&lab, &repository);
    }
}

#[test]
fn operations_work_in_a_linked_worktree_and_before_the_first_commit() {
    for git in versions() {
        let lab = Lab::new(&git);
        let linked = lab.workspace().join("linked");
        lab.git_must(&["worktree", "add", "-q", linked.to_str().unwrap(), "other"]);
        let repository = Repository::open(&lab.workspace(), &linked, &mut super::lab::DirectReader).unwrap();
        fs::write(linked.join("new.txt"), "x\n").unwrap();
        let git = lab.operations(&repository);
        lab.output(&git.add(&paths(&["new.txt"])));
        lab.output(&commit(&lab, &repository, "in the linked worktree"));
        let status = GitStatus::parse(&lab.output(&git.status(UntrackedFiles::All))).unwrap();
        assert_eq!((status.branch.name.as_deref(), status.entries.len()), (Some("other"), 0));

        fs::remove_dir_all(lab.repo()).unwrap();
        lab.must(&["init", "-q", "-b", "main", lab.repo().to_str().unwrap()]);
        lab.write("a", "1\n");
        let repository = lab.open().unwrap();
        let git = lab.operations(&repository);
        lab.output(&git.add(&paths(&["a"])));
        let staged = DiffSummary::parse(&lab.output(&git.diff_summary(&DiffScope::Staged, &[]))).unwrap();
        assert_eq!(staged.files.len(), 1);
        lab.output(&commit(&lab, &repository, "first"));
        let show = GitCommits::parse(&lab.output(&git.show_commit(&Revision::head()))).unwrap();
        assert!(show.commits[0].parents.is_empty());
    }
}

#[test]
fn operations_work_with_other_repository_formats() {
    for git in versions() {
        let formats: &[&str] = if git.version < (2, 45) {
            &["--object-format=sha256"]
        } else {
            &["--object-format=sha256", "--ref-format=reftable"]
        };
        for format in formats {
            let lab = Lab::new(&git);
            fs::remove_dir_all(lab.repo().join(".git")).unwrap();
            lab.must(&["init", "-q", "-b", "main", format, lab.repo().to_str().unwrap()]);
            let repository = lab.open().unwrap();
            let git = lab.operations(&repository);
            lab.output(&git.add(&paths(&["new.txt"])));
            lab.output(&commit(&lab, &repository, "first"));
            lab.output(&git.create_branch(&BranchName::new("b").unwrap()));
            let show =
                GitCommits::parse(&lab.output(&git.show_commit(&Revision::new("main").unwrap()))).unwrap();
            assert_eq!(show.commits[0].files.files.len(), 1, "{format}");
            let sanitized = repository.neutralized().sanitized();
            fs::write(lab.repo().join(".git/config"), sanitized).unwrap();
            lab.git_must(&["status"]);
        }
    }
}

// T15
#[test]
fn names_with_special_characters_are_literal() {
    for git in versions() {
        let lab = Lab::new(&git);
        let names = ["--help", ":(exclude)*", "*", "a\nb", "tab\there", "-x y", "d/\u{e9}"];
        for name in names {
            lab.write(name, "x\n");
        }
        let repository = lab.open().unwrap();
        let git = lab.operations(&repository);
        lab.output(&git.add(&paths(&names)));
        let summary =
            DiffSummary::parse(&lab.output(&git.diff_summary(&DiffScope::Staged, &paths(&["*"])))).unwrap();
        assert_eq!(summary.files.iter().map(|file| file.path.to_string()).collect::<Vec<_>>(), ["*"]);
        let output = lab.output(&git.diff_patch(&DiffScope::Staged, &[], 3));
        let patch = GitPatch::parse(&output);
        let mut shown: Vec<_> = patch.files.iter().map(|file| file.new_path.clone().unwrap()).collect();
        shown.sort();
        let mut expected = names.map(str::as_bytes);
        expected.sort();
        assert_eq!(shown.iter().map(vambrace_git::GitPath::as_bytes).collect::<Vec<_>>(), expected);
    }
}
