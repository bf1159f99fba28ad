//! Vectors of commands that connect: helpers, transports, credentials, objects that are fetched on demand.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use vambrace_git::{
    BranchName, DiffScope, FileAtRevision, LogQuery, PlainHttp, PushMode, PushTarget, RemoteName, Repository,
    Revision, UntrackedFiles,
};

use super::lab::{Lab, run};
use super::operations::{commit, paths, ssh};
use super::vectors::{AttackVector, Expectation};

const fn rejected(name: &'static str, words: &'static str, arm: fn(&Lab), fire: fn(&Lab)) -> AttackVector {
    AttackVector {
        name,
        since: (2, 39),
        arm,
        fire,
        expectation: Expectation::PushRejected(words),
        config_only: true,
    }
}

const fn works(name: &'static str, arm: fn(&Lab), fire: fn(&Lab)) -> AttackVector {
    AttackVector { expectation: Expectation::Works, ..rejected(name, "", arm, fire) }
}

/// Replaces the address of the remote.
fn set_url(lab: &Lab, url: &str) {
    lab.git_must(&["remote", "set-url", "origin", url]);
}

fn plain_push(lab: &Lab) {
    lab.plain(&["push", "origin", "main"]);
}

/// A server that asks every request for a password; ends with the test.
fn password_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let answer = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    format!("http://{address}/r")
}

pub(crate) const REMOTE_VECTORS: &[AttackVector] = &[
    works(
        "core.sshCommand",
        |lab| {
            lab.config(&format!("[core]\n\tsshCommand = {}", lab.program("program")));
        },
        plain_push,
    ),
    works(
        "remote.*.receivepack and uploadpack",
        |lab| {
            let program = lab.program("program");
            lab.config(&format!("[remote \"origin\"]\n\treceivepack = {program}\n\tuploadpack = {program}"));
        },
        |lab| {
            let url = format!("remote.origin.pushurl={}", lab.root.join("remote.git").display());
            lab.plain(&["-c", &url, "push", "origin", "main"]);
        },
    ),
    AttackVector {
        config_only: false,
        ..works(
            "remote.*.vcs, a helper in the search path",
            |lab| {
                lab.program("git-remote-evil");
                lab.config("[remote \"origin\"]\n\tvcs = evil");
            },
            plain_push,
        )
    },
    rejected(
        "ext transport",
        "only `https://` and `ssh://`",
        |lab| {
            set_url(lab, &format!("ext::{} %S", lab.program("program")));
            lab.config("[protocol]\n\tallow = always\n[protocol \"ext\"]\n\tallow = always");
        },
        plain_push,
    ),
    AttackVector {
        config_only: false,
        ..rejected(
            "file transport with receivepack",
            "only `https://` and `ssh://`",
            |lab| {
                set_url(lab, lab.root.join("remote.git").to_str().unwrap());
                lab.config(&format!("[remote \"origin\"]\n\treceivepack = {}", lab.program("program")));
            },
            plain_push,
        )
    },
    AttackVector {
        config_only: false,
        ..rejected(
            "unknown transport with a helper",
            "only `https://` and `ssh://`",
            |lab| {
                lab.program("git-remote-evil");
                set_url(lab, "evil://host/x");
            },
            plain_push,
        )
    },
    rejected(
        "core.gitProxy",
        "only `https://` and `ssh://`",
        |lab| {
            set_url(lab, "git://localhost/x");
            lab.config(&format!("[core]\n\tgitProxy = {}", lab.program("program")));
        },
        plain_push,
    ),
    rejected(
        "url.*.insteadOf",
        "would change the address",
        |lab| {
            let program = lab.program("program");
            lab.config(&format!(
                "[url \"ext::{program} \"]\n\tinsteadOf = ssh:\n[protocol \"ext\"]\n\tallow = always"
            ));
        },
        plain_push,
    ),
    rejected(
        "url.*.pushInsteadOf",
        "would change the address",
        |lab| {
            let program = lab.program("program");
            lab.config(&format!(
                "[url \"ext::{program} \"]\n\tpushInsteadOf = ssh://l\n[protocol \"ext\"]\n\tallow = always"
            ));
        },
        plain_push,
    ),
    rejected(
        "a second pushurl",
        "several addresses",
        |lab| {
            let program = lab.program("program");
            let url = String::from_utf8(lab.plain(&["remote", "get-url", "origin"]).stdout).unwrap();
            lab.config(&format!("[remote \"origin\"]\n\tpushurl = ext::{program}\n\tpushurl = {url}\n[protocol \"ext\"]\n\tallow = always"));
        },
        plain_push,
    ),
    AttackVector {
        expectation: Expectation::Rejected("a name that is reserved"),
        ..works(
            "the reserved remote",
            |lab| {
                let program = lab.program("program");
                lab.config(&format!(
                    "[remote \"vambrace-push\"]\n\turl = ext::{program}\n[protocol \"ext\"]\n\tallow = always"
                ));
            },
            |lab| {
                lab.plain(&["push", "vambrace-push", "main"]);
            },
        )
    },
    AttackVector {
        config_only: false,
        ..works(
            "a helper for https in a remote that has the address as its name",
            |lab| {
                let program = lab.program("program");
                let url = String::from_utf8(lab.plain(&["remote", "get-url", "origin"]).stdout).unwrap();
                let url = url.trim();
                lab.config(&format!(
                    "[remote \"{url}\"]\n\turl = ext::{program}\n[protocol \"ext\"]\n\tallow = always"
                ));
            },
            |lab| {
                let url = String::from_utf8(lab.plain(&["remote", "get-url", "origin"]).stdout).unwrap();
                lab.plain(&["push", url.trim(), "main"]);
            },
        )
    },
    AttackVector {
        expectation: Expectation::NoProgram,
        ..works(
            "http: credential.helper",
            |lab| {
                set_url(lab, &password_server());
                lab.config(&format!("[credential]\n\thelper = {}", lab.program("program")));
            },
            plain_push,
        )
    },
    AttackVector {
        expectation: Expectation::NoProgram,
        ..works(
            "http: credential.*.helper",
            |lab| {
                let url = password_server();
                set_url(lab, &url);
                lab.config(&format!("[credential \"{url}\"]\n\thelper = !{}", lab.program("program")));
                lab.config(&format!(
                    "[credential \"http://127.0.0.1\"]\n\thelper = !{}",
                    lab.program("program")
                ));
            },
            plain_push,
        )
    },
    AttackVector {
        expectation: Expectation::NoProgram,
        ..works(
            "http: core.askPass",
            |lab| {
                set_url(lab, &password_server());
                lab.config(&format!("[core]\n\taskPass = {}", lab.program("program")));
            },
            plain_push,
        )
    },
    AttackVector {
        expectation: Expectation::NoProgram,
        ..works(
            "http: credential helper in a remote's proxy",
            |lab| {
                let proxy = password_server().replace("http://", "http://user@");
                set_url(lab, "http://127.0.0.1:9/r");
                lab.config(&format!(
                    "[http]\n\tproxy = {}\n[credential]\n\thelper = {}",
                    proxy.trim_end_matches("/r"),
                    lab.program("program")
                ));
            },
            plain_push,
        )
    },
    AttackVector {
        expectation: Expectation::NoProgram,
        ..works(
            "objects fetched on demand",
            |lab| {
                let program = lab.program("program");
                set_url(lab, &format!("ext::{program}"));
                lab.config("[protocol]\n\tallow = always\n[remote \"origin\"]\n\tpromisor = true\n[extensions]\n\tpartialClone = origin\n[core]\n\trepositoryFormatVersion = 1");
                let blob = String::from_utf8(lab.plain(&["rev-parse", "HEAD:data.evil"]).stdout).unwrap();
                let (directory, file) = blob.trim().split_at(2);
                fs::remove_file(lab.repo().join(format!(".git/objects/{directory}/{file}"))).unwrap();
            },
            |lab| {
                lab.plain(&["show", "HEAD:data.evil"]);
            },
        )
    },
    works(
        "core.alternateRefsCommand",
        |lab| {
            let other = lab.root.join("ws/other");
            lab.must(&["init", "-q", "--bare", other.to_str().unwrap()]);
            lab.write(".git/objects/info/alternates", "../../../other/objects\n");
            lab.config(&format!("[core]\n\talternateRefsCommand = {}", lab.program("program")));
        },
        |lab| {
            let source = lab.root.join("source");
            lab.must(&["init", "-q", source.to_str().unwrap()]);
            lab.must(&["-C", source.to_str().unwrap(), "commit", "-q", "--allow-empty", "-m", "x"]);
            lab.plain(&["fetch", source.to_str().unwrap()]);
        },
    ),
    works(
        "submodule.*.update",
        |lab| {
            lab.config(&format!("[submodule \"sub\"]\n\tupdate = !{}", lab.program("program")));
        },
        |lab| {
            let source = lab.root.join("source");
            lab.must(&["init", "-q", source.to_str().unwrap()]);
            lab.must(&["-C", source.to_str().unwrap(), "commit", "-q", "--allow-empty", "-m", "x"]);
            lab.git_must(&[
                "-c",
                "protocol.file.allow=always",
                "submodule",
                "--quiet",
                "add",
                "--name",
                "sub",
                source.to_str().unwrap(),
                "sub",
            ]);
            lab.git_must(&["-C", "sub", "commit", "-q", "--allow-empty", "-m", "y"]);
            lab.plain(&["submodule", "update"]);
        },
    ),
];

pub(crate) fn check_push_rejected(_lab: &Lab, repository: &Repository, words: &str) {
    let error = PushTarget::find(repository, &RemoteName::new("origin").unwrap(), PlainHttp::LoopbackOnly)
        .unwrap_err();
    assert!(error.to_string().contains(words), "{error}");
}

/// Runs every operation, whatever its result.
pub(crate) fn run_everything(lab: &Lab, repository: &Repository) {
    for invocation in every_invocation(lab, repository) {
        run(&invocation);
    }
}

/// One invocation of each operation; a push if the remote's address is accepted.
pub(crate) fn every_invocation(lab: &Lab, repository: &Repository) -> Vec<vambrace_git::GitInvocation> {
    let git = lab.operations(repository);
    let branch = |name: &str| BranchName::new(name).unwrap();
    let head = Revision::head();
    let files = paths(&["data.evil", "kept.txt", "new.txt"]);
    let log = LogQuery { range: None, paths: files.clone(), max_count: 10, skip: 0, files: true };
    let mut all = vec![
        git.status(UntrackedFiles::All),
        git.diff_summary(&DiffScope::Unstaged, &[]),
        git.diff_patch(&DiffScope::Unstaged, &[], 3),
        git.diff_patch(&DiffScope::Since(head.clone()), &files, 3),
        git.log(&log),
        git.show_commit(&head),
        git.show_patch(&head, &[], 3),
        git.show_file(&FileAtRevision::new("HEAD:data.evil").unwrap()),
        git.filter_attributes(&files),
        git.add(&files),
        git.diff_patch(&DiffScope::Staged, &[], 3),
        commit(lab, repository, "second"),
        git.create_branch(&branch("feature/x")),
        git.switch(&branch("other")),
        git.switch(&branch("main")),
    ];
    if let Ok(target) =
        PushTarget::find(repository, &RemoteName::new("origin").unwrap(), PlainHttp::LoopbackOnly)
    {
        for mode in [PushMode::DryRun, PushMode::Real] {
            all.push(git.push(&target, &branch("main"), mode, Some(&ssh(lab))).unwrap());
        }
    }
    all
}
