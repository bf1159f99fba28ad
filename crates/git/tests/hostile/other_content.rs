//! Content of a repository that starts no program but would change what git reads, shows or writes.

use std::fs;
use std::os::unix::fs::symlink;

use vambrace_git::{
    DiffScope, DiffSummary, GitCommits, GitPatch, LogQuery, Revision, RevisionRange, present_hooks,
};

use super::lab::{Lab, run, versions};
use super::operations::{check_local_operations, check_push};

/// Settings that change the output of git, or what it does by default.
const OUTPUT_SETTINGS: &str = "
[color]
	ui = always
	diff = always
	status = always
[column]
	ui = always
[core]
	abbrev = 4
	quotePath = true
	commentChar = s
	worktree = /
	bare = true
	notesRef = refs/notes/x
	untrackedCache = true
	excludesFile = /dev/zero
	attributesFile = /dev/zero
[commit]
	cleanup = strip
	verbose = true
	template = /dev/zero
	status = true
[diff]
	noprefix = true
	autoRefreshIndex = false
	mnemonicPrefix = true
	context = 0
	interHunkContext = 50
	renames = false
	relative = true
	suppressBlankEmpty = true
	wsErrorHighlight = all
	orderFile = /dev/zero
	colorMoved = zebra
	dstPrefix = x/
	submodule = log
	algorithm = patience
[format]
	pretty = oneline
[i18n]
	logOutputEncoding = UTF-16
	commitEncoding = latin1
[log]
	date = relative
	decorate = full
	follow = true
	diffMerges = off
	showRoot = false
	mailmap = true
	abbrevCommit = true
[mailmap]
	file = /dev/zero
[notes]
	displayRef = *
[status]
	short = true
	branch = false
	showUntrackedFiles = no
	renames = false
	relativePaths = false
[user]
	name = Mallory
	email = mallory@example.com
	useConfigOnly = true
[author]
	name = Mallory
[push]
	default = matching
	followTags = true
	gpgSign = true
	recurseSubmodules = check
	pushOption = ci.skip
[remote]
	pushDefault = elsewhere
[branch]
	autoSetupMerge = always
[checkout]
	workers = 8
	thresholdForParallelism = 1
	guess = true
	defaultRemote = origin
[index]
	sparse = true
	threads = 8
[advice]
	statusHints = true
[attr]
	tree = refs/heads/none
[remote \"origin\"]
	mirror = true
	push = refs/heads/*:refs/heads/stolen/*
	gh-resolved = base
";

#[test]
fn settings_about_output_and_defaults_change_nothing() {
    for git in versions() {
        let lab = Lab::new(&git);
        lab.config(OUTPUT_SETTINGS);
        let repository = lab.open().unwrap();
        check_local_operations(&lab, &repository);
        check_push(&lab, &repository);
        let refs = fs::read_dir(lab.root.join("remote.git/refs/heads")).unwrap();
        assert_eq!(refs.count(), 1, "only the branch was pushed");
    }
}

// T15
#[test]
fn a_repository_elsewhere_is_not_used() {
    for git in versions() {
        let lab = Lab::new(&git);
        let outside = lab.root.join("outside");
        lab.must(&["init", "-q", outside.to_str().unwrap()]);
        let check = |arm: &dyn Fn(&Lab), words: &str| {
            let lab = Lab::new(&lab.git);
            arm(&lab);
            let error = lab.open().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        let outside = outside.to_str().unwrap();
        check(
            &|lab| {
                fs::remove_dir_all(lab.repo().join(".git")).unwrap();
                lab.write(".git", &format!("gitdir: {outside}/.git\n"));
            },
            "the git directory",
        );
        check(&|lab| lab.write(".git/commondir", &format!("{outside}/.git\n")), "the common git directory");
        check(
            &|lab| lab.write(".git/objects/info/alternates", &format!("{outside}/.git/objects\n")),
            "the alternate object directory",
        );
        check(&|lab| lab.config("[include]\n\tpath = ~root/x"), "which is not a plain path");
        check(&|lab| lab.config("[include]\n\tpath = %(prefix)/etc/x"), "which is not a plain path");
        check(&|lab| lab.config("[include]\n\tpath = config"), "too many files");
        check(&|lab| lab.config("[extensions]\n\tinvented = true"), "extension `invented`");
        check(
            &|lab| lab.config(&format!("[extensions]\n\trefStorage = files://{outside}")),
            "extension `refstorage`",
        );
        check(&|lab| lab.config("[core]\n\trepositoryFormatVersion = 2"), "format version `2`");
        check(
            &|lab| lab.config("[filter \"evil.clean\0\"]\n\ta = touch x"),
            "is not valid git configuration",
        );
        check(&|lab| lab.config("[core\n"), "is not valid git configuration");
        check(
            &|lab| {
                let filters: String =
                    (0..3000).map(|n| format!("[filter \"f{n}\"]\n\tclean = x\n")).collect();
                lab.config(&filters);
            },
            "too many programs",
        );
    }
}

/// A repository that belongs to another user is used because it was named, not found; nothing else is.
#[test]
fn owners_and_bare_repositories_in_the_tree_do_not_matter() {
    for git in versions() {
        let lab = Lab::new(&git);
        if std::os::unix::fs::chown(lab.repo().join(".git"), Some(12345), None).is_err()
            || std::os::unix::fs::chown(lab.repo(), Some(12345), None).is_err()
        {
            vambrace_skip::skip_part("changing owners needs root");
        }
        // A directory that is a bare repository itself, with a program of its own.
        lab.must(&["init", "-q", "--bare", lab.repo().join("bare").to_str().unwrap()]);
        fs::write(
            lab.repo().join("bare/config"),
            format!("[core]\n\tbare = true\n\tfsmonitor = {}\n", lab.program("x")),
        )
        .unwrap();
        lab.write(".git/info/exclude", "bare\n");
        check_local_operations(&lab, &lab.open().unwrap());
        assert!(lab.markers().is_empty());
    }
}

#[test]
fn replaced_and_grafted_history_is_not_shown() {
    for git in versions() {
        let lab = Lab::new(&git);
        let id =
            |name: &str| String::from_utf8(lab.plain(&["rev-parse", name]).stdout).unwrap().trim().to_owned();
        let (head, other) = (id("HEAD"), id("other"));
        lab.git_must(&["replace", &other, &head]);
        lab.write(".git/info/grafts", &format!("{other}\n"));
        let repository = lab.open().unwrap();
        let range = Some(RevisionRange::new("other").unwrap());
        let query = LogQuery { range, paths: Vec::new(), max_count: 10, skip: 0, files: false };
        let log = GitCommits::parse(&lab.output(&lab.operations(&repository).log(&query))).unwrap();
        assert_eq!(log.commits.iter().map(|commit| commit.id.as_str()).collect::<Vec<_>>(), [&other, &head]);
    }
}

#[test]
fn a_file_that_was_only_touched_does_not_differ() {
    for git in versions() {
        let lab = Lab::new(&git);
        lab.git_must(&["commit", "-q", "-a", "-m", "all"]);
        lab.config("[diff]\n\tautoRefreshIndex = false");
        let file = fs::File::options().append(true).open(lab.repo().join("kept.txt")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        let repository = lab.open().unwrap();
        let output = lab.output(&lab.operations(&repository).diff_summary(&DiffScope::Unstaged, &[]));
        assert_eq!(DiffSummary::parse(&output).unwrap(), DiffSummary::default());
    }
}

#[test]
fn objects_are_shown_only_as_files_of_a_commit() {
    for git in versions() {
        let lab = Lab::new(&git);
        let blob = String::from_utf8(lab.plain(&["rev-parse", "HEAD:data.evil"]).stdout).unwrap();
        let blob = Revision::new(blob.trim()).unwrap();
        let repository = lab.open().unwrap();
        let git = lab.operations(&repository);
        let between = DiffScope::Between(blob.clone(), blob.clone());
        for invocation in
            [git.show_commit(&blob), git.show_patch(&blob, &[], 3), git.diff_patch(&between, &[], 3)]
        {
            let output = run(&invocation);
            assert!(!output.status.success() && output.stdout.is_empty(), "{:?}", invocation.argv);
        }
    }
}

#[test]
fn a_patch_through_a_symlink_shows_only_the_link() {
    for git in versions() {
        let lab = Lab::new(&git);
        fs::write(lab.root.join("secret"), "secret content\n").unwrap();
        fs::remove_file(lab.repo().join("kept.txt")).unwrap();
        symlink(lab.root.join("secret"), lab.repo().join("kept.txt")).unwrap();
        let repository = lab.open().unwrap();
        let output = lab.output(&lab.operations(&repository).diff_patch(&DiffScope::Unstaged, &[], 3));
        let shown: String = GitPatch::parse(&output).files.iter().map(|file| file.to_text()).collect();
        assert!(!shown.contains("secret content"), "{shown}");
    }
}

#[test]
fn what_does_not_run_is_reported() {
    let lab = Lab::new(&versions()[0]);
    lab.hook("pre-commit");
    lab.config("[core]\n\thooksPath = .husky\n[hook \"lint\"]\n\tcommand = x\n\tevent = pre-commit\n[filter \"lfs\"]\n\tclean = git-lfs");
    let repository = lab.open().unwrap();
    assert_eq!(repository.neutralized().hooks_path(), Some(".husky"));
    assert_eq!(repository.neutralized().configured_hooks(), ["lint"]);
    let disabled: Vec<String> = repository.neutralized().disabled().iter().map(ToString::to_string).collect();
    assert!(disabled.contains(&"filter.lfs.clean".to_owned()), "{disabled:?}");
    let entries: Vec<_> = fs::read_dir(lab.repo().join(".git/hooks"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_encoded_bytes())
        .collect();
    assert_eq!(present_hooks(entries.iter().map(|name| (name.as_slice(), true))), ["pre-commit"]);
}
