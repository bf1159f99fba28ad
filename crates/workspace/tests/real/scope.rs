//! T12: what a service can access.

use vambrace_core::ErrorCode::{BlockedPath, FileNotFound, ScopeViolation};
use vambrace_core::blocked_paths::BlockList;
use vambrace_workspace::{Isolation, OpenError, ScopeRules, Workspace};

use crate::fixtures::{TestProject, path};

fn monorepo() -> TestProject {
    let tree = TestProject::new();
    for file in [
        "services/a/x",
        "services/a/.env",
        "services/a/lib/secrets/k",
        "services/a/config/prod/k",
        "services/b/x",
        "services/b/.env",
        "services/README.md",
        "shared/x",
        "shared/k.pem",
        "docs/policies/x",
        "docs/x",
        "x",
    ] {
        tree.file(file, file);
    }
    tree
}

// T12
#[test]
fn a_strict_service_reads_only_itself_and_the_shared_directories() {
    let tree = monorepo();
    let workspace = tree.open_as("services/a", Isolation::Strict);
    workspace.check_read("x", Ok("services/a/x"));
    workspace.check_read("./x/", Ok("services/a/x"));
    workspace.check_read("project:services/a/x", Ok("services/a/x"));
    workspace.check_read("project:shared/x", Ok("shared/x"));
    workspace.check_read("project:docs/policies/x", Ok("docs/policies/x"));
    for outside in ["project:x", "project:docs/x", "project:services/b/x", "project:nothing"] {
        workspace.check_read(outside, Err(ScopeViolation));
    }
    for blocked in [".env", "lib/secrets/k", "project:shared/k.pem", "config/prod/k"] {
        workspace.check_read(blocked, Err(BlockedPath));
    }
}

// T12
#[test]
fn a_shared_service_also_reads_sibling_directories() {
    let tree = monorepo();
    let workspace = tree.open_as("services/a", Isolation::Shared);
    workspace.check_read("project:services/b/x", Ok("services/b/x"));
    workspace.check_read("project:services/b/.env", Err(BlockedPath));
    workspace.check_read("project:services/README.md", Err(ScopeViolation));
    workspace.check_read("project:docs/x", Err(ScopeViolation));
    assert!(workspace.0.writable(&path("x")) && workspace.0.writable(&path("project:services/a/new")));
    for readable in ["project:services/b/x", "project:shared/x", ".env", "lib/secrets/k"] {
        assert!(!workspace.0.writable(&path(readable)), "{readable}");
    }
}

// T12: the error does not depend on whether the file exists.
#[test]
fn blocked_and_outside_names_fail_alike_whether_they_exist_or_not() {
    let tree = monorepo();
    let workspace = tree.open_as("services/a", Isolation::Strict);
    for (there, missing) in
        [("lib/secrets/k", "lib/secrets/n"), (".env", ".ENV"), ("project:docs/x", "project:docs/y")]
    {
        let (there, missing) = (workspace.read(there).unwrap_err(), workspace.read(missing).unwrap_err());
        assert_eq!((there.code, there.suggestion), (missing.code, missing.suggestion));
    }
}

// T12
#[test]
fn blocked_names_are_not_listed_searched_counted_or_suggested() {
    let tree = TestProject::new();
    for file in ["a.txt", "id_rsa.txt", "secrets/a.txt", "sub/node_modules/a.txt", "sub/k.pem"] {
        tree.file(file, "needle\n");
    }
    let workspace = tree.open();
    assert_eq!(workspace.list("", true, None), ["a.txt:file:7", "sub:directory:0"]);
    assert_eq!(workspace.list("", true, Some("**/{.*,*}")), ["a.txt:file:7", "sub:directory:0"]);
    assert_eq!(workspace.search("", "needle"), ["a.txt:1:1:needle"]);
    assert_eq!(workspace.count("", "needle"), (1, 1));
    let error = workspace.read("id_rs.txt").unwrap_err();
    assert_eq!(error.code, FileNotFound);
    assert!(!error.suggestion.contains("id_rsa"), "{}", error.suggestion);
    assert!(!workspace.read("sub/k.pom").unwrap_err().suggestion.contains("k.pem"));
}

#[test]
fn missing_files_suggest_similar_names() {
    let tree = TestProject::new();
    tree.file("src/main.rs", "").file("src/lib.rs", "").file("deep/down/unique.toml", "");
    let workspace = tree.open();
    for (asked, near) in [
        ("src/mian.rs", "did you mean `src/main.rs`?"),
        ("src/MAIN.rs", "did you mean `src/main.rs`?"),
        ("unique.toml", "did you mean `deep/down/unique.toml`?"),
        ("sub/main.rs", "did you mean `src/main.rs`?"),
        ("src/main.rs/x", "check the path, or use list_files to see what exists"),
    ] {
        let error = workspace.read(asked).unwrap_err();
        assert_eq!((error.code, error.suggestion.as_str()), (FileNotFound, near), "{asked}");
    }
}

#[test]
fn names_are_compared_without_case_folding_or_unicode_normalization() {
    let tree = TestProject::new();
    tree.file("e\u{301}.txt", "decomposed").file("Readme", "upper").file("dot.", "dot");
    let workspace = tree.open();
    workspace.check_read("e\u{301}.txt", Ok("decomposed"));
    workspace.check_read("\u{e9}.txt", Err(FileNotFound));
    workspace.check_read("readme", Err(FileNotFound));
    workspace.check_read("dot.", Ok("dot"));
    workspace.check_read("dot", Err(FileNotFound));
    workspace.check_read(&"n".repeat(255), Err(FileNotFound));
    workspace.check_read(&"d/".repeat(2000), Err(FileNotFound));
}

#[test]
fn a_workspace_opens_only_on_a_directory_with_a_real_service_root() {
    let tree = monorepo();
    tree.link("alias", "services/a");
    let open = |root: &std::path::Path, service: &str| {
        let block = BlockList::with_defaults::<&str>(&[]).unwrap();
        Workspace::open(root, ScopeRules::new(service, block)).err()
    };
    assert!(open(&tree.project, "services/a").is_none());
    assert!(matches!(open(&tree.project, "alias"), Some(OpenError::ServiceRoot(_))));
    assert!(matches!(open(&tree.project, "nope"), Some(OpenError::ServiceRoot(_))));
    assert!(matches!(open(&tree.project, "x"), Some(OpenError::ServiceRoot(_))));
    assert!(matches!(open(&tree.project, "../outside"), Some(OpenError::BadDirectory(_))));
    assert!(matches!(open(&tree.at("x"), ""), Some(OpenError::Root { .. })));
    assert!(matches!(open(&tree.at("nope"), ""), Some(OpenError::Root { .. })));
}
