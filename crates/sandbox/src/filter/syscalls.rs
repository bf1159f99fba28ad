//! The rule tables: which system calls are denied or observed, and why.

use std::collections::BTreeMap;

use super::assemble::{ArgumentTest, FilterAction, SyscallRule};
use super::{Confinement, FilterPart, Profile};
use crate::spec::{NetworkMode, Observe};

const DENY: FilterAction = FilterAction::Errno(libc::EPERM);
const NOT_IMPLEMENTED: FilterAction = FilterAction::Errno(libc::ENOSYS);

/// Denied in every profile.
const FORBIDDEN: &[libc::c_long] = &[
    // Other processes' memory and descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // Memory placement.
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
    // Large, new or rarely tested parts of the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_memfd_secret,
    libc::SYS_vmsplice,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_remap_file_pages,
    // The user's kernel keyrings.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    // Files by handle instead of by path.
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // Machine-wide settings.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_sysfs,
];

/// Missing in some C libraries: `open_tree_attr` (6.15) sets a mount's attributes while cloning it.
const OPEN_TREE_ATTR: libc::c_long = 467;

/// Their arguments cannot be judged, so they fail with ENOSYS.
const UNJUDGEABLE: &[libc::c_long] = &[
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Set-user-id and set-group-id: a host user who executes such a file would run it as its owner or group.
const SET_ID: u32 = 0o6000;
/// Calls that set a file's mode: the index of the mode argument, and of the flags that decide whether a file is
/// created.
const MODES: &[(libc::c_long, u32, Option<u32>)] = &[
    (libc::SYS_fchmod, 1, None),
    (libc::SYS_fchmodat, 2, None),
    (libc::SYS_fchmodat2, 2, None),
    (libc::SYS_mknodat, 2, None),
    (libc::SYS_openat, 3, Some(2)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1, None),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1, None),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1, None),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2, Some(1)),
];
/// Flags of an open that creates a file.
const CREATE_FLAGS: u32 = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;

/// Whether a call sets a set-id bit; the arguments are the kernel's copy.
pub(crate) fn wants_set_id(number: libc::c_long, arguments: &[u64; 6]) -> bool {
    let any = |argument: u32, bits: u32| {
        usize::try_from(argument)
            .ok()
            .and_then(|at| arguments.get(at))
            .is_some_and(|value| *value as u32 & bits != 0)
    };
    MODES.iter().any(|(call, mode, flags)| {
        *call == number && any(*mode, SET_ID) && flags.is_none_or(|flags| any(flags, CREATE_FLAGS))
    })
}

/// Calls that change file attributes; Landlock does not handle them.
const ATTRIBUTES: &[libc::c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_utimensat,
    SETXATTRAT,
    REMOVEXATTRAT,
    FILE_SETATTR,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];
/// Types of ioctls by which file systems change or create a file through a read-only handle: flags, project, version,
/// verity, encryption, subvolumes. By type (ext and most others, XFS, version, Btrfs, F2FS, FAT, bcachefs, ZFS),
/// because Landlock handles ioctls of devices only, and file systems may have more of them.
const FILE_IOCTL_TYPES: &[u32] = &[0x66, 0x58, 0x76, 0x94, 0xf5, 0x72, 0xbc, 0x83];
/// Those that only read (data layout, flags, project, version) or need a writable handle (cloning).
const HARMLESS_FILE_IOCTLS: &[u32] =
    &[0xc020_660b, 0x8008_6601, 0x801c_581f, 0x8008_7601, 0x4004_9409, 0x4020_940d];
/// Added in Linux 6.13 and 6.17.
pub(crate) const SETXATTRAT: libc::c_long = 463;
pub(crate) const REMOVEXATTRAT: libc::c_long = 466;
pub(crate) const FILE_SETATTR: libc::c_long = 469;

/// Objects shared with every process of the user, without an ipc namespace.
const SHARED_IPC: &[libc::c_long] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // Reports events of files that may not be read; and instances are limited per user.
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
];

/// Calls that change names or contents by path; notified when writes are observed.
const CHANGES: &[libc::c_long] = &[
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmodat,
];

/// Calls that query existence or metadata; notified when everything is observed.
const QUERIES: &[libc::c_long] = &[
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_statfs,
    libc::SYS_inotify_add_watch,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
];

/// Signals sent by process id.
const SIGNALS: &[libc::c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
];

/// fcntl commands that set the signal owner of a handle: F_SETOWN, F_SETSIG, F_SETOWN_EX.
const SIGNAL_OWNER_COMMANDS: &[u32] = &[8, 10, 15];
/// The same as ioctls: FIOSETOWN, SIOCSPGRP.
const SIGNAL_OWNER_IOCTLS: &[u32] = &[0x8901, 0x8902];

/// Calls that take a pid; only `0`, the caller, is allowed.
const TAKES_PID: &[libc::c_long] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
];

/// Every `CLONE_NEW*` of `clone`; the bit of time namespaces overlaps the exit signal and cannot be used there.
const NEW_NAMESPACES: u32 = 0x7e02_0000;
const TIOCLINUX: u32 = 0x541c;
const TIOCSETD: u32 = 0x5423;

/// Flags of an open that is meant for writing.
pub(crate) const WRITE_FLAGS: u32 =
    (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_TMPFILE & !libc::O_DIRECTORY)
        as u32;

/// Judged by the network of a run, which a zygote does not know.
const CONNECTING: &[libc::c_long] =
    &[libc::SYS_connect, libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg];

/// Calls that a zygote and its children need before the program starts.
const NEEDED_FOR_SETUP: &[libc::c_long] = &[
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_sethostname,
    libc::SYS_socket,
    libc::SYS_sched_setaffinity,
];

/// The rules of a part of the filter. The early part is the same for every run.
pub(super) fn rules(profile: &Profile) -> BTreeMap<u32, SyscallRule> {
    let early = |number: &u32| {
        let number = libc::c_long::from(*number);
        let per_run = SIGNALS.contains(&number)
            || CONNECTING.contains(&number)
            || number == libc::SYS_pidfd_send_signal;
        !NEEDED_FOR_SETUP.contains(&number) && !per_run
    };
    match profile.part {
        FilterPart::Whole => full_rules(profile),
        FilterPart::Early => {
            let mut rules = full_rules(&Profile { observe: Observe::Off, ..profile.clone() });
            rules.retain(|number, _| early(number));
            rules
        }
        FilterPart::Late => {
            let judged = full_rules(&Profile { observe: Observe::Off, ..profile.clone() });
            let mut rules = full_rules(profile);
            rules.retain(|number, rule| !(early(number) && judged.get(number) == Some(rule)));
            rules
        }
    }
}

/// Whether a call is denied whatever its arguments: the listener reports it and never lets it continue.
pub(crate) fn is_always_denied(number: libc::c_long, confinement: Confinement) -> bool {
    let attributes = || ATTRIBUTES.contains(&number) || SHARED_IPC.contains(&number);
    FORBIDDEN.contains(&number) || (confinement == Confinement::LandlockOnly && attributes())
}

fn full_rules(profile: &Profile) -> BTreeMap<u32, SyscallRule> {
    let mut rules = BTreeMap::new();
    // When everything is observed, denials are reported too.
    let deny = if profile.observe == Observe::All { FilterAction::Notify } else { DENY };
    for number in FORBIDDEN.iter().chain(&[OPEN_TREE_ATTR]) {
        insert(&mut rules, *number, SyscallRule::always(deny));
    }
    for number in UNJUDGEABLE {
        insert(&mut rules, *number, SyscallRule::always(NOT_IMPLEMENTED));
    }
    observed(profile, &mut rules);
    for (number, mode, flags) in MODES {
        let mode = ArgumentTest::AnyBit { argument: *mode, bits: SET_ID };
        let flags = flags.map(|argument| ArgumentTest::AnyBit { argument, bits: CREATE_FLAGS });
        prepend_case(&mut rules, *number, flags.into_iter().chain([mode]).collect(), deny);
    }
    arguments(profile, deny, &mut rules);
    if profile.confinement == Confinement::LandlockOnly {
        for number in ATTRIBUTES.iter().chain(SHARED_IPC) {
            insert(&mut rules, *number, SyscallRule::always(deny));
        }
        if !profile.guarded.is_empty() {
            let everybody = u32::MAX;
            // As a process and as a process group.
            let groups = profile.guarded.iter().map(|guarded| guarded.wrapping_neg());
            let targets = profile.guarded.iter().copied().chain(groups).chain([everybody]);
            let cases =
                targets.map(|value| (vec![ArgumentTest::Equal { argument: 0, value }], deny)).collect();
            let rule = SyscallRule { cases, otherwise: FilterAction::Allow };
            for number in SIGNALS {
                insert(&mut rules, *number, rule.clone());
            }
            insert(&mut rules, libc::SYS_pidfd_send_signal, SyscallRule::always(deny));
            // The kernel signals the owner of a handle.
            let asked = |value: u32| (vec![ArgumentTest::Equal { argument: 1, value }], deny);
            let cases = SIGNAL_OWNER_COMMANDS.iter().map(|value| asked(*value)).collect();
            insert(&mut rules, libc::SYS_fcntl, SyscallRule { cases, otherwise: FilterAction::Allow });
            for value in SIGNAL_OWNER_IOCTLS {
                let (tests, verdict) = asked(*value);
                prepend_case(&mut rules, libc::SYS_ioctl, tests, verdict);
            }
        }
    }
    // A lease on a file blocks every process that opens it, also outside.
    let lease = ArgumentTest::Equal { argument: 1, value: libc::F_SETLEASE.unsigned_abs() };
    prepend_case(&mut rules, libc::SYS_fcntl, vec![lease], deny);
    rules
}

fn observed(profile: &Profile, rules: &mut BTreeMap<u32, SyscallRule>) {
    if profile.observe == Observe::Off {
        return;
    }
    let (looks, attributes) =
        if profile.observe == Observe::All { (QUERIES, ATTRIBUTES) } else { (&[][..], &[][..]) };
    for number in CHANGES.iter().chain(looks).chain(attributes) {
        insert(rules, *number, SyscallRule::always(FilterAction::Notify));
    }
    // The run's own start was approved with the run. A program that imitates it only goes unreported.
    let mut unless_own = |number, argument| {
        let own = ArgumentTest::Equal { argument, value: crate::sys::process::OWN_START.cast_unsigned() };
        insert(
            rules,
            number,
            SyscallRule { cases: vec![(vec![own], FilterAction::Allow)], otherwise: FilterAction::Notify },
        );
    };
    unless_own(libc::SYS_execveat, 0);
    // Notified so that the working directory need not be looked up for each relative path.
    unless_own(libc::SYS_chdir, 1);
    insert(rules, libc::SYS_fchdir, SyscallRule::always(FilterAction::Notify));
    let open = |argument| match profile.observe {
        Observe::All => SyscallRule::always(FilterAction::Notify),
        _ => SyscallRule::when(ArgumentTest::AnyBit { argument, bits: WRITE_FLAGS }, FilterAction::Notify),
    };
    insert(rules, libc::SYS_openat, open(2));
    #[cfg(target_arch = "x86_64")]
    insert(rules, libc::SYS_open, open(1));
}

fn arguments(profile: &Profile, deny: FilterAction, rules: &mut BTreeMap<u32, SyscallRule>) {
    insert(
        rules,
        libc::SYS_clone,
        SyscallRule::when(ArgumentTest::AnyBit { argument: 0, bits: NEW_NAMESPACES }, deny),
    );
    let terminal = [libc::TIOCSTI as u32, TIOCLINUX, TIOCSETD];
    let request = |value: u32| vec![ArgumentTest::Equal { argument: 1, value }];
    let mut cases: Vec<_> = terminal.into_iter().map(|value| (request(value), deny)).collect();
    if profile.confinement == Confinement::LandlockOnly {
        cases.extend(HARMLESS_FILE_IOCTLS.iter().map(|value| (request(*value), FilterAction::Allow)));
        let kind =
            |kind: u32| vec![ArgumentTest::MaskedEqual { argument: 1, mask: 0xff00, value: kind << 8 }];
        cases.extend(FILE_IOCTL_TYPES.iter().map(|value| (kind(*value), deny)));
    }
    insert(rules, libc::SYS_ioctl, SyscallRule { cases, otherwise: FilterAction::Allow });
    let same = |argument, value| vec![ArgumentTest::Equal { argument, value }];
    insert(rules, libc::SYS_personality, SyscallRule::only_when(vec![same(0, 0), same(0, u32::MAX)], deny));
    for number in TAKES_PID {
        insert(rules, *number, SyscallRule::only_when(vec![same(0, 0)], deny));
    }
    let own =
        vec![ArgumentTest::Equal { argument: 0, value: 0 }, ArgumentTest::Equal { argument: 1, value: 0 }];
    insert(rules, libc::SYS_setpriority, SyscallRule::only_when(vec![own], deny));
    let own =
        vec![ArgumentTest::Equal { argument: 0, value: 1 }, ArgumentTest::Equal { argument: 1, value: 0 }];
    insert(rules, libc::SYS_ioprio_set, SyscallRule::only_when(vec![own], deny));
    let family = |value: libc::c_int| ArgumentTest::Equal { argument: 0, value: value.unsigned_abs() };
    insert(rules, libc::SYS_socketpair, SyscallRule::only_when(vec![vec![family(libc::AF_UNIX)]], deny));
    let mut allowed = Vec::new();
    if profile.confinement == Confinement::Namespaces {
        allowed.push(vec![family(libc::AF_UNIX)]);
        if profile.network != NetworkMode::None {
            for internet in [libc::AF_INET, libc::AF_INET6] {
                for (kind, protocols) in [(1, [0, 6]), (2, [0, 17])] {
                    for value in protocols {
                        let kind = ArgumentTest::MaskedEqual { argument: 1, mask: 0xf, value: kind };
                        allowed.push(vec![
                            family(internet),
                            kind,
                            ArgumentTest::Equal { argument: 2, value },
                        ]);
                    }
                }
            }
        }
    }
    // Other kinds of sockets are reported if there is a listener; except for netlink, which every name lookup uses to
    // list the interfaces.
    let listens = profile.observe != Observe::Off || profile.network == NetworkMode::Gated;
    let mut sockets = SyscallRule::only_when(allowed, if listens { FilterAction::Notify } else { deny });
    if profile.observe != Observe::All {
        sockets.cases.push((vec![family(libc::AF_NETLINK)], DENY));
    }
    insert(rules, libc::SYS_socket, sockets);
    if profile.network == NetworkMode::Gated {
        insert(rules, libc::SYS_connect, SyscallRule::always(FilterAction::Notify));
        // TCP Fast Open connects without `connect`; programs fall back.
        let at_once = |argument| {
            SyscallRule::when(
                ArgumentTest::AnyBit { argument, bits: libc::MSG_FASTOPEN.unsigned_abs() },
                FilterAction::Errno(libc::EOPNOTSUPP),
            )
        };
        insert(rules, libc::SYS_sendto, at_once(3));
        insert(rules, libc::SYS_sendmsg, at_once(2));
        insert(rules, libc::SYS_sendmmsg, at_once(3));
    }
}

/// Inserts a case before all others of a call.
fn prepend_case(
    rules: &mut BTreeMap<u32, SyscallRule>,
    number: libc::c_long,
    tests: Vec<ArgumentTest>,
    verdict: FilterAction,
) {
    if let Ok(number) = u32::try_from(number) {
        let rule = rules.entry(number).or_insert_with(|| SyscallRule::always(FilterAction::Allow));
        rule.cases.insert(0, (tests, verdict));
    }
}

fn insert(rules: &mut BTreeMap<u32, SyscallRule>, number: libc::c_long, rule: SyscallRule) {
    if let Ok(number) = u32::try_from(number) {
        rules.insert(number, rule);
    }
}
