//! Vectors: pagers, editors, signatures and other programs that settings name.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::lab::Lab;
use super::vectors::{AttackVector, local, plain_commit, plain_status, set};

pub(crate) const PROGRAM_VECTORS: &[AttackVector] = &[
    local("core.fsmonitor", |lab| set(lab, "core", "fsmonitor"), plain_status),
    local(
        "core.fsmonitor in config.worktree",
        |lab| {
            lab.config("[extensions]\n\tworktreeConfig = true");
            lab.write(".git/config.worktree", &format!("[core]\n\tfsmonitor = {}\n", lab.program("program")));
        },
        plain_status,
    ),
    local("core.pager", |lab| set(lab, "core", "pager"), |lab| lab.plain_on_terminal("log")),
    local("pager.status", |lab| set(lab, "pager", "status"), |lab| lab.plain_on_terminal("status")),
    local(
        "core.editor",
        |lab| set(lab, "core", "editor"),
        |lab| {
            lab.plain(&["commit", "-a"]);
        },
    ),
    local(
        "sequence.editor",
        |lab| set(lab, "sequence", "editor"),
        |lab| {
            lab.plain(&["stash"]);
            lab.plain(&["rebase", "-i", "--root"]);
        },
    ),
    local(
        "gpg.program and commit.gpgSign",
        |lab| {
            lab.config("[commit]\n\tgpgSign = true");
            set(lab, "gpg", "program");
        },
        plain_commit,
    ),
    local(
        "gpg.openpgp.program",
        |lab| {
            lab.config("[commit]\n\tgpgSign = true");
            set(lab, "gpg \"openpgp\"", "program");
        },
        plain_commit,
    ),
    local(
        "gpg.x509.program",
        |lab| {
            lab.config("[commit]\n\tgpgSign = true\n[gpg]\n\tformat = x509");
            set(lab, "gpg \"x509\"", "program");
        },
        plain_commit,
    ),
    local(
        "gpg.ssh.program",
        |lab| {
            lab.config("[commit]\n\tgpgSign = true\n[gpg]\n\tformat = ssh\n[user]\n\tsigningKey = key::ssh-ed25519 AAAA");
            set(lab, "gpg \"ssh\"", "program");
        },
        plain_commit,
    ),
    local(
        "gpg.ssh.defaultKeyCommand",
        |lab| {
            lab.config("[commit]\n\tgpgSign = true\n[gpg]\n\tformat = ssh");
            set(lab, "gpg \"ssh\"", "defaultKeyCommand");
        },
        plain_commit,
    ),
    local("log.showSignature of a signed commit", signed_commit, |lab| {
        lab.plain(&["log"]);
    }),
    local(
        "format.pretty that verifies signatures",
        |lab| {
            signed_commit(lab);
            lab.config("[log]\n\tshowSignature = false\n[format]\n\tpretty = format:%G?");
        },
        |lab| {
            lab.plain(&["log"]);
        },
    ),
    local(
        "trailer.*.cmd",
        |lab| set(lab, "trailer \"x\"", "cmd"),
        |lab| {
            lab.plain(&["commit", "-a", "-m", "x", "--trailer", "x=y"]);
        },
    ),
    local(
        "trailer.*.command",
        |lab| set(lab, "trailer \"x\"", "command"),
        |lab| {
            lab.plain(&["commit", "-a", "-m", "x", "--trailer", "x=y"]);
        },
    ),
    local(
        "interactive.diffFilter",
        |lab| {
            lab.config("[color]\n\tui = always");
            set(lab, "interactive", "diffFilter");
        },
        |lab| {
            lab.plain_on_terminal("add -p");
        },
    ),
    local(
        "alias of a new and of a known command",
        |lab| {
            let program = lab.program("program");
            lab.config(&format!("[alias]\n\tst = !{program}\n\tstatus = !{program}\n\tadd = !{program}"));
        },
        |lab| {
            lab.plain(&["st"]);
        },
    ),
    local(
        "tar.*.command",
        |lab| set(lab, "tar \"x\"", "command"),
        |lab| {
            lab.plain(&["archive", "--format=x", "HEAD"]);
        },
    ),
    local(
        "difftool.*.cmd",
        |lab| set(lab, "difftool \"x\"", "cmd"),
        |lab| {
            lab.plain(&["difftool", "-y", "-t", "x"]);
        },
    ),
    AttackVector {
        since: (2, 42),
        ..local("gc.recentObjectsHook", recent_objects_hook, |lab| {
            lab.plain(&["prune", "--expire=1.minute.ago"]);
        })
    },
];

/// A commit with a signature, on top of which git verifies with the repository's program.
fn signed_commit(lab: &Lab) {
    lab.config("[log]\n\tshowSignature = true");
    set(lab, "gpg", "program");
    let text = String::from_utf8(lab.plain(&["cat-file", "commit", "HEAD"]).stdout).unwrap();
    let (headers, message) = text.split_once("\n\n").unwrap();
    let signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----";
    lab.write(".git/signed", &format!("{headers}\n{signature}\n\n{message}"));
    let id = lab.plain(&["hash-object", "-t", "commit", "-w", ".git/signed"]).stdout;
    lab.git_must(&["update-ref", "HEAD", String::from_utf8(id).unwrap().trim()]);
}

/// Git asks about objects that nothing refers to and that are old.
fn recent_objects_hook(lab: &Lab) {
    set(lab, "gc", "recentObjectsHook");
    let id = String::from_utf8(lab.plain(&["hash-object", "-w", "new.txt"]).stdout).unwrap();
    let (directory, file) = id.trim().split_at(2);
    let path = lab.repo().join(format!(".git/objects/{directory}/{file}"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    fs::File::options().write(true).open(path).unwrap().set_modified(hour_ago).unwrap();
}
