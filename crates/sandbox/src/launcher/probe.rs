//! Probes the kernel: each feature is used once, in a process of its own. Version numbers are not consulted.

use std::os::fd::AsFd as _;

use rustix::fs::{FileType, Mode, XattrFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use rustix::process::WaitOptions;

use super::cgroup::CgroupRoots;
use super::identity::{LauncherIdentity, first_unowned_id};
use super::idmap;
use crate::cell::{self, NAMESPACES, RootSkeleton};
use crate::error::{FailedStep, StepContext as _};
use crate::filter::{self, Confinement, Profile};
use crate::landlock_audit::{self, AuditAccess, LandlockAudit};
use crate::spec::{NetworkMode, Observe};
use crate::sys::process::{self, ForkSide};
use crate::sys::{capability, mount, seccomp};
use crate::tier::{Feature, FeatureKind, Features};
use crate::wire::RunIdentity;

pub(super) fn probe(groups: &CgroupRoots, launcher_identity: LauncherIdentity) -> Features {
    let powers = launcher_identity == LauncherIdentity::FullRoot;
    let identity = match first_unowned_id().filter(|_| powers) {
        Some(unowned) => RunIdentity { uid: unowned, gid: unowned, must_switch: true },
        None => launcher_identity.inside(),
    };
    let flags = NAMESPACES | libc::CLONE_NEWNET;
    let room = |proc: bool| -> Result<RootSkeleton, FailedStep> {
        cell::make_base_image()?;
        RootSkeleton::build(identity, proc, 1 << 20, b"/home/agent")
    };
    let landlock_abi = cell::landlock_abi();
    let mut list = Vec::new();
    let mut put = |kind: FeatureKind, tried: Result<String, String>| {
        let works = tried.is_ok();
        let seen = tried.unwrap_or_else(|why| why);
        list.push(Feature { kind, works, seen });
    };
    put(FeatureKind::Namespaces, in_child(Some(launcher_identity), flags, || Ok(())));
    put(FeatureKind::Mounts, in_child(Some(launcher_identity), flags, || room(false).map(drop)));
    put(FeatureKind::Proc, in_child(Some(launcher_identity), flags, || room(true).map(drop)));
    put(
        FeatureKind::Overlay,
        in_child(Some(launcher_identity), flags, || room(false).and_then(|_| overlay())),
    );
    if powers {
        put(
            FeatureKind::Idmap,
            in_child(None, libc::CLONE_NEWNS, move || idmapped(identity).step("idmapped mount")),
        );
    }
    if launcher_identity != LauncherIdentity::User {
        put(FeatureKind::Identity, launcher_identity.describe());
    }
    put(
        FeatureKind::Landlock,
        match (cell::landlock_problem(landlock_abi), landlock_abi) {
            (Some(why), _) => Err(why),
            (None, abi) if abi < 6 => {
                Ok(format!("ABI {abi}; signals to the user's other processes are not scoped"))
            }
            (None, abi) => Ok(format!("ABI {abi}")),
        },
    );
    let filter = |observe| {
        filter::compile(&Profile {
            network: NetworkMode::None,
            observe,
            confinement: Confinement::Namespaces,
            guarded: Vec::new(),
            part: filter::FilterPart::Whole,
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
        .map(|works| match launcher_identity {
            LauncherIdentity::RootWithSetuid if !capability::may_look_into_others() => {
                "works; in tier no-userns no denial is reported without CAP_SYS_PTRACE".to_owned()
            }
            _ => works,
        }),
    );
    put(FeatureKind::Audit, audit(landlock_abi));
    put(FeatureKind::Cgroup, groups.describe());
    Features { list, landlock_abi }
}

/// Triggers a Landlock denial and reads its audit record.
fn audit(landlock_abi: i32) -> Result<String, String> {
    if landlock_abi < landlock_audit::MIN_ABI {
        return Err(format!("Landlock ABI {landlock_abi} writes no audit records"));
    }
    let mut audit = LandlockAudit::open().map_err(|errno| format!("cannot be read: {errno}"))?;
    let why = match audit.access() {
        AuditAccess::On => "",
        AuditAccess::Off => "kernel auditing is disabled",
        AuditAccess::Denied => "the kernel denies access to its audit status",
        AuditAccess::NoAnswer => "the kernel did not report its audit status in time",
    };
    if !why.is_empty() {
        return Err(why.to_owned());
    }
    let child = match process::clone_into(0).map_err(|errno| errno.to_string())? {
        ForkSide::Parent(child) => child,
        ForkSide::Child => process::leave(i32::from(cell::trigger_denial().is_err())),
    };
    let _ = rustix::process::waitpid(Some(child.pid), WaitOptions::empty());
    let uid = rustix::process::geteuid().as_raw();
    audit.set_program(child.pid.as_raw_nonzero().get().unsigned_abs(), uid);
    match audit.finish().found.first() {
        Some(_) => Ok("Landlock's denials are read".to_owned()),
        None => Err("no audit record of a Landlock denial arrived".to_owned()),
    }
}

/// Runs an attempt in a child process, which reports the step that failed.
fn in_child(
    launcher_identity: Option<LauncherIdentity>,
    flags: libc::c_int,
    attempt: impl FnOnce() -> Result<(), FailedStep>,
) -> Result<String, String> {
    let (ours, theirs) = rustix::pipe::pipe().map_err(|errno| errno.to_string())?;
    let cloned = match launcher_identity {
        Some(launcher_identity) => launcher_identity.clone_into(flags),
        None => process::clone_into(flags).map(|side| (side, Ok(()))),
    };
    let (side, entered) = cloned.map_err(|errno| format!("the kernel denies it: {errno}"))?;
    let child = match side {
        ForkSide::Parent(child) => child,
        ForkSide::Child => {
            if let Err(step) = entered.and_then(|()| attempt()) {
                // Fits into the pipe's buffer.
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
        [] => Err("the kernel killed the probe".to_owned()),
        other => Err(String::from_utf8_lossy(other).into_owned()),
    }
}

/// An overlay on tmpfs with a whiteout and the xattr that opaque directories need.
fn overlay() -> Result<(), FailedStep> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let tree = mount::make(c"tmpfs", &[(c"mode", b"0755")], &[], attributes).step("tmpfs")?;
    let place = rustix::fs::open("/sys/run", rustix::fs::OFlags::PATH, Mode::empty()).step("tmpfs")?;
    mount::attach(tree.as_fd(), place.as_fd()).step("tmpfs")?;
    for name in ["lower", "upper", "work", "mask"] {
        mount::make_directory(tree.as_fd(), name.as_bytes()).step("layers")?;
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
    mount::make(c"overlay", options, &[c"userxattr"], attributes).step("overlay").map(drop)
}

fn idmapped(identity: RunIdentity) -> Result<(), Errno> {
    let map = idmap::make((0, 0), identity)?;
    let host = rustix::fs::open("/usr", rustix::fs::OFlags::PATH, Mode::empty())?;
    let tree = mount::clone_tree(host.as_fd())?;
    mount::restrict(tree.as_fd(), mount::MountAccess::ReadOnly, Some(map.as_fd()))
}
