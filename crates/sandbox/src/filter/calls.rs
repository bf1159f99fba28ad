//! Which calls, and why. A table of data.

use std::collections::BTreeMap;

use super::assemble::{Rule, Test, Verdict};
use super::{Part, Profile, Walls};
use crate::spec::{Network, Observe};

const NO: Verdict = Verdict::Refuse(libc::EPERM);
const ABSENT: Verdict = Verdict::Refuse(libc::ENOSYS);

/// Never, in any profile.
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
    // Where memory lies.
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
    // Large, young or rarely tested parts of the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_memfd_secret,
    libc::SYS_vmsplice,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_remap_file_pages,
    // Keys of the user.
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
    // Files by number instead of by path.
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // The machine.
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

/// Newer than some C libraries know: `open_tree_attr` (6.15) sets a mount's attributes while cloning it.
const OPEN_TREE_ATTR: libc::c_long = 467;

/// Cannot be judged, so they do not exist.
const MISSING: &[libc::c_long] = &[
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Set-user-id and set-group-id: on a file of the host whoever starts it would become its owner, or of its group.
const SET_ID: u32 = 0o6000;
/// Calls that give a file its mode: where they say it, and where they say whether there will be a new file at all.
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
/// Flags of an open that makes a file.
const MAKES: u32 = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;

/// Whether a call wants a set-id bit; its arguments are those that the kernel has.
pub(crate) fn wants_set_id(number: libc::c_long, arguments: &[u64; 6]) -> bool {
    let any = |argument: u32, bits: u32| {
        usize::try_from(argument)
            .ok()
            .and_then(|at| arguments.get(at))
            .is_some_and(|value| *value as u32 & bits != 0)
    };
    MODES.iter().any(|(call, mode, flags)| {
        *call == number && any(*mode, SET_ID) && flags.is_none_or(|flags| any(flags, MAKES))
    })
}

/// Change what a file says about itself; Landlock does not judge them.
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
/// The kinds of requests by which file systems change a file, or make one, through a handle that can only read: flags,
/// project, version, verity, encryption, subvolumes. By kind (ext and most others, XFS, version, Btrfs, F2FS, FAT,
/// bcachefs, ZFS), because Landlock judges requests to devices only, and other file systems have more of them.
const FILE_REQUESTS: &[u32] = &[0x66, 0x58, 0x76, 0x94, 0xf5, 0x72, 0xbc, 0x83];
/// Of these, what only asks (where the data is, flags, project, version) or needs a handle that can write (cloning).
const FILE_QUESTIONS: &[u32] =
    &[0xc020_660b, 0x8008_6601, 0x801c_581f, 0x8008_7601, 0x4004_9409, 0x4020_940d];
/// Of Linux 6.13 and 6.17.
pub(crate) const SETXATTRAT: libc::c_long = 463;
pub(crate) const REMOVEXATTRAT: libc::c_long = 466;
pub(crate) const FILE_SETATTR: libc::c_long = 469;

/// Shared with every process of the user where there is no namespace of its own for them.
const SHARED: &[libc::c_long] = &[
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
    // Tells what happens to files that may not be read; and there are few for all.
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
];

/// Change names or contents by path; asked about when writes are observed.
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

/// Ask whether something is there, and what it is; asked about when everything is observed.
const LOOKS: &[libc::c_long] = &[
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

/// What a handle is told about whom to signal, and by what: F_SETOWN, F_SETSIG, F_SETOWN_EX.
const OWNERS: &[u32] = &[8, 10, 15];
/// The same as requests: FIOSETOWN, SIOCSPGRP.
const OWNER_REQUESTS: &[u32] = &[0x8901, 0x8902];

/// Of another process only with its number: `0` is the caller.
const ABOUT_A_PROCESS: &[libc::c_long] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
];

/// Every `CLONE_NEW*` that `clone` knows; that of time namespaces lies where the exit signal is.
const NEW_NAMESPACES: u32 = 0x7e02_0000;
const TIOCLINUX: u32 = 0x541c;
const TIOCSETD: u32 = 0x5423;

/// Flags of an open that is meant for writing.
pub(crate) const WRITE_FLAGS: u32 =
    (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_TMPFILE & !libc::O_DIRECTORY)
        as u32;

/// Judged by the network of a run, which a stage does not know.
const CONNECTING: &[libc::c_long] =
    &[libc::SYS_connect, libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg];

/// What a stage and what it makes still need before the program starts.
const NEEDED_BEFORE: &[libc::c_long] = &[
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

/// The rules of a part of the filter. What is judged early is the same for every run.
pub(super) fn rules(profile: &Profile) -> BTreeMap<u32, Rule> {
    let early = |number: &u32| {
        let number = libc::c_long::from(*number);
        let per_run = SIGNALS.contains(&number)
            || CONNECTING.contains(&number)
            || number == libc::SYS_pidfd_send_signal;
        !NEEDED_BEFORE.contains(&number) && !per_run
    };
    match profile.part {
        Part::Whole => whole(profile),
        Part::Early => {
            let mut rules = whole(&Profile { observe: Observe::Off, ..profile.clone() });
            rules.retain(|number, _| early(number));
            rules
        }
        Part::Late => {
            let judged = whole(&Profile { observe: Observe::Off, ..profile.clone() });
            let mut rules = whole(profile);
            rules.retain(|number, rule| !(early(number) && judged.get(number) == Some(rule)));
            rules
        }
    }
}

/// Whether a call is refused whatever its arguments: who is asked about it tells it and never lets it go on.
pub(crate) fn refuses(number: libc::c_long, walls: Walls) -> bool {
    let attributes = || ATTRIBUTES.contains(&number) || SHARED.contains(&number);
    FORBIDDEN.contains(&number) || (walls == Walls::LandlockOnly && attributes())
}

fn whole(profile: &Profile) -> BTreeMap<u32, Rule> {
    let mut rules = BTreeMap::new();
    // What is refused anyway is told as well, when everything is to be told.
    let no = if profile.observe == Observe::All { Verdict::Ask } else { NO };
    for number in FORBIDDEN.iter().chain(&[OPEN_TREE_ATTR]) {
        put(&mut rules, *number, Rule::always(no));
    }
    for number in MISSING {
        put(&mut rules, *number, Rule::always(ABSENT));
    }
    observed(profile, &mut rules);
    for (number, mode, flags) in MODES {
        let mode = Test::AnyBit { argument: *mode, bits: SET_ID };
        let flags = flags.map(|argument| Test::AnyBit { argument, bits: MAKES });
        before(&mut rules, *number, flags.into_iter().chain([mode]).collect(), no);
    }
    arguments(profile, no, &mut rules);
    if profile.walls == Walls::LandlockOnly {
        for number in ATTRIBUTES.iter().chain(SHARED) {
            put(&mut rules, *number, Rule::always(no));
        }
        if !profile.guarded.is_empty() {
            let everybody = u32::MAX;
            // Alone, and as a group.
            let groups = profile.guarded.iter().map(|guarded| guarded.wrapping_neg());
            let targets = profile.guarded.iter().copied().chain(groups).chain([everybody]);
            let cases = targets.map(|value| (vec![Test::Equal { argument: 0, value }], no)).collect();
            let rule = Rule { cases, otherwise: Verdict::Allow };
            for number in SIGNALS {
                put(&mut rules, *number, rule.clone());
            }
            put(&mut rules, libc::SYS_pidfd_send_signal, Rule::always(no));
            // The kernel signals whom a handle is said to belong to.
            let asked = |value: u32| (vec![Test::Equal { argument: 1, value }], no);
            let cases = OWNERS.iter().map(|value| asked(*value)).collect();
            put(&mut rules, libc::SYS_fcntl, Rule { cases, otherwise: Verdict::Allow });
            for value in OWNER_REQUESTS {
                let (tests, verdict) = asked(*value);
                before(&mut rules, libc::SYS_ioctl, tests, verdict);
            }
        }
    }
    // Whoever has a lease on a file makes everybody wait who opens it, also outside.
    let lease = Test::Equal { argument: 1, value: libc::F_SETLEASE.unsigned_abs() };
    before(&mut rules, libc::SYS_fcntl, vec![lease], no);
    rules
}

fn observed(profile: &Profile, rules: &mut BTreeMap<u32, Rule>) {
    if profile.observe == Observe::Off {
        return;
    }
    let (looks, attributes) =
        if profile.observe == Observe::All { (LOOKS, ATTRIBUTES) } else { (&[][..], &[][..]) };
    for number in CHANGES.iter().chain(looks).chain(attributes) {
        put(rules, *number, Rule::always(Verdict::Ask));
    }
    // The run's own start was decided by whoever ordered it. A program that imitates it is only not told about.
    let mut unless_own = |number, argument| {
        let own = Test::Equal { argument, value: crate::sys::process::OWN_START.cast_unsigned() };
        put(rules, number, Rule { cases: vec![(vec![own], Verdict::Allow)], otherwise: Verdict::Ask });
    };
    unless_own(libc::SYS_execveat, 0);
    // Where relative paths begin: asked about so that this need not be looked up for each of them.
    unless_own(libc::SYS_chdir, 1);
    put(rules, libc::SYS_fchdir, Rule::always(Verdict::Ask));
    let open = |argument| match profile.observe {
        Observe::All => Rule::always(Verdict::Ask),
        _ => Rule::when(Test::AnyBit { argument, bits: WRITE_FLAGS }, Verdict::Ask),
    };
    put(rules, libc::SYS_openat, open(2));
    #[cfg(target_arch = "x86_64")]
    put(rules, libc::SYS_open, open(1));
}

fn arguments(profile: &Profile, no: Verdict, rules: &mut BTreeMap<u32, Rule>) {
    put(rules, libc::SYS_clone, Rule::when(Test::AnyBit { argument: 0, bits: NEW_NAMESPACES }, no));
    let terminal = [libc::TIOCSTI as u32, TIOCLINUX, TIOCSETD];
    let request = |value: u32| vec![Test::Equal { argument: 1, value }];
    let mut cases: Vec<_> = terminal.into_iter().map(|value| (request(value), no)).collect();
    if profile.walls == Walls::LandlockOnly {
        cases.extend(FILE_QUESTIONS.iter().map(|value| (request(*value), Verdict::Allow)));
        let kind = |kind: u32| vec![Test::MaskedEqual { argument: 1, mask: 0xff00, value: kind << 8 }];
        cases.extend(FILE_REQUESTS.iter().map(|value| (kind(*value), no)));
    }
    put(rules, libc::SYS_ioctl, Rule { cases, otherwise: Verdict::Allow });
    let same = |argument, value| vec![Test::Equal { argument, value }];
    put(rules, libc::SYS_personality, Rule::only_when(vec![same(0, 0), same(0, u32::MAX)], no));
    for number in ABOUT_A_PROCESS {
        put(rules, *number, Rule::only_when(vec![same(0, 0)], no));
    }
    let own = vec![Test::Equal { argument: 0, value: 0 }, Test::Equal { argument: 1, value: 0 }];
    put(rules, libc::SYS_setpriority, Rule::only_when(vec![own], no));
    let own = vec![Test::Equal { argument: 0, value: 1 }, Test::Equal { argument: 1, value: 0 }];
    put(rules, libc::SYS_ioprio_set, Rule::only_when(vec![own], no));
    let family = |value: libc::c_int| Test::Equal { argument: 0, value: value.unsigned_abs() };
    put(rules, libc::SYS_socketpair, Rule::only_when(vec![vec![family(libc::AF_UNIX)]], no));
    let mut allowed = Vec::new();
    if profile.walls == Walls::Namespaces {
        allowed.push(vec![family(libc::AF_UNIX)]);
        if profile.network != Network::None {
            for internet in [libc::AF_INET, libc::AF_INET6] {
                for (kind, protocols) in [(1, [0, 6]), (2, [0, 17])] {
                    for value in protocols {
                        let kind = Test::MaskedEqual { argument: 1, mask: 0xf, value: kind };
                        allowed.push(vec![family(internet), kind, Test::Equal { argument: 2, value }]);
                    }
                }
            }
        }
    }
    // Who tries another kind of socket is told about, where somebody listens; but not who asks for the interfaces, as
    // every look-up of a name does.
    let listens = profile.observe != Observe::Off || profile.network == Network::Gated;
    let mut sockets = Rule::only_when(allowed, if listens { Verdict::Ask } else { no });
    if profile.observe != Observe::All {
        sockets.cases.push((vec![family(libc::AF_NETLINK)], NO));
    }
    put(rules, libc::SYS_socket, sockets);
    if profile.network == Network::Gated {
        put(rules, libc::SYS_connect, Rule::always(Verdict::Ask));
        // Connecting without `connect`; programs fall back.
        let at_once = |argument| {
            Rule::when(
                Test::AnyBit { argument, bits: libc::MSG_FASTOPEN.unsigned_abs() },
                Verdict::Refuse(libc::EOPNOTSUPP),
            )
        };
        put(rules, libc::SYS_sendto, at_once(3));
        put(rules, libc::SYS_sendmsg, at_once(2));
        put(rules, libc::SYS_sendmmsg, at_once(3));
    }
}

/// A case before all others of a call.
fn before(rules: &mut BTreeMap<u32, Rule>, number: libc::c_long, tests: Vec<Test>, verdict: Verdict) {
    if let Ok(number) = u32::try_from(number) {
        let rule = rules.entry(number).or_insert_with(|| Rule::always(Verdict::Allow));
        rule.cases.insert(0, (tests, verdict));
    }
}

fn put(rules: &mut BTreeMap<u32, Rule>, number: libc::c_long, rule: Rule) {
    if let Ok(number) = u32::try_from(number) {
        rules.insert(number, rule);
    }
}
