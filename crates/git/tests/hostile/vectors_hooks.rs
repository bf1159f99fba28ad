//! Vectors: hooks, in directories and in the configuration, and submodules, which have their own.

use std::fs;

use super::lab::Lab;
use super::vectors::{
    AttackVector, hook, local, plain_add, plain_commit, plain_diff, plain_status, plain_switch,
};

pub(crate) const HOOK_VECTORS: &[AttackVector] = &[
    hook("hook pre-commit", |lab| lab.hook("pre-commit"), plain_commit),
    hook("hook prepare-commit-msg", |lab| lab.hook("prepare-commit-msg"), plain_commit),
    hook("hook commit-msg", |lab| lab.hook("commit-msg"), plain_commit),
    hook("hook post-commit", |lab| lab.hook("post-commit"), plain_commit),
    hook("hook post-checkout", |lab| lab.hook("post-checkout"), plain_switch),
    hook("hook post-index-change", |lab| lab.hook("post-index-change"), plain_add),
    hook("hook reference-transaction", |lab| lab.hook("reference-transaction"), plain_commit),
    hook(
        "hook pre-push",
        |lab| lab.hook("pre-push"),
        |lab| {
            let remote = lab.root.join("remote.git");
            lab.plain(&["push", remote.to_str().unwrap(), "main"]);
        },
    ),
    hook("hook pre-auto-gc by maintenance after a commit", many_packs, plain_commit),
    hook(
        "core.hooksPath in the working tree",
        |lab| {
            lab.hook("pre-commit");
            fs::rename(lab.repo().join(".git/hooks"), lab.repo().join(".git/evil-hooks")).unwrap();
            lab.config("[core]\n\thooksPath = .git/evil-hooks");
        },
        plain_commit,
    ),
    AttackVector {
        since: (2, 54),
        ..local(
            "hook.*.command",
            |lab| {
                let program = lab.program("program");
                lab.config(&format!(
                "[hook \"x\"]\n\tcommand = {program}\n\tevent = pre-commit\n\tevent = post-checkout\n\tevent = reference-transaction"
            ));
            },
            plain_commit,
        )
    },
    hook(
        "core.fsmonitor of a submodule",
        |lab| {
            submodule(lab);
            let config = lab.repo().join(".git/modules/sub/config");
            let old = fs::read_to_string(&config).unwrap();
            fs::write(config, format!("{old}[core]\n\tfsmonitor = {}\n", lab.program("program"))).unwrap();
        },
        plain_status,
    ),
    hook(
        "filter of a submodule, entered by diff.submodule",
        |lab| {
            submodule(lab);
            lab.config(
                "[diff]\n\tsubmodule = diff\n\tignoreSubmodules = none\n[submodule]\n\trecurse = true",
            );
            let modules = lab.repo().join(".git/modules/sub");
            fs::write(modules.join("info/attributes"), "* filter=evil diff=evil\n").unwrap();
            let old = fs::read_to_string(modules.join("config")).unwrap();
            let program = lab.program("program");
            fs::write(modules.join("config"), format!("{old}[filter \"evil\"]\n\tclean = {program}\n"))
                .unwrap();
            fs::write(lab.repo().join("sub/file"), "changed in the submodule\n").unwrap();
        },
        plain_diff,
    ),
];

/// Two packs and a limit of one; the hook runs before git packs them.
fn many_packs(lab: &Lab) {
    lab.git_must(&["repack", "-q"]);
    let id = lab.plain(&["commit-tree", "HEAD^{tree}", "-m", "packed"]).stdout;
    lab.git_must(&["branch", "packed", String::from_utf8(id).unwrap().trim()]);
    lab.git_must(&["repack", "-q"]);
    lab.config("[gc]\n\tautoPackLimit = 1\n\tautoDetach = false\n[maintenance]\n\tautoDetach = false\n\tstrategy = gc");
    lab.hook("pre-auto-gc");
}

/// A submodule that is checked out and committed; the rest of the lab is as before.
fn submodule(lab: &Lab) {
    let source = lab.root.join("ws/source");
    lab.must(&["init", "-q", "-b", "main", source.to_str().unwrap()]);
    fs::write(source.join("file"), "x\n").unwrap();
    lab.must(&["-C", source.to_str().unwrap(), "add", "file"]);
    lab.must(&["-C", source.to_str().unwrap(), "commit", "-q", "-m", "source"]);
    lab.git_must(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        source.to_str().unwrap(),
        "sub",
    ]);
    lab.git_must(&["update-index", "--force-remove", ".gitmodules"]);
    fs::rename(lab.repo().join(".gitmodules"), lab.repo().join(".git/gitmodules")).unwrap();
    lab.git_must(&["commit", "-q", "--amend", "-m", "first"]);
    lab.git_must(&["reset", "-q"]);
    lab.write(".git/info/exclude", "sub\n");
}
