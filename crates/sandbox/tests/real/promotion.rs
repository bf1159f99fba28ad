//! What promotion keeps, and what it leaves alone.

use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::Trial;
use vambrace_sandbox::{Filesystem, Input, Spec};

use super::files::{changes, promote, withheld};
use super::kit::{start, test};
use super::tiers::{become_user, check};

pub(crate) fn trials() -> Vec<Trial> {
    vec![test("promotion::what_is_mounted_below_the_workspace_is_not_touched", || {
        check("mounted-below", "mounted, all as it was\n");
    })]
}

// P4, S4: the program does not see into what is mounted there, so nothing of it is its to change
pub(crate) fn mounted_below(room: &str) -> ExitCode {
    let room = Path::new(room);
    let root = rustix::process::geteuid().is_root();
    if root {
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
    } else {
        become_user(None);
    }
    let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).unwrap();
    let project = room.join("project");
    let folders = ["sub", "deep/in/sub"].map(|name| project.join(name));
    for folder in &folders {
        std::fs::create_dir_all(folder).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", folder, "tmpfs", flags, None).unwrap();
        std::fs::create_dir(folder.join("d2")).unwrap();
        for name in ["data", "d2/e"] {
            std::fs::write(folder.join(name), "kept\n").unwrap();
        }
    }
    let sandbox = start(&room.join("state"));
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
    for (filesystem, script, expected) in scripts {
        let mut spec = Spec::new("sh", &project);
        spec.arguments = vec!["-ec".into(), script.into()];
        spec.filesystem = filesystem;
        let ran = sandbox.run(&spec, Input::Nothing, &mut |_, _| {});
        if !root && filesystem != Filesystem::Write {
            // The kernel makes no overlay of another user namespace's mounts.
            assert!(ran.is_err(), "{script}");
            continue;
        }
        let outcome = ran.unwrap();
        assert_eq!(outcome.exit.code(), 0, "{script}: {}", super::kit::err(&outcome));
        let mut names: Vec<String> = withheld(&outcome).into_iter().map(|(name, _)| name).collect();
        names.retain(|name| !name.starts_with("deep/er"));
        let mut expected: Vec<&str> = expected.split(' ').collect();
        expected.sort_unstable();
        assert_eq!(names, expected, "{script}: {:?}", changes(&outcome));
        promote(&outcome).unwrap();
        for folder in &folders {
            for name in ["data", "d2/e"] {
                assert_eq!(std::fs::read_to_string(folder.join(name)).unwrap(), "kept\n", "{script}");
            }
            assert_eq!(std::fs::read_dir(folder).unwrap().count(), 2, "{script}");
        }
    }
    println!("mounted, all as it was");
    ExitCode::SUCCESS
}
