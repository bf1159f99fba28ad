//! What the kernel really does: each feature is used once, in a process of its own. Version numbers are not asked.

use std::os::fd::AsFd as _;

use rustix::fs::{FileType, Mode, XattrFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::process::WaitOptions;

use super::cgroup::Groups;
use super::footing::{Footing, unowned_ids};
use super::idmap;
use crate::audit::{self, Audit, Standing};
use crate::cell::{self, NAMESPACES, Shell};
use crate::fault::{Named as _, Step};
use crate::filter::{self, Profile, Walls};
use crate::spec::{Network, Observe};
use crate::sys::process::{self, Side};
use crate::sys::{capability, mounting, seccomp};
use crate::tier::{Feature, FeatureKind, Features};
use crate::wire::Identity;

pub(super) fn probe(groups: &Groups, footing: Footing) -> Features {
    let powers = footing == Footing::Powers;
    let identity = match unowned_ids().filter(|_| powers) {
        Some(unowned) => Identity { uid: unowned, gid: unowned, taken: true },
        None => footing.inside(),
    };
    let flags = NAMESPACES | libc::CLONE_NEWNET;
    let room = |proc: bool| -> Result<Shell, Step> {
        cell::make_template()?;
        Shell::build(identity, proc, 1 << 20, b"/home/agent")
    };
    let landlock_abi = cell::landlock_abi();
    let mut list = Vec::new();
    let mut put = |kind: FeatureKind, tried: Result<String, String>| {
        let works = tried.is_ok();
        let seen = tried.unwrap_or_else(|why| why);
        list.push(Feature { kind, works, seen });
    };
    put(FeatureKind::Namespaces, in_child(Some(footing), flags, || Ok(())));
    put(FeatureKind::Mounts, in_child(Some(footing), flags, || room(false).map(drop)));
    put(FeatureKind::Proc, in_child(Some(footing), flags, || room(true).map(drop)));
    put(FeatureKind::Overlay, in_child(Some(footing), flags, || room(false).and_then(|_| overlay())));
    if powers {
        put(
            FeatureKind::Idmap,
            in_child(None, libc::CLONE_NEWNS, move || idmapped(identity).step("idmapped mount")),
        );
    }
    if footing != Footing::User {
        put(FeatureKind::Identity, footing.describe());
    }
    put(
        FeatureKind::Landlock,
        match (cell::landlock_lacks(landlock_abi), landlock_abi) {
            (Some(why), _) => Err(why),
            (None, abi) if abi < 6 => {
                Ok(format!("ABI {abi}; signals to the user's other processes are not kept inside"))
            }
            (None, abi) => Ok(format!("ABI {abi}")),
        },
    );
    let filter = |observe| {
        filter::compile(&Profile {
            network: Network::None,
            observe,
            walls: Walls::Namespaces,
            guarded: Vec::new(),
            part: filter::Part::Whole,
        })
    };
    put(
        FeatureKind::Seccomp,
        in_child(None, 0, || {
            rustix::thread::set_no_new_privs(true).step("no_new_privs")?;
            seccomp::install(&filter(Observe::Off)).step("filter")
        }),
    );
    put(
        FeatureKind::Observer,
        in_child(None, 0, || {
            rustix::thread::set_no_new_privs(true).step("no_new_privs")?;
            seccomp::install_with_listener(&filter(Observe::Writes)).step("listener").map(drop)
        })
        .map(|works| match footing {
            Footing::Nobody if !capability::may_look_into_others() => {
                "works; in tier no-userns no denial is told without CAP_SYS_PTRACE".to_owned()
            }
            _ => works,
        }),
    );
    put(FeatureKind::Audit, audit(landlock_abi));
    put(FeatureKind::Cgroup, groups.describe());
    Features { list, landlock_abi }
}

/// Has something refused, and hears of it.
fn audit(landlock_abi: i32) -> Result<String, String> {
    if landlock_abi < audit::LEAST_ABI {
        return Err(format!("Landlock's ABI {landlock_abi} writes no records"));
    }
    let mut audit = Audit::open().map_err(|errno| format!("cannot be read: {errno}"))?;
    let why = match audit.standing() {
        Standing::On => "",
        Standing::Off => "the kernel's audit is switched off",
        Standing::Refused => "the kernel does not let us ask how its audit stands",
        Standing::Unsaid => "the kernel did not say in time how its audit stands",
    };
    if !why.is_empty() {
        return Err(why.to_owned());
    }
    let child = match process::clone_into(0).map_err(|errno| errno.to_string())? {
        Side::Parent(child) => child,
        Side::Child => process::leave(i32::from(cell::be_refused().is_err())),
    };
    let _ = rustix::process::waitpid(Some(child.pid), WaitOptions::empty());
    let uid = rustix::process::geteuid().as_raw();
    audit.claim(child.pid.as_raw_nonzero().get().unsigned_abs(), uid);
    match audit.finish().found.first() {
        Some(_) => Ok("Landlock's refusals are read".to_owned()),
        None => Err("no record came of what Landlock refused".to_owned()),
    }
}

/// Tries something in a process of its own; its end tells where it stopped.
fn in_child(
    footing: Option<Footing>,
    flags: libc::c_int,
    attempt: impl FnOnce() -> Result<(), Step>,
) -> Result<String, String> {
    let (ours, theirs) = rustix::pipe::pipe().map_err(|errno| errno.to_string())?;
    let cloned = match footing {
        Some(footing) => footing.clone_into(flags),
        None => process::clone_into(flags).map(|side| (side, Ok(()))),
    };
    let (side, entered) = cloned.map_err(|errno| format!("the kernel refuses: {errno}"))?;
    let child = match side {
        Side::Parent(child) => child,
        Side::Child => {
            if let Err(step) = entered.and_then(|()| attempt()) {
                // The pipe holds this many bytes in any case.
                let _ = rustix::io::write(&theirs, format!("{}: {}", step.name, step.errno).as_bytes());
            } else {
                let _ = rustix::io::write(&theirs, b"+");
            }
            process::leave(0)
        }
    };
    drop(theirs);
    let _ = rustix::process::waitpid(Some(child.pid), WaitOptions::empty());
    let mut said = vec![0; 512];
    let length = rustix::io::read(&ours, &mut said).unwrap_or(0);
    said.truncate(length);
    match said.as_slice() {
        b"+" => Ok("works".to_owned()),
        [] => Err("the trial was ended by the kernel".to_owned()),
        other => Err(String::from_utf8_lossy(other).into_owned()),
    }
}

/// An overlay over a tmpfs with a whiteout and a mark of the kind that opaque folders need.
fn overlay() -> Result<(), Step> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let tree = mounting::make(c"tmpfs", &[(c"mode", b"0755")], &[], attributes).step("tmpfs")?;
    let place = rustix::fs::open("/sys/run", rustix::fs::OFlags::PATH, Mode::empty()).step("tmpfs")?;
    mounting::attach(tree.as_fd(), place.as_fd()).step("tmpfs")?;
    for name in ["lower", "upper", "work", "mask"] {
        mounting::make_folder(tree.as_fd(), name.as_bytes()).step("layers")?;
    }
    let whiteout = rustix::fs::makedev(0, 0);
    rustix::fs::mknodat(&tree, "mask/name", FileType::CharacterDevice, Mode::empty(), whiteout)
        .step("whiteout")?;
    rustix::fs::setxattr("/sys/run/upper", "user.overlay.opaque", b"y", XattrFlags::empty())
        .step("attributes on tmpfs (kernel 6.6)")?;
    let options: &[(&std::ffi::CStr, &[u8])] = &[
        (c"lowerdir", b"/sys/run/mask:/sys/run/lower"),
        (c"upperdir", b"/sys/run/upper"),
        (c"workdir", b"/sys/run/work"),
    ];
    mounting::make(c"overlay", options, &[c"userxattr"], attributes).step("overlay").map(drop)
}

fn idmapped(identity: Identity) -> Result<(), Errno> {
    let map = idmap::make((0, 0), identity)?;
    let host = rustix::fs::open("/usr", rustix::fs::OFlags::PATH, Mode::empty())?;
    let tree = mounting::clone_tree(host.as_fd())?;
    mounting::restrict(tree.as_fd(), mounting::Access::ReadOnly, Some(map.as_fd()))
}
